//! A tunnel on a connection: two tasks, and handles that are cheap to clone and to drop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::future::poll_fn;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;

use super::TunnelError;
use super::frame::Frame;
use super::state::{Config, Read, Side, State};

/// Bytes that go to the connection in one write.
const BATCH: usize = 64 * 1024;
/// Room that is made for what the connection brings.
const READ: usize = 64 * 1024;
/// With less room left than a record of TLS takes (RFC 8446 §5.1), more is made. Not before: payloads keep the room that
/// they came in, so that more is another piece of memory, into which the beginning of a frame has to be moved.
const LEAST_ROOM: usize = 16 * 1024;
/// What is read of a peer that gets no tunnel.
const UNREAD: u64 = 64 * 1024;
/// A batch of this size is not a person typing: more is on its way.
const BULK: usize = 8 * 1024;

/// Starts a tunnel on a connection.
#[derive(Debug)]
pub struct Tunnel;

impl Tunnel {
    /// The side that dialled.
    pub fn client<T>(io: T, config: Config) -> (Handle, Incoming)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        start(io, Side::Client, config)
    }

    /// The side that was dialled.
    pub fn server<T>(io: T, config: Config) -> (Handle, Incoming)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        start(io, Side::Server, config)
    }

    /// Tells a peer that it gets no tunnel, and why.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn refuse<T>(mut io: T, reason: &str) -> io::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let mut said = BytesMut::new();
        Frame::GoAway(reason.to_owned()).encode(&mut said);
        io.write_all(&said).await?;
        io.shutdown().await?;
        // Closing with unread bytes would reset the connection before the reason arrives.
        let mut rest = io.take(UNREAD);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(|_| ())
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    began: Instant,
    ended: watch::Sender<bool>,
}

impl Shared {
    /// The lock is held for moments only, never across an await.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn end(&self, reason: TunnelError) {
        self.lock().close(reason);
        self.ended.send_replace(true);
    }
}

fn start<T>(io: T, side: Side, config: Config) -> (Handle, Incoming)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (ended, _) = watch::channel(false);
    let shared =
        Arc::new(Shared { state: Mutex::new(State::new(side, config)), began: Instant::now(), ended });
    let (reader, writer) = tokio::io::split(io);
    tokio::spawn(drive_reads(Arc::clone(&shared), reader));
    tokio::spawn(drive_writes(Arc::clone(&shared), writer));
    (Handle { shared: Arc::clone(&shared) }, Incoming { shared })
}

async fn drive_reads<R: AsyncRead + Unpin>(shared: Arc<Shared>, mut reader: R) {
    let mut ended = shared.ended.subscribe();
    let mut buffer = BytesMut::new();
    loop {
        if buffer.capacity() - buffer.len() < LEAST_ROOM {
            buffer.reserve(READ);
        }
        let read = tokio::select! {
            read = reader.read_buf(&mut buffer) => read,
            () = over(&mut ended) => return,
        };
        match read {
            Ok(0) => {
                let why = shared.lock().ended_by_peer();
                return shared.end(why);
            }
            Ok(_) => {}
            Err(error) => return shared.end(TunnelError::Lost(error.to_string())),
        }
        if let Err(error) = take_frames(&shared, &mut buffer) {
            tracing::warn!(%error, "the tunnel is closed");
            return shared.end(error);
        }
    }
}

fn take_frames(shared: &Shared, buffer: &mut BytesMut) -> Result<(), TunnelError> {
    let now = shared.now();
    let mut state = shared.lock();
    while let Some(frame) = Frame::decode(buffer)? {
        state.receive(frame, now)?;
    }
    Ok(())
}

