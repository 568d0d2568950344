//! The processes below one, and signals to them.

use std::collections::HashMap;

use rustix::process::{Pid, Signal};

use crate::processes::Process;

/// Who stands directly below a process now.
pub(super) fn children(of: Pid) -> Vec<Process> {
    Process::all().filter(|process| process.parent == of.as_raw_pid()).collect()
}

/// Kills processes that are still there, and what is below them.
pub(super) fn kill(processes: &[Process]) {
    for process in processes.iter().filter(|process| process.is_there()) {
        let below = descendants(process.pid, None);
        // First, so that it starts nothing more. A process that it started in the meantime becomes the keeper's child.
        process.send(Signal::KILL);
        for process in below {
            process.send(Signal::KILL);
        }
    }
}

/// Sends signals to all descendants of this process, but for this one and its own.
pub(super) fn tell(signals: &[Signal], but: Option<Pid>) {
    for process in descendants(rustix::process::getpid(), but) {
        for signal in signals {
            process.send(*signal);
        }
    }
}

pub(super) fn descendants(of: Pid, but: Option<Pid>) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in Process::all().filter(|process| Some(process.pid) != but) {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = children.remove(&of.as_raw_pid()).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let more = children.remove(&process.pid.as_raw_pid()).unwrap_or_default();
        found.extend(more);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn processes_are_found_with_their_names_and_their_children() {
        let directory = tempfile::tempdir().unwrap();
        // A name that looks like the fields that follow it.
        let program = directory.path().join("x) R 1 1");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("100").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = rustix::process::getpid();
        let found = descendants(own, None).into_iter().find(|process| process.pid.as_raw_pid() == pid);
        let found = found.expect("the child is missing");
        assert_eq!(found.parent, own.as_raw_pid());
        let other = found.of_later();
        other.send(Signal::KILL);
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "an earlier process of that number was meant");
        found.send(Signal::KILL);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
