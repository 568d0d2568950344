//! The way to a database: TCP, TLS, and the login, up to its first `ReadyForQuery`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use data_encoding::BASE64;
use sallyport_access::{Database, DatabaseLogin, DatabaseTlsMode};
use sallyport_audit::PHASE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tracing::{Span, info_span};
use zeroize::Zeroizing;

use super::read_ahead::ReadAhead;
use super::{CredentialsError, Shared, Wanted};
use crate::postgres::encoding::Encoding;
use crate::postgres::error::{Refusal, SqlState};
use crate::postgres::exchange::Told;
use crate::postgres::frame::HEADER_BYTES;
use crate::postgres::message::{Fields, encode};
use crate::postgres::scram::{self, ScramError};
use crate::postgres::startup::{self, CancelKey, Startup};

/// All that a server may say before it is ready.
const LONGEST_GREETING: usize = 128 * 1024;
/// How long a connection without a sound may live when the other end is gone.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Why there is no session with a database. Its message says which, where and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("the database at {address} cannot be reached: {problem}")]
    Unreachable { address: String, problem: String },
    #[error("the database at {address} takes no TLS")]
    NoTls { address: String },
    #[error("the TLS connection to the database at {address} failed: {problem}")]
    Tls { address: String, problem: String },
    #[error("the database's login failed: {0}")]
    Scram(#[from] ScramError),
    #[error("the database asks for {0}, which is not used")]
    Method(&'static str),
    #[error("the database asks for a password, and {0}")]
    NoPassword(&'static str),
    /// The server's own refusal, as it came.
    #[error("the database refused the session: {message} ({code})")]
    Server { code: String, message: String, bytes: Vec<u8> },
    #[error("the database user cannot be made: {0}")]
    Provision(String),
    /// What concerns the user was not done in time.
    #[error("the database answers too late: {0}")]
    Late(String),
    /// The session may not be, for now or with this user.
    #[error("{message}")]
    Denied { message: String, hint: &'static str },
    /// The database user may run what is not in the record, and the roles want no such.
    #[error("the database user {user} may run what is not in the record (db_unseen_sql: refused): {why}")]
    Unseen { user: String, why: String },
    #[error("the database at {address} does not keep to the protocol: {what}")]
    Protocol { address: String, what: String },
}

impl ConnectError {
    /// A stable word for traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Unreachable { .. } => "unreachable",
            Self::NoTls { .. } => "no_tls",
            Self::Tls { .. } => "tls",
            Self::Scram(_) | Self::Method(_) | Self::NoPassword(_) => "login",
            Self::Server { .. } => "refused_by_database",
            Self::Provision(_) => "provision",
            Self::Late(_) => "late",
            Self::Denied { .. } => "denied",
            Self::Unseen { .. } => "unseen_sql",
            Self::Protocol { .. } => "protocol",
        }
    }

    /// What the client reads.
    pub(crate) fn to_bytes(&self, name: &str) -> Vec<u8> {
        let refusal = |state, hint: &str| {
            let refusal = Refusal::new(state, format!("{name}: {self}"));
            if hint.is_empty() { refusal.to_bytes() } else { refusal.hint(hint).to_bytes() }
        };
        match self {
            Self::Server { bytes, .. } => bytes.clone(),
            Self::Credentials(CredentialsError::Refused(_)) => {
                refusal(SqlState::InvalidAuthorization, "see what you may use: sallyport db ls")
            }
            Self::Credentials(CredentialsError::Unavailable(_)) => {
                refusal(SqlState::CannotConnectNow, "try again; if it stays so, tell an administrator")
            }
            Self::Unreachable { .. } => refusal(
                SqlState::CannotConnectNow,
                "is the database running? see its health: sallyport db ls",
            ),
            Self::NoTls { .. } => refusal(
                SqlState::ConnectionFailure,
                "turn on TLS in the database (ssl = on in postgresql.conf)",
            ),
            Self::Tls { .. } => refusal(
                SqlState::ConnectionFailure,
                "the database's certificate has to be of the CA and the name that the resource says (tls.ca, \
                 tls.server_name), and the database has to trust the cluster's db_client CA (ssl_ca_file)",
            ),
            Self::Method(_) => refusal(
                SqlState::InvalidAuthorization,
                "let the database ask for a certificate (hostssl ... cert in pg_hba.conf), or for scram-sha-256 with \
                 login: password in the resource",
            ),
            Self::NoPassword(_) => refusal(
                SqlState::InvalidAuthorization,
                "let the database ask for a certificate (hostssl ... cert in pg_hba.conf), or give the resource \
                 login: password and the agent a password file (node.pgpass)",
            ),
            Self::Scram(_) => refusal(
                SqlState::InvalidAuthorization,
                "check the agent's password file (node.pgpass) against the database",
            ),
            Self::Provision(_) => refusal(
                SqlState::InvalidAuthorization,
                "the account that the resource names (admin_user) has to be there with LOGIN and CREATEROLE, be let in \
                 by certificate as others are, and may grant the roles of db_roles",
            ),
            Self::Late(_) => refusal(
                SqlState::CannotConnectNow,
                "try again; if it stays so, the database is overloaded, or somebody holds its locks",
            ),
            Self::Denied { hint, .. } => refusal(SqlState::InvalidAuthorization, hint),
            Self::Unseen { .. } => refusal(
                SqlState::InvalidAuthorization,
                "log in as a database user without that right (-U), or have it taken away at the database",
            ),
            Self::Protocol { .. } => refusal(SqlState::ConnectionFailure, ""),
        }
    }
}

/// A connection to a database.
pub(crate) enum Upstream {
    Plain(TcpStream),
    Tls(Box<TlsStream<ReadAhead<TcpStream>>>),
}

/// Dials a database as its document says, with TLS unless that is off.
pub(crate) async fn dial(
    database: &Database,
    tls: Option<Arc<ClientConfig>>,
    patience: Duration,
    opening: &Span,
) -> Result<Upstream, ConnectError> {
    let address = database.address.as_str();
    let dialling = info_span!(target: PHASE, parent: opening, "database.dial");
    let late = || ConnectError::Unreachable {
        address: address.to_owned(),
        problem: format!("it has not answered within {} s", patience.as_secs()),
    };
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
    let failed = |problem: String| ConnectError::Tls { address: address.to_owned(), problem };
    let name = server_name(database).map_err(failed)?;
    let connected = timeout(patience, TlsConnector::from(config).connect(name, ReadAhead::new(stream))).await;
    let stream = connected.map_err(|_| late())?.map_err(|error| failed(error.to_string()))?;
    Ok(Upstream::Tls(Box::new(stream)))
}

fn keep_alive(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// The name that the server's certificate is for.
fn server_name(database: &Database) -> Result<ServerName<'static>, String> {
    let host = database.tls.server_name.clone().unwrap_or_else(|| {
        let host = database.address.rsplit_once(':').map_or(database.address.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    });
    ServerName::try_from(host.clone()).map_err(|_| format!("{host:?} is no name that a certificate can have"))
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
    let _logging_in = info_span!(target: PHASE, parent: opening, "database.login");
    let password = match wanted.database.login {
        DatabaseLogin::Certificate => Err("this database is logged in to by certificate"),
        DatabaseLogin::Password => shared
            .settings
            .credentials
            .password(wanted)
            .ok_or("the agent's password file has none for this user and database"),
    };
    let address = wanted.database.address.clone();
    let mut login = Login::new(stream, &address);
    // A database that wakes up, or is busy, takes its time to greet; connections of libpq wait for ever.
    timeout(patience.saturating_mul(3), login.run(startup, password, client_key)).await.map_err(|_| {
        ConnectError::Unreachable { address, problem: "it does not finish the login".to_owned() }
    })??;
    let (stream, rest) = login.wire.into_parts();
    Ok(Opened { stream, rest, greeting: login.greeting, key: login.key })
}

pub(super) struct Login<S> {
    wire: Wire<S>,
    greeting: Vec<u8>,
    key: Option<CancelKey>,
    authenticated: bool,
}

/// Messages of a server, one after the other.
pub(super) struct Wire<S = Upstream> {
    stream: S,
    buffer: BytesMut,
    address: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Login<S> {
    pub(super) fn new(stream: S, address: &str) -> Self {
        let wire = Wire::new(stream, BytesMut::new(), address);
        Self { wire, greeting: Vec::with_capacity(512), key: None, authenticated: false }
    }

    /// What the client reads first, and what the server has said after it.
    pub(super) fn into_parts(self) -> (Vec<u8>, BytesMut) {
        (self.greeting, self.wire.buffer)
    }

    pub(super) async fn run(
        &mut self,
        startup: &Startup,
        password: Result<Zeroizing<String>, &'static str>,
        client_key: &CancelKey,
    ) -> Result<(), ConnectError> {
        self.wire.send(&startup.to_bytes()).await?;
        let mut password = Some(password);
        loop {
            let (kind, content) = self.wire.message().await?;
            match kind {
                b'R' if !self.authenticated => self.authenticate(&content, &mut password).await?,
                b'E' => {
                    let told = Told::read(&content, Encoding::Utf8);
                    let (code, message) = (told.code, told.message);
                    return Err(ConnectError::Server { code, message, bytes: encode(kind, &content) });
                }
                b'K' => {
                    let mut fields = Fields::new(&content);
                    let process =
                        fields.u32().ok_or_else(|| self.wire.wrong("a cancel key without a process"))?;
                    self.key = Some(CancelKey { process, secret: fields.rest().to_vec() });
                    let ours = [&client_key.process.to_be_bytes()[..], &client_key.secret].concat();
                    self.greet(kind, &ours)?;
                }
                b'Z' if self.authenticated => {
                    self.greet(kind, &content)?;
                    return Ok(());
                }
                b'S' | b'N' => self.greet(kind, &content)?,
                // §53.2.1: before all else.
                b'v' if self.greeting.is_empty() => self.greet(kind, &content)?,
                other => {
                    let what = format!("a message of kind {:?} during the login", char::from(other));
                    return Err(self.wire.wrong(&what));
                }
            }
        }
    }

    async fn authenticate(
        &mut self,
        content: &[u8],
        password: &mut Option<Result<Zeroizing<String>, &'static str>>,
    ) -> Result<(), ConnectError> {
        let mut fields = Fields::new(content);
        // §53.7, Authentication*.
        match fields.u32() {
            Some(0) => {
                self.authenticated = true;
                self.greet(b'R', content)
            }
            Some(10) => {
                let mut offers = std::iter::from_fn(|| fields.text().filter(|name| !name.is_empty()));
                if !offers.any(|name| name == scram::MECHANISM.as_bytes()) {
                    return Err(ConnectError::Method("a SASL mechanism other than SCRAM-SHA-256"));
                }
                match password.take() {
                    Some(Ok(password)) => self.scram(password).await,
                    Some(Err(why)) => Err(ConnectError::NoPassword(why)),
                    None => Err(self.wire.wrong("it asks for the password again")),
                }
            }
            Some(3) => Err(ConnectError::Method("the password in plain text")),
            Some(5) => Err(ConnectError::Method("an MD5 of the password")),
            Some(7 | 8) => Err(ConnectError::Method("GSSAPI")),
            Some(9) => Err(ConnectError::Method("SSPI")),
            Some(2 | 6) => Err(ConnectError::Method("a login of long ago")),
            _ => Err(self.wire.wrong("a way to log in that nobody knows")),
        }
    }

    async fn scram(&mut self, password: Zeroizing<String>) -> Result<(), ConnectError> {
        let nonce = sallyport_sal::random::bytes::<24>().map_err(|_| ScramError::Unavailable)?;
        let first = scram::First::new(BASE64.encode(&nonce));
        let said = first.message();
        let mut content = Vec::with_capacity(64);
        content.extend_from_slice(scram::MECHANISM.as_bytes());
        content.push(0);
        content.extend_from_slice(&u32::try_from(said.len()).unwrap_or(u32::MAX).to_be_bytes());
        content.extend_from_slice(said.as_bytes());
        self.wire.send(&encode(b'p', &content)).await?;
        let server = self.sasl(11).await?;
        let work = move || first.answer(&server, password.as_bytes());
        let answered = tokio::task::spawn_blocking(work).await.map_err(|_| ScramError::Unavailable)?;
        let (answer, last) = answered?;
        self.wire.send(&encode(b'p', answer.as_bytes())).await?;
        let server = self.sasl(12).await?;
        last.check(&server)?;
        Ok(())
    }

    /// The next message of SASL's, which has this number.
    async fn sasl(&mut self, number: u32) -> Result<Vec<u8>, ConnectError> {
        let (kind, content) = self.wire.message().await?;
        let mut fields = Fields::new(&content);
        match (kind, fields.u32()) {
            (b'R', Some(got)) if got == number => Ok(fields.rest().to_vec()),
            (b'E', _) => {
                let told = Told::read(&content, Encoding::Utf8);
                let (code, message) = (told.code, told.message);
                Err(ConnectError::Server { code, message, bytes: encode(kind, &content) })
            }
            _ => Err(self.wire.wrong("something else in the middle of SCRAM")),
        }
    }

    fn greet(&mut self, kind: u8, content: &[u8]) -> Result<(), ConnectError> {
        if self.greeting.len() + content.len() > LONGEST_GREETING {
            return Err(self.wire.wrong("its greeting does not end"));
        }
        self.greeting.extend_from_slice(&encode(kind, content));
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S, buffer: BytesMut, address: &str) -> Self {
        Self { stream, buffer, address: address.to_owned() }
    }

    pub(super) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.buffer)
    }

    pub(super) fn wrong(&self, what: &str) -> ConnectError {
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

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = sent.await;
        sent.map_err(|error| self.failed(&error))
    }

    pub(super) async fn message(&mut self) -> Result<(u8, Vec<u8>), ConnectError> {
        loop {
            if let Some(([kind, length @ ..], _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() {
                let kind = *kind;
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                let Some(content) = length.checked_sub(4).filter(|_| length <= LONGEST_GREETING) else {
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

impl AsyncRead for Upstream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
