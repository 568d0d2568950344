//! Who is logged in, for `who`, `last` and `lastlog`: utmp(5), wtmp(5) and lastlog(8).
//!
//! Sessions with a terminal are entered while they last. The files are those of the system, with the layout of glibc on
//! the machines where it is known here; elsewhere, where the files are missing, and for a node that is not root, nothing is
//! entered.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::FlockOperation;

/// Where the records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRecords {
    /// Who is there now.
    pub utmp: PathBuf,
    /// Who has come and gone.
    pub wtmp: PathBuf,
    /// When each account was last logged in to, and from where.
    pub lastlog: PathBuf,
}

impl Default for LoginRecords {
    fn default() -> Self {
        Self {
            utmp: PathBuf::from("/var/run/utmp"),
            wtmp: PathBuf::from("/var/log/wtmp"),
            lastlog: PathBuf::from("/var/log/lastlog"),
        }
    }
}

/// Bytes of one record; and whether its layout is known on this machine.
const RECORD_BYTES: usize = 384;
/// Bytes of one account's place in lastlog. The places are in the order of user ids, in a file with holes.
const LAST_BYTES: usize = 292;
const KNOWN: bool = cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"));
/// `ut_type` of a user who is there, and of a user who has gone.
const USER_PROCESS: i16 = 7;
const DEAD_PROCESS: i16 = 8;
/// How often and how long apart a file is tried that another process has locked.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// Most of a file that is looked through for a place.
const MOST_RECORDS: u64 = 100_000;
/// The system's locks do not keep the threads of one process apart.
static WRITING: Mutex<()> = Mutex::new(());

/// One login; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Login {
    records: LoginRecords,
    line: String,
    pid: u32,
}

/// Who logs in.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) uid: u32,
    pub(crate) from: Option<IpAddr>,
    pub(crate) pid: u32,
    /// Such as `/dev/pts/3`.
    pub(crate) terminal: String,
}

impl Login {
    /// Enters a user; blocks for up to half a second while others write.
    pub(crate) fn enter(records: &LoginRecords, who: &Who) -> Option<Self> {
        let line = who.terminal.strip_prefix("/dev/")?.to_owned();
        if !KNOWN {
            return None;
        }
        let host = who.from.map(|from| from.to_string()).unwrap_or_default();
        let record = record(USER_PROCESS, who.pid, &line, &who.user, &host, who.from);
        let last = last_record(&line, &host);
        let login = Self { records: records.clone(), line, pid: who.pid };
        login.write(&record);
        let _writing = WRITING.lock();
        complain(
            &records.lastlog,
            locked(&records.lastlog)
                .and_then(|file| file.write_all_at(&last, u64::from(who.uid) * LAST_BYTES as u64)),
        );
        Some(login)
    }

    fn write(&self, record: &[u8; RECORD_BYTES]) {
        let _writing = WRITING.lock();
        complain(&self.records.utmp, replace(&self.records.utmp, record));
        complain(&self.records.wtmp, append(&self.records.wtmp, record));
    }
}

/// Many systems have done away with these files; everything else is worth a word.
fn complain(path: &Path, result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot enter a login");
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let record = record(DEAD_PROCESS, self.pid, &self.line, "", "", None);
        self.write(&record);
    }
}

/// A record as glibc's `struct utmp` has it.
fn record(
    kind: i16,
    pid: u32,
    line: &str,
    user: &str,
    host: &str,
    from: Option<IpAddr>,
) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut put = |at, most, value: &[u8]| put(&mut bytes, at, most, value);
    // The end of the terminal's name tells it apart; sshd does the same.
    let id = line.as_bytes();
    let id = id.get(id.len().saturating_sub(4)..).unwrap_or_default();
    let (seconds, now) = time();
    put(0, 2, &kind.to_ne_bytes());
    put(4, 4, &pid.to_ne_bytes());
    put(8, 32, line.as_bytes());
    put(40, 4, id);
    put(44, 32, user.as_bytes());
    put(76, 256, host.as_bytes());
    put(336, 4, &pid.to_ne_bytes());
    put(340, 4, &seconds.to_ne_bytes());
    put(344, 4, &now.subsec_micros().to_ne_bytes());
    match from {
        Some(IpAddr::V4(address)) => put(348, 4, &address.octets()),
        Some(IpAddr::V6(address)) => put(348, 16, &address.octets()),
        None => {}
    }
    bytes
}

/// A place in lastlog as glibc's `struct lastlog` has it.
fn last_record(line: &str, host: &str) -> [u8; LAST_BYTES] {
    let mut bytes = [0; LAST_BYTES];
    put(&mut bytes, 0, 4, &time().0.to_ne_bytes());
    put(&mut bytes, 4, 32, line.as_bytes());
    put(&mut bytes, 36, 256, host.as_bytes());
    bytes
}

fn put(bytes: &mut [u8], at: usize, most: usize, value: &[u8]) {
    for (place, byte) in bytes.iter_mut().skip(at).zip(value.iter().take(most)) {
        *place = *byte;
    }
}

/// Now, in the seconds that these files have, and exactly.
fn time() -> (u32, Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // glibc keeps 32 bits here (until 2106 when read without a sign).
    #[allow(clippy::cast_possible_truncation, reason = "the files' format")]
    let seconds = now.as_secs() as u32;
    (seconds, now)
}

