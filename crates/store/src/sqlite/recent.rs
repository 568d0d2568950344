//! Items that were read or written lately, as they are in the file, so that a reader who wants one needs neither SQLite nor its thread.
//!
//! The file has one process (it is locked) and that process one writer, so that nothing changes an item behind this. What a group of
//! transactions is about to change is taken out before its commit and put in after it, before any of its callers has an answer: who has
//! heard of a change sees it, and who has seen one sees no older one afterwards. What a reader brings of the file is kept only where no
//! group that might have changed it was begun meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::{Change, Item};

/// Bytes of one half: the younger takes what comes until it is full, and is then the older, in the place of the one that was.
const HALF_BYTES: usize = 16 << 20;
/// A longer value is read of the file each time.
const LONGEST: usize = 64 << 10;
/// Items of a listing that is kept, at the most.
const LISTED: usize = 64;
/// What an entry takes besides its key and value.
const ENTRY_BYTES: usize = 160;

/// Under what something is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Item(String),
    /// Everything below a prefix that ends in a slash.
    Listing(String),
}

#[derive(Debug, Clone)]
enum Kept {
    Item(Item),
    /// There was none at that time.
    Nothing(OffsetDateTime),
    /// What was alive at that time.
    Listing(Arc<[Item]>, OffsetDateTime),
}

impl Kept {
    fn bytes(&self) -> usize {
        let of = |item: &Item| ENTRY_BYTES + 2 * item.key.len() + item.value.len();
        match self {
            Self::Item(item) => of(item),
            Self::Nothing(_) => ENTRY_BYTES,
            Self::Listing(items, _) => ENTRY_BYTES + items.iter().map(of).sum::<usize>(),
        }
    }
}

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Name, Kept>,
    old: HashMap<Name, Kept>,
    /// Bytes of the younger.
    bytes: usize,
}

impl Halves {
    fn find(&mut self, name: &Name) -> Option<&Kept> {
        if !self.young.contains_key(name) {
            let kept = self.old.remove(name)?;
            self.put(name.clone(), kept);
        }
        self.young.get(name)
    }

    fn put(&mut self, name: Name, kept: Kept) {
        self.bytes += kept.bytes();
        if let Some(before) = self.young.insert(name, kept) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
        if self.bytes > HALF_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
    }

    fn remove(&mut self, name: &Name) {
        self.old.remove(name);
        if let Some(before) = self.young.remove(name) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
    }
}

#[derive(Debug, Default)]
struct State {
    halves: Halves,
    /// What the group that is being committed changes.
    changing: HashSet<Name>,
    /// Groups that were begun.
    groups: u64,
}

/// Says whether what is read now may be kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(Option<u64>);

/// The items.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

/// All under which a change of a key is kept: the item, and the listings that it is in.
fn touched(change: &Change) -> impl Iterator<Item = Name> {
    let key = change.key();
    let listings = key.match_indices('/').filter_map(move |(at, _)| key.get(..=at));
    let listings = listings.map(|prefix| Name::Listing(prefix.to_owned()));
    std::iter::once(Name::Item(key.to_owned())).chain(listings)
}

fn is_alive(item: &Item, now: OffsetDateTime) -> bool {
    item.expires.is_none_or(|expires| expires > now)
}

impl State {
    fn ticket(&self, name: &Name) -> Ticket {
        Ticket((!self.changing.contains(name)).then_some(self.groups))
    }

    fn keep(&mut self, Ticket(at): Ticket, name: Name, kept: Kept) {
        if at == Some(self.groups) && !self.changing.contains(&name) {
            self.halves.put(name, kept);
        }
    }
}

