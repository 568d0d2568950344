//! The keeper: a process above a session that ends what the session leaves running.
//!
//! A process may leave its session, its terminal and its parent, but not its ancestors' subreaper (prctl(2),
//! `PR_SET_CHILD_SUBREAPER`): whatever loses its parent becomes the keeper's child. So the keeper knows that nothing is
//! left when it has no child, and finds what is left among its descendants. It stays what the node is (root, as a rule), so
//! that the account can neither stop it nor hide from it.
//!
//! It takes its orders as signals, which it never obeys itself but reads one by one: [`OVER`] and [`KILL`] are the node's
//! words, the others are for the session. Towards the node it ends as the session's own process did.
//!
//! It also has a session of PAM's opened and closed around the session ([`super::pam_session`]), with or without ending what is
//! left.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, WaitStatus};

use super::ends::Ends;
use super::error::HelperError;
use super::pam_session;
use super::spec::{ARGUMENT, FAILED, KILL, NOLOGIN, OVER, SPEC, Spec, closed_to_logins};
use super::tree::{descendants, kill, tell};
use crate::processes::Process;
use crate::session::Account;

/// How long what is left may take to end by itself, such as a `tee` with the last lines.
const BY_ITSELF: Duration = Duration::from_millis(250);
/// How long it has from the end of the session to the kill.
const GRACE: Duration = Duration::from_secs(3);
/// How long the keeper tries to kill, and waits for PAM's modules. What cannot be killed (it waits for a disk) is left.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks for what was started in the meantime.
const AGAIN: Duration = Duration::from_millis(50);

/// Starts the session's process below a keeper, which this process becomes, and ends as that process ended.
pub(super) fn keep(command: Option<&OsStr>, spec: Spec, node: u32) -> Result<ExitCode, HelperError> {
    let all = SigSet::all();
    all.thread_block().map_err(HelperError::system("hold signals back"))?;
    let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(HelperError::system("read signals"))?;
    let own = rustix::process::getpid();
    rustix::process::setsid().map_err(HelperError::system("start a session"))?;
    rustix::process::set_child_subreaper(Some(own))
        .map_err(HelperError::system("keep what a session starts"))?;
    let node = node_watch(node)?;
    let nothing = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(HelperError::system("open /dev/null"))?;

    let spares = spec.spares_orphans;
    let (child, pam) = if spec.pam_session {
        let started = start_in_pam(command, spec, &signals, node.as_ref());
        if started.is_err() && !spares {
            kill_all();
        }
        let (child, pam) = started?;
        (child, Some(pam))
    } else {
        let mut helper = Command::new("/proc/self/exe");
        helper.arg(ARGUMENT).args(command).env_clear();
        helper.env(SPEC, Spec { keeper_for: None, ..spec }.to_text());
        let child = helper.spawn().map_err(HelperError::system("start the session's process"))?;
        let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        (child.ok_or(HelperError::NoProcess("the session"))?, None)
    };
    // A process that holds the session's ends keeps it from ending.
    rustix::stdio::dup2_stdin(&nothing)
        .and_then(|()| rustix::stdio::dup2_stdout(&nothing))
        .and_then(|()| rustix::stdio::dup2_stderr(&nothing))
        .map_err(HelperError::system("let go of the session's ends"))?;
    drop(nothing);

    Ok(Keeper { signals, node, child, pam, spares, ended: None, ending: None }.watch())
}