/// Puts the record in the place of the one with the same id, or at the end.
fn replace(path: &Path, record: &[u8; RECORD_BYTES]) -> io::Result<()> {
    let file = locked(path)?;
    let mut place = 0;
    let mut found = [0; RECORD_BYTES];
    for _ in 0..MOST_RECORDS {
        match file.read_exact_at(&mut found, place) {
            // The kinds that have to do with processes; others have no id of a terminal.
            Ok(()) if (5..=8).contains(&kind_of(&found)) && found.get(40..44) == record.get(40..44) => break,
            Ok(()) => place += RECORD_BYTES as u64,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    file.write_all_at(record, place)
}

fn kind_of(record: &[u8; RECORD_BYTES]) -> i16 {
    let [low, high, ..] = record;
    i16::from_ne_bytes([*low, *high])
}

fn append(path: &Path, record: &[u8; RECORD_BYTES]) -> io::Result<()> {
    let file = locked(path)?;
    // Whole records only, even after a half one of another program.
    let end = file.metadata()?.len() / RECORD_BYTES as u64 * RECORD_BYTES as u64;
    file.write_all_at(record, end)
}

/// Opens a file that exists, with glibc's lock on it.
fn locked(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn records(directory: &Path) -> LoginRecords {
        let file = |name| directory.join(name);
        LoginRecords { utmp: file("utmp"), wtmp: file("wtmp"), lastlog: file("lastlog") }
    }

    fn who(uid: u32) -> Who {
        Who {
            user: "deploy".to_owned(),
            uid,
            from: Some("192.0.2.7".parse().unwrap()),
            pid: std::process::id(),
            terminal: "/dev/pts/77".to_owned(),
        }
    }

    #[test]
    fn each_account_has_its_place_in_lastlog() {
        if !KNOWN {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let records = records(directory.path());
        std::fs::write(&records.lastlog, [7; LAST_BYTES]).unwrap();
        let before = time().0;
        drop(Login::enter(&records, &who(2)));
        let file = std::fs::read(&records.lastlog).unwrap();
        assert_eq!(file.len(), 3 * LAST_BYTES);
        assert!(file[..LAST_BYTES].iter().all(|byte| *byte == 7), "root's place is not ours");
        assert!(file[LAST_BYTES..2 * LAST_BYTES].iter().all(|byte| *byte == 0));
        let place = &file[2 * LAST_BYTES..];
        let seconds = u32::from_ne_bytes(place[..4].try_into().unwrap());
        assert!((before..before + 60).contains(&seconds), "{seconds}");
        assert!(place[4..].starts_with(b"pts/77\0"));
        assert!(place[36..].starts_with(b"192.0.2.7\0"));
        // The farthest account makes a file with a hole, not a large one.
        drop(Login::enter(&records, &who(60_000)));
        use std::os::unix::fs::MetadataExt;
        assert!(std::fs::metadata(&records.lastlog).unwrap().blocks() < 64);
    }

    /// The system's own reader, on a file of ours in a namespace of its own: only root can make one.
    #[test]
    fn lastlog_reads_what_is_entered() {
        if !KNOWN || !nix::unistd::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let records = records(directory.path());
        File::create(&records.lastlog).unwrap();
        drop(Login::enter(&records, &who(0)));
        let mut reader = Command::new("unshare");
        let script = "mount --bind \"$0\" /var/log/lastlog && exec lastlog -u root";
        reader.args(["--mount", "sh", "-c", script]).arg(&records.lastlog).env("TZ", "UTC");
        match reader.output() {
            Ok(output) if output.status.success() => {
                let seen = String::from_utf8_lossy(&output.stdout);
                assert!(seen.contains("pts/77") && seen.contains("192.0.2.7"), "{seen}");
            }
            other => {
                eprintln!("left out: this machine has no lastlog, no such file or no namespaces: {other:?}")
            }
        }
    }

    #[test]
    fn who_and_last_read_what_is_entered() {
        if !KNOWN {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let records = records(directory.path());
        let who = who(1000);
        // Files that are not there are not made.
        drop(Login::enter(&records, &who));
        assert!(!records.utmp.exists() && !records.wtmp.exists() && !records.lastlog.exists());
        File::create(&records.utmp).unwrap();
        File::create(&records.wtmp).unwrap();
        let shown = |program: &str, words: &[&str], file: &Path| {
            let mut command = Command::new(program);
            command.args(words).arg(file).env("TZ", "UTC");
            command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let login = Login::enter(&records, &who).unwrap();
        let seen = shown("who", &[], &records.utmp).unwrap();
        assert!(seen.contains("deploy") && seen.contains("pts/77") && seen.contains("(192.0.2.7)"), "{seen}");
        drop(login);
        assert_eq!(shown("who", &[], &records.utmp).unwrap(), "");
        // The same terminal takes the same place.
        drop(Login::enter(&records, &who));
        assert_eq!(std::fs::metadata(&records.utmp).unwrap().len(), RECORD_BYTES as u64);
        assert_eq!(std::fs::metadata(&records.wtmp).unwrap().len(), 4 * RECORD_BYTES as u64);
        if let Ok(seen) = shown("last", &["-i", "-f"], &records.wtmp) {
            assert!(seen.contains("deploy") && seen.contains("192.0.2.7"), "{seen}");
        }
    }
}
