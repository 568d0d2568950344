//! What a group of transactions does, to the file and to the kinds that are in memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OptionalExtension, Savepoint, params};
use time::OffsetDateTime;

use super::file::file;
use super::passing::{Held, Passing, key_of};
use crate::backend::{milliseconds, rounded};
use crate::{Change, Item, Op, StoreError};

/// A group that is being committed.
pub(super) struct Group<'s> {
    passing: &'s Passing,
    last: &'s AtomicU64,
    path: &'s Path,
    pub(super) held: Held,
    pub(super) in_file: Vec<Change>,
    pub(super) in_memory: Vec<Change>,
}

impl<'s> Group<'s> {
    /// `last` is the number of the last change.
    pub(super) fn new(passing: &'s Passing, last: &'s AtomicU64, path: &'s Path) -> Self {
        Self { passing, last, path, held: Held::default(), in_file: Vec::new(), in_memory: Vec::new() }
    }

    fn next_revision(&self) -> u64 {
        self.last.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Takes all steps of a transaction. Where one fails, the caller undoes those to the file. Items in memory are held before a change of
    /// them has its number: a watcher who begins meanwhile counts on it.
    pub(super) fn transact(
        &mut self,
        savepoint: &Savepoint<'_>,
        ops: Vec<Op>,
        now: OffsetDateTime,
    ) -> Result<Vec<u64>, StoreError> {
        self.passing.hold(&ops, &mut self.held, self.last);
        let (mut in_file, mut in_memory, mut before) = (Vec::new(), Vec::new(), Vec::new());
        let mut revisions = Vec::with_capacity(ops.len());
        for op in ops {
            let taken = if self.passing.has(key_of(&op)) {
                let last = self.last;
                let mut next = || last.fetch_add(1, Ordering::AcqRel) + 1;
                self.held.items.apply(op, now, &mut next, &mut in_memory, &mut before)
            } else {
                self.apply(savepoint, op, now, &mut in_file)
            };
            match taken {
                Ok(revision) => revisions.push(revision),
                Err(error) => {
                    self.held.items.undo(before);
                    return Err(error);
                }
            }
        }
        self.in_file.extend(in_file);
        self.in_memory.extend(in_memory);
        Ok(revisions)
    }

    fn apply(
        &self,
        connection: &Connection,
        op: Op,
        now: OffsetDateTime,
        changes: &mut Vec<Change>,
    ) -> Result<u64, StoreError> {
        let failed = |error: rusqlite::Error| file(self.path, &error);
        let found = |key: &str| -> Result<u64, StoreError> {
            Ok(live_revision(connection, key, now).map_err(failed)?.map_or(0, i64::cast_unsigned))
        };
        let (key, value, expires) = match op {
            Op::Create { key, value, expires } => {
                if found(&key)? != 0 {
                    return Err(StoreError::Exists { key });
                }
                (key, value, expires)
            }
            Op::Put { key, value, expires } => (key, value, expires),
            Op::CompareAndSwap { key, revision, value, expires } => {
                let found = found(&key)?;
                if found != revision || revision == 0 {
                    return Err(StoreError::Conflict { key, expected: revision, found });
                }
                (key, value, expires)
            }
            Op::Check { key, revision } => {
                let found = found(&key)?;
                if found != revision {
                    return Err(StoreError::Conflict { key, expected: revision, found });
                }
                return Ok(0);
            }
            Op::Delete { key, revision } => {
                let found = found(&key)?;
                if found == 0 {
                    return Err(StoreError::NotFound { key });
                }
                if let Some(expected) = revision
                    && expected != found
                {
                    return Err(StoreError::Conflict { key, expected, found });
                }
                let revision = self.next_revision();
                let mut delete =
                    connection.prepare_cached("DELETE FROM items WHERE key = ?1").map_err(failed)?;
                delete.execute([&key]).map_err(failed)?;
                changes.push(Change::Delete { key, revision });
                return Ok(revision);
            }
        };
        let revision = self.next_revision();
        let expires = rounded(expires);
        let mut put = connection
            .prepare_cached(
                "INSERT OR REPLACE INTO items (key, value, revision, expires) VALUES (?1, ?2, ?3, ?4)",
            )
            .map_err(failed)?;
        put.execute(params![key, value.as_ref(), revision.cast_signed(), expires.map(milliseconds)])
            .map_err(failed)?;
        changes.push(Change::Put(Item { key, value, revision, expires }));
        Ok(revision)
    }

    /// Removes what has expired from the file; gives how many that were.
    pub(super) fn sweep(&mut self, connection: &Connection, now: OffsetDateTime) -> rusqlite::Result<usize> {
        let mut select =
            connection.prepare_cached("SELECT key FROM items WHERE expires IS NOT NULL AND expires <= ?1")?;
        let keys: Vec<String> =
            select.query_map([milliseconds(now)], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let count = keys.len();
        for key in keys {
            connection.prepare_cached("DELETE FROM items WHERE key = ?1")?.execute([&key])?;
            self.in_file.push(Change::Delete { key, revision: self.next_revision() });
        }
        Ok(count)
    }

    /// Writes down how far the numbers of changes have come: once for all of them.
    pub(super) fn write_counter(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.in_file.is_empty() {
            return Ok(());
        }
        let last = self.last.load(Ordering::Acquire).cast_signed();
        let mut write = connection.prepare_cached("UPDATE counter SET revision = ?1 WHERE id = 1")?;
        write.execute([last]).map(drop)
    }

    /// Takes out all that it changed, in its order.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.in_file);
        changes.append(&mut self.in_memory);
        changes.sort_by_key(Change::revision);
        changes
    }
}

fn live_revision(connection: &Connection, key: &str, now: OffsetDateTime) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT revision FROM items WHERE key = ?1 AND (expires IS NULL OR expires > ?2)")?
        .query_row(params![key, milliseconds(now)], |row| row.get(0))
        .optional()
}

/// The number of the last change that the file has.
pub(super) fn revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT revision FROM counter WHERE id = 1")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}
