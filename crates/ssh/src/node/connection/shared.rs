//! What the parts of one connection share, and what is decided for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use russh::ChannelId;
use sallyport_access::Permit;
use sallyport_access::{Identity, Login};
use sallyport_audit::{Code, Event};
use sallyport_session::limits::{Limit, Moment, Verdict, judge};
use sallyport_session::{Activity, Denied, Ending, Evidence, Stop, Watched};
use time::OffsetDateTime;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::limits;
use crate::capabilities::{Offered, Sighting, Whose};
use crate::inbound::{Gate, Inbox, Pressure};
use crate::node::backend::{BackEnd, Place};
use crate::node::error::{EntryRefused, Refused};
use crate::node::info::ConnectionInfo;
use crate::node::opening::{Opening, Phase};
use crate::node::record::SessionRecord;
use crate::node::services::Services;
use crate::session::{Channel, Output};

/// What authentication found.
pub(in crate::node) enum Access {
    /// May have sessions; each is decided again.
    Granted(Box<Granted>),
    /// May ask to take part in sessions of others; decided for each.
    Joining(Box<Identity>),
    /// An authentic certificate, and no right to enter: reads why, and nothing else.
    Refused(Arc<EntryRefused>),
    /// Any user: the node behind this place decides, limits and records.
    Elsewhere(Arc<dyn Place>),
}

/// Whose word it is that something may be done.
pub(in crate::node) enum Word {
    /// This server's, within these limits.
    Ours(Box<Permit>),
    /// That of the node behind the place.
    Theirs,
}

/// Sessions on one connection of which another server has the say: for as long as memory is there.
const MOST_SESSIONS_ELSEWHERE: usize = 1000;

/// Who is on a connection, and what they may.
pub(in crate::node) struct Granted {
    pub(super) identity: Identity,
    pub(super) login: Login,
    pub(super) place: Arc<dyn Place>,
    /// As decided when the connection began.
    pub(super) permit: Permit,
    /// The second factor that was proven, where the permit demanded one.
    pub(super) evidence: Evidence,
    /// When that was.
    pub(super) since: Instant,
}

/// What the parts of one connection share.
pub(in crate::node) struct Shared {
    pub(in crate::node) server: Arc<Services>,
    pub(in crate::node) info: ConnectionInfo,
    pub(in crate::node) opening: Opening,
    /// What serves users who are let in.
    pub(super) back_end: Arc<dyn BackEnd>,
    pub(in crate::node) access: OnceLock<Access>,
    /// What the client says it can do.
    pub(super) offered: Offered,
    /// Why the key exchange failed, when it was for want of an algorithm in common.
    pub(super) no_common: OnceLock<String>,
    /// The login that the client wanted by the first key that was not tried, and why it was not.
    pub(super) not_tried: OnceLock<(String, String)>,
    known: AtomicBool,
    pub(in crate::node) pressure: Arc<Pressure>,
    live: Mutex<Vec<Weak<Live>>>,
    /// Inboxes of channels that the node has opened, between russh and the tasks that have opened them.
    opened: Mutex<HashMap<ChannelId, Slot>>,
    pub(in crate::node) forwards: AtomicUsize,
    /// Since the connection began.
    activity: Activity,
    pub(super) refused: AtomicBool,
    /// Why the connection ends, once it does.
    pub(super) ending: Ending,
    /// The login is decided: the connection is watched by its answer.
    pub(super) decided: tokio::sync::Notify,
    pub(in crate::node) line: CancellationToken,
    /// Whether the connection is read.
    pub(super) gate: Arc<Gate>,
}

/// A session that runs.
pub(in crate::node) struct Live {
    pub(in crate::node) inbox: Arc<Inbox>,
    pub(in crate::node) record: OnceLock<Arc<SessionRecord>>,
    /// Where its person reads, when they sit at a terminal.
    pub(in crate::node) terminal: OnceLock<Arc<dyn Output>>,
}

