//! This side's ends of a session's pipes and terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::terminal;

/// Most bytes taken from a process at once.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
/// What a process may have on its way in each direction: four times what a pipe has, so that process and node take turns
/// a quarter as often. It is memory of the kernel, and only what is really on its way.
const PIPE_BYTES: usize = 256 * 1024;

/// One of this side's ends of a pipe or terminal.
#[derive(Debug, Clone)]
pub(super) struct End {
    fd: Arc<AsyncFd<OwnedFd>>,
    pub(super) terminal: bool,
}

impl End {
    /// A larger pipe, where the account may have one. It works all the same without.
    pub(super) fn pipe(fd: OwnedFd) -> io::Result<Self> {
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_BYTES);
        Self::new(fd, false)
    }

    pub(super) fn new(fd: OwnedFd, terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe to call; what the deprecation is about, a type that changes its \
                      descriptor while registered, an OwnedFd cannot do"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd: Arc::new(fd), terminal })
    }

    /// The next output; `None` at its end. No buffer is held while there is none.
    pub(super) async fn read(&self) -> io::Result<Option<Bytes>> {
        loop {
            let mut ready = self.fd.readable().await?;
            let mut block = Vec::with_capacity(BLOCK_BYTES);
            match rustix::io::read(self.fd.get_ref(), rustix::buffer::spare_capacity(&mut block)) {
                Ok(0) => return Ok(None),
                // The other end of the terminal has been closed.
                Err(Errno::IO) if self.terminal => return Ok(None),
                Ok(count) if count < BLOCK_BYTES / 4 => return Ok(Some(Bytes::copy_from_slice(&block))),
                Ok(_) => return Ok(Some(Bytes::from(block))),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes some of the bytes and says how many.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.writable().await?;
            match rustix::io::write(self.fd.get_ref(), bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn resize(&self, size: terminal::Size) -> io::Result<()> {
        terminal::resize(self.fd.get_ref(), size)
    }
}
