//! Sessions that run: who may see and end them, and the hosts that tell of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::JoinMode;
use sallyport_access::{HostId, HostRole, Identity, JoinTarget, Principal, RoleName, SessionId, Verb};
use sallyport_audit::Code;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::gate::calls::Gate;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::identities::logins::Logins;
use crate::authority::policy::Policy;
use crate::authority::sessions::bindings::Bindings;
use crate::authority::sessions::live::{FORGET_AFTER, Live, NotOrdered, ORDERS, REPORT_WITHIN, Reporting};
use crate::authority::streams::{Answers, Line, Over, Served, StreamPlace, Streams};

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

/// How long a host has to end a session.
const END_TIMEOUT: Duration = Duration::from_secs(8);
/// Orders that wait for a host's connection.
const REPORT_QUEUE: usize = 4;
/// Longest reason that is passed on.
const LONGEST_REASON: usize = 512;
/// How often it is looked for hosts that are silent.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) type Orders = Served<v1::ReportSessionsResponse>;

/// The hosts that serve sessions.
pub(crate) const REPORTERS: [HostRole; 2] = [HostRole::Node, HostRole::Proxy];

/// Sessions in one answer.
const SESSIONS: usize = 20_000;

/// The sessions that run, and whose they are.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    journal: Arc<Journal>,
    gate: Arc<Gate>,
    policy: Arc<Policy>,
    logins: Arc<Logins>,
    registry: Arc<HostRegistry>,
    streams: Arc<Streams>,
    live: Live,
    bindings: Bindings,
    stop: CancellationToken,
}

impl LiveSessions {
    pub(crate) fn new(
        journal: &Arc<Journal>,
        gate: &Arc<Gate>,
        policy: &Arc<Policy>,
        logins: &Arc<Logins>,
        registry: &Arc<HostRegistry>,
        streams: &Arc<Streams>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            journal: Arc::clone(journal),
            gate: Arc::clone(gate),
            policy: Arc::clone(policy),
            logins: Arc::clone(logins),
            registry: Arc::clone(registry),
            streams: Arc::clone(streams),
            live: Live::default(),
            bindings: Bindings::default(),
            stop: stop.clone(),
        })
    }

    /// Whether a session is this host's. An id that was made on a host names it; any other belongs to the first host that
    /// speaks of it.
    pub(crate) fn is_session_of(&self, host: HostId, session: SessionId) -> bool {
        if session.is_on(&host) {
            return true;
        }
        if self.registry.names.host_of(&session).is_some() || self.live.is_elsewhere(&session, host) {
            return false;
        }
        self.bindings.first(session, host) == host
    }

    /// Whether a session runs now.
    pub(crate) fn runs(&self, session: &SessionId) -> bool {
        self.live.find(session).is_some()
    }

    pub(crate) fn list(&self, caller: &Caller, request: &v1::ListSessionsRequest) -> Vec<v1::LiveSession> {
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
        let all = self.gate.check(caller, "session", Verb::List).is_ok();
        let mut joining = Joining::new(self, caller.identity());
        let mine = caller.identity().and_then(Identity::user).map(ToString::to_string);
        found
            .into_iter()
            .filter_map(|mut told| {
                told.may_join = joining.modes(&told);
                told.login_id.clear();
                let visible = all || mine.as_ref() == Some(&told.user) || !told.may_join.is_empty();
                visible.then_some(told)
            })
            .take(limit)
            .collect()
    }

    pub(crate) async fn end(
        &self,
        caller: &Caller,
        request: v1::EndSessionRequest,
    ) -> Result<v1::LiveSession, Status> {
        const METHOD: &str = "Sessions.EndSession";
        if !matches!(caller, Caller::LocalAdmin) {
            self.gate.certified(caller, METHOD).await?;
        }
        let id = request.session_id.parse::<SessionId>();
        let told = id.as_ref().ok().and_then(|id| self.live.find(id));
        let own = match (caller.identity().and_then(Identity::user), &told) {
            (Some(user), Some(told)) => user.as_str() == told.user,
            _ => false,
        };
        // Only a caller who may end a session learns whether it exists.
        if !own {
            self.gate.allow(caller, METHOD, "session", Verb::Delete).await?;
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
        let event = caller
            .event(Code::SessionTerminated)
            .session(id)
            .node(told.node.clone())
            .login(told.login.clone())
            .field("owner", told.user.clone())
            .message(reason);
        self.journal.record_urgent(vec![event]).await?;
        Ok(told)
    }

    /// Takes a host's call, and gives the orders for it.
    pub(crate) fn take_reports(
        self: &Arc<Self>,
        identity: &Identity,
        (place, line): (StreamPlace, Line),
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
        let (sessions, identity) = (Arc::clone(self), identity.clone());
        let gate = Arc::clone(&self.gate);
        let mut looks = tokio::time::interval(LOOK);
        let take = |answers: Answers<v1::ReportSessionsResponse>| async move {
            answers.send(first).await?;
            let mut heard = tokio::time::Instant::now();
            loop {
                tokio::select! {
                    message = said.message() => match message {
                        Ok(Some(message)) => {
                            heard = tokio::time::Instant::now();
                            let message = match sessions.bound_report(&host, message) {
                                Ok(message) => message,
                                Err(error) => return Err(Over::Refused(error.into())),
                            };
                            let logins = message.put.iter().map(|told| (told.login_id.clone(), told.user.clone()));
                            let logins: Vec<_> = logins.collect();
                            match sessions.live.take(&host, call, message) {
                                // What is refused of a host keeps no login from ending.
                                Ok(true) => {
                                    let now = OffsetDateTime::now_utc();
                                    for (login_id, user) in &logins {
                                        sessions.logins.in_session(login_id, user, now);
                                    }
                                }
                                Ok(false) => {
                                    let status = Status::aborted("another call of this host has taken over");
                                    return Err(Over::Refused(status));
                                }
                                Err(problem) => {
                                    return Err(Over::Refused(Status::invalid_argument(problem.to_string())));
                                },
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
        Ok(self.streams.stream(place, line, REPORT_QUEUE, move || gate.check_valid(&identity), take))
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
                let server =
                    told.node_id.parse::<HostId>().ok().and_then(|id| self.registry.presence.get(id));
                let Some(server) = server.filter(|known| known.openssh().is_some()) else { return false };
                told.node = server.node.name.to_string();
                true
            });
        }
        Ok(said)
    }

    /// Forgets the sessions of silent hosts, and notes that the logins of the others are in use, until the authority stops.
    pub(crate) async fn forget(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.live.forget(Instant::now());
                    let now = OffsetDateTime::now_utc();
                    self.live.each(|told| self.logins.in_session(&told.login_id, &told.user, now));
                }
                () = self.stop.cancelled() => return,
            }
        }
    }
}

