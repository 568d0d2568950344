//! Unix sockets of an account, reached with its rights.
//!
//! The node runs as root, and what a path means is for the account to say: which directories it may enter, which
//! symbolic links it follows, whether it may connect. So a session process becomes the account, connects or binds, and
//! hands the open socket back over a pair of sockets (unix(7), `SCM_RIGHTS`). Nothing is looked at before it is opened,
//! so there is nothing to race.
//!
//! The process that has bound a socket stays until the node closes its end of the pair, also by dying, and then removes
//! the file, if it is still the one that it made.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net as std_net;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::error::{NoSocket, SocketError};
use super::{Account, Helper};
use crate::helper::{self, Spec, Work};

/// How long the process may take: the system's directory services may be slow.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest reason for a failure.
const MOST_REASON_BYTES: usize = 1024;

/// Connects to the socket at this path as the account.
///
/// # Errors
/// What the system said to the account.
pub(crate) async fn connect(account: &Account, helper: &Helper, path: &str) -> io::Result<UnixStream> {
    let (socket, _) = ask(account, helper, Work::Connect, path).await?;
    let socket = std_net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Listens on a new socket at this path as the account.
///
/// # Errors
/// What the system said to the account.
pub(crate) async fn listen(account: &Account, helper: &Helper, path: &str) -> io::Result<Listening> {
    let (socket, keeper) = ask(account, helper, Work::Listen, path).await?;
    let socket = std_net::UnixListener::from(socket);
    socket.set_nonblocking(true)?;
    Ok(Listening { socket: UnixListener::from_std(socket)?, _keeper: keeper })
}

/// A socket that is listened on. Its file goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: UnixListener,
    /// The process that removes the file sees the end of this.
    _keeper: UnixStream,
}

impl Listening {
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        self.socket.accept().await.map(|(stream, _)| stream)
    }
}

async fn ask(
    account: &Account,
    helper: &Helper,
    work: Work,
    path: &str,
) -> io::Result<(OwnedFd, UnixStream)> {
    let (ours, theirs) = std_net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    let spec = Spec {
        login: account.name.clone(),
        work,
        terminal: false,
        environment: Vec::new(),
        hash_files: false,
        keeper_for: None,
        pam_session: false,
        spares_orphans: false,
        pam: None,
    };
    let mut command = Command::new(&helper.program);
    command.args(&helper.arguments).arg(path);
    command.env_clear().env(helper::SPEC, spec.to_text()).current_dir("/");
    // What goes wrong it says on standard error: text that comes without a socket.
    command.stdin(OwnedFd::from(theirs.try_clone()?)).stderr(OwnedFd::from(theirs)).stdout(Stdio::null());
    // The runtime reaps it. It ends by itself, at the latest when it sees the end of `ours`.
    let child = command.spawn()?;
    drop(command);
    drop(child);
    let answer = ours.async_io(Interest::READABLE, || receive(&ours));
    match timeout(PATIENCE, answer).await {
        Ok(Ok(Ok(socket))) => Ok((socket, ours)),
        Ok(Ok(Err(reason))) => Err(io::Error::other(reason)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the account's process does not answer")),
    }
}

/// What the process says: a socket, or why there is none.
fn receive(from: &UnixStream) -> io::Result<Result<OwnedFd, NoSocket>> {
    let mut text = [0; MOST_REASON_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        from.as_fd(),
        &mut [IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let handed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(handed.ok_or_else(|| {
        let said = String::from_utf8_lossy(text.get(..message.bytes).unwrap_or_default()).into_owned();
        let said = said.trim().trim_start_matches("sallyport: ");
        if said.is_empty() { NoSocket::Ended } else { NoSocket::Said(said.to_owned()) }
    }))
}

/// In the account's process: connects and hands the connection over.
pub(crate) fn give_connected(path: &Path) -> Result<ExitCode, SocketError> {
    let socket = std_net::UnixStream::connect(path)?;
    give(&socket.into())?;
    Ok(ExitCode::SUCCESS)
}

/// In the account's process: binds, hands the socket over, and stays to remove it.
pub(crate) fn give_listening(path: &Path) -> Result<ExitCode, SocketError> {
    // For the account alone, as sshd's StreamLocalBindMask has it.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let socket = std_net::UnixListener::bind(path)?;
    let made = identity(path);
    let given = give(&socket.into());
    if given.is_ok() {
        // Ends when the node has closed its end, or is gone.
        let _ = io::stdin().lock().read(&mut [0]);
    }
    if made.is_some() && identity(path) == made {
        let _ = std::fs::remove_file(path);
    }
    given.map(|()| ExitCode::SUCCESS)
}

/// Which file a socket is.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = std::fs::symlink_metadata(path).ok().filter(|about| about.file_type().is_socket())?;
    Some((about.dev(), about.ino()))
}

fn give(socket: &OwnedFd) -> Result<(), SocketError> {
    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(SocketError::NoRoom);
    }
    let sent = rustix::net::sendmsg(
        rustix::stdio::stdin(),
        &[IoSlice::new(b"+")],
        &mut control,
        SendFlags::NOSIGNAL,
    );
    sent.map(|_| ()).map_err(SocketError::NotHanded)
}
