//! What is opened on a connection: sessions, connections that the host makes, and its file service.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use russh::Channel;
use russh::client::Msg;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{Instrument, info_span};

use super::connection::{Connection, Line, SshLine, one_session};
use super::endpoint::Endpoint;
use super::error::ClientError;
use super::native::stream::NativeStream;
use super::phases::PHASE;
use super::pipelined::SubsystemStream;
use super::request::SessionRequest;
use super::session::{self, Session};
use crate::Stream;

impl Connection {
    /// Starts a shell, a command or a subsystem.
    ///
    /// The answers to the requests arrive as [`Output`](super::Output), so that nothing waits for a round trip it need not.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the host opens no session, [`ClientError::Lost`] when it is gone.
    pub async fn start(&self, request: SessionRequest) -> Result<Session, ClientError> {
        if request.forward_agent {
            self.inner.said.agent_wanted.store(true, Ordering::Release);
        }
        if let Some(display) = &request.display {
            self.inner.said.offer_display(Arc::clone(display));
        }
        match &self.inner.line {
            Line::Ssh(ssh) => {
                let opening = ssh.handle.channel_open_session();
                let opening = opening.instrument(info_span!(target: PHASE, "ssh.channel"));
                let channel = self.opened(ssh, "a session", opening).await?;
                session::start(self.clone(), channel, request).await
            }
            Line::Native(line) => session::start_native(self, line, request),
            Line::Pipelined(line) => session::start_pipelined(self, line, request).await,
        }
    }

    /// Opens a connection from the host to an address as the host sees it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the host's words, [`ClientError::Lost`] when it is gone.
    pub async fn open_direct(
        &self,
        address: &str,
        port: u16,
        origin: std::net::SocketAddr,
    ) -> Result<DirectStream, ClientError> {
        self.open_to(&Endpoint::Port { host: address.to_owned(), port }, origin).await
    }

    /// Opens a connection from the host to a port or a Unix socket as the host sees it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the host's words, [`ClientError::Lost`] when it is gone.
    pub async fn open_to(
        &self,
        to: &Endpoint,
        origin: std::net::SocketAddr,
    ) -> Result<DirectStream, ClientError> {
        Ok(DirectStream(match &self.inner.line {
            Line::Ssh(ssh) => Channelled::Ssh(self.direct_channel(ssh, to, origin).await?.into_stream()),
            Line::Native(line) => Channelled::Native(self.native_stream(line, to, origin).await?),
            Line::Pipelined(_) => return Err(one_session(&format!("the connection to {to}"))),
        }))
    }

    pub(super) async fn direct_channel(
        &self,
        ssh: &SshLine,
        to: &Endpoint,
        origin: std::net::SocketAddr,
    ) -> Result<Channel<Msg>, ClientError> {
        let handle = &ssh.handle;
        let opening = async {
            match to {
                Endpoint::Port { host, port } => {
                    let (from, from_port) = (origin.ip().to_string(), u32::from(origin.port()));
                    handle.channel_open_direct_tcpip(host.as_str(), u32::from(*port), from, from_port).await
                }
                Endpoint::Socket { path } => handle.channel_open_direct_streamlocal(path.as_str()).await,
            }
        };
        self.opened(ssh, &format!("the connection to {to}"), opening).await
    }

    /// Opens the host's file transfer service. By the native protocol nothing is waited for, and a refusal is what
    /// reading it says.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the host allows no file transfer, [`ClientError::Lost`] when it is gone.
    pub async fn sftp(&self) -> Result<SftpStream, ClientError> {
        let ssh = match &self.inner.line {
            Line::Ssh(ssh) => ssh,
            Line::Native(line) => return Ok(DirectStream(Channelled::Native(self.native_sftp(line)?))),
            Line::Pipelined(line) => {
                let stream = session::pipelined_subsystem(self, line, "sftp", "file transfer").await?;
                return Ok(DirectStream(Channelled::Pipelined(stream)));
            }
        };
        let mut channel = self.opened(ssh, "a session", ssh.handle.channel_open_session()).await?;
        channel.request_subsystem(true, "sftp").await.map_err(|_| self.lost())?;
        session::wait_for_subsystem(self, &mut channel, "file transfer").await?;
        Ok(DirectStream(Channelled::Ssh(channel.into_stream())))
    }
}

/// A byte stream on a channel.
pub struct DirectStream(Channelled);

enum Channelled {
    Ssh(russh::ChannelStream<Msg>),
    Native(NativeStream),
    Pipelined(SubsystemStream),
}

/// The byte stream of the file transfer service.
pub type SftpStream = DirectStream;

impl fmt::Debug for DirectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectStream")
    }
}

impl DirectStream {
    fn stream(&mut self) -> Pin<&mut dyn Stream> {
        match &mut self.0 {
            Channelled::Ssh(stream) => Pin::new(stream),
            Channelled::Native(stream) => Pin::new(stream),
            Channelled::Pipelined(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for DirectStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for DirectStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
