//! Sessions that run: who may see and end them, and the hosts that tell of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::JoinMode;
use sallyport_access::{HostId, HostRole, Identity, JoinTarget, Principal, RoleName, SessionId, Verb};
use sallyport_audit::recording::Aside;
use sallyport_audit::{Code, Event};
use sallyport_wire::v1::sessions_server::Sessions;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::Inner;
use super::caller::{Caller, caller};
use super::fleet::recording;
use super::live::{FORGET_AFTER, NotOrdered, ORDERS, REPORT_WITHIN, Reporting};
use super::streams::{Answers, Line, Over, Place, Served};

/// Why a host may not say something of sessions.
#[derive(Debug, thiserror::Error)]
enum NotItsOwn {
    #[error(transparent)]
    Id(#[from] sallyport_access::IdError),
    #[error("session {0} belongs to another host")]
    Session(SessionId),
}

impl From<NotItsOwn> for Status {
    fn from(error: NotItsOwn) -> Self {
        Self::permission_denied(error.to_string())
    }
}

pub(super) struct Service(pub(super) Arc<Inner>);

/// Sessions in one answer.
const SESSIONS: usize = 20_000;
/// How long a host has to end a session.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// Orders that wait for a host's connection.
const REPORT_QUEUE: usize = 4;
/// Longest reason that is passed on.
const LONGEST_REASON: usize = 512;
/// A recording that may still grow and has not for so long belongs to a host that is gone.
const SILENCE: Duration = Duration::from_secs(3600);
/// How often it is looked for recordings that are too old, and how many of them go at once.
const RETENTION_LOOK: Duration = Duration::from_secs(30);
const REMOVED_AT_ONCE: usize = 200;
/// How often it is looked for hosts that are silent.
const LOOK: Duration = Duration::from_secs(10);

pub(super) type Orders = Served<v1::ReportSessionsResponse>;

#[tonic::async_trait]
impl Sessions for Service {
    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        const METHOD: &str = "Sessions.ListSessions";
        let caller = caller(&request);
        if !matches!(caller, Caller::LocalAdmin) {
            let identity = self.0.certified(&caller, METHOD).await?;
            if identity.user().is_none() {
                let status = Status::permission_denied("hosts do not list sessions");
                return Err(self.0.refuse(&caller, METHOD, status).await);
            }
        }
        self.0.called(&caller, METHOD, "").await?;
        let inner = Arc::clone(&self.0);
        let request = request.into_inner();
        let listed = tokio::task::spawn_blocking(move || inner.list_sessions(&caller, &request)).await;
        let sessions = listed.map_err(|_| Status::internal("the sessions could not be listed"))?;
        Ok(Response::new(v1::ListSessionsResponse { sessions }))
    }

    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        let caller = caller(&request);
        let session = self.0.end_session(&caller, request.into_inner()).await?;
        Ok(Response::new(v1::EndSessionResponse { session: Some(session) }))
    }

    async fn remove_recording(
        &self,
        request: Request<v1::RemoveRecordingRequest>,
    ) -> Result<Response<v1::RemoveRecordingResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Sessions.RemoveRecording", "recording", Verb::Delete).await?;
        let session = session_id(&request.get_ref().session_id)?;
        let event = self.0.event(Code::RecordingRemoved, &caller);
        let bytes = self.0.remove_recording(session, event).await?;
        Ok(Response::new(v1::RemoveRecordingResponse { bytes }))
    }

    async fn hold_recording(
        &self,
        request: Request<v1::HoldRecordingRequest>,
    ) -> Result<Response<v1::HoldRecordingResponse>, Status> {
        let caller = caller(&request);
        self.0.allow(&caller, "Sessions.HoldRecording", "recording", Verb::Delete).await?;
        let v1::HoldRecordingRequest { session_id: id, hold } = request.into_inner();
        let session = session_id(&id)?;
        let recordings = Arc::clone(&self.0.recordings);
        let held = tokio::task::spawn_blocking(move || recordings.hold(session, hold)).await;
        let news = held
            .map_err(|_| Status::internal("the recording could not be held"))?
            .map_err(|error| recording(&error))?;
        if news {
            let code = if hold { Code::RecordingHeld } else { Code::RecordingReleased };
            self.0.record(vec![self.0.event(code, &caller).session(session)]).await?;
        }
        Ok(Response::new(v1::HoldRecordingResponse {}))
    }
}