async fn drive_writes<W: AsyncWrite + Unpin>(shared: Arc<Shared>, mut writer: W) {
    let mut ended = shared.ended.subscribe();
    let mut ended_while_writing = shared.ended.subscribe();
    let every = shared.lock().tick_every().max(Duration::from_millis(10));
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut batch = BytesMut::new();
    loop {
        let more = poll_fn(|context| {
            if shared.lock().next_batch(&mut batch, BATCH, context.waker()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        tokio::select! {
            biased;
            () = over(&mut ended) => {
                // The peer shall see the end at once, whatever is still buffered in between.
                let _ = tokio::time::timeout(Duration::from_secs(1), writer.shutdown()).await;
                return;
            }
            () = more => {
                if (BULK..BATCH).contains(&batch.len()) {
                    // The task that made this would make more, given a moment: one write for all of it.
                    tokio::task::yield_now().await;
                    shared.lock().add_to_batch(&mut batch, BATCH);
                }
                // A peer that takes nothing for as long as a dead one would be silent is one.
                let written = async {
                    writer.write_all(&batch).await?;
                    writer.flush().await
                };
                tokio::select! {
                    written = written => if let Err(error) = written {
                        return shared.end(TunnelError::Lost(error.to_string()));
                    },
                    () = stalled(&shared, every) => {}
                    () = over(&mut ended_while_writing) => return,
                }
                batch.clear();
            }
            _ = ticks.tick() => {
                let outcome = shared.lock().tick(shared.now());
                if let Err(error) = outcome {
                    return shared.end(error);
                }
            }
        }
    }
}

/// Waits for the end of the tunnel.
async fn over(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Ends the tunnel when nothing is heard while a write stands still. Never returns before that.
async fn stalled(shared: &Shared, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let outcome = shared.lock().tick(shared.now());
        if let Err(error) = outcome {
            shared.end(error);
            return;
        }
    }
}

/// Opens streams. Clones share one tunnel.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Opens a stream. `header`, at most 4 KiB, reaches the task that takes it on the other side. Nothing is waited for.
    ///
    /// # Errors
    /// When the tunnel is closed or drains, or has too many streams.
    pub fn open(&self, header: Bytes) -> Result<Stream, TunnelError> {
        let id = self.shared.lock().open(header, self.shared.now())?;
        Ok(Stream { shared: Arc::clone(&self.shared), id })
    }

    /// Takes and opens no new streams; those that are open go on.
    pub fn drain(&self, reason: &str) {
        self.shared.lock().drain(reason);
    }

    /// Whether new streams can be opened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let state = self.shared.lock();
        state.closed().is_none() && !state.is_draining()
    }

    /// Streams open now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.shared.lock().streams()
    }

    /// The delay of the link, there and back, as last measured.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.shared.lock().round_trip()
    }

    /// What the bytes of all streams cost in memory, in both directions.
    #[must_use]
    pub fn charged(&self) -> usize {
        self.shared.lock().charged()
    }

    /// Bytes held for all streams, in both directions.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.shared.lock().buffered()
    }

    /// Ends the tunnel and every stream on it.
    pub fn close(&self) {
        self.shared.end(TunnelError::Closed);
    }

    /// Waits until the tunnel has ended, and says why.
    pub async fn closed(&self) -> TunnelError {
        let mut ended = self.shared.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
        self.shared.lock().closed().cloned().unwrap_or(TunnelError::Closed)
    }
}

/// Streams that the other side opens. When it is dropped, the tunnel takes no more of them.
#[derive(Debug)]
pub struct Incoming {
    shared: Arc<Shared>,
}

impl Incoming {
    /// The next stream and its header; `None` when the tunnel has ended.
    pub async fn next(&mut self) -> Option<(Bytes, Stream)> {
        let (id, header) = poll_fn(|context| match self.shared.lock().accept(context.waker()) {
            Ok(Some(opened)) => Poll::Ready(Some(opened)),
            Ok(None) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        })
        .await?;
        Some((header, Stream { shared: Arc::clone(&self.shared), id }))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.shared.lock().drain("no streams are taken here");
    }
}

/// One stream. Dropping it without [`AsyncWriteExt::shutdown`] resets it.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    id: u32,
}

impl Stream {
    /// The next bytes, without a copy; `None` when the peer has sent everything.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended before its time.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, TunnelError> {
        poll_fn(|context| self.poll_receive(usize::MAX, context)).await
    }

    /// As [`Stream::receive`], at most `most` bytes; for use inside other polled things. Reading and writing may go on
    /// in different tasks that share the stream.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended before its time.
    pub fn poll_receive(
        &self,
        most: usize,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Bytes>, TunnelError>> {
        match self.shared.lock().read(self.id, most, context.waker(), self.shared.now()) {
            Ok(Read::Data(bytes)) => Poll::Ready(Ok(Some(bytes))),
            Ok(Read::End) => Poll::Ready(Ok(None)),
            Ok(Read::Pending) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Sends bytes without a copy, waiting while the stream has no room.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended.
    pub async fn send(&mut self, mut bytes: Bytes) -> Result<(), TunnelError> {
        while !bytes.is_empty() {
            poll_fn(|context| self.poll_send(&mut bytes, context)).await?;
        }
        Ok(())
    }

    /// Takes what there is room for off `bytes`; for use inside other polled things.
    ///
    /// # Errors
    /// Why the stream or the tunnel ended.
    pub fn poll_send(
        &self,
        bytes: &mut impl bytes::Buf,
        context: &Context<'_>,
    ) -> Poll<Result<usize, TunnelError>> {
        match self.shared.lock().write(self.id, bytes, context.waker()) {
            Ok(Some(written)) => Poll::Ready(Ok(written)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Says that nothing more will be sent. The other direction goes on.
    pub fn finish(&self) {
        self.shared.lock().finish(self.id);
    }

    /// Ends the stream both ways, for every reader and writer here; the peer reads the reason as its error.
    pub fn reset(&self, reason: &str) {
        self.shared.lock().reset(self.id, reason);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().release(self.id);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = buffer.remaining();
        if most == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.poll_receive(most, context) {
            Poll::Ready(Ok(Some(bytes))) => {
                buffer.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(None)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_send(&mut bytes, context).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whatever is written goes out as soon as the connection takes it.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id);
        Poll::Ready(Ok(()))
    }
}
