//! Which agents were let make which users.

use std::collections::HashMap;

use parking_lot::Mutex;
use sallyport_access::{DatabaseName, HostId};
use time::OffsetDateTime;

/// How long it is known that an agent has made a user: longer than sessions last.
const MADE_FOR: time::Duration = time::Duration::days(30);

/// Users that are remembered to have been made; past it the oldest are forgotten.
const MOST_MADE: usize = 20_000;

/// An agent, a database, and a user that the agent was let make there.
pub(crate) type Made = (HostId, DatabaseName, String);

/// Which agents were let make which users. In memory: an agent whose authority has been restarted since says that a
/// user stays open, when its owner may no longer come.
#[derive(Debug, Default)]
pub(crate) struct Makers(Mutex<HashMap<Made, OffsetDateTime>>);

impl Makers {
    pub(crate) fn remember(&self, made: Made, now: OffsetDateTime) {
        let mut known = self.0.lock();
        if known.len() >= MOST_MADE && !known.contains_key(&made) {
            let mut times: Vec<OffsetDateTime> = known.values().copied().collect();
            let middle = times.len() / 2;
            let median = *times.select_nth_unstable(middle).1;
            known.retain(|_, at| *at > median);
        }
        known.insert(made, now);
    }

    pub(crate) fn knows(&self, made: &Made, now: OffsetDateTime) -> bool {
        let known = self.0.lock();
        known.get(made).is_some_and(|at| now - *at < MADE_FOR)
    }
}
