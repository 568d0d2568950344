//! The sessions that run, as the hosts that serve them tell it. Nothing of it is on disk: after a restart the hosts
//! tell everything anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::text::shown;
use sallyport_access::{HostId, HostRole, IdError, Kind, NodeName, ResourceName, SessionId};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};

/// How often a host has to say something.
pub(crate) const REPORT_WITHIN: Duration = Duration::from_secs(20);
/// The sessions of a host that is silent, or whose call was lost, are forgotten after this time.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Sessions of one host.
const MOST_SESSIONS: usize = 50_000;
/// Longest command and name that are kept.
const LONGEST_TEXT: usize = 1024;
const MOST_ROLES: usize = 256;
const MOST_PARTICIPANTS: usize = 64;
/// Orders on their way to one host.
pub(crate) const ORDERS: usize = 64;

/// Who reports.
#[derive(Debug, Clone)]
pub(crate) struct Reporting {
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) role: HostRole,
    /// As on record, such as `node:web-1`.
    pub(crate) shown: String,
}

/// One session that runs.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) host: HostId,
    pub(crate) told: v1::LiveSession,
}

#[derive(Debug)]
struct Host {
    /// Which of its calls counts: the last.
    call: u64,
    orders: mpsc::Sender<v1::EndOrder>,
    heard: Instant,
    heard_at: OffsetDateTime,
    /// Its sessions.
    own: BTreeSet<SessionId>,
    /// While everything is told anew: what was told so far.
    telling: Option<BTreeSet<SessionId>>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionId, Held>,
    hosts: HashMap<HostId, Host>,
    numbers: u64,
    waiting: HashMap<u64, oneshot::Sender<bool>>,
}

/// The sessions that run.
#[derive(Debug, Default)]
pub(crate) struct Live {
    state: Mutex<State>,
}

/// Why what a host says of its sessions is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReport {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("more than {MOST_SESSIONS} sessions on one host")]
    TooMany,
    #[error("session {0} runs on another host")]
    Elsewhere(SessionId),
}

/// Why a session could not be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotOrdered {
    /// It is not known.
    Unknown,
    /// Its host has no call open.
    OutOfReach,
}

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A host opens a call; an earlier one of the same host no longer counts.
    pub(crate) fn open(&self, host: &Reporting, orders: mpsc::Sender<v1::EndOrder>) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        let call = state.numbers;
        let heard_at = OffsetDateTime::now_utc();
        let own = state.hosts.remove(&host.id).map(|before| before.own).unwrap_or_default();
        let known = Host { call, orders, heard: Instant::now(), heard_at, own, telling: None };
        state.hosts.insert(host.id, known);
        call
    }

    /// Takes what a host says; false when another of its calls has taken over.
    pub(crate) fn take(
        &self,
        host: &Reporting,
        call: u64,
        said: v1::ReportSessionsRequest,
    ) -> Result<bool, BadReport> {
        let mut state = self.state();
        let State { sessions, hosts, waiting, .. } = &mut *state;
        let Some(known) = hosts.get_mut(&host.id).filter(|known| known.call == call) else {
            return Ok(false);
        };
        known.heard = Instant::now();
        known.heard_at = OffsetDateTime::now_utc();
        if said.reset {
            known.telling = Some(BTreeSet::new());
        }
        if known.own.len() + said.put.len() > MOST_SESSIONS + said.ended.len() {
            return Err(BadReport::TooMany);
        }
        for mut told in said.put {
            let id = told.session_id.parse::<SessionId>()?;
            if sessions.get(&id).is_some_and(|held| held.host != host.id) {
                return Err(BadReport::Elsewhere(id));
            }
            bounded(&mut told);
            if host.role == HostRole::Node {
                // A node speaks for itself only. What it serves of a resource is called by the resource's name.
                if !is_served(&told.kind, &told.node) {
                    told.node = host.name.to_string();
                }
                told.node_id = host.id.to_string();
            }
            told.served_by = host.shown.clone();
            told.may_join.clear();
            if let Some(telling) = &mut known.telling {
                telling.insert(id);
            }
            known.own.insert(id);
            sessions.insert(id, Held { host: host.id, told });
        }
        for id in said.ended.iter().filter_map(|id| id.parse::<SessionId>().ok()) {
            if known.own.remove(&id) {
                sessions.remove(&id);
            }
        }
        if said.complete
            && let Some(told) = known.telling.take()
        {
            for over in known.own.difference(&told) {
                sessions.remove(over);
            }
            known.own = told;
        }
        for outcome in said.outcomes {
            if let Some(waiting) = waiting.remove(&outcome.order) {
                let _ = waiting.send(outcome.done);
            }
        }
        Ok(true)
    }

    /// Forgets the sessions of hosts that were not heard of for too long.
    pub(crate) fn forget(&self, now: Instant) {
        let mut state = self.state();
        let State { sessions, hosts, .. } = &mut *state;
        for (_, host) in hosts.extract_if(|_, host| now.saturating_duration_since(host.heard) >= FORGET_AFTER)
        {
            for id in host.own {
                sessions.remove(&id);
            }
        }
    }

    /// Looks at each session.
    pub(crate) fn each(&self, mut look: impl FnMut(&v1::LiveSession)) {
        self.state().sessions.values().for_each(|held| look(&held.told));
    }

    /// Every session that `wanted` picks, the newest first.
    pub(crate) fn list(&self, wanted: impl Fn(&SessionId, &v1::LiveSession) -> bool) -> Vec<v1::LiveSession> {
        let state = self.state();
        let picked = state.sessions.iter().rev().filter(|(id, held)| wanted(id, &held.told));
        let told = picked.map(|(_, held)| {
            let heard = state.hosts.get(&held.host).map(|host| convert::time_to_proto(host.heard_at));
            v1::LiveSession { heard, ..held.told.clone() }
        });
        told.collect()
    }

    /// Whether a session runs on another host than this one.
    pub(crate) fn is_elsewhere(&self, id: &SessionId, host: HostId) -> bool {
        self.state().sessions.get(id).is_some_and(|held| held.host != host)
    }

    /// One session.
    pub(crate) fn find(&self, id: &SessionId) -> Option<v1::LiveSession> {
        self.state().sessions.get(id).map(|held| held.told.clone())
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.state().sessions.len()
    }

    /// Orders the host of a session to end it. The answer comes when it has, or never.
    pub(crate) fn order_end(
        &self,
        id: &SessionId,
        reason: &str,
    ) -> Result<(u64, oneshot::Receiver<bool>), NotOrdered> {
        let mut state = self.state();
        state.numbers += 1;
        let number = state.numbers;
        let held = state.sessions.get(id).ok_or(NotOrdered::Unknown)?;
        let host = state.hosts.get(&held.host).ok_or(NotOrdered::OutOfReach)?;
        let order = v1::EndOrder { order: number, session_id: id.to_string(), reason: reason.to_owned() };
        host.orders.try_send(order).map_err(|_| NotOrdered::OutOfReach)?;
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(number, sender);
        Ok((number, receiver))
    }

    /// The caller that gave this order has stopped waiting.
    pub(crate) fn give_up(&self, order: u64) {
        self.state().waiting.remove(&order);
    }
}

