//! Records, lines and their verification. Reads files, writes nothing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sallyport_sal::PublicKey;
use sallyport_sal::hash::Sha256;
use time::OffsetDateTime;

use super::checkpoint::{Beginning, Checkpoint, Head};
use crate::Event;

pub(super) const PREFIX: &str = "events-";
pub(super) const SUFFIX: &str = ".log";
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// Longest line that is read: no event is near it, nor was one before events were bounded. A longer one is no record, and stays
/// where it is.
const MAX_LINE: u64 = 16 << 20;

/// One record: an event in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number, from 1.
    pub sequence: u64,
    /// The chain up to and with it.
    pub hash: [u8; 32],
    /// The event, exactly as it was hashed.
    pub json: String,
}

impl Record {
    /// Puts an event behind `previous`.
    #[must_use]
    pub(super) fn chain(sequence: u64, previous: &[u8; 32], json: String) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"sallyport audit record v1\0");
        hash.update(previous);
        hash.update(&sequence.to_be_bytes());
        hash.update(json.as_bytes());
        Self { sequence, hash: hash.finish(), json }
    }

    pub(super) fn line(&self) -> String {
        format!("{} {} {}\n", self.sequence, HEXLOWER.encode(&self.hash), self.json)
    }

    /// The event.
    ///
    /// # Errors
    /// What is not an event.
    pub fn event(&self) -> Result<Event, serde_json::Error> {
        Event::from_json(&self.json)
    }

    /// The hash in hexadecimal.
    #[must_use]
    pub fn hash_hex(&self) -> String {
        HEXLOWER.encode(&self.hash)
    }
}

/// Takes a line of a log file apart; `None` when it is not one. The hash is not checked.
#[must_use]
pub fn parse_line(line: &str) -> Option<Record> {
    let mut parts = line.splitn(3, ' ');
    let sequence = parts.next()?.parse().ok()?;
    let hash = HEXLOWER.decode(parts.next()?.as_bytes()).ok()?.try_into().ok()?;
    Some(Record { sequence, hash, json: parts.next()?.to_owned() })
}

/// What a search is for. Empty means anything.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Not before; what a host reported counts from when the authority heard of it.
    pub since: Option<OffsetDateTime>,
    /// Not after.
    pub until: Option<OffsetDateTime>,
    /// Of this code, or of this dotted kind.
    pub code: String,
    /// By this user.
    pub user: String,
    /// In this session.
    pub session_id: String,
    /// About a statement of a database that has these words, all of them, whatever their case.
    pub statement: String,
}

impl Filter {
    /// Whether a record is wanted.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let Ok(event) = record.event() else { return false };
        let is = |wanted: &str, got: &str| wanted.is_empty() || wanted == got;
        // What a host says has happened earlier is news from when it was heard on.
        let heard = event.received.map_or(event.time, |received| received.max(event.time));
        self.since.is_none_or(|since| heard >= since)
            && self.until.is_none_or(|until| event.time <= until)
            && (is(&self.code, event.code.as_str()) || self.code == event.kind)
            && is(&self.user, &event.user)
            && is(&self.session_id, &event.session_id)
            && self.is_about(event.fields.get("statement").and_then(serde_json::Value::as_str))
    }

    fn is_about(&self, statement: Option<&str>) -> bool {
        if self.statement.is_empty() {
            return true;
        }
        let Some(statement) = statement.map(str::to_lowercase) else { return false };
        self.statement.to_lowercase().split_whitespace().all(|word| statement.contains(word))
    }
}

/// The files of a log, in order.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            paths.push(path);
        }
    }
    // Names hold the first number with leading zeros.
    paths.sort();
    Ok(paths)
}

/// One line of a file, with its length in bytes and whether it was ended. Of a line that is too long `text` is the beginning, which
/// is no record.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) bytes: u64,
    pub(super) ended: bool,
}

impl Line {
    /// The record that this is.
    pub(super) fn record(&self) -> Option<Record> {
        if self.ended && self.bytes <= MAX_LINE { parse_line(&self.text) } else { None }
    }
}

/// Calls `visit` for each line of a file.
pub(super) fn lines(path: &Path, mut visit: impl FnMut(Line) -> ControlFlow<()>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 * 1024, File::open(path)?);
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let mut bytes = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut buffer)? as u64;
        if bytes == 0 {
            return Ok(());
        }
        let mut ended = buffer.last() == Some(&b'\n');
        if ended {
            buffer.pop();
        } else if bytes == MAX_LINE {
            let (rest, found) = skip_line(&mut reader)?;
            bytes += rest;
            ended = found;
        }
        let line = Line { text: String::from_utf8_lossy(&buffer).into_owned(), bytes, ended };
        if visit(line).is_break() {
            return Ok(());
        }
    }
}

/// Reads to the end of a line, keeping nothing; gives how many bytes that were, and whether the line was ended.
fn skip_line(reader: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let mut bytes = 0;
    loop {
        let here = reader.fill_buf()?;
        if here.is_empty() {
            return Ok((bytes, false));
        }
        let end = here.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(here.len(), |end| end + 1);
        reader.consume(taken);
        bytes += taken as u64;
        if end.is_some() {
            return Ok((bytes, true));
        }
    }
}

