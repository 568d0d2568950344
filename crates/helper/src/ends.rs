//! The two ends of a program's connection: its input and its output, as descriptors that came over the socket.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::future::poll_fn;
use rustix::fs::{FileType, OFlags};
use sallyport_ssh::Stream;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio_util::either::Either;

use super::program::Program;

/// Bytes read from a program at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// What a program's pipe may hold.
const PIPE_BYTES: usize = 256 * 1024;

thread_local! {
    /// The helper has one thread, which reads from one program at a time.
    pub(super) static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK_BYTES].into_boxed_slice());
}

/// Where a program's bytes come from: a pipe or a socket.
#[derive(Debug)]
pub(super) enum Input {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

/// Where the node's bytes go.
#[derive(Debug)]
pub(super) enum Output {
    Pipe(pipe::Sender),
    Socket(UnixStream),
}

/// What came with a request and can be waited for. Nothing is set on it yet: it is the program's too, which may have to go
/// on with it alone, and to a program that waits by itself what no longer blocks looks like the end.
#[derive(Debug)]
pub(super) struct Ends {
    input: OwnedFd,
    output: OwnedFd,
}

impl Ends {
    /// Looks at the input and the output: a pipe that is open this way, or a socket.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let count = descriptors.len();
        let Ok([input, output]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return refuse(format!("{count} of them came, expected 2"));
        };
        for (descriptor, wrong) in [(&input, OFlags::WRONLY), (&output, OFlags::RDONLY)] {
            let mode = rustix::fs::fcntl_getfl(descriptor)? & OFlags::RWMODE;
            match FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode) {
                FileType::Fifo if mode == wrong => {
                    return refuse("a pipe that is open the other way".to_owned());
                }
                FileType::Fifo | FileType::Socket => {}
                other => return refuse(format!("expected a pipe or a socket, got {other:?}")),
            }
        }
        Ok(Self { input, output })
    }

    /// The input and the output as one stream.
    pub(super) fn stream(self) -> io::Result<impl Stream + 'static> {
        let (input, output) = self.open()?;
        let input = match input {
            Input::Pipe(pipe) => Either::Left(pipe),
            Input::Socket(socket) => Either::Right(socket),
        };
        let output = match output {
            Output::Pipe(pipe) => Either::Left(pipe),
            Output::Socket(socket) => Either::Right(socket),
        };
        Ok(tokio::io::join(input, output))
    }

    /// The one socket that both are.
    pub(super) fn socket(self) -> io::Result<UnixStream> {
        socket(self.input)
    }

    /// Makes both ready to be waited for. From here on they are the helper's.
    pub(super) fn open(self) -> io::Result<(Input, Output)> {
        Ok((Input::new(self.input)?, Output::new(self.output)?))
    }
}

/// Whether it is a pipe; one is made large, so that program and helper take turns less often.
fn is_pipe(descriptor: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(descriptor)?;
    let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
    if is_pipe {
        // A user with many pipes may not have larger ones; it works all the same.
        let _ = rustix::pipe::fcntl_setpipe_size(descriptor, PIPE_BYTES);
    }
    Ok(is_pipe)
}

/// Sockets of every family are read and written alike.
fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(descriptor);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

impl Input {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        if is_pipe(&descriptor)? {
            pipe::Receiver::from_owned_fd(descriptor).map(Self::Pipe)
        } else {
            socket(descriptor).map(Self::Socket)
        }
    }

    /// The next bytes; none at the end. A program that broke off has ended, too.
    pub(super) fn poll_read(&self, context: &mut Context<'_>, most: usize) -> Poll<Bytes> {
        loop {
            let ready = match self {
                Self::Pipe(pipe) => pipe.poll_read_ready(context),
                Self::Socket(socket) => socket.poll_read_ready(context),
            };
            if ready!(ready).is_err() {
                return Poll::Ready(Bytes::new());
            }
            let read = SCRATCH.with_borrow_mut(|scratch| {
                let room = scratch.len().min(most);
                let scratch = scratch.get_mut(..room).unwrap_or_default();
                let count = match self {
                    Self::Pipe(pipe) => pipe.try_read(scratch)?,
                    Self::Socket(socket) => socket.try_read(scratch)?,
                };
                io::Result::Ok(scratch.get(..count).map(Bytes::copy_from_slice).unwrap_or_default())
            });
            match read {
                Err(error) if is_passing(&error) => {}
                read => return Poll::Ready(read.unwrap_or_default()),
            }
        }
    }

    pub(super) async fn read(&self) -> Bytes {
        poll_fn(|context| self.poll_read(context, CHUNK_BYTES)).await
    }
}

impl Output {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        if is_pipe(&descriptor)? {
            pipe::Sender::from_owned_fd(descriptor).map(Self::Pipe)
        } else {
            socket(descriptor).map(Self::Socket)
        }
    }

    /// Says that nothing more comes. A pipe says it when it is closed.
    pub(super) fn finish(&self) {
        if let Self::Socket(socket) = self {
            // The other end may have gone.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    pub(super) async fn write_all(&self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match self {
                Self::Pipe(pipe) => {
                    pipe.writable().await?;
                    pipe.try_write(&bytes)
                }
                Self::Socket(socket) => {
                    socket.writable().await?;
                    socket.try_write(&bytes)
                }
            };
            match written {
                Ok(count) => bytes.advance(count),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Nothing was moved, and nothing is wrong.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Waits until the program has ended or hung up.
pub(super) async fn gone(program: Option<&Program>) {
    match program {
        Some(program) => program.gone().await,
        None => std::future::pending().await,
    }
}
