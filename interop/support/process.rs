//! Processes and disks that go with the test that made them.

use std::fs;
use std::io::Write;
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

/// A wall clock that can be set while a process looks at it.
pub struct Clock(PathBuf);

impl Clock {
    /// One that is right.
    pub fn new(file: PathBuf) -> Self {
        let clock = Self(file);
        clock.set("+0");
        clock
    }

    /// Lets it be off by so many seconds from now on.
    pub fn set(&self, offset: &str) {
        let fresh = self.0.with_extension("fresh");
        fs::write(&fresh, format!("{offset}\n")).expect("write the time");
        fs::rename(&fresh, &self.0).expect("set the clock");
    }

    /// What has a process look at it. How fast time goes is what it is.
    pub fn variables(&self) -> Vec<(String, String)> {
        [
            ("LD_PRELOAD", FAKETIME),
            ("FAKETIME_TIMESTAMP_FILE", self.0.to_str().expect("UTF-8")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_NO_CACHE", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
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
    /// How it is reached from outside of the namespace.
    way: PathBuf,
}

impl Disk {
    /// Mounts one of this size, such as `24m`, at the first name, and makes the second the way to it from outside of the namespace.
    pub fn mount(directory: &Path, (name, way): (&str, &str), size: &str) -> Self {
        let place = directory.join(name);
        fs::create_dir(&place).expect("a place for the disk");
        let script =
            "mount -t tmpfs -o size=$1,mode=700 tmpfs \"$0\" && touch \"$0/mounted\" && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&place).arg(size);
        let holder = Process::spawn(&mut command, directory.join(format!("{name}-mount.log")));
        let outside = format!("/proc/{}/root{}", holder.child.id(), place.display());
        let way = directory.join(way);
        std::os::unix::fs::symlink(outside, &way).expect("a way to the disk");
        wait_for("the disk", || way.join("mounted").exists().then_some(()));
        Self { holder, place, way }
    }

    /// Fills it to its last byte; with how much is left afterwards, which is nothing.
    pub fn fill(&self) {
        let path = self.way.join("ballast");
        let mut file = fs::File::options().append(true).create(true).open(path).expect("open the ballast");
        let block = vec![7; 64 * 1024];
        for size in [block.len(), 4096, 1] {
            while file.write_all(&block[..size]).is_ok() {}
        }
        assert!(file.write_all(b"x").is_err(), "a byte is left");
    }

    /// Takes away what has filled it.
    pub fn clear(&self) {
        fs::remove_file(self.way.join("ballast")).expect("remove the ballast");
    }

    /// Takes its last inode.
    pub fn fill_inodes(&self) {
        let directory = self.way.join("empty");
        if !directory.exists() {
            fs::create_dir(&directory).expect("make a directory for files");
        }
        let taken = fs::read_dir(&directory).expect("read the directory").count();
        let refused = (taken..)
            .find_map(|number| fs::File::create_new(directory.join(number.to_string())).err())
            .expect("the numbers end");
        assert_eq!(refused.raw_os_error(), Some(28), "{refused}");
    }

    /// Gives back what [`Disk::fill_inodes`] took.
    pub fn clear_inodes(&self) {
        fs::remove_dir_all(self.way.join("empty")).expect("remove the files");
    }

    /// A file on it, as it is seen from outside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.way.join(name)
    }

    /// Starts a service whose data is on it.
    pub fn start(&self, config: &Path, log: PathBuf) -> Process {
        let mut command = self.inside();
        command.args([crate::PROGRAM, "start", "-c"]).arg(config);
        Process::spawn(&mut command, log)
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
