//! Connections that the node opens towards the client: from where it listens for it (`ssh -R`, RFC 4254 §7.1; OpenSSH's
//! PROTOCOL §2.4 for sockets), and from a session's programs to the client's agent and display.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use russh::server::{Handle, Msg};
use sallyport_audit::Code;
use sallyport_audit::recording::Direction;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::error::{ForwardRefused, NoChannel, NotMade};
use super::{About, CONNECT_TIMEOUT, Passage, Room, check};
use crate::BoxedStream;
use crate::client::Endpoint;
use crate::native::frame::Open;
use crate::native::mux::Mux;
use crate::node::backend::{Listener, Target};
use crate::node::client::{Carries, Client, Opening};
use crate::node::connection::{Shared, taking};
use crate::node::endpoint::{ChannelEndpoint, Protocol};

/// Places where one SSH connection may have the node listen.
const MAX_LISTENERS: usize = 32;
/// How long a client may take to let a connection in.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a connection that could not be taken: the process may be out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Failures in a row after which a listener is given up.
const ACCEPT_FAILURES: usize = 100;

/// How channels are opened towards a client.
#[derive(Clone)]
enum Opener {
    Ssh(Handle),
    Native(Mux),
}

/// The client of a connection, by the protocol that it speaks.
#[derive(Clone)]
pub(in crate::node) struct Caller {
    opener: Opener,
    shared: Arc<Shared>,
}

#[async_trait]
impl Carries for Caller {
    async fn carry(&self, opening: Opening, stream: BoxedStream) {
        let cut = CancellationToken::new();
        let _guard = cut.clone().drop_guard();
        let client = self.clone();
        let carrying = async move { client.carry_until(opening, stream, &cut).await };
        let _ = tokio::spawn(carrying.in_current_span()).await;
    }
}

impl ChannelEndpoint {
    /// The client, for those who open channels towards it.
    pub(in crate::node) fn client(&self) -> Client {
        let shared = self.shared.clone();
        Client::new(Arc::new(match &self.protocol {
            Protocol::Ssh { handle, .. } => Caller::ssh(handle.clone(), shared),
            Protocol::Native(channel) => Caller::native(channel.mux().clone(), shared),
        }))
    }
}

impl Caller {
    pub(in crate::node) fn ssh(handle: Handle, shared: Arc<Shared>) -> Self {
        Self { opener: Opener::Ssh(handle), shared }
    }

    pub(in crate::node) fn native(mux: Mux, shared: Arc<Shared>) -> Self {
        Self { opener: Opener::Native(mux), shared }
    }

    /// A channel that the client was asked for is waited for even when it is cut: only then can it be closed.
    async fn carry_until(&self, opening: Opening, stream: BoxedStream, cut: &CancellationToken) {
        let target = match &opening {
            Opening::Agent => "the agent".to_owned(),
            Opening::X11 { display, .. } => display.clone(),
            Opening::Port { address, port, .. } => format!("{address}:{port}"),
            Opening::Socket { path } => path.clone(),
        };
        let Ok(room) = Room::take(&self.shared, &target) else { return };
        let endpoint = match timeout(ANSWER_TIMEOUT, self.open(&opening)).await {
            Ok(Ok(endpoint)) => endpoint,
            Ok(Err(error)) => return tracing::debug!(%error, "the client lets a connection not in"),
            Err(_) => return tracing::debug!("the client does not answer to a connection"),
        };
        let (direction, from) = match opening {
            Opening::Agent => {
                // Told of once, when the session began.
                let counts = super::Counts::default();
                tokio::select! {
                    () = super::carry(&endpoint, stream, &counts) => {}
                    () = cut.cancelled() => {}
                }
                endpoint.inbox.leave();
                return endpoint.close().await;
            }
            Opening::X11 { from, .. } => (Direction::X11, Some(from)),
            Opening::Port { from, .. } => (Direction::Remote, Some(from)),
            Opening::Socket { .. } => (Direction::Remote, None),
        };
        let from = from.map(|(host, port)| format!("{host}:{port}"));
        let about = About { direction, target, from, peer: None };
        let passage = Passage::open(self.shared.clone(), room, about).await;
        passage.carry_until(&endpoint, stream, cut.cancelled()).await;
    }

    /// Opens a channel: by SSH when the client has let it in, natively at once. A client that does not let that in closes
    /// it.
    async fn open(&self, opening: &Opening) -> Result<ChannelEndpoint, NoChannel> {
        match &self.opener {
            Opener::Ssh(handle) => Ok(self.open_ssh(handle, opening).await?),
            Opener::Native(mux) => {
                let (channel, inbox) = taking::open(mux, &self.shared, what(opening.clone()))?;
                Ok(ChannelEndpoint::native(channel, inbox, self.shared.clone()))
            }
        }
    }

