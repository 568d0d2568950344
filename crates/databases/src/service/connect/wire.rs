//! Messages of a server, one after the other.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::ConnectError;
use super::upstream::{LONGEST_GREETING, Upstream};
use crate::postgres::frame::HEADER_BYTES;

/// Messages of a server, one after the other.
pub(in crate::service) struct Wire<S = Upstream> {
    stream: S,
    buffer: BytesMut,
    address: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(in crate::service) fn new(stream: S, buffer: BytesMut, address: &str) -> Self {
        Self { stream, buffer, address: address.to_owned() }
    }

    pub(in crate::service) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.buffer)
    }

    pub(in crate::service) fn wrong(&self, what: &str) -> ConnectError {
        ConnectError::Protocol { address: self.address.clone(), what: what.to_owned() }
    }

    fn lost(&self, problem: &str) -> ConnectError {
        ConnectError::Unreachable { address: self.address.clone(), problem: problem.to_owned() }
    }

    /// A connection that ends in the handshake's last flight does so here: in TLS 1.3 a server refuses a client's
    /// certificate after the client has finished.
    fn failed(&self, error: &io::Error) -> ConnectError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<tokio_rustls::rustls::Error>()) {
            Some(problem) => {
                ConnectError::Tls { address: self.address.clone(), problem: problem.to_string() }
            }
            None => self.lost(&error.to_string()),
        }
    }

    pub(in crate::service) async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = sent.await;
        sent.map_err(|error| self.failed(&error))
    }

    pub(in crate::service) async fn message(&mut self) -> Result<(u8, Vec<u8>), ConnectError> {
        self.message_within(LONGEST_GREETING).await
    }

    /// The next message, which is no longer than this.
    pub(super) async fn message_within(&mut self, longest: usize) -> Result<(u8, Vec<u8>), ConnectError> {
        loop {
            if let Some(([kind, length @ ..], _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() {
                let kind = *kind;
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                let Some(content) = length.checked_sub(4).filter(|_| length <= longest) else {
                    return Err(self.wrong("a message of an impossible length"));
                };
                if self.buffer.len() >= HEADER_BYTES + content {
                    self.buffer.advance(HEADER_BYTES);
                    return Ok((kind, self.buffer.split_to(content).to_vec()));
                }
            }
            if self.buffer.capacity() - self.buffer.len() < 512 {
                self.buffer.reserve(2048);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(_) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }
}
