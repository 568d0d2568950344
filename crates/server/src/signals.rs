//! Signals: what an operator tells a process by them, and those that it was started to ignore.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that operators send to services.
#[derive(Debug)]
pub(crate) struct Operator {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Operator {
    /// Takes them from now on; until now they have ended the process.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the process is told to end; gives the signal's name.
    pub(crate) async fn end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Waits until the process is told to end, or to read again what it can: then there is no name.
    pub(crate) async fn end_or_reload(&mut self) -> Option<&'static str> {
        let Self { terminate, interrupt, hang_up } = self;
        tokio::select! {
            _ = terminate.recv() => Some("SIGTERM"),
            _ = interrupt.recv() => Some("SIGINT"),
            _ = hang_up.recv() => None,
        }
    }
}

/// Has the process ignore them and the programs that it starts not, for as long as the answer is kept. A shell starts what
/// runs in the background with SIGINT and SIGQUIT ignored, and `nohup` its program with SIGHUP; execve(2) keeps that, so a
/// user could not interrupt a command in a session of such a node. The kernel sets a signal that has a handler back to its
/// default in a program that is started; the handler here does nothing.
pub(crate) fn keep_to_ourselves() -> Vec<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).filter_map(|number| signal(SignalKind::from_raw(number)).ok()).collect()
}

/// The numbers in the mask of proc_pid_status(5). SIGPIPE is ignored by every Rust program, and by none that it starts.
fn ignored(status: &str) -> impl Iterator<Item = i32> {
    const PIPE: i32 = 13;
    let mask = status
        .lines()
        .find_map(|line| u32::from_str_radix(line.strip_prefix("SigIgn:")?.trim().get(8..)?, 16).ok());
    (1..32).filter(move |number| *number != PIPE && mask.unwrap_or(0) & (1 << (number - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_signals() {
        let of = |status| ignored(status).collect::<Vec<_>>();
        assert_eq!(of("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001007\n"), [1, 2, 3]);
        assert!(of("SigIgn:\t0000000000001000\n").is_empty());
        assert!(of("SigIgn:\tx\n").is_empty());
        assert!(of("").is_empty());
    }
}