/// An inbox that is looked for, or that waits to be taken.
enum Slot {
    Waiting(oneshot::Sender<Arc<Inbox>>),
    Ready(Arc<Inbox>),
}

impl Shared {
    pub(in crate::node) fn new(
        server: Arc<Services>,
        mut info: ConnectionInfo,
        back_end: Arc<dyn BackEnd>,
        first: Phase,
    ) -> Arc<Self> {
        // A span ends when its last holder drops it: only the opening keeps this one.
        let opening = Opening::begin(info.opening.take().unwrap_or_else(Span::none), first);
        Arc::new(Self {
            server,
            info,
            opening,
            back_end,
            access: OnceLock::new(),
            offered: Offered::default(),
            no_common: OnceLock::new(),
            not_tried: OnceLock::new(),
            known: AtomicBool::new(false),
            pressure: Arc::default(),
            live: Mutex::default(),
            opened: Mutex::default(),
            forwards: AtomicUsize::new(0),
            activity: Activity::new(),
            refused: AtomicBool::new(false),
            ending: Ending::default(),
            decided: tokio::sync::Notify::new(),
            line: CancellationToken::new(),
            gate: Arc::default(),
        })
    }

    /// The inbox of a channel that the node has opened and the client let in.
    pub(in crate::node) async fn inbox_of(&self, id: ChannelId) -> Option<Arc<Inbox>> {
        let waiting = {
            let mut opened = self.opened();
            match opened.remove(&id) {
                Some(Slot::Ready(inbox)) => return Some(inbox),
                _ => {
                    let (sender, waiting) = oneshot::channel();
                    opened.insert(id, Slot::Waiting(sender));
                    waiting
                }
            }
        };
        waiting.await.ok()
    }

    /// Hands the inbox of such a channel to the task that has opened it.
    pub(super) fn hand_inbox(&self, id: ChannelId, inbox: Arc<Inbox>) {
        let mut opened = self.opened();
        match opened.remove(&id) {
            Some(Slot::Waiting(sender)) => {
                let _ = sender.send(inbox);
            }
            _ => {
                opened.insert(id, Slot::Ready(inbox));
            }
        }
    }

    /// The connection is over: no inbox is waited for any more.
    pub(super) fn forget_opened(&self) {
        self.opened().clear();
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<ChannelId, Slot>> {
        self.opened.lock()
    }

    /// Ends the connection and its sessions, and tells the person why.
    pub(in crate::node) fn cut(&self, stop: Stop) {
        let told = limits::told(&stop);
        self.ending.end(stop);
        for live in self.live().iter().filter_map(Weak::upgrade) {
            live.inbox.cut(&told);
        }
    }

    fn live(&self) -> MutexGuard<'_, Vec<Weak<Live>>> {
        self.live.lock()
    }

    pub(in crate::node) fn sessions_running(&self) -> usize {
        self.live().iter().filter(|live| live.strong_count() > 0).count()
    }

    /// Counts a session in for as long as the result lives.
    pub(in crate::node) fn enter(&self, inbox: &Arc<Inbox>) -> Arc<Live> {
        let entry =
            Arc::new(Live { inbox: inbox.clone(), record: OnceLock::new(), terminal: OnceLock::new() });
        let mut live = self.live();
        live.retain(|live| live.strong_count() > 0);
        live.push(Arc::downgrade(&entry));
        entry
    }

    /// The records of the sessions that run on this connection.
    pub(in crate::node) fn records(&self) -> Vec<Arc<SessionRecord>> {
        self.live().iter().filter_map(Weak::upgrade).filter_map(|live| live.record.get().cloned()).collect()
    }

    /// The person did something.
    pub(in crate::node) fn touch(&self) {
        self.activity.note();
    }

