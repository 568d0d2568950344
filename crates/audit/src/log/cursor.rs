//! Reading the log piece by piece: what reads never waits for what takes the records.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::chain::{Filter, Record, first_of, parse_line, segments};

/// Bytes that are looked at for one piece, however few records in them match: what reads for many takes turns.
const PIECE_BYTES: u64 = 8 << 20;
/// Bytes of records in one piece.
const RECORD_BYTES: usize = 1 << 20;
/// A longer line is no record.
const LONGEST_LINE: u64 = 4 << 20;

/// A place in the log, and what is looked for from there.
#[derive(Debug)]
pub struct Cursor {
    directory: PathBuf,
    filter: Filter,
    from: u64,
    last: u64,
    file: Option<(PathBuf, BufReader<File>)>,
    over: bool,
}

impl Cursor {
    pub(super) fn new(directory: &Path, filter: Filter, from: u64, last: u64) -> Self {
        Self { directory: directory.to_owned(), filter, from, last, file: None, over: from > last }
    }

    /// The number of the last record that it comes to.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The next records that match, at most `most`; none of them where a long way had none. `None` at the end. Blocks: for
    /// a thread that may.
    ///
    /// # Errors
    /// What reading says.
    pub fn next(&mut self, most: usize) -> io::Result<Option<Vec<Record>>> {
        let (mut found, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
        while !self.over && found.len() < most && looked_at < PIECE_BYTES && bytes < RECORD_BYTES {
            let Some((path, reader)) = &mut self.file else {
                self.open(None)?;
                continue;
            };
            let mut buffer = Vec::new();
            let read = reader.take(LONGEST_LINE).read_until(b'\n', &mut buffer)? as u64;
            looked_at += read;
            if read == 0 {
                let path = path.clone();
                self.open(Some(&path))?;
                continue;
            }
            if buffer.pop() != Some(b'\n') {
                // Half of a line: it is being written, or belongs to one that is no record.
                continue;
            }
            let Some(record) = parse_line(&String::from_utf8_lossy(&buffer)) else { continue };
            self.over = record.sequence >= self.last;
            if record.sequence >= self.from && record.sequence <= self.last && self.filter.matches(&record) {
                bytes += record.json.len();
                found.push(record);
            }
        }
        Ok((!found.is_empty() || !self.over).then_some(found))
    }

    /// Opens the file behind another; without one, the file that has the first record of interest.
    fn open(&mut self, behind: Option<&Path>) -> io::Result<()> {
        let paths = segments(&self.directory)?;
        let next = match behind {
            Some(behind) => paths.iter().position(|path| path == behind).map_or(paths.len(), |at| at + 1),
            None => {
                let later = |path: &PathBuf| first_of(path).is_some_and(|first| first > self.from);
                paths.iter().position(later).unwrap_or(paths.len()).saturating_sub(1)
            }
        };
        match paths.get(next) {
            Some(path) => {
                let reader = BufReader::with_capacity(256 * 1024, File::open(path)?);
                self.file = Some((path.clone(), reader));
            }
            None => self.over = true,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::chain::{PREFIX, SUFFIX};

    #[test]
    fn pieces_make_up_the_whole_across_files_and_stop_at_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let line = |sequence: u64| {
            let event = crate::Event::new(crate::Code::ApiCalled, time::OffsetDateTime::UNIX_EPOCH);
            format!("{sequence} {} {}\n", "00".repeat(32), event.to_json())
        };
        for first in [1_u64, 11, 21] {
            let text: String = (first..first + 10).map(line).collect();
            std::fs::write(directory.path().join(format!("{PREFIX}{first:016}{SUFFIX}")), text).unwrap();
        }
        for (from, last, most) in
            [(0, 30, 7), (1, 30, 1), (11, 25, 100), (15, 24, 3), (30, 30, 5), (31, 30, 5)]
        {
            let mut cursor = Cursor::new(directory.path(), Filter::default(), from, last);
            let mut found = Vec::new();
            while let Some(records) = cursor.next(most).unwrap() {
                assert!(records.len() <= most);
                found.extend(records.iter().map(|record| record.sequence));
            }
            let wanted: Vec<u64> = (from.max(1)..=last).collect();
            assert_eq!(found, wanted, "from {from} to {last}, {most} at a time");
        }
    }
}
