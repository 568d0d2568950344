//! Items that were read or written lately, as they are in the file, so that a reader who wants one needs neither SQLite nor its thread.
//!
//! The file has one process (it is locked) and that process one writer, so that nothing changes an item behind this. What a group of
//! transactions is about to change is taken out before its commit and put in after it, before any of its callers has an answer: who has
//! heard of a change sees it, and who has seen one sees no older one afterwards. What a reader brings of the file is kept only where no
//! group that was begun meanwhile changes it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::{Change, Item};

/// Bytes of one half: the younger takes what comes until it is full, and is then the older, in the place of the one that was.
const HALF_BYTES: usize = 16 << 20;
/// A longer value is read of the file each time.
const LONGEST: usize = 64 << 10;
/// Bytes of a key or a prefix that is kept: a caller who asks for long ones that are not there takes no memory with them.
const LONGEST_NAME: usize = 512;
/// Items of a listing that is kept, at the most.
const LISTED: usize = 64;
/// What an entry takes besides its key and value.
const ENTRY_BYTES: usize = 160;
/// Groups of which it is known what they changed: a read that takes longer than these is not kept.
const GROUPS: usize = 8;
/// Names that these may have together, which is some MiB of them.
const NAMES: usize = 16_384;

/// Under what something is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Item(String),
    /// Everything below a prefix that ends in a slash.
    Listing(String),
}

impl Name {
    fn len(&self) -> usize {
        match self {
            Self::Item(name) | Self::Listing(name) => name.len(),
        }
    }
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
    /// Bytes that it takes under its name, which counts twice: an item has its key besides.
    fn bytes(&self, name: &Name) -> usize {
        let below = |item: &Item| ENTRY_BYTES + 2 * item.key.len() + item.value.len();
        let what = match self {
            Self::Item(item) => item.value.len(),
            Self::Nothing(_) => 0,
            Self::Listing(items, _) => items.iter().map(below).sum::<usize>(),
        };
        ENTRY_BYTES + 2 * name.len() + what
    }
}

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Name, Kept>,
    old: HashMap<Name, Kept>,
    /// Bytes of the younger.
    bytes: usize,
    /// Older halves that were replaced, until [`Recent::with`] drops them.
    replaced: Vec<HashMap<Name, Kept>>,
}

impl Halves {
    fn find(&mut self, name: &Name) -> Option<&Kept> {
        if !self.young.contains_key(name) {
            let kept = self.old.remove(name)?;
            self.put(name.clone(), kept);
        }
        // The younger half may have become the older one just now.
        self.young.get(name).or_else(|| self.old.get(name))
    }

    fn put(&mut self, name: Name, kept: Kept) {
        self.remove(&name);
        self.bytes += kept.bytes(&name);
        self.young.insert(name, kept);
        if self.bytes > HALF_BYTES {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.replaced.push(old);
            self.bytes = 0;
        }
    }

    fn remove(&mut self, name: &Name) {
        self.old.remove(name);
        if let Some(before) = self.young.remove(name) {
            self.bytes = self.bytes.saturating_sub(before.bytes(name));
        }
    }
}

/// The groups that were begun last, and the names that each of them changes.
#[derive(Debug, Default)]
struct Groups {
    /// Groups that were begun, of those that change something in the file.
    begun: u64,
    /// The names of the last ones, the latest at the end.
    names: VecDeque<HashSet<Name>>,
    /// The latest is being committed.
    is_committing: bool,
    /// Names that are too old, until [`Recent::with`] drops them.
    forgotten: Vec<HashSet<Name>>,
}

impl Groups {
    fn begin(&mut self, names: HashSet<Name>) {
        self.begun += 1;
        self.names.push_back(names);
        self.is_committing = true;
        // What is being committed is known until it is, however much it is.
        self.forget_all_but(1);
    }

    fn end(&mut self) {
        self.is_committing = false;
        self.forget_all_but(0);
    }

    /// Forgets the oldest groups, where they or their names are too many; never the `last` ones.
    fn forget_all_but(&mut self, last: usize) {
        while self.names.len() > last
            && (self.names.len() > GROUPS || self.names.iter().map(HashSet::len).sum::<usize>() > NAMES)
        {
            self.forgotten.extend(self.names.pop_front());
        }
    }

