//! Telling the authority which sessions run here, and doing what it says about them.
//!
//! One call to the authority lasts as long as both do: everything is told first, then what changes, and something at
//! least as often as the authority asks. After a loss, of the network or of the authority, everything is told anew; so
//! neither side keeps anything about it on disk.

use std::time::Duration;

use metrics::counter;
use sallyport_access::SessionId;
use sallyport_session::{Change, LiveSession, LiveSessions};
use sallyport_wire::convert;
use sallyport_wire::v1::{self, ReportSessionsRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{Instrument, debug, info, info_span};

use crate::backoff::Backoff;
use crate::member::authority_client::AuthorityClient;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long the authority may take to take the call.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// When the authority does not say how often it wants to hear.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(20);
/// Sessions in one message: some 100 KiB.
const BATCH: usize = 256;
/// Short sessions come and go many a second; they are told together.
const GATHER: Duration = Duration::from_millis(200);
/// Messages on their way.
const QUEUE: usize = 4;

/// Reports sessions.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) live: LiveSessions,
    pub(crate) client: AuthorityClient,
}

impl Reporter {
    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let forever = async {
            let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            loop {
                let ended = self.report(&mut backoff).await;
                let result = if ended.is_ok() { "ok" } else { "error" };
                counter!("sallyport_authority_calls_total", "method" => "ReportSessions", "result" => result)
                    .increment(1);
                if let Err(status) = ended {
                    debug!(message = status.message(), "the authority does not hear of sessions for now");
                }
                backoff.wait().await;
            }
        };
        tokio::select! {
            () = forever.instrument(info_span!("sessions")) => {}
            () = stop.cancelled() => {}
        }
    }

    /// One call, to its end.
    async fn report(&self, backoff: &mut Backoff) -> Result<(), Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut fleet = self.client.fleet();
        let call = fleet.report_sessions(ReceiverStream::new(receiver));
        let answered = tokio::time::timeout(CALL_TIMEOUT, call).await;
        let mut orders =
            answered.map_err(|_| Status::deadline_exceeded("no answer to the report"))??.into_inner();
        let first = tokio::time::timeout(CALL_TIMEOUT, orders.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no answer to the report"))??;
        let interval = first
            .and_then(|first| first.report_within)
            .as_ref()
            .and_then(convert::duration_from_proto)
            .map_or(DEFAULT_INTERVAL, |within| within.max(Duration::from_secs(1)));
        backoff.reset();
        self.live.follow();
        loop {
            tokio::select! {
                () = self.live.changed() => {
                    tokio::time::sleep(GATHER).await;
                    for message in messages(self.live.changes().await) {
                        send(&sender, message).await?;
                    }
                }
                order = orders.message() => match order? {
                    Some(order) => {
                        if let Some(end) = order.end {
                            send(&sender, self.obey(&end)).await?;
                        }
                    }
                    None => return Ok(()),
                },
                () = tokio::time::sleep(interval.mul_f64(0.8)) => {
                    send(&sender, ReportSessionsRequest::default()).await?;
                }
            }
        }
    }

    fn obey(&self, order: &v1::EndOrder) -> ReportSessionsRequest {
        let done = order.session_id.parse::<SessionId>().is_ok_and(|id| self.live.end(&id, &order.reason));
        info!(session = order.session_id, reason = order.reason, done, "ordered to end a session");
        let outcome = v1::OrderOutcome { order: order.order, done };
        ReportSessionsRequest { outcomes: vec![outcome], ..Default::default() }
    }
}

async fn send(
    sender: &mpsc::Sender<ReportSessionsRequest>,
    message: ReportSessionsRequest,
) -> Result<(), Status> {
    sender.send(message).await.map_err(|_| Status::unavailable("the authority no longer listens"))
}

/// A change in messages of bounded size.
fn messages(change: Change) -> Vec<ReportSessionsRequest> {
    let (put, ended, everything) = match change {
        Change::Everything(put) => (put, Vec::new(), true),
        Change::Some { put, ended } => (put, ended, false),
    };
    let mut messages: Vec<ReportSessionsRequest> = put
        .chunks(BATCH)
        .map(|batch| ReportSessionsRequest {
            put: batch.iter().map(to_proto).collect(),
            ..Default::default()
        })
        .chain(ended.chunks(BATCH).map(|batch| ReportSessionsRequest {
            ended: batch.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }))
        .collect();
    if everything {
        if messages.is_empty() {
            messages.push(ReportSessionsRequest::default());
        }
        if let Some(first) = messages.first_mut() {
            first.reset = true;
        }
        if let Some(last) = messages.last_mut() {
            last.complete = true;
        }
    }
    messages
}

fn to_proto(session: &LiveSession) -> v1::LiveSession {
    let LiveSession { about, owner_roles, login_id, recording, participants } = session;
    v1::LiveSession {
        session_id: about.session_id.to_string(),
        user: about.user.clone(),
        login: about.login.clone(),
        node: about.node.clone(),
        node_id: about.node_id.clone(),
        source: about.source.clone(),
        started: Some(convert::time_to_proto(about.started)),
        kind: about.kind.clone(),
        command: about.command.clone().unwrap_or_default(),
        terminal: about.term.is_some(),
        recording: (*recording).to_owned(),
        owner_roles: owner_roles.iter().map(ToString::to_string).collect(),
        login_id: login_id.to_string(),
        participants: participants
            .iter()
            .map(|one| v1::Participant {
                user: one.user.clone(),
                mode: one.mode.as_str().to_owned(),
                since: Some(convert::time_to_proto(one.since)),
            })
            .collect(),
        ..Default::default()
    }
}
