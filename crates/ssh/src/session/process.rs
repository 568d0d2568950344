//! Starting the session process and holding its ends.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::left::{Reaped, SESSION, Traces};
use super::opening::{Door, Sides};
use super::{Kind, Ready, Request, StartError, left, terminal};
use crate::helper::ends::Ends;
use crate::helper::{self, Spec, Work, keeper};
use crate::processes;

/// Most bytes taken from a process at once.
pub(super) const BLOCK_BYTES: usize = 64 * 1024;
/// What a process may have on its way in each direction: four times what a pipe has, so that process and node take turns
/// a quarter as often. It is memory of the kernel, and only what is really on its way.
const PIPE_BYTES: usize = 256 * 1024;

/// How long a process may take to end once it has said why.
const ENDING: Duration = Duration::from_secs(5);

/// The program that becomes the account; see [`crate::helper`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// The program. Default: this one.
    pub program: PathBuf,
    /// Its arguments, to which the command is appended. Default: `__session`.
    pub arguments: Vec<OsString>,
}

impl Default for Helper {
    fn default() -> Self {
        // The link of the running file, not its path: it holds while an upgrade replaces the file.
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![helper::ARGUMENT.into()] }
    }
}

/// A session whose process runs. Dropping it hangs up.
#[derive(Debug)]
pub struct Running {
    pub(super) child: Child,
    pub(super) group: Group,
    pub(super) stdin: Option<End>,
    pub(super) stdout: End,
    pub(super) stderr: Option<End>,
    /// Standard error carries reports of file operations instead of text.
    pub(super) reports: bool,
    /// The path of its terminal.
    tty: Option<String>,
    /// Tells when it begins, where others have to open it.
    door: Option<Door>,
}

impl Running {
    /// Its process and the path of its terminal, when it has one.
    pub(crate) fn terminal(&self) -> Option<(u32, String)> {
        Some((self.child.id()?, self.tty.clone()?))
    }

    /// Waits until PAM has opened the session, where it is asked to. Nothing of the session runs before.
    ///
    /// # Errors
    /// Why there is none, for the person.
    pub async fn opened(&mut self) -> Result<(), String> {
        let Some(door) = self.door.take() else { return Ok(()) };
        let opened = door.opened().await;
        if opened.is_err() && matches!(timeout(ENDING, self.child.wait()).await, Ok(Ok(_))) {
            self.group.reaped();
        }
        opened
    }
}

/// The session's processes. Hangs up when dropped before [`Group::forget`].
#[derive(Debug)]
pub(super) struct Group {
    leader: Option<Pid>,
    /// The process is a keeper, which hands signals on.
    kept: bool,
    /// When the process was reaped, as [`Reaped::At`].
    reaped: OnceLock<Option<u64>>,
    traces: Traces,
}

impl Group {
    /// Sends a signal to every process of the session that has not left its group. The leader gets it even when it
    /// has not made the group yet. Once it has been reaped nothing is sent: its number may be another's, of any account.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.leader.filter(|_| self.is_reaped() == Reaped::No) {
            if self.kept {
                let signal = if signal == Signal::KILL { keeper::KILL } else { signal };
                let _ = rustix::process::kill_process(pid, signal);
                return;
            }
            // Gone already is as good as reached.
            if rustix::process::kill_process_group(pid, signal).is_err() {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }

    /// What a terminal does when its line drops. A stopped process has to wake to notice.
    pub(super) fn hang_up(&mut self) {
        if self.kept {
            // While it is there, its session is known by it.
            let keeper = self.leader.filter(|_| self.is_reaped() == Reaped::No);
            self.traces.number = keeper.and_then(|keeper| left::below(keeper, &self.traces));
            return self.signal(keeper::OVER);
        }
        self.signal(Signal::HUP);
        self.signal(Signal::CONT);
    }

    /// How what the session leaves is known.
    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// The process has just been waited for.
    pub(super) fn reaped(&self) {
        let _ = self.reaped.set(processes::now());
    }

    pub(super) fn is_reaped(&self) -> Reaped {
        self.reaped.get().map_or(Reaped::No, |at| Reaped::At(*at))
    }

    /// One that this process leads.
    #[cfg(test)]
    pub(super) fn led(leader: Option<Pid>, traces: Traces) -> Self {
        Self { leader, kept: false, reaped: OnceLock::new(), traces }
    }

