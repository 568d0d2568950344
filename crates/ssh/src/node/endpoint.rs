//! The client's side of a channel, whichever protocol it speaks.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use russh::server::{ChannelOpenHandle, Handle, Msg};
use russh::{ChannelOpenFailure, ChannelWriteHalf};

use super::connection::shared::Shared;
use crate::inbound::{Inbox, ToClient};
use crate::native::frame::{Frame, Lacks};
use crate::native::mux;
use crate::session::{Channel, Exit, Gone, Output};
use crate::signal_names;

/// Exit status for what the node did not let happen; ssh's own for its errors.
pub(super) const REFUSED_STATUS: u32 = 255;

/// How a channel's client is reached.
#[derive(Clone)]
pub(super) enum Protocol {
    Ssh { write: Arc<ChannelWriteHalf<Msg>>, handle: Handle },
    Native(Arc<mux::Channel>),
}

/// The client's side of a channel.
#[derive(Clone)]
pub(super) struct ChannelEndpoint {
    pub(super) protocol: Protocol,
    pub(super) inbox: Arc<Inbox>,
    pub(super) shared: Arc<Shared>,
    /// A person at a terminal is active when they type; a transfer, when bytes flow either way.
    pub(super) quiet: bool,
}

impl ChannelEndpoint {
    pub(super) fn ssh(
        write: ChannelWriteHalf<Msg>,
        handle: Handle,
        inbox: Arc<Inbox>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { protocol: Protocol::Ssh { write: Arc::new(write), handle }, inbox, shared, quiet: false }
    }

    pub(super) fn native(channel: mux::Channel, inbox: Arc<Inbox>, shared: Arc<Shared>) -> Self {
        Self { protocol: Protocol::Native(Arc::new(channel)), inbox, shared, quiet: false }
    }

    /// By which listener the client came, as events say it.
    pub(super) fn front(&self) -> &'static str {
        match &self.protocol {
            Protocol::Ssh { .. } => "ssh",
            Protocol::Native(_) => "native",
        }
    }

    pub(super) async fn send(&self, channel: Channel, bytes: Bytes) -> Result<(), Gone> {
        self.shared.opening.over();
        let _waiting = self.shared.pressure.enter();
        let sent = match (&self.protocol, channel) {
            (Protocol::Ssh { write, .. }, Channel::Stdout) => write.data_bytes(bytes).await.map_err(|_| Gone),
            (Protocol::Ssh { write, .. }, Channel::Stderr) => {
                write.extended_data_bytes(1, bytes).await.map_err(|_| Gone)
            }
            (Protocol::Native(native), channel) => native.data(channel == Channel::Stderr, bytes).await,
        };
        if !self.quiet {
            self.shared.touch();
        }
        sent
    }

    pub(super) async fn eof(&self) -> Result<(), Gone> {
        match &self.protocol {
            Protocol::Ssh { write, .. } => write.eof().await.map_err(|_| Gone),
            Protocol::Native(channel) => channel.eof(),
        }
    }

    pub(super) async fn close(&self) {
        match &self.protocol {
            Protocol::Ssh { write, .. } => {
                let _ = write.close().await;
            }
            Protocol::Native(channel) => channel.close(),
        }
    }

    async fn exit_status(&self, status: u32) -> Result<(), Gone> {
        match &self.protocol {
            Protocol::Ssh { write, .. } => write.exit_status(status).await.map_err(|_| Gone),
            Protocol::Native(channel) => channel.frame(&Frame::ExitStatus(channel.id(), status)),
        }
    }

    async fn exit_signal(&self, name: &str, core: bool) -> Result<(), Gone> {
        match &self.protocol {
            Protocol::Ssh { write, handle } => handle
                .exit_signal_request(
                    write.id(),
                    signal_names::named(name),
                    core,
                    String::new(),
                    String::new(),
                )
                .await
                .map_err(|()| Gone),
            Protocol::Native(native) => {
                let (channel, name) = (native.id(), name.to_owned());
                native.frame(&Frame::ExitSignal { channel, name, core })
            }
        }
    }

    /// Tells the person something outside of their program's output, and ends the channel.
    pub(super) async fn refuse(&self, message: &str) {
        let text = format!("sallyport: {message}\r\n");
        let _ = self.send(Channel::Stderr, Bytes::from(text)).await;
        let _ = self.exit_status(REFUSED_STATUS).await;
        let _ = self.eof().await;
        self.close().await;
    }

    /// Says that the session begins, and what it lacks. SSH has said so by then.
    pub(super) fn started(&self, lacks: Lacks) {
        if let Protocol::Native(channel) = &self.protocol {
            let _ = channel.frame(&Frame::Started(channel.id(), lacks));
        }
    }

    /// Says that the connection which was asked for stands. `reply` is what SSH answers with.
    pub(super) async fn let_in(&self, reply: Option<ChannelOpenHandle>) {
        match (&self.protocol, reply) {
            (Protocol::Ssh { .. }, Some(reply)) => reply.accept().await,
            (Protocol::Ssh { .. }, None) => {}
            (Protocol::Native(channel), _) => {
                let _ = channel.frame(&Frame::Opened(channel.id()));
            }
        }
    }

    /// Says that there is none.
    pub(super) async fn keep_out(&self, reply: Option<ChannelOpenHandle>, reason: String) {
        match (&self.protocol, reply) {
            (Protocol::Ssh { .. }, Some(reply)) => {
                let code = ChannelOpenFailure::ConnectFailed.code();
                reply.reject(ChannelOpenFailure::Other { code, reason }).await;
            }
            (Protocol::Ssh { .. }, None) => {}
            (Protocol::Native(channel), _) => channel.refuse(&reason),
        }
    }
}

impl ToClient for ChannelEndpoint {
    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        Self::send(self, Channel::Stdout, bytes).await
    }

    async fn eof(&self) -> Result<(), Gone> {
        Self::eof(self).await
    }
}

#[async_trait]
impl Output for ChannelEndpoint {
    async fn data(&self, channel: Channel, bytes: Bytes) -> Result<(), Gone> {
        self.send(channel, bytes).await
    }

    fn consumed(&self, bytes: usize) {
        self.inbox.consumed(bytes);
    }

    async fn exited(&self, exit: &Exit) -> Result<(), Gone> {
        self.shared.opening.over();
        match exit {
            Exit::Status(status) => self.exit_status(*status).await,
            Exit::Signal { name, core } => self.exit_signal(name, *core).await,
        }
    }

    async fn finished(&self) -> Result<(), Gone> {
        self.eof().await
    }

    async fn cut_off(&self) -> Option<String> {
        self.shared.cut_off(&self.inbox).await
    }
}
