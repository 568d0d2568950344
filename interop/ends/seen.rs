//! What is there of sessions: processes, ports and connections, looked at by one thread for all.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked. A time that is measured is later than the truth by this at most, and what a look takes.
const LOOK: Duration = Duration::from_millis(200);

/// One process, which its number alone does not tell from a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    pid: u32,
    started: u64,
}

impl Process {
    pub(super) fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        // What has ended and waits for its parent is gone.
        if fields.next()? == "Z" {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, started })
    }

    pub(super) fn is_there(self) -> bool {
        Self::read(self.pid) == Some(self)
    }

    pub(super) fn kill(self) {
        if self.is_there() {
            let _ = std::process::Command::new("kill").args(["-KILL", &self.pid.to_string()]).output();
        }
    }

    /// Bytes that it has written.
    pub(super) fn written(self) -> u64 {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.pid)).unwrap_or_default();
        let bytes = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
        bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
    }

    /// A variable of its environment.
    pub(super) fn variable(self, name: &str) -> Option<String> {
        let all = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let all = String::from_utf8_lossy(&all).into_owned();
        all.split('\0').find_map(|one| one.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }
}

/// Processes that have a file open.
pub(super) fn holders(file: &Path) -> Vec<Process> {
    let holds = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|one| fs::read_link(one.path()).ok()).any(|target| target == file)
    };
    pids().filter(|pid| holds(*pid)).filter_map(Process::read).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Something that a session has made, and that has to go with it.
#[derive(Debug, Clone)]
pub(super) enum Thing {
    Process(Process),
    /// A port that is listened on for a client.
    Port(u16),
    /// The far end of a forwarded connection, and when that ended.
    Connection(Arc<OnceLock<Instant>>),
    /// A socket of the session's.
    File(PathBuf),
}

/// What one look has found.
#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    processes: BTreeSet<Process>,
    /// By the number behind the marker.
    marked: HashMap<u32, Vec<Process>>,
    ports: BTreeSet<u16>,
}

impl Look {
    fn now(marker: &str, accounts: &[u32]) -> Self {
        let mut look = Self { at: Some(Instant::now()), ..Self::default() };
        for pid in pids() {
            let Some(process) = Process::read(pid) else { continue };
            look.processes.insert(process);
            let place = format!("/proc/{pid}");
            if !fs::metadata(&place).is_ok_and(|about| accounts.contains(&about.uid())) {
                continue;
            }
            let Ok(line) = fs::read(format!("{place}/cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line);
            let number = line.split(marker).nth(1).map(|rest| {
                let end = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end].parse()
            });
            if let Some(Ok(number)) = number {
                look.marked.entry(number).or_default().push(process);
            }
        }
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            for line in fs::read_to_string(table).unwrap_or_default().lines() {
                let mut fields = line.split_ascii_whitespace();
                let (local, state) = (fields.nth(1).unwrap_or_default(), fields.nth(1).unwrap_or_default());
                let port = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
                if let (Some(port), "0A") = (port, state) {
                    look.ports.insert(port);
                }
            }
        }
        look
    }
}

/// The thread that looks.
pub(super) struct Watch {
    last: Arc<Mutex<Look>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `marker` stands before a number in the arguments of what sessions run as these accounts.
    pub(super) fn begin(marker: String, accounts: Vec<u32>) -> Self {
        let last: Arc<Mutex<Look>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let (writes, ends) = (Arc::clone(&last), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let look = Look::now(&marker, &accounts);
                *writes.lock().unwrap() = look;
                std::thread::sleep(LOOK);
            }
        });
        Self { last, over, thread: Some(thread) }
    }

    /// The processes of a cell.
    pub(super) fn marked(&self, number: u32) -> Vec<Process> {
        self.last.lock().unwrap().marked.get(&number).cloned().unwrap_or_default()
    }

    pub(super) fn listens(&self, port: u16) -> bool {
        self.last.lock().unwrap().ports.contains(&port)
    }

    /// Since when all of them are gone, as of a look after `since`.
    pub(super) fn gone(&self, things: &[Thing], number: u32, since: Instant) -> Option<Instant> {
        let look = self.last.lock().unwrap();
        let at = look.at.filter(|at| *at >= since)?;
        let mut latest = None;
        for thing in things {
            match thing {
                Thing::Process(process) if look.processes.contains(process) => return None,
                Thing::Port(port) if look.ports.contains(port) => return None,
                Thing::File(path) if path.exists() => return None,
                Thing::Connection(ended) => latest = Some((*ended.get()?).max(latest.unwrap_or(since))),
                Thing::Process(_) | Thing::Port(_) | Thing::File(_) => latest = Some(at),
            }
        }
        // What has begun meanwhile is the session's as well.
        if things.iter().any(|thing| matches!(thing, Thing::Process(_))) && look.marked.contains_key(&number)
        {
            return None;
        }
        latest
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells when a connection has ended, whichever way it is looked at.
pub(super) fn follow(stream: TcpStream, reads: bool, writes: bool) -> Thing {
    use std::io::{Read, Write};
    let ended: Arc<OnceLock<Instant>> = Arc::default();
    if writes {
        let (mut stream, ended) = (stream.try_clone().unwrap(), Arc::clone(&ended));
        std::thread::spawn(move || {
            let block = [b'x'; 16 * 1024];
            while stream.write_all(&block).is_ok() {
                if reads {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            let _ = ended.set(Instant::now());
        });
    }
    if reads || !writes {
        let (mut stream, ended) = (stream, Arc::clone(&ended));
        std::thread::spawn(move || {
            let mut block = vec![0; 64 * 1024];
            while stream.read(&mut block).is_ok_and(|count| count > 0) {}
            let _ = ended.set(Instant::now());
        });
    }
    Thing::Connection(ended)
}