impl Inner {
    fn list_sessions(&self, caller: &Caller, request: &v1::ListSessionsRequest) -> Vec<v1::LiveSession> {
        let limit = match request.limit {
            0 => SESSIONS,
            limit => (limit as usize).min(SESSIONS),
        };
        let is = |wanted: &str, got: &str| wanted.is_empty() || wanted == got;
        let found = self.live.list(|id, told| {
            is(&request.user, &told.user)
                && (is(&request.node, &told.node) || request.node == told.node_id)
                && (request.session_id.is_empty() || request.session_id == id.to_string())
        });
        let all = self.check(caller, "session", Verb::List).is_ok();
        let mut joining = Joining::new(self, caller.identity());
        let mine = caller.identity().and_then(Identity::user).map(ToString::to_string);
        found
            .into_iter()
            .filter_map(|mut told| {
                told.may_join = joining.modes(&told);
                let visible = all || mine.as_ref() == Some(&told.user) || !told.may_join.is_empty();
                visible.then_some(told)
            })
            .take(limit)
            .collect()
    }

    async fn end_session(
        &self,
        caller: &Caller,
        request: v1::EndSessionRequest,
    ) -> Result<v1::LiveSession, Status> {
        const METHOD: &str = "Sessions.EndSession";
        if !matches!(caller, Caller::LocalAdmin) {
            self.certified(caller, METHOD).await?;
        }
        let id = request.session_id.parse::<SessionId>();
        let told = id.as_ref().ok().and_then(|id| self.live.find(id));
        let own = match (caller.identity().and_then(Identity::user), &told) {
            (Some(user), Some(told)) => user.as_str() == told.user,
            _ => false,
        };
        // Whether a session exists is for those to know who may end it.
        if !own {
            self.allow(caller, METHOD, "session", Verb::Delete).await?;
        }
        let id = id.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let gone = || Status::not_found(format!("no session {id} runs; see: sallyport sessions ls"));
        let told = told.ok_or_else(gone)?;
        let reason: String = request
            .reason
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_REASON)
            .collect();
        let shown = match reason.as_str() {
            "" => format!("ended by {}", caller.name()),
            reason => format!("ended by {}: {reason}", caller.name()),
        };
        let unreachable = || {
            Status::unavailable(format!(
                "{} does not answer the authority, so its sessions cannot be ended one by one; a lock reaches it as soon as it is back: sallyport admin lock --user {}",
                told.served_by, told.user
            ))
        };
        let (order, answer) = self.live.order_end(&id, &shown).map_err(|why| match why {
            NotOrdered::Unknown => gone(),
            NotOrdered::OutOfReach => unreachable(),
        })?;
        let done = tokio::time::timeout(END_TIMEOUT, answer).await;
        self.live.give_up(order);
        match done {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(gone()),
            Ok(Err(_)) | Err(_) => return Err(unreachable()),
        }
        let event = self
            .event(Code::SessionTerminated, caller)
            .session(id)
            .node(told.node.clone())
            .login(told.login.clone())
            .field("owner", told.user.clone())
            .message(reason);
        self.record_urgent(vec![event]).await?;
        Ok(told)
    }

    /// Takes a host's call, and gives the orders for it.
    pub(super) fn take_reports(
        self: &Arc<Self>,
        identity: &Identity,
        (place, line): (Place, Line),
        mut said: Streaming<v1::ReportSessionsRequest>,
    ) -> Result<Orders, Status> {
        let Principal::Host { id, name, role } = &identity.principal else {
            return Err(Status::permission_denied("only hosts report sessions"));
        };
        let host = Reporting { id: *id, name: name.clone(), role: *role, shown: identity.display_name() };
        let (orders, mut ordered) = mpsc::channel(ORDERS);
        let call = self.live.open(&host, orders);
        let first = v1::ReportSessionsResponse {
            report_within: Some(convert::duration_to_proto(REPORT_WITHIN)),
            end: None,
        };
        let (inner, identity) = (Arc::clone(self), identity.clone());
        let mut looks = tokio::time::interval(LOOK);
        let take = |answers: Answers<v1::ReportSessionsResponse>| async move {
            answers.send(first).await?;
            let mut heard = tokio::time::Instant::now();
            loop {
                tokio::select! {
                    message = said.message() => match message {
                        Ok(Some(message)) => {
                            heard = tokio::time::Instant::now();
                            let message = match inner.bound_report(&host, message) {
                                Ok(message) => message,
                                Err(error) => return Err(Over::Refused(error.into())),
                            };
                            match inner.live.take(&host, call, message) {
                                Ok(true) => {}
                                Ok(false) => {
                                    let status = Status::aborted("another call of this host has taken over");
                                    return Err(Over::Refused(status));
                                }
                                Err(problem) => return Err(Over::Refused(Status::invalid_argument(problem))),
                            }
                        }
                        Ok(None) | Err(_) => return Ok(()),
                    },
                    Some(end) = ordered.recv() => {
                        let order = v1::ReportSessionsResponse { report_within: None, end: Some(end) };
                        answers.send(order).await?;
                    }
                    _ = looks.tick() => if heard.elapsed() > FORGET_AFTER {
                        let status = Status::deadline_exceeded("nothing was heard for too long");
                        return Err(Over::Refused(status));
                    },
                }
            }
        };
        Ok(self.stream(place, line, REPORT_QUEUE, move |inner| inner.check_valid(&identity), take))
    }

    /// What a host says of its sessions, without what is not its own to say: another host's session, and for a proxy a
    /// session on anything but a server whose sessions it may record.
    fn bound_report(
        &self,
        host: &Reporting,
        mut said: v1::ReportSessionsRequest,
    ) -> Result<v1::ReportSessionsRequest, NotItsOwn> {
        for told in &said.put {
            let id = told.session_id.parse::<SessionId>()?;
            if !self.is_session_of(host.id, id) {
                return Err(NotItsOwn::Session(id));
            }
        }
        if host.role == HostRole::Proxy {
            said.put.retain_mut(|told| {
                let server = told.node_id.parse::<HostId>().ok().and_then(|id| self.presence.get(id));
                let Some(server) = server.filter(|known| known.openssh().is_some()) else { return false };
                told.node = server.node.name.to_string();
                true
            });
        }
        Ok(said)
    }

    /// Forgets the sessions of silent hosts, until the authority stops.
    pub(super) async fn forget_sessions(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.live.forget(Instant::now()),
                () = self.stop.cancelled() => return,
            }
        }
    }
}

