//! From a node to here.
//!
//! What a node says is believed of what it sends, never of what is here: no answer of its makes a name lead out of the directory that
//! the user named ([`super::ground`]), writes a name twice, or makes a link that `Links::Keep` does not ask for.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use tokio::io::AsyncWriteExt;

use super::error::{CopyError, DestinationProblem, FileError};
use super::ground::Ground;
use super::remote::{Entry, is_plain_name, join};
use super::{FILES_AT_A_TIME, Links, MAX_DEPTH, Options, Outcome, Progress, Remote, Tally};

/// Files, directories and links in one copy, at most: what a hostile node may have us remember.
const MOST_NAMES: usize = 2_000_000;

/// Bytes of a file that is said to be empty, at most: those of `/proc` have some.
const MOST_UNSAID: u64 = 1 << 30;

/// Where a file goes.
enum To {
    /// The file that the user named. A link there is the user's own, as with `scp`.
    Named(PathBuf),
    /// One below the directory that is filled.
    Below(PathBuf),
}

/// One file to fetch.
struct Job {
    from: String,
    to: To,
    attributes: FileAttributes,
}

/// What a walk through the sources found.
#[derive(Default)]
struct Plan {
    files: Vec<Job>,
    /// Directories with the modes and times to give them once their files are there.
    directories: Vec<(PathBuf, FileAttributes)>,
    /// Links, made after everything that is written.
    links: Vec<(String, PathBuf)>,
    /// What has a source by now.
    taken: HashSet<PathBuf>,
    names: usize,
}

/// One thing on the way to the plan: where it is there, and where it goes below the directory here.
struct Found {
    from: String,
    below: PathBuf,
    attributes: FileAttributes,
    /// Whether the attributes are of the name itself, and not of what it leads to.
    unfollowed: bool,
    depth: usize,
}