    /// Tells the people who sit at terminals of this connection; waits for none of them.
    fn tell_terminals(&self, message: &str) {
        for live in self.live().iter().filter_map(Weak::upgrade) {
            if let Some(terminal) = live.terminal.get().cloned() {
                let text = format!("\r\nsallyport: {message}\r\n");
                tokio::spawn(async move { terminal.data(Channel::Stderr, text.into()).await });
            }
        }
    }

    /// Tells what the client can do and whose it is: of a known user at once, of others when they are gone.
    pub(super) fn saw(&self, user: Option<&Identity>) {
        let whose = match (user, self.info.client_addr) {
            (Some(user), _) => Some(Whose::User(user.display_name())),
            (None, address) => address.map(|address| Whose::Address(address.ip())),
        };
        if self.known.fetch_or(user.is_some(), Ordering::Relaxed) {
            return;
        }
        if let Some(offer) = self.offered.offer() {
            let refused = self.no_common.get().cloned();
            self.server.directory.saw(Sighting { offer: offer.clone(), whose, refused });
        }
    }

    pub(in crate::node) fn source(&self) -> String {
        self.info.client_addr.map(|address| address.to_string()).unwrap_or_default()
    }

    /// An event of this connection.
    pub(in crate::node) fn event(&self, code: Code) -> Event {
        let event = Event::new(code, OffsetDateTime::now_utc())
            .node(self.server.directory.node().name.as_str())
            .source(self.source());
        let event = if self.info.told_by_proxy { event.source_by_proxy() } else { event };
        match self.access.get() {
            Some(Access::Granted(granted)) => {
                event.user(granted.identity.display_name()).login(granted.login.as_str())
            }
            Some(Access::Joining(identity)) => event.user(identity.display_name()),
            _ => event,
        }
    }

    pub(in crate::node) fn refused(&self, event: Event) {
        self.refused.store(true, Ordering::Relaxed);
        self.server.sink.emit(event);
    }

    /// The second factor that was proven for this connection, where its sessions are decided about here.
    pub(in crate::node) fn evidence(&self) -> Option<&Evidence> {
        self.granted().map(|granted| &granted.evidence)
    }

    /// What the user was granted who is on the connection.
    pub(super) fn granted(&self) -> Option<&Granted> {
        match self.access.get() {
            Some(Access::Granted(granted)) => Some(granted),
            _ => None,
        }
    }

    /// Who is on the connection, when they came to take part in another user's session.
    pub(in crate::node) fn joins(&self) -> Option<Identity> {
        match self.access.get() {
            Some(Access::Joining(identity)) => Some(identity.as_ref().clone()),
            _ => None,
        }
    }

    /// Who is on the connection, once they may have sessions.
    pub(in crate::node) fn identity(&self) -> Option<&Identity> {
        self.granted().map(|granted| &granted.identity)
    }

    /// Whether another server decides, and this one hands on.
    pub(in crate::node) fn is_decided_elsewhere(&self) -> bool {
        matches!(self.access.get(), Some(Access::Elsewhere(_)))
    }

    /// Lets a user in on whom another server decides, where that is so.
    pub(super) fn let_in_undecided(&self, user: &str) -> bool {
        let place = self.back_end.undecided(user);
        place.is_some_and(|place| self.access.set(Access::Elsewhere(place)).is_ok())
    }

    /// Sessions that may run on this connection at once.
    pub(in crate::node) fn max_sessions(&self) -> usize {
        match self.access.get() {
            Some(Access::Granted(granted)) => granted.permit.options().max_sessions,
            Some(Access::Elsewhere(_)) => MOST_SESSIONS_ELSEWHERE,
            _ => 1,
        }
    }

    /// One session more is refused: the event, and what the person reads.
    pub(in crate::node) fn too_many_sessions(&self) -> String {
        let most = self.max_sessions();
        let message = format!("your roles allow {most} sessions on one connection; close one");
        self.refused(self.event(Code::SessionRefused).message(&message));
        message
    }

