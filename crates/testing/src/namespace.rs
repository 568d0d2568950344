//! Network namespaces of a WAN: their names, who they belong to, and how they go away again.
//!
//! A WAN has a number. Its claim is a file with that number in `CLAIMS`, locked for as long as the WAN is up, with the
//! names of its namespaces in it: what belongs to a file without a lock was left behind, and may be removed by the one who
//! comes next.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{AtFile, Name, TestbedError, output};

/// Where claims are.
const CLAIMS: &str = "/run/sallyport-wan";
/// Where ip(8) keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// Where ip(8) looks for files that stand in for those of `/etc` in a namespace.
const CONFIGURATIONS: &str = "/etc/netns";
/// Most WANs at a time.
const WANS_MOST: u32 = 1000;
/// What a device of TUN is made with.
const TUN: &str = "/dev/net/tun";

/// A number that is ours, with the namespaces that go with it.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    file: File,
    number: u32,
    names: Vec<String>,
}

impl Claim {
    /// Takes the least number that is free for these hosts, after having removed what others left behind.
    pub fn take(hosts: &[Name]) -> Result<Self, TestbedError> {
        permitted()?;
        clean()?;
        let directory = Path::new(CLAIMS);
        for number in 1..=WANS_MOST {
            let names: Vec<String> = hosts.iter().map(|host| format!("wan{number}-{host}")).collect();
            // A namespace of this name that is not ours stays what it is.
            if names.iter().any(|name| Path::new(NAMESPACES).join(name).exists()) {
                continue;
            }
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).at("make", directory)?;
            let path = directory.join(number.to_string());
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path);
            let Some(mut file) = opened.ok().filter(|file| is_mine(file, &path)) else { continue };
            file.write_all(names.join("\n").as_bytes()).at("write", &path)?;
            return Ok(Self { path, file, number, names });
        }
        Err(TestbedError::Failed {
            what: "finding a number for a WAN".to_owned(),
            said: format!("{WANS_MOST} are taken; `sallyport lab wan clean` removes those without a process"),
        })
    }

    /// The number of the WAN.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes the namespaces.
    pub fn make(&self) -> Result<Vec<Namespace>, TestbedError> {
        let mut made = Vec::new();
        for name in &self.names {
            output("making a network namespace", ip().args(["netns", "add", name]))?;
            made.push(Namespace { name: name.clone() });
        }
        Ok(made)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove(&self.names);
        // While it is locked: no other process can have taken it.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
        let _ = fs::remove_dir(CLAIMS);
    }
}

/// Removes what WANs left behind that no process runs any more, and says what it was.
///
/// # Errors
/// When we may not.
pub fn clean() -> Result<Vec<String>, TestbedError> {
    permitted()?;
    let mut removed = Vec::new();
    for entry in fs::read_dir(CLAIMS).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(mut file) = OpenOptions::new().read(true).write(true).open(&path).ok() else { continue };
        if !is_mine(&file, &path) {
            continue;
        }
        let mut names = String::new();
        file.read_to_string(&mut names).at("read", &path)?;
        let names: Vec<String> =
            names.lines().filter(|name| name.starts_with("wan")).map(str::to_owned).collect();
        remove(&names);
        let _ = fs::remove_file(&path);
        removed.extend(names);
    }
    let _ = fs::remove_dir(CLAIMS);
    Ok(removed)
}

/// Locks a claim, unless another process has it or has just removed it.
fn is_mine(file: &File, path: &Path) -> bool {
    let same = || Some(file.metadata().ok()?.ino() == fs::metadata(path).ok()?.ino());
    file.try_lock().is_ok() && same() == Some(true)
}

fn remove(names: &[String]) {
    for name in names {
        if Path::new(NAMESPACES).join(name).exists() {
            let _ = ip().args(["netns", "del", name]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        let _ = fs::remove_file(Path::new(CONFIGURATIONS).join(name).join("hosts"));
        let _ = fs::remove_dir(Path::new(CONFIGURATIONS).join(name));
    }
    // Only when it is empty; who else has something there keeps it.
    let _ = fs::remove_dir(CONFIGURATIONS);
}

fn ip() -> Command {
    let mut command = Command::new("ip");
    // Where it is may not be where root's shell looks.
    let paths = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{paths}:/usr/sbin:/sbin"));
    command
}

/// Says what is missing, before anything is made.
fn permitted() -> Result<(), TestbedError> {
    let refusal = |said: &str| {
        Err(TestbedError::Failed { what: "bringing up a WAN".to_owned(), said: said.to_owned() })
    };
    if !nix::unistd::geteuid().is_root() {
        return refusal(
            "it makes network namespaces and devices, which needs root; try: sudo sallyport lab wan ...",
        );
    }
    if !Path::new(TUN).exists() {
        return refusal("there is no /dev/net/tun; try: modprobe tun, or give the container that device");
    }
    let found = ip().arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(_) => Ok(()),
        Err(source) => Err(TestbedError::Missing {
            program: "ip".to_owned(),
            source,
            hint: "it makes the network namespaces: install iproute2",
        }),
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// What ip(8) calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does something inside it: sockets that are made there, and programs that are started there, stay there.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        let path = Path::new(NAMESPACES).join(&self.name);
        let file = File::open(&path).at("enter", &path)?;
        let done = std::thread::scope(|scope| {
            // A thread of its own, which runs nothing else afterwards: a thread is in one namespace.
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<T, rustix::io::Errno>(work())
            });
            thread.join()
        });
        match done {
            Ok(done) => done.map_err(std::io::Error::from).at("enter", &path),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// A command that runs another one inside it, with names of hosts that are known there alone.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = ip();
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Sets it up by lines for ip(8).
    pub fn configure(&self, lines: &str) -> Result<(), TestbedError> {
        let mut command = ip();
        command.args(["-n", &self.name, "-batch", "-"]);
        crate::with_input("setting up a network namespace", &mut command, Some(lines)).map(drop)
    }

    /// Sets a value of the kernel's, one of those that every namespace has for itself.
    pub fn tune(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        let path = Path::new("/proc/sys/net").join(name);
        self.inside(|| fs::write(&path, value))?.at("write", &path)
    }

    /// What programs that are started by [`Self::command`] find in `/etc/hosts`.
    pub fn name_hosts(&self, lines: &str) -> Result<(), TestbedError> {
        let directory = Path::new(CONFIGURATIONS).join(&self.name);
        fs::create_dir_all(&directory).at("make", &directory)?;
        let path = directory.join("hosts");
        let usual = fs::read_to_string("/etc/hosts").unwrap_or_default();
        fs::write(&path, format!("{usual}\n{lines}")).at("write", &path)
    }

    /// The numbers of processes that are inside.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let said = ip().args(["netns", "pids", &self.name]).stdin(Stdio::null()).output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        said.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }
}
