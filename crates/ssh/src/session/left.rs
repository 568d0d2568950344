//! What a session leaves on this machine when it is ended before its program has.
//!
//! The hang-up reaches one process group, and so does the kill after it. A shell puts each of its jobs into a group of its own,
//! and a program that has died of the hang-up may have children that ignore it. So what is killed is looked for in the kernel's
//! session (setsid(2)) that the node has begun for this one. What has left that is found by the session's variable, told of, and
//! left alone: `kill_orphans` is there to end it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio::time::timeout;

use super::process::Group;
use super::{Happening, Tap};
use crate::processes::Process;

/// The variable by which a session's programs know which session they are in.
pub(crate) const SESSION: &str = "SALLYPORT_SESSION";

/// How long what is killed may take to be gone. What waits for a disk is left.
const KILLED: Duration = Duration::from_secs(2);
/// How often it is looked for.
const AGAIN: Duration = Duration::from_millis(50);
/// How many processes are told of by name.
const MOST_TOLD: usize = 16;

/// The kernel's session of a session, and how its processes are known.
#[derive(Debug, Clone)]
pub(super) struct Traces {
    /// The number of the kernel's session. Below a keeper it is looked for when the session is hung up.
    pub(super) number: Option<Pid>,
    /// What stands in [`SESSION`].
    pub(super) id: Option<String>,
    /// Whose programs it runs.
    pub(super) owner: u32,
}

/// Whether the first process of a session has been reaped. Until then its number, and the kernel session's, are its own; from
/// then on they may be given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaped {
    No,
    /// At this time, in that of [`Process::started`]; none where the system does not tell the time.
    At(Option<u64>),
}

/// What is left of a session.
#[derive(Debug, Default)]
struct Left {
    within: Vec<Process>,
    beyond: Vec<Process>,
}

impl Left {
    fn told(&self) -> Vec<String> {
        let all = self.within.iter().chain(&self.beyond).take(MOST_TOLD);
        all.map(|process| format!("{} {}", process.pid.as_raw_pid(), process.name())).collect()
    }
}

impl Traces {
    /// Looks for what is left. In a session whose number may be another's, nothing counts that does not name this one, unless one of
    /// its processes was there before: while it is, the number is not given again.
    fn find(&self, reaped: Reaped) -> Left {
        let mut left = Left::default();
        for process in Process::running() {
            if self.number.is_some_and(|number| number.as_raw_pid() == process.session) {
                left.within.push(process);
            } else if self.names(&process) {
                left.beyond.push(process);
            }
        }
        let known = match reaped {
            Reaped::No => true,
            Reaped::At(None) => false,
            Reaped::At(Some(at)) => left.within.iter().any(|process| process.started <= at),
        };
        if !known {
            left.within.retain(|process| self.names(process));
        }
        left
    }

    /// Whether a process has the session's variable. Other accounts cannot pass their programs off as this session's.
    fn names(&self, process: &Process) -> bool {
        process.owner() == Some(self.owner) && self.id.is_some() && process.variable(SESSION) == self.id
    }

    /// Tells what is in the session that it is over. A stopped process has to wake to notice.
    async fn hang_up(self, reaped: Reaped) {
        let told = tokio::task::spawn_blocking(move || {
            for process in self.find(reaped).within {
                process.send(Signal::HUP);
                process.send(Signal::CONT);
            }
        });
        let _ = told.await;
    }

    /// Kills what is in the session until nothing is, or the time is over.
    fn kill(&self, reaped: Reaped) {
        let began = Instant::now();
        loop {
            let within = self.find(reaped).within;
            if within.is_empty() || began.elapsed() > KILLED {
                return;
            }
            for process in within {
                process.send(Signal::KILL);
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// The kernel's session that a keeper has begun for a session: of those below it that name this one, the first. A module of PAM may
/// have begun others there before, which do not.
pub(super) fn below(keeper: Pid, traces: &Traces) -> Option<Pid> {
    let keeper = keeper.as_raw_pid();
    let leads = |one: &Process| one.parent == keeper && one.session == one.pid.as_raw_pid();
    let found = Process::running().filter(|one| leads(one) && traces.names(one));
    found.min_by_key(|one| one.started).map(|one| one.pid)
}

/// Sees to the end of what a session runs that has been hung up. `grace` later nothing of it is left in the kernel's session where
/// it was cut, and what is left otherwise is told.
pub(super) async fn see_out(
    mut child: Child,
    mut group: Group,
    cut: bool,
    grace: Duration,
    tap: Arc<dyn Tap>,
) {
    let began = tokio::time::Instant::now();
    let traces = group.traces().clone();
    if let (true, reaped @ Reaped::At(_)) = (cut, group.is_reaped()) {
        // Signals to its group go nowhere any more.
        traces.clone().hang_up(reaped).await;
    }
    if timeout(grace, child.wait()).await.is_ok() {
        group.reaped();
        if look(&traces, group.is_reaped(), false).await.is_empty() {
            return;
        }
        // The others have as long as it would have had.
        tokio::time::sleep_until(began + grace).await;
    } else if cut {
        group.signal(Signal::KILL);
        // What waits for a disk ends when the disk answers, and is told of.
        if timeout(KILLED, child.wait()).await.is_ok() {
            group.reaped();
        }
    }
    let left = look(&traces, group.is_reaped(), cut).await;
    if !left.is_empty() {
        let _ = tap.happened(Happening::Left(left)).await;
    }
    // The runtime reaps the child when it ends; its number is its own until then.
    group.forget();
}

/// What is left, in words, after what may not be is killed.
async fn look(traces: &Traces, reaped: Reaped, kills: bool) -> Vec<String> {
    let traces = traces.clone();
    let looked = tokio::task::spawn_blocking(move || {
        if kills {
            traces.kill(reaped);
        }
        traces.find(reaped).told()
    });
    looked.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A process that leads a kernel session, with this in [`SESSION`].
    fn leader(id: &str) -> std::process::Child {
        let mut command = std::process::Command::new("setsid");
        command.args(["sleep", "600"]).env(SESSION, id).spawn().unwrap()
    }

    /// The process, once it leads its session.
    fn seen(child: &std::process::Child) -> Process {
        let pid = i32::try_from(child.id()).unwrap();
        let began = Instant::now();
        loop {
            let found = Process::running().find(|one| one.pid.as_raw_pid() == pid && one.session == pid);
            match found {
                Some(process) if process.name() == "sleep" => return process,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "it does not lead a session"),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_number_that_is_given_again_is_anothers() {
        let mut child = leader("theirs");
        let process = seen(&child);
        let owner = process.owner().unwrap();
        let within = |id: &str, reaped| {
            let traces = Traces { number: Some(process.pid), id: Some(id.to_owned()), owner };
            traces.find(reaped).within.len()
        };
        assert_eq!(within("ours", Reaped::No), 1, "until it is reaped the number is its own");
        assert_eq!(within("ours", Reaped::At(Some(process.started))), 1, "it was there before");
        assert_eq!(within("ours", Reaped::At(Some(process.started - 1))), 0, "it came afterwards");
        assert_eq!(within("ours", Reaped::At(None)), 0, "whether it was there is not known");
        assert_eq!(within("theirs", Reaped::At(None)), 1, "it says whose it is");
        let ours = Traces { number: Some(process.pid), id: Some("ours".to_owned()), owner };
        ours.kill(Reaped::At(Some(process.started - 1)));
        assert!(process.is_there() && child.try_wait().unwrap().is_none(), "another's process was killed");
        ours.kill(Reaped::No);
        child.wait().unwrap();
    }
}
