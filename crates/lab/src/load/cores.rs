//! Who runs where: the generator on processors of its own, so that it takes nothing from the server that it presses.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::LabError;

/// How the processors are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores {
    /// Processors of the generator.
    pub generator: Vec<usize>,
    /// Processors of the servers that the lab starts.
    pub server: Vec<usize>,
}

impl Cores {
    /// Splits those that this process may use: half for the generator, or so many, at least one for each side. Where
    /// there is one only, or when it is not wanted, both sides use all.
    pub(super) fn split(apart: bool, generator: Option<usize>) -> Result<Self, LabError> {
        let allowed = sched_getaffinity(None).map_err(|error| LabError::Failed {
            what: "finding out which processors there are".to_owned(),
            said: error.to_string(),
        })?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        Self::of(&all, apart, generator)
    }

    fn of(all: &[usize], apart: bool, generator: Option<usize>) -> Result<Self, LabError> {
        if !apart || all.len() < 2 {
            return Ok(Self { generator: all.to_vec(), server: all.to_vec() });
        }
        let wanted = generator.unwrap_or(all.len() / 2);
        if wanted == 0 || wanted >= all.len() {
            return Err(LabError::Input(format!(
                "the generator cannot have {wanted} of {} processors: each side needs one",
                all.len()
            )));
        }
        // The last ones: interrupts are more often on the first.
        let (server, generator) = all.split_at(all.len() - wanted);
        Ok(Self { generator: generator.to_vec(), server: server.to_vec() })
    }

    /// Whether the two sides share no processor.
    pub(super) fn apart(&self) -> bool {
        self.generator != self.server
    }

    /// Puts the thread that calls on the generator's processors. Where the system says no, it stays where it is.
    pub(super) fn enter_generator(&self) {
        if self.apart() {
            let _ = sched_setaffinity(None, &set(&self.generator));
        }
    }

    /// Runs something that starts processes; they stay on the server's processors, with all of their threads.
    pub(super) fn on_server<T: Send>(
        &self,
        start: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        // What a thread starts inherits where the thread may run.
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    if self.apart() {
                        let _ = sched_setaffinity(None, &set(&self.server));
                    }
                    start()
                })
                .join()
                .unwrap_or_else(|_| Err(LabError::Connection("starting a server ended badly".to_owned())))
        })
    }

    /// In words.
    pub(super) fn line(&self) -> String {
        let many = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        if !self.apart() {
            return format!("generator and server share the processors {}", many(&self.server));
        }
        let siblings = self.generator.iter().any(|cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            listed(&text).iter().any(|cpu| self.server.contains(cpu))
        });
        let siblings =
            if siblings { "; some of them are two threads of one core, which is not two cores" } else { "" };
        format!(
            "the generator runs on processor {} and the servers that the lab starts on {}{siblings}",
            many(&self.generator),
            many(&self.server)
        )
    }
}

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

/// The kernel's lists: `0-1,8`.
fn listed(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first + CpuSet::MAX_CPU));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_side_has_its_own_where_there_are_two() {
        let split = |all: &[usize], apart, generator| Cores::of(all, apart, generator);
        let two = split(&[0, 1], true, None).unwrap();
        assert_eq!(
            (two.generator.as_slice(), two.server.as_slice(), two.apart()),
            (&[1][..], &[0][..], true)
        );
        let eight = split(&[0, 1, 2, 3, 4, 5, 6, 7], true, Some(2)).unwrap();
        assert_eq!((eight.generator.len(), eight.server.len()), (2, 6));
        for (all, apart) in [(&[3][..], true), (&[0, 1][..], false)] {
            let shared = split(all, apart, None).unwrap();
            assert!(!shared.apart() && shared.server == all && shared.line().contains("share"));
        }
        for wrong in [0, 2, 9] {
            assert!(matches!(split(&[0, 1], true, Some(wrong)), Err(LabError::Input(_))), "{wrong}");
        }
        assert_eq!(listed("0-2,8\n"), [0, 1, 2, 8]);
        assert!(listed("").is_empty());
    }

    #[test]
    fn what_is_started_for_the_server_stays_there() {
        let cores = Cores::split(true, None).unwrap();
        let shown = cores
            .on_server(|| {
                let output = std::process::Command::new("sh")
                    .args(["-c", "grep Cpus_allowed_list /proc/self/status"])
                    .output();
                Ok(String::from_utf8_lossy(&output.unwrap().stdout).into_owned())
            })
            .unwrap();
        let list = shown.split_whitespace().last().unwrap();
        assert_eq!(listed(list), cores.server, "{shown}");
    }
}
