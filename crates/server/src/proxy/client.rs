//! The client's end of a stream that carries a protocol other than SSH, whatever it comes over.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// Most that is read at once.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// Bytes are read into this and leave it as large as they are: a client that says nothing has no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// What comes from a client.
pub(crate) trait Source: Send {
    /// The next bytes; `None` when the client has said everything.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Bytes>>> + Send;
}

/// What goes to a client.
pub(crate) trait Target: Send {
    /// Sends bytes, waiting while the client takes none.
    fn send(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;
    /// Says that nothing more will come.
    fn finish(&mut self) -> impl Future<Output = ()> + Send;
    /// The same, and why, beside the bytes where the client's way has a place for it.
    fn fail(&mut self, why: &str) -> impl Future<Output = ()> + Send;
}

/// Both.
pub(crate) trait Client: Source + Target {
    type From: Source;
    type To: Target;

    /// Each direction on its own.
    fn split(self) -> (Self::From, Self::To);
}

/// A client's own connection.
pub(crate) struct Native<T> {
    from: NativeSource<T>,
    to: NativeTarget<T>,
}

pub(crate) struct NativeSource<T>(ReadHalf<T>);
pub(crate) struct NativeTarget<T>(WriteHalf<T>);

impl<T: AsyncRead + AsyncWrite + Send> Native<T> {
    pub(crate) fn new(stream: T) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { from: NativeSource(read), to: NativeTarget(write) }
    }
}

impl<T: AsyncRead + Send> Source for NativeSource<T> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
                let read = buffer.filled();
                Poll::Ready(Ok((!read.is_empty()).then(|| Bytes::copy_from_slice(read))))
            })
        })
        .await
    }
}

impl<T: AsyncWrite + Send> Target for NativeTarget<T> {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        self.0.write_all(&bytes).await?;
        self.0.flush().await
    }

    async fn finish(&mut self) {
        let _ = self.0.shutdown().await;
    }

    async fn fail(&mut self, _: &str) {
        self.finish().await;
    }
}

impl<T: AsyncRead + AsyncWrite + Send> Source for Native<T> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.from.next().await
    }
}

impl<T: AsyncRead + AsyncWrite + Send> Target for Native<T> {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        self.to.send(bytes).await
    }

    async fn finish(&mut self) {
        self.to.finish().await;
    }

    async fn fail(&mut self, why: &str) {
        self.to.fail(why).await;
    }
}

impl<T: AsyncRead + AsyncWrite + Send> Client for Native<T> {
    type From = NativeSource<T>;
    type To = NativeTarget<T>;

    fn split(self) -> (Self::From, Self::To) {
        (self.from, self.to)
    }
}

/// The messages of one method around the bytes that it carries.
pub(crate) trait Frames: Send + Sync + 'static {
    /// What comes from the client.
    type Request: Send + 'static;
    /// What goes to it.
    type Response: Send + 'static;

    /// The bytes of a request; none where it has none.
    ///
    /// # Errors
    /// For one that has no place behind the first.
    fn bytes(request: Self::Request) -> io::Result<Option<Bytes>>;

    /// A response with bytes.
    fn response(bytes: Bytes) -> Self::Response;
}

/// What the response stream of a call gives out.
pub(crate) type Answer<F> = Result<<F as Frames>::Response, Status>;

/// A client that names its target again.
pub(crate) fn named_already() -> io::Error {
    io::Error::other("the target was named already")
}

/// A client inside a gRPC stream.
pub(crate) struct Grpc<F: Frames> {
    from: GrpcSource<F>,
    to: GrpcTarget<F>,
}

pub(crate) struct GrpcSource<F: Frames>(Streaming<F::Request>);
pub(crate) struct GrpcTarget<F: Frames>(Option<mpsc::Sender<Answer<F>>>);

impl<F: Frames> Grpc<F> {
    pub(crate) fn new(from: Streaming<F::Request>, to: mpsc::Sender<Answer<F>>) -> Self {
        Self { from: GrpcSource(from), to: GrpcTarget(Some(to)) }
    }
}

impl<F: Frames> Source for GrpcSource<F> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(request) = self.0.message().await.map_err(io::Error::other)? {
            if let Some(bytes) = F::bytes(request)?.filter(|bytes| !bytes.is_empty()) {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl<F: Frames> Target for GrpcTarget<F> {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let to = self.0.as_ref().ok_or_else(gone)?;
        to.send(Ok(F::response(bytes))).await.map_err(|_| gone())
    }

    async fn finish(&mut self) {
        self.0 = None;
    }

    async fn fail(&mut self, why: &str) {
        if let Some(to) = self.0.take() {
            let _ = to.send(Err(Status::unavailable(why))).await;
        }
    }
}

impl<F: Frames> Source for Grpc<F> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.from.next().await
    }
}

impl<F: Frames> Target for Grpc<F> {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        self.to.send(bytes).await
    }

    async fn finish(&mut self) {
        self.to.finish().await;
    }

    async fn fail(&mut self, why: &str) {
        self.to.fail(why).await;
    }
}

impl<F: Frames> Client for Grpc<F> {
    type From = GrpcSource<F>;
    type To = GrpcTarget<F>;

    fn split(self) -> (Self::From, Self::To) {
        (self.from, self.to)
    }
}