impl Inner {
    /// Removes a recording; the event says whose it was.
    async fn remove_recording(&self, session: SessionId, event: Event) -> Result<u64, Status> {
        // An idle session adds nothing to its recording, for as long as anybody likes.
        if self.live.find(&session).is_some() {
            return Err(recording(&sallyport_audit::recording::StoreError::Live(session)));
        }
        let recordings = Arc::clone(&self.recordings);
        let aside = tokio::task::spawn_blocking(move || recordings.set_aside(session, SILENCE)).await;
        let aside = aside
            .map_err(|_| Status::internal("the recording could not be removed"))?
            .map_err(|error| recording(&error))?;
        self.discard_recording(session, aside, event).await
    }

    /// Removes what was set aside once that is on record; what cannot be put on record stays.
    async fn discard_recording(&self, session: SessionId, aside: Aside, event: Event) -> Result<u64, Status> {
        let mut event = event.session(session).field("bytes", aside.bytes);
        if let Some(metadata) = aside.metadata {
            event = event.node(metadata.node).login(metadata.login).field("owner", metadata.user);
        }
        // It makes room.
        let recorded = self.record_urgent(vec![event]).await;
        let (recordings, goes) = (Arc::clone(&self.recordings), recorded.is_ok());
        let done = tokio::task::spawn_blocking(move || match goes {
            true => recordings.discard(session),
            false => recordings.put_back(session),
        });
        let done = done.await.map_err(|_| Status::internal("the recording could not be removed"))?;
        recorded?;
        done.map_err(|error| recording(&error))?;
        Ok(aside.bytes)
    }

