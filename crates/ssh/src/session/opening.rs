//! The beginning of a session that has to be opened first, by others than the node.
//!
//! Its process does not inherit the session's ends but gets them over a pair of sockets (see [`crate::helper::pam_session`]),
//! and says over the same pair that the session has begun, or why there is none.

use std::io;
use std::os::unix::net as std_net;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::end::End;
use super::error::OpeningError;
use super::terminal::Pair;
use crate::helper::ends::Ends;

/// How long that may take: longer than the keeper itself waits.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest reason for a refusal.
const MOST_REASON_BYTES: u64 = 4096;

/// Both sides of a session's ends.
pub(super) struct Sides {
    pub(super) theirs: Ends,
    pub(super) stdin: End,
    pub(super) stdout: End,
    pub(super) stderr: Option<End>,
}

impl Sides {
    pub(super) fn of(pair: Option<Pair>) -> io::Result<Self> {
        if let Some(pair) = pair {
            let (output, error) = (pair.user.try_clone()?, pair.user.try_clone()?);
            let terminal = End::new(pair.controller, true)?;
            let theirs = Ends::new(pair.user, output, error);
            return Ok(Self { theirs, stdin: terminal.clone(), stdout: terminal, stderr: None });
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((input, stdin), (stdout, output), (stderr, error)) = (pipe()?, pipe()?, pipe()?);
        Ok(Self {
            theirs: Ends::new(input, output, error),
            stdin: End::pipe(stdin)?,
            stdout: End::pipe(stdout)?,
            stderr: Some(End::new(stderr, false)?),
        })
    }
}

/// What hears from the process.
#[derive(Debug)]
pub(super) struct Announcement(std_net::UnixStream);

impl Announcement {
    pub(super) fn new(socket: std_net::UnixStream) -> Self {
        Self(socket)
    }

    /// Returns when the session has begun.
    pub(super) async fn opened(self) -> Result<(), OpeningError> {
        let heard = async {
            self.0.set_nonblocking(true)?;
            let mut socket = UnixStream::from_std(self.0)?;
            let mut said = Vec::new();
            // A word, or a sentence and its end.
            while said != b"+" && (&mut socket).take(MOST_REASON_BYTES).read_buf(&mut said).await? > 0 {
                if u64::try_from(said.len()).is_ok_and(|length| length > MOST_REASON_BYTES) {
                    break;
                }
            }
            io::Result::Ok(said)
        };
        match timeout(PATIENCE, heard).await {
            Ok(Ok(said)) if said == b"+" => Ok(()),
            Ok(Ok(said)) => {
                let said = String::from_utf8_lossy(&said);
                let sentence = said.lines().rev().find_map(|line| line.strip_prefix("sallyport: "));
                Err(sentence.map_or(OpeningError::Ended, |sentence| OpeningError::Said(sentence.to_owned())))
            }
            Ok(Err(error)) => Err(OpeningError::Unheard(error)),
            Err(_) => Err(OpeningError::Silent { seconds: PATIENCE.as_secs() }),
        }
    }
}
