//! The sessions that run on this host, to be listed, reported and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::{HostId, Identity, JoinMode, Principal, RoleName, SessionId};
use sallyport_audit::recording::SessionMetadata;
use time::OffsetDateTime;
use tokio::sync::Notify;
use uuid::Uuid;

/// Changes that may wait for the follower; past it everything is told anew.
const MOST_CHANGES: usize = 10_000;

/// A user who takes part in a session of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Their name.
    pub user: String,
    /// How.
    pub mode: JoinMode,
    /// Since when.
    pub since: OffsetDateTime,
}

/// What is told of one session that runs.
#[derive(Debug, Clone)]
pub struct LiveSession {
    /// Whose, where, since when, and what.
    pub about: SessionMetadata,
    /// The owner's roles: the rules on joining go by them.
    pub owner_roles: Vec<RoleName>,
    /// The login that the owner's certificate came from.
    pub login_id: Uuid,
    /// Where it is recorded: `node`, `proxy` or `off`.
    pub recording: &'static str,
    /// Who takes part besides its owner.
    pub participants: Vec<Participant>,
}

impl LiveSession {
    /// A session of `owner`, in which no other user takes part.
    #[must_use]
    pub fn new(about: SessionMetadata, owner: &Identity, recording: &'static str) -> Self {
        let owner_roles = match &owner.principal {
            Principal::User { roles, .. } => roles.clone(),
            Principal::Host { .. } => Vec::new(),
        };
        Self { about, owner_roles, login_id: owner.login_id, recording, participants: Vec::new() }
    }
}

/// What serves a session of the list.
pub trait Served: Send + Sync {
    /// Ends it, without waiting; its owner reads the reason.
    fn end(&self, reason: &str);
    /// Who takes part in it besides its owner, now. Default: no user can.
    fn participants(&self) -> Vec<Participant> {
        Vec::new()
    }
}

/// Ends a session for the reason given.
pub type EndSession = Arc<dyn Fn(&str) + Send + Sync>;

struct Ends(EndSession);

impl Served for Ends {
    fn end(&self, reason: &str) {
        (self.0)(reason);
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

/// The sessions of one host, of every kind. Clones share them.
#[derive(Clone, Default)]
pub struct LiveSessions(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Entry>,
    /// What has changed since the follower looked; nothing is kept while there is no follower.
    changed: Option<BTreeSet<SessionId>>,
}

#[derive(Clone)]
struct Entry {
    session: LiveSession,
    served: Arc<dyn Served>,
}

impl Entry {
    fn told(&self) -> LiveSession {
        LiveSession { participants: self.served.participants(), ..self.session.clone() }
    }
}

impl LiveSessions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Lists a session for as long as the result lives.
    #[must_use]
    pub fn enter(&self, session: LiveSession, served: Arc<dyn Served>) -> LiveEntry {
        let id = session.about.session_id;
        self.state().sessions.insert(id, Entry { session, served });
        self.touch(id);
        LiveEntry { live: self.clone(), id }
    }

    /// Lists a session that can be ended and not joined, for as long as the result lives.
    #[must_use]
    pub fn enter_to_end(&self, session: LiveSession, end: EndSession) -> LiveEntry {
        self.enter(session, Arc::new(Ends(end)))
    }

    /// Something about a session has changed.
    pub fn touch(&self, id: SessionId) {
        let mut state = self.state();
        let State { changed, .. } = &mut *state;
        if let Some(waiting) = changed {
            waiting.insert(id);
            if waiting.len() > MOST_CHANGES {
                // The follower is far behind: everything is shorter.
                *changed = None;
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Every session that runs, the oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<LiveSession> {
        self.state().sessions.values().map(Entry::told).collect()
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
        let served = self.state().sessions.get(id).map(|entry| Arc::clone(&entry.served));
        if let Some(served) = &served {
            served.end(reason);
        }
        served.is_some()
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
                return Change::Everything(state.sessions.values().map(Entry::told).collect());
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
    use super::*;
    use crate::about::tests::about;

    fn session() -> (LiveSession, SessionId) {
        let about = about().metadata().clone();
        let id = about.session_id;
        let told = LiveSession {
            about,
            owner_roles: Vec::new(),
            login_id: Uuid::nil(),
            recording: "node",
            participants: Vec::new(),
        };
        (told, id)
    }

    /// What it was ended for, and who takes part.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Served for Told {
        fn end(&self, reason: &str) {
            self.0.lock().push(reason.to_owned());
        }

        fn participants(&self) -> Vec<Participant> {
            let since = OffsetDateTime::UNIX_EPOCH;
            vec![Participant { user: "bob".to_owned(), mode: JoinMode::Observer, since }]
        }
    }

    #[tokio::test]
    async fn changes_are_told_once_and_sessions_can_be_ended() {
        let live = LiveSessions::default();
        let ((first, id), told) = (session(), Arc::new(Told::default()));
        let listed = live.enter(first, told.clone());
        let Change::Everything(all) = live.changes().await else { panic!() };
        assert_eq!((all.len(), all[0].participants[0].user.as_str()), (1, "bob"));
        let (second, other) = session();
        let short = live.enter_to_end(second, Arc::new(|_| {}));
        drop(short);
        let (third, stays) = session();
        let _third = live.enter_to_end(third, Arc::new(|_| {}));
        let Change::Some { put, ended } = live.changes().await else { panic!() };
        assert_eq!(put.iter().map(|session| session.about.session_id).collect::<Vec<_>>(), [stays]);
        assert_eq!(ended, [other]);
        assert!(live.end(&id, "enough"));
        assert_eq!(*told.0.lock(), ["enough"]);
        assert!(live.any_on("00000000-0000-4000-8000-000000000001".parse().unwrap()));
        drop(listed);
        assert!(!live.end(&id, "enough"));
        live.follow();
        let Change::Everything(all) = live.changes().await else { panic!() };
        assert_eq!(all.len(), 1);
    }

    #[tokio::test]
    async fn a_follower_that_is_far_behind_is_told_everything() {
        let live = LiveSessions::default();
        let (first, _) = session();
        let _listed = live.enter_to_end(first, Arc::new(|_| {}));
        assert!(matches!(live.changes().await, Change::Everything(all) if all.len() == 1));
        for _ in 0..=MOST_CHANGES {
            live.touch(SessionId::new());
        }
        assert!(matches!(live.changes().await, Change::Everything(all) if all.len() == 1));
    }
}
