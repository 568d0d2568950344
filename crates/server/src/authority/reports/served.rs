//! Which resource a session of an agent is with, remembered while the session runs: what ends a session may also be that the agent no
//! longer serves the resource, and the events of the end are about it all the same.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use sallyport_access::{HostId, Kind, SessionId};

/// Sessions of one agent that are remembered. Beyond it the oldest is forgotten, and its last events are filed under the agent.
const MOST_OF_ONE: usize = if cfg!(test) { 3 } else { 10_000 };

#[derive(Debug, Default)]
struct Of {
    sessions: HashMap<SessionId, (u64, Kind, String)>,
    order: BTreeMap<u64, SessionId>,
    number: u64,
}

impl Of {
    fn forget(&mut self, session: SessionId) {
        if let Some((number, ..)) = self.sessions.remove(&session) {
            self.order.remove(&number);
        }
    }
}

/// The sessions that agents have begun with what they serve. After a restart of the authority none is known.
#[derive(Debug, Default)]
pub(super) struct ServedSessions(Mutex<HashMap<HostId, Of>>);

impl ServedSessions {
    /// An agent has begun a session with a resource that it serves.
    pub(super) fn begun(&self, agent: HostId, session: SessionId, kind: Kind, resource: &str) {
        let mut agents = self.0.lock();
        let of = agents.entry(agent).or_default();
        of.forget(session);
        if of.sessions.len() >= MOST_OF_ONE
            && let Some((_, oldest)) = of.order.pop_first()
        {
            of.sessions.remove(&oldest);
        }
        of.number += 1;
        of.order.insert(of.number, session);
        of.sessions.insert(session, (of.number, kind, resource.to_owned()));
    }

    /// Whether a session of this agent is with this resource.
    pub(super) fn is_with(&self, agent: HostId, session: SessionId, kind: Kind, resource: &str) -> bool {
        let agents = self.0.lock();
        let with = agents.get(&agent).and_then(|of| of.sessions.get(&session));
        with.is_some_and(|(_, of_kind, name)| *of_kind == kind && name == resource)
    }

    /// A session is over.
    pub(super) fn ended(&self, agent: HostId, session: SessionId) {
        let mut agents = self.0.lock();
        if let Some(of) = agents.get_mut(&agent) {
            of.forget(session);
            if of.sessions.is_empty() {
                agents.remove(&agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_remembered_with_its_latest_sessions_until_they_end() {
        let (served, one, two) = (ServedSessions::default(), HostId::new(), HostId::new());
        let sessions: Vec<SessionId> = (0..=MOST_OF_ONE).map(|_| SessionId::on(&one)).collect();
        for session in &sessions {
            served.begun(one, *session, Kind::App, "wiki");
        }
        let known = |agent, session| served.is_with(agent, session, Kind::App, "wiki");
        assert!(!known(one, sessions[0]), "the oldest made room");
        assert!(sessions[1..].iter().all(|session| known(one, *session)));
        assert!(!known(two, sessions[1]), "another agent's");
        assert!(!served.is_with(one, sessions[1], Kind::Database, "wiki"));
        assert!(!served.is_with(one, sessions[1], Kind::App, "pay"));
        for session in &sessions {
            served.ended(one, *session);
        }
        assert!(served.0.lock().is_empty());
    }
}
