//! The sessions that run on this server, for whoever lists, ends or joins them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sallyport_access::{HostId, Identity, Principal, RoleName, SessionId};
use sallyport_audit::recording::SessionMetadata;
use tokio::sync::Notify;

use super::joining::{Hub, Participant};
use crate::inbound::Inbox;

/// Changes that may wait for whoever follows; past it everything is told anew.
const MOST_CHANGES: usize = 10_000;

/// What is told of one session that runs.
#[derive(Debug, Clone)]
pub struct LiveSession {
    /// Whose, where, since when, and what.
    pub about: SessionMetadata,
    /// The owner's roles: the rules on joining go by them.
    pub owner_roles: Vec<RoleName>,
    /// Where it is recorded: `node`, `proxy` or `off`.
    pub recording: &'static str,
    /// Who takes part besides its owner.
    pub participants: Vec<Participant>,
}

impl LiveSession {
    fn new(about: SessionMetadata, owner: &Identity, recording: &'static str) -> Self {
        let owner_roles = match &owner.principal {
            Principal::User { roles, .. } => roles.clone(),
            Principal::Host { .. } => Vec::new(),
        };
        Self { about, owner_roles, recording, participants: Vec::new() }
    }
}

/// What has changed since the last look.
#[derive(Debug)]
pub enum Change {
    /// All sessions: what was told before no longer counts.
    Everything(Vec<LiveSession>),
    /// These, one by one.
    Some {
        /// Begun or changed.
        put: Vec<LiveSession>,
        /// Over.
        ended: Vec<SessionId>,
    },
}

/// The sessions of one server. Clones share them.
#[derive(Clone, Default)]
pub struct LiveSessions(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Arc<Entry>>,
    /// What has changed since the follower looked; nothing is kept while nobody follows.
    changed: Option<BTreeSet<SessionId>>,
}

/// Ends a session of something else than this server, for the reason given.
pub type EndSession = Arc<dyn Fn(&str) + Send + Sync>;

/// How a session is ended.
enum End {
    Inbox(Arc<Inbox>),
    Call(EndSession),
}

/// One session, as its own task enters it.
pub(super) struct Entry {
    session: LiveSession,
    end: End,
    /// Of a session with a terminal.
    hub: Option<Arc<Hub>>,
}

impl Entry {
    pub(super) fn new(
        about: SessionMetadata,
        owner: &Identity,
        recording: &'static str,
        inbox: Arc<Inbox>,
        hub: Option<Arc<Hub>>,
    ) -> Self {
        let session = LiveSession::new(about, owner, recording);
        Self { session, end: End::Inbox(inbox), hub }
    }

    pub(super) fn about(&self) -> &SessionMetadata {
        &self.session.about
    }

    pub(super) fn owner_roles(&self) -> &[RoleName] {
        &self.session.owner_roles
    }

    pub(super) fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.clone()
    }

    fn told(&self) -> LiveSession {
        let participants = self.hub.as_ref().map(|hub| hub.participants()).unwrap_or_default();
        LiveSession { participants, ..self.session.clone() }
    }
}

