//! The file: made, opened, checked, locked, and what its errors mean.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;
use crate::reserve;

/// Marks the file as ours ("SLYP"); another program's database is refused.
const APPLICATION_ID: i32 = 0x534c_5950;
/// The version of the tables.
const SCHEMA_VERSION: i32 = 1;
/// Readers wait for a checkpoint at most.
const BUSY: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
    CREATE TABLE items (
        key TEXT PRIMARY KEY NOT NULL,
        value BLOB NOT NULL,
        revision INTEGER NOT NULL,
        expires INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX items_expires ON items (expires) WHERE expires IS NOT NULL;
    CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL);
    INSERT INTO counter (id, revision) VALUES (1, 0);
";

pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| file(path, &error))?;
    connection.busy_timeout(BUSY).map_err(|error| file(path, &error))?;
    Ok(connection)
}

pub(super) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// Whether the whole file is sound and ours.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let corrupt = |detail: String| StoreError::Corrupt { path: path.to_owned(), detail };
    let pragma = |name: &str| -> Result<i32, StoreError> {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map_err(|error| damaged(path, &error))
    };
    if pragma("application_id")? != APPLICATION_ID {
        return Err(corrupt("it is not a Sallyport state file, or its beginning is lost".to_owned()));
    }
    let version = pragma("user_version")?;
    if version != SCHEMA_VERSION {
        return Err(StoreError::File {
            path: path.to_owned(),
            detail: format!("it has version {version} of the tables, this release knows {SCHEMA_VERSION}"),
        });
    }
    let verdict: String = connection
        .pragma_query_value(None, "integrity_check", |row| row.get(0))
        .map_err(|error| damaged(path, &error))?;
    if verdict == "ok" { Ok(()) } else { Err(corrupt(verdict.lines().next().unwrap_or_default().to_owned())) }
}

/// Makes sure that the file is there and private; says whether it is new.
pub(super) fn prepare_file(path: &Path) -> Result<bool, StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(path, &error)),
    }
    let metadata = std::fs::metadata(path).map_err(|error| unusable(path, error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StoreError::Mode { path: path.to_owned(), mode });
    }
    if metadata.len() == 0 {
        // SQLite would take it for a new database, and the cluster would be born again without its users.
        return Err(StoreError::Corrupt { path: path.to_owned(), detail: "it is empty".to_owned() });
    }
    Ok(false)
}

/// Two writers with caches of their own would contradict each other.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let beside = path.with_file_name(name);
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&beside)
        .map_err(|error| refused(&beside, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unusable(&beside, error)),
    }
}

/// What goes wrong with the file; a full disk is named as such.
pub(super) fn file(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { path: path.to_owned() },
        // A log or its index (`-shm`) that cannot be made says no more than that.
        Some(rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen) => {
            without_room(path).unwrap_or_else(|| unusable(path, error))
        }
        _ => unusable(path, error),
    }
}

/// What the disk lacks, if it lacks something.
pub(super) fn without_room(path: &Path) -> Option<StoreError> {
    let directory = path.parent()?;
    if reserve::is_out_of_inodes(directory) {
        Some(StoreError::NoInode { path: path.to_owned() })
    } else if reserve::is_full(directory) {
        Some(StoreError::Full { path: path.to_owned() })
    } else {
        None
    }
}

/// What the system says of a file that cannot be made or changed.
pub(super) fn refused(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            without_room(path).unwrap_or_else(|| StoreError::Full { path: path.to_owned() })
        }
        _ => unusable(path, error),
    }
}

pub(super) fn unusable(path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::File { path: path.to_owned(), detail: error.to_string() }
}

/// A damaged file is named as such; anything else is trouble with the file.
pub(super) fn damaged(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => {
            StoreError::Corrupt { path: path.to_owned(), detail: error.to_string() }
        }
        _ => file(path, error),
    }
}
