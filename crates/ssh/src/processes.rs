//! The machine's processes, as proc(5) shows them.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::printable::printable;

/// As much of an environment as is looked at, in bytes.
const LONGEST_ENVIRONMENT: u64 = 256 * 1024;

/// One process, which its number alone does not tell from a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    /// The number of the kernel's session that it is in (setsid(2)).
    pub(crate) session: i32,
    /// In hundredths of a second since the start of the machine.
    pub(crate) started: u64,
    /// It has ended, and waits for its parent to notice.
    ended: bool,
}

impl Process {
    /// proc_pid_stat(5).
    fn read(pid: i32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        // The name in parentheses may contain anything.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(15)?.parse().ok()?;
        Some(Self { pid: Pid::from_raw(pid)?, parent, session, started, ended })
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Self::read)
    }

    /// The children of a process that run.
    pub(crate) fn children(parent: i32) -> Vec<Self> {
        // proc_pid_task(5). Each thread has its own.
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists: Option<Vec<String>> =
            tasks.map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect();
        let Some(lists) = lists else {
            // A kernel without CONFIG_PROC_CHILDREN.
            return Self::running().filter(|process| process.parent == parent).collect();
        };
        let numbers = lists.iter().flat_map(|list| list.split_ascii_whitespace());
        let children = numbers.filter_map(|number| Self::read(number.parse().ok()?));
        // A number may be another's by now.
        children.filter(|process| !process.ended && process.parent == parent).collect()
    }

    /// Those that run.
    pub(crate) fn running() -> impl Iterator<Item = Self> {
        Self::all().filter(|process| !process.ended)
    }

    pub(crate) fn is_there(&self) -> bool {
        Self::read(self.pid.as_raw_pid()).is_some_and(|now| now.started == self.started)
    }

    pub(crate) fn send(&self, signal: Signal) {
        match rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(process) => {
                if self.is_there() {
                    let _ = rustix::process::pidfd_send_signal(process.as_fd(), signal);
                }
            }
            // Linux before 5.3.
            Err(Errno::NOSYS) => drop(rustix::process::kill_process(self.pid, signal)),
            Err(_) => {}
        }
    }

    /// Whose it is, where that can be seen.
    pub(crate) fn owner(&self) -> Option<u32> {
        std::fs::metadata(format!("/proc/{}", self.pid.as_raw_pid())).ok().map(|about| about.uid())
    }

    /// A variable of the environment that its program was started with, where that can be seen. A process says itself where its
    /// environment is and how long (PR_SET_MM), so that only its beginning is looked at.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let mut all = Vec::new();
        let file = std::fs::File::open(format!("/proc/{}/environ", self.pid.as_raw_pid())).ok()?;
        file.take(LONGEST_ENVIRONMENT).read_to_end(&mut all).ok()?;
        let value = all
            .split(|byte| *byte == 0)
            .find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec));
        String::from_utf8(value?).ok()
    }

    /// The name of its program, as much of it as the kernel keeps (proc_pid_comm(5)).
    pub(crate) fn name(&self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.pid.as_raw_pid())).unwrap_or_default();
        printable(name.trim_ascii_end())
    }

    /// A later process of that number.
    #[cfg(test)]
    pub(crate) fn of_later(self) -> Self {
        Self { started: self.started + 1, ..self }
    }
}

/// The time since the start of the machine, in the hundredths of a second that [`Process::started`] is in (proc_uptime(5)).
pub(crate) fn now() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 100 + hundredths.get(..2)?.parse::<u64>().ok()?)
}