    /// Nothing is to be sent to the group any more.
    pub(super) fn forget(&mut self) {
        self.leader = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// One of this side's ends of a pipe or terminal.
#[derive(Debug, Clone)]
pub(super) struct End {
    fd: Arc<AsyncFd<OwnedFd>>,
    pub(super) terminal: bool,
}

impl End {
    /// A larger pipe, where the account may have one. It works all the same without.
    pub(super) fn pipe(fd: OwnedFd) -> io::Result<Self> {
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_BYTES);
        Self::new(fd, false)
    }

    pub(super) fn new(fd: OwnedFd, terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe to call; what the deprecation is about, a type that changes its \
                      descriptor while registered, an OwnedFd cannot do"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd: Arc::new(fd), terminal })
    }

    /// The next output; `None` at its end. No buffer is held while there is none.
    pub(super) async fn read(&self) -> io::Result<Option<Bytes>> {
        loop {
            let mut ready = self.fd.readable().await?;
            let mut block = Vec::with_capacity(BLOCK_BYTES);
            match rustix::io::read(self.fd.get_ref(), rustix::buffer::spare_capacity(&mut block)) {
                Ok(0) => return Ok(None),
                // The other end of the terminal has been closed.
                Err(Errno::IO) if self.terminal => return Ok(None),
                Ok(count) if count < BLOCK_BYTES / 4 => return Ok(Some(Bytes::copy_from_slice(&block))),
                Ok(_) => return Ok(Some(Bytes::from(block))),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes some of the bytes and says how many.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.writable().await?;
            match rustix::io::write(self.fd.get_ref(), bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn resize(&self, size: super::Size) -> io::Result<()> {
        terminal::resize(self.fd.get_ref(), size)
    }
}

/// Starts a session's process, or takes the one that is ready.
///
/// # Errors
/// [`StartError::Terminal`] or [`StartError::Spawn`]. What goes wrong later, inside the new process, it says itself on
/// the session's standard error.
pub fn start(request: &Request, ready: &Ready) -> Result<Running, StartError> {
    let helper = ready.helper();
    let spawn_failed = |source| StartError::Spawn { program: helper.program.clone(), source };
    let owner = nix::unistd::geteuid().is_root().then_some(request.account.uid);
    let pair = match (&request.kind, &request.terminal) {
        // Files go over a clean pipe even if a confused client asked for a terminal as well.
        (Kind::Sftp, _) | (_, None) => None,
        (_, Some(wanted)) => Some(terminal::open(wanted, owner).map_err(StartError::Terminal)?),
    };

    // What the client may have sent of that name stands before it.
    let id = request.environment.iter().rfind(|(name, _)| name == SESSION).map(|(_, id)| id.clone());
    let mut environment = request.environment.clone();
    if let (Some(pair), Some(wanted)) = (&pair, &request.terminal) {
        environment.push(("TERM".to_owned(), wanted.term.clone()));
        environment.push(("SSH_TTY".to_owned(), pair.path.clone()));
    }
    // The file service starts nothing.
    let kills = request.kill_orphans && request.kind != Kind::Sftp;
    let kept = kills || request.pam_session;
    let spec = Spec {
        login: request.account.name.clone(),
        work: match request.kind {
            Kind::Shell => Work::Shell,
            Kind::Exec(_) => Work::Exec,
            Kind::Sftp => Work::Sftp,
        },
        terminal: pair.is_some(),
        environment,
        hash_files: request.hash_files,
        keeper_for: kept.then(std::process::id),
        pam_session: request.pam_session,
        spares_orphans: kept && !kills,
        pam: None,
    };
    let line = match &request.kind {
        Kind::Exec(line) => Some(line.as_slice()),
        Kind::Shell | Kind::Sftp => None,
    };

    let tty = pair.as_ref().map(|pair| pair.path.clone());
    let Sides { theirs, stdin, stdout, stderr } = Sides::of(pair).map_err(spawn_failed)?;
    let waited = if kept { None } else { ready.begin(&spec, line.unwrap_or_default(), &theirs) };
    let (child, door) = match waited {
        Some(child) => (child, None),
        None => spawn(helper, &spec, line, theirs).map_err(spawn_failed)?,
    };
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let traces = Traces { number: leader.filter(|_| !kept), id, owner: request.account.uid };
    Ok(Running {
        child,
        group: Group { leader, kept, reaped: OnceLock::new(), traces },
        stdin: Some(stdin),
        stdout,
        stderr,
        reports: request.kind == Kind::Sftp,
        tty,
        door,
    })
}

/// Starts a process for this session alone.
fn spawn(
    helper: &Helper,
    spec: &Spec,
    line: Option<&[u8]>,
    theirs: Ends,
) -> io::Result<(Child, Option<Door>)> {
    let mut command = Command::new(&helper.program);
    command.args(&helper.arguments).env_clear().env(helper::SPEC, spec.to_text()).current_dir("/");
    if let Some(line) = line {
        command.arg(OsStr::from_bytes(line));
    }
    if !spec.pam_session {
        let [input, output, error] = theirs.into_inner();
        command.stdin(input).stdout(output).stderr(error);
        return Ok((command.spawn()?, None));
    }
    let (ours, its) = UnixStream::pair()?;
    let its = OwnedFd::from(its);
    // What goes wrong it says there, too.
    command.stderr(its.try_clone()?).stdin(its).stdout(Stdio::null());
    let child = command.spawn()?;
    drop(command);
    // A process that has ended already says why.
    let _ = theirs.send(&ours);
    Ok((child, Some(Door::new(ours))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn nothing_is_sent_to_a_number_that_may_be_anothers() {
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let leader = Pid::from_raw(i32::try_from(other.id()).unwrap());
        let traces = Traces { number: leader, id: None, owner: 0 };
        let mut group = Group { leader, kept: false, reaped: OnceLock::new(), traces };
        group.reaped();
        group.hang_up();
        group.signal(Signal::KILL);
        drop(group);
        // The first signal that ends it is the one that it is said to have ended by.
        rustix::process::kill_process(leader.unwrap(), Signal::TERM).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
}
