//! State that is gone with the process, for tests and tools.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::sync::broadcast;

use crate::backend::{Changes, WATCH_BACKLOG, rounded};
use crate::{Backend, Change, Item, Op, StoreError, Watch};

/// What an item takes besides its key, which is there twice, and its value.
const ENTRY_BYTES: usize = 256;

/// Items by key, and what steps make of them.
#[derive(Debug)]
pub(crate) struct Items {
    by_key: BTreeMap<String, Item>,
    /// Bytes that they take.
    bytes: usize,
    /// Bytes beyond which no step adds an item.
    limit: usize,
}

/// What was under the keys of steps before them, the first at first.
pub(crate) type Before = Vec<(String, Option<Item>)>;

#[derive(Debug)]
struct State {
    items: Items,
    revision: u64,
    /// Gone when the store is closed, which ends every watch.
    changes: Option<broadcast::Sender<Arc<[Change]>>>,
}

/// State in memory.
#[derive(Debug)]
pub struct MemoryBackend {
    state: Mutex<State>,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBackend {
    /// Empty state.
    #[must_use]
    pub fn new() -> Self {
        let changes = Some(broadcast::channel(WATCH_BACKLOG).0);
        Self { state: Mutex::new(State { items: Items::default(), revision: 0, changes }) }
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.changes.is_none() { Err(StoreError::Closed) } else { Ok(state) }
    }
}

fn alive(item: &Item, now: OffsetDateTime) -> bool {
    item.expires.is_none_or(|expires| expires > now)
}

fn taken(key: &str, value: &Bytes) -> usize {
    ENTRY_BYTES + 2 * key.len() + value.len()
}

impl Default for Items {
    fn default() -> Self {
        Self::bounded(usize::MAX)
    }
}

impl Items {
    /// None, of which no step makes more than so many bytes.
    pub(crate) fn bounded(limit: usize) -> Self {
        Self { by_key: BTreeMap::new(), bytes: 0, limit }
    }

    /// From now on, no step adds an item beyond so many bytes.
    pub(crate) fn bound(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, key: String, item: Item) -> Option<Item> {
        self.bytes += taken(&item.key, &item.value);
        let before = self.by_key.insert(key, item);
        self.count_out(before.as_ref());
        before
    }

    fn remove(&mut self, key: &str) -> Option<Item> {
        let before = self.by_key.remove(key);
        self.count_out(before.as_ref());
        before
    }

    fn count_out(&mut self, item: Option<&Item>) {
        let bytes = item.map_or(0, |item| taken(&item.key, &item.value));
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The item under a key, where it has not expired.
    pub(crate) fn live(&self, key: &str, now: OffsetDateTime) -> Option<&Item> {
        self.by_key.get(key).filter(|item| alive(item, now))
    }

    /// The item under a key, expired or not.
    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.by_key.get(key)
    }

    /// Puts an item under a key, or nothing.
    pub(crate) fn set(&mut self, key: String, item: Option<Item>) {
        match item {
            Some(item) => drop(self.insert(key, item)),
            None => drop(self.remove(&key)),
        }
    }

    /// As [`Backend::list`].
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Vec<Item> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = self.by_key.range::<str, _>((from, Bound::Unbounded));
        let matching = range.map(|(_, item)| item).take_while(|item| item.key.starts_with(prefix));
        matching.filter(|item| alive(item, now)).take(limit).cloned().collect()
    }

    /// The keys of what has expired.
    pub(crate) fn expired(&self, now: OffsetDateTime) -> Vec<String> {
        self.by_key.values().filter(|item| !alive(item, now)).map(|item| item.key.clone()).collect()
    }

