//! Whose turn it is: a run may have time for a few measurements only, and those that have waited longest come first.

use std::fs;
use std::path::{Path, PathBuf};

/// The measurements that ran on this machine, the latest last.
#[derive(Debug)]
pub(crate) struct Turns {
    file: PathBuf,
    ran: Vec<String>,
}

impl Turns {
    pub(crate) fn load(target: &Path) -> Self {
        let file = target.join("xtask").join("measured.txt");
        let ran = fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect();
        Self { file, ran }
    }

    /// The smaller, the longer ago; nothing is smaller than what never ran.
    pub(crate) fn last(&self, test: &str) -> Option<usize> {
        self.ran.iter().position(|ran| ran == test)
    }

    /// It had its turn, and failing is no way to another.
    pub(crate) fn had(&mut self, test: String) {
        self.ran.retain(|ran| *ran != test);
        self.ran.push(test);
    }

    pub(crate) fn store(&self) -> Result<(), String> {
        let said = |error| format!("cannot write {}: {error}", self.file.display());
        if let Some(directory) = self.file.parent() {
            fs::create_dir_all(directory).map_err(said)?;
        }
        fs::write(&self.file, self.ran.iter().map(|test| format!("{test}\n")).collect::<String>())
            .map_err(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_ran_is_first_and_who_ran_last_is_last() {
        let mut turns = Turns { file: PathBuf::new(), ran: vec!["a".to_owned(), "b".to_owned()] };
        turns.had("a".to_owned());
        let mut waiting = ["a", "b", "c"];
        waiting.sort_by_key(|test| turns.last(test));
        assert_eq!(waiting, ["c", "b", "a"]);
    }
}
