//! A channel that carries a connection between the host and something here.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::BoxedStream;
use crate::inbound::{Counts, Inbox, Pressure, ToClient, carry};
use crate::native::frame::Frame;
use crate::native::mux::{Channel, Mux, Taker};
use crate::session::Gone;

/// The host's words about what it does not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in crate::client) struct HostRefused(pub(in crate::client) String);

/// Why a connection did not come about: the host's words, or none when the host is gone.
pub(super) type NotThere = Option<String>;

/// What has come on such a channel.
pub(super) struct Arriving {
    inbox: Arc<Inbox>,
    answer: OnceLock<Result<(), NotThere>>,
    answered: Notify,
}

impl Arriving {
    pub(super) fn new(mux: &Mux, pressure: &Arc<Pressure>, id: u32) -> Arc<Self> {
        let inbox = mux.inbox(pressure, id);
        Arc::new(Self { inbox, answer: OnceLock::new(), answered: Notify::new() })
    }

    fn answer(&self, answer: Result<(), NotThere>) {
        let _ = self.answer.set(answer);
        self.answered.notify_one();
    }
}

impl Taker for Arriving {
    fn data(&self, errors: bool, bytes: Bytes) {
        if !errors {
            self.inbox.accept_whole(&bytes);
        }
    }

    fn eof(&self) {
        self.inbox.end();
    }

    fn closed(&self) {
        self.inbox.close();
    }

    fn gone(&self, refused: Option<String>) {
        self.answer(Err(refused));
        self.inbox.leave();
    }

    fn frame(&self, frame: Frame) {
        if let Frame::Opened(_) = frame {
            self.answer(Ok(()));
        }
    }
}

/// Such a channel.
pub(in crate::client) struct Lane {
    channel: Channel,
    arriving: Arc<Arriving>,
}

impl Lane {
    pub(super) fn new(channel: Channel, arriving: Arc<Arriving>) -> Self {
        Self { channel, arriving }
    }

    /// Waits until the host has answered.
    ///
    /// # Errors
    /// [`NotThere`].
    pub(super) async fn opened(&self) -> Result<(), NotThere> {
        loop {
            let answered = self.arriving.answered.notified();
            if let Some(answer) = self.arriving.answer.get() {
                return answer.clone();
            }
            answered.await;
        }
    }

    /// Carries bytes both ways until both are done, or either is gone; nothing is waited for before that.
    ///
    /// # Errors
    /// [`HostRefused`] when there was no such connection after all.
    pub(super) async fn carry(self, stream: BoxedStream) -> Result<(), HostRefused> {
        carry(&self, stream, &Counts::default()).await;
        self.arriving.inbox.leave();
        self.channel.close();
        match self.arriving.answer.get() {
            Some(Err(Some(reason))) => Err(HostRefused(reason.clone())),
            _ => Ok(()),
        }
    }

    /// Does not take what the host has opened.
    pub(super) fn refuse(self, reason: &str) {
        self.channel.refuse(reason);
    }
}

impl ToClient for Lane {
    fn inbox(&self) -> &Inbox {
        &self.arriving.inbox
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.channel.data(false, bytes).await
    }

    async fn eof(&self) -> Result<(), Gone> {
        self.channel.eof()
    }
}
