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
use crate::processes::{self, Process};

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
    /// Looks for what is left. `over` is when the first process of the session had ended: from then on its number, and the session's,
    /// may be those of another, unless somebody is still in it who was there before.
    fn find(&self, over: Option<u64>) -> Left {
        let mut left = Left::default();
        for process in Process::running() {
            if self.number.is_some_and(|number| number.as_raw_pid() == process.session) {
                left.within.push(process);
            } else if self.names(&process) {
                left.beyond.push(process);
            }
        }
        let known = over.is_none_or(|over| left.within.iter().any(|process| process.started <= over));
        if !known {
            left.within.retain(|process| self.names(process));
        }
        left
    }

    /// Whether a process has the session's variable. Other accounts cannot pass their programs off as this session's.
    fn names(&self, process: &Process) -> bool {
        process.owner() == Some(self.owner) && self.id.is_some() && process.variable(SESSION) == self.id
    }

    /// Kills what is in the session until nothing is, or the time is over.
    fn kill(&self, over: Option<u64>) {
        let began = Instant::now();
        loop {
            let within = self.find(over).within;
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

/// The kernel's session that a keeper has begun for a session.
pub(super) fn below(keeper: Pid) -> Option<Pid> {
    let keeper = keeper.as_raw_pid();
    let mut all = Process::running();
    all.find(|one| one.parent == keeper && one.session == one.pid.as_raw_pid()).map(|one| one.pid)
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
    let mut over = None;
    if timeout(grace, child.wait()).await.is_ok() {
        over = processes::now();
        group.forget();
        if look(&traces, over, false).await.is_empty() {
            return;
        }
        // The others have as long as it would have had.
        tokio::time::sleep_until(began + grace).await;
    } else if cut {
        group.signal(Signal::KILL);
        let _ = child.wait().await;
        over = processes::now();
        group.forget();
    }
    let left = look(&traces, over, cut).await;
    if !left.is_empty() {
        let _ = tap.happened(Happening::Left(left)).await;
    }
    // The runtime reaps the child when it ends; its number is its own until then.
    group.forget();
}

/// What is left, in words, after what may not be is killed.
async fn look(traces: &Traces, over: Option<u64>, kills: bool) -> Vec<String> {
    let traces = traces.clone();
    let looked = tokio::task::spawn_blocking(move || {
        if kills {
            traces.kill(over);
        }
        traces.find(over).told()
    });
    looked.await.unwrap_or_default()
}
