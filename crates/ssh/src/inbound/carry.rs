//! Carrying a connection through a channel of the client's.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Inbox;
use crate::BoxedStream;
use crate::session::{Gone, Incoming};

/// Bytes carried to the client at once.
const BLOCK_BYTES: usize = 32 * 1024;
/// What waits for the first bytes after a pause: many connections are idle most of the time.
const IDLE_BLOCK_BYTES: usize = 1024;

/// The client's side of a channel that carries a connection.
pub(crate) trait ToClient: Sync {
    /// What comes from it.
    fn inbox(&self) -> &Inbox;
    /// Sends, when the client has room.
    ///
    /// # Errors
    /// When it takes no more.
    fn send(&self, bytes: Bytes) -> impl Future<Output = Result<(), Gone>> + Send;
    /// Says that no more comes.
    ///
    /// # Errors
    /// When the client has gone.
    fn eof(&self) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// Bytes carried so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) from_client: AtomicU64,
    pub(crate) to_client: AtomicU64,
}

/// Carries bytes both ways until both are done, or the client or the other side is gone.
pub(crate) async fn carry(client: &impl ToClient, stream: BoxedStream, counts: &Counts) {
    let inbox = client.inbox();
    let (mut read, mut write) = tokio::io::split(stream);
    // Whether the other side has ended its output properly, or the client takes no more of it: then what the client
    // has sent before still goes out.
    let outward = async {
        let mut size = IDLE_BLOCK_BYTES;
        loop {
            let mut block = Vec::with_capacity(size);
            match read.read_buf(&mut block).await {
                Ok(0) => {
                    let _ = client.eof().await;
                    return true;
                }
                Ok(read) => {
                    size = if read < IDLE_BLOCK_BYTES { IDLE_BLOCK_BYTES } else { BLOCK_BYTES };
                    if client.send(Bytes::from(block)).await.is_err() {
                        return true;
                    }
                    counts.to_client.fetch_add(read as u64, Ordering::Relaxed);
                }
                Err(_) => return false,
            }
        }
    };
    // True when the client has ended its input properly.
    let inward = async {
        loop {
            match inbox.next().await {
                Some(Incoming::Data(bytes)) => {
                    if write.write_all(&bytes).await.is_err() {
                        return false;
                    }
                    counts.from_client.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    inbox.consumed(bytes.len());
                    if inbox.is_empty() && write.flush().await.is_err() {
                        return false;
                    }
                }
                Some(Incoming::Eof) => return write.shutdown().await.is_ok(),
                Some(Incoming::Cut(_)) | None => return false,
                Some(Incoming::Resize(_) | Incoming::Signal(_)) => {}
            }
        }
    };
    let abandoned = inbox.abandoned();
    tokio::pin!(outward, inward, abandoned);
    let (mut outward_open, mut inward_open) = (true, true);
    while outward_open || inward_open {
        tokio::select! {
            proper = &mut outward, if outward_open => {
                outward_open = false;
                if !proper {
                    return;
                }
            }
            proper = &mut inward, if inward_open => {
                inward_open = false;
                if !proper {
                    return;
                }
            }
            // After its own end the client can still go.
            () = closed(inbox), if !inward_open => return,
            // A far end that reads nothing does not keep what the client has left behind.
            () = &mut abandoned => return,
        }
    }
}

/// Waits until the client has closed its channel, after it has ended its input.
async fn closed(inbox: &Inbox) {
    loop {
        match inbox.next().await {
            None | Some(Incoming::Cut(_)) => return,
            Some(_) => {}
        }
    }
}
