//! The client: one connection to a node over any byte stream, by SSH, proven in both directions by certificates; or by the
//! native protocol ([`crate::native`]), on a stream that is proven already. What is done on it is the same.
//!
//! The connection neither dials nor reads files: the caller brings the stream (the proxy's transport, a TCP socket)
//! and the credentials. Host keys are never asked about: a host shows a certificate of the cluster's host CA for the
//! name that was asked for, or the connection ends.
//!
//! Round trips, connect to exit status, with a server of ours: version and key exchange 2, service and key probe 2,
//! signature 1, channel 1, program 1; the requests of a session (terminal, environment, agent, program) go in one
//! flight.

mod credentials;
mod entering;
mod error;
mod events;
mod forward;
mod native;
mod phases;
mod pipelined;
mod request;
mod session;
mod socks;
mod x11;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use russh::client::{Handle, Msg};
use russh::{Channel, Disconnect, SshId};
use sallyport_ca::Trust;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, mpsc};
use tracing::{Instrument, debug, debug_span, info_span};

pub use crate::transport::Limits;
pub use credentials::Credentials;
pub use error::ClientError;
pub(crate) use forward::RemoteListener;
pub use forward::{Endpoint, Forward, Listener, RemoteForward, Report};
pub(crate) use native::Extras as NativeExtras;
pub use phases::PHASE;
pub use request::{Exit, Output, Program, SessionRequest, Terminal, WindowSize};
/// A terminal mode of RFC 4254 §8.
pub use russh::Pty as TerminalMode;
pub use session::{Session, SessionInput, SessionOutput};
pub use x11::Display;
pub(crate) use x11::DisplayOrigin;

use crate::agent::connect_forwarded;
use crate::algorithms::{self, TransportBy};
use crate::capabilities::IDENTIFICATION;
use crate::pump::Slack;
use crate::transport::Opening;
use crate::{BoxedStream, Stream};
use events::{Events, Said};
use forward::Remotes;
use native::stream::NativeStream;
use pipelined::SubsystemStream;

/// How long to wait for the words that belong to a refused channel.
const REFUSAL_TEXT_WAIT: Duration = Duration::from_secs(1);

/// Keepalives without an answer before the connection is given up.
const KEEPALIVES_UNANSWERED: usize = 3;

/// What a connection needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The OS login to ask for.
    pub login: String,
    /// The name that the host's certificate must carry.
    pub host: String,
    /// The cluster's authorities.
    pub trust: Arc<Trust>,
    /// Silence after which the host is asked for a sign of life; three without an answer end the connection.
    /// Default of the callers: 15 s. `None`: never.
    pub keepalive: Option<Duration>,
    /// Socket of the SSH agent that sessions may forward. Nothing is forwarded unless a session asks.
    pub agent: Option<PathBuf>,
}

/// Where a connection to the user's agent comes from, when a server asks for one.
#[async_trait]
pub(crate) trait AgentSource: Send + Sync + fmt::Debug {
    /// A connection to the agent.
    async fn open(&self) -> std::io::Result<BoxedStream>;
}

/// An agent that listens here.
#[derive(Debug)]
struct AgentSocket(PathBuf);

#[async_trait]
impl AgentSource for AgentSocket {
    async fn open(&self) -> io::Result<BoxedStream> {
        Ok(Box::new(connect_forwarded(&self.0, None).await?))
    }
}

/// What sort of host was dialled, which its certificate has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Whom {
    /// A node or a server, or the proxy that the authority lets stand before that server.
    #[default]
    Target,
    /// A server itself, and no proxy in its place.
    Server,
    /// A proxy, for the ways on that it opens.
    Proxy,
}

/// What a program between a user and a server needs besides [`Settings`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    /// A host key, one OpenSSH line, that is believed without a certificate.
    pub(crate) pinned: Option<String>,
    /// What sort of host was dialled.
    pub(crate) whom: Whom,
    /// The agent, in place of a socket.
    pub(crate) agent: Option<Arc<dyn AgentSource>>,
}

/// One authenticated connection. Clones share it.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    line: Line,
    host: String,
    said: Arc<Said>,
    remotes: Arc<Remotes>,
}

/// What a connection speaks.
enum Line {
    Ssh(SshLine),
    Native(native::Line),
    Pipelined(pipelined::Line),
}

struct SshLine {
    handle: Handle<Events>,
    refusals: Mutex<mpsc::UnboundedReceiver<String>>,
    slack: Slack,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("host", &self.inner.host).finish_non_exhaustive()
    }
}

/// Connects and authenticates over a stream.
///
/// # Errors
/// [`ClientError::HostCertificate`] or [`ClientError::PlainHostKey`] when the host is not who it should be,
/// [`ClientError::Authentication`] when it refuses the user, [`ClientError::Signing`] when the user's key is not there,
/// [`ClientError::Handshake`] or [`ClientError::Lost`]
/// when it does not get that far.
pub fn connect<S>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
) -> BoxFuture<'_, Result<Connection, ClientError>>
where
    S: Stream + 'static,
{
    connect_with(stream, credentials, settings, Extras::default())
}

