//! Ending a session when the roles or a lock have taken away what let it in, whatever it is with.
//!
//! A task of its own watches over each session, apart from whatever carries the bytes: that may stand still for as long as the
//! peers like. It subscribes to changes before it asks for the first time, so that no lock falls in between.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_access::{Database, DatabasePermit, Decidable, HostId, Identity, Listed, Login, Node};
use sallyport_audit::{Code, Event, Sink};
use sallyport_session::{Denied, Ending, Stop, Watched, watch};
use time::OffsetDateTime;
use tokio::sync::oneshot;
use tokio::sync::watch::Receiver;
use tokio::task::AbortHandle;
use tracing::{Instrument, info};

use crate::member::cluster_cache::ClusterCache;
use crate::sessions::SessionGuard;
use crate::tasks;

/// How long the agent has to end a session that is no longer allowed, and to tell the client why in words of the protocol, before
/// the way is closed.
const AGENT_GRACE: Duration = Duration::from_millis(500);

/// Answers why a session may not go on, as of a moment.
type Denies = Box<dyn Fn(OffsetDateTime) -> Option<Denied> + Send + Sync>;

/// Makes an event about a session.
type Tells = Arc<dyn Fn(Code) -> Event + Send + Sync>;

/// A session at this host that is with a resource elsewhere.
pub(crate) struct Session {
    view: Arc<ClusterCache>,
    sink: Arc<dyn Sink>,
    denies: Denies,
    tells: Tells,
    /// The event of its end before its time.
    cut: Code,
    /// How long the host that serves it has to end it first.
    grace: Duration,
}

/// Watches over one session until it is dropped.
pub(crate) struct Watcher {
    tells: Tells,
    cut: Result<String, oneshot::Receiver<String>>,
    task: AbortHandle,
    /// The session counts until it is cut, whether or not its client takes notice.
    counted: Arc<Mutex<Option<SessionGuard>>>,
}

/// Until a lock comes that keeps the identity out; `None` where the account is not known.
fn locked<R: Decidable + Send + Sync + 'static>(
    view: &Arc<ClusterCache>,
    identity: &Arc<Identity>,
    resource: &Arc<R>,
    account: Option<R::Account>,
) -> Denies
where
    R::Account: Send + Sync,
{
    let (view, identity, resource) = (Arc::clone(view), Arc::clone(identity), Arc::clone(resource));
    Box::new(move |now| {
        let locks = view.locks();
        view.policies().locked(&identity, &*resource, account.as_ref(), &locks, now).map(Denied::from)
    })
}

/// Until roles or locks say no. A certificate that ends is for who serves the session to judge, by the policy for it.
fn decided<R: Decidable + Send + Sync + 'static>(
    view: &Arc<ClusterCache>,
    identity: &Arc<Identity>,
    resource: &Arc<R>,
    account: R::Account,
    valid_until: OffsetDateTime,
) -> Denies
where
    R::Account: Send + Sync,
{
    let (view, identity, resource) = (Arc::clone(view), Arc::clone(identity), Arc::clone(resource));
    Box::new(move |now| {
        if now >= valid_until {
            return None;
        }
        let decided = view.policies().decide(&identity, &*resource, &account, &view.locks(), now);
        decided.err().map(Denied::from)
    })
}

/// A session with a resource of the catalogue, at one of its agents.
pub(crate) struct WithResource {
    pub(crate) identity: Arc<Identity>,
    pub(crate) listed: Arc<Listed>,
    pub(crate) agent: HostId,
    /// Until when the decision counts that let the user in.
    pub(crate) valid_until: OffsetDateTime,
    /// The event of its end before its time.
    pub(crate) cut: Code,
}

/// Until the document goes or names other agents, or roles or locks say no to it as it is now. When the certificate has ended, a
/// lock still ends the session; the end of the certificate itself is for the agent to judge, by the policy for it.
fn unlisted(view: &Arc<ClusterCache>, with: WithResource) -> Denies {
    let view = Arc::clone(view);
    let WithResource { identity, listed, agent, valid_until, .. } = with;
    Box::new(move |now| {
        let (word, name) = (listed.kind.row().word, listed.name.as_str());
        let Some(current) = view.listed(listed.kind, name) else {
            return Some(Denied::new(format!("{word} {name:?} was removed")));
        };
        if !view.node(&agent).is_some_and(|node| current.agents.contains(&node.name)) {
            return Some(Denied::new(format!("the agent does not serve this {word} any more")));
        }
        let locks = view.locks();
        if now >= valid_until {
            return view.policies().locked(&identity, &*current, Some(&()), &locks, now).map(Denied::from);
        }
        view.policies().decide(&identity, &*current, &(), &locks, now).err().map(Denied::from)
    })
}

