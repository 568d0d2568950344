//! Starting the session process and holding its ends.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::end::End;
use super::group::Group;
use super::opening::{Announcement, Sides};
use super::sweep::SESSION;
use super::traces::Traces;
use super::{Helper, Kind, OpeningError, Ready, Request, StartError, terminal};
use crate::helper::ends::Ends;
use crate::helper::{self, Spec, Work};

/// How long a process may take to end once it has said why.
const ENDING: Duration = Duration::from_secs(5);

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
    announcement: Option<Announcement>,
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
    pub async fn opened(&mut self) -> Result<(), OpeningError> {
        let Some(announcement) = self.announcement.take() else { return Ok(()) };
        let opened = announcement.opened().await;
        if opened.is_err() && matches!(timeout(ENDING, self.child.wait()).await, Ok(Ok(_))) {
            self.group.reaped();
        }
        opened
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
    let (child, announcement) = match waited {
        Some(child) => (child, None),
        None => spawn(helper, &spec, line, theirs).map_err(spawn_failed)?,
    };
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let traces = Traces { number: leader.filter(|_| !kept), id, owner: request.account.uid };
    Ok(Running {
        child,
        group: Group::new(leader, kept, traces),
        stdin: Some(stdin),
        stdout,
        stderr,
        reports: request.kind == Kind::Sftp,
        tty,
        announcement,
    })
}

/// Starts a process for this session alone.
fn spawn(
    helper: &Helper,
    spec: &Spec,
    line: Option<&[u8]>,
    theirs: Ends,
) -> io::Result<(Child, Option<Announcement>)> {
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
    Ok((child, Some(Announcement::new(ours))))
}