/// Connects to a proxy's jump host, by a name that the proxy is reached by, to go on from there.
///
/// # Errors
/// As [`connect()`].
pub fn connect_to_proxy<S>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
) -> BoxFuture<'_, Result<Connection, ClientError>>
where
    S: Stream + 'static,
{
    connect_with(stream, credentials, settings, Extras { whom: Whom::Proxy, ..Extras::default() })
}

/// As [`connect()`], with keys exchanged and the login made by [`crate::transport`] in every mode, as they are in FIPS mode.
///
/// # Errors
/// As [`connect()`].
pub fn connect_by_layer<S>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
    limits: Limits,
) -> BoxFuture<'_, Result<Connection, ClientError>>
where
    S: Stream + 'static,
{
    connect_boxed(Box::new(stream), credentials, settings, Extras::default(), Some(limits))
}

pub(crate) fn connect_with<S>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
    extras: Extras,
) -> BoxFuture<'_, Result<Connection, ClientError>>
where
    S: Stream + 'static,
{
    let layer = TransportBy::Mode.is_layer().then(Limits::default);
    connect_boxed(Box::new(stream), credentials, settings, extras, layer)
}

fn connect_boxed(
    stream: BoxedStream,
    credentials: &Credentials,
    settings: Settings,
    extras: Extras,
    layer: Option<Limits>,
) -> BoxFuture<'_, Result<Connection, ClientError>> {
    let span = debug_span!("ssh_connect", host = %settings.host, login = %settings.login);
    let connecting = async move {
        let said = Arc::new(Said::default());
        let demand = settings.trust.suite().key_exchange();
        let (refusals_in, refusals) = mpsc::unbounded_channel();
        let slack = Slack::default();
        let remotes = Arc::new(Remotes::default());
        let events = Events {
            host: settings.host.clone(),
            trust: settings.trust,
            agent: settings.agent,
            said: Arc::clone(&said),
            refusals: refusals_in,
            slack: slack.clone(),
            remotes: Arc::clone(&remotes),
            extras,
            widest_window: algorithms::FIRST_WINDOW_BYTES,
        };
        let config = russh::client::Config {
            client_id: SshId::Standard(IDENTIFICATION.into()),
            limits: algorithms::client_limits(),
            window_size: algorithms::FIRST_WINDOW_BYTES,
            channel_buffer_size: algorithms::CHANNEL_PACKETS,
            preferred: algorithms::client(demand),
            keepalive_interval: settings.keepalive,
            keepalive_max: KEEPALIVES_UNANSWERED,
            ..russh::client::Config::default()
        };
        let handle = match layer {
            Some(limits) => {
                let opening = Opening { identification: IDENTIFICATION, demand, limits };
                entering::by_layer(stream, opening, config, events, credentials, &settings.login).await
            }
            None => entering::by_library(stream, config, events, credentials, &settings.login).await,
        }?;
        debug!("authenticated");
        let refusals = Mutex::new(refusals);
        let line = Line::Ssh(SshLine { handle, refusals, slack });
        let inner = Inner { line, host: settings.host, said, remotes };
        Ok(Connection { inner: Arc::new(inner) })
    };
    Box::pin(connecting.instrument(span))
}

/// Connects over a stream for **one session**, in as few round trips as SSH allows ([`crate::pipelined`]).
///
/// When this returns, the host has proven who it is, and nothing of the user's was sent. The login goes with the first
/// [`Connection::start`], in one flight with the session, and its refusal is what that says. Forwards, agents, displays
/// and further sessions are refused: [`connect()`] has them.
///
/// # Errors
/// [`ClientError::NotPipelined`] when [`connect()`] may get further, on another stream; [`ClientError::HostCertificate`] or
/// [`ClientError::PlainHostKey`] when the host is not who it should be, [`ClientError::Signing`] when the user's key is not
/// there, [`ClientError::Protocol`] or [`ClientError::Lost`] when it does not get that far.
pub fn connect_pipelined<S: Stream + 'static>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
) -> BoxFuture<'_, Result<Connection, ClientError>> {
    connect_pipelined_with(stream, credentials, settings, Limits::default())
}

/// The same with keys that are renewed at other limits than those of the standards.
///
/// # Errors
/// As [`connect_pipelined`].
pub fn connect_pipelined_with<S: Stream + 'static>(
    stream: S,
    credentials: &Credentials,
    settings: Settings,
    limits: Limits,
) -> BoxFuture<'_, Result<Connection, ClientError>> {
    connect_pipelined_boxed(Box::new(stream), credentials, settings, limits)
}

