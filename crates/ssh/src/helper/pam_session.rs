//! A session of PAM's around a session, opened and closed by the system's own runuser(1).
//!
//! No safe library opens one. runuser does, as root and by the service `runuser`; it then becomes the account, runs one
//! program, waits for it and closes the session. It tells a signal from an exit status by words alone, and it holds whatever it
//! was given. So it is given nothing of the session, and the program it runs is only an anchor, which stays until the keeper
//! hangs up. What the session runs is started by the anchor, inherits what the modules have set, leaves its parent and so becomes the
//! child of the keeper (its subreaper), which gives it the session's ends, signals its group and learns how it ended.
//!
//! ```text
//! keeper (root) ─┬─ runuser (root) ── anchor (the account)
//!                └─ the session's process (the account)
//! ```

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use super::ends::{self, Ends};
use super::error::HelperError;
use super::spec::{ARGUMENT, FAILED, Spec};
use super::{surroundings, tree};
use crate::processes::Process;

/// The file in `/etc/pam.d` that says what a session is; runuser has no other.
pub const SERVICE: &str = "runuser";
/// Where runuser is.
const PLACES: [&str; 4] = ["/usr/sbin/runuser", "/sbin/runuser", "/usr/bin/runuser", "/bin/runuser"];
/// The first argument of a process below runuser. Other session processes are started with one argument at most.
const BELOW: &str = "--below-pam";
const ANCHOR: &str = "anchor";
const SESSION: &str = "session";

/// How long modules may take. The node waits a little longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long runuser has to close what it may have opened when it is not wanted any more.
const GRACE: Duration = Duration::from_secs(3);
/// How long it has once what it waits for was killed.
const HURRY: Duration = Duration::from_secs(1);
/// How long the anchor has to go by itself.
const ANCHORS: Duration = Duration::from_millis(50);
/// How long the session's process may take to read what it is to do.
const STALL: Duration = Duration::from_secs(5);
/// Most that is kept of what modules say before a session is open.
const MOST_SAID_BYTES: usize = 8 * 1024;
/// Most of it that a person reads.
const MOST_TEXT: usize = 512;

/// The system's runuser, if it has one.
#[must_use]
pub fn program() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Whether PAM has rules for [`SERVICE`] of its own.
#[must_use]
pub fn has_rules() -> bool {
    ["/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam.d"]
        .iter()
        .any(|directory| Path::new(directory).join(SERVICE).is_file())
}

/// An open session of PAM's. It is closed once `line` is, however that came to be.
pub(super) struct Opened {
    pub(super) runuser: Pid,
    pub(super) line: UnixStream,
    /// The process that is to be the session's. It leads a session and a group, and is this process's child.
    pub(super) session: Pid,
    /// What stood below runuser then: the anchor, and nothing that modules start to close the session.
    pub(super) anchors: Vec<Process>,
}

impl Opened {
    /// Has the session's process begin.
    pub(super) fn begin(&self, ends: &Ends, spec: &Spec, command: &[u8]) -> Result<(), HelperError> {
        let deadline = Instant::now() + STALL;
        let sent = ends.send(&self.line).and_then(|()| {
            ends::send_text(&self.line, spec.to_text().as_bytes(), deadline)?;
            ends::send_text(&self.line, command, deadline)
        });
        sent.map_err(HelperError::EndsNotTaken)
    }

    /// Closes it again.
    pub(super) fn abandon(self) {
        abandon(self.runuser, self.line, &self.anchors);
    }
}

/// Opens a session for an account. Call it as a keeper, with all signals held back and read from `signals`.
///
/// # Errors
/// [`HelperError`], why there is none.
pub(super) fn open(
    login: &str,
    terminal: Option<&OwnedFd>,
    signals: &SignalFd,
    node: Option<&OwnedFd>,
) -> Result<Opened, HelperError> {
    let [place, ..] = PLACES;
    let program = program().ok_or(HelperError::NoRunuser { place })?;
    surroundings::limit_files();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let (line, theirs) = UnixStream::pair().map_err(HelperError::system("make a pair of sockets"))?;
    line.set_write_timeout(Some(STALL)).map_err(HelperError::system("limit a socket"))?;
    // By its descriptor: the account may have no way to the file, and an upgrade may have replaced it.
    let own = File::open("/proc/self/exe").map_err(HelperError::system("find this program"))?;
    let mut runuser = Command::new(program);
    runuser
        .args(["-u", login, "--", "/proc/self/fd/1", ARGUMENT, BELOW, ANCHOR])
        .env_clear()
        .current_dir("/");
    runuser.stdin(for_name(terminal)).stdout(own).stderr(OwnedFd::from(theirs));
    // It would inherit that they are held back, and so would modules.
    let _ = SigSet::empty().thread_set_mask();
    let started = runuser.spawn();
    let _ = SigSet::all().thread_set_mask();
    let started = started.map_err(HelperError::system("start runuser"))?;
    drop(runuser);
    let runuser =
        i32::try_from(started.id()).ok().and_then(Pid::from_raw).ok_or(HelperError::NoProcess("runuser"))?;

    match wait(login, runuser, &line, signals, node) {
        Ok(session) => Ok(Opened { runuser, line, session, anchors: tree::children(runuser) }),
        Err(error) => {
            abandon(runuser, line, &[]);
            Err(error)
        }
    }
}

