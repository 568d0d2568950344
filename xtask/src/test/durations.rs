//! What each test took the last time: how long, so that the longest begin first and none of them is waited for at the end;
//! and how much of a processor, so that those that wait do not keep others from computing.
//!
//! Each run leaves its figures in cargo's target directory. A machine that has none yet takes those in
//! `xtask/durations.txt`, which `--record` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Figures of another machine, for the first run on this one.
const RECORDED: &str = include_str!("../../durations.txt");

/// Shorter ones are not worth a line there.
const WORTH_RECORDING_SECONDS: f64 = 0.5;

/// What a test took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    /// Of which it computed.
    pub(crate) processor_seconds: f64,
}

/// What is expected of a test that nothing is known of: it was too short to be recorded.
const UNKNOWN: Took = Took { seconds: 0.1, processor_seconds: 0.1 };

/// What each test took.
#[derive(Debug)]
pub(crate) struct Durations {
    file: PathBuf,
    took: BTreeMap<String, Took>,
}

impl Durations {
    pub(crate) fn load(target: &Path) -> Self {
        let file = target.join("xtask").join("durations.txt");
        let mut took = read(RECORDED);
        // What ran here counts, also where it was too short to be recorded.
        took.extend(read(&fs::read_to_string(&file).unwrap_or_default()));
        Self { file, took }
    }

    pub(crate) fn expected(&self, test: &str) -> Took {
        self.took.get(test).copied().unwrap_or(UNKNOWN)
    }

    /// Takes a new figure. A run on a busy machine says nothing of how long a test waits by itself: believed at once, it would
    /// have the next run put too much side by side. So times fall at once, and grow by a quarter at a time.
    pub(crate) fn took(&mut self, test: String, mut took: Took) {
        if let Some(before) = self.took.get(&test) {
            took.seconds =
                took.seconds.min(before.seconds * 1.25).max(took.processor_seconds.min(took.seconds));
        }
        self.took.insert(test, took);
    }

    /// Writes the figures for the next run here, and into the project if `record` says so.
    pub(crate) fn store(&self, record: bool) -> Result<(), String> {
        let said = |path: &Path, error: std::io::Error| format!("cannot write {}: {error}", path.display());
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory).map_err(|error| said(directory, error))?;
        }
        fs::write(&self.file, self.text(0.0)).map_err(|error| said(&self.file, error))?;
        if record {
            let path = Path::new("xtask/durations.txt").to_owned();
            fs::write(&path, self.text(WORTH_RECORDING_SECONDS)).map_err(|error| said(&path, error))?;
        }
        Ok(())
    }

    fn text(&self, least: f64) -> String {
        let lines = self.took.iter().filter(|(_, took)| took.seconds >= least);
        lines
            .map(|(test, took)| format!("{:.2} {:.2} {test}\n", took.seconds, took.processor_seconds))
            .collect()
    }
}

/// Lines `SECONDS PROCESSOR_SECONDS TEST`; damaged ones do not count.
fn read(text: &str) -> BTreeMap<String, Took> {
    let number = |word: &str| word.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    let pairs = text.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (seconds, processor_seconds) = (number(words.next()?)?, number(words.next()?)?);
        Some((words.next()?.to_owned(), Took { seconds, processor_seconds }))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_and_damaged_lines_are_not_believed() {
        let durations =
            Durations { file: PathBuf::new(), took: read("1.50 0.25 a::b\nhalf\nx 1 c::d\nNaN 1 e::f\n") };
        assert_eq!(durations.expected("a::b"), Took { seconds: 1.5, processor_seconds: 0.25 });
        assert_eq!(durations.expected("c::d"), UNKNOWN);
        assert_eq!(read(&durations.text(0.0)).len(), 1);
        assert_eq!(durations.text(2.0), "");
    }

    #[test]
    fn one_run_on_a_busy_machine_is_not_believed() {
        let mut durations = Durations { file: PathBuf::new(), took: read("8 1 a") };
        let mut after = |seconds, processor_seconds| {
            durations.took("a".to_owned(), Took { seconds, processor_seconds });
            durations.expected("a").seconds
        };
        assert_eq!([after(80.0, 1.0), after(80.0, 1.0), after(4.0, 1.0)], [10.0, 12.5, 4.0]);
        // It computes more than before.
        assert_eq!(after(20.0, 16.0), 16.0);
    }
}
