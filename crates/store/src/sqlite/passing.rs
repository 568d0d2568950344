//! Kinds that are kept in memory and end with the process: what is in them lives for minutes, changes at every step, and is asked for anew
//! where it is gone.
//!
//! They have the whole contract but durability, in one transaction with what is in the file, too: the writer holds the items that a group
//! of its transactions changes, and puts their new state in after the commit. A transaction of these kinds alone needs neither the writer nor
//! the disk, unless the writer holds an item of it: then it waits its turn.
//!
//! A caller who begins to prove something is not known yet, so these kinds have a bound in bytes: beyond it no item is added, and what is there
//! goes on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::memory::Items;
use crate::{Change, Item, Op, StoreError};

/// Bytes that the items may take: some hundred thousand logins at once, and no machine that runs an authority lacks as much.
const LIMIT_BYTES: usize = 256 << 20;

#[derive(Debug)]
struct State {
    items: Items,
    /// What the writer's group changes, each with the number of the last change when it was taken hold of: what the group makes of it has a
    /// higher one, and is not told yet.
    held: HashMap<String, u64>,
}

/// Items as they were at one moment, for a watcher.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) items: Vec<Item>,
    /// The number of the last change that they have,
    pub(super) known: u64,
    /// but for those of these keys, which the writer held: of them they have those up to this one.
    pub(super) under_way: HashMap<String, u64>,
}

/// The items of these kinds.
#[derive(Debug)]
pub(super) struct Passing {
    prefixes: Vec<String>,
    limit: usize,
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
    /// Bytes of the items as they were before the group.
    before: usize,
}

impl Passing {
    /// Of the kinds whose keys begin so.
    pub(super) fn of(prefixes: &[&str]) -> Self {
        Self::bounded(prefixes, LIMIT_BYTES)
    }

