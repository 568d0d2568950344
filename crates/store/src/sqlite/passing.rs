//! Kinds that are kept in memory and end with the process: what is in them lives for minutes, changes at every step, and is asked for anew
//! where it is gone.
//!
//! They have the whole contract but durability, in one transaction with what is in the file, too: the writer holds the items that a group
//! of its transactions changes, and puts their new state in after the commit. A transaction of these kinds alone needs neither the writer nor
//! the disk, unless the writer holds an item of it: then it waits its turn.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::memory::Items;
use crate::{Change, Item, Op, StoreError};

#[derive(Debug, Default)]
struct State {
    items: Items,
    /// What the writer's group changes.
    held: HashSet<String>,
}

/// The items of these kinds.
#[derive(Debug)]
pub(super) struct Passing {
    prefixes: Vec<String>,
    state: Mutex<State>,
}

/// The key that a step is about.
pub(super) fn key_of(op: &Op) -> &str {
    match op {
        Op::Create { key, .. }
        | Op::Put { key, .. }
        | Op::CompareAndSwap { key, .. }
        | Op::Check { key, .. }
        | Op::Delete { key, .. } => key,
    }
}

/// What a group of transactions makes of items that it holds, until it is committed.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) items: Items,
    keys: Vec<String>,
}

impl Passing {
    /// Of the kinds whose keys begin so.
    pub(super) fn of(prefixes: &[&str]) -> Self {
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        Self { prefixes, state: Mutex::default() }
    }

    /// How their keys begin.
    pub(super) fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    /// Whether a key is of these kinds.
    pub(super) fn has(&self, key: &str) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Whether some keys of a listing are of these kinds.
    pub(super) fn has_some_of(&self, listed: &str) -> bool {
        self.prefixes.iter().any(|prefix| prefix.starts_with(listed) || listed.starts_with(prefix))
    }

    pub(super) fn get(&self, key: &str, now: OffsetDateTime) -> Option<Item> {
        self.state.lock().items.live(key, now).cloned()
    }

    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Vec<Item> {
        self.state.lock().items.list(prefix, after, limit, now)
    }

    /// All items below some prefixes, and the number of the last change that they have.
    pub(super) fn snapshot(
        &self,
        prefixes: &[String],
        last: &AtomicU64,
        now: OffsetDateTime,
    ) -> (Vec<Item>, u64) {
        let state = self.state.lock();
        let below = |prefix: &String| state.items.list(prefix, None, usize::MAX, now);
        (prefixes.iter().flat_map(below).collect(), last.load(Ordering::Acquire))
    }

    /// Takes steps that are of these kinds alone, and tells of them before others are taken; gives them back where the writer holds one of
    /// their items.
    pub(super) fn transact(
        &self,
        ops: Vec<Op>,
        now: OffsetDateTime,
        last: &AtomicU64,
        tell: impl FnOnce(Vec<Change>),
    ) -> Result<Result<Vec<u64>, StoreError>, Vec<Op>> {
        let mut state = self.state.lock();
        if ops.iter().any(|op| state.held.contains(key_of(op))) {
            return Err(ops);
        }
        let taken = state.items.transact(ops, now, || last.fetch_add(1, Ordering::AcqRel) + 1);
        Ok(taken.map(|(revisions, changes)| {
            tell(changes);
            revisions
        }))
    }

    /// Holds the items of a transaction's steps for a group.
    pub(super) fn hold(&self, ops: &[Op], held: &mut Held) {
        for key in ops.iter().map(key_of).filter(|key| self.has(key)) {
            let mut state = self.state.lock();
            if state.held.insert(key.to_owned()) {
                held.items.set(key.to_owned(), state.items.get(key).cloned());
                held.keys.push(key.to_owned());
            }
        }
    }

    /// Lets a group's items go, as it made them where it was committed, and tells of all that it changed before others are taken.
    pub(super) fn release(&self, held: Held, is_done: bool, tell: impl FnOnce()) {
        let mut state = self.state.lock();
        for key in held.keys {
            state.held.remove(&key);
            if is_done {
                let made = held.items.get(&key).cloned();
                state.items.set(key, made);
            }
        }
        if is_done {
            tell();
        }
    }

    /// Removes what has expired; gives how many that were.
    pub(super) fn sweep(
        &self,
        now: OffsetDateTime,
        last: &AtomicU64,
        tell: impl FnOnce(Vec<Change>),
    ) -> usize {
        let mut state = self.state.lock();
        let mut changes = Vec::new();
        for key in state.items.expired(now) {
            if !state.held.contains(&key) {
                state.items.set(key.clone(), None);
                let revision = last.fetch_add(1, Ordering::AcqRel) + 1;
                changes.push(Change::Delete { key, revision });
            }
        }
        let count = changes.len();
        tell(changes);
        count
    }

    /// The store is closed.
    pub(super) fn clear(&self) {
        self.state.lock().items = Items::default();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[test]
    fn what_the_writer_holds_is_changed_by_no_other_until_it_lets_go() {
        let (passing, last) = (Passing::of(&["p/"]), AtomicU64::new(0));
        let next = || last.fetch_add(1, Ordering::AcqRel) + 1;
        let value = || Bytes::from_static(b"1");
        let put = |key: &str| Op::Put { key: key.to_owned(), value: value(), expires: None };
        let first = passing.transact(vec![put("p/a")], NOW, &last, drop).unwrap().unwrap()[0];
        let swap =
            |revision| Op::CompareAndSwap { key: "p/a".to_owned(), revision, value: value(), expires: None };
        for is_done in [false, true] {
            let mut held = Held::default();
            passing.hold(&[swap(first)], &mut held);
            held.items.transact(vec![swap(first)], NOW, next).unwrap();
            // Another has to wait its turn, unless it is about another item; a reader sees what was committed.
            assert_eq!(passing.transact(vec![swap(first)], NOW, &last, drop).unwrap_err(), [swap(first)]);
            passing.transact(vec![put("p/b")], NOW, &last, drop).unwrap().unwrap();
            assert_eq!(passing.get("p/a", NOW).unwrap().revision, first);
            let mut told = false;
            passing.release(held, is_done, || told = true);
            assert_eq!((told, passing.get("p/a", NOW).unwrap().revision > first), (is_done, is_done));
        }
        let used = passing.transact(vec![swap(first)], NOW, &last, drop).unwrap();
        assert!(matches!(used, Err(StoreError::Conflict { .. })), "{used:?}");
    }
}
