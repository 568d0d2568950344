//! The processes of a session as one: signals to them, and the hang-up.

use std::sync::OnceLock;

use rustix::process::{Pid, Signal};

use super::traces::{self, Reaped, Traces};
use crate::helper;
use crate::processes;

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
    /// One that `leader` leads; where it is `kept`, that is a keeper.
    pub(super) fn new(leader: Option<Pid>, kept: bool, traces: Traces) -> Self {
        Self { leader, kept, reaped: OnceLock::new(), traces }
    }

    /// Sends a signal to every process of the session that has not left its group. The leader gets it even when it
    /// has not made the group yet. Once it has been reaped nothing is sent: its number may be another's, of any account.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.leader.filter(|_| self.is_reaped() == Reaped::No) {
            if self.kept {
                let signal = if signal == Signal::KILL { helper::KILL } else { signal };
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
            self.traces.number = keeper.and_then(|keeper| traces::below(keeper, &self.traces));
            return self.signal(helper::OVER);
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
        let mut group = Group::new(leader, false, traces);
        group.reaped();
        group.hang_up();
        group.signal(Signal::KILL);
        drop(group);
        // The first signal that ends it is the one that it is said to have ended by.
        rustix::process::kill_process(leader.unwrap(), Signal::TERM).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
}
