//! The way to a database: TCP, TLS, and the login, up to its first `ReadyForQuery`.

mod error;
mod login;
mod upstream;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use sallyport_access::{Database, DatabaseLogin, DatabaseTlsMode};
use sallyport_audit::PHASE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::{Span, info_span};

pub use self::error::ConnectError;
pub(super) use self::login::{LoggedIn, Login, Secret};
pub(crate) use self::upstream::Upstream;
pub(super) use self::wire::Wire;
use super::asked::Wanted;
use super::read_ahead::ReadAhead;
use super::shared::Shared;
use crate::postgres::scram::Channel;
use crate::postgres::startup::{self, CancelKey, Startup};

/// How long a connection without a sound may live when the other end is gone.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Dials a database as its document says, with TLS unless that is off.
pub(crate) async fn dial(
    database: &Database,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
    opening: &Span,
) -> Result<Upstream, ConnectError> {
    let address = database.address.as_str();
    let dialling = info_span!(target: PHASE, parent: opening, "database.dial");
    let late = || late(database, patience);
    let unreachable = |error: io::Error| ConnectError::Unreachable {
        address: address.to_owned(),
        problem: error.to_string(),
    };
    let mut stream =
        timeout(patience, TcpStream::connect(address)).await.map_err(|_| late())?.map_err(unreachable)?;
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    drop(dialling);
    let Some(config) = tls else { return Ok(Upstream::Plain(stream)) };
    let _securing = info_span!(target: PHASE, parent: opening, "database.tls");
    let mut answer = [0];
    timeout(patience, async {
        stream.write_all(&startup::ask_for_tls()).await?;
        stream.read_exact(&mut answer).await
    })
    .await
    .map_err(|_| late())?
    .map_err(unreachable)?;
    match answer {
        [startup::ACCEPTED] => {}
        [startup::DECLINED] => return Err(ConnectError::NoTls { address: address.to_owned() }),
        _ => {
            let what = "it is no PostgreSQL by its answer to the request for TLS".to_owned();
            return Err(ConnectError::Protocol { address: address.to_owned(), what });
        }
    }
    let name = server_name(database)?;
    let connected = timeout(patience, TlsConnector::from(config).connect(name, ReadAhead::new(stream))).await;
    let stream = connected
        .map_err(|_| late())?
        .map_err(|error| ConnectError::Tls { address: address.to_owned(), problem: error.to_string() })?;
    Ok(Upstream::Tls(Box::new(stream)))
}

/// Of a database that has not answered in time.
pub(super) fn late(database: &Database, patience: Duration) -> ConnectError {
    let problem = format!("it has not answered within {patience:?}");
    ConnectError::Unreachable { address: database.address.as_str().to_owned(), problem }
}

fn keep_alive(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// The name that the server's certificate is for.
fn server_name(database: &Database) -> Result<ServerName<'static>, ConnectError> {
    let host = database.tls.server_name.clone().unwrap_or_else(|| {
        let host = database.address.rsplit_once(':').map_or(database.address.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    });
    ServerName::try_from(host.clone()).map_err(|_| ConnectError::Tls {
        address: database.address.clone(),
        problem: format!("{host:?} is no name that a certificate can have"),
    })
}

/// The credentials' TLS configuration, where the database has TLS.
pub(crate) async fn tls_for(
    shared: &Shared,
    wanted: &Wanted,
) -> Result<Option<Arc<ClientConfig>>, ConnectError> {
    match wanted.database.tls.mode {
        DatabaseTlsMode::Disabled => Ok(None),
        _ => Ok(Some(shared.settings.credentials.tls(wanted).await?)),
    }
}

/// A session that is ready.
pub(crate) struct Opened {
    pub(crate) stream: Upstream,
    /// What the server has said after the greeting.
    pub(crate) rest: BytesMut,
    /// What the client reads first: from `AuthenticationOk` on.
    pub(crate) greeting: Vec<u8>,
    /// What the server cancels by.
    pub(crate) key: Option<CancelKey>,
}

/// Connects and logs in. `client_key` is what the client is told to cancel with, instead of the server's; `opening` is what
/// its phases are parts of.
pub(crate) async fn open(
    shared: &Shared,
    wanted: &Wanted,
    tls: Option<Arc<ClientConfig>>,
    startup: &Startup,
    client_key: &CancelKey,
    opening: &Span,
) -> Result<Opened, ConnectError> {
    let patience = shared.settings.patience;
    let stream = dial(&wanted.database, tls, patience, opening).await?;
    let channel = match wanted.database.login {
        DatabaseLogin::Certificate => Channel::Plain,
        DatabaseLogin::Password => stream.channel(wanted.database.tls.mode),
    };
    let _logging_in = info_span!(target: PHASE, parent: opening, "database.login");
    let secret = match wanted.database.login {
        DatabaseLogin::Certificate => Secret::Certificate,
        DatabaseLogin::Password => Secret::Password(shared.settings.credentials.password(wanted)),
    };
    let address = wanted.database.address.clone();
    let login = Login::new(stream, channel, &address);
    // A database that wakes up, or is busy, takes its time to greet; connections of libpq wait for ever.
    let patience = patience.saturating_mul(3);
    let LoggedIn { stream, greeting, rest, key } =
        timeout(patience, login.run(startup, secret, client_key)).await.map_err(|_| {
            let problem = format!("it has not finished the login within {patience:?}");
            ConnectError::Unreachable { address, problem }
        })??;
    Ok(Opened { stream, rest, greeting, key })
}
