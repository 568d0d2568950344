//! Beginning a log anew: what was there is set aside, every byte of it, and the new log says behind which record it begins.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sallyport_sal::{PublicKey, Signer};
use time::OffsetDateTime;

use super::chain::{CHECKPOINTS, Record, first_of, lines, segments};
use super::checkpoint::{BEGINNING, Beginning, Checkpoint, Head};

/// How the name of a directory begins that holds a log that was set aside.
const ASIDE: &str = "aside-";

/// A log that was set aside because it could not be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// Where every byte of it is.
    pub aside: PathBuf,
    /// The number of the last record in it; 0 where there is none.
    pub last: u64,
    /// The number behind which the new log begins.
    pub beginning: u64,
    /// Why, in words.
    pub reason: String,
}

/// What was found of a line that cannot be gone on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Where the whole log is now.
    pub aside: PathBuf,
    /// The last record before the first line that is none.
    pub last: u64,
    /// The first line that is no record: its file, its number there, and its bytes. None: every whole line is a record.
    pub line: Option<(String, u64, u64)>,
}

/// Whether the log holds a record as it was kept elsewhere: only the file that has it is read.
pub(super) fn holds(directory: &Path, key: &PublicKey, head: &Head) -> io::Result<bool> {
    let beginning = match Beginning::read(directory)? {
        Some(Beginning::Good(checkpoint)) if checkpoint.is_signed_as_beginning(key) => Some(checkpoint.head),
        Some(_) => return Ok(false),
        None => None,
    };
    // A log that was begun anew because of this head names it, and counts on from the last number that was given.
    if head.sequence == 0
        || beginning.is_some_and(|begins| begins.hash == head.hash && begins.sequence >= head.sequence)
    {
        return Ok(true);
    }
    let paths = segments(directory)?;
    let within = paths.iter().rev().find(|path| first_of(path).is_some_and(|first| first <= head.sequence));
    let Some(path) = within else { return Ok(false) };
    let mut chained: Option<Record> = None;
    let mut found = false;
    lines(path, |line| {
        let Some(record) = line.record() else { return ControlFlow::Break(()) };
        if let Some(previous) = &chained {
            let right = Record::chain(record.sequence, &previous.hash, record.json.clone());
            if record.sequence != previous.sequence + 1 || right.hash != record.hash {
                return ControlFlow::Break(());
            }
        }
        if record.sequence >= head.sequence {
            found = record.sequence == head.sequence && record.hash == head.hash;
            return ControlFlow::Break(());
        }
        chained = Some(record);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Moves the whole log into a directory of its own, beside nothing else that was set aside before.
pub(super) fn set_aside(directory: &Path, now: OffsetDateTime) -> io::Result<PathBuf> {
    let stamp = now.unix_timestamp();
    let mut aside = directory.join(format!("{ASIDE}{stamp:012}"));
    let mut again = 1;
    while let Err(error) = DirBuilder::new().mode(0o700).create(&aside) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        again += 1;
        aside = directory.join(format!("{ASIDE}{stamp:012}-{again}"));
    }
    let mut paths = segments(directory)?;
    paths.extend(
        [CHECKPOINTS, BEGINNING].map(|name| directory.join(name)).into_iter().filter(|path| path.exists()),
    );
    for path in paths {
        if let Some(name) = path.file_name() {
            fs::rename(&path, aside.join(name))?;
        }
    }
    File::open(&aside)?.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(aside)
}

/// The log that was set aside last, where no log is in its place.
pub(super) fn left_aside(directory: &Path) -> io::Result<Option<PathBuf>> {
    if !segments(directory)?.is_empty() || directory.join(BEGINNING).exists() {
        return Ok(None);
    }
    let mut found = None;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_aside =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(ASIDE));
        if is_aside && found.as_ref().is_none_or(|found| *found < path) {
            found = Some(path);
        }
    }
    Ok(found)
}

/// Begins a log behind what was set aside, and behind the head that was kept elsewhere.
pub(super) fn begin(
    directory: &Path,
    aside: PathBuf,
    kept: Option<Head>,
    signer: &dyn Signer,
    now: OffsetDateTime,
) -> io::Result<Break> {
    let (last, good) = last_numbers(&aside)?;
    let sequence = kept.map_or(0, |kept| kept.sequence).max(last);
    let hash = kept.map_or(good, |kept| kept.hash);
    let signed = Checkpoint::sign_beginning(Head { sequence, hash }, now.unix_timestamp(), signer)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let path = directory.join(BEGINNING);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(format!("{}\n", signed.to_line()).as_bytes())?;
    file.sync_all()?;
    File::open(directory)?.sync_all()?;
    let reason = match kept {
        Some(kept) => format!(
            "the log did not hold record {} with the hash that the state keeps of it: it was written anew, cut off, set aside or taken away",
            kept.sequence
        ),
        None => "the log was set aside because it could not be gone on with".to_owned(),
    };
    Ok(Break { aside, last, beginning: sequence, reason })
}

/// The largest number that any record has, and the hash of the last record that is one.
fn last_numbers(directory: &Path) -> io::Result<(u64, [u8; 32])> {
    let (mut last, mut hash) = match Beginning::read(directory)? {
        Some(Beginning::Good(checkpoint)) => (checkpoint.head.sequence, checkpoint.head.hash),
        Some(Beginning::Unreadable) | None => (0, [0; 32]),
    };
    for path in segments(directory)? {
        lines(&path, |line| {
            if let Some(record) = line.record() {
                last = last.max(record.sequence);
                hash = record.hash;
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok((last, hash))
}

/// Sets a log aside that an authority cannot go on with, so that the next start begins a new one. Keeps every byte. Nothing may
/// have the log open.
///
/// # Errors
/// What the disk says.
pub fn repair(directory: &Path, now: OffsetDateTime) -> io::Result<SetAside> {
    let (mut last, mut bad) = (0, None);
    for path in segments(directory)? {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut number = 0;
        lines(&path, |line| {
            number += 1;
            match line.record() {
                Some(record) => last = record.sequence,
                None => {
                    bad = line.ended.then(|| (file.clone(), number, line.bytes));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if bad.is_some() {
            break;
        }
    }
    Ok(SetAside { aside: set_aside(directory, now)?, last, line: bad })
}
