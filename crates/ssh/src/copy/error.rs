//! Why something was not copied.

use std::io;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::StatusCode;

/// Why nothing could be copied at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The SFTP service did not answer properly.
    #[error("the node's file service failed: {0}")]
    Service(ServiceError),
    /// The destination does not fit the sources.
    #[error("{path}: {problem}")]
    Destination {
        /// The destination.
        path: String,
        /// What is wrong with it.
        problem: DestinationProblem,
    },
}

/// What is wrong with a destination.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationProblem {
    /// One file, for several.
    #[error("it must be a directory to take several files")]
    NoDirectory,
    /// It, or what it is in, is not there.
    #[error("no such directory")]
    Missing,
    /// The local directory cannot be opened.
    #[error("cannot open {directory}: {error}")]
    Unopened {
        /// The directory.
        directory: String,
        /// Why.
        error: io::Error,
    },
    /// What was fetched before cannot be read.
    #[error("cannot read what was fetched: {0}")]
    Unread(io::Error),
    /// The node does not say what is there.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// What a node's file service answers when it does not do what it was asked for, as a person would say it.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
pub struct ServiceError(#[from] SftpError);

impl ServiceError {
    pub(super) fn is_eof(&self) -> bool {
        self.is(StatusCode::Eof)
    }

    pub(super) fn is_no_such_file(&self) -> bool {
        self.is(StatusCode::NoSuchFile)
    }

    fn is(&self, code: StatusCode) -> bool {
        matches!(&self.0, SftpError::Status(status) if status.status_code == code)
    }

    /// The stream has ended.
    pub(super) fn gone() -> Self {
        Self(SftpError::UnexpectedBehavior(CLOSED.to_owned()))
    }
}

/// What the library says when the stream has ended.
const CLOSED: &str = "session closed";

fn in_words(error: &SftpError) -> String {
    match error {
        SftpError::Status(status) => {
            let usual = match status.status_code {
                StatusCode::NoSuchFile => "no such file or directory",
                StatusCode::PermissionDenied => "permission denied",
                StatusCode::OpUnsupported => "the node does not support this",
                StatusCode::ConnectionLost | StatusCode::NoConnection => "the connection was lost",
                _ => "",
            };
            let said = status.error_message.trim();
            // Most services only repeat the name of the code.
            match (usual, said) {
                ("", "" | "Failure") => "the node could not do it".to_owned(),
                ("", said) => said.to_owned(),
                (usual, said) if said.is_empty() || said.eq_ignore_ascii_case(usual) || said.len() < 24 => {
                    usual.to_owned()
                }
                (usual, said) => format!("{usual} ({said})"),
            }
        }
        SftpError::UnexpectedBehavior(text) if text == CLOSED || text == "sender dropped" => {
            "the connection was lost".to_owned()
        }
        other => other.to_string(),
    }
}

/// Why a directory was not listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The node does not list it.
    #[error(transparent)]
    Refused(ServiceError),
    /// The connection is gone.
    #[error("the connection was lost")]
    Lost,
    /// It does not end.
    #[error("the node lists more than {names} names, or {mebibytes} MiB of them")]
    Endless { names: usize, mebibytes: usize },
}

/// Why one file was not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    // The node.
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("cannot {doing} {path}: {error}")]
    There { doing: &'static str, path: String, error: ServiceError },
    #[error("there is a file of this name")]
    NoDirectory,
    #[error("there is no such file")]
    Missing,
    #[error("the node does not say where the link leads")]
    NoTarget,
    #[error("the link leads nowhere")]
    Dangling,
    #[error("the node gave a name that leads elsewhere; left out")]
    NotPlain,
    #[error("the node sent {sent} bytes where {asked} were asked for")]
    PastAsked { sent: u64, asked: u64 },
    #[error("the node sent more than the {0} bytes that it says it has")]
    PastSaid(u64),
    #[error("the node ended after {written} of the {said} bytes that it says it has")]
    Short { written: u64, said: u64 },
    #[error("it has more than {0} bytes")]
    TooLong(u64),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("{directory}: {error}")]
    Unlisted { directory: String, error: ListError },

    // The user.
    #[error("no file fits the pattern")]
    NoMatch,
    #[error("more than {0} files fit the pattern")]
    Matches(usize),

    // This machine.
    #[error("{}", local_words(.0))]
    Unread(io::Error),
    #[error("cannot {doing} {path}: {error}")]
    Here { doing: &'static str, path: String, error: io::Error },
    #[error("the copy has ended")]
    Over,
}

/// A local error without the number that the standard library puts behind it.
pub(super) fn local_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
