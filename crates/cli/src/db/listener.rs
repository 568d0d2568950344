//! Addresses on this machine to which clients of databases connect.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sallyport_databases::postgres::error::{Refusal, SqlState};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::owner;
use super::startup::{self, Pins, Unusable};
use crate::error::{CliError, CliResult, Context, Exit};
use sallyport_client::dial;
use sallyport_helper::databases::Databases;
use sallyport_helper::socket;

/// Clients of one address at a time: more than any pool has. Others wait.
const MOST_CLIENTS: usize = 1000;
/// After an accept that failed: descriptors come back when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What libpq calls the socket of a server in a directory that it is given as the host.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// The longest path of a socket (`sun_path` of unix(7)), without its final zero.
const LONGEST_PATH: usize = 107;

/// A directory of this user's alone, with a path that is short enough for a socket. It goes when it is dropped.
pub(super) fn place() -> CliResult<tempfile::TempDir> {
    let doing = "make a directory for the socket";
    let mine = fs::Permissions::from_mode(0o700);
    let make = |parent: &Path| {
        tempfile::Builder::new().prefix("sallyport-db-").permissions(mine.clone()).tempdir_in(parent)
    };
    let place = make(&std::env::temp_dir()).doing(doing)?;
    if place.path().join(SOCKET_NAME).as_os_str().len() <= LONGEST_PATH {
        return Ok(place);
    }
    make(Path::new("/tmp")).doing(doing)
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Parses `HOST:PORT` of this machine, or the path of a socket or of a directory for one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            let path = PathBuf::from(text);
            return Ok(Self::Unix(if path.is_dir() { path.join(SOCKET_NAME) } else { path }));
        }
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        named.as_deref().unwrap_or(text).parse().map(Self::Tcp).map_err(|_| {
            format!(
                "{text:?} is neither an address such as 127.0.0.1:5432 nor a path such as /run/user/1000/db"
            )
        })
    }

    /// Whether only programs of this machine get there.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Something that listens. A socket's file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    inner: Inner,
    address: Address,
}

#[derive(Debug)]
enum Inner {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    pub(super) async fn bind(address: &Address) -> CliResult<Self> {
        let doing = format!("listen on {address}");
        match address {
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).await.doing(&doing)?;
                let address = Address::Tcp(listener.local_addr().doing(&doing)?);
                Ok(Self { inner: Inner::Tcp(listener), address })
            }
            Address::Unix(path) => {
                leave_no_corpse(path).await?;
                let listener = UnixListener::bind(path).doing(&doing)?;
                // A client of another user in the moment before this is refused below.
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).doing(&doing)?;
                Ok(Self { inner: Inner::Unix(listener), address: address.clone() })
            }
        }
    }

    /// Where it listens, with the port that it was given.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The next client; by a socket of this user alone, by TCP of whomever.
    async fn accept(&self) -> io::Result<Accepted> {
        match &self.inner {
            Inner::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let between = Some((client, stream.local_addr()?));
                // Sockets of every family are read and written alike.
                let socket = std::os::unix::net::UnixStream::from(OwnedFd::from(stream.into_std()?));
                Ok(Accepted { stream: UnixStream::from_std(socket)?, between })
            }
            Inner::Unix(listener) => loop {
                let (stream, _) = listener.accept().await?;
                if socket::is_me(&stream)? {
                    return Ok(Accepted { stream, between: None });
                }
            },
        }
    }
}

/// A client.
struct Accepted {
    stream: UnixStream,
    /// By TCP: its address and ours.
    between: Option<(SocketAddr, SocketAddr)>,
}

impl Accepted {
    /// Refuses a client by TCP that is another user's: a tunnel would let it in as this one.
    async fn check(&self) -> CliResult {
        let Some((client, here)) = self.between else { return Ok(()) };
        let refused = |whose: &str| {
            CliError::new(format!("refused a client at {client}: {whose}"))
                .hint("--any-local-user lets every user of this machine in as you")
                .exit(Exit::Refused)
        };
        let found = tokio::task::spawn_blocking(move || owner::of(client, here)).await;
        match found.doing("learn whose a connection is")? {
            Ok(user) if user == rustix::process::geteuid().as_raw() => Ok(()),
            Ok(user) => Err(refused(&format!("it is a program of user {user}, and not yours"))),
            Err(error) => Err(refused(&format!("whose it is cannot be learnt: {error}"))),
        }
    }

    /// Tells the client that it is refused, in words that its user can act on. Nothing is read for that: another user's
    /// program is to hold none of the places here.
    async fn refuse(&mut self) {
        let message = "this tunnel serves the programs of the user who started it alone";
        let refusal = Refusal::new(SqlState::InvalidAuthorization, message)
            .hint("start your own: sallyport proxy db --tunnel; or ask its user for --any-local-user");
        let _ = self.stream.write_all(&refusal.to_bytes()).await;
        let _ = self.stream.shutdown().await;
    }
}

/// Removes a socket that no process listens on any more.
async fn leave_no_corpse(path: &Path) -> CliResult {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && UnixStream::connect(path).await.is_err() {
        fs::remove_file(path).doing(format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// What is done with the clients of one address.
pub(super) enum Route {
    /// They need no TLS and no certificate: theirs is the login of the user who runs this. By TCP, with `any_user` every user of this machine may come.
    Tunnel { databases: Rc<Databases>, database: String, pins: Pins, any_user: bool },
    /// Their bytes go to the cluster's public address as they are.
    Relay { proxy: String },
}

/// Serves one address for as long as it is waited for. `failed` is told what clients cannot be told.
pub(super) async fn serve(listener: Listener, route: Route, failed: impl Fn(&CliError) + Clone + 'static) {
    let route = Rc::new(route);
    let seats = Arc::new(Semaphore::new(MOST_CLIENTS));
    let mut failing = false;
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(client) => {
                failing = false;
                let (route, failed) = (Rc::clone(&route), failed.clone());
                tokio::task::spawn_local(async move {
                    if let Err(error) = route.carry(client).await {
                        failed(&error);
                    }
                    drop(seat);
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    failed(&CliError::new(format!(
                        "cannot take connections on {}: {error}",
                        listener.address
                    )));
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Route {
    async fn carry(&self, mut client: Accepted) -> CliResult {
        match self {
            Self::Relay { proxy } => relay(client.stream, proxy).await,
            Self::Tunnel { databases, database, pins, any_user } => {
                if !any_user && let Err(error) = client.check().await {
                    client.refuse().await;
                    return Err(error);
                }
                tunnel(client.stream, databases, database, pins).await
            }
        }
    }
}

async fn tunnel(mut client: UnixStream, databases: &Databases, database: &str, pins: &Pins) -> CliResult {
    let early = match startup::admit(&mut client, pins).await {
        Ok(early) => early,
        Err(Unusable::Gone) => return Ok(()),
        Err(Unusable::Foreign(why)) => {
            return Err(CliError::new(format!("a client was not understood: {why}")));
        }
        Err(Unusable::Refused(refusal)) => {
            let _ = client.write_all(&refusal.to_bytes()).await;
            let _ = client.shutdown().await;
            return Err(CliError::new(refusal.message).exit(Exit::Refused));
        }
    };
    let client = client.into_std().doing("take the client's connection")?;
    Ok(databases.carry(database, early, OwnedFd::from(client)).await?)
}

async fn relay(mut client: UnixStream, proxy: &str) -> CliResult {
    let mut upstream: TcpStream = dial::dial(proxy).await?;
    // How a connection ends is between the client and the cluster.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    Ok(())
}
