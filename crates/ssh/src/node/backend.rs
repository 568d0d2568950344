//! What stands behind the SSH server: where sessions run and connections go. On a node that is its own machine
//! ([`super::local::Local`]).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use sallyport_access::Identity;
use sallyport_access::Permit;
use ssh_key::Certificate;

use super::client::Client;
use super::error::{BeginError, EnterError, LoginError};
use crate::BoxedStream;
use crate::session::{Ended, Input, Kind, Observer, Output, Running, Terminal};

/// How a user's identity is proven.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// By SSH, with this certificate.
    Ssh(&'a Certificate),
    /// To the caller that has brought the connection, which then carries no SSH: by this certificate, DER.
    Native(&'a Bytes),
}

/// Serves those who have been let in.
#[async_trait]
pub(crate) trait BackEnd: Send + Sync + fmt::Debug {
    /// The place of a login, asked for once a connection, when it has been let in.
    ///
    /// # Errors
    /// What the person reads when the login has none.
    async fn enter(
        &self,
        identity: &Identity,
        proof: Proof<'_>,
        permit: &Permit,
    ) -> Result<Arc<dyn Place>, EnterError>;

    /// Whether who may enter is decided here, by what they prove. Otherwise the node behind decides, and the caller
    /// that brought the connection knows whose it is; see [`BackEnd::undecided`]. Default: here.
    fn is_decided_here(&self) -> bool {
        true
    }

    /// The place of a login for which nothing is decided here, where there is one. Default: there is none.
    fn undecided(&self, _user: &str) -> Option<Arc<dyn Place>> {
        None
    }

    /// Waits until there is nothing to go to any more, and says why. Default: there is always something.
    async fn gone(&self) -> String {
        std::future::pending().await
    }
}

/// What one login can have done for it. The caller has made every check.
#[async_trait]
pub(crate) trait Place: Send + Sync + fmt::Debug {
    /// Starts a session that PAM has to open first. None where PAM is not asked: then [`Place::run`] starts it.
    ///
    /// # Errors
    /// Why there is none, for the person.
    async fn begin(&self, _: &Asked) -> Result<Option<Running>, BeginError> {
        Ok(None)
    }

    /// Runs a session to its end. Dropping the future hangs it up. What cannot start has been cut for that reason.
    async fn run(
        &self,
        session: Asked,
        begun: Option<Running>,
        input: Box<dyn Input>,
        output: Arc<dyn Output>,
        observer: Arc<dyn Observer>,
    ) -> Ended;

    /// Whether files are served there by this program, whatever is asked to serve them.
    fn serves_files(&self) -> bool {
        false
    }

    /// Whether a session there could alter or remove what is kept of it here.
    fn reaches_records(&self) -> bool {
        false
    }

    /// Whether the client's agent is needed to get there at all, for which no role is asked: nothing of it is there to be
    /// reached from a session.
    fn wants_agent(&self) -> bool {
        false
    }

    /// Gets there with the client's agent, if a session has brought one.
    ///
    /// # Errors
    /// What the person reads.
    async fn lend_agent(&self, _: Option<Client>) -> Result<(), LoginError> {
        Ok(())
    }

    /// Lets a session that is about to run reach its client's agent, by channels that are opened through `client`.
    async fn agent(&self, client: Client) -> io::Result<Reach>;

    /// Lets a session that is about to run reach its client's display, in the same way.
    async fn display(&self, client: Client, asked: &DisplayAsked) -> io::Result<Reach>;

    /// Connects to somewhere else. The caller bounds the time.
    async fn connect(&self, target: &Target) -> io::Result<Connected>;

    /// Listens for the client. The caller bounds the time.
    async fn listen(&self, target: &Target) -> io::Result<Box<dyn Listener>>;
}

/// A connection to somewhere else.
pub(crate) struct Connected {
    pub(crate) stream: BoxedStream,
    /// The address that the target turned out to be.
    pub(crate) peer: Option<String>,
}

/// A place that is listened on for a client; ends when dropped.
#[async_trait]
pub(crate) trait Listener: Send {
    /// The port, when one was allocated or asked for; 0 for a socket.
    fn port(&self) -> u16;
    /// The next connection, and who made it.
    async fn accept(&mut self) -> io::Result<(BoxedStream, Option<SocketAddr>)>;
}

/// A session that a client asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What to run.
    pub(crate) kind: Kind,
    /// A terminal, when the client wants one.
    pub(crate) terminal: Option<Terminal>,
    /// Variables on top of the account's own.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether the file service says what the files contain.
    pub(crate) hash_files: bool,
    /// Where the person is.
    pub(crate) from: Option<IpAddr>,
    /// The client's display, when the session is to reach it.
    pub(crate) display: Option<DisplayAsked>,
}

