//! How what a session runs is known among the machine's processes, also when its first process is gone.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

use super::Happening;
use super::sweep::{SESSION, Sweeper};
use crate::processes::Process;

/// How long what is killed may take to be gone. What waits for a disk is left.
pub(super) const KILLED: Duration = Duration::from_secs(2);
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
pub(super) struct Left {
    within: Vec<Process>,
    beyond: Vec<Process>,
}

impl Left {
    /// What goes on, if anything does.
    pub(super) fn told(&self) -> Option<Happening> {
        let all = self.within.iter().chain(&self.beyond);
        let more = all.clone().count().saturating_sub(MOST_TOLD);
        let told = all.take(MOST_TOLD);
        let processes: Vec<_> =
            told.map(|process| format!("{} {}", process.pid.as_raw_pid(), process.name())).collect();
        (!processes.is_empty()).then_some(Happening::Left { processes, more })
    }
}

impl Traces {
    /// Looks for what is left. In a session whose number may be another's, nothing counts that does not name this one, unless one of
    /// its processes was there before: while it is, the number is not given again. None where it cannot be learned what runs.
    pub(super) async fn find(&self, sweeper: &Sweeper, reaped: Reaped) -> Option<Left> {
        let within = self.within(sweeper, reaped).await?;
        let mut beyond = self.named(sweeper).await;
        beyond.retain(|process| !self.is_within(process));
        Some(Left { within, beyond })
    }

    /// What is left in the kernel's session.
    pub(super) async fn within(&self, sweeper: &Sweeper, reaped: Reaped) -> Option<Vec<Process>> {
        let running = sweeper.running().await?;
        let mut within: Vec<_> = running.iter().filter(|process| self.is_within(process)).copied().collect();
        let known = match reaped {
            Reaped::No => true,
            Reaped::At(None) => false,
            Reaped::At(Some(at)) => within.iter().any(|process| process.started <= at),
        };
        if !known && !within.is_empty() {
            let named = self.named(sweeper).await;
            within.retain(|process| named.contains(process));
        }
        Some(within)
    }

    fn is_within(&self, process: &Process) -> bool {
        self.number.is_some_and(|number| number.as_raw_pid() == process.session)
    }

    /// The processes that have the session's variable. Other accounts cannot pass their programs off as this session's.
    async fn named(&self, sweeper: &Sweeper) -> Vec<Process> {
        let Some(id) = &self.id else { return Vec::new() };
        let named = sweeper.named(self.owner).await;
        named.iter().filter(|(_, named)| named == id).map(|(process, _)| *process).collect()
    }

    /// Tells what is in the session that it is over. A stopped process has to wake to notice.
    pub(super) async fn hang_up(&self, sweeper: &Sweeper, reaped: Reaped) {
        for process in self.within(sweeper, reaped).await.unwrap_or_default() {
            process.send(Signal::HUP);
            process.send(Signal::CONT);
        }
    }

    /// Kills what is in the session until nothing is, or the time is over: then at least one has been looked for again.
    pub(super) async fn kill(&self, sweeper: &Sweeper, reaped: Reaped) {
        let began = Instant::now();
        let mut looks = 0;
        loop {
            if let Some(within) = self.within(sweeper, reaped).await {
                if within.is_empty() {
                    return;
                }
                for process in within {
                    process.send(Signal::KILL);
                }
            }
            looks += 1;
            if looks > 1 && began.elapsed() > KILLED {
                return;
            }
            sleep(AGAIN).await;
        }
    }
}

/// The kernel's session that a keeper has begun for a session: of those below it that name this one, the first. A module of PAM may
/// have begun others there before, which do not.
pub(super) fn below(keeper: Pid, traces: &Traces) -> Option<Pid> {
    let keeper = keeper.as_raw_pid();
    let leads = |one: &Process| one.parent == keeper && one.session == one.pid.as_raw_pid();
    let names = |one: &Process| {
        one.owner() == Some(traces.owner) && traces.id.is_some() && one.variable(SESSION) == traces.id
    };
    // One look for each session costs much where many end at once, and the keeper knows its children.
    let children = Process::children(keeper).into_iter();
    let found = children.filter(|one| leads(one) && names(one)).min_by_key(|one| one.started);
    found.map(|one| one.pid)
}