impl Session {
    /// A session with a node, which decides by roles itself. `login` is none where this host does not know it.
    pub(crate) fn with_node(
        view: Arc<ClusterCache>,
        identity: Arc<Identity>,
        node: Arc<Node>,
        login: Option<Login>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let denies = locked(&view, &identity, &node, login.clone());
        let tells = move |code| {
            let event = Event::new(code, OffsetDateTime::now_utc())
                .user(identity.display_name())
                .node(node.name.as_str())
                .field("node_id", node.id.to_string());
            match &login {
                Some(login) => event.login(login.as_str()),
                None => event,
            }
        };
        let (cut, grace) = (Code::SessionCut, Duration::ZERO);
        Self { view, sink, denies, tells: Arc::new(tells), cut, grace }
    }

    /// A session with a database. `tells` makes its events.
    pub(crate) fn with_database(
        view: Arc<ClusterCache>,
        identity: &Arc<Identity>,
        database: &Arc<Database>,
        permit: &DatabasePermit,
        sink: Arc<dyn Sink>,
        tells: impl Fn(Code) -> Event + Send + Sync + 'static,
    ) -> Self {
        let denies = decided(&view, identity, database, permit.account().clone(), permit.valid_until());
        let (cut, grace) = (Code::DatabaseSessionCut, AGENT_GRACE);
        Self { view, sink, denies, tells: Arc::new(tells), cut, grace }
    }

    /// A session with a resource of the catalogue. `tells` makes its events.
    pub(crate) fn with_resource(
        view: Arc<ClusterCache>,
        with: WithResource,
        sink: Arc<dyn Sink>,
        tells: impl Fn(Code) -> Event + Send + Sync + 'static,
    ) -> Self {
        let (cut, grace) = (with.cut.clone(), AGENT_GRACE);
        let denies = unlisted(&view, with);
        Self { view, sink, denies, tells: Arc::new(tells), cut, grace }
    }

    /// Waits until it may not go on, and gives what the user reads.
    async fn cut(&self) -> String {
        let stop = watch::stopped(self, &Ending::default(), None).await;
        tokio::time::sleep(self.grace).await;
        let logged = match &stop {
            Stop::Denied(denied) => denied.logged.clone(),
            stop => stop.to_string(),
        };
        info!(reason = %logged, "session cut");
        self.sink.emit((self.tells)(self.cut.clone()).message(logged).field("at", "proxy"));
        format!("session ended: {stop}")
    }
}

impl Watched for Session {
    fn changes(&self) -> Receiver<u64> {
        self.view.changes()
    }

    fn denied(&self, now: OffsetDateTime) -> Option<Denied> {
        (self.denies)(now)
    }
}

impl Watcher {
    /// Watches over a session. When it may not go on, `end` closes the way there, without waiting for anything.
    pub(crate) fn new(
        session: Session,
        counted: Option<SessionGuard>,
        end: impl FnOnce(&str) + Send + 'static,
    ) -> Self {
        let counted = Arc::new(Mutex::new(counted));
        let (tell, cut) = oneshot::channel();
        let (tells, counts) = (Arc::clone(&session.tells), Arc::clone(&counted));
        let watching = async move {
            let reason = session.cut().await;
            // The reader of the stream finds the reason before it finds the end of the stream.
            let _ = tell.send(reason.clone());
            end(&reason);
            drop(taken(&counts));
        };
        let task = tasks::start(watching.in_current_span()).abort_handle();
        Self { tells, cut: Err(cut), task, counted }
    }

    /// The reason for which the session was cut, if it was.
    pub(crate) fn poll_cut(&mut self, context: &mut Context<'_>) -> Option<String> {
        if let Err(cut) = self.cut.as_mut()
            && let Poll::Ready(Ok(reason)) = Pin::new(cut).poll(context)
        {
            self.cut = Ok(reason);
        }
        self.cut.as_ref().ok().cloned()
    }

    /// Waits until the session is cut, and gives the reason.
    pub(crate) async fn cut(&mut self) -> String {
        poll_fn(|context| self.poll_cut(context).map_or(Poll::Pending, Poll::Ready)).await
    }

    /// An event about the session.
    pub(crate) fn event(&self, code: Code) -> Event {
        (self.tells)(code)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
        drop(taken(&self.counted));
    }
}

fn taken(counted: &Mutex<Option<SessionGuard>>) -> Option<SessionGuard> {
    counted.lock().take()
}
