//! From a node to here.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::stream::{FuturesOrdered, StreamExt};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use tokio::io::AsyncWriteExt;

use super::remote::{in_words, is_eof, is_plain_name, join};
use super::{CopyError, FILES_AT_A_TIME, Links, MAX_DEPTH, Options, Outcome, Progress, Remote, Tally};

/// One file to fetch.
struct Job {
    from: String,
    to: PathBuf,
    attributes: FileAttributes,
}

/// What a walk through the sources found.
#[derive(Default)]
struct Plan {
    files: Vec<Job>,
    /// Directories with the modes and times to give them once their files are there.
    directories: Vec<(PathBuf, FileAttributes)>,
}

impl Remote {
    /// Copies files and trees of the node to a local file or directory.
    ///
    /// Names may have patterns, and are relative to the login's home directory.
    ///
    /// # Errors
    /// [`CopyError::Destination`] when several sources meet a destination that is no directory. Everything that
    /// concerns a single file is in the [`Outcome`].
    pub async fn download(
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
                Err(reason) => tally.failed(source, reason),
            }
        }
        let into_directory = destination.is_dir();
        if !into_directory && found.len() > 1 {
            return Err(CopyError::Destination {
                path: destination.display().to_string(),
                reason: "it must be a directory to take several files".to_owned(),
            });
        }
        let mut plan = Plan::default();
        for source in found {
            let to = if into_directory {
                // `host:` and `host:.` have no name to give.
                match source.trim_end_matches('/').rsplit('/').next() {
                    Some(name) if is_plain_name(name) => destination.join(name),
                    _ => destination.to_owned(),
                }
            } else {
                destination.to_owned()
            };
            match self.stat(&source).await {
                Ok(Some(attributes)) => self.plan_download(source, to, attributes, &tally, &mut plan).await,
                Ok(None) => tally.failed(source, "no such file or directory"),
                Err(reason) => tally.failed(source, reason),
            }
        }
        let tally_ref = &tally;
        futures::stream::iter(plan.files)
            .map(|job| async move {
                tally_ref.tell(Progress::Begun { path: &job.from, bytes: job.attributes.size.unwrap_or(0) });
                let fetched = self.fetch(&job, tally_ref).await;
                tally_ref.ended(&job.from, fetched);
            })
            .buffer_unordered(FILES_AT_A_TIME)
            .collect::<()>()
            .await;
        // Innermost first: giving a directory its times comes after the last change inside it.
        for (path, attributes) in plan.directories.into_iter().rev() {
            if let Err(error) = finish_directory(&path, &attributes, tally.options.preserve) {
                tally.failed(path.display().to_string(), error.to_string());
            }
        }
        Ok(tally.finish())
    }

    /// Finds what is to be copied, and makes the directories.
    async fn plan_download(
        &self,
        from: String,
        to: PathBuf,
        attributes: FileAttributes,
        tally: &Tally,
        plan: &mut Plan,
    ) {
        let mut open = vec![(from, to, attributes, 0)];
        while let Some((from, to, attributes, depth)) = open.pop() {
            if attributes.is_symlink() {
                match self
                    .ask(self.sftp.readlink(from.as_str()))
                    .await
                    .map(|names| names.files.into_iter().next())
                {
                    Ok(Some(target)) => match std::os::unix::fs::symlink(&target.filename, &to) {
                        Ok(()) => tally.with(|outcome| outcome.links += 1),
                        Err(error) => {
                            tally.failed(&from, format!("cannot make the link {}: {error}", to.display()))
                        }
                    },
                    Ok(None) => tally.failed(&from, "the node does not say where the link leads"),
                    Err(error) => tally.failed(&from, in_words(&error)),
                }
                continue;
            }
            if !attributes.is_dir() {
                if attributes.permissions.is_some() && !attributes.file_type().is_file() {
                    tally.failed(&from, "not a regular file");
                } else {
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
            if let Err(error) = make_directory(&to) {
                tally.failed(&from, format!("cannot make {}: {error}", to.display()));
                continue;
            }
            tally.with(|outcome| outcome.directories += 1);
            plan.directories.push((to.clone(), attributes));
            let entries = match self.list(&from).await {
                Ok(entries) => entries,
                Err(reason) => {
                    tally.failed(&from, reason);
                    continue;
                }
            };
            for entry in entries {
                let path = join(&from, &entry.name);
                if !is_plain_name(&entry.name) {
                    tally.failed(path, "the node gave a name that leads elsewhere; left out");
                    continue;
                }
                let follow = entry.attributes.is_symlink() && tally.options.links == Links::Follow;
                let attributes = if follow || entry.attributes.permissions.is_none() {
                    match self.stat(&path).await {
                        Ok(Some(attributes)) => attributes,
                        Ok(None) => {
                            tally.failed(path, "the link leads nowhere");
                            continue;
                        }
                        Err(reason) => {
                            tally.failed(path, reason);
                            continue;
                        }
                    }
                } else {
                    entry.attributes
                };
                open.push((path, to.join(&entry.name), attributes, depth + 1));
            }
        }
    }

    /// Fetches one file. Gives its size.
    async fn fetch(&self, job: &Job, tally: &Tally) -> Result<u64, String> {
        let cannot =
            |doing: &str, error: std::io::Error| format!("cannot {doing} {}: {error}", job.to.display());
        let handle = self
            .ask(self.sftp.open(job.from.as_str(), OpenFlags::READ, FileAttributes::empty()))
            .await
            .map_err(|error| in_words(&error))?
            .handle;
        let mode = job.attributes.permissions.unwrap_or(0o644) & 0o777;
        let opened =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode | 0o200).open(&job.to);
        let copied = match opened {
            Ok(file) => {
                let mut file = tokio::fs::File::from_std(file);
                let copied = self.read_all(job, &handle, &mut file, tally).await;
                match file.flush().await {
                    Ok(()) => {
                        let file = file.into_std().await;
                        copied.and_then(|bytes| {
                            finish_file(&file, &job.attributes, tally.options.preserve)
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

    /// Asks for the pieces ahead of the one that is being written.
    async fn read_all(
        &self,
        job: &Job,
        handle: &str,
        file: &mut tokio::fs::File,
        tally: &Tally,
    ) -> Result<u64, String> {
        let chunk = self.read_bytes;
        let expected = job.attributes.size.unwrap_or(0);
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
            let Some((mut offset, mut piece, _permit)) = pending.next().await else { return Ok(written) };
            let end = offset + u64::from(chunk);
            while offset < end {
                match piece {
                    // A piece past the end that a shrinking file had when it was asked for.
                    _ if eof => break,
                    Ok(data) if data.data.is_empty() => eof = true,
                    Ok(data) => {
                        file.write_all(&data.data)
                            .await
                            .map_err(|error| format!("cannot write {}: {error}", job.to.display()))?;
                        let count = data.data.len() as u64;
                        offset += count;
                        written += count;
                        tally.tell(Progress::Moved { path: &job.from, bytes: count });
                    }
                    Err(error) if is_eof(&error) => eof = true,
                    Err(error) => return Err(in_words(&error)),
                }
                if eof || offset >= end {
                    break;
                }
                // Less than was asked for: the rest has to be asked for again.
                let rest = u32::try_from(end - offset).unwrap_or(chunk);
                piece = self.ask(self.sftp.read(handle, offset, rest)).await;
            }
        }
    }
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        // Written to while it is filled; the mode comes afterwards.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

fn finish_file(file: &fs::File, attributes: &FileAttributes, preserve: bool) -> std::io::Result<()> {
    if preserve {
        if let Some(mode) = attributes.permissions {
            file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(times) = times(attributes) {
            file.set_times(times)?;
        }
    }
    Ok(())
}

fn finish_directory(path: &Path, attributes: &FileAttributes, preserve: bool) -> std::io::Result<()> {
    if preserve {
        if let Some(mode) = attributes.permissions {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(times) = times(attributes) {
            fs::File::open(path)?.set_times(times)?;
        }
    }
    Ok(())
}

fn times(attributes: &FileAttributes) -> Option<fs::FileTimes> {
    let at = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(seconds));
    let modified = at(attributes.mtime?);
    Some(fs::FileTimes::new().set_modified(modified).set_accessed(attributes.atime.map_or(modified, at)))
}
