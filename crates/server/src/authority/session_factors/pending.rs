//! Challenges that are open, by who asked: what the same login asks for from the same address joins them.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use sallyport_access::SessionFactor;
use time::OffsetDateTime;
use uuid::Uuid;

/// Those that are remembered. Past that, each request is a challenge of its own, of which users have few.
const MOST: usize = 20_000;

/// Who asked, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    /// The login, which stands for its user and its keys.
    pub(super) login: Uuid,
    /// From where, as a proof serves there.
    pub(super) place: IpAddr,
    pub(super) factor: SessionFactor,
    /// It is for all sessions.
    pub(super) all: bool,
    /// For how long. One who asks for a minute does not prove what another has asked half an hour for.
    pub(super) seconds: u32,
    /// The proxy that asks. A proxy can leave a challenge that it knows unproven or spend its codes, so that it gets none of the user's own.
    pub(super) proxy: Option<String>,
}

/// A challenge as those are told who join it.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) id: String,
    pub(super) code: String,
    pub(super) expires: OffsetDateTime,
}

/// The challenge that was opened last, by who asked.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: Mutex<HashMap<Tuple, Open>>,
}

impl Pending {
    pub(super) fn find(&self, tuple: &Tuple, now: OffsetDateTime) -> Option<Open> {
        self.open.lock().get(tuple).filter(|open| now < open.expires).cloned()
    }

    pub(super) fn put(&self, tuple: Tuple, open: Open, now: OffsetDateTime) {
        let mut known = self.open.lock();
        if known.len() >= MOST {
            known.retain(|_, open| now < open.expires);
        }
        if known.len() < MOST {
            known.insert(tuple, open);
        }
    }

    pub(super) fn forget(&self, tuple: &Tuple) {
        self.open.lock().remove(tuple);
    }
}
