//! What a session leaves on this machine when it is ended before its program has.
//!
//! The hang-up reaches one process group, and so does the kill after it. A shell puts each of its jobs into a group of its own,
//! and a program that has died of the hang-up may have children that ignore it. So what is killed is looked for in the kernel's
//! session (setsid(2)) that the node has begun for this one. What has left that is found by the session's variable, told of, and
//! left alone: `kill_orphans` is there to end it.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::process::Group;
use super::sweep::Sweeper;
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
    /// What goes on, if anything does.
    fn told(&self) -> Option<Happening> {
        let all = self.within.iter().chain(&self.beyond);
        let more = all.clone().count().saturating_sub(MOST_TOLD);
        let told = all.take(MOST_TOLD);
        let processes: Vec<_> =
            told.map(|process| format!("{} {}", process.pid.as_raw_pid(), process.name())).collect();
        (!processes.is_empty()).then_some(Happening::Left { processes, more })
    }
}

/// The ends of a node's sessions: tasks that outlast their connections, and the looks at the machine's processes that they share.
/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    pub(crate) tasks: TaskTracker,
    pub(super) sweeper: Sweeper,
}

impl Ends {
    /// Waits until all that were begun are over.
    pub async fn over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Traces {
    /// Looks for what is left. In a session whose number may be another's, nothing counts that does not name this one, unless one of
    /// its processes was there before: while it is, the number is not given again. None where it cannot be learned what runs.
    async fn find(&self, sweeper: &Sweeper, reaped: Reaped) -> Option<Left> {
        let within = self.within(sweeper, reaped).await?;
        let mut beyond = self.named(sweeper).await;
        beyond.retain(|process| !self.is_within(process));
        Some(Left { within, beyond })
    }

    /// What is left in the kernel's session.
    async fn within(&self, sweeper: &Sweeper, reaped: Reaped) -> Option<Vec<Process>> {
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
    async fn hang_up(&self, sweeper: &Sweeper, reaped: Reaped) {
        for process in self.within(sweeper, reaped).await.unwrap_or_default() {
            process.send(Signal::HUP);
            process.send(Signal::CONT);
        }
    }

    /// Kills what is in the session until nothing is, or the time is over: then at least one has been looked for again.
    async fn kill(&self, sweeper: &Sweeper, reaped: Reaped) {
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

/// Sees to the end of what a session runs that has been hung up. `grace` later nothing of it is left in the kernel's session where
/// it was cut, and what is left otherwise is told.
pub(super) async fn see_out(
    mut child: Child,
    mut group: Group,
    cut: bool,
    grace: Duration,
    tap: Arc<dyn Tap>,
    sweeper: Sweeper,
) {
    let began = Instant::now();
    let traces = group.traces().clone();
    if let (true, reaped @ Reaped::At(_)) = (cut, group.is_reaped()) {
        // Signals to its group go nowhere any more.
        traces.hang_up(&sweeper, reaped).await;
    }
    if timeout(grace, child.wait()).await.is_ok() {
        group.reaped();
        let left = traces.find(&sweeper, group.is_reaped()).await;
        if left.is_some_and(|left| left.told().is_none()) {
            return;
        }
        // The others have as long as it would have had.
        sleep_until(began + grace).await;
    } else if cut {
        group.signal(Signal::KILL);
        // What waits for a disk ends when the disk answers, and is told of.
        if timeout(KILLED, child.wait()).await.is_ok() {
            group.reaped();
        }
    }
    let reaped = group.is_reaped();
    if cut {
        traces.kill(&sweeper, reaped).await;
    }
    if let Some(left) = traces.find(&sweeper, reaped).await.and_then(|left| left.told()) {
        let _ = tap.happened(left).await;
    }
    // The runtime reaps the child when it ends; its number is its own until then.
    group.forget();
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
        let began = std::time::Instant::now();
        loop {
            let found = Process::running().find(|one| one.pid.as_raw_pid() == pid && one.session == pid);
            match found {
                Some(process) if process.name() == "sleep" => return process,
                _ => assert!(began.elapsed() < Duration::from_secs(60), "it does not lead a session"),
            }
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn a_number_that_is_given_again_is_anothers() {
        let mut child = leader("theirs");
        let process = seen(&child);
        let owner = process.owner().unwrap();
        let sweeper = Sweeper::default();
        let within = async |id: &str, reaped| {
            let traces = Traces { number: Some(process.pid), id: Some(id.to_owned()), owner };
            traces.within(&sweeper, reaped).await.unwrap().len()
        };
        assert_eq!(within("ours", Reaped::No).await, 1, "until it is reaped the number is its own");
        assert_eq!(within("ours", Reaped::At(Some(process.started))).await, 1, "it was there before");
        assert_eq!(within("ours", Reaped::At(Some(process.started - 1))).await, 0, "it came afterwards");
        assert_eq!(within("ours", Reaped::At(None)).await, 0, "whether it was there is not known");
        assert_eq!(within("theirs", Reaped::At(None)).await, 1, "it says whose it is");
        let ours = Traces { number: Some(process.pid), id: Some("ours".to_owned()), owner };
        ours.kill(&sweeper, Reaped::At(Some(process.started - 1))).await;
        assert!(process.is_there() && child.try_wait().unwrap().is_none(), "another's process was killed");
        // Until it is waited for it has ended, and runs no more.
        ours.kill(&sweeper, Reaped::No).await;
        assert_eq!(within("ours", Reaped::No).await, 0);
        child.wait().unwrap();
    }

    /// What is told of a session, for a test.
    struct Told(std::sync::Mutex<Vec<Happening>>);

    #[async_trait::async_trait]
    impl Tap for Told {
        async fn happened(&self, what: Happening) -> Result<(), super::super::Stop> {
            self.0.lock().unwrap().push(what);
            Ok(())
        }
    }

    /// Sessions whose commands end at the hang-up, and that leave nothing.
    #[tokio::test(flavor = "multi_thread")]
    async fn hundreds_of_sessions_that_end_at_once_share_their_looks() {
        const SESSIONS: u64 = 300;
        let (ends, told) = (Ends::default(), Arc::new(Told(std::sync::Mutex::default())));
        let owner = nix::unistd::geteuid().as_raw();
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let id = Some(format!("shared-{number}"));
            let mut command = tokio::process::Command::new("sleep");
            let child = command.arg("600").env(SESSION, format!("shared-{number}")).spawn().unwrap();
            let leader = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
            sessions.push((child, Group::led(leader, Traces { number: leader, id, owner })));
        }
        // They are cut together, as when a node stops.
        for (_, group) in &mut sessions {
            group.signal(Signal::KILL);
        }
        for (child, group) in sessions {
            let (tap, sweeper) = (told.clone(), ends.sweeper.clone());
            ends.tasks.spawn(see_out(child, group, true, Duration::from_secs(60), tap, sweeper));
        }
        ends.over().await;
        assert!(told.0.lock().unwrap().is_empty());
        let looks = ends.sweeper.looks();
        assert!(
            (1..=SESSIONS / 4).contains(&looks),
            "{looks} looks at all processes for {SESSIONS} sessions"
        );
    }
}
