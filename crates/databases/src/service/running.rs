//! The sessions that go on, for what ends them, cancels their queries or counts them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sallyport_access::Database;
use sallyport_session::{About, Ending, NotEntered, Place, Roster};
use tokio_rustls::rustls::ClientConfig;

use crate::postgres::startup::CancelKey;

/// What others need of a session.
pub(crate) struct Entry {
    pub(crate) about: About,
    /// What the client cancels with.
    cancel: CancelKey,
    /// Ends it.
    pub(crate) ending: Ending,
    /// Where its queries run, once it is connected.
    pub(crate) upstream: OnceLock<Running>,
    /// Its process at the server has ended.
    gone: AtomicBool,
}

impl Entry {
    /// Gives its place among those of its user to another session. It stays one of the agent's.
    pub(crate) fn free(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Where the queries of a session run.
pub(crate) struct Running {
    pub(crate) database: Arc<Database>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The server's own key.
    pub(crate) key: Option<CancelKey>,
}

/// The sessions of a service.
pub(crate) type Sessions = Roster<Arc<Entry>>;

/// A session among those of its service, until this is dropped.
pub(crate) type Listed = Place<Arc<Entry>>;

/// Takes a place for one more session of its user with its database, unless they have so many. It is free again when the
/// process at the server is gone.
pub(crate) fn enter(
    sessions: &Sessions,
    about: About,
    cancel: CancelKey,
    most: usize,
) -> Result<Listed, NotEntered> {
    let (ending, upstream, gone) = (Ending::default(), OnceLock::new(), AtomicBool::new(false));
    let entry = Arc::new(Entry { about, cancel, ending, upstream, gone });
    let own = entry.about.metadata().clone();
    sessions.enter_if(entry, |others| {
        let alike = others.filter(|other| {
            let about = other.about.metadata();
            about.user == own.user && about.node == own.node && !other.gone.load(Ordering::Relaxed)
        });
        alike.count() < most
    })
}

/// Whose key it is. Compared whole: a key is as good as the right to cancel.
pub(crate) fn of_key(sessions: &Sessions, key: &CancelKey) -> Option<Arc<Entry>> {
    sessions.find(|entry| {
        entry.cancel.process == key.process
            && sallyport_sal::constant_time_eq(&entry.cancel.secret, &key.secret)
    })
}