    /// Removes what was about to be removed when the authority ended.
    pub(super) async fn finish_removals(&self) {
        let recordings = Arc::clone(&self.recordings);
        let left = tokio::task::spawn_blocking(move || {
            let left = recordings.all_aside()?;
            Ok(left.into_iter().map(|session| (session, recordings.aside(session))).collect::<Vec<_>>())
        });
        let left = match left.await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                let error: std::io::Error = error;
                return tracing::error!(%error, "the recordings cannot be looked at");
            }
            Err(_) => return,
        };
        for (session, aside) in left {
            let event = Event::new(Code::RecordingRemoved, OffsetDateTime::now_utc())
                .user("auth")
                .origin("auth")
                .message("its removal had begun when the authority ended");
            let done = match aside {
                Ok(aside) => self.discard_recording(session, aside, event).await.map(drop),
                Err(error) => Err(recording(&error)),
            };
            if let Err(status) = done {
                tracing::warn!(%session, message = status.message(), "a recording was not removed");
            }
        }
    }

    /// Removes what is older than the session policy keeps it, until the authority stops.
    pub(super) async fn retain_recordings(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(RETENTION_LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            let Some(retention) = self.view().policies.sessions().retention else { continue };
            let Some(before) = std::time::SystemTime::now().checked_sub(retention) else { continue };
            let recordings = Arc::clone(&self.recordings);
            let old =
                tokio::task::spawn_blocking(move || recordings.older_than(before, REMOVED_AT_ONCE)).await;
            let old = match old {
                Ok(Ok(old)) => old,
                Ok(Err(error)) => {
                    tracing::error!(%error, "the recordings cannot be looked at");
                    continue;
                }
                Err(_) => continue,
            };
            for session in old {
                let event = Event::new(Code::RecordingRemoved, OffsetDateTime::now_utc())
                    .user("auth")
                    .origin("auth")
                    .message("older than the session policy keeps recordings");
                if self.stop.is_cancelled() {
                    return;
                }
                if let Err(status) = self.remove_recording(session, event).await {
                    // One that may still grow is not old yet.
                    if status.code() != tonic::Code::FailedPrecondition {
                        tracing::warn!(%session, message = status.message(), "an old recording was not removed");
                    }
                }
            }
        }
    }
}

fn session_id(text: &str) -> Result<SessionId, Status> {
    text.parse().map_err(|error: sallyport_access::IdError| Status::invalid_argument(error.to_string()))
}

/// Who may join what. Sessions of one owner on one node share an answer.
struct Joining<'a> {
    inner: &'a Inner,
    identity: Option<&'a Identity>,
    /// Whether any of the caller's roles says something about joining.
    rules: bool,
    answers: HashMap<(String, String, Vec<String>), Vec<String>>,
}

impl<'a> Joining<'a> {
    fn new(inner: &'a Inner, identity: Option<&'a Identity>) -> Self {
        let view = inner.view();
        let rules = match identity.map(|identity| &identity.principal) {
            Some(Principal::User { roles, .. }) => roles
                .iter()
                .filter_map(|role| view.roles.get(role.as_str()))
                .any(|role| !role.allow.join_sessions.is_empty()),
            _ => false,
        };
        Self { inner, identity, rules, answers: HashMap::new() }
    }

    fn modes(&mut self, told: &v1::LiveSession) -> Vec<String> {
        let Some(identity) = self.identity else { return Vec::new() };
        let own = identity.user().is_some_and(|user| user.as_str() == told.user);
        if !told.terminal || !(own || self.rules) {
            return Vec::new();
        }
        let key = (told.node_id.clone(), told.user.clone(), told.owner_roles.clone());
        if let Some(known) = self.answers.get(&key) {
            return known.clone();
        }
        let modes = self.ask(identity, told);
        self.answers.insert(key, modes.clone());
        modes
    }

    fn ask(&self, identity: &Identity, told: &v1::LiveSession) -> Vec<String> {
        let node = told.node_id.parse::<HostId>().ok().and_then(|id| self.inner.presence.get(id));
        let Some(node) = node else { return Vec::new() };
        let view = self.inner.view();
        let owner_roles: Vec<RoleName> =
            told.owner_roles.iter().filter_map(|role| RoleName::new(role.clone()).ok()).collect();
        let target = JoinTarget { node: &node.node, owner: &told.user, owner_roles: &owner_roles };
        let now = OffsetDateTime::now_utc();
        JoinMode::ALL
            .into_iter()
            .filter(|mode| view.policies.may_join(identity, target, *mode, &view.locks, now).is_ok())
            .map(|mode| mode.as_str().to_owned())
            .collect()
    }
}

/// The hosts that serve sessions.
pub(super) const REPORTERS: [HostRole; 2] = [HostRole::Node, HostRole::Proxy];