/// Opens a session of PAM's and starts the session's process in it. The node, which has sent the session's ends, hears that it
/// has begun; else it hears, as from every session process, why not.
fn start_in_pam(
    command: Option<&OsStr>,
    spec: Spec,
    signals: &SignalFd,
    node: Option<&OwnedFd>,
) -> Result<(Pid, PamSession), HelperError> {
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(HelperError::system("keep the line to the node"))?;
    let line = UnixStream::from(line);
    let ends = Ends::receive(&line).map_err(HelperError::system("take the session's ends"))?;
    let account = Account::find(&spec.login)?;
    if account.uid != 0
        && let Some(reason) = closed_to_logins(Path::new(NOLOGIN))
    {
        return Err(HelperError::NoLogins(pam_session::one_line(&reason)));
    }
    let terminal = spec.terminal.then(|| ends.input());
    let opened = pam_session::open(&spec.login, terminal, signals, node)?;
    let spec = Spec { keeper_for: None, pam_session: false, ..spec };
    if let Err(error) = opened.begin(&ends, &spec, command.unwrap_or_default().as_bytes()) {
        opened.abandon();
        return Err(error);
    }
    // It has begun. A node that does not hear it any more is found to be gone.
    let _ = (&line).write_all(b"+");
    let pam_session::Opened { runuser, line, session, anchors } = opened;
    Ok((session, PamSession { runuser, anchors, line: Some(line), hung_up: None }))
}

/// Readable when the node has gone. None where the system has no such thing.
fn node_watch(node: u32) -> Result<Option<OwnedFd>, HelperError> {
    let node = i32::try_from(node).ok().and_then(Pid::from_raw).ok_or(HelperError::NodeGone)?;
    let watch = rustix::process::pidfd_open(node, PidfdFlags::empty());
    // Looked at after the number was taken: it may be another process's by now.
    if rustix::process::getppid() != Some(node) {
        return Err(HelperError::NodeGone);
    }
    Ok(watch.ok())
}

struct Keeper {
    signals: SignalFd,
    node: Option<OwnedFd>,
    /// The session's process, which leads its group.
    child: Pid,
    /// The session of PAM's, until that is closed.
    pam: Option<PamSession>,
    /// What is left goes on.
    spares: bool,
    /// How it ended.
    ended: Option<WaitStatus>,
    ending: Option<Ending>,
}

struct PamSession {
    /// Who closes it.
    runuser: Pid,
    /// Who has runuser wait.
    anchors: Vec<Process>,
    /// What has them stay.
    line: Option<UnixStream>,
    /// When that ended.
    hung_up: Option<Instant>,
}

impl PamSession {
    fn hang_up(&mut self) {
        self.line = None;
        self.hung_up.get_or_insert_with(Instant::now);
    }

    /// Sees to it that runuser closes the session. The anchor is the account's, which may stop it, and then runuser stops as well,
    /// or may have put code into it that does not go. It has nothing to lose. What modules start stays untouched.
    fn close(&self) {
        if self.hung_up.is_some_and(|hung_up| hung_up.elapsed() >= AGAIN) {
            kill(&self.anchors);
            // Its number is no other process's until it is reaped.
            let _ = rustix::process::kill_process(self.runuser, Signal::CONT);
        }
    }
}

/// How far the end of what is left has come.
struct Ending {
    began: Instant,
    told: bool,
}

impl Keeper {
    fn watch(mut self) -> ExitCode {
        loop {
            if !self.reap() || self.done() || self.give_up() {
                return self.ended.map_or(ExitCode::from(FAILED), end_like);
            }
            let node_gone = self.wait();
            while let Ok(Some(signal)) = self.signals.read_signal() {
                let named = i32::try_from(signal.ssi_signo).ok().and_then(Signal::from_named_raw);
                match named {
                    Some(OVER) => self.over(),
                    Some(KILL) => self.group(Signal::KILL),
                    Some(Signal::CHILD) | None => {}
                    Some(other) => self.group(other),
                }
            }
            if node_gone {
                self.node = None;
                self.over();
            }
            self.go_on();
        }
    }