impl Remote {
    /// Copies files and trees of the node to a local file or directory.
    ///
    /// Names may have patterns, and are relative to the login's home directory. Within a directory that is filled, nothing is
    /// written through a symbolic link; one that the user named as the destination is followed.
    ///
    /// # Errors
    /// [`CopyError::Destination`] when several sources meet a destination that is no directory, or it cannot be opened. Everything
    /// that concerns a single file is in the [`Outcome`].
    pub fn download<'a>(
        &'a self,
        sources: &'a [String],
        destination: &'a Path,
        options: Options,
    ) -> BoxFuture<'a, Result<Outcome, CopyError>> {
        Box::pin(self.download_all(sources, destination, options))
    }

    async fn download_all(
        &self,
        sources: &[String],
        destination: &Path,
        options: Options,
    ) -> Result<Outcome, CopyError> {
        let tally = Tally::new(options);
        let mut found = Vec::new();
        for source in sources {
            match self.expand(source).await {
                Ok(paths) => found.extend(paths),
                Err(error) => tally.failed(source, error.to_string()),
            }
        }
        let into_directory = destination.is_dir();
        let bad = |problem| CopyError::Destination { path: destination.display().to_string(), problem };
        if !into_directory && found.len() > 1 {
            return Err(bad(DestinationProblem::NoDirectory));
        }
        let (directory, name) = if into_directory {
            (destination, Path::new(""))
        } else {
            let name = destination.file_name().ok_or_else(|| bad(DestinationProblem::Missing))?;
            let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")), Path::new(name))
        };
        let ground = Ground::open(directory).map_err(|error| {
            bad(DestinationProblem::Unopened { directory: directory.display().to_string(), error })
        })?;
        let mut plan = Plan::default();
        for source in found {
            let below = match source.trim_end_matches('/').rsplit('/').next() {
                // `host:` and `host:.` have no name to give.
                Some(own) if into_directory && is_plain_name(own) => PathBuf::from(own),
                _ => name.to_owned(),
            };
            match self.stat(&source).await {
                Ok(Some(attributes)) => {
                    let first = Found { from: source, below, attributes, unfollowed: false, depth: 0 };
                    let named = (!into_directory).then_some(destination);
                    self.plan_download(&ground, first, named, &tally, &mut plan).await;
                }
                Ok(None) => tally.failed(source, "no such file or directory"),
                Err(error) => tally.failed(source, error.to_string()),
            }
        }
        let (tally_ref, ground_ref) = (&tally, &ground);
        futures::stream::iter(plan.files)
            .map(|job| async move {
                tally_ref.tell(Progress::Begun { path: &job.from, bytes: job.attributes.size.unwrap_or(0) });
                let fetched = self.fetch(ground_ref, &job, tally_ref).await;
                tally_ref.ended(&job.from, fetched);
            })
            .buffer_unordered(FILES_AT_A_TIME)
            .collect::<()>()
            .await;
        for (from, below) in plan.links {
            match self.make_link(&ground, &from, &below).await {
                Ok(()) => tally.with(|outcome| outcome.links += 1),
                Err(error) => tally.failed(from, error.to_string()),
            }
        }
        // Innermost first: giving a directory its times comes after the last change inside it.
        for (below, attributes) in plan.directories.into_iter().rev() {
            if let Err(error) = finish_directory(&ground, &below, &attributes, tally.options.preserve) {
                tally.failed(ground.shown(&below), error.to_string());
            }
        }
        Ok(tally.finish())
    }

    /// Finds what is to be copied, and makes the directories.
    async fn plan_download(
        &self,
        ground: &Ground,
        first: Found,
        named: Option<&Path>,
        tally: &Tally,
        plan: &mut Plan,
    ) {
        let mut open = vec![first];
        while let Some(Found { from, below, attributes, unfollowed, depth }) = open.pop() {
            // The directory that the user named is filled by any number of sources.
            if !below.as_os_str().is_empty() && !plan.taken.insert(below.clone()) {
                tally.failed(&from, format!("{} would be written twice; left out", ground.shown(&below)));
                continue;
            }
            if attributes.is_symlink() {
                if unfollowed && tally.options.links == Links::Keep {
                    plan.links.push((from, below));
                } else {
                    tally.failed(&from, "the node says that it leads to a link, which nothing can; left out");
                }
                continue;
            }
            if !attributes.is_dir() {
                if attributes.permissions.is_some() && !attributes.file_type().is_file() {
                    tally.failed(&from, "not a regular file");
                } else {
                    let to = match named {
                        Some(named) if depth == 0 => To::Named(named.to_owned()),
                        _ => To::Below(below),
                    };
                    plan.files.push(Job { from, to, attributes });
                }
                continue;
            }
            if !tally.options.recursive {
                tally.failed(&from, "is a directory (copy it with -r)");
                continue;
            }
            if depth >= MAX_DEPTH {
                tally.failed(
                    &from,
                    format!("is more than {MAX_DEPTH} directories deep; do links lead in a circle?"),
                );
                continue;
            }
            if let Err(error) = ground.make_directory(&below) {
                tally.failed(&from, format!("cannot make {}: {error}", ground.shown(&below)));
                continue;
            }
            tally.with(|outcome| outcome.directories += 1);
            let entries = match self.list(&from).await {
                Ok(entries) => entries,
                Err(error) => {
                    tally.failed(&from, error.to_string());
                    continue;
                }
            };
            if !below.as_os_str().is_empty() {
                plan.directories.push((below.clone(), attributes));
            }
            plan.names = plan.names.saturating_add(entries.len());
            if plan.names > MOST_NAMES {
                tally.failed(
                    &from,
                    format!("is beyond the {MOST_NAMES} names that one copy takes; copy it by itself"),
                );
                continue;
            }
            for entry in entries {
                match self.entry(&from, entry, tally.options.links).await {
                    Ok((name, from, attributes, unfollowed)) => {
                        let below = below.join(name);
                        open.push(Found { from, below, attributes, unfollowed, depth: depth + 1 });
                    }
                    Err((path, error)) => tally.failed(path, error.to_string()),
                }
            }
        }
    }

    /// What an entry of a directory is, with links followed if they are to be.
    async fn entry(
        &self,
        directory: &str,
        entry: Entry,
        links: Links,
    ) -> Result<(String, String, FileAttributes, bool), (String, FileError)> {
        let path = join(directory, &entry.name);
        if !is_plain_name(&entry.name) {
            return Err((path, FileError::NotPlain));
        }
        let follow = entry.attributes.is_symlink() && links == Links::Follow;
        if !follow && entry.attributes.permissions.is_some() {
            return Ok((entry.name, path, entry.attributes, true));
        }
        match self.stat(&path).await {
            Ok(Some(attributes)) => Ok((entry.name, path, attributes, false)),
            Ok(None) => Err((path, FileError::Dangling)),
            Err(error) => Err((path, error.into())),
        }
    }

    /// Makes a link that leads where the node's does.
    async fn make_link(&self, ground: &Ground, from: &str, below: &Path) -> Result<(), FileError> {
        let names = self.ask(self.sftp.readlink(from)).await?;
        let target = names.files.into_iter().next().ok_or(FileError::NoTarget)?;
        ground.link(&target.filename, below).map_err(|error| FileError::Here {
            doing: "make the link",
            path: ground.shown(below),
            error,
        })
    }

    /// Fetches one file. Gives its size.
    async fn fetch(&self, ground: &Ground, job: &Job, tally: &Tally) -> Result<u64, FileError> {
        let shown = job.to.shown(ground);
        let cannot = |doing, error| FileError::Here { doing, path: shown.clone(), error };
        let handle = self
            .ask(self.sftp.open(job.from.as_str(), OpenFlags::READ, FileAttributes::empty()))
            .await?
            .handle;
        let mode = job.attributes.permissions.unwrap_or(0o644);
        let copied = match job.to.create(ground, mode) {
            Ok(file) => {
                let mut file = tokio::fs::File::from_std(file);
                let copied = self.read_all(job, &shown, &handle, &mut file, tally).await;
                match file.flush().await {
                    Ok(()) => {
                        let file = file.into_std().await;
                        copied.and_then(|bytes| {
                            finish(&file, &job.attributes, tally.options.preserve)
                                .map(|()| bytes)
                                .map_err(|error| cannot("set the mode and times of", error))
                        })
                    }
                    Err(error) => Err(cannot("write", error)),
                }
            }
            Err(error) => Err(cannot("write", error)),
        };
        let _ = self.ask(self.sftp.close(handle)).await;
        copied
    }

    /// How long the node says by now that the file is.
    async fn length_now(&self, handle: &str) -> Option<u64> {
        self.ask(self.sftp.fstat(handle)).await.ok()?.attrs.size
    }

    /// Asks for the pieces ahead of the one that is being written.
    async fn read_all(
        &self,
        job: &Job,
        shown: &str,
        handle: &str,
        file: &mut tokio::fs::File,
        tally: &Tally,
    ) -> Result<u64, FileError> {
        let chunk = self.read_bytes;
        let expected = job.attributes.size.unwrap_or(0);
        let mut most = if expected == 0 { MOST_UNSAID } else { expected };
        let mut pending = FuturesOrdered::new();
        let (mut asked, mut written, mut eof) = (0_u64, 0_u64, false);
        loop {
            // Past the expected size one request at a time: the end may have moved.
            while !eof && pending.len() < Self::depth(chunk) && (asked < expected || pending.is_empty()) {
                let offset = asked;
                asked += u64::from(chunk);
                pending.push_back(async move {
                    // Taken in the order of the pieces, so the first one always gets its turn.
                    let permit = self.budget.acquire_many(Self::permits(chunk)).await;
                    (offset, self.ask(self.sftp.read(handle, offset, chunk)).await, permit)
                });
            }
            let Some((mut offset, mut piece, _permit)) = pending.next().await else { break };
            let end = offset + u64::from(chunk);
            while offset < end {
                match piece {
                    // A piece past the end that a shrinking file had when it was asked for.
                    _ if eof => break,
                    Ok(data) if data.data.is_empty() => eof = true,
                    Ok(data) => {
                        let count = data.data.len() as u64;
                        if count > end - offset {
                            return Err(FileError::PastAsked { sent: count, asked: end - offset });
                        }
                        if written + count > most {
                            // It may have grown meanwhile.
                            most = self.length_now(handle).await.unwrap_or(0).max(most);
                            if written + count > most {
                                return Err(FileError::PastSaid(most));
                            }
                        }
                        let wrote = file.write_all(&data.data).await;
                        wrote.map_err(|error| FileError::Here {
                            doing: "write",
                            path: shown.to_owned(),
                            error,
                        })?;
                        offset += count;
                        written += count;
                        tally.tell(Progress::Moved { path: &job.from, bytes: count });
                    }
                    Err(error) if error.is_eof() => eof = true,
                    Err(error) => return Err(error.into()),
                }
                if eof || offset >= end {
                    break;
                }
                // Less than was asked for: the rest has to be asked for again.
                let rest = u32::try_from(end - offset).unwrap_or(chunk);
                piece = self.ask(self.sftp.read(handle, offset, rest)).await;
            }
        }
        if written < expected {
            // It may have become shorter meanwhile.
            let now = self.length_now(handle).await.unwrap_or(expected);
            if written < now {
                return Err(FileError::Short { written, said: now });
            }
        }
        Ok(written)
    }
}

