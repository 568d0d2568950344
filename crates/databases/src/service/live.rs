//! The sessions that go on, for whoever ends them or cancels their queries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sallyport_access::{Database, SessionId};
use sallyport_audit::recording::SessionMetadata;
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;

use crate::postgres::startup::CancelKey;

/// What others need of a session.
pub(crate) struct Entry {
    pub(crate) about: SessionMetadata,
    /// What the client cancels with.
    cancel: CancelKey,
    /// Why it is to end.
    pub(crate) stop: watch::Sender<Option<String>>,
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

    /// Ends the session, unless something ends it already.
    pub(crate) fn end(&self, reason: &str) {
        self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(reason.to_owned());
            }
            first
        });
    }
}

/// Where the queries of a session run.
pub(crate) struct Running {
    pub(crate) database: Arc<Database>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The server's own key.
    pub(crate) key: Option<CancelKey>,
}

#[derive(Default)]
pub(crate) struct Table {
    entries: Mutex<HashMap<SessionId, Arc<Entry>>>,
    changes: watch::Sender<()>,
}

/// Takes a session off the table when it is dropped.
pub(crate) struct Listed<'a> {
    table: &'a Table,
    pub(crate) entry: Arc<Entry>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.table.with(|entries| entries.remove(&self.entry.about.session_id));
        self.table.changes.send_replace(());
    }
}

impl Table {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<SessionId, Arc<Entry>>) -> T) -> T {
        work(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a place for one more session of its user with its database, unless they have so many. It is free again when the
    /// process at the server is gone.
    pub(crate) fn add(&self, about: SessionMetadata, cancel: CancelKey, most: usize) -> Option<Listed<'_>> {
        let id = about.session_id;
        let stop = watch::channel(None).0;
        let entry =
            Arc::new(Entry { about, cancel, stop, upstream: OnceLock::new(), gone: AtomicBool::new(false) });
        self.with(|entries| {
            let about = &entry.about;
            let alike =
                |other: &&Arc<Entry>| other.about.user == about.user && other.about.node == about.node;
            let has_room =
                entries.values().filter(alike).filter(|other| !other.gone.load(Ordering::Relaxed)).count()
                    < most;
            has_room.then(|| entries.insert(id, Arc::clone(&entry)))
        })?;
        Some(Listed { table: self, entry })
    }

    pub(crate) fn len(&self) -> usize {
        self.with(|entries| entries.len())
    }

    /// Whose key it is. Compared whole: a key is as good as the right to cancel.
    pub(crate) fn of_key(&self, key: &CancelKey) -> Option<Arc<Entry>> {
        let right = |entry: &&Arc<Entry>| {
            entry.cancel.process == key.process
                && sallyport_sal::constant_time_eq(&entry.cancel.secret, &key.secret)
        };
        self.with(|entries| entries.values().find(right).cloned())
    }

    /// Ends one session, or all.
    pub(crate) fn end(&self, session: Option<&SessionId>, reason: &str) -> bool {
        let wanted = |id: &SessionId| session.is_none_or(|session| session == id);
        let found: Vec<_> = self.with(|entries| {
            entries.iter().filter(|(id, _)| wanted(id)).map(|(_, entry)| Arc::clone(entry)).collect()
        });
        found.iter().for_each(|entry| entry.end(reason));
        !found.is_empty()
    }

    /// Waits until there is none.
    pub(crate) async fn empty(&self) {
        let mut changes = self.changes.subscribe();
        while self.len() > 0 {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
