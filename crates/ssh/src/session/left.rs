//! What a session leaves on this machine when it is ended before its program has.
//!
//! The hang-up reaches one process group, and so does the kill after it. A shell puts each of its jobs into a group of its own,
//! and a program that has died of the hang-up may have children that ignore it. So what is killed is looked for in the kernel's
//! session (setsid(2)) that the node has begun for this one. What has left that is found by the session's variable, told of, and
//! left alone: `kill_orphans` is there to end it.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use super::Observer;
use super::group::Group;
pub(crate) use super::sweep::SESSION;
use super::sweep::Sweeper;
use super::traces::{KILLED, Reaped};

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

/// Sees to the end of what a session runs that has been hung up. `grace` later nothing of it is left in the kernel's session where
/// it was cut, and what is left otherwise is told.
pub(super) async fn see_out(
    mut child: Child,
    mut group: Group,
    cut: bool,
    grace: Duration,
    observer: Arc<dyn Observer>,
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
        let _ = observer.happened(left).await;
    }
    // The runtime reaps the child when it ends; its number is its own until then.
    group.forget();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rustix::process::Pid;

    use super::super::Happening;
    use super::super::traces::Traces;
    use super::*;
    use crate::processes::Process;

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
    struct Told(parking_lot::Mutex<Vec<Happening>>);

    #[async_trait::async_trait]
    impl Observer for Told {
        async fn happened(&self, what: Happening) -> Result<(), super::super::Stop> {
            self.0.lock().push(what);
            Ok(())
        }
    }

    /// Sessions whose commands end at the hang-up, and that leave nothing.
    #[tokio::test(flavor = "multi_thread")]
    async fn hundreds_of_sessions_that_end_at_once_share_their_looks() {
        const SESSIONS: u64 = 300;
        let (ends, told) = (Ends::default(), Arc::new(Told(parking_lot::Mutex::default())));
        let owner = nix::unistd::geteuid().as_raw();
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let id = Some(format!("shared-{number}"));
            let mut command = tokio::process::Command::new("sleep");
            let child = command.arg("600").env(SESSION, format!("shared-{number}")).spawn().unwrap();
            let leader = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
            sessions.push((child, Group::new(leader, false, Traces { number: leader, id, owner })));
        }
        // They are cut together, as when a node stops.
        for (_, group) in &mut sessions {
            group.signal(Signal::KILL);
        }
        for (child, group) in sessions {
            let (observer, sweeper) = (told.clone(), ends.sweeper.clone());
            ends.tasks.spawn(see_out(child, group, true, Duration::from_secs(60), observer, sweeper));
        }
        ends.over().await;
        assert!(told.0.lock().is_empty());
        let looks = ends.sweeper.looks();
        assert!(
            (1..=SESSIONS / 4).contains(&looks),
            "{looks} looks at all processes for {SESSIONS} sessions"
        );
    }
}