/// How a log is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A line is no record.
    #[error("{file} line {line} is not a record")]
    NotARecord {
        /// File name.
        file: String,
        /// Line, from 1.
        line: u64,
    },
    /// A number does not follow the one before it.
    #[error(
        "{file} line {line}: record {got} stands where {expected} should: records were removed, added or moved"
    )]
    Order {
        /// File name.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Number found.
        got: u64,
        /// Number that should follow.
        expected: u64,
    },
    /// A hash does not fit.
    #[error("{file} line {line}: record {sequence} was changed, or one before it was")]
    Changed {
        /// File name.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The record.
        sequence: u64,
    },
    /// A checkpoint is not one, or not signed with the cluster's key.
    #[error("checkpoint {line} is not signed with this cluster's key")]
    Signature {
        /// Line of the checkpoint file, from 1.
        line: u64,
    },
    /// A checkpoint and the chain disagree.
    #[error("the signed checkpoint at record {sequence} does not fit the chain")]
    Checkpoint {
        /// The record.
        sequence: u64,
    },
    /// The log has another history than the head that was kept elsewhere.
    #[error(
        "the log does not hold record {sequence} as it was kept elsewhere: it was written anew, or its end was cut off"
    )]
    Missing {
        /// The record.
        sequence: u64,
    },
    /// The log was begun anew behind the head that was kept elsewhere.
    #[error(
        "the log was begun anew behind record {beginning}, and record {sequence} is in a log that was set aside before"
    )]
    Before {
        /// The record.
        sequence: u64,
        /// The number behind which this log begins.
        beginning: u64,
    },
    /// What says where the log begins is not signed with the cluster's key.
    #[error("the file that says where the log begins is not signed with this cluster's key")]
    Beginning,
    /// The end was cut off.
    #[error(
        "the log ends at record {last}, but a signed checkpoint stands at record {checkpoint}: its end was cut off"
    )]
    CutOff {
        /// The last record found.
        last: u64,
        /// The record of the checkpoint.
        checkpoint: u64,
    },
}

/// What a check of the whole log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The number of the last good record.
    pub records: u64,
    /// Checkpoints that are good.
    pub checkpoints: u64,
    /// The hash of the last good record.
    pub head: [u8; 32],
    /// The first thing that is wrong.
    pub problem: Option<Problem>,
}

/// Checks a log from its first record to its last, and every checkpoint.
///
/// # Errors
/// What reading says. A broken log is no error but a [`Problem`].
pub fn verify(directory: &Path, key: &PublicKey) -> io::Result<Verification> {
    verify_against(directory, key, &[])
}

/// [`verify`], and that the log holds every one of `heads`, which were kept elsewhere.
///
/// # Errors
/// As [`verify`].
pub fn verify_against(directory: &Path, key: &PublicKey, heads: &[Head]) -> io::Result<Verification> {
    let mut found = Verification { records: 0, checkpoints: 0, head: [0; 32], problem: None };
    let mut begins = 0;
    match Beginning::read(directory)? {
        None => {}
        Some(Beginning::Good(checkpoint)) if checkpoint.is_signed_as_beginning(key) => {
            begins = checkpoint.head.sequence;
            found.records = begins;
            found.head = checkpoint.head.hash;
        }
        Some(_) => found.problem = Some(Problem::Beginning),
    }
    let mut wanted = Vec::new();
    let path = directory.join(CHECKPOINTS);
    if path.exists() {
        let mut number = 0;
        lines(&path, |line| {
            number += 1;
            match Checkpoint::parse(&line.text).filter(|checkpoint| checkpoint.is_signed(key)) {
                Some(checkpoint) => wanted.push((checkpoint.head, true)),
                // A checkpoint that was being written when the machine stopped.
                None if !line.ended => {}
                None => {
                    found.problem.get_or_insert(Problem::Signature { line: number });
                }
            }
            ControlFlow::Continue(())
        })?;
    }
    wanted.extend(heads.iter().map(|head| (*head, false)));
    wanted.sort_by_key(|(head, _)| head.sequence);
    let mut waiting = wanted.iter().peekable();
    while let Some((head, _)) = waiting.next_if(|(head, _)| head.sequence <= begins) {
        // What was kept elsewhere of a log that was set aside is not in this one, whatever this one says of where it begins.
        if found.problem.is_none() && head.sequence > 0 {
            found.problem = Some(Problem::Before { sequence: head.sequence, beginning: begins });
        }
    }
    for path in segments(directory)? {
        if found.problem.is_some() {
            break;
        }
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut number = 0;
        lines(&path, |line| {
            number += 1;
            let problem = check_line(&line, &file, number, &mut found);
            if let Some(problem) = problem {
                found.problem = Some(problem);
                return ControlFlow::Break(());
            }
            while let Some((head, own)) = waiting.next_if(|(head, _)| head.sequence <= found.records) {
                if head.sequence != found.records || head.hash != found.head {
                    let sequence = head.sequence;
                    found.problem = Some(if *own {
                        Problem::Checkpoint { sequence }
                    } else {
                        Problem::Missing { sequence }
                    });
                    return ControlFlow::Break(());
                }
                found.checkpoints += u64::from(*own);
            }
            ControlFlow::Continue(())
        })?;
    }
    if found.problem.is_none()
        && let Some((last, own)) = wanted.last().filter(|(last, _)| last.sequence > found.records)
    {
        let checkpoint = last.sequence;
        found.problem = Some(if *own {
            Problem::CutOff { last: found.records, checkpoint }
        } else {
            Problem::Missing { sequence: checkpoint }
        });
    }
    Ok(found)
}

fn check_line(line: &Line, file: &str, number: u64, found: &mut Verification) -> Option<Problem> {
    let Some(record) = line.record() else {
        return Some(Problem::NotARecord { file: file.to_owned(), line: number });
    };
    let expected = found.records + 1;
    if record.sequence != expected {
        return Some(Problem::Order { file: file.to_owned(), line: number, got: record.sequence, expected });
    }
    let right = Record::chain(record.sequence, &found.head, record.json);
    if right.hash != record.hash {
        return Some(Problem::Changed { file: file.to_owned(), line: number, sequence: record.sequence });
    }
    found.records = expected;
    found.head = right.hash;
    None
}

/// The first number of a file, from its name.
pub(super) fn first_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}
