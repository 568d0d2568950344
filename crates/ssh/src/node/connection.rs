//! One connection, from its first byte to its last.

mod handler;
mod layer;
mod limits;
mod login;
pub(super) mod native;
mod shared;
mod wishes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russh::Disconnect;
use russh::server::Config;
use sallyport_audit::Code;
use sallyport_sal::HybridKeyExchange;
use sallyport_sal::uses::{self, Aside};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

pub(super) use shared::{Live, Shared, Word};

use crate::capabilities::{Heard, Tap, hear_out, no_common_algorithm};
use crate::inbound::Line;
use crate::node::opening::Phase;
use crate::transport::accept::Terms;
use crate::{BoxedStream, Stream};
use handler::Connection;
use limits::Verdict;

/// How long a client has to hear of the end after it was told, before its line is dropped.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How a connection begins.
pub(super) struct Manner {
    /// What the library is told.
    pub(super) config: Arc<Config>,
    /// Which key exchange will do.
    pub(super) demand: HybridKeyExchange,
    /// On what terms clients are let in by [`crate::transport`]; none where the library does all of it.
    pub(super) layer: Option<Terms>,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: BoxedStream, shared: Arc<Shared>, manner: Manner) {
    let span = tracing::info_span!(
        "ssh",
        peer = %shared.source(),
        user = tracing::field::Empty,
        login = tracing::field::Empty
    );
    // What [`crate::transport`] reads is held back behind it.
    let gate = if manner.layer.is_some() { Arc::default() } else { shared.gate.clone() };
    let line = Line::new(stream, shared.line.clone(), gate);
    greet(line, &shared, manner).instrument(span).await;
    shared.opening.failed("no_session");
    shared.saw(None);
    if shared.access.get().is_none() && !shared.refused.load(Ordering::Relaxed) {
        let event = shared.event(Code::SessionRefused);
        let event = match (shared.no_common.get(), shared.offered.offer()) {
            (Some(reason), Some(offer)) => event
                .message(format!("the client cannot talk to this node: {reason}"))
                .field("client", offer.software.as_str()),
            _ => event.message("the client presented no certificate of this cluster that is valid now"),
        };
        shared.server.sink.emit(event);
    }
}

/// Hears the client out first where not every one fits.
async fn greet(line: Line<impl Stream + 'static>, shared: &Arc<Shared>, manner: Manner) {
    match manner.demand {
        HybridKeyExchange::Preferred => begin(Tap::along(line, &shared.offered), shared, manner).await,
        HybridKeyExchange::Required => {
            let heard = timeout(shared.server.config.login_timeout, hear_out(line)).await;
            match heard {
                Ok(Ok(Heard::Fits(greeted))) => {
                    begin(Tap::along(greeted, &shared.offered), shared, manner).await;
                }
                Ok(Ok(Heard::Refused { offer, reason })) => {
                    tracing::info!(client = offer.software, %reason, "a client was sent away");
                    shared.offered.set(offer);
                    let _ = shared.no_common.set(reason);
                }
                Ok(Err(error)) => tracing::debug!(%error, "no SSH connection"),
                Err(_) => tracing::debug!("the client said nothing"),
            }
        }
    }
}

async fn begin(line: impl Stream + 'static, shared: &Arc<Shared>, manner: Manner) {
    match manner.layer {
        Some(terms) => layer::supervise(Box::new(line), shared, manner.config, terms).await,
        None => supervise(line, shared, manner.config).await,
    }
}

async fn supervise(line: impl Stream + 'static, shared: &Arc<Shared>, config: Arc<Config>) {
    let connection = Connection::new(shared.clone());
    let login_timeout = shared.server.config.login_timeout;
    let began = Instant::now();
    uses::count(Aside::SshConnection);
    let greeting = timeout(login_timeout, russh::server::run_stream(config, line, connection));
    let mut session = match greeting.await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "no SSH connection"),
        Err(_) => return tracing::debug!("the client said nothing"),
    };
    shared.opening.reached(Phase::KeyExchange);
    let handle = session.handle();
    let goodbye = |reason| async move {
        let _ = handle.disconnect(Disconnect::ByApplication, reason, String::new()).await;
    };
    if let Some(Err(error)) = hold(shared, began, &mut session, goodbye).await {
        tracing::debug!(%error, "the connection ended");
        if let Some(reason) = no_common_algorithm(&error) {
            let _ = shared.no_common.set(reason);
        }
    }
}

/// Holds a connection to its limits until it ends, and gives how; or none after it was cut, with the reason told.
async fn hold<T, F: Future<Output = ()>>(
    shared: &Arc<Shared>,
    began: Instant,
    mut session: impl Future<Output = T> + Unpin,
    goodbye: impl FnOnce(String) -> F,
) -> Option<T> {
    let login_timeout = shared.server.config.login_timeout;
    let login_deadline = tokio::time::sleep_until(began + login_timeout);
    tokio::pin!(login_deadline);
    let mut changes = shared.server.directory.changes();
    let mut changes_end = false;
    let mut warned = false;
    let mut nowhere_to_go = shared.back_end.gone();
    let (reason, is_ours) = loop {
        let ask_again = match shared.limits(warned) {
            Verdict::Over(reason) => break (reason, true),
            Verdict::Warn(told) => {
                warned = true;
                shared.tell_terminals(&told);
                continue;
            }
            Verdict::Fine(ask_again) => ask_again,
        };
        tokio::select! {
            ended = &mut session => return Some(ended),
            () = &mut login_deadline, if shared.access.get().is_none() => {
                break (format!("no login within {} s", login_timeout.as_secs()), true);
            }
            () = shared.wake.notified() => {
                // A lock may have come while the login was decided.
                if let Some(reason) = shared.ending() {
                    break (reason, true);
                }
            }
            changed = changes.changed(), if !changes_end => {
                changes_end = changed.is_err();
                if let Some(reason) = shared.locked() {
                    break (reason, true);
                }
            }
            reason = &mut nowhere_to_go => break (reason, false),
            () = sleep(ask_again) => {}
        }
    };
    tracing::info!(%reason, "cutting a connection");
    if is_ours {
        let sessions = shared.sessions_running();
        if shared.access.get().is_some() {
            let event = shared.event(Code::SessionCut).message(&reason);
            shared.server.sink.emit(event.field("sessions", sessions));
        }
        // Otherwise whoever was there has told the sessions, or they find that nobody is.
        shared.cut(&reason);
    }
    // The sessions say it on their standard error; when they have, or have had their time, the line goes.
    let sessions_gone = async {
        while shared.sessions_running() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = timeout(LAST_WORDS, sessions_gone).await;
    let goodbye = async {
        goodbye(reason).await;
        let _ = (&mut session).await;
    };
    let _ = timeout(LAST_WORDS, goodbye).await;
    shared.line.cancel();
    None
}