/// What a client says of its display (RFC 4254 §6.3.1).
#[derive(Clone)]
pub(crate) struct DisplayAsked {
    /// One connection, and no more.
    pub(crate) single: bool,
    /// How the session's programs prove themselves: `MIT-MAGIC-COOKIE-1`.
    pub(crate) protocol: String,
    /// By what. The client takes it for the true one, which it keeps.
    pub(crate) cookie: Vec<u8>,
    pub(crate) screen: u32,
}

impl fmt::Debug for DisplayAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DisplayAsked").field("screen", &self.screen).finish_non_exhaustive()
    }
}

impl DisplayAsked {
    /// From what the client sends; none for what is no such request.
    pub(crate) fn read(single: bool, protocol: &str, cookie: &str, screen: u32) -> Option<Self> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let cookie = data_encoding::HEXLOWER_PERMISSIVE.decode(cookie.as_bytes()).ok()?;
        let known = !protocol.is_empty() && protocol.len() <= 64 && protocol.chars().all(fine);
        (known && (1..=64).contains(&cookie.len()) && screen < 1000).then(|| Self {
            single,
            protocol: protocol.to_owned(),
            cookie,
            screen,
        })
    }
}

/// Something of the client's that a session can reach, for as long as this lives.
pub(crate) struct Reach {
    /// What tells the session's programs where it is.
    pub(crate) environment: Vec<(String, String)>,
    /// What takes it away when dropped.
    pub(crate) _guard: Box<dyn Send>,
}

/// Where a connection goes, or where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// A port of a machine, by name or address.
    Port {
        /// As the client named it.
        host: String,
        /// 0 to listen on any.
        port: u16,
    },
    /// A Unix socket.
    Socket {
        /// Its path.
        path: String,
    },
}

impl Target {
    /// The same, on the port that was allocated.
    pub(crate) fn with_port(self, port: u16) -> Self {
        match self {
            Self::Port { host, .. } => Self::Port { host, port },
            socket @ Self::Socket { .. } => socket,
        }
    }

    /// A port as SSH writes it, in 32 bits (RFC 4254 §7).
    ///
    /// # Errors
    /// [`TargetError::NoPort`].
    pub(crate) fn port(host: &str, port: u32) -> Result<Self, TargetError> {
        let port = u16::try_from(port).map_err(|_| TargetError::NoPort { port })?;
        Ok(Self::Port { host: host.to_owned(), port })
    }

    /// The same, as something to connect to.
    ///
    /// # Errors
    /// [`TargetError::AnyPort`]: a client may listen on any port, and connect to none.
    pub(crate) fn connectable(self) -> Result<Self, TargetError> {
        match self {
            Self::Port { port: 0, .. } => Err(TargetError::AnyPort),
            target => Ok(target),
        }
    }

    /// Checks what no role can allow.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), TargetError> {
        match self {
            Self::Port { host, .. } if host.len() > MOST_NAME_BYTES || host.contains('\0') => {
                Err(TargetError::NoHost { bytes: host.len() })
            }
            Self::Socket { path } if !path.starts_with('/') || path.contains('\0') => {
                Err(TargetError::NoPath)
            }
            Self::Socket { path } if path.len() > MOST_PATH_BYTES => {
                Err(TargetError::LongPath { bytes: path.len() })
            }
            Self::Port { .. } | Self::Socket { .. } => Ok(()),
        }
    }
}

/// What is wrong with where a client wants to connect or listen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("{port} is not a port")]
    NoPort { port: u32 },
    #[error("0 is not a port to connect to")]
    AnyPort,
    #[error("{bytes} bytes are no name of a machine")]
    NoHost { bytes: usize },
    #[error("the path of a Unix socket on a node begins with /")]
    NoPath,
    #[error("the path of a Unix socket has at most {MOST_PATH_BYTES} bytes, this one {bytes}")]
    LongPath { bytes: usize },
}

/// Longest name of a machine (RFC 1035 §2.3.4).
const MOST_NAME_BYTES: usize = 255;
/// unix(7): 108 with the byte that ends it.
const MOST_PATH_BYTES: usize = 107;

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Port { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { path } => f.write_str(path),
        }
    }
}
