//! The machine: what it is, and whether it was quiet.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Share of the time in which others ran, past which a measurement is called noisy.
const NOISY: f64 = 0.1;

/// What a machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The processor's name.
    pub processor: String,
    /// How many there are.
    pub processors: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// What the processor can do that cryptography is faster with.
    pub flags: Vec<String>,
    /// How the kernel sets the processors' frequency (cpufreq's governor); "none" where it has no say, as in most virtual
    /// machines.
    pub governor: String,
    /// The kernel's release.
    pub kernel: String,
    /// What `ssh -V` says.
    pub openssh: String,
    /// Whether this program was built with optimisations. Figures of one that was not mean nothing.
    pub optimised: bool,
}

impl Facts {
    /// Those of this machine.
    #[must_use]
    pub fn here() -> Self {
        let line = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let found = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
            found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = line("/proc/meminfo", "MemTotal");
        let memory = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024;
        let openssh = std::process::Command::new("ssh").arg("-V").output();
        Self {
            processor: line("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory,
            flags: flags(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            governor: governor(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            openssh: openssh
                .map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned())
                .unwrap_or_default(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let build = if self.optimised { "" } else { "; UNOPTIMISED BUILD: these figures mean nothing" };
        format!(
            "{} x {}, {} GiB, Linux {}, {}{build}",
            self.processors,
            self.processor,
            self.memory >> 30,
            self.kernel,
            self.openssh
        )
    }
}

/// Watches whether others use the processors while something is measured.
#[derive(Debug)]
pub struct Watch {
    began: Instant,
    load: f64,
    used: Used,
}

/// Jiffies of all processors together since the start.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    busy: u64,
    stolen: u64,
    all: u64,
}

/// What a [`Watch`] saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Noise {
    /// How long it watched, in seconds.
    pub seconds: f64,
    /// Processes that wanted to run, averaged over a minute, before the first measurement of this process: what comes
    /// before a later one is of our own making.
    pub load_before: f64,
    /// The same, after.
    pub load_after: f64,
    /// Share of the processors' time that the host took for others.
    pub stolen: f64,
    /// Share of the processors' time that was used, by whomever.
    pub busy: f64,
}

impl Noise {
    /// Why the figures are to be taken with care, when they are.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let mut reasons = Vec::new();
        if self.load_before > 0.7 {
            reasons.push(format!("the load was {:.1} before it began", self.load_before));
        }
        // The kernel counts by ticks: a moment has too few of them for a share.
        if self.stolen > NOISY / 2.0 && self.seconds >= 1.0 {
            reasons.push(format!("the host took {:.0} % of the processors' time", self.stolen * 100.0));
        }
        (!reasons.is_empty())
            .then(|| format!("noisy machine: {}; trust the ratios, not the times", reasons.join(", ")))
    }
}

impl Watch {
    /// Begins.
    #[must_use]
    pub fn begin() -> Self {
        static FIRST: OnceLock<f64> = OnceLock::new();
        Self { began: Instant::now(), load: *FIRST.get_or_init(load), used: used() }
    }

    /// What was seen since.
    #[must_use]
    pub fn noise(&self) -> Noise {
        let now = used();
        #[allow(clippy::cast_precision_loss)]
        let share = |part: u64, before: u64| {
            let all = now.all.saturating_sub(self.used.all).max(1);
            part.saturating_sub(before) as f64 / all as f64
        };
        Noise {
            seconds: self.began.elapsed().as_secs_f64(),
            load_before: self.load,
            load_after: load(),
            stolen: share(now.stolen, self.used.stolen),
            busy: share(now.busy, self.used.busy),
        }
    }
}

/// Flags that matter to cryptography, of all that a processor has: instructions for AES, SHA, carry-less and wide integer
/// multiplication, and vectors. x86 calls the line `flags`, ARM `Features`.
fn flags(cpuinfo: &str) -> Vec<String> {
    const MATTER: &[&str] = &[
        "aes",
        "vaes",
        "pclmulqdq",
        "vpclmulqdq",
        "sha_ni",
        "bmi2",
        "adx",
        "avx",
        "avx2",
        "avx512f",
        "avx512ifma",
        "gfni",
        "pmull",
        "sha1",
        "sha2",
        "sha3",
        "sha512",
        "asimd",
        "sve",
    ];
    let line = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let all: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    MATTER.iter().filter(|flag| all.contains(flag)).map(|flag| (*flag).to_owned()).collect()
}

fn governor() -> String {
    let said =
        fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_default();
    if said.trim().is_empty() { "none".to_owned() } else { said.trim().to_owned() }
}

/// One second of the machine while something was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Second {
    /// Since the beginning.
    pub seconds: f64,
    /// Share of the processors' time that was used, by whomever.
    pub busy: f64,
    /// Share that the host took for others.
    pub stolen: f64,
    /// Processes that wanted to run, averaged over a minute.
    pub load: f64,
}

/// Looks at the machine every second, until it is asked what it saw.
#[derive(Debug)]
pub struct Sampler {
    seconds: Arc<Mutex<Vec<Second>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// The most that is kept: a day.
    const MOST: usize = 86_400;

    /// Begins.
    #[must_use]
    pub fn begin() -> Self {
        let (seconds, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (into, until) = (Arc::clone(&seconds), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            let mut watch = Watch::begin();
            while !until.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_secs(1));
                let Noise { busy, stolen, load_after: load, .. } = watch.noise();
                watch = Watch::begin();
                let Ok(mut seconds) = into.lock() else { return };
                if seconds.len() < Self::MOST {
                    seconds.push(Second { seconds: began.elapsed().as_secs_f64(), busy, stolen, load });
                }
            }
        });
        Self { seconds, stop, thread: Some(thread) }
    }

    /// Ends, and gives what was seen.
    #[must_use]
    pub fn finish(mut self) -> Vec<Second> {
        self.end();
        self.seconds.lock().map(|seconds| seconds.clone()).unwrap_or_default()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

fn used() -> Used {
    // proc(5): user nice system idle iowait irq softirq steal.
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = first.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
    let all = fields.iter().sum();
    let at = |index: usize| fields.get(index).copied().unwrap_or_default();
    Used { busy: u64::saturating_sub(all, at(3) + at(4) + at(7)), stolen: at(7), all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_facts_and_noise_is_told() {
        let facts = Facts::here();
        assert!(facts.processors > 0 && facts.memory > 1 << 20 && !facts.kernel.is_empty(), "{facts:?}");
        let x86 = "processor\t: 0\nflags\t\t: fpu aes avx2 sha_ni pclmulqdq\n";
        assert_eq!(flags(x86), ["aes", "pclmulqdq", "sha_ni", "avx2"]);
        assert_eq!(flags("Features\t: fp asimd aes pmull sha2"), ["aes", "pmull", "sha2", "asimd"]);
        let sampler = Sampler::begin();
        let seconds = sampler.finish();
        assert!(seconds.iter().all(|second| second.busy <= 1.0 && second.seconds >= 0.0), "{seconds:?}");
        let quiet = Noise { seconds: 1.0, load_before: 0.1, load_after: 2.0, stolen: 0.0, busy: 0.9 };
        assert_eq!(quiet.warning(), None);
        let loud = Noise { load_before: 4.0, stolen: 0.2, ..quiet };
        let said = loud.warning().unwrap_or_default();
        assert!(said.contains("load was 4.0") && said.contains("20 %"), "{said}");
        assert!(Watch::begin().noise().busy <= 1.0);
    }
}
