//! A channel as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::queue::{Event, Queue};
use crate::client::connection::Connection;
use crate::native::mux::Channel;

/// Longest words of a host that are kept.
const MAX_WORDS_BYTES: usize = 4096;
/// Bytes taken from a writer at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// A channel as a stream. What the host says on standard error is the error when there is nothing else.
pub(in crate::client) struct NativeStream {
    channel: Channel,
    queue: Arc<Queue>,
    current: Bytes,
    words: Vec<u8>,
    /// Something has come; and nothing more will.
    came: bool,
    ended: bool,
    /// Keeps the connection.
    _connection: Connection,
}

impl NativeStream {
    pub(in crate::client) fn new(channel: Channel, queue: Arc<Queue>, connection: Connection) -> Self {
        let (current, words) = (Bytes::new(), Vec::new());
        Self { channel, queue, current, words, came: false, ended: false, _connection: connection }
    }

    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        let words = String::from_utf8_lossy(&self.words).trim().to_owned();
        if self.came || words.is_empty() { Ok(()) } else { Err(io::Error::other(words)) }
    }
}

impl AsyncRead for NativeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() && !self.ended {
            match ready!(self.queue.poll_next(cx)) {
                Event::Data { errors: false, bytes } => {
                    self.came = true;
                    self.current = bytes;
                }
                Event::Data { errors: true, bytes } => {
                    let room = MAX_WORDS_BYTES.saturating_sub(self.words.len());
                    self.words.extend(bytes.iter().take(room));
                }
                Event::Started(_) | Event::Opened => {}
                Event::Eof | Event::Closed(_) => return Poll::Ready(self.end()),
                Event::Refused(reason) => {
                    self.ended = true;
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason)));
                }
                Event::Gone(_) => {
                    self.ended = true;
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
        let part = self.current.len().min(buf.remaining());
        buf.put_slice(self.current.get(..part).unwrap_or_default());
        self.current.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for NativeStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let block = data.get(..data.len().min(BLOCK_BYTES)).unwrap_or_default();
        let sent = ready!(self.channel.poll_data(cx, false, || Bytes::copy_from_slice(block)));
        Poll::Ready(sent.map(|()| block.len()).map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Who is gone need not be told.
        let _ = self.channel.eof();
        Poll::Ready(Ok(()))
    }
}
