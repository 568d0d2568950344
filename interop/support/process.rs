//! Processes and disks that go with the test that made them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{ok, wait_for};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Gives a command another wall clock, off by so many seconds. How fast time goes is what it is.
pub fn at_another_time<'c>(command: &'c mut Command, offset: &str) -> &'c mut Command {
    command
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME", offset)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1")
}

/// A child that dies with the test.
pub struct Process {
    pub child: Child,
    pub log: PathBuf,
}

impl Process {
    pub fn spawn(command: &mut Command, log: PathBuf) -> Self {
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).expect("open the log");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("share the log"))
            .stderr(file)
            .spawn()
            .expect("start a process");
        Self { child, log }
    }

    pub fn kill_9(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("reap");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("run kill").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- {} ---", self.log.display());
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

/// A small disk for the authority's data, which only this cluster sees and which goes with it. Root's alone.
pub struct Disk {
    /// Keeps the namespace that the disk is mounted in.
    holder: Process,
    place: PathBuf,
}

impl Disk {
    /// Mounts one of this size, such as `24m`, and makes `data` the way to it from outside of the namespace.
    pub(super) fn mount(directory: &Path, size: &str) -> Self {
        let place = directory.join("disk");
        fs::create_dir(&place).expect("a place for the disk");
        let script =
            "mount -t tmpfs -o size=$1,mode=700 tmpfs \"$0\" && touch \"$0/mounted\" && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&place).arg(size);
        let holder = Process::spawn(&mut command, directory.join("disk.log"));
        let outside = format!("/proc/{}/root{}", holder.child.id(), place.display());
        let data = directory.join("data");
        std::os::unix::fs::symlink(outside, &data).expect("a way to the disk");
        wait_for("the disk", || data.join("mounted").exists().then_some(()));
        Self { holder, place }
    }

    pub(super) fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.child.id()));
        command
    }

    /// Gives it another size.
    pub fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let mut command = self.inside();
        ok(command.args(["mount", "-o", &options]).arg(&self.place).output().expect("run mount"));
    }
}
