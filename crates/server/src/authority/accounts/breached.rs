//! Lists of passwords that were stolen elsewhere, on disk: the files that Have I Been Pwned's downloader writes. No list is read as
//! a whole, and no password leaves the machine.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXUPPER;
use sallyport_sal::breached;

/// Hexadecimal digits of a digest, and those that name its range.
const DIGITS: usize = 2 * breached::DIGEST_BYTES;
const PREFIX: usize = 5;
/// Longest line: a digest, a colon, a count of 64 bits and the end.
const LINE: usize = DIGITS + 24;
/// Largest file of one range, in bytes; those of today have some 100 KiB.
const RANGE_BYTES: u64 = 4 * 1024 * 1024;
/// Places at which a sorted file is looked at before it is believed to be sorted.
const LOOKS: u64 = 64;

/// Why a list cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub(crate) struct Unusable {
    path: PathBuf,
    problem: String,
}

/// A list, which is opened for each question: it may be replaced while the authority runs.
#[derive(Debug, Clone)]
pub(crate) struct BreachedList {
    path: PathBuf,
}

/// A line of a sorted file: its digest in capitals, how often the password was found, and where the next line begins.
struct Line {
    digest: String,
    count: u64,
    start: u64,
    next: u64,
}

impl BreachedList {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Looks at a list, as far as that can be done without reading it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), Unusable> {
        if self.is_ranges()? {
            // The first and the last: a download that stopped lacks the last.
            for prefix in ["00000", "FFFFF"] {
                self.in_range(prefix, &"0".repeat(DIGITS - PREFIX))?;
            }
            return Ok(());
        }
        let (file, length) = self.open()?;
        let mut before = None::<String>;
        for look in 0..LOOKS {
            let offset = u64::try_from(u128::from(length) * u128::from(look) / u128::from(LOOKS));
            let Some(line) = self.line_from(&file, length, offset.unwrap_or_default())? else { continue };
            if before.as_ref().is_some_and(|before| *before > line.digest) {
                return Err(self.unusable("it is not sorted by digest; download the one that is"));
            }
            before = Some(line.digest);
        }
        before.map(drop).ok_or_else(|| self.unusable("it is empty"))
    }

    /// How often a password is in the list; 0 where it is not.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub(crate) fn count(&self, password: &str) -> Result<u64, Unusable> {
        let digest = breached::digest(password.as_bytes()).map_err(|error| self.unusable(error))?;
        let digest = zeroize::Zeroizing::new(HEXUPPER.encode(digest.as_slice()));
        if self.is_ranges()? {
            let (prefix, suffix) = digest.split_at_checked(PREFIX).unwrap_or_default();
            return self.in_range(prefix, suffix);
        }
        self.in_sorted(&digest)
    }

    fn unusable(&self, problem: impl ToString) -> Unusable {
        Unusable { path: self.path.clone(), problem: problem.to_string() }
    }

    fn is_ranges(&self) -> Result<bool, Unusable> {
        let found = std::fs::metadata(&self.path).map_err(|error| self.unusable(error))?;
        if found.is_dir() || found.is_file() {
            return Ok(found.is_dir());
        }
        Err(self.unusable("it is neither a directory nor a file"))
    }

    /// How often a digest is in the file of its range: `SUFFIX:COUNT`, in any order.
    fn in_range(&self, prefix: &str, suffix: &str) -> Result<u64, Unusable> {
        let path = self.path.join(format!("{prefix}.txt"));
        let unusable = |problem: String| Unusable { path: path.clone(), problem };
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(RANGE_BYTES + 1).read_to_string(&mut text));
        let length = read.map_err(|error| unusable(error.to_string()))?;
        if length as u64 > RANGE_BYTES {
            return Err(unusable(format!("it has more than {RANGE_BYTES} bytes")));
        }
        let mut found = 0;
        for (number, line) in text.lines().enumerate() {
            let (digits, count) = parsed(line, DIGITS - PREFIX)
                .ok_or_else(|| unusable(format!("line {} is not SUFFIX:COUNT", number + 1)))?;
            if digits.eq_ignore_ascii_case(suffix) {
                found = count;
            }
        }
        Ok(found)
    }

    fn open(&self) -> Result<(File, u64), Unusable> {
        let opened = File::open(&self.path).and_then(|file| {
            let length = file.metadata()?.len();
            Ok((file, length))
        });
        opened.map_err(|error| self.unusable(error))
    }

    /// How often a digest is in the one file, which is sorted: each step halves what is left, so that 40 GB take some 36 reads.
    fn in_sorted(&self, digest: &str) -> Result<u64, Unusable> {
        let (file, length) = self.open()?;
        // The line, if there is one, begins at `from` or later and before `to`.
        let (mut from, mut to) = (0, length);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.line_from(&file, length, middle)?.filter(|line| line.start < to) {
                None => to = middle,
                Some(line) => match line.digest.as_str().cmp(digest) {
                    std::cmp::Ordering::Equal => return Ok(line.count),
                    std::cmp::Ordering::Less => from = line.next,
                    std::cmp::Ordering::Greater => to = middle,
                },
            }
        }
        Ok(0)
    }

    /// The first line that begins at `offset` or later; none at the end.
    fn line_from(&self, file: &File, length: u64, offset: u64) -> Result<Option<Line>, Unusable> {
        // The byte before tells whether a line begins right there.
        let from = offset.saturating_sub(1);
        let mut buffer = [0; 2 * LINE];
        let read = read_at(file, &mut buffer, from).map_err(|error| self.unusable(error))?;
        let bytes = buffer.get(..read).unwrap_or_default();
        let bad = || self.unusable(format!("there is no DIGEST:COUNT at byte {offset}"));
        let end_of = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n');
        let skipped = match (offset, end_of(bytes)) {
            (0, _) => 0,
            (_, Some(end)) if end < LINE => end + 1,
            // The last line, whose beginning is before.
            (_, None) if from + read as u64 >= length && read <= LINE => return Ok(None),
            _ => return Err(bad()),
        };
        let rest = bytes.get(skipped..).unwrap_or_default();
        let start = from + skipped as u64;
        if start >= length {
            return Ok(None);
        }
        let (line, next) = match end_of(rest) {
            Some(end) => (rest.get(..end).unwrap_or_default(), start + end as u64 + 1),
            None if start + rest.len() as u64 >= length => (rest, length),
            None => return Err(bad()),
        };
        let text = std::str::from_utf8(line).map_err(|_| bad())?;
        let (digits, count) = parsed(text, DIGITS).ok_or_else(bad)?;
        Ok(Some(Line { digest: digits.to_ascii_uppercase(), count, start, next }))
    }
}

