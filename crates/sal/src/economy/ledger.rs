//! The counts of keys that were made.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{KeyAlgorithm, KeyPurpose};

/// The environment variable that names the file for all processes.
pub const LEDGER_VARIABLE: &str = "SALLYPORT_KEY_LEDGER";

/// The label of keys made for no stated purpose.
const OTHER: &str = "other";

/// The keys of one type made for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCount {
    /// What they are for; none for keys made without saying.
    pub purpose: Option<KeyPurpose>,
    /// Their type.
    pub algorithm: KeyAlgorithm,
    /// How many were made.
    pub generated: u64,
    /// Processor time spent in making them, in the threads that made them. For a token, that is waiting and talking, not
    /// what the token spent.
    pub cpu: Duration,
}

impl KeyCount {
    /// The purpose as reports and metrics name it.
    #[must_use]
    pub fn purpose_name(&self) -> &'static str {
        purpose_name(self.purpose)
    }
}

/// The keys that this process made so far, by purpose and type. Nothing is listed that was never made.
#[must_use]
pub fn snapshot() -> Vec<KeyCount> {
    LEDGER.counts()
}

/// Processor time that this thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The purpose as reports and metrics name it.
#[must_use]
pub(crate) fn purpose_name(purpose: Option<KeyPurpose>) -> &'static str {
    purpose.map_or(OTHER, KeyPurpose::name)
}

/// Runs what makes a key, and counts it when it succeeds.
pub(crate) fn counted<T, E>(
    purpose: Option<KeyPurpose>,
    algorithm: KeyAlgorithm,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let before = thread_cpu();
    let made = make()?;
    let cpu = thread_cpu().saturating_sub(before);
    LEDGER.add(purpose, algorithm, cpu);
    if let Some(file) = shared_file() {
        let _ = append(file, purpose, algorithm, cpu);
    }
    Ok(made)
}

const ALGORITHMS: usize = KeyAlgorithm::ALL.len();
/// The purposes, and one place for keys without.
const PURPOSES: usize = KeyPurpose::ALL.len() + 1;

static LEDGER: Ledger = Ledger::new();

/// One cell for each pair, so that counting needs no lock.
struct Ledger([[Cell; ALGORITHMS]; PURPOSES]);

struct Cell {
    generated: AtomicU64,
    cpu_nanos: AtomicU64,
}

impl Ledger {
    const fn new() -> Self {
        Self(
            [const { [const { Cell { generated: AtomicU64::new(0), cpu_nanos: AtomicU64::new(0) } }; ALGORITHMS] };
                PURPOSES],
        )
    }

    fn add(&self, purpose: Option<KeyPurpose>, algorithm: KeyAlgorithm, cpu: Duration) {
        let row = purpose.and_then(|purpose| KeyPurpose::ALL.iter().position(|one| *one == purpose));
        let column = KeyAlgorithm::ALL.iter().position(|one| *one == algorithm);
        let row = self.0.get(row.unwrap_or(PURPOSES - 1));
        if let Some(cell) = row.zip(column).and_then(|(row, column)| row.get(column)) {
            cell.generated.fetch_add(1, Ordering::Relaxed);
            let nanos = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
            cell.cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> Vec<KeyCount> {
        let purposes = KeyPurpose::ALL.iter().copied().map(Some).chain([None]);
        let mut counts = Vec::new();
        for (row, purpose) in self.0.iter().zip(purposes) {
            for (cell, algorithm) in row.iter().zip(KeyAlgorithm::ALL.iter().copied()) {
                let generated = cell.generated.load(Ordering::Relaxed);
                if generated > 0 {
                    let cpu = Duration::from_nanos(cell.cpu_nanos.load(Ordering::Relaxed));
                    counts.push(KeyCount { purpose, algorithm, generated, cpu });
                }
            }
        }
        counts
    }
}

fn shared_file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = std::env::var_os(LEDGER_VARIABLE).filter(|path| !path.is_empty())?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    })
    .as_ref()
}

