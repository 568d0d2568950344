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

mod connection;
mod credentials;
mod endpoint;
mod entering;
mod error;
mod events;
mod forward;
mod native;
mod opening;
mod phases;
mod pipelined;
mod refusals;
mod remotes;
mod request;
mod requests;
mod session;
mod settings;
mod socks;
mod x11;

use std::sync::Arc;

use futures::future::BoxFuture;
use russh::SshId;
use sallyport_sal::selection;
use tracing::{Instrument, debug, debug_span};

pub use crate::request::Program;
pub use crate::session::{Size as WindowSize, Terminal};
pub use crate::transport::Limits;
pub use connection::Connection;
pub use credentials::Credentials;
pub use endpoint::Endpoint;
pub use error::ClientError;
pub(crate) use forward::RemoteListener;
pub use forward::{Forward, Listener, RemoteForward};
pub(crate) use native::Extras as NativeExtras;
pub use opening::{DirectStream, SftpStream};
pub use phases::PHASE;
pub use remotes::Report;
pub use request::{Exit, Output, SessionRequest};
pub(crate) use requests::{Request, Requests};
/// The number of a terminal mode (RFC 4254 §8), for [`Terminal::modes`].
pub use russh::Pty as TerminalMode;
pub use session::{Session, SessionInput, SessionOutput};
pub use settings::Settings;
pub(crate) use settings::{AgentSource, Extras, Whom};
pub(crate) use x11::DisplayOrigin;
pub use x11::{Display, DisplayError};

use crate::algorithms;
use crate::capabilities::IDENTIFICATION;
use crate::pump::Slack;
use crate::transport::Opening;
use crate::{BoxedStream, Stream};
use connection::{Inner, Line, SshLine};
use events::{Events, Said};
use refusals::Refusals;
use remotes::Remotes;
use settings::{AgentSocket, KEEPALIVES_UNANSWERED};

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
    let layer = selection::global().is_fips().then(Limits::default);
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
        let refusals = Refusals::default();
        let slack = Slack::default();
        let remotes = Arc::new(Remotes::default());
        let events = Events {
            host: settings.host.clone(),
            trust: settings.trust,
            agent: settings.agent,
            said: Arc::clone(&said),
            refusals: refusals.clone(),
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

/// Speaks the native protocol over a stream that is proven in both directions, and on which the proxy or the node has let this user in.
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
