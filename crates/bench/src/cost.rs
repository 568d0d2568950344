//! What processes cost: processor time and memory, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Processor time of a process so far, user and system, of all its threads. Zero when it is gone.
#[must_use]
pub fn processor_time(pid: u32) -> Duration {
    let Ok(number) = i32::try_from(pid) else { return Duration::ZERO };
    clock_getcpuclockid(Pid::from_raw(number))
        .and_then(nix::time::clock_gettime)
        .map(Duration::from)
        .unwrap_or_default()
}

/// Processor time of the threads that a process has now, added up by their names.
#[must_use]
pub fn thread_times(pid: u32) -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return times };
    for thread in threads.flatten() {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        // Documentation/scheduler/sched-stats.rst: the first number is the time on a processor, in nanoseconds.
        let spent =
            read("schedstat").split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default();
        *times.entry(read("comm").trim_end().to_owned()).or_default() += Duration::from_nanos(spent);
    }
    times
}

/// Processor time of children that have ended, and of theirs, to the hundredth of a second.
#[must_use]
pub fn children_time(pid: u32) -> Duration {
    // proc(5): the fields after the name, which stands in parentheses; cutime and cstime are the 14th and 15th of them.
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Duration::ZERO };
    let Some((_, fields)) = stat.rsplit_once(") ") else { return Duration::ZERO };
    let ticks: u64 = fields.split(' ').skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let per_second =
        sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|rate| u64::try_from(rate).ok()).unwrap_or(100);
    Duration::from_millis(ticks * 1000 / per_second.max(1))
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// Resident.
    pub resident: u64,
    /// The most that was ever resident, since the start or since [`forget_peak`].
    pub peak: u64,
    /// Resident, with what is shared split among those who share it.
    pub proportional: u64,
}

/// What a process has now.
#[must_use]
pub fn memory(pid: u32) -> Memory {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    Memory {
        resident: kibibytes(&status, "VmRSS:"),
        peak: kibibytes(&status, "VmHWM:"),
        proportional: kibibytes(&rollup, "Pss:"),
    }
}

/// Resident memory alone: cheap enough to be asked ten times a second.
#[must_use]
pub fn resident(pid: u32) -> u64 {
    kibibytes(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmRSS:")
}

/// Begins a new peak. Without the right to do so the old one stands.
pub fn forget_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Bytes of files that a process holds open and that have no name any more.
#[must_use]
pub fn unlinked_bytes(pid: u32) -> u64 {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    entries
        .flatten()
        .filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            target.starts_with('/') && target.ends_with(" (deleted)")
        })
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|metadata| {
            use std::os::unix::fs::MetadataExt;
            metadata.blocks() * 512
        })
        .sum()
}

fn kibibytes(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
        .unwrap_or_default()
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        let me = std::process::id();
        let before = processor_time(me);
        let mut sum = 0_u64;
        while processor_time(me) - before < Duration::from_millis(3) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let memory = memory(me);
        assert!(memory.resident > 100_000 && memory.peak >= memory.resident / 2, "{memory:?}");
        assert!(memory.proportional > 0 && resident(me) > 0);
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
        let named = std::thread::Builder::new().name("counted".to_owned()).spawn(move || {
            let mut sum = 0_u64;
            loop {
                sum = std::hint::black_box((0..100_000_u64).fold(sum, u64::wrapping_add));
                match thread_times(me).get("counted") {
                    Some(spent) if *spent > Duration::from_millis(3) => return,
                    _ => {}
                }
            }
        });
        assert!(named.is_ok_and(|thread| thread.join().is_ok()));
    }

    #[test]
    fn a_child_is_counted_when_it_has_ended() {
        let before = children_time(std::process::id());
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", script]).status();
        assert!(status.is_ok_and(|status| status.success()));
        assert!(children_time(std::process::id()) > before);
    }
}
