//! Forwarded connections: listeners here whose connections come out on the host's side (`-L`, `-D`), and listeners on
//! the host whose connections come out here (`-R`).

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::Channel;
use russh::client::Msg;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;

use super::ClientError;
use super::connection::{Connection, Line, SshLine, one_session};
use super::endpoint::Endpoint;
use super::native::ListenError;
use super::native::lane::Lane;
use super::remotes::{Remotes, Report, Wanted};
use super::socks::{self, SocksError};
use crate::BoxedStream;
use crate::native::frame::Frame;
use crate::native::mux::Mux;
use crate::pump::{Slack, pump};

/// Connections of one listener at a time. More wait in the listener's queue.
const CONNECTIONS: usize = 256;

/// Connections from a host that wait to be taken.
const HANDED: usize = 32;

/// How long a SOCKS client may take to say where it wants to go.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(10);

/// Where connections come in on this side. A Unix socket's file goes with it.
#[derive(Debug)]
pub struct Listener(Listening);

#[derive(Debug)]
enum Listening {
    Port(TcpListener),
    Socket { listener: UnixListener, path: PathBuf },
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self(Listening::Port(listener))
    }
}

impl Listener {
    /// Listens. A new Unix socket is for this user alone; with `replace`, whatever socket is in its place goes.
    ///
    /// # Errors
    /// What the system says.
    pub async fn bind(at: &Endpoint, replace: bool) -> io::Result<Self> {
        match at {
            Endpoint::Port { host, port } => {
                Ok(Self(Listening::Port(TcpListener::bind((host.as_str(), *port)).await?)))
            }
            Endpoint::Socket { path } => {
                let path = Path::new(path);
                if replace && is_socket(path) {
                    std::fs::remove_file(path)?;
                }
                // Set before there is anything to connect to.
                let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
                let bound = UnixListener::bind(path);
                rustix::process::umask(before);
                Ok(Self(Listening::Socket { listener: bound?, path: path.to_owned() }))
            }
        }
    }

    async fn accept(&self) -> io::Result<(BoxedStream, SocketAddr)> {
        match &self.0 {
            Listening::Port(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Box::new(stream), peer))
            }
            Listening::Socket { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
            }
        }
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listening::Socket { path, .. } = &self.0
            && is_socket(path)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A listener that forwards. Dropping it closes the listener and its connections.
#[derive(Debug)]
pub struct Forward {
    task: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where the host listens for this side. Once dropped, no connection from there is let in.
pub struct RemoteForward {
    remotes: Arc<Remotes>,
    /// Who is told that it has ended.
    mux: Option<Mux>,
    /// Where the host listens, the port as it was allocated.
    pub at: Endpoint,
}

impl fmt::Debug for RemoteForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteForward").field(&self.at).finish()
    }
}

impl Drop for RemoteForward {
    fn drop(&mut self) {
        self.remotes.wanted().remove(&self.at);
        if let Some(mux) = &self.mux {
            // A host that cannot be told is as good as gone.
            let _ = mux.answer(&Frame::Unlisten(self.at.clone()));
        }
    }
}