    /// [`Self::of`], where the items may take so many bytes.
    fn bounded(prefixes: &[&str], limit: usize) -> Self {
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        let state = State { items: Items::bounded(limit), held: HashMap::new() };
        Self { prefixes, limit, state: Mutex::new(state) }
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

    /// All items below some prefixes. Every change of them that is told from now on has a higher number than the snapshot gives for its key:
    /// a change of an item that the writer does not hold gets it under this lock, or once the writer holds it, which is later, too.
    pub(super) fn snapshot(&self, prefixes: &[String], last: &AtomicU64, now: OffsetDateTime) -> Snapshot {
        let state = self.state.lock();
        let below = |prefix: &String| state.items.list(prefix, None, usize::MAX, now);
        let is_wanted = |key: &String| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
        let held = state.held.iter().filter(|(key, _)| is_wanted(key));
        Snapshot {
            items: prefixes.iter().flat_map(below).collect(),
            known: last.load(Ordering::Acquire),
            under_way: held.map(|(key, known)| (key.clone(), *known)).collect(),
        }
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
        if ops.iter().any(|op| state.held.contains_key(key_of(op))) {
            return Err(ops);
        }
        let taken = state.items.transact(ops, now, || last.fetch_add(1, Ordering::AcqRel) + 1);
        Ok(taken.map(|(revisions, changes)| {
            tell(changes);
            revisions
        }))
    }

    /// Holds the items of a transaction's steps for a group.
    pub(super) fn hold(&self, ops: &[Op], held: &mut Held, last: &AtomicU64) {
        let mut keys = ops.iter().map(key_of).filter(|key| self.has(key)).peekable();
        if keys.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        let last = last.load(Ordering::Acquire);
        for key in keys {
            let Entry::Vacant(free) = state.held.entry(key.to_owned()) else { continue };
            free.insert(last);
            let bytes = held.items.bytes();
            held.items.set(key.to_owned(), state.items.get(key).cloned());
            held.before += held.items.bytes() - bytes;
            held.keys.push(key.to_owned());
        }
        // What the group adds to these is added to the others when it lets go.
        held.items.bound((self.limit + held.before).saturating_sub(state.items.bytes()));
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
            if !state.held.contains_key(&key) {
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
        self.state.lock().items = Items::bounded(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::backend::Watchers;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn create(key: &str, bytes: usize) -> Op {
        Op::Create { key: key.to_owned(), value: Bytes::from(vec![7; bytes]), expires: None }
    }

    fn swap(key: &str, revision: u64, bytes: usize) -> Op {
        Op::CompareAndSwap {
            key: key.to_owned(),
            revision,
            value: Bytes::from(vec![7; bytes]),
            expires: None,
        }
    }

    fn delete(key: &str) -> Op {
        Op::Delete { key: key.to_owned(), revision: None }
    }

    #[test]
    fn beyond_the_bound_no_item_is_added_and_what_is_there_goes_on() {
        let (passing, last) = (Passing::bounded(&["p/"], 5_000), AtomicU64::new(0));
        let take = |ops: Vec<Op>| passing.transact(ops, NOW, &last, drop).unwrap();
        let bytes = || passing.state.lock().items.bytes();
        let first = take(vec![create("p/a", 2_000)]).unwrap()[0];
        let filled = bytes();
        // A key and what an entry takes by itself count, too.
        let long = format!("p/{}", "b".repeat(2_500));
        for too_much in [create("p/b", 2_800), create(&long, 0)] {
            let put = Op::Put {
                key: key_of(&too_much).to_owned(),
                value: Bytes::from(vec![7; 2_800]),
                expires: None,
            };
            for op in [too_much, put] {
                // Of the steps before it, none is done.
                let refused = take(vec![create("p/c", 10), op]);
                assert!(matches!(refused, Err(StoreError::MemoryFull { .. })), "{refused:?}");
                assert_eq!((bytes(), passing.get("p/c", NOW)), (filled, None));
            }
        }
        let refused = take(vec![create("p/b", 2_800)]).unwrap_err().to_string();
        assert!(
            refused.contains("p/b is not taken: what is being proven takes too much memory"),
            "{refused}"
        );
        // What was begun goes on, also where it grows.
        take(vec![swap("p/a", first, 9_000)]).unwrap();
        assert!(take(vec![create("p/b", 1)]).is_err());
        take(vec![delete("p/a")]).unwrap();
        assert_eq!(bytes(), 0);
        take(vec![create("p/b", 2_800)]).unwrap();
        passing.clear();
        assert!(take(vec![create("p/b", 9_000)]).is_err(), "cleared, and bounded as before");
    }

    #[test]
    fn what_goes_by_the_writer_has_the_same_bound() {
        let (passing, last) = (Passing::bounded(&["p/"], 5_000), AtomicU64::new(0));
        let next = || last.fetch_add(1, Ordering::AcqRel) + 1;
        let take = |ops: Vec<Op>| passing.transact(ops, NOW, &last, drop).unwrap();
        let first = take(vec![create("p/a", 2_000)]).unwrap()[0];
        let mut held = Held::default();
        let by_the_writer = |held: &mut Held, op: Op| {
            passing.hold(std::slice::from_ref(&op), held, &last);
            held.items.transact(vec![op], NOW, next)
        };
        let refused = by_the_writer(&mut held, create("p/b", 2_800));
        assert!(matches!(refused, Err(StoreError::MemoryFull { .. })), "{refused:?}");
        // What the group takes away makes room for what it adds, and what it has added takes room.
        by_the_writer(&mut held, swap("p/a", first, 100)).unwrap();
        by_the_writer(&mut held, create("p/b", 2_800)).unwrap();
        assert!(by_the_writer(&mut held, create("p/c", 1_500)).is_err());
        by_the_writer(&mut held, create("p/c", 100)).unwrap();
        passing.release(held, true, || {});
        assert!(take(vec![create("p/d", 1_000)]).is_err());
        for key in ["p/a", "p/b", "p/c"] {
            take(vec![delete(key)]).unwrap();
        }
        assert_eq!(passing.state.lock().items.bytes(), 0);
    }

    /// A watcher who begins while a change of the writer's has its number and is not committed.
    #[tokio::test]
    async fn a_watcher_is_told_of_what_was_under_way_and_of_nothing_twice() {
        let (passing, last, watchers) = (Passing::of(&["p/"]), AtomicU64::new(0), Watchers::default());
        let take =
            |ops: Vec<Op>| passing.transact(ops, NOW, &last, |changes| watchers.tell(changes)).unwrap();
        let first = take(vec![create("p/x", 1)]).unwrap()[0];
        let mut changes = watchers.watch(vec!["p/".to_owned()]).unwrap();
        // Told to the watcher before it has its snapshot, and in that.
        let before = take(vec![swap("p/x", first, 2)]).unwrap()[0];
        let mut held = Held::default();
        passing.hold(&[swap("p/x", before, 3)], &mut held, &last);
        let (revisions, made) = held
            .items
            .transact(vec![swap("p/x", before, 3)], NOW, || last.fetch_add(1, Ordering::AcqRel) + 1)
            .unwrap();
        let other = take(vec![create("p/y", 1)]).unwrap()[0];
        assert!(other > revisions[0]);
        let Snapshot { items, known, under_way } = passing.snapshot(&["p/".to_owned()], &last, NOW);
        assert_eq!(items.iter().map(|item| item.revision).collect::<Vec<_>>(), [before, other]);
        changes.knows_more(passing.prefixes().to_vec(), known, under_way);
        passing.release(held, true, || watchers.tell(made));
        let after = take(vec![create("p/z", 1)]).unwrap()[0];
        let told = [changes.next().await.unwrap().revision(), changes.next().await.unwrap().revision()];
        assert_eq!(told, [revisions[0], after]);
    }

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
            passing.hold(&[swap(first)], &mut held, &last);
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