/// So much as there is, up to the buffer's length.
fn read_at(file: &File, buffer: &mut [u8], from: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = buffer.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Hexadecimal digits, and the count after them.
fn parsed(line: &str, digits: usize) -> Option<(&str, u64)> {
    let (hex, count) = line.trim_end_matches('\r').split_once(':')?;
    let is_digest = hex.len() == digits && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some((hex, count.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn digest_of(password: &str) -> String {
        HEXUPPER.encode(breached::digest(password.as_bytes()).unwrap().as_slice())
    }

    fn sorted(count: usize, end: &str) -> String {
        let mut lines: Vec<String> = (0..count)
            .map(|number| format!("{}:{}", digest_of(&format!("stolen {number}")), number + 1))
            .collect();
        lines.sort();
        lines.join(end)
    }

    #[test]
    fn a_sorted_file_is_searched_where_it_lies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pwned.txt");
        let list = BreachedList::at(&path);
        for (count, end, last) in
            [(1, "\n", ""), (2, "\r\n", "\r\n"), (7, "\n", ""), (1000, "\n", "\n"), (999, "\r\n", "")]
        {
            std::fs::write(&path, sorted(count, end) + last).unwrap();
            list.check().unwrap();
            for number in 0..count {
                assert_eq!(list.count(&format!("stolen {number}")).unwrap(), number as u64 + 1, "of {count}");
            }
            for number in 0..200 {
                assert_eq!(list.count(&format!("mine {number}")).unwrap(), 0);
            }
        }
        std::fs::write(&path, sorted(300, "\n").to_ascii_lowercase()).unwrap();
        assert_eq!(list.count("stolen 299").unwrap(), 300);
    }

    #[test]
    fn ranges_are_files_by_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let list = BreachedList::at(directory.path());
        let write = |prefix: &str, lines: &str| {
            std::fs::write(directory.path().join(format!("{prefix}.txt")), lines).unwrap();
        };
        let other = "0".repeat(35);
        for digest in [digest_of("stolen"), digest_of("padding")] {
            let (prefix, suffix) = digest.split_at(PREFIX);
            let count = if digest == digest_of("padding") { 0 } else { 7 };
            write(prefix, &format!("{other}:1\r\n{}:{count}\r\n", suffix.to_ascii_lowercase()));
        }
        assert_eq!(list.count("stolen").unwrap(), 7);
        assert_eq!(list.count("padding").unwrap(), 0, "what hides how long an answer is");
        let missing = list.count("mine").unwrap_err().to_string();
        assert!(missing.contains(&format!("{}.txt", &digest_of("mine")[..PREFIX])), "{missing}");
        assert!(list.check().is_err(), "neither end is there");
        write("00000", &format!("{other}:1"));
        write("FFFFF", &format!("{other}:1\n"));
        list.check().unwrap();
        write("FFFFF", "<html>");
        assert!(list.check().unwrap_err().to_string().contains("line 1 is not SUFFIX:COUNT"));
    }

    #[test]
    fn what_is_no_list_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let list = BreachedList::at(&path);
        assert!(list.check().is_err() && list.count("x").is_err(), "it is missing");
        let mut by_count: Vec<String> = sorted(100, "\n").lines().map(str::to_owned).collect();
        by_count.reverse();
        for (text, says) in [
            (String::new(), "it is empty"),
            ("password\n123456\n".to_owned(), "no DIGEST:COUNT"),
            ("x".repeat(10_000), "no DIGEST:COUNT"),
            (by_count.join("\n"), "not sorted by digest"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let problem = list.check().unwrap_err().to_string();
            assert!(problem.contains(says), "{text:.20}: {problem}");
            assert!(text.is_empty() || says.starts_with("not") || list.count("x").is_err(), "{text:.20}");
        }
    }
}
