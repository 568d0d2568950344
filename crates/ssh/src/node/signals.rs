//! Signals that this process was started to ignore, and that its sessions must not ignore.
//!
//! A service that an administrator starts with `nohup`, or in the background of a shell without job control, ignores
//! SIGHUP, or SIGINT and SIGQUIT. A program inherits what its parent ignores, so every session would: a command whose
//! client went away would run for ever. What a parent *handles*, however, goes back to the default when a program is
//! run (execve(2)). So the ignored signals are handled here, by doing nothing, which for this process is the same.

use std::sync::Once;

use tokio::signal::unix::{SignalKind, signal};
use tracing::debug;

/// The signals that people send to what runs in a terminal, by their numbers: hangup, interrupt, quit, terminate.
const OF_TERMINALS: [i32; 4] = [1, 2, 3, 15];

static DONE: Once = Once::new();

/// Has new sessions begin with the default answer to every signal of terminals. To be called where a runtime runs.
pub(super) fn default_for_sessions() {
    DONE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        for number in OF_TERMINALS.into_iter().filter(|number| ignored & (1 << (number - 1)) != 0) {
            // The handler stays when the stream of notices is dropped.
            let handled = signal(SignalKind::from_raw(number)).is_ok();
            debug!(number, handled, "this process ignores a signal that its sessions must not");
        }
    });
}

/// The set of ignored signals, the first in the lowest bit, from the text of `/proc/self/status`.
fn ignored(status: &str) -> u64 {
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_read() {
        assert_eq!(ignored("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001007\n"), 0x1007);
        assert_eq!(ignored("Name:\tx\nSigIgn:\tnothing\n"), 0);
        assert_eq!(ignored(""), 0);
    }
}