    async fn open_ssh(&self, handle: &Handle, opening: &Opening) -> Result<ChannelEndpoint, russh::Error> {
        let channel: russh::Channel<Msg> = match opening.clone() {
            Opening::Agent => handle.channel_open_agent().await?,
            Opening::X11 { from: (host, port), .. } => handle.channel_open_x11(host, port).await?,
            Opening::Port { address, port, from: (host, from) } => {
                handle.channel_open_forwarded_tcpip(address, port, host, from).await?
            }
            Opening::Socket { path } => handle.channel_open_forwarded_streamlocal(path).await?,
        };
        // What arrives goes to an inbox, as with the client's own channels: one that is not read may not hold up the
        // connection.
        let id = channel.id();
        let (_, write) = channel.split();
        let inbox = self.shared.inbox_of(id).await.ok_or(russh::Error::Disconnect)?;
        Ok(ChannelEndpoint::ssh(write, handle.clone(), inbox, self.shared.clone()))
    }
}

fn what(opening: Opening) -> Open {
    let origin = |(host, port): (String, u32)| (host, u16::try_from(port).unwrap_or_default());
    match opening {
        Opening::Agent => Open::Agent,
        Opening::X11 { from, .. } => Open::X11 { from: origin(from) },
        Opening::Port { address: host, port, from } => {
            let port = u16::try_from(port).unwrap_or_default();
            Open::Forwarded { at: Endpoint::Port { host, port }, from: origin(from) }
        }
        Opening::Socket { path } => {
            Open::Forwarded { at: Endpoint::Socket { path }, from: (String::new(), 0) }
        }
    }
}

/// One place where the node listens for a client. It ends when this is dropped.
pub(in crate::node) struct Listening {
    task: AbortHandle,
    /// The port, as allocated; 0 for a socket.
    pub(in crate::node) port: u16,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether a connection that listens on so many places may listen on one more.
///
/// # Errors
/// [`ForwardRefused::TooManyListeners`] or [`ForwardRefused::Listens`].
pub(in crate::node) fn has_room(
    listening: usize,
    there: bool,
    target: &Target,
) -> Result<(), ForwardRefused> {
    if listening >= MAX_LISTENERS {
        Err(ForwardRefused::TooManyListeners { most: MAX_LISTENERS })
    } else if there {
        Err(ForwardRefused::Listens(target.clone()))
    } else {
        Ok(())
    }
}

/// Listens for a client.
///
/// # Errors
/// When the roles or the system do not allow it.
pub(in crate::node) async fn listen(client: Caller, target: Target) -> Result<Listening, ForwardRefused> {
    let shared = &client.shared;
    let granted = check(shared, target, Direction::Remote)?;
    let asked = granted.target.clone();
    let event = |code| shared.event(code).field("direction", Direction::Remote.as_str());
    let listening = match timeout(CONNECT_TIMEOUT, granted.place.listen(&asked)).await {
        Ok(made) => made.map_err(NotMade::from),
        Err(_) => Err(NotMade::Silent { seconds: CONNECT_TIMEOUT.as_secs() }),
    };
    let listener = listening.map_err(|reason| {
        let failed = event(Code::SessionListen).field("target", asked.to_string().as_str());
        let message = format!("cannot listen: {reason}");
        shared.server.sink.emit(failed.message(message).field("success", false));
        ForwardRefused::Listen { target: asked.clone(), reason }
    })?;
    let port = listener.port();
    let bound = asked.clone().with_port(port);
    let name = bound.to_string();
    let told = event(Code::SessionListen).field("target", name.as_str()).field("success", true);
    shared.server.sink.emit(told.message(format!("listening on {name}")));
    let end = End { shared: shared.clone(), target: name, connections: 0 };
    let task = tokio::spawn(accept(listener, client, bound, end).in_current_span());
    Ok(Listening { task: task.abort_handle(), port })
}

/// Tells of a listener's end, however it comes.
struct End {
    shared: Arc<Shared>,
    target: String,
    connections: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        let event = self.shared.event(Code::SessionListenEnd);
        self.shared.server.sink.emit(
            event
                .message(format!("no longer listening on {}", self.target))
                .field("target", self.target.as_str())
                .field("direction", Direction::Remote.as_str())
                .field("connections", self.connections),
        );
    }
}

async fn accept(mut listener: Box<dyn Listener>, client: Caller, bound: Target, mut end: End) {
    let mut failures = 0;
    while failures < ACCEPT_FAILURES {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection to a forwarded port failed");
                failures += 1;
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failures = 0;
        end.connections += 1;
        // Again for each: roles and locks may have changed since.
        if check(&client.shared, bound.clone(), Direction::Remote).is_err() {
            continue;
        }
        let opening = match &bound {
            Target::Port { host, port } => Opening::Port {
                address: host.clone(),
                port: u32::from(*port),
                from: from.map_or_else(Default::default, |from| {
                    (from.ip().to_canonical().to_string(), u32::from(from.port()))
                }),
            },
            Target::Socket { path } => Opening::Socket { path: path.clone() },
        };
        let client = client.clone();
        tokio::spawn(async move { client.carry(opening, stream).await }.in_current_span());
    }
}