    /// Takes one step; gives the revision that it leaves behind, of which `next` makes a new one. What was there is added to `before`.
    ///
    /// # Errors
    /// As [`Backend::transact`], and [`StoreError::MemoryFull`] where it adds an item beyond the bound.
    pub(crate) fn apply(
        &mut self,
        op: Op,
        now: OffsetDateTime,
        next: &mut impl FnMut() -> u64,
        changes: &mut Vec<Change>,
        before: &mut Before,
    ) -> Result<u64, StoreError> {
        let found = |items: &Self, key: &str| items.live(key, now).map_or(0, |item| item.revision);
        let (key, value, expires) = match op {
            Op::Create { key, value, expires } => {
                if self.live(&key, now).is_some() {
                    return Err(StoreError::Exists { key });
                }
                (key, value, expires)
            }
            Op::Put { key, value, expires } => (key, value, expires),
            Op::CompareAndSwap { key, revision, value, expires } => {
                let found = found(self, &key);
                if found != revision || revision == 0 {
                    return Err(StoreError::Conflict { key, expected: revision, found });
                }
                (key, value, expires)
            }
            Op::Check { key, revision } => {
                let found = found(self, &key);
                if found != revision {
                    return Err(StoreError::Conflict { key, expected: revision, found });
                }
                return Ok(0);
            }
            Op::Delete { key, revision } => {
                let found = found(self, &key);
                if found == 0 {
                    return Err(StoreError::NotFound { key });
                }
                if let Some(expected) = revision
                    && expected != found
                {
                    return Err(StoreError::Conflict { key, expected, found });
                }
                let (item, revision) = (self.remove(&key), next());
                before.push((key.clone(), item));
                changes.push(Change::Delete { key, revision });
                return Ok(revision);
            }
        };
        // What is there may go on: what has begun to be proven is not cut off by what others begin.
        if !self.by_key.contains_key(&key) && self.bytes.saturating_add(taken(&key, &value)) > self.limit {
            return Err(StoreError::MemoryFull { key });
        }
        let revision = next();
        let item = Item { key: key.clone(), value, revision, expires: rounded(expires) };
        changes.push(Change::Put(item.clone()));
        let was = self.insert(key.clone(), item);
        before.push((key, was));
        Ok(revision)
    }

    /// Puts back what was there, the latest first.
    pub(crate) fn undo(&mut self, before: Before) {
        for (key, item) in before.into_iter().rev() {
            self.set(key, item);
        }
    }

    /// Takes all of the steps or none.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn transact(
        &mut self,
        ops: Vec<Op>,
        now: OffsetDateTime,
        mut next: impl FnMut() -> u64,
    ) -> Result<(Vec<u64>, Vec<Change>), StoreError> {
        let (mut before, mut changes, mut revisions) =
            (Vec::new(), Vec::new(), Vec::with_capacity(ops.len()));
        for op in ops {
            match self.apply(op, now, &mut next, &mut changes, &mut before) {
                Ok(revision) => revisions.push(revision),
                Err(error) => {
                    self.undo(before);
                    return Err(error);
                }
            }
        }
        Ok((revisions, changes))
    }
}

impl State {
    fn publish(&self, changes: Vec<Change>) {
        if let (Some(sender), false) = (&self.changes, changes.is_empty()) {
            // A change without watchers is no error.
            let _ = sender.send(changes.into());
        }
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn get(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, StoreError> {
        Ok(self.open()?.items.live(key, now).cloned())
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError> {
        Ok(self.open()?.items.list(prefix, after, limit, now))
    }

    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        let mut state = self.open()?;
        let State { items, revision, .. } = &mut *state;
        let mut last = *revision;
        let (revisions, changes) = items.transact(ops, now, || {
            last += 1;
            last
        })?;
        *revision = last;
        state.publish(changes);
        Ok(revisions)
    }

    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError> {
        let state = self.open()?;
        let wanted = |item: &&Item| prefixes.iter().any(|prefix| item.key.starts_with(prefix.as_str()));
        let items = state.items.by_key.values().filter(wanted).filter(|item| alive(item, now));
        let snapshot = items.cloned().collect();
        let receiver = state.changes.as_ref().ok_or(StoreError::Closed)?.subscribe();
        Ok(Watch { snapshot, changes: Changes::new(receiver, prefixes, state.revision) })
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        let mut state = self.open()?;
        let dead = state.items.expired(now);
        let mut changes = Vec::with_capacity(dead.len());
        for key in dead {
            state.items.set(key.clone(), None);
            state.revision += 1;
            changes.push(Change::Delete { key, revision: state.revision });
        }
        let count = changes.len();
        state.publish(changes);
        Ok(count)
    }

    async fn close(&self) {
        self.state.lock().changes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_keeps_the_contract() {
        crate::contract::suite(|| async { Arc::new(MemoryBackend::new()) as Arc<dyn Backend> }).await;
    }
}
