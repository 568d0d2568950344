//! Sessions: commands, shells and file transfers that run as an account of this machine.
//!
//! Nothing in here knows SSH. A front door (the SSH server today) turns what its client asks for into a [`Request`],
//! [`start`]s it, and hands the [`Running`] session to [`run`] with three ends: where input comes from ([`Input`]), where
//! output goes ([`Output`]), and who is told what happens ([`Observer`]: recording, audit).
//!
//! Back-pressure reaches from end to end. Output is read from the process only when the recording and the client took
//! what came before, and input counts as consumed only when the process has read it; so what one session can hold in
//! memory is bounded by its front door's window and a few blocks of 32 KiB.

mod account;
pub(crate) mod admission;
mod end;
mod error;
mod group;
pub(crate) mod left;
pub(crate) mod logins;
mod opening;
mod process;
mod program;
mod pump;
mod ready;
mod shadow;
pub(crate) mod socket;
mod sweep;
mod terminal;
mod traces;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use account::Account;
pub(crate) use error::{AccountError, AdmissionError, ClosedAccount, SocketError};
pub use error::{OpeningError, StartError};
pub use left::Ends;
pub use logins::LoginRecords;
pub use process::{Running, start};
pub use program::Helper;
pub(crate) use pump::{Early, QUEUED_PIECES, hand_on};
pub use pump::{Ended, run};
pub use ready::Ready;
pub use rustix::process::Signal;
pub use sallyport_session::Stop;
pub use shadow::ShadowFile;
pub use terminal::{Size, Terminal};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The account's login shell.
    Shell,
    /// A command line for the account's shell; any bytes but NUL.
    Exec(Vec<u8>),
    /// The file service: SFTP version 3 on standard input and output.
    Sftp,
}

/// What a front door asks for, every check behind it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The account.
    pub account: Account,
    /// What to run.
    pub kind: Kind,
    /// A terminal, when the client wants one.
    pub terminal: Option<Terminal>,
    /// Variables on top of the account's own. The front door has filtered what the client sent.
    pub environment: Vec<(String, String)>,
    /// Whether the file service says what the files contain.
    pub hash_files: bool,
    /// Whether what still runs when the session ends is ended with it. It costs one more process.
    pub kill_orphans: bool,
    /// Whether a session of PAM's is open around it ([`crate::helper::pam_session`]). Wait for [`Running::opened`] then.
    pub pam_session: bool,
}

/// Pieces of input that a session takes before it has consumed them: the client's, and as many of other users who type.
pub const HANDED_PIECES: usize = 256;

/// What comes in from the client.
#[derive(Debug)]
pub enum Incoming {
    /// Input for the process.
    Data(Bytes),
    /// No more input.
    Eof,
    /// The client's window has another size.
    Resize(Size),
    /// Send a signal to the session's processes.
    Signal(Signal),
    /// End the session now, for this reason: a lock, an idle limit, a node that stops.
    Cut(String),
}

/// The client's side, inbound. `None` means that the client has gone.
#[async_trait]
pub trait Input: Send {
    /// The next thing from the client. The endpoint holds back data that was not [`Output::consumed`] yet beyond a bound of its
    /// own, and beyond [`HANDED_PIECES`] pieces in any case: a session that is handed more ends.
    async fn next(&mut self) -> Option<Incoming>;
}

#[async_trait]
impl Input for Box<dyn Input> {
    async fn next(&mut self) -> Option<Incoming> {
        self.as_mut().next().await
    }
}

/// Which of a process's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client has gone")]
pub struct Gone;

/// The client's side, outbound.
#[async_trait]
pub trait Output: Send + Sync {
    /// Delivers output; returns when there is room for more.
    async fn data(&self, channel: Channel, bytes: Bytes) -> Result<(), Gone>;
    /// The process has read this many bytes of its input.
    fn consumed(&self, bytes: usize);
    /// The process has ended. Output may still follow when others hold its pipes.
    async fn exited(&self, exit: &Exit) -> Result<(), Gone>;
    /// No more output will come.
    async fn finished(&self) -> Result<(), Gone>;
    /// Why a client that has gone was cut off; none where it has left by itself. Asked once the session is hung up: it may take
    /// a moment until the lock that has cut the client is heard of here. Default: it has left.
    async fn cut_off(&self) -> Option<String> {
        None
    }
}

/// What a session does, for the recording and the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// Output, either kind: as a person at the terminal would see it.
    Output(Bytes),
    /// Input. Told to the observer always; recorded only where a role wants it.
    Input(Bytes),
    /// The terminal's new size.
    Resize(Size),
    /// One file operation.
    File(FileOperation),
    /// The end of the process.
    Exit(Exit),
    /// The session was cut, and the server that it ran on has not said that its process ended.
    Outlived,
    /// The session was cut or its client has gone, and processes of it go on.
    Left {
        /// Each as its number and its program, the first of them.
        processes: Vec<String>,
        /// How many there are besides.
        more: usize,
    },
}

/// Who is told what happens in a session. An answer may take time: the session waits for it.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Something happened. An error ends the session, for that reason.
    async fn happened(&self, what: Happening) -> Result<(), Stop>;
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(u32),
    /// By a signal: its name without `SIG`, and whether it left a core file.
    Signal {
        /// Such as `TERM`.
        name: String,
        /// Whether memory was dumped.
        core: bool,
    },
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal { name, .. } => write!(f, "signal {name}"),
        }
    }
}

/// One operation of the file service, as it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOperation {
    /// Such as `open`, `close`, `remove`, `rename`.
    pub operation: String,
    /// The file.
    pub path: String,
    /// The other file, of a rename or a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// For `close`: bytes read from the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read: u64,
    /// For `close`: bytes written to the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    /// For `close`: the file's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// For `close`, when hashes are wanted: the SHA-256 of the whole file, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Why there is no hash though one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhashed: Option<String>,
    /// Why it failed, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FileOperation {
    /// An operation that was done.
    pub(crate) fn new(operation: &str, path: String) -> Self {
        Self {
            operation: operation.to_owned(),
            path,
            target: None,
            read: 0,
            written: 0,
            size: None,
            sha256: None,
            unhashed: None,
            error: None,
        }
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
