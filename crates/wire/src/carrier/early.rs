//! What a client says before the server has answered, and says again to one that has not read it.
//!
//! A server that does not know the ticket reads nothing of what came with it (RFC 9001 §4.6.2), so that saying it again is
//! saying it once.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use parking_lot::Mutex;
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt, ZeroRttAccepted};
use tokio::sync::watch;

/// What may be said early: the beginning of HTTP/2, a question and what follows at once. More than a server takes before it
/// has seen the client's address would only be lost.
const EARLY_BYTES: usize = 32 * 1024;
const NOT_ANSWERED: VarInt = VarInt::from_u32(0);

type Anew = (SendStream, RecvStream);
type Opening = Pin<Box<dyn Future<Output = Result<Anew, io::Error>> + Send + Sync>>;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Reader,
    Writer,
}

/// What was said, until it is known what became of it.
pub(super) struct Early {
    accepted: ZeroRttAccepted,
    said: Vec<u8>,
    /// The other stream, on which it is said again.
    opening: Option<Opening>,
    waiting: Arc<Waiting>,
    tell: watch::Sender<Option<bool>>,
}

impl std::fmt::Debug for Early {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Early").field("said", &self.said.len()).finish_non_exhaustive()
    }
}

impl Early {
    pub(super) fn new(connection: Connection, accepted: ZeroRttAccepted) -> (Self, Answer) {
        let (tell, told) = watch::channel(None);
        let early = Self { accepted, said: Vec::new(), opening: None, waiting: Arc::default(), tell };
        (early, Answer { connection, told })
    }

    /// What may still be said.
    pub(super) fn room(&self) -> usize {
        EARLY_BYTES.saturating_sub(self.said.len())
    }

    pub(super) fn said(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
    }

    /// Waits for the server's answer. Gives the stream that takes the place of one that was not taken, with everything said
    /// again. To be asked no more once it is ready.
    pub(super) fn poll(
        &mut self,
        side: Side,
        connection: &Connection,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Anew>>> {
        self.waiting.add(side, context.waker());
        let waker = Waker::from(Arc::clone(&self.waiting));
        let mut context = Context::from_waker(&waker);
        if self.opening.is_none() {
            let accepted = ready!(Pin::new(&mut self.accepted).poll(&mut context));
            if let Some(error) = connection.close_reason().filter(|_| !accepted) {
                return Poll::Ready(Err(lost(error)));
            }
            self.tell.send_replace(Some(accepted));
            if accepted {
                self.waiting.wake_by_ref_all();
                return Poll::Ready(Ok(None));
            }
            let (connection, said) = (connection.clone(), std::mem::take(&mut self.said));
            self.opening = Some(Box::pin(async move {
                let (mut send, receive) = connection.open_bi().await.map_err(lost)?;
                send.write_all(&said).await?;
                Ok((send, receive))
            }));
        }
        let Some(opening) = &mut self.opening else { return Poll::Pending };
        let opened = ready!(opening.as_mut().poll(&mut context));
        self.waiting.wake_by_ref_all();
        Poll::Ready(opened.map(Some))
    }
}

fn lost(error: ConnectionError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// Both who may wait for the same.
#[derive(Debug, Default)]
struct Waiting(Mutex<[Option<Waker>; 2]>);

impl Waiting {
    fn add(&self, side: Side, waker: &Waker) {
        let mut waiting = self.0.lock();
        let [reader, writer] = &mut *waiting;
        let slot = if side == Side::Reader { reader } else { writer };
        *slot = Some(waker.clone());
    }

    fn wake_by_ref_all(&self) {
        let waiting = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref_all();
    }
}

/// Whether the server has answered a connection that began early.
#[derive(Debug, Clone)]
pub struct Answer {
    connection: Connection,
    told: watch::Receiver<Option<bool>>,
}

impl Answer {
    /// The answer of a server that was quicker than its client.
    pub(super) fn known(connection: Connection, accepted: bool) -> Self {
        Self { connection, told: watch::channel(Some(accepted)).1 }
    }

    /// Waits for the answer: whether what was said early was taken. `None`: there is no connection any more.
    pub async fn wait(&mut self) -> Option<bool> {
        self.told.wait_for(Option::is_some).await.ok().and_then(|told| *told)
    }

    /// Whether the connection has ended, and not because this side wanted it to.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.connection.close_reason().is_some_and(|reason| reason != ConnectionError::LocallyClosed)
    }

    /// Gives the connection up, for a caller that has waited long enough. The server may have read what was sent early.
    pub fn give_up(&self) {
        self.connection.close(NOT_ANSWERED, b"");
    }
}