    /// Decides again: roles, locks and the certificate's end may have changed since.
    pub(in crate::node) fn decide(&self) -> Result<(Arc<dyn Place>, Word), Refused> {
        match self.access.get() {
            Some(Access::Granted(granted)) => {
                let Granted { identity, login, place, evidence, .. } = granted.as_ref();
                let directory = &self.server.directory;
                let decision = directory.policies().decide(
                    identity,
                    &*directory.node(),
                    login,
                    &directory.locks(),
                    OffsetDateTime::now_utc(),
                );
                match decision {
                    Ok(permit) => match evidence.meets(permit.factor()) {
                        Ok(()) => Ok((place.clone(), Word::Ours(Box::new(permit)))),
                        Err(missing) => {
                            let event = self.event(Code::SessionRefused).message(missing.to_string());
                            self.refused(event.field("reason", missing.reason()));
                            Err(missing.into())
                        }
                    },
                    Err(refusal) => {
                        let mut event = self.event(Code::SessionRefused).message(refusal.to_string());
                        if let Some(rule) = refusal.rule() {
                            event = event.field("rule", rule);
                        }
                        self.refused(event);
                        Err(refusal.into())
                    }
                }
            }
            Some(Access::Elsewhere(place)) => Ok((place.clone(), Word::Theirs)),
            Some(Access::Refused(refused)) => Err(Refused::AtEntry(refused.clone())),
            Some(Access::Joining(_)) => Err(Refused::OnlyJoins),
            None => Err(Refused::NotLoggedIn),
        }
    }

    /// Why the connection ends, where it has been cut or the lock has come that will cut it.
    fn stop(&self) -> Option<Stop> {
        self.ending.reason().or_else(|| self.locked().map(Stop::Denied))
    }

    /// Why a client that has gone was cut off, if it was. The proxy may have heard of the lock, and cut the connection,
    /// before this server has heard of it.
    pub(in crate::node) async fn cut_off(&self, inbox: &Inbox) -> Option<String> {
        let mut changes = self.server.directory.changes();
        let heard = async {
            loop {
                if let Some(stop) = self.stop() {
                    return Some(limits::told(&stop));
                }
                // A client that closes one channel, and keeps the connection, was not cut.
                if self.granted().is_none() || inbox.is_hung_up() || changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        timeout(self.server.config.late_word, heard).await.ok().flatten()
    }

    /// The lock that keeps out the user of this connection, if one has come.
    fn locked(&self) -> Option<Denied> {
        let (identity, login) = match self.access.get()? {
            Access::Granted(granted) => (&granted.identity, Some(&granted.login)),
            Access::Joining(identity) => (identity.as_ref(), None),
            Access::Refused(_) | Access::Elsewhere(_) => return None,
        };
        let directory = &self.server.directory;
        directory
            .policies()
            .locked(identity, &*directory.node(), login, &directory.locks(), OffsetDateTime::now_utc())
            .map(Denied::from)
    }
}

impl Watched for Shared {
    fn changes(&self) -> watch::Receiver<u64> {
        self.server.directory.changes()
    }

    /// Sessions that go on are ended by locks; the roles are asked at each beginning.
    fn denied(&self, _: OffsetDateTime) -> Option<Denied> {
        self.locked()
    }

    fn verdict(&self, warned: bool) -> Verdict {
        let Some(granted) = self.granted() else { return Verdict::UNLIMITED };
        let permit = &granted.permit;
        let moment = Moment {
            lasted: granted.since.elapsed(),
            idle: self.activity.idle(),
            now: OffsetDateTime::now_utc(),
            warned,
        };
        judge(permit.limits(), permit.valid_until(), moment)
    }

    fn warn(&self, left: Duration, limit: Limit) {
        let reason = limits::words(limit);
        self.tell_terminals(&format!("this connection ends in {} s: {reason}", left.as_secs()));
    }
}