/// Who may join what. Sessions of one owner on one node share an answer.
struct Joining<'a> {
    sessions: &'a LiveSessions,
    identity: Option<&'a Identity>,
    /// Whether any of the caller's roles says something about joining.
    rules: bool,
    answers: HashMap<(String, String, Vec<String>), Vec<String>>,
}

impl<'a> Joining<'a> {
    fn new(sessions: &'a LiveSessions, identity: Option<&'a Identity>) -> Self {
        let cache = sessions.policy.cache();
        let rules = match identity.map(|identity| &identity.principal) {
            Some(Principal::User { roles, .. }) => roles
                .iter()
                .filter_map(|role| cache.roles.get(role.as_str()))
                .any(|role| !role.allow.join_sessions.is_empty()),
            _ => false,
        };
        Self { sessions, identity, rules, answers: HashMap::new() }
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
        let node = told.node_id.parse::<HostId>().ok().and_then(|id| self.sessions.registry.presence.get(id));
        let Some(node) = node else { return Vec::new() };
        let cache = self.sessions.policy.cache();
        let owner_roles: Vec<RoleName> =
            told.owner_roles.iter().filter_map(|role| RoleName::new(role.clone()).ok()).collect();
        let target = JoinTarget { node: &node.node, owner: &told.user, owner_roles: &owner_roles };
        let now = OffsetDateTime::now_utc();
        JoinMode::ALL
            .into_iter()
            .filter(|mode| cache.policies.may_join(identity, target, *mode, &cache.locks, now).is_ok())
            .map(|mode| mode.as_str().to_owned())
            .collect()
    }
}
