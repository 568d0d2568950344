//! A TLS connection as a byte stream, on either side, early data included.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::{ClientConnection, Connection};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::records::Records;
use super::{EndpointError, reason};

/// A TLS connection over another stream. On a client, what is written before the handshake is over goes as early data,
/// where the node allows it, and is said again where the node has not taken it.
#[derive(Debug)]
pub struct EndpointStream<IO> {
    io: IO,
    tls: Connection,
    /// Nothing was heard yet.
    unheard: bool,
    /// Ours was ended.
    closed: bool,
    /// A server reads no early data before the handshake is over.
    hold: bool,
    /// What a client has said early and may have to say again,
    early: Vec<u8>,
    /// and what it may still say.
    early_room: usize,
    /// Where a server's client is in what it says, until the handshake is over.
    records: Records,
    /// Whether the carrier has sent the early bytes twice.
    repeated: Arc<AtomicBool>,
    /// Whether early bytes went out of which the node has not proven whether it took them,
    unanswered: Arc<AtomicBool>,
    /// and when the first of them did.
    early_since: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl<IO> EndpointStream<IO> {
    pub(super) fn new(io: IO, tls: Connection) -> Self {
        Self {
            io,
            tls,
            unheard: true,
            closed: false,
            hold: false,
            early: Vec::new(),
            early_room: EARLY_BYTES,
            records: Records::default(),
            repeated: Arc::default(),
            unanswered: Arc::default(),
            early_since: None,
            reader: None,
            writer: None,
        }
    }

    /// Connects to a node over a stream. Nothing is sent before something is written, flushed or waited for.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn connect(io: IO, client: &NodeClient, now: OffsetDateTime) -> io::Result<Self> {
        let tls =
            ClientConnection::new(client.config(now), client.server_name()).map_err(io::Error::other)?;
        Ok(Self::new(io, Connection::Client(tls)))
    }

