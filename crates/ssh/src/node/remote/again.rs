//! Looking at a file of the server once more when it is closed: how long it is, and, where its content did not pass whole
//! and in order, what is in it. By its name, since the server's handle is the client's own.

use std::time::Duration;

use sallyport_sal::hash::Sha256;
use tokio::time::timeout;

use crate::client::Connection;
use crate::copy::Remote;
use crate::sftp::digest::{MAX_REREAD_BYTES, hexadecimal};

/// Longest time that a client waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
    /// Why there is no hash.
    pub(super) unhashed: Option<&'static str>,
}

/// Looks. `beginning` is the hash of what has passed from the file's beginning, and how much that was; `moved` are all bytes
/// that were read and written.
pub(super) async fn again(
    connection: &Connection,
    path: &[u8],
    beginning: Option<(String, u64)>,
    moved: (u64, u64),
) -> Found {
    let failed = Found { unhashed: Some("it cannot be read once more"), ..Found::default() };
    let Ok(path) = std::str::from_utf8(path) else { return failed };
    let look = look(connection, path, beginning, moved);
    timeout(PATIENCE, look).await.ok().flatten().unwrap_or(failed)
}

async fn look(
    connection: &Connection,
    path: &str,
    beginning: Option<(String, u64)>,
    (read, written): (u64, u64),
) -> Option<Found> {
    let files = Remote::open(connection.sftp().await.ok()?).await.ok()?;
    let size = match files.size(path).await.ok()? {
        Some(size) => size,
        // A device or a pipe has no content that could be told by a hash.
        None => return Some(Found::default()),
    };
    let unhashed = |why| Found { size: Some(size), unhashed: Some(why), ..Found::default() };
    if let Some((sha256, _)) = beginning.filter(|(_, length)| *length == size) {
        return Some(Found { size: Some(size), sha256: Some(sha256), unhashed: None });
    }
    if written == 0 && read < size {
        return Some(unhashed("only a part was read"));
    }
    if size > MAX_REREAD_BYTES {
        return Some(unhashed("too large to be read once more"));
    }
    let mut hash = Sha256::new();
    files.read_whole(path, MAX_REREAD_BYTES, |bytes| hash.update(bytes)).await.ok()?;
    Some(Found { size: Some(size), sha256: Some(hexadecimal(&hash.finish())), unhashed: None })
}
