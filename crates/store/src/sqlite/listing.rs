//! Reading: an item by its key, and those whose keys begin alike, page by page.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use time::OffsetDateTime;

use crate::Item;
use crate::backend::{from_milliseconds, milliseconds};

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    Ok(Item {
        key: row.get(0)?,
        value: Bytes::from(row.get::<_, Vec<u8>>(1)?),
        revision: row.get::<_, i64>(2)?.cast_unsigned(),
        expires: row.get::<_, Option<i64>>(3)?.and_then(from_milliseconds),
    })
}

/// The item under a key, unless it has expired.
pub(super) fn live(
    connection: &Connection,
    key: &str,
    now: OffsetDateTime,
) -> rusqlite::Result<Option<Item>> {
    connection
        .prepare_cached(
            "SELECT key, value, revision, expires FROM items WHERE key = ?1 AND (expires IS NULL OR expires > ?2)",
        )?
        .query_row(params![key, milliseconds(now)], item)
        .optional()
}

pub(super) fn select(
    connection: &Connection,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
    now: OffsetDateTime,
) -> rusqlite::Result<Vec<Item>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (from, end) = range(prefix, after);
    let length = i64::try_from(prefix.chars().count()).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(listing(&from, end.is_some()))?;
    let (Bound::Included(start) | Bound::Excluded(start)) = &from;
    let rows = statement.query_map(params![start, end, prefix, length, milliseconds(now), limit], item)?;
    rows.collect()
}

/// The first key of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound<'k> {
    Included(&'k str),
    Excluded(&'k str),
}

/// Where a listing begins, and the first key beyond it. Keys compare as bytes, so a prefix is a range: it ends where the last
/// character is one higher.
pub(super) fn range<'k>(prefix: &'k str, after: Option<&'k str>) -> (Bound<'k>, Option<String>) {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    (from, end_of(prefix))
}

/// The statement for a listing. SQLite searches its index by a bound that stands by itself; of a bound in an expression it knows nothing,
/// and reads all keys up to the last.
pub(super) fn listing(from: &Bound<'_>, has_end: bool) -> &'static str {
    macro_rules! listing {
        ($bounds:literal) => {
            concat!(
                "SELECT key, value, revision, expires FROM items WHERE ",
                $bounds,
                " AND substr(key, 1, ?4) = ?3 AND (expires IS NULL OR expires > ?5) ORDER BY key LIMIT ?6"
            )
        };
    }
    match (from, has_end) {
        (Bound::Included(_), true) => listing!("key >= ?1 AND key < ?2"),
        (Bound::Excluded(_), true) => listing!("key > ?1 AND key < ?2"),
        (Bound::Included(_), false) => listing!("key >= ?1 AND ?2 IS NULL"),
        (Bound::Excluded(_), false) => listing!("key > ?1 AND ?2 IS NULL"),
    }
}

/// The first key after all keys with this prefix, if there is one.
pub(super) fn end_of(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}
