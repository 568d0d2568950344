//! Addresses on this machine to which local programs connect.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::owner;
use crate::error::{CliError, CliResult, Context, Exit};
use sallyport_helper::socket;

/// Clients of one address at a time: more than any pool has. Others wait.
const MOST_CLIENTS: usize = 1000;
/// After an accept that failed: descriptors come back when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Parses `HOST:PORT` of this machine.
    pub(crate) fn parse_tcp(text: &str) -> Option<Self> {
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        named.as_deref().unwrap_or(text).parse().map(Self::Tcp).ok()
    }

    /// Whether only programs of this machine get there.
    pub(crate) fn is_local(&self) -> bool {
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
pub(crate) struct Listener {
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
    pub(crate) async fn bind(address: &Address) -> CliResult<Self> {
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
    pub(crate) fn address(&self) -> &Address {
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
pub(crate) struct Accepted {
    pub(crate) stream: UnixStream,
    /// By TCP: its address and ours.
    between: Option<(SocketAddr, SocketAddr)>,
}

impl Accepted {
    /// Refuses a client by TCP that is another user's: a tunnel would let it in as this one.
    pub(crate) async fn check(&self) -> CliResult {
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

    /// Ends the connection of a client that is refused, with words in its protocol where that has some. Nothing is read for that:
    /// another user's program is to hold none of the places here.
    pub(crate) async fn refuse(mut self, words: &[u8]) {
        let _ = self.stream.write_all(words).await;
        let _ = self.stream.shutdown().await;
    }

    /// The client's socket.
    pub(crate) fn into_socket(self) -> CliResult<OwnedFd> {
        self.stream.into_std().doing("take the client's connection").map(OwnedFd::from)
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

/// Serves one address for as long as it is waited for: `carry` has each client to its end, and `failed` is told what clients
/// cannot be told.
pub(crate) async fn serve<C>(
    listener: Listener,
    carry: impl Fn(Accepted) -> C + Clone + 'static,
    failed: impl Fn(&CliError) + Clone + 'static,
) where
    C: Future<Output = CliResult> + 'static,
{
    let seats = Arc::new(Semaphore::new(MOST_CLIENTS));
    let mut failing = false;
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        match listener.accept().await {
            Ok(client) => {
                failing = false;
                let (carried, failed) = (carry(client), failed.clone());
                tokio::task::spawn_local(async move {
                    if let Err(error) = carried.await {
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