    /// Takes in the children that have ended; false when none is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => {
                    self.ended = Some(status);
                    self.ending.get_or_insert(Ending { began: Instant::now(), told: false });
                    if let Some(pam) = &mut self.pam {
                        pam.hang_up();
                    }
                }
                Ok(Some((pid, _))) if self.pam.as_ref().is_some_and(|pam| pam.runuser == pid) => {
                    self.pam = None;
                    // Closed from outside, as `loginctl terminate-session` does: then so is the session.
                    if self.ended.is_none() {
                        self.over();
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Waits for something to do; whether the node has gone.
    fn wait(&self) -> bool {
        let timeout = self.ending.as_ref().map(|ending| {
            let next = match ending.told {
                _ if self.spares => PATIENCE,
                true => GRACE,
                false => BY_ITSELF,
            };
            let closes = self.pam.as_ref().is_some_and(|pam| pam.hung_up.is_some());
            if closes { AGAIN } else { next.saturating_sub(ending.began.elapsed()).max(AGAIN) }
        });
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut places = vec![PollFd::new(&self.signals, PollFlags::IN)];
        places.extend(self.node.as_ref().map(|node| PollFd::new(node, PollFlags::IN)));
        let _ = rustix::event::poll(&mut places, timeout.as_ref());
        places.get(1).is_some_and(|node| !node.revents().is_empty())
    }

    /// The session is over while its process still runs: as when the line of a terminal drops.
    fn over(&mut self) {
        if self.ending.is_none() {
            self.group(Signal::HUP);
            self.group(Signal::CONT);
            self.ending = Some(Ending { began: Instant::now(), told: false });
        }
    }

    fn group(&self, signal: Signal) {
        // Its number is no other process's until it is reaped.
        if self.ended.is_none() && rustix::process::kill_process_group(self.child, signal).is_err() {
            let _ = rustix::process::kill_process(self.child, signal);
        }
    }

    fn go_on(&mut self) {
        if let Some(pam) = &self.pam {
            pam.close();
        }
        let Some(ending) = self.ending.as_mut().filter(|_| !self.spares) else { return };
        let but = self.pam.as_ref().map(|pam| pam.runuser);
        let passed = ending.began.elapsed();
        if passed >= GRACE {
            tell(&[Signal::KILL], but);
        } else if passed >= BY_ITSELF && !ending.told {
            ending.told = true;
            // What is stopped has to wake to end.
            tell(&[Signal::TERM, Signal::CONT], but);
        }
    }

    /// Whether only those are left that go on.
    fn done(&self) -> bool {
        self.spares && self.ended.is_some() && self.pam.is_none()
    }

    fn give_up(&mut self) -> bool {
        if self.ending.as_ref().is_none_or(|ending| ending.began.elapsed() < PATIENCE) {
            return false;
        }
        let Some(pam) = &mut self.pam else { return true };
        pam.hang_up();
        if pam.hung_up.is_some_and(|hung_up| hung_up.elapsed() < GRACE) {
            return false;
        }
        if !self.spares {
            for process in descendants(pam.runuser, None) {
                process.send(Signal::KILL);
            }
        }
        true
    }
}

/// Kills all descendants of this process, which has begun no session.
fn kill_all() {
    for _ in 0..20 {
        tell(&[Signal::KILL], None);
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(AGAIN);
    }
}

/// Ends this process as another one did, so that the node and its client see what happened.
fn end_like(status: WaitStatus) -> ExitCode {
    if let Some(code) = status.exit_status() {
        return ExitCode::from(u8::try_from(code).unwrap_or(FAILED));
    }
    let Some(signal) = status.terminating_signal() else { return ExitCode::from(FAILED) };
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    let _ = SigSet::empty().thread_set_mask();
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The first of some signals only takes the handler of Rust's runtime away.
        for _ in 0..2 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }
    }
    // Still here: the runtime ignores it (PIPE), or it has no name. A program started by this one does not.
    use std::os::unix::process::CommandExt;
    let _ = Command::new("/bin/sh").args(["-c", "kill -s \"$0\" $$", &signal.to_string()]).exec();
    ExitCode::from(FAILED)
}