/// One write a line: a file opened for appending keeps the lines of several processes whole.
fn append(
    mut file: &File,
    purpose: Option<KeyPurpose>,
    algorithm: KeyAlgorithm,
    cpu: Duration,
) -> std::io::Result<()> {
    let line = format!("{} {algorithm} {}\n", purpose_name(purpose), cpu.as_micros());
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{MemoryKey, SalError};

    fn made(purpose: Option<KeyPurpose>, algorithm: KeyAlgorithm) -> (u64, Duration) {
        let counts = snapshot();
        let found = counts.iter().find(|count| (count.purpose, count.algorithm) == (purpose, algorithm));
        found.map_or((0, Duration::ZERO), |count| (count.generated, count.cpu))
    }

    #[test]
    fn each_key_is_counted_under_its_purpose_once() {
        // No other test of this crate makes a key of this type for this purpose.
        let (purpose, algorithm) = (KeyPurpose::AuditCheckpoint, KeyAlgorithm::Rsa2048);
        assert_eq!(made(Some(purpose), algorithm), (0, Duration::ZERO));
        MemoryKey::generate_for(purpose, algorithm).unwrap();
        let (generated, cpu) = made(Some(purpose), algorithm);
        assert_eq!(generated, 1);
        assert!(cpu > Duration::from_millis(1) && cpu < Duration::from_secs(60), "{cpu:?}");
        MemoryKey::generate_for(purpose, algorithm).unwrap();
        let again = made(Some(purpose), algorithm);
        assert!(again.0 == 2 && again.1 > cpu, "{again:?}");
    }

    #[test]
    fn keys_without_a_purpose_are_counted_too() {
        let (before, _) = made(None, KeyAlgorithm::MlDsa87);
        MemoryKey::generate(KeyAlgorithm::MlDsa87).unwrap();
        assert!(made(None, KeyAlgorithm::MlDsa87).0 > before);
        let count =
            KeyCount { purpose: None, algorithm: KeyAlgorithm::MlDsa87, generated: 1, cpu: Duration::ZERO };
        assert_eq!(count.purpose_name(), "other");
    }

    #[test]
    fn what_could_not_be_made_does_not_count() {
        let ledger = Ledger::new();
        assert_eq!(ledger.counts(), []);
        let refused = counted(None, KeyAlgorithm::Rsa8192, || {
            Err::<(), _>(SalError::Provider { operation: "generate a key pair" })
        });
        assert!(refused.is_err());
        assert_eq!(made(None, KeyAlgorithm::Rsa8192).0, 0);
    }

    #[test]
    fn every_pair_has_a_cell_of_its_own() {
        let ledger = Ledger::new();
        let purposes = || KeyPurpose::ALL.iter().copied().map(Some).chain([None]);
        for purpose in purposes() {
            for algorithm in KeyAlgorithm::ALL {
                ledger.add(purpose, *algorithm, Duration::from_micros(3));
            }
        }
        let counts = ledger.counts();
        assert_eq!(counts.len(), PURPOSES * ALGORITHMS);
        assert!(counts.iter().all(|count| count.generated == 1 && count.cpu == Duration::from_micros(3)));
    }

    #[test]
    fn lines_say_purpose_type_and_microseconds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let open = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let (one, two) = (open(), open());
        append(&one, Some(KeyPurpose::UserSsh), KeyAlgorithm::Ed25519, Duration::from_nanos(12_345)).unwrap();
        append(&two, None, KeyAlgorithm::Rsa2048, Duration::from_millis(55)).unwrap();
        append(&one, Some(KeyPurpose::HostTls), KeyAlgorithm::EcdsaP256, Duration::ZERO).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "user-ssh ed25519 12\nother rsa-2048 55000\nhost-tls ecdsa-p256 0\n"
        );
    }
}
