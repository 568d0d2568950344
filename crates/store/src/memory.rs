//! State that is gone with the process, for tests and tools.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::sync::broadcast;

use crate::backend::{Changes, WATCH_BACKLOG, rounded};
use crate::{Backend, Change, Item, Op, StoreError, Watch};

#[derive(Debug)]
struct State {
    items: BTreeMap<String, Item>,
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
        Self { state: Mutex::new(State { items: BTreeMap::new(), revision: 0, changes }) }
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.changes.is_none() { Err(StoreError::Closed) } else { Ok(state) }
    }
}

fn alive(item: &Item, now: OffsetDateTime) -> bool {
    item.expires.is_none_or(|expires| expires > now)
}

fn key_of(op: &Op) -> &str {
    match op {
        Op::Create { key, .. }
        | Op::Put { key, .. }
        | Op::CompareAndSwap { key, .. }
        | Op::Check { key, .. }
        | Op::Delete { key, .. } => key,
    }
}

impl State {
    fn live(&self, key: &str, now: OffsetDateTime) -> Option<&Item> {
        self.items.get(key).filter(|item| alive(item, now))
    }

    fn apply(&mut self, op: Op, now: OffsetDateTime, changes: &mut Vec<Change>) -> Result<u64, StoreError> {
        let found = |state: &Self, key: &str| state.live(key, now).map_or(0, |item| item.revision);
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
                self.revision += 1;
                self.items.remove(&key);
                changes.push(Change::Delete { key, revision: self.revision });
                return Ok(self.revision);
            }
        };
        self.revision += 1;
        let item = Item { key: key.clone(), value, revision: self.revision, expires: rounded(expires) };
        changes.push(Change::Put(item.clone()));
        self.items.insert(key, item);
        Ok(self.revision)
    }

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
        Ok(self.open()?.live(key, now).cloned())
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, StoreError> {
        let state = self.open()?;
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = state.items.range::<str, _>((from, Bound::Unbounded));
        let matching = range.map(|(_, item)| item).take_while(|item| item.key.starts_with(prefix));
        Ok(matching.filter(|item| alive(item, now)).take(limit).cloned().collect())
    }

    async fn transact(&self, ops: Vec<Op>, now: OffsetDateTime) -> Result<Vec<u64>, StoreError> {
        let mut state = self.open()?;
        let revision = state.revision;
        let mut before = Vec::with_capacity(ops.len());
        let mut changes = Vec::new();
        let mut revisions = Vec::with_capacity(ops.len());
        for op in ops {
            let key = key_of(&op).to_owned();
            let item = state.items.get(&key).cloned();
            before.push((key, item));
            match state.apply(op, now, &mut changes) {
                Ok(revision) => revisions.push(revision),
                Err(error) => {
                    // All or nothing: what was there is put back, the latest first.
                    for (key, item) in before.into_iter().rev() {
                        match item {
                            Some(item) => drop(state.items.insert(key, item)),
                            None => drop(state.items.remove(&key)),
                        }
                    }
                    state.revision = revision;
                    return Err(error);
                }
            }
        }
        state.publish(changes);
        Ok(revisions)
    }

    async fn watch(&self, prefixes: Vec<String>, now: OffsetDateTime) -> Result<Watch, StoreError> {
        let state = self.open()?;
        let wanted = |item: &&Item| prefixes.iter().any(|prefix| item.key.starts_with(prefix.as_str()));
        let snapshot = state.items.values().filter(wanted).filter(|item| alive(item, now)).cloned().collect();
        let receiver = state.changes.as_ref().ok_or(StoreError::Closed)?.subscribe();
        Ok(Watch { snapshot, changes: Changes::new(receiver, prefixes, state.revision) })
    }

    async fn sweep(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        let mut state = self.open()?;
        let dead: Vec<String> =
            state.items.values().filter(|item| !alive(item, now)).map(|item| item.key.clone()).collect();
        let mut changes = Vec::with_capacity(dead.len());
        for key in dead {
            state.items.remove(&key);
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
