//! A program that runs in front of a person, with this process behind it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a program to its end, and gives its exit code. What the terminal signals is for the program alone; what only this process is
/// told is passed on.
///
/// # Errors
/// When it cannot be started or waited for.
pub(crate) async fn run(mut command: Command) -> io::Result<ExitCode> {
    // Before the program is there, so that no Ctrl-C ends this process in between.
    let _ignored = [signal(SignalKind::interrupt())?, signal(SignalKind::quit())?];
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut child = command.spawn()?;
    let status = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            _ = terminate.recv() => pass_on(&child, Signal::SIGTERM),
            _ = hang_up.recv() => pass_on(&child, Signal::SIGHUP),
        }
    };
    Ok(exit_code(status))
}

fn pass_on(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The program's own; as shells have it where a signal ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}
