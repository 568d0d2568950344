//! The file: made, opened, checked, locked, and what its errors mean.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use rustix::fs::{NFS_SUPER_MAGIC, fstatfs};

use super::listing::end_of;
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
    // Without it SQLite plans a statement anew whenever other values are bound to it, since they might have a better plan.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| file(path, &error))?;
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

/// Takes kinds out of the file that are kept in memory alone now, and that an older release has written there: of these the file is not
/// asked for an item, but a listing and a watcher would find them. Their bytes are overwritten; gives how many there were.
pub(super) fn take_out(connection: &mut Connection, prefixes: &[&str]) -> rusqlite::Result<usize> {
    connection.pragma_update(None, "secure_delete", true)?;
    let transaction = connection.transaction()?;
    let mut count = 0;
    for prefix in prefixes {
        let length = i64::try_from(prefix.chars().count()).unwrap_or(i64::MAX);
        count += match end_of(prefix) {
            Some(end) => transaction.execute(
                "DELETE FROM items WHERE key >= ?1 AND key < ?2 AND substr(key, 1, ?3) = ?1",
                params![prefix, end, length],
            )?,
            None => transaction.execute(
                "DELETE FROM items WHERE key >= ?1 AND substr(key, 1, ?2) = ?1",
                params![prefix, length],
            )?,
        };
    }
    transaction.commit()?;
    connection.pragma_update(None, "secure_delete", false)?;
    Ok(count)
}

/// What keeps a second process from the file: two writers with caches of their own would contradict each other, and the one would let in
/// whom the other has locked.
#[derive(Debug)]
pub(super) struct Lock {
    /// The file itself, by whatever name the other opens it.
    file: File,
    /// The file of the same name beside it, which other programs look at.
    _beside: File,
}

/// Device and inode of each file that is locked in this process. A process loses the locks that SQLite has on a file with the first of its
/// descriptors of that file that is closed (fcntl(2)); so such a file is not opened in order to be refused then.
static LOCKED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

impl Lock {
    /// Locks the file, which must exist, and of which no connection may be open yet: see [`LOCKED`]. For the same reason all of them
    /// must be closed before this is dropped.
    pub(super) fn of(path: &Path, beside: File) -> Result<Self, StoreError> {
        let in_use = || StoreError::InUse { path: path.to_owned() };
        let mut locked = LOCKED.lock();
        let metadata = std::fs::metadata(path).map_err(|error| unusable(path, error))?;
        if locked.contains(&(metadata.dev(), metadata.ino())) {
            return Err(in_use());
        }
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| refused(path, &error))?;
        if !is_remote(&file) {
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => in_use(),
                TryLockError::Error(error) => unusable(path, error),
            })?;
        }
        let inode = inode(&file).map_err(|error| unusable(path, error))?;
        locked.push(inode);
        Ok(Self { file, _beside: beside })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Ok(inode) = inode(&self.file) {
            LOCKED.lock().retain(|locked| *locked != inode);
        }
    }
}

/// Whether the kernel makes of a lock of flock(2) one of fcntl(2) on the whole file, as it does for NFS, SMB and 9P: there it would
/// keep SQLite out, and the lock beside must do.
fn is_remote(file: &File) -> bool {
    const CIFS: u32 = 0xff53_4d42;
    const SMB: u32 = 0x517b;
    const SMB2: u32 = 0xfe53_4d42;
    const V9FS: u32 = 0x0102_1997;
    fstatfs(file).is_ok_and(|seen| {
        let others = [CIFS, SMB, SMB2, V9FS];
        seen.f_type == NFS_SUPER_MAGIC || u32::try_from(seen.f_type).is_ok_and(|kind| others.contains(&kind))
    })
}

fn inode(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Locks the file of the same name beside it, before the file itself is made or looked at.
pub(super) fn lock_beside(path: &Path) -> Result<File, StoreError> {
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