    fn ticket(&self, name: &Name) -> Ticket {
        let changing = self.names.back().filter(|_| self.is_committing);
        let is_changing = changing.is_some_and(|names| names.contains(name));
        Ticket((!is_changing).then_some(self.begun))
    }

    /// Whether the file has now under this name what was read of it after the ticket was given. No group that was under way then changes
    /// the name, or there would be no ticket; those before were over, and the read saw what they did. So it is the groups since then that
    /// count, and all of them must be known, and none of them may change the name.
    fn is_unchanged(&self, Ticket(given): Ticket, name: &Name) -> bool {
        let since = given.and_then(|given| self.begun.checked_sub(given));
        let Some(since) = since.and_then(|since| usize::try_from(since).ok()) else { return false };
        since <= self.names.len() && self.names.iter().rev().take(since).all(|names| !names.contains(name))
    }
}

#[derive(Debug, Default)]
struct State {
    halves: Halves,
    groups: Groups,
}

/// Says whether what is read now may be kept: it has the number of groups that were begun before, and none where it may not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(Option<u64>);

/// The items.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

/// All under which a change of a key is kept: the item, and the listings that it is in.
fn touched(change: &Change) -> impl Iterator<Item = Name> {
    let key = change.key();
    let listings = key.match_indices('/').map_while(move |(at, _)| key.get(..=at));
    let listings = listings.take_while(|prefix| prefix.len() <= LONGEST_NAME);
    let listings = listings.map(|prefix| Name::Listing(prefix.to_owned()));
    let item = (key.len() <= LONGEST_NAME).then(|| Name::Item(key.to_owned()));
    item.into_iter().chain(listings)
}

fn is_alive(item: &Item, now: OffsetDateTime) -> bool {
    item.expires.is_none_or(|expires| expires > now)
}