    /// For a carrier that sends the same first flight again when its way was lost before anything came back: it sets
    /// this first. A node takes the ticket of the flight once; when it does not take it, it may have done so before, and
    /// what was said early is not said again but is an error ([`EndpointError::Unknown`]). The same where a node that knows
    /// nothing of the ticket answers late.
    #[must_use]
    pub fn repeated(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.repeated)
    }

    /// Set while something that a client has said early is neither taken nor refused by the proven node: whatever ends the
    /// connection then, and whatever says why, what was asked may have been done.
    #[must_use]
    pub fn unanswered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unanswered)
    }

    /// Whether a client can write at once, because the node has given it a ticket earlier.
    pub fn is_early(&mut self) -> bool {
        match &mut self.tls {
            Connection::Client(client) => client.early_data().is_some(),
            Connection::Server(_) => false,
        }
    }

    /// Whether nothing at all has come from the other end.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// Whether a client's early data was taken. Known when the handshake is over.
    #[must_use]
    pub fn was_early(&self) -> bool {
        matches!(&self.tls, Connection::Client(client) if client.is_early_data_accepted())
    }

    /// The certificates that the other end has shown, the leaf first. Known when the handshake is over.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.peer_certificates().unwrap_or_default()
    }

    /// The stream below.
    #[must_use]
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    pub(super) fn tls(&self) -> &Connection {
        &self.tls
    }

    pub(super) fn hold(&mut self, hold: bool) {
        self.hold = hold;
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> EndpointStream<IO> {
    /// Waits for the end of the handshake.
    ///
    /// # Errors
    /// The stream's; of kind `InvalidData` when one end refuses the other, with [`EndpointError::NotSpoken`] inside when the
    /// far end does not speak TLS.
    pub async fn handshake(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            std::future::poll_fn(|context| self.poll_handshake(context)).await?;
        }
        std::future::poll_fn(|context| self.poll_send(context)).await
    }

    /// One step of the handshake: says what there is to say, and hears what comes.
    pub(super) fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        match ready!(self.poll_hear(context))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Gives to the stream below what TLS wants to say.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Outgoing { io: &mut self.io, context }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(self.known(error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// An error that says that it is not known whether something was done, where that is so. What is known of the far end
    /// besides stays the reason.
    fn known(&self, error: io::Error) -> io::Error {
        let open = self.unanswered.load(Ordering::Acquire);
        if open && reason(&error).is_none() && refusal(&error).is_none() {
            return EndpointError::Unknown.into();
        }
        error
    }

    /// Takes what has come from below; zero at its end.
    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match ready!(self.poll_heard(context)) {
            Ok(0) if self.unanswered.load(Ordering::Acquire) => {
                Poll::Ready(Err(EndpointError::Unknown.into()))
            }
            heard => Poll::Ready(heard.map_err(|error| self.known(error))),
        }
    }

    fn poll_heard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let shakes_as_server = matches!(&self.tls, Connection::Server(tls) if tls.is_handshaking());
        let records = shakes_as_server.then_some(&mut self.records);
        let mut incoming = Incoming { io: &mut self.io, context, first: None, records };
        let read = self.tls.read_tls(&mut incoming);
        let first = incoming.first;
        let count = match read {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Some(first) = first
            && std::mem::take(&mut self.unheard)
            && !is_tls(first)
        {
            return Poll::Ready(Err(EndpointError::NotSpoken.into()));
        }
        if shakes_as_server && !self.records.is_whole() {
            return Poll::Ready(Ok(count));
        }
        let was_handshaking = self.tls.is_handshaking();
        if let Err(error) = self.tls.process_new_packets() {
            // The other end is told why, if it still listens.
            let _ = self.poll_send(context);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        if was_handshaking && !self.tls.is_handshaking() {
            self.say_again()?;
        }
        Poll::Ready(Ok(count))
    }

    /// Takes the handshake on for a writer. Only one of two tasks that wait for the stream below is woken by it; it wakes
    /// the other.
    fn poll_beside_reader(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer = Some(context.waker().clone());
        let heard = ready!(self.poll_hear(context));
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        match heard? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// A client whose handshake is over knows now whether what it said early was heard.
    fn say_again(&mut self) -> io::Result<()> {
        let early = std::mem::take(&mut self.early);
        let in_time = self.early_since.is_none_or(|since| since.elapsed() < AGAIN_WITHIN);
        if !early.is_empty() && !self.was_early() && (self.repeated.load(Ordering::Acquire) || !in_time) {
            return Err(EndpointError::Unknown.into());
        }
        self.unanswered.store(false, Ordering::Release);
        if early.is_empty() || self.was_early() {
            return Ok(());
        }
        // It was bounded when it was said first.
        self.tls.set_buffer_limit(None);
        let said = self.tls.writer().write_all(&early);
        self.tls.set_buffer_limit(Some(SENDING_BYTES));
        said
    }

    /// Gives bytes to TLS, as many as it takes now.
    fn take(&mut self, data: &[u8]) -> io::Result<usize> {
        if let Connection::Client(client) = &mut self.tls
            && client.is_handshaking()
        {
            if let Some(mut early) = client.early_data() {
                let most = data.len().min(self.early_room);
                let count = early.write(data.get(..most).unwrap_or_default())?;
                self.early.extend_from_slice(data.get(..count).unwrap_or_default());
                if count > 0 {
                    self.early_since.get_or_insert_with(Instant::now);
                    self.unanswered.store(true, Ordering::Release);
                }
                self.early_room = self.early_room.saturating_sub(count.max(EARLY_PIECE_BYTES));
                return Ok(count);
            }
            if !self.early.is_empty() {
                // Not taken early, and first to be said when the handshake is over.
                return Ok(0);
            }
        }
        self.tls.writer().write(data)
    }

    /// Gives out what TLS has for the reader. `None`: nothing now.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<Option<()>> {
        if let Connection::Server(server) = &mut self.tls
            && !(self.hold && server.is_handshaking())
            && let Some(mut early) = server.early_data()
        {
            let count = early.read(buffer.initialize_unfilled())?;
            if count > 0 {
                buffer.advance(count);
                return Ok(Some(()));
            }
        }
        match self.tls.reader().read(buffer.initialize_unfilled()) {
            Ok(count) => {
                buffer.advance(count);
                Ok(Some(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What is said early: a command, its environment and the beginning of its input. A node would take more
/// ([`EARLY_DATA_BYTES`](sallyport_ca::tls::node::EARLY_DATA_BYTES)), but one that has forgotten the ticket cannot throw away
/// more: rustls (0.23) keeps what it throws away in a buffer of 18 KiB, together with what follows, and counts it again
/// whenever a record comes, until one can be read.
const EARLY_BYTES: usize = 4096;
/// A node that was started anew knows nothing of the flights that the one before it took. A carrier could hold one back until
/// then; a client that waits so long for an answer does not say it again.
const AGAIN_WITHIN: Duration = Duration::from_secs(5);
/// What a short piece counts for, so that the pieces are few.
const EARLY_PIECE_BYTES: usize = 512;
/// TLS keeps so many bytes that the stream below has not taken.
const SENDING_BYTES: usize = 64 * 1024;

/// Whether a TLS server's first bytes may begin so: a handshake message, an alert, or a change of cipher (RFC 8446 §5.1).
fn is_tls(first: u8) -> bool {
    (0x14..=0x17).contains(&first)
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for EndpointStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if let Some(()) = this.give(buffer)? {
                return Poll::Ready(Ok(()));
            }
            // What the handshake or a new key makes necessary. A full way down is no reason not to listen.
            if let Poll::Ready(sent) = this.poll_send(context) {
                sent?;
                if let Poll::Ready(Err(error)) = Pin::new(&mut this.io).poll_flush(context) {
                    return Poll::Ready(Err(error));
                }
            }
            this.reader = Some(context.waker().clone());
            let heard = ready!(this.poll_hear(context));
            if let Some(writer) = this.writer.take() {
                writer.wake();
            }
            heard?;
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EndpointStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let count = this.take(data)?;
            match this.poll_send(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                _ if count > 0 => return Poll::Ready(Ok(count)),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
            }
            // TLS takes more when the handshake is over.
            if this.tls.is_handshaking() {
                ready!(this.poll_beside_reader(context))?;
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Ends this side's stream once the handshake is over: a client's tickets come behind it, and what it said early may
    /// have to be said again.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closed {
            while this.tls.is_handshaking() {
                ready!(this.poll_send(context))?;
                ready!(Pin::new(&mut this.io).poll_flush(context))?;
                ready!(this.poll_beside_reader(context))?;
            }
            this.tls.send_close_notify();
            this.closed = true;
        }
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.io).poll_shutdown(context)
    }
}

/// The stream below as TLS reads it.
struct Incoming<'a, 'b, IO> {
    io: &'a mut IO,
    context: &'a mut Context<'b>,
    first: Option<u8>,
    /// Where nothing may be read past the end of a record.
    records: Option<&'a mut Records>,
}

impl<IO: AsyncRead + Unpin> Read for Incoming<'_, '_, IO> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let most = self.records.as_ref().map_or(space.len(), |records| records.room().min(space.len()));
        let mut buffer = ReadBuf::new(space.get_mut(..most).unwrap_or_default());
        match Pin::new(&mut *self.io).poll_read(self.context, &mut buffer) {
            Poll::Ready(Ok(())) => {
                self.first = buffer.filled().first().copied();
                if let Some(records) = &mut self.records {
                    records.read(buffer.filled());
                }
                Ok(buffer.filled().len())
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The stream below as TLS writes to it.
struct Outgoing<'a, 'b, IO> {
    io: &'a mut IO,
    context: &'a mut Context<'b>,
}

impl<IO: AsyncWrite + Unpin> Write for Outgoing<'_, '_, IO> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.io).poll_write(self.context, data))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.io).poll_write_vectored(self.context, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        blocking(Pin::new(&mut *self.io).poll_flush(self.context))
    }
}

fn blocking<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
