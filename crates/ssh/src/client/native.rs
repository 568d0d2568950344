//! The client's side of the native protocol ([`crate::native`]).

pub(super) mod lane;
mod line;
pub(super) mod queue;
pub(super) mod stream;

use std::net::SocketAddr;

pub(crate) use line::Extras;
pub(super) use line::{Line, ListenError, begin};

use super::connection::Connection;
use super::endpoint::Endpoint;
use super::error::ClientError;
use crate::BoxedStream;
use crate::native::frame::FrameError;
use crate::native::mux::NotOpened;
use crate::request::{Program, SessionRequest};
use lane::{HostRefused, Lane};
use line::direct;
use queue::Event;
use stream::NativeStream;

impl Connection {
    /// What the native protocol says about a channel that is not open.
    pub(super) fn not_opened(&self, what: &str, error: NotOpened) -> ClientError {
        match error {
            NotOpened::Gone => self.lost(),
            NotOpened::TooLong(error) => {
                ClientError::Refused { what: what.to_owned(), reason: too_long(error) }
            }
        }
    }

    /// A stream to somewhere that the host sees, once it stands.
    pub(super) async fn native_stream(
        &self,
        line: &Line,
        to: &Endpoint,
        origin: SocketAddr,
    ) -> Result<NativeStream, ClientError> {
        let what = format!("the connection to {to}");
        let opened = line.queue(direct(to, origin));
        let (channel, queue) = opened.map_err(|error| self.not_opened(&what, error))?;
        match queue.next().await {
            Event::Opened => Ok(NativeStream::new(channel, queue, self.clone())),
            Event::Refused(reason) => Err(ClientError::Refused { what, reason }),
            _ => Err(self.lost()),
        }
    }

    /// The stream of the file service. A refusal is what reading it says.
    pub(super) fn native_sftp(&self, line: &Line) -> Result<NativeStream, ClientError> {
        let opened = line.session(SessionRequest::new(Program::Subsystem("sftp".to_owned())));
        let (channel, queue) = opened.map_err(|error| self.not_opened("file transfer", error))?;
        Ok(NativeStream::new(channel, queue, self.clone()))
    }

    /// A connection to somewhere that the host sees, that may stand or not.
    pub(super) fn native_lane(
        &self,
        line: &Line,
        to: &Endpoint,
        origin: SocketAddr,
    ) -> Result<Lane, ClientError> {
        line.lane(to, origin).map_err(|error| self.not_opened(&format!("the connection to {to}"), error))
    }
}

impl Lane {
    /// Waits until the connection stands.
    ///
    /// # Errors
    /// As [`Connection::open_to`].
    pub(super) async fn stands(&self, connection: &Connection, to: &Endpoint) -> Result<(), ClientError> {
        self.opened().await.map_err(|refused| match refused {
            Some(reason) => ClientError::Refused { what: format!("the connection to {to}"), reason },
            None => connection.lost(),
        })
    }

    /// Carries a connection from here.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there was none after all.
    pub(super) async fn forward(self, to: &Endpoint, stream: BoxedStream) -> Result<(), ClientError> {
        let carried = self.carry(stream).await;
        carried.map_err(|HostRefused(reason)| ClientError::Refused {
            what: format!("the connection to {to}"),
            reason,
        })
    }
}

fn too_long(error: FrameError) -> String {
    format!("it is too long ({error})")
}
