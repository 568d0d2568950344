//! One authenticated connection: what it speaks, whether it stands, and how it ended.

use std::fmt;
use std::sync::Arc;

use russh::client::{Handle, Msg};
use russh::{Channel, Disconnect};

use super::error::ClientError;
use super::events::{Events, Said};
use super::refusals::Refusals;
use super::remotes::Remotes;
use super::{native, pipelined};
use crate::pump::Slack;

/// One authenticated connection. Clones share it.
#[derive(Clone)]
pub struct Connection {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) line: Line,
    pub(super) host: String,
    pub(super) said: Arc<Said>,
    pub(super) remotes: Arc<Remotes>,
}

/// What a connection speaks.
pub(super) enum Line {
    Ssh(SshLine),
    Native(native::Line),
    Pipelined(pipelined::Line),
}

pub(super) struct SshLine {
    pub(super) handle: Handle<Events>,
    pub(super) refusals: Refusals,
    pub(super) slack: Slack,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("host", &self.inner.host).finish_non_exhaustive()
    }
}

impl Connection {
    /// Whether this is for one session, with which the login goes.
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        matches!(self.inner.line, Line::Pipelined(_))
    }

    /// Whether this speaks the native protocol, and not SSH.
    #[must_use]
    pub fn is_native(&self) -> bool {
        matches!(self.inner.line, Line::Native(_))
    }

    /// Waits until the host has said its first word. With SSH it has.
    ///
    /// # Errors
    /// [`ClientError::NotNative`] when the host wants this login by SSH, [`ClientError::Lost`] when it is gone.
    pub async fn welcomed(&self) -> Result<(), ClientError> {
        match &self.inner.line {
            Line::Native(line) if !line.welcomed().await => Err(self.lost()),
            _ => Ok(()),
        }
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.inner.line {
            Line::Ssh(ssh) => ssh.handle.is_closed(),
            Line::Native(line) => line.mux.end().is_some(),
            Line::Pipelined(line) => line.is_closed(),
        }
    }

    /// Waits until a native connection has ended, and says why as far as either side did. With SSH the sessions say it.
    pub(crate) async fn ended(&self) -> String {
        match &self.inner.line {
            Line::Ssh(_) | Line::Pipelined(_) => std::future::pending().await,
            Line::Native(line) => line.ended().await,
        }
    }

    /// Says farewell. Streams and sessions that are still open end.
    pub async fn disconnect(&self) {
        match &self.inner.line {
            Line::Ssh(ssh) => {
                let _ = ssh.handle.disconnect(Disconnect::ByApplication, "", "").await;
            }
            Line::Native(line) => line.disconnect().await,
            Line::Pipelined(line) => line.disconnect().await,
        }
    }

    /// The error of a connection that is gone.
    pub(super) fn lost(&self) -> ClientError {
        let (host, reason) = (self.inner.host.clone(), self.end());
        match &self.inner.line {
            Line::Native(line) if line.wants_ssh() => ClientError::NotNative { host, reason },
            _ => ClientError::Lost { host, reason },
        }
    }

    /// Why it ended, as far as either side said.
    pub(super) fn end(&self) -> String {
        match &self.inner.line {
            Line::Ssh(_) | Line::Pipelined(_) => self.inner.said.end(),
            Line::Native(line) => line.end(),
        }
    }

    /// Opens a channel, and turns the library's answer into ours, with the words of the host.
    pub(super) async fn opened(
        &self,
        ssh: &SshLine,
        what: &str,
        open: impl Future<Output = Result<Channel<Msg>, russh::Error>>,
    ) -> Result<Channel<Msg>, ClientError> {
        let opening = ssh.refusals.opening();
        match open.await {
            Ok(channel) => Ok(channel),
            Err(russh::Error::ChannelOpenFailure(failure)) => {
                let reason = opening.words().await.filter(|text| !text.is_empty());
                let reason = reason.unwrap_or_else(|| failure.description().to_owned());
                Err(ClientError::Refused { what: what.to_owned(), reason })
            }
            Err(russh::Error::Disconnect | russh::Error::SendError | russh::Error::HUP) => Err(self.lost()),
            Err(other) => Err(ClientError::Ssh(other)),
        }
    }
}

/// What a connection for one session does not do.
pub(super) fn one_session(what: &str) -> ClientError {
    ClientError::Refused { what: what.to_owned(), reason: "this connection is for one session".to_owned() }
}
