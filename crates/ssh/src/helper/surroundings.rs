//! What a login finds besides its variables: limits, its standing with the kernel, and the message of the day.

use std::io::{self, Read, Write};
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, Rlimit};

use super::error::HelperError;

/// Open files of a login, as the kernel and systemd give it; who needs more raises it up to the hard limit.
const OPEN_FILES: u64 = 1024;
/// Messages of the day, as Debian's sshd shows them.
const MESSAGES: [&str; 2] = ["/run/motd.dynamic", "/etc/motd"];
/// Longest of them.
const MOST_MESSAGE_BYTES: u64 = 64 * 1024;

/// Gives back the node's own limit of open files. What fails is no reason not to log in.
pub(super) fn limit_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let current = limit.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if limit.current.is_none_or(|now| now > current) {
        let given = Rlimit { current: Some(current), maximum: limit.maximum };
        let _ = rustix::process::setrlimit(Resource::Nofile, given);
    }
}

/// Lets go of a service's protection: the kernel is to spare it when memory runs out, but not its users' programs. Any process may.
pub(super) fn let_go() {
    let spared =
        std::fs::read_to_string("/proc/self/oom_score_adj").is_ok_and(|score| score.trim().starts_with('-'));
    if spared {
        let _ = std::fs::write("/proc/self/oom_score_adj", "0");
    }
}

/// Has the kernel refuse the account's other processes to trace this one, which runs as the account: they could make it say
/// what it likes to the node (ptrace(2), `PR_SET_DUMPABLE` in prctl(2)). A process that has given up root's rights is like that
/// from then on; one that was started as the account is not. It ends with execve(2).
///
/// # Errors
/// [`HelperError::Traced`] when another process traces this one by now.
pub(super) fn refuse_tracing() -> Result<(), HelperError> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(HelperError::system("keep the account from tracing this process"))?;
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(HelperError::system("learn whether this process is traced"))?;
    match tracer(&status) {
        Some(0) => Ok(()),
        Some(tracer) => Err(HelperError::Traced(tracer)),
        None => Err(HelperError::TracerUnknown),
    }
}

/// Which process traces the one that proc_pid_status(5) is about; 0 for none.
fn tracer(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse().ok())
}

/// Shows the messages of the day to a person who has not hushed them.
pub(super) fn greet(home: &Path) {
    let text = messages(&MESSAGES.map(Path::new), home);
    let _ = io::stdout().write_all(&text);
    let _ = io::stdout().flush();
}

fn messages(files: &[&Path], home: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    if home.join(".hushlogin").exists() {
        return text;
    }
    for file in files {
        if let Ok(file) = std::fs::File::open(file) {
            let _ = file.take(MOST_MESSAGE_BYTES).read_to_end(&mut text);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_has_a_number() {
        assert_eq!(tracer("Name:\tx\nTracerPid:\t0\nUid:\t0\n"), Some(0));
        assert_eq!(tracer("Name:\tx\nTracerPid:\t4711\n"), Some(4711));
        assert_eq!(tracer("Name:\tTracer\n"), None);
    }

    #[test]
    fn messages_are_shown_unless_hushed() {
        let home = tempfile::tempdir().unwrap();
        let files = [home.path().join("dynamic"), home.path().join("motd"), home.path().join("missing")];
        std::fs::write(&files[0], "one\n").unwrap();
        std::fs::write(&files[1], "two\n").unwrap();
        let files: Vec<&Path> = files.iter().map(|file| file.as_path()).collect();
        assert_eq!(messages(&files, home.path()), b"one\ntwo\n");
        std::fs::write(home.path().join(".hushlogin"), "").unwrap();
        assert_eq!(messages(&files, home.path()), b"");
    }
}