impl LiveSessions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a session for as long as the result lives.
    pub(super) fn enter(&self, entry: Entry) -> LiveEntry {
        let id = entry.session.about.session_id;
        self.state().sessions.insert(id, Arc::new(entry));
        self.touch(id);
        LiveEntry { live: self.clone(), id }
    }

    /// Lists a session that something else on this host serves, for as long as the result lives. Nobody joins it.
    #[must_use]
    pub fn enter_other(
        &self,
        about: SessionMetadata,
        owner: &Identity,
        recording: &'static str,
        end: EndSession,
    ) -> LiveEntry {
        let session = LiveSession::new(about, owner, recording);
        self.enter(Entry { session, end: End::Call(end), hub: None })
    }

    /// One session that runs.
    pub(super) fn find(&self, id: &SessionId) -> Option<Arc<Entry>> {
        self.state().sessions.get(id).cloned()
    }

    /// Something about a session has changed.
    pub(super) fn touch(&self, id: SessionId) {
        let mut state = self.state();
        let State { changed, .. } = &mut *state;
        if let Some(waiting) = changed {
            waiting.insert(id);
            if waiting.len() > MOST_CHANGES {
                // Whoever follows is far behind: everything is shorter.
                *changed = None;
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Every session that runs, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<LiveSession> {
        self.state().sessions.values().map(|entry| entry.told()).collect()
    }

    /// Whether any session runs on this node.
    #[must_use]
    pub fn any_on(&self, node: HostId) -> bool {
        let node = node.to_string();
        self.state().sessions.values().any(|entry| entry.session.about.node_id == node)
    }

    /// Ends a session and tells its owner why; false when there is none of this id any more.
    #[must_use]
    pub fn end(&self, id: &SessionId, reason: &str) -> bool {
        let entry = self.state().sessions.get(id).cloned();
        match entry.as_ref().map(|entry| &entry.end) {
            Some(End::Inbox(inbox)) => inbox.cut(reason),
            Some(End::Call(end)) => end(reason),
            None => {}
        }
        entry.is_some()
    }

    /// Begins anew to follow: the next [`LiveSessions::changes`] tells everything. One may follow at a time.
    pub fn follow(&self) {
        self.state().changed = None;
        self.0.changed.notify_one();
    }

    /// Waits until [`LiveSessions::changes`] has something to give.
    pub async fn changed(&self) {
        loop {
            let notified = self.0.changed.notified();
            if self.state().changed.as_ref().is_none_or(|waiting| !waiting.is_empty()) {
                return;
            }
            notified.await;
        }
    }

    /// Waits for changes, and gives them. What changes between two calls is in the second.
    pub async fn changes(&self) -> Change {
        loop {
            self.changed().await;
            let mut state = self.state();
            let Some(waiting) = state.changed.as_mut().map(std::mem::take) else {
                state.changed = Some(BTreeSet::new());
                return Change::Everything(state.sessions.values().map(|entry| entry.told()).collect());
            };
            if !waiting.is_empty() {
                let (mut put, mut ended) = (Vec::new(), Vec::new());
                for id in waiting {
                    match state.sessions.get(&id) {
                        Some(entry) => put.push(entry.told()),
                        None => ended.push(id),
                    }
                }
                return Change::Some { put, ended };
            }
        }
    }
}

impl fmt::Debug for LiveSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSessions").field("running", &self.state().sessions.len()).finish_non_exhaustive()
    }
}

/// Takes a session off the list when it ends, however it ends.
#[derive(Debug)]
pub struct LiveEntry {
    live: LiveSessions,
    id: SessionId,
}

impl Drop for LiveEntry {
    fn drop(&mut self) {
        self.live.state().sessions.remove(&self.id);
        self.live.touch(self.id);
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::inbound::Pressure;
    use crate::session::Incoming;

    fn entry() -> (Entry, Arc<Inbox>, SessionId) {
        let id = SessionId::new();
        let about = SessionMetadata {
            session_id: id,
            cluster: "c".to_owned(),
            user: "alice".to_owned(),
            login: "root".to_owned(),
            node: "web-1".to_owned(),
            node_id: String::new(),
            source: String::new(),
            started: OffsetDateTime::now_utc(),
            kind: "shell".to_owned(),
            command: None,
            term: None,
            size: None,
            application: None,
        };
        let inbox = Inbox::new(Arc::new(Pressure::default()));
        let session =
            LiveSession { about, owner_roles: Vec::new(), recording: "node", participants: Vec::new() };
        (Entry { session, end: End::Inbox(inbox.clone()), hub: None }, inbox, id)
    }

    #[tokio::test]
    async fn changes_are_told_once_and_sessions_can_be_ended() {
        let live = LiveSessions::default();
        let (first, inbox, id) = entry();
        let listed = live.enter(first);
        let Change::Everything(all) = live.changes().await else { panic!() };
        assert_eq!(all.len(), 1);
        let (second, _, other) = entry();
        let short = live.enter(second);
        drop(short);
        let (third, _, stays) = entry();
        let _third = live.enter(third);
        let Change::Some { put, ended } = live.changes().await else { panic!() };
        assert_eq!(put.iter().map(|session| session.about.session_id).collect::<Vec<_>>(), [stays]);
        assert_eq!(ended, [other]);
        assert!(live.end(&id, "enough"));
        assert!(matches!(inbox.next().await, Some(Incoming::Cut(reason)) if reason == "enough"));
        drop(listed);
        assert!(!live.end(&id, "enough"));
        live.follow();
        let Change::Everything(all) = live.changes().await else { panic!() };
        assert_eq!(all.len(), 1);
    }
}