impl To {
    fn shown(&self, ground: &Ground) -> String {
        match self {
            Self::Named(path) => path.display().to_string(),
            Self::Below(below) => ground.shown(below),
        }
    }

    /// A file to write from its beginning.
    fn create(&self, ground: &Ground, mode: u32) -> std::io::Result<fs::File> {
        use std::os::unix::fs::OpenOptionsExt;
        match self {
            Self::Named(path) => {
                let mode = mode & 0o777 | 0o200;
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)
            }
            Self::Below(below) => ground.create(below, mode),
        }
    }
}

/// Gives what was copied its mode and times. Bits that give a file's rights to who runs it are not taken from a node.
fn finish(file: &fs::File, attributes: &FileAttributes, preserve: bool) -> std::io::Result<()> {
    if preserve {
        if let Some(mode) = attributes.permissions {
            file.set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
        }
        if let Some(times) = times(attributes) {
            file.set_times(times)?;
        }
    }
    Ok(())
}

fn finish_directory(
    ground: &Ground,
    below: &Path,
    attributes: &FileAttributes,
    preserve: bool,
) -> std::io::Result<()> {
    if preserve { finish(&ground.directory(below)?, attributes, preserve) } else { Ok(()) }
}

fn times(attributes: &FileAttributes) -> Option<fs::FileTimes> {
    let at = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(seconds));
    let modified = at(attributes.mtime?);
    Some(fs::FileTimes::new().set_modified(modified).set_accessed(attributes.atime.map_or(modified, at)))
}
