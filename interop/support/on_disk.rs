//! Services whose data is on a disk of their own.

use std::path::{Path, PathBuf};

use super::{Disk, PROGRAM, Process};

/// Starts services on a disk.
pub trait StartOnDisk {
    /// Starts one with this configuration; what it writes goes to `log`.
    fn start(&self, config: &Path, log: PathBuf) -> Process;
}

impl StartOnDisk for Disk {
    fn start(&self, config: &Path, log: PathBuf) -> Process {
        let mut command = self.inside();
        command.args([PROGRAM, "start", "-c"]).arg(config);
        Process::spawn(&mut command, log)
    }
}