/// runuser tells modules the terminal's name, which it takes from its standard input. It is not to read from it: what a module
/// asks is not answered.
fn for_name(terminal: Option<&OwnedFd>) -> Stdio {
    let open = |terminal: &OwnedFd| {
        let path = rustix::termios::ttyname(terminal, Vec::new()).ok()?;
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(path.as_c_str(), flags, Mode::empty()).ok()
    };
    terminal.and_then(open).map_or_else(Stdio::null, Stdio::from)
}

/// Waits until the session's process is there.
fn wait(
    login: &str,
    runuser: Pid,
    line: &UnixStream,
    signals: &SignalFd,
    node: Option<&OwnedFd>,
) -> Result<Pid, HelperError> {
    let deadline = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    loop {
        let gone = !matches!(rustix::process::waitpid(Some(runuser), WaitOptions::NOHANG), Ok(None));
        let ended = hear(line, &mut said);
        // A runuser that has ended opens no session, whatever was announced.
        if let Some(session) = announced(&said).filter(|_| !gone) {
            let ours = session != runuser
                && matches!(rustix::process::waitpid(Some(session), WaitOptions::NOHANG), Ok(None));
            return if ours { Ok(session) } else { Err(HelperError::OthersProcess) };
        }
        let text = String::from_utf8_lossy(&said);
        if let Some(own) = text.lines().find_map(|line| line.strip_prefix("sallyport: ")) {
            // Written by the account's processes, too.
            return Err(HelperError::Below(one_line(own)));
        }
        if gone || ended {
            return Err(refusal(login, &text));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = PATIENCE.as_secs();
            return Err(HelperError::PamSilent { login: login.to_owned(), seconds });
        }
        let mut places = vec![PollFd::new(line, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        places.extend(node.map(|node| PollFd::new(node, PollFlags::IN)));
        let _ = rustix::event::poll(&mut places, Timespec::try_from(left).ok().as_ref());
        let node_gone = places.get(2).is_some_and(|node| !node.revents().is_empty());
        let mut told = false;
        while let Ok(Some(signal)) = signals.read_signal() {
            let named = i32::try_from(signal.ssi_signo).ok().and_then(Signal::from_named_raw);
            told |= named != Some(Signal::CHILD);
        }
        if node_gone || told {
            return Err(HelperError::EndedEarly);
        }
    }
}

/// Takes what was said in the meantime; whether no more will be.
fn hear(line: &UnixStream, said: &mut Vec<u8>) -> bool {
    let mut block = [0; 1024];
    loop {
        match rustix::net::recv(line, &mut block, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return true,
            Ok((count, _)) => {
                said.extend_from_slice(block.get(..count).unwrap_or_default());
                // What was said last says why.
                said.drain(..said.len().saturating_sub(MOST_SAID_BYTES));
            }
            Err(_) => return false,
        }
    }
}

/// The number that the session's process has given. A process that lies can only name another child of the keeper's.
fn announced(said: &[u8]) -> Option<Pid> {
    let rest = said.get(said.iter().position(|byte| *byte == 0)? + 1..)?;
    let number = rest.get(..rest.iter().position(|byte| *byte == b'\n')?)?;
    std::str::from_utf8(number)
        .ok()?
        .parse::<u32>()
        .ok()
        .and_then(|number| Pid::from_raw(number.try_into().ok()?))
}

/// What another program says, for a terminal and a log.
pub(super) fn one_line(said: &str) -> String {
    let said: Vec<&str> = said
        .split(|c: char| c.is_control())
        .map(|line| line.trim().trim_start_matches("runuser: "))
        .filter(|line| !line.is_empty())
        .collect();
    said.join("; ").chars().take(MOST_TEXT).collect()
}

fn refusal(login: &str, said: &str) -> HelperError {
    let said = one_line(said);
    let said = if said.is_empty() { "runuser gives no reason".to_owned() } else { said };
    HelperError::NoPamSession { login: login.to_owned(), service: SERVICE, said }
}

/// Lets runuser close the session that it has opened.
fn abandon(runuser: Pid, line: UnixStream, anchors: &[Process]) {
    drop(line);
    let began = Instant::now();
    let mut hurried = false;
    while let Ok(None) = rustix::process::waitpid(Some(runuser), WaitOptions::NOHANG) {
        let passed = began.elapsed();
        if passed > GRACE + HURRY {
            tree::tell(&[Signal::KILL], None);
            let _ = rustix::process::waitpid(Some(runuser), WaitOptions::empty());
            return;
        }
        if passed > GRACE && !hurried {
            hurried = true;
            // What it waits for. Once: it may start something to close the session.
            tree::kill(&tree::children(runuser));
        } else if passed > ANCHORS {
            tree::kill(anchors);
        }
        // It stops when the anchor is stopped.
        let _ = rustix::process::kill_process(runuser, Signal::CONT);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a process below runuser is to be, by its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Anchor,
    Session,
}

impl Part {
    pub(super) fn of(arguments: &[std::ffi::OsString]) -> Option<Self> {
        match arguments {
            [below, part] if below == BELOW && part == ANCHOR => Some(Self::Anchor),
            [below, part] if below == BELOW && part == SESSION => Some(Self::Session),
            _ => None,
        }
    }
}

/// Starts the session's process, and stays until the keeper hangs up.
pub(super) fn anchor() -> Result<ExitCode, HelperError> {
    let mut session = Command::new("/proc/self/exe");
    session.args([ARGUMENT, BELOW, SESSION]);
    let started = session.status().map_err(HelperError::system("start the session's process"))?;
    if !started.success() {
        return Ok(ExitCode::from(FAILED));
    }
    // A terminal that a process holds does not end.
    if let Ok(nothing) = File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
    let line = rustix::stdio::stderr();
    loop {
        // Only the end: what comes is for the session's process, which has the same socket.
        let mut places = [PollFd::from_borrowed_fd(line, PollFlags::empty())];
        match rustix::event::poll(&mut places, None) {
            Ok(_) if places.iter().any(|line| !line.revents().is_empty()) => return Ok(ExitCode::SUCCESS),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(HelperError::system("wait for the session's end")(error)),
        }
    }
}

/// Becomes the session's process: the keeper's child, the leader of a session, with the session's ends. Gives what the session
/// is, and its command line.
pub(super) fn join() -> Result<(Spec, Vec<u8>), HelperError> {
    let parent = rustix::process::getpid();
    // Its parent ends here, as the anchor expects.
    nix::unistd::daemon(true, true).map_err(HelperError::system("leave the anchor"))?;
    while rustix::process::getppid() == Some(parent) {
        std::thread::sleep(Duration::from_micros(100));
    }
    let own = rustix::process::getpid();
    // Some systems' daemon(3) forks once more.
    if rustix::process::getsid(None).ok() != Some(own) {
        rustix::process::setsid().map_err(HelperError::system("start a session"))?;
    }
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr().as_fd(), 3)
        .map_err(HelperError::system("keep the line to the keeper"))?;
    let line = UnixStream::from(line);
    let number = format!("\0{}\n", own.as_raw_pid());
    let taken = (&line).write_all(number.as_bytes()).and_then(|()| {
        let ends = Ends::receive(&line)?;
        let spec = ends::receive_text(&line)?;
        let command = ends::receive_text(&line)?;
        ends.take()?;
        Ok((spec, command))
    });
    let (spec, command) = taken.map_err(HelperError::system("take the session's ends"))?;
    let spec = serde_json::from_slice(&spec).map_err(HelperError::NotDescribed)?;
    Ok((spec, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_says_its_number_among_whatever_modules_say() {
        assert_eq!(announced(b"pam_motd: hello\n"), None);
        assert_eq!(announced(b"noise\n\x004"), None);
        assert_eq!(announced(b"noise\n\x0042\nmore"), Pid::from_raw(42));
        for lie in [&b"\0\n"[..], b"\0-1\n", b"\x000\n", b"\x004294967295\n", b"\x001 2\n"] {
            assert_eq!(announced(lie), None, "{lie:?}");
        }
    }

    #[test]
    fn a_refusal_is_one_line_of_bounded_length() {
        let said = "pam_x: no\x1b[2J\r\nrunuser: cannot open session: Permission denied\n";
        assert_eq!(
            refusal("bob", said).to_string(),
            "this machine opens no session for the account bob (PAM service runuser): pam_x: no; [2J; cannot open \
             session: Permission denied"
        );
        assert!(refusal("bob", "").to_string().ends_with("runuser gives no reason"));
        assert!(refusal("bob", &"x".repeat(9000)).to_string().len() < 700);
        assert_eq!(one_line("no\x1b]0;title\x07\u{9b}2J"), "no; ]0;title; 2J");
    }

    #[test]
    fn only_two_arguments_name_a_part() {
        let part = |arguments: &[&str]| Part::of(&arguments.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(part(&["--below-pam", "anchor"]), Some(Part::Anchor));
        assert_eq!(part(&["--below-pam", "session"]), Some(Part::Session));
        assert_eq!(part(&["--below-pam"]), None);
        assert_eq!(part(&["--below-pam", "other"]), None);
        assert_eq!(part(&[]), None);
    }
}