fn connect_pipelined_boxed(
    stream: BoxedStream,
    credentials: &Credentials,
    settings: Settings,
    limits: Limits,
) -> BoxFuture<'_, Result<Connection, ClientError>> {
    let span = debug_span!("ssh_pipelined", host = %settings.host, login = %settings.login);
    Box::pin(async move {
        let said = Arc::new(Said::default());
        let beginning = pipelined::begin(stream, credentials, &settings, limits, &said);
        let line = Line::Pipelined(beginning.instrument(span).await?);
        let inner = Inner { line, host: settings.host, said, remotes: Arc::default() };
        Ok(Connection { inner: Arc::new(inner) })
    })
}

/// Speaks the native protocol over a stream that is proven in both directions, and on which somebody has let this user in.
///
/// Nothing is waited for: the hello leaves with whatever is asked for first, and what the host has to say against the
/// login is what the first session says on its standard error. Of the settings, the authorities are not asked. To be
/// called where a runtime runs.
pub fn connect_native<S: Stream + 'static>(stream: S, settings: Settings) -> Connection {
    let agent = settings.agent.clone().map(|socket| Arc::new(AgentSocket(socket)) as Arc<dyn AgentSource>);
    connect_native_with(stream, settings, NativeExtras { agent, ..NativeExtras::default() })
}

/// The same for a program between the user and the node.
pub(crate) fn connect_native_with<S: Stream + 'static>(
    stream: S,
    settings: Settings,
    extras: NativeExtras,
) -> Connection {
    let said = Arc::new(Said::default());
    let remotes = Arc::new(Remotes::default());
    let line = Line::Native(native::begin(Box::new(stream), &settings, extras, &said, &remotes));
    Connection { inner: Arc::new(Inner { line, host: settings.host, said, remotes }) }
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

    /// Starts a shell, a command or a subsystem.
    ///
    /// The answers to the requests arrive as [`Output`], so that nothing waits for a round trip it need not.
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
                let opened = opening.instrument(info_span!(target: PHASE, "ssh.channel")).await;
                let channel = self.opened(ssh, "a session", opened).await?;
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

    async fn direct_channel(
        &self,
        ssh: &SshLine,
        to: &Endpoint,
        origin: std::net::SocketAddr,
    ) -> Result<Channel<Msg>, ClientError> {
        let handle = &ssh.handle;
        let opened = match to {
            Endpoint::Port { host, port } => {
                let (from, from_port) = (origin.ip().to_string(), u32::from(origin.port()));
                handle.channel_open_direct_tcpip(host.as_str(), u32::from(*port), from, from_port).await
            }
            Endpoint::Socket { path } => handle.channel_open_direct_streamlocal(path.as_str()).await,
        };
        self.opened(ssh, &format!("the connection to {to}"), opened).await
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
        let opened = ssh.handle.channel_open_session().await;
        let mut channel = self.opened(ssh, "a session", opened).await?;
        channel.request_subsystem(true, "sftp").await.map_err(|_| self.lost())?;
        session::wait_for_subsystem(self, &mut channel, "file transfer").await?;
        Ok(DirectStream(Channelled::Ssh(channel.into_stream())))
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

    /// Waits until a native connection has ended, and says why as far as anyone did. With SSH the sessions say it.
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
    fn lost(&self) -> ClientError {
        let (host, reason) = (self.inner.host.clone(), self.end());
        match &self.inner.line {
            Line::Native(line) if line.wants_ssh() => ClientError::NotNative { host, reason },
            _ => ClientError::Lost { host, reason },
        }
    }

    /// Why it ended, as far as anyone said.
    fn end(&self) -> String {
        match &self.inner.line {
            Line::Ssh(_) | Line::Pipelined(_) => self.inner.said.end(),
            Line::Native(line) => line.end(),
        }
    }

    /// Turns the library's answer to a channel request into ours, with the words of the host.
    async fn opened(
        &self,
        ssh: &SshLine,
        what: &str,
        opened: Result<Channel<Msg>, russh::Error>,
    ) -> Result<Channel<Msg>, ClientError> {
        match opened {
            Ok(channel) => Ok(channel),
            Err(russh::Error::ChannelOpenFailure(failure)) => {
                // The library reports the refusal first and its words in a callback. When several channels are
                // refused at the same moment the words may be those of another one of them.
                let text = async { ssh.refusals.lock().await.recv().await };
                let said = tokio::time::timeout(REFUSAL_TEXT_WAIT, text).await.ok().flatten();
                let reason = said.filter(|text| !text.is_empty());
                let reason = reason.unwrap_or_else(|| failure.description().to_owned());
                Err(ClientError::Refused { what: what.to_owned(), reason })
            }
            Err(russh::Error::Disconnect | russh::Error::SendError | russh::Error::HUP) => Err(self.lost()),
            Err(other) => Err(ClientError::Ssh(other)),
        }
    }
}

/// What a connection for one session does not do.
fn one_session(what: &str) -> ClientError {
    ClientError::Refused { what: what.to_owned(), reason: "this connection is for one session".to_owned() }
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