impl Recent {
    /// The item under a key, where it is known; none where it has expired.
    ///
    /// # Errors
    /// It is not known: what is read of the file goes with this to [`Self::keep`].
    pub(super) fn item(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, Ticket> {
        let name = Name::Item(key.to_owned());
        let mut state = self.0.lock();
        match state.halves.find(&name) {
            Some(Kept::Item(item)) => Ok(Some(item).filter(|item| is_alive(item, now)).cloned()),
            // A clock that goes back brings none back that had expired.
            Some(Kept::Nothing(at)) if *at <= now => Ok(None),
            _ => Err(state.ticket(&name)),
        }
    }

    /// Keeps what was read of a key.
    pub(super) fn keep(&self, ticket: Ticket, key: &str, found: Option<&Item>, now: OffsetDateTime) {
        let kept = match found {
            Some(item) if item.value.len() > LONGEST => return,
            Some(item) => Kept::Item(item.clone()),
            None => Kept::Nothing(now),
        };
        self.0.lock().keep(ticket, Name::Item(key.to_owned()), kept);
    }

    /// The first items below a prefix, where they are known.
    ///
    /// # Errors
    /// They are not: what is read of the file goes with this to [`Self::keep_listing`].
    pub(super) fn listing(
        &self,
        prefix: &str,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Item>, Ticket> {
        let name = Name::Listing(prefix.to_owned());
        let mut state = self.0.lock();
        match state.halves.find(&name) {
            Some(Kept::Listing(items, at)) if *at <= now => {
                Ok(items.iter().filter(|item| is_alive(item, now)).take(limit).cloned().collect())
            }
            _ => Err(state.ticket(&name)),
        }
    }

    /// Keeps all that is below a prefix, as it was read: below a name of a kind, and not of all that a kind has.
    pub(super) fn keep_listing(&self, ticket: Ticket, prefix: &str, items: &[Item], now: OffsetDateTime) {
        let is_below = prefix.ends_with('/') && prefix.matches('/').count() > 1;
        if is_below && items.len() <= LISTED && items.iter().all(|item| item.value.len() <= LONGEST) {
            let name = Name::Listing(prefix.to_owned());
            self.0.lock().keep(ticket, name, Kept::Listing(items.into(), now));
        }
    }

    /// A group is about to be committed.
    pub(super) fn commits(&self, changes: &[Change]) {
        let mut state = self.0.lock();
        state.groups += 1;
        for name in changes.iter().flat_map(touched) {
            state.halves.remove(&name);
            state.changing.insert(name);
        }
    }

    /// It was committed, or was not.
    pub(super) fn committed(&self, changes: &[Change], is_done: bool) {
        let mut state = self.0.lock();
        state.changing.clear();
        if !is_done {
            return;
        }
        for change in changes {
            match change {
                Change::Put(item) if item.value.len() <= LONGEST => {
                    state.halves.put(Name::Item(item.key.clone()), Kept::Item(item.clone()));
                }
                // One that is long now, and one that is gone, of which the same group may have known more before.
                Change::Put(item) => state.halves.remove(&Name::Item(item.key.clone())),
                Change::Delete { key, .. } => state.halves.remove(&Name::Item(key.clone())),
            }
        }
    }

    /// The store is closed.
    pub(super) fn clear(&self) {
        self.0.lock().halves = Halves::default();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn item(key: &str, revision: u64) -> Item {
        Item { key: key.to_owned(), value: Bytes::from_static(b"1"), revision, expires: None }
    }

    fn revision(recent: &Recent, key: &str) -> Option<u64> {
        recent.item(key, NOW).ok().flatten().map(|item| item.revision)
    }

    fn keep(recent: &Recent, ticket: Ticket, item: &Item) {
        recent.keep(ticket, &item.key, Some(item), NOW);
    }

    #[test]
    fn that_there_is_nothing_is_known_until_there_is_something() {
        let recent = Recent::default();
        let ticket = recent.item("k/a", NOW).unwrap_err();
        recent.keep(ticket, "k/a", None, NOW);
        assert_eq!(recent.item("k/a", NOW).unwrap(), None);
        assert!(recent.item("k/a", NOW - time::Duration::SECOND).is_err(), "before it was read");
        let change = [Change::Put(item("k/a", 1))];
        recent.commits(&change);
        recent.keep(ticket, "k/a", None, NOW);
        recent.committed(&change, true);
        recent.keep(ticket, "k/a", None, NOW);
        assert_eq!(revision(&recent, "k/a"), Some(1));
    }

    #[test]
    fn what_was_read_before_a_group_is_not_kept_behind_it() {
        let recent = Recent::default();
        let change = [Change::Put(item("k/a", 2))];
        let ticket = recent.item("k/a", NOW).unwrap_err();
        let listed = recent.listing("k/a/", 9, NOW).unwrap_err();
        recent.commits(&change);
        // Read before the commit, and brought while it goes on.
        keep(&recent, ticket, &item("k/a", 1));
        assert_eq!(revision(&recent, "k/a"), None);
        // Begun while it goes on, and brought when it is over.
        let meanwhile = recent.item("k/a", NOW).unwrap_err();
        recent.committed(&change, true);
        keep(&recent, ticket, &item("k/a", 1));
        keep(&recent, meanwhile, &item("k/a", 1));
        assert_eq!(revision(&recent, "k/a"), Some(2));
        // The same where the item is gone.
        let gone = [Change::Delete { key: "k/a".to_owned(), revision: 3 }];
        recent.commits(&gone);
        let meanwhile = recent.item("k/a", NOW).unwrap_err();
        recent.committed(&gone, true);
        keep(&recent, meanwhile, &item("k/a", 2));
        recent.keep_listing(listed, "k/a/", &[item("k/a/1", 1)], NOW);
        assert_eq!(revision(&recent, "k/a"), None);
        assert!(recent.listing("k/a/", 9, NOW).is_err());
        keep(&recent, recent.item("k/a", NOW).unwrap_err(), &item("k/a", 4));
        assert_eq!(revision(&recent, "k/a"), Some(4));
    }

    #[test]
    fn a_group_that_fails_leaves_its_keys_unknown() {
        let recent = Recent::default();
        let change = [Change::Put(item("k/a", 1))];
        recent.commits(&change);
        recent.committed(&change, true);
        let failed = [Change::Put(item("k/a", 2))];
        recent.commits(&failed);
        assert_eq!(revision(&recent, "k/a"), None);
        recent.committed(&failed, false);
        assert_eq!(revision(&recent, "k/a"), None);
    }

    #[test]
    fn a_listing_is_known_until_one_below_it_changes() {
        let recent = Recent::default();
        let below = [item("k/a/1", 1), item("k/a/2", 2)];
        recent.keep_listing(recent.listing("k/a/", 9, NOW).unwrap_err(), "k/a/", &below, NOW);
        recent.keep_listing(recent.listing("k/", 9, NOW).unwrap_err(), "k/", &below, NOW);
        assert_eq!(recent.listing("k/a/", 1, NOW).unwrap(), below[..1]);
        assert!(recent.listing("k/", 9, NOW).is_err(), "all of a kind");
        assert!(recent.listing("k/a/", 9, NOW - time::Duration::SECOND).is_err(), "before it was read");
        let change = [Change::Put(item("k/a/3", 3))];
        recent.commits(&change);
        recent.committed(&change, true);
        assert!(recent.listing("k/a/", 9, NOW).is_err());
        assert_eq!(revision(&recent, "k/a/3"), Some(3));
    }

    #[test]
    fn what_has_expired_is_not_there_and_what_is_old_is_let_go() {
        let recent = Recent::default();
        let ends = Item { expires: Some(NOW + time::Duration::SECOND), ..item("k/ends", 1) };
        keep(&recent, recent.item("k/ends", NOW).unwrap_err(), &ends);
        assert_eq!(revision(&recent, "k/ends"), Some(1));
        assert_eq!(recent.item("k/ends", NOW + time::Duration::SECOND).unwrap(), None);
        let long = Bytes::from(vec![0; LONGEST]);
        for number in 0..2 * HALF_BYTES / LONGEST + 2 {
            let item = Item { value: long.clone(), ..item(&format!("k/{number}"), 1) };
            keep(&recent, recent.item(&item.key, NOW).unwrap_err(), &item);
        }
        assert!(recent.item("k/ends", NOW).is_err());
        let state = recent.0.lock();
        let kept =
            state.halves.young.values().chain(state.halves.old.values()).map(Kept::bytes).sum::<usize>();
        assert!(kept <= 2 * HALF_BYTES + 2 * LONGEST, "{kept} bytes");
    }
}
