//! A process that ends with the one that started it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::missing;
use crate::{AtFile, TestbedError};

/// How long a process has to begin its work. The machine may be busy.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long it has to end by itself.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How many lines of its log a test that failed shows.
const SHOWN_LINES: usize = 60;

/// A process with a log of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct Process {
    /// The child.
    pub child: Child,
    /// What it writes goes there.
    pub log: PathBuf,
    pub(crate) name: String,
    /// What tells it to end now; `SIGKILL` where it is not asked.
    pub(crate) ending: Signal,
}

impl Process {
    /// Starts it in a group of its own: Ctrl-C at the terminal is for the lab, which ends what it started in order.
    pub fn start(name: &'static str, command: &mut Command, directory: &Path) -> Result<Self, TestbedError> {
        let log = directory.join(format!("{name}.log"));
        let file = fs::File::create(&log).at("write", &log)?;
        let errors = file.try_clone().at("write", &log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| missing(command, source))?;
        Ok(Self { name: name.to_owned(), child, log, ending: Signal::SIGTERM })
    }

    /// The signal that tells it to end now; by default SIGTERM.
    #[must_use]
    pub fn ending_by(mut self, signal: Signal) -> Self {
        self.ending = signal;
        self
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` gives something.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, TestbedError> {
        let began = Instant::now();
        loop {
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(TestbedError::Failed {
                    what: format!("the {} ({status})", self.name),
                    said: self.last_words(),
                });
            }
            if began.elapsed() > START_PATIENCE {
                let seconds = START_PATIENCE.as_secs();
                return Err(TestbedError::Late { what: what.to_owned(), seconds, log: self.last_words() });
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn last_words(&self) -> String {
        self.last_lines(5).join(" | ")
    }

    fn last_lines(&self, number: usize) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<String> = log.lines().rev().take(number).map(str::to_owned).collect();
        lines.into_iter().rev().collect()
    }

    /// Shows its last lines in the output of a test that fails.
    #[allow(clippy::print_stderr, reason = "what a failing test says")]
    fn show(&self) {
        eprintln!("--- {} ---", self.log.display());
        for line in self.last_lines(SHOWN_LINES) {
            eprintln!("{line}");
        }
    }

    fn end(&mut self) {
        if let Ok(number) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(number), self.ending);
        }
        let began = Instant::now();
        while began.elapsed() < END_PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match self.ending {
            Signal::SIGKILL => {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            _ => self.end(),
        }
        if std::thread::panicking() {
            self.show();
        }
    }
}