impl Recent {
    /// Works on the state, and drops what fell out of it once another may have it: that may be a hundred thousand entries.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock();
        let done = work(&mut state);
        let replaced = std::mem::take(&mut state.halves.replaced);
        let forgotten = std::mem::take(&mut state.groups.forgotten);
        drop(state);
        drop((replaced, forgotten));
        done
    }

    /// The item under a key, where it is known; none where it has expired.
    ///
    /// # Errors
    /// It is not known: what is read of the file goes with this to [`Self::keep`].
    pub(super) fn item(&self, key: &str, now: OffsetDateTime) -> Result<Option<Item>, Ticket> {
        if key.len() > LONGEST_NAME {
            return Err(Ticket(None));
        }
        let name = Name::Item(key.to_owned());
        self.with(|state| match state.halves.find(&name) {
            Some(Kept::Item(item)) => Ok(Some(item).filter(|item| is_alive(item, now)).cloned()),
            // A clock that goes back brings none back that had expired.
            Some(Kept::Nothing(at)) if *at <= now => Ok(None),
            _ => Err(state.groups.ticket(&name)),
        })
    }

    /// Keeps what was read of a key.
    pub(super) fn keep(&self, ticket: Ticket, key: &str, found: Option<&Item>, now: OffsetDateTime) {
        let kept = match found {
            Some(item) if item.value.len() > LONGEST => return,
            Some(item) => Kept::Item(item.clone()),
            None => Kept::Nothing(now),
        };
        if key.len() <= LONGEST_NAME {
            self.keep_unchanged(ticket, Name::Item(key.to_owned()), kept);
        }
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
        if prefix.len() > LONGEST_NAME {
            return Err(Ticket(None));
        }
        let name = Name::Listing(prefix.to_owned());
        let items = self.with(|state| match state.halves.find(&name) {
            Some(Kept::Listing(items, at)) if *at <= now => Ok(Arc::clone(items)),
            _ => Err(state.groups.ticket(&name)),
        })?;
        Ok(items.iter().filter(|item| is_alive(item, now)).take(limit).cloned().collect())
    }

    /// Keeps all that is below a prefix, as it was read: below a name of a kind, and not of all that a kind has.
    pub(super) fn keep_listing(&self, ticket: Ticket, prefix: &str, items: &[Item], now: OffsetDateTime) {
        let is_below = prefix.ends_with('/') && prefix.matches('/').count() > 1;
        let is_short = |item: &Item| item.value.len() <= LONGEST && item.key.len() <= LONGEST_NAME;
        let is_kept = is_below && prefix.len() <= LONGEST_NAME && items.len() <= LISTED;
        if is_kept && items.iter().all(is_short) {
            let name = Name::Listing(prefix.to_owned());
            self.keep_unchanged(ticket, name, Kept::Listing(items.into(), now));
        }
    }

    fn keep_unchanged(&self, ticket: Ticket, name: Name, kept: Kept) {
        self.with(|state| {
            if state.groups.is_unchanged(ticket, &name) {
                state.halves.put(name, kept);
            }
        });
    }

    /// A group is about to be committed. One that changes nothing in the file leaves all that is known as it is.
    pub(super) fn commits(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let names: HashSet<Name> = changes.iter().flat_map(touched).collect();
        self.with(|state| {
            for name in &names {
                state.halves.remove(name);
            }
            state.groups.begin(names);
        });
    }

    /// It was committed, or was not.
    pub(super) fn committed(&self, changes: &[Change], is_done: bool) {
        let done = changes.iter().filter(|change| is_done && change.key().len() <= LONGEST_NAME);
        let made: Vec<(Name, Option<Kept>)> = done
            .map(|change| match change {
                Change::Put(item) => {
                    let kept = (item.value.len() <= LONGEST).then(|| Kept::Item(item.clone()));
                    (Name::Item(item.key.clone()), kept)
                }
                Change::Delete { key, .. } => (Name::Item(key.clone()), None),
            })
            .collect();
        self.with(|state| {
            state.groups.end();
            for (name, kept) in made {
                match kept {
                    Some(kept) => state.halves.put(name, kept),
                    // One that is long now, or is gone, of which the same group may have put more before.
                    None => state.halves.remove(&name),
                }
            }
        });
    }

    /// The store is closed.
    pub(super) fn clear(&self) {
        self.with(|state| {
            let Halves { young, old, .. } = std::mem::take(&mut state.halves);
            state.halves.replaced.extend([young, old]);
        });
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
        let change = [Change::Put(item("k/a", 2)), Change::Put(item("k/a/1", 2))];
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

    /// Commits a change of a key.
    fn commit(recent: &Recent, key: &str, revision: u64) {
        let change = [Change::Put(item(key, revision))];
        recent.commits(&change);
        recent.committed(&change, true);
    }

    #[test]
    fn a_read_is_kept_where_the_groups_since_then_change_other_keys() {
        let recent = Recent::default();
        let (ticket, listed) =
            (recent.item("k/a/1", NOW).unwrap_err(), recent.listing("k/a/", 9, NOW).unwrap_err());
        // One that changes nothing in the file, and as many as are known.
        recent.commits(&[]);
        recent.committed(&[], true);
        for number in 0..GROUPS as u64 {
            commit(&recent, &format!("k/b/{number}"), 10 + number);
        }
        keep(&recent, ticket, &item("k/a/1", 1));
        recent.keep_listing(listed, "k/a/", &[item("k/a/1", 1)], NOW);
        assert_eq!(revision(&recent, "k/a/1"), Some(1));
        assert_eq!(recent.listing("k/a/", 9, NOW).unwrap(), [item("k/a/1", 1)]);
        // What is read in the middle of one that changes another key.
        let other = [Change::Put(item("k/b/1", 30))];
        recent.commits(&other);
        let meanwhile = recent.item("k/c/1", NOW).unwrap_err();
        keep(&recent, meanwhile, &item("k/c/1", 2));
        assert_eq!(revision(&recent, "k/c/1"), Some(2));
        recent.committed(&other, true);
        assert_eq!(revision(&recent, "k/c/1"), Some(2));
    }

    #[test]
    fn a_read_is_not_kept_where_a_group_since_then_changes_its_key_or_is_not_known_any_more() {
        let recent = Recent::default();
        let ticket = recent.item("k/a/1", NOW).unwrap_err();
        let listed = recent.listing("k/a/", 9, NOW).unwrap_err();
        // The key's own group, and another one after it; what the first of them left is gone from memory again.
        commit(&recent, "k/a/1", 2);
        commit(&recent, "k/b/1", 3);
        recent.with(|state| state.halves.remove(&Name::Item("k/a/1".to_owned())));
        keep(&recent, ticket, &item("k/a/1", 1));
        recent.keep_listing(listed, "k/a/", &[item("k/a/1", 1)], NOW);
        assert_eq!(revision(&recent, "k/a/1"), None);
        assert!(recent.listing("k/a/", 9, NOW).is_err());
        // More groups than are known.
        let ticket = recent.item("k/c/1", NOW).unwrap_err();
        for number in 0..=GROUPS as u64 {
            commit(&recent, &format!("k/b/{number}"), 10 + number);
        }
        keep(&recent, ticket, &item("k/c/1", 1));
        assert_eq!(revision(&recent, "k/c/1"), None);
        // One group with more names than are kept: known until it is over, and then no more.
        let many: Vec<Change> =
            (0..=NAMES as u64).map(|number| Change::Put(item(&format!("m{number}"), number))).collect();
        let ticket = recent.item("k/c/1", NOW).unwrap_err();
        recent.commits(&many);
        assert!(recent.item("m7", NOW).is_err_and(|Ticket(given)| given.is_none()));
        recent.committed(&many, true);
        keep(&recent, ticket, &item("k/c/1", 1));
        assert_eq!(revision(&recent, "k/c/1"), None);
        assert!(recent.0.lock().groups.names.is_empty());
    }

    #[test]
    fn names_count_also_where_there_is_nothing_under_them() {
        let recent = Recent::default();
        let asked: Vec<String> = (0..60_000).map(|number| format!("k/{number:0>398}")).collect();
        for key in &asked {
            recent.keep(recent.item(key, NOW).unwrap_err(), key, None, NOW);
            let below = format!("{key}/");
            recent.keep_listing(recent.listing(&below, 9, NOW).unwrap_err(), &below, &[], NOW);
        }
        let state = recent.0.lock();
        let names = state.halves.young.keys().chain(state.halves.old.keys());
        let held = names.map(|name| ENTRY_BYTES + name.len()).sum::<usize>();
        assert!(held <= 2 * HALF_BYTES, "{held} bytes");
        let counted = state.halves.young.iter().map(|(name, kept)| kept.bytes(name)).sum::<usize>();
        assert_eq!(state.halves.bytes, counted);
        assert!(state.halves.replaced.is_empty());
    }

    #[test]
    fn a_name_without_end_is_not_kept() {
        let recent = Recent::default();
        let long = format!("k/{}", "a/".repeat(2 << 20));
        recent.keep(recent.item(&long, NOW).unwrap_err(), &long, None, NOW);
        recent.keep_listing(recent.listing(&long, 9, NOW).unwrap_err(), &long, &[], NOW);
        // Nor in a listing, or by its change, which is a change of each listing that it is in.
        let above = recent.listing("k/a/", 9, NOW).unwrap_err();
        recent.keep_listing(above, "k/a/", &[item(&long, 1)], NOW);
        assert_eq!(recent.0.lock().halves.bytes, 0);
        recent.keep_listing(above, "k/a/", &[], NOW);
        assert_eq!(recent.listing("k/a/", 9, NOW).unwrap(), []);
        commit(&recent, &long, 2);
        assert!(recent.listing("k/a/", 9, NOW).is_err());
        let state = recent.0.lock();
        assert_eq!(state.halves.bytes, 0);
        assert!(state.groups.names.iter().flatten().all(|name| name.len() <= LONGEST_NAME));
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
        let kept = state.halves.young.iter().chain(&state.halves.old);
        let kept = kept.map(|(name, kept)| kept.bytes(name)).sum::<usize>();
        assert!(kept <= 2 * HALF_BYTES + 2 * LONGEST, "{kept} bytes");
    }
}
