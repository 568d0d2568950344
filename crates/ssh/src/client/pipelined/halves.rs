//! The two halves of a pipelined session, and what passes between them and the connection's task.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::client::request::Output;
use crate::client::requests::Requests;
use crate::pipelined::Login;
use crate::session::{Gone, Size};

/// How long the goodbye may take to be written.
pub(in crate::client) const GOODBYE: Duration = Duration::from_secs(1);
/// Bytes read from the stream at once.
pub(in crate::client) const BLOCK_BYTES: usize = 64 * 1024;

/// Pieces of standard input that wait for the server.
pub(super) const QUEUED_PIECES: usize = 4;
/// Pieces of output that nothing has taken, before no more is read of the server. The window bounds their bytes, and not that
/// of what holds each of them.
pub(super) const PIECES_AHEAD: usize = 1024;

/// The end of the connection, from this side; answered when it is written. The connection ends as well when all senders of
/// these are gone.
pub(super) type Goodbye = oneshot::Sender<()>;

/// Output that has been taken and not yet been granted anew.
#[derive(Debug, Default)]
pub(super) struct Taken {
    bytes: AtomicUsize,
    news: Notify,
}

impl Taken {
    fn took(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.news.notify_one();
    }

    /// Waits until output was taken, or its reader is gone.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Bytes taken since this was last asked.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::AcqRel)
    }
}

/// Standard input.
pub(in crate::client) enum Typed {
    Data(Bytes),
    Eof,
}

/// The login, as the server is told of it.
pub(in crate::client) struct Proof {
    pub(in crate::client) login: String,
    pub(in crate::client) algorithm: String,
    pub(in crate::client) key: Vec<u8>,
    pub(in crate::client) signature: Vec<u8>,
    /// The certificate's end.
    pub(in crate::client) until: u64,
}

impl Proof {
    pub(in crate::client) fn login(&self) -> Login<'_> {
        Login { name: &self.login, algorithm: &self.algorithm, key: &self.key }
    }
}

/// What there is to say of a refusal that the host does not explain.
pub(in crate::client) fn expired(until: u64) -> Option<String> {
    let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
    (until <= now).then(|| "your certificate has expired".to_owned())
}

/// Both halves of a session.
pub(in crate::client) struct Halves {
    pub(in crate::client) input: Input,
    pub(in crate::client) output: Outgoing,
}

/// What goes into a session.
pub(in crate::client) struct Input {
    pub(super) typed: mpsc::Sender<Typed>,
    pub(super) requests: Arc<Requests>,
    pub(super) _holds: mpsc::Sender<Goodbye>,
}

impl Drop for Outgoing {
    /// The connection looks again whether the output is read. What waited for the reader is granted anew, or the server
    /// would wait for it.
    fn drop(&mut self) {
        self.output.close();
        while let Ok(output) = self.output.try_recv() {
            self.taken.took(length(&output));
        }
        self.taken.took(0);
    }
}

/// What comes out of a session.
pub(in crate::client) struct Outgoing {
    pub(super) output: mpsc::Receiver<Output>,
    pub(super) taken: Arc<Taken>,
    pub(super) _holds: mpsc::Sender<Goodbye>,
}

impl Input {
    pub(in crate::client) async fn data(&self, bytes: Bytes) -> Result<(), Gone> {
        self.typed.send(Typed::Data(bytes)).await.map_err(|_| Gone)
    }

    pub(in crate::client) async fn eof(&self) -> Result<(), Gone> {
        self.typed.send(Typed::Eof).await.map_err(|_| Gone)
    }

    pub(in crate::client) fn resize(&self, size: Size) -> Result<(), Gone> {
        self.requests.resize(size);
        self.stands()
    }

    pub(in crate::client) fn signal(&self, name: &str) -> Result<(), Gone> {
        self.requests.signal(name);
        self.stands()
    }

    pub(in crate::client) fn close(&self) -> Result<(), Gone> {
        self.requests.close();
        self.stands()
    }

    /// Whether the connection's task takes anything yet.
    fn stands(&self) -> Result<(), Gone> {
        if self.typed.is_closed() { Err(Gone) } else { Ok(()) }
    }

    pub(super) fn into_typed(self) -> mpsc::Sender<Typed> {
        self.typed
    }
}

impl Outgoing {
    /// `None` when the connection was lost.
    pub(in crate::client) async fn next(&mut self) -> Option<Output> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let output = ready!(self.output.poll_recv(cx));
        self.taken.took(output.as_ref().map_or(0, length));
        Poll::Ready(output)
    }
}

fn length(output: &Output) -> usize {
    match output {
        Output::Stdout(bytes) | Output::Stderr(bytes) => bytes.len(),
        _ => 0,
    }
}
