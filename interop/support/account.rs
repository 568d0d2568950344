//! An account of the machine for sessions to run as.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{PATIENCE, stderr};

/// An account without a home, which is gone when this is. Root's alone to have.
pub struct Account {
    pub name: String,
    pub uid: u32,
}

impl Account {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("sp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // A password that nothing matches, where none at all would close the account for sshd.
        let made = change("useradd", &["-M", "-d", "/", "-s", "/bin/bash", "-p", "*", &name]);
        assert!(made.status.success(), "{}", stderr(&made));
        let number = Command::new("id").args(["-u", &name]).output().expect("run id");
        let uid = String::from_utf8_lossy(&number.stdout).trim().parse().expect("a number");
        Self { name, uid }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // What a test that failed has left.
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let own = entry.metadata().is_ok_and(|about| about.uid() == self.uid);
            if let (true, Some(pid)) = (own, entry.file_name().to_str()) {
                let _ = Command::new("kill").args(["-KILL", pid]).output();
            }
        }
        change("userdel", &["-f", &self.name]);
    }
}

/// Another test may be changing accounts at the same time, which the programs say in words: then it is tried again.
fn change(program: &str, arguments: &[&str]) -> Output {
    let began = Instant::now();
    loop {
        let output = Command::new(program).args(arguments).output().expect("run a program for accounts");
        if output.status.success() || !stderr(&output).contains("lock") || began.elapsed() > PATIENCE {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
