//! `-f`: to the background, once everything stands.
//!
//! A program of several threads cannot be split in two. So it is started once more without a terminal, and this one waits
//! until that one says that it runs, or ends.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

use tokio::io::AsyncReadExt;

use crate::error::{CliResult, Context};

/// Set for the process in the background, whose standard input leads to the one that waits.
const MARK: &str = "SALLYPORT_SSH_BACKGROUND";

/// Whether this process is the one in the background.
pub(super) fn is_here() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts it and waits until it stands.
pub(super) async fn start() -> CliResult<ExitCode> {
    let (ours, theirs) = UnixStream::pair().doing("make a pair of sockets")?;
    let program = std::env::current_exe().doing("find the path of this program")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(MARK, "1").stdin(OwnedFd::from(theirs));
    let mut child = command.spawn().doing("start in the background")?;
    // It holds the other end, which must be only the child's: its end is to be seen.
    drop(command);
    ours.set_nonblocking(true).doing("wait for the background")?;
    let mut ours = tokio::net::UnixStream::from_std(ours).doing("wait for the background")?;
    if matches!(ours.read(&mut [0]).await, Ok(1)) {
        return Ok(ExitCode::SUCCESS);
    }
    // It has said itself what went wrong.
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    let code = ended.ok().and_then(Result::ok).and_then(|status| status.code());
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
}

/// Everything stands: lets go of the terminal and of the process that waits. Nothing when there is none.
pub(super) fn ready() -> CliResult {
    if !is_here() {
        return Ok(());
    }
    let _ = rustix::process::setsid();
    // If no process waits any more, that is no reason to stop.
    let _ = rustix::io::write(rustix::stdio::stdin(), b"+");
    let nothing = std::fs::File::open("/dev/null").doing("open /dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).map_err(std::io::Error::from).doing("let go of standard input")?;
    Ok(())
}
