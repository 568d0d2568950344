//! The one writer of the log: a thread that commits many events with one write and one sync.

mod command;
mod thread;

use std::fmt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_sal::{PublicKey, Signer};
use time::OffsetDateTime;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::Cursor;
use super::anew::{self, Break};
use super::chain::{Filter, Record, Verification, first_of, lines, segments, verify_against};
use super::checkpoint::{Beginning, Checkpoint, Head};
use super::error::{LogError, failed};
use crate::Event;
pub use command::Repair;
use command::{Answer, Command};
use thread::Writer;

/// Batches that may wait for the writer.
const QUEUE: usize = 4096;
/// Records that a follower may be behind before it has to read the files.
const FOLLOW: usize = 4096;

/// The log, open for writing. Clones share it.
#[derive(Clone)]
pub struct AuditLog {
    shared: Arc<Shared>,
}

/// A log that was opened, and what had to be done for it.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: AuditLog,
    /// An unfinished record was cut off.
    pub repair: Option<Repair>,
    /// The log that was there was set aside, and this one begins behind it.
    pub broken: Option<Break>,
}

struct Shared {
    directory: PathBuf,
    signed: watch::Receiver<Option<Checkpoint>>,
    queue: mpsc::Sender<Command>,
    live: broadcast::Sender<Arc<Record>>,
    head: Arc<Mutex<(u64, [u8; 32])>>,
    key: PublicKey,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl AuditLog {
    /// Opens a log, making it if needed; mends an end that a crash left unfinished. Checkpoints are signed by `signer`.
    ///
    /// # Errors
    /// [`LogError`] when the disk fails or the last file has a whole line that is no record.
    pub fn open(directory: &Path, signer: Arc<dyn Signer>) -> Result<(Self, Option<Repair>), LogError> {
        let opened = Self::open_against(directory, signer, None, OffsetDateTime::now_utc())?;
        Ok((opened.log, opened.repair))
    }

    /// [`AuditLog::open`]; a log that does not hold the head that was `kept` elsewhere is set aside, and a new one begins behind it.
    ///
    /// # Errors
    /// As [`AuditLog::open`].
    pub fn open_against(
        directory: &Path,
        signer: Arc<dyn Signer>,
        kept: Option<Head>,
        now: OffsetDateTime,
    ) -> Result<Opened, LogError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| failed(directory, &error))?;
        let key = signer.public_key();
        let (live, _) = broadcast::channel(FOLLOW);
        let mut writer = Writer::open(directory, Arc::clone(&signer), live.clone())?;
        let mut broken = None;
        let holds = kept.map_or(Ok(true), |kept| anew::holds(directory, &key, &kept));
        let left = anew::left_aside(directory).map_err(|error| failed(directory, &error))?;
        let aside = match holds.map_err(|error| failed(directory, &error))? {
            true => left,
            false => {
                writer.let_go();
                Some(match left {
                    Some(left) => left,
                    None => anew::set_aside(directory, now).map_err(|error| failed(directory, &error))?,
                })
            }
        };
        if let Some(aside) = aside {
            let begun = anew::begin(directory, aside, kept, &*signer, now);
            broken = Some(begun.map_err(|error| failed(directory, &error))?);
            writer = Writer::open(directory, signer, live.clone())?;
        }
        let repair = writer.repaired();
        let head = writer.head();
        let signed = writer.signed();
        let (queue, commands) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || writer.run(commands))
            .map_err(|error| failed(directory, &error))?;
        let shared = Shared { directory: directory.to_owned(), signed, queue, live, head, key };
        Ok(Opened { log: Self { shared: Arc::new(shared) }, repair, broken })
    }

    /// Appends events; returns when they are on disk. An event that the same host delivered lately is not written again. What
    /// of an event is too long is cut ([`Event::bounded`]).
    ///
    /// # Errors
    /// [`LogError`]: none of them may be taken for written.
    pub async fn append(&self, events: Vec<Event>) -> Result<(), LogError> {
        self.ask(|answer| Command::Append { events, urgent: false, answer }).await
    }

    /// [`AuditLog::append`] of what must be on record also when the disk is full: there is a part of it that nothing else takes.
    ///
    /// # Errors
    /// As [`AuditLog::append`].
    pub async fn append_urgent(&self, events: Vec<Event>) -> Result<(), LogError> {
        self.ask(|answer| Command::Append { events, urgent: true, answer }).await
    }

    /// Checkpoints as they are made.
    #[must_use]
    pub fn checkpoints(&self) -> watch::Receiver<Option<Checkpoint>> {
        self.shared.signed.clone()
    }

    /// Signs where the chain stands now.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn checkpoint(&self) -> Result<(), LogError> {
        self.ask(Command::Checkpoint).await
    }

    /// Makes a last checkpoint and stops. Later appends fail.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn close(&self) -> Result<(), LogError> {
        self.ask(Command::Close).await
    }

    async fn ask(&self, command: impl FnOnce(Answer) -> Command) -> Result<(), LogError> {
        let (answer, done) = oneshot::channel();
        self.shared.queue.send(command(answer)).await.map_err(|_| LogError::Closed)?;
        done.await.map_err(|_| LogError::Closed)?
    }

    /// The number and hash of the last record.
    #[must_use]
    pub fn head(&self) -> (u64, [u8; 32]) {
        *self.shared.head.lock()
    }

    /// Records from now on. A receiver that falls behind by more than a few thousand is told so, and reads the files
    /// with [`AuditLog::scan`] from where it stood.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Record>> {
        self.shared.live.subscribe()
    }

    /// Calls `visit` for every record from number `from` that matches, in order. Blocks: for a blocking thread.
    ///
    /// # Errors
    /// What reading says.
    pub fn scan(
        &self,
        from: u64,
        filter: &Filter,
        mut visit: impl FnMut(Record) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let paths = segments(&self.shared.directory)?;
        let mut over = false;
        for (index, path) in paths.iter().enumerate() {
            // The next file's first number says whether this one has any of interest.
            if paths.get(index + 1).and_then(|next| first_of(next)).is_some_and(|next| next <= from) {
                continue;
            }
            lines(path, |line| {
                let Some(record) = line.record() else { return ControlFlow::Continue(()) };
                if record.sequence < from || !filter.matches(&record) {
                    return ControlFlow::Continue(());
                }
                let flow = visit(record);
                over = flow.is_break();
                flow
            })?;
            if over {
                break;
            }
        }
        Ok(())
    }

    /// Records from number `from` to the last that there is now, to be read piece by piece.
    #[must_use]
    pub fn read(&self, from: u64, filter: Filter) -> Cursor {
        Cursor::new(&self.shared.directory, filter, from, self.head().0)
    }

    /// Checks the whole log against its own key. Blocks: for a blocking thread.
    ///
    /// # Errors
    /// What reading says.
    pub fn verify(&self) -> io::Result<Verification> {
        self.verify_against(&[])
    }

    /// [`AuditLog::verify`], and that the log holds what was kept elsewhere.
    ///
    /// # Errors
    /// As [`AuditLog::verify`].
    pub fn verify_against(&self, heads: &[Head]) -> io::Result<Verification> {
        verify_against(&self.shared.directory, &self.shared.key, heads)
    }

    /// Whether the key of this log signed a checkpoint.
    #[must_use]
    pub fn signed(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.is_signed(&self.shared.key)
    }

    /// The number behind which this log begins; 0 where it begins with its first record.
    ///
    /// # Errors
    /// What reading says.
    pub fn begins(&self) -> io::Result<u64> {
        Ok(match Beginning::read(&self.shared.directory)? {
            Some(Beginning::Good(checkpoint)) => checkpoint.head.sequence,
            Some(Beginning::Unreadable) | None => 0,
        })
    }
}