impl Connection {
    /// Forwards every connection of `listener` to one place as the host sees it.
    #[must_use]
    pub fn forward(&self, listener: impl Into<Listener>, to: Endpoint, report: Report) -> Forward {
        let connection = self.clone();
        let task = tokio::spawn(accept(listener.into(), move |stream, peer| {
            let (connection, to, report) = (connection.clone(), to.clone(), Arc::clone(&report));
            async move {
                let carried = match connection.begin(&to, peer).await {
                    Ok(begun) => begun.carry(&to, stream).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = carried {
                    report(&in_words(&error));
                }
            }
        }));
        Forward { task }
    }

    /// Forwards every connection of `listener` to where its SOCKS request says.
    #[must_use]
    pub fn forward_dynamic(&self, listener: impl Into<Listener>, report: Report) -> Forward {
        let connection = self.clone();
        let task = tokio::spawn(accept(listener.into(), move |mut stream, peer| {
            let (connection, report) = (connection.clone(), Arc::clone(&report));
            async move {
                let asked = tokio::time::timeout(SOCKS_TIMEOUT, socks::read(&mut stream)).await;
                let wanted = match asked.unwrap_or(Err(SocksError::TimedOut)) {
                    Ok(wanted) => wanted,
                    Err(error) => return report(&error.to_string()),
                };
                let to = Endpoint::Port { host: wanted.address.clone(), port: wanted.port };
                let begun = match connection.begin(&to, peer).await {
                    Ok(begun) => begun.stands(&connection, &to).await.map(|()| begun),
                    Err(error) => Err(error),
                };
                match begun {
                    Ok(begun) => {
                        if stream.write_all(&wanted.answer(true)).await.is_ok() {
                            let _ = begun.carry(&to, stream).await;
                        } else {
                            begun.close().await;
                        }
                    }
                    Err(error) => {
                        let _ = stream.write_all(&wanted.answer(false)).await;
                        report(&in_words(&error));
                    }
                }
            }
        }));
        Forward { task }
    }

    /// Has the host listen, and forwards every connection there to one place as this side sees it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the host does not listen there, [`ClientError::Lost`] when it is gone.
    pub async fn forward_remote(
        &self,
        at: Endpoint,
        to: Endpoint,
        report: Report,
    ) -> Result<RemoteForward, ClientError> {
        self.have_host_listen(at, Wanted::Forwarded { to, report }).await
    }

    /// Has the host listen, and hands every connection there over.
    pub(crate) async fn listen_remote(&self, at: Endpoint) -> Result<RemoteListener, ClientError> {
        let (sender, connections) = mpsc::channel(HANDED);
        let forward = self.have_host_listen(at, Wanted::Handed(sender)).await?;
        Ok(RemoteListener { forward, connections })
    }

    async fn have_host_listen(&self, at: Endpoint, wanted: Wanted) -> Result<RemoteForward, ClientError> {
        let remotes = Arc::clone(&self.inner.remotes);
        // Known before the host is asked: the first connection may be quicker than the answer.
        remotes.wanted().insert(at.clone(), wanted.clone());
        let mut forward = RemoteForward { remotes, at: at.clone(), mux: None };
        let allocated = match &self.inner.line {
            Line::Ssh(ssh) => self.listen_ssh(ssh, &at).await?,
            Line::Native(line) => {
                let port = line.listen(at.clone()).await.map_err(|error| match error {
                    ListenError::Gone => self.lost(),
                    ListenError::Refused(reason) => {
                        ClientError::Refused { what: format!("listening on {at}"), reason }
                    }
                })?;
                forward.mux = Some(line.mux.clone());
                u32::from(port)
            }
            Line::Pipelined(_) => return Err(one_session(&format!("listening on {at}"))),
        };
        if let (Endpoint::Port { host, port: 0 }, Ok(port @ 1..)) = (&at, u16::try_from(allocated)) {
            let known = Endpoint::Port { host: host.clone(), port };
            forward.remotes.wanted().insert(known.clone(), wanted);
            forward.remotes.wanted().remove(&at);
            forward.at = known;
        }
        Ok(forward)
    }

    async fn listen_ssh(&self, ssh: &SshLine, at: &Endpoint) -> Result<u32, ClientError> {
        let asked = match at {
            Endpoint::Port { host, port } => ssh.handle.tcpip_forward(host.as_str(), u32::from(*port)).await,
            Endpoint::Socket { path } => ssh.handle.streamlocal_forward(path.as_str()).await.map(|()| 0),
        };
        asked.map_err(|error| match error {
            russh::Error::RequestDenied => ClientError::Refused {
                what: format!("listening on {at}"),
                reason:
                    "a role does not allow it (options.port_forwarding, options.stream_local_forwarding), or \
                         the address is in use"
                        .to_owned(),
            },
            russh::Error::Disconnect | russh::Error::SendError | russh::Error::HUP => self.lost(),
            other => ClientError::Ssh(other),
        })
    }

    /// Begins a connection to somewhere that the host sees. By the native protocol it may not come about after all.
    async fn begin(&self, to: &Endpoint, origin: SocketAddr) -> Result<Begun, ClientError> {
        match &self.inner.line {
            Line::Ssh(ssh) => {
                let channel = self.direct_channel(ssh, to, origin).await?;
                Ok(Begun::Ssh { channel, slack: ssh.slack.clone() })
            }
            Line::Native(line) => Ok(Begun::Native(self.native_lane(line, to, origin)?)),
            Line::Pipelined(_) => Err(one_session(&format!("the connection to {to}"))),
        }
    }
}

/// A connection to somewhere that the host sees.
enum Begun {
    Ssh { channel: Channel<Msg>, slack: Slack },
    Native(Lane),
}

impl Begun {
    async fn stands(&self, connection: &Connection, to: &Endpoint) -> Result<(), ClientError> {
        match self {
            Self::Ssh { .. } => Ok(()),
            Self::Native(lane) => lane.stands(connection, to).await,
        }
    }

    /// Carries a connection from here to its end.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there was none after all.
    async fn carry(self, to: &Endpoint, stream: BoxedStream) -> Result<(), ClientError> {
        match self {
            Self::Ssh { channel, slack } => {
                pump(channel, stream, slack).await;
                Ok(())
            }
            Self::Native(lane) => lane.forward(to, stream).await,
        }
    }

    async fn close(self) {
        if let Self::Ssh { channel, .. } = self {
            let _ = channel.close().await;
        }
    }
}

/// Where the host listens, for a listener of this side that takes the connections. Ends when dropped.
pub(crate) struct RemoteListener {
    forward: RemoteForward,
    connections: mpsc::Receiver<BoxedStream>,
}

impl RemoteListener {
    /// The port, as the host has allocated it; 0 for a socket.
    pub(crate) fn port(&self) -> u16 {
        match &self.forward.at {
            Endpoint::Port { port, .. } => *port,
            Endpoint::Socket { .. } => 0,
        }
    }

    /// The next connection; `None` when the host is gone.
    pub(crate) async fn accept(&mut self) -> Option<BoxedStream> {
        self.connections.recv().await
    }
}

async fn accept<F, W>(listener: Listener, serve: F)
where
    F: Fn(BoxedStream, SocketAddr) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let served = serve(stream, peer);
                tasks.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: others must close first.
                debug!(%error, "cannot accept a connection to forward");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

fn in_words(error: &ClientError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
