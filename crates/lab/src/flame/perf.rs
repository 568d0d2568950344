//! `perf`, which looks at what a process is doing some hundred times a second.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sallyport_bench::AtFile;

use super::stacks::Stacks;
use crate::LabError;

/// What is kept of a stack for unwinding it: all that perf takes. Connections that are polled from within each other have
/// deep ones, and what is not kept is not known.
const STACK_BYTES: u32 = 65_528;
/// How long it takes until it looks.
const ATTACHED: Duration = Duration::from_millis(500);
/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Who is asked how much may be looked at: 1 and less is everything of one's own, 2 all but the kernel's part, and some
/// distributions have 3, which is nothing.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const INSTALL: &str = "install linux-perf (Debian), linux-tools-generic (Ubuntu) or perf (Fedora)";

/// A `perf` that may look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Perf {
    /// Times a second.
    rate: u32,
    /// Whether the kernel's part of a stack may be seen.
    pub(super) kernel: bool,
}

/// Leaves `sallyport` open to perf of its account.
const TRACEABLE: &str = "SALLYPORT_TRACEABLE";

impl Perf {
    /// Looks whether there is one and whether it may.
    ///
    /// # Errors
    /// What to install, or what to allow.
    pub(super) fn find(rate: u32) -> Result<Self, LabError> {
        let mut version = Command::new("perf");
        let version = version.arg("--version").stdin(Stdio::null()).output();
        let version = version.map_err(|source| LabError::Missing {
            program: "perf".to_owned(),
            source,
            hint: INSTALL,
        })?;
        if !version.status.success() {
            let said = String::from_utf8_lossy(&version.stderr).trim().to_owned();
            return Err(LabError::Failed {
                what: "perf --version".to_owned(),
                said: format!("{said}; {INSTALL}"),
            });
        }
        let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_default();
        let paranoid: i32 = paranoid.trim().parse().map_err(|_| LabError::Failed {
            what: "asking the kernel for samples".to_owned(),
            said: format!(
                "there is no {PARANOID}: this kernel, or the sandbox around us, has no perf events"
            ),
        })?;
        let root = nix::unistd::geteuid().is_root();
        if paranoid > 2 && !root {
            return Err(LabError::Failed {
                what: "asking the kernel for samples".to_owned(),
                said: format!(
                    "{PARANOID} is {paranoid}, which leaves it to root; allow it with `sysctl kernel.perf_event_paranoid=1`, \
                     or run this as root"
                ),
            });
        }
        // Without root's rights, perf sees a process of its own account, but none that is closed to it.
        if !root && std::env::var_os(TRACEABLE).is_none_or(|value| value.is_empty()) {
            return Err(LabError::Failed {
                what: "asking the kernel for samples".to_owned(),
                said: format!(
                    "sallyport's processes are closed to others of their account; set {TRACEABLE}=1, or run this as root"
                ),
            });
        }
        Ok(Self { rate, kernel: root || paranoid <= 1 })
    }

    /// Looks at a process, its threads, and the processes that it starts from now on.
    pub(super) fn look(self, pid: u32, directory: &Path, name: &str) -> Result<Looking, LabError> {
        let data = directory.join(format!("{name}.perf"));
        let log = directory.join(format!("{name}.perf.log"));
        let errors = File::create(&log).at("write", &log)?;
        let mut command = Command::new("perf");
        // The clock, since virtual machines have no counters; and nothing is copied to ~/.debug.
        let event = if self.kernel { "cpu-clock" } else { "cpu-clock:u" };
        command
            .args(["record", "--quiet", "--no-buildid", "--no-buildid-cache", "-e", event])
            .arg("-F")
            .arg(self.rate.to_string())
            .arg("--call-graph")
            .arg(format!("dwarf,{STACK_BYTES}"))
            .arg("-p")
            .arg(pid.to_string())
            .arg("-o")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            // Ctrl-C at the terminal is for the lab, which ends it in order.
            .process_group(0);
        let child = command.spawn().map_err(|source| LabError::Missing {
            program: "perf".to_owned(),
            source,
            hint: INSTALL,
        })?;
        let mut looking = Looking { child, data, log };
        std::thread::sleep(ATTACHED);
        if let Ok(Some(_)) = looking.child.try_wait() {
            return Err(looking.failed("perf record"));
        }
        Ok(looking)
    }
}

/// A `perf record` that runs; ends with this value.
#[derive(Debug)]
pub(super) struct Looking {
    child: Child,
    data: PathBuf,
    log: PathBuf,
}

impl Looking {
    /// Ends it and gives what it saw.
    pub(super) fn end(mut self) -> Result<Stacks, LabError> {
        self.interrupt();
        let began = Instant::now();
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if began.elapsed() > END_PATIENCE {
                return Err(self.failed("ending perf record"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.data.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Err(self.failed("perf record"));
        }
        let mut script = Command::new("perf");
        // Functions that were inlined are in those that have them: asking for them takes minutes.
        script.args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"]).arg(&self.data);
        let failed = |said: String| LabError::Failed { what: "perf script".to_owned(), said };
        let output = script.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(Stacks::read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn interrupt(&self) {
        if let Ok(number) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(number), Signal::SIGINT);
        }
    }

    fn failed(&self, what: &str) -> LabError {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
        LabError::Failed { what: what.to_owned(), said }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