/// Whether a session of this kind is with a resource that an agent serves, and this can be its name.
fn is_served(kind: &str, name: &str) -> bool {
    Kind::of_document(kind).is_some_and(|kind| kind != Kind::Node) && ResourceName::new(name).is_ok()
}

fn bounded(told: &mut v1::LiveSession) {
    let texts = [
        &mut told.user,
        &mut told.login,
        &mut told.node,
        &mut told.node_id,
        &mut told.source,
        &mut told.kind,
        &mut told.command,
        &mut told.recording,
        &mut told.login_id,
    ];
    for text in texts {
        *text = shown(text, LONGEST_TEXT);
    }
    told.owner_roles.truncate(MOST_ROLES);
    told.participants.truncate(MOST_PARTICIPANTS);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Reporting {
        let name = NodeName::new(name).unwrap();
        let shown = format!("node:{name}");
        Reporting { id: HostId::new(), name, role: HostRole::Node, shown }
    }

    fn put(id: SessionId) -> v1::ReportSessionsRequest {
        let told = v1::LiveSession {
            session_id: id.to_string(),
            user: "alice".to_owned(),
            node: "claimed".to_owned(),
            ..Default::default()
        };
        v1::ReportSessionsRequest { put: vec![told], ..Default::default() }
    }

    fn ids(live: &Live) -> Vec<String> {
        live.list(|_, _| true).into_iter().map(|session| session.session_id).collect()
    }

    #[test]
    fn hosts_speak_for_themselves_and_tell_everything_anew() {
        let live = Live::default();
        let (one, two) = (host("one"), host("two"));
        let (orders, mut received) = mpsc::channel(4);
        let call = live.open(&one, orders.clone());
        let other = live.open(&two, orders.clone());
        let (first, second, third) = (SessionId::new(), SessionId::new(), SessionId::new());
        assert_eq!(live.take(&one, call, put(first)), Ok(true));
        assert_eq!(live.take(&two, other, put(second)), Ok(true));
        assert!(live.take(&two, other, put(first)).is_err(), "another host's session");
        assert_eq!(live.find(&first).unwrap().node, "one");
        assert_eq!(ids(&live), [second.to_string(), first.to_string()]);

        let mut database = put(SessionId::new());
        for told in &mut database.put {
            told.kind = "db".to_owned();
            told.node = "prod".to_owned();
        }
        live.take(&two, other, database.clone()).unwrap();
        let id = database.put[0].session_id.parse().unwrap();
        let told = live.find(&id).unwrap();
        assert_eq!((told.node.as_str(), told.served_by.as_str()), ("prod", "node:two"));
        live.take(
            &two,
            other,
            v1::ReportSessionsRequest { ended: vec![id.to_string()], ..Default::default() },
        )
        .unwrap();

        let (number, mut answer) = live.order_end(&first, "enough").unwrap();
        assert_eq!(received.try_recv().unwrap().reason, "enough");
        let outcomes = vec![v1::OrderOutcome { order: number, done: true }];
        live.take(&one, call, v1::ReportSessionsRequest { outcomes, ..Default::default() }).unwrap();
        assert_eq!(answer.try_recv(), Ok(true));

        // A new call tells what there is; what it leaves out is over, and the old call no longer counts.
        let again = live.open(&one, orders);
        assert_eq!(live.take(&one, call, put(first)), Ok(false));
        let all = v1::ReportSessionsRequest { reset: true, complete: true, ..put(third) };
        assert_eq!(live.take(&one, again, all), Ok(true));
        assert_eq!(ids(&live), [third.to_string(), second.to_string()]);
        assert_eq!(live.order_end(&first, "").unwrap_err(), NotOrdered::Unknown);

        live.forget(Instant::now());
        assert_eq!(live.count(), 2);
        live.forget(Instant::now() + FORGET_AFTER * 2);
        assert_eq!(live.count(), 0);
    }
}
