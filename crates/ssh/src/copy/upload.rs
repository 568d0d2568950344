//! From here to a node.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;

use super::error::{CopyError, DestinationProblem, FileError, ServiceError, local_words};
use super::remote::{from_home, join};
use super::{FILES_AT_A_TIME, Links, MAX_DEPTH, Options, Outcome, Progress, Remote, Tally};

/// Whose files are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The user's, who named them: a link that was named leads where the user wants it.
    Users,
    /// A node's, which this copy has fetched: no link is followed.
    Nodes,
}

/// One file to send.
struct Job {
    from: PathBuf,
    whose: Whose,
    /// As it is named in reports.
    name: String,
    to: String,
    metadata: fs::Metadata,
}

impl Job {
    fn unwritten(&self, error: ServiceError) -> FileError {
        FileError::There { doing: "write", path: self.to.clone(), error }
    }
}

/// What a walk through the sources found.
#[derive(Default)]
struct Plan {
    files: Vec<Job>,
    /// Directories with the modes and times to give them once their files are there.
    directories: Vec<(String, fs::Metadata)>,
}

impl Remote {
    /// Copies local files and trees to a file or directory of the node.
    ///
    /// # Errors
    /// [`CopyError::Destination`] when several sources meet a destination that is no directory, or its parent does
    /// not exist. Everything that concerns a single file is in the [`Outcome`].
    pub fn upload<'a>(
        &'a self,
        sources: &'a [PathBuf],
        destination: &'a str,
        options: Options,
    ) -> BoxFuture<'a, Result<Outcome, CopyError>> {
        Box::pin(self.send_all(sources, Whose::Users, destination, options))
    }

    /// Hands on what [`Remote::download`] has put into a directory that was made for it: regular files and directories, and with
    /// [`Links::Keep`] links. No link in it is followed, whatever another node has said of it: it would lead to files of this machine.
    ///
    /// # Errors
    /// As [`Remote::upload`], and when the directory cannot be read.
    pub fn hand_on<'a>(
        &'a self,
        fetched: &'a Path,
        destination: &'a str,
        options: Options,
    ) -> BoxFuture<'a, Result<Outcome, CopyError>> {
        Box::pin(self.hand_on_all(fetched, destination, options))
    }

    async fn hand_on_all(
        &self,
        fetched: &Path,
        destination: &str,
        options: Options,
    ) -> Result<Outcome, CopyError> {
        let unread = |error: std::io::Error| CopyError::Destination {
            path: fetched.display().to_string(),
            problem: DestinationProblem::Unread(error),
        };
        let mut pieces = Vec::new();
        for entry in fs::read_dir(fetched).map_err(unread)? {
            pieces.push(entry.map_err(unread)?.path());
        }
        if pieces.is_empty() {
            return Ok(Outcome::default());
        }
        pieces.sort();
        self.send_all(&pieces, Whose::Nodes, destination, options).await
    }

    async fn send_all(
        &self,
        sources: &[PathBuf],
        whose: Whose,
        destination: &str,
        options: Options,
    ) -> Result<Outcome, CopyError> {
        let destination = from_home(destination);
        let bad = |problem| CopyError::Destination { path: destination.to_owned(), problem };
        let found = self.stat(destination).await.map_err(|error| bad(error.into()))?;
        let into_directory = found.as_ref().is_some_and(FileAttributes::is_dir);
        if !into_directory && sources.len() > 1 {
            return Err(bad(DestinationProblem::NoDirectory));
        }
        if found.is_none() && destination.ends_with('/') && !sources.iter().all(|source| source.is_dir()) {
            return Err(bad(DestinationProblem::Missing));
        }
        let tally = Tally::new(options);
        let mut plan = Plan::default();
        for source in sources {
            let to = if into_directory {
                // `.` and `..` have no name to give: their content goes straight in.
                match source.file_name() {
                    Some(name) => join(destination, &name.to_string_lossy()),
                    None => destination.to_owned(),
                }
            } else {
                destination.to_owned()
            };
            self.plan_upload(source, whose, to, &tally, &mut plan).await;
        }
        let tally_ref = &tally;
        futures::stream::iter(plan.files)
            .map(|job| async move {
                tally_ref.tell(Progress::Begun { path: &job.name, bytes: job.metadata.len() });
                let sent = self.send(&job, tally_ref).await;
                tally_ref.ended(&job.name, sent);
            })
            .buffer_unordered(FILES_AT_A_TIME)
            .collect::<()>()
            .await;
        if tally.options.preserve {
            for (path, metadata) in plan.directories.into_iter().rev() {
                if let Err(error) = self.ask(self.sftp.setstat(path.as_str(), preserved(&metadata))).await {
                    tally.failed(path, format!("cannot set its mode and times: {error}"));
                }
            }
        }
        Ok(tally.finish())
    }

    /// Finds what is to be copied, and makes the directories.
    async fn plan_upload(&self, source: &Path, whose: Whose, to: String, tally: &Tally, plan: &mut Plan) {
        let mut open = vec![(source.to_owned(), to, 0)];
        while let Some((from, to, depth)) = open.pop() {
            let name = from.display().to_string();
            // What is named on the command line is followed in any case.
            let keep = depth > 0 && tally.options.links == Links::Keep;
            let follow = whose == Whose::Users && !keep;
            let metadata = match if !follow { fs::symlink_metadata(&from) } else { fs::metadata(&from) } {
                Ok(metadata) => metadata,
                Err(error) => {
                    tally.failed(name, local_words(&error));
                    continue;
                }
            };
            let kind = metadata.file_type();
            if kind.is_symlink() && !keep {
                tally.failed(name, "is a link, and no file that was fetched");
            } else if kind.is_symlink() {
                self.send_link(&from, &to, tally).await;
            } else if kind.is_file() {
                plan.files.push(Job { from, whose, name, to, metadata });
            } else if !kind.is_dir() {
                tally.failed(name, "not a regular file");
            } else if !tally.options.recursive {
                tally.failed(name, "is a directory (copy it with -r)");
            } else if depth >= MAX_DEPTH {
                tally.failed(
                    name,
                    format!("is more than {MAX_DEPTH} directories deep; do links lead in a circle?"),
                );
            } else {
                if let Err(error) = self.make_directory(&to, &metadata).await {
                    tally.failed(name, format!("cannot make {to}: {error}"));
                    continue;
                }
                tally.with(|outcome| outcome.directories += 1);
                plan.directories.push((to.clone(), metadata));
                match fs::read_dir(&from) {
                    Ok(entries) => {
                        for entry in entries {
                            match entry {
                                Ok(entry) => match entry.file_name().to_str() {
                                    Some(child) => open.push((entry.path(), join(&to, child), depth + 1)),
                                    None => tally.failed(
                                        entry.path().display().to_string(),
                                        "its name is not UTF-8, which is all that can be sent",
                                    ),
                                },
                                Err(error) => tally.failed(name.clone(), local_words(&error)),
                            }
                        }
                    }
                    Err(error) => tally.failed(name, local_words(&error)),
                }
            }
        }
    }

    async fn send_link(&self, from: &Path, to: &str, tally: &Tally) {
        let name = from.display().to_string();
        let target = match fs::read_link(from) {
            Ok(target) => target.to_string_lossy().into_owned(),
            Err(error) => return tally.failed(name, local_words(&error)),
        };
        // OpenSSH took the two in the other order than the draft says, and all others followed (its PROTOCOL §4.1).
        match self.ask(self.sftp.symlink(target, to)).await {
            Ok(_) => tally.with(|outcome| outcome.links += 1),
            Err(error) => tally.failed(name, format!("cannot make the link {to}: {error}")),
        }
    }

    async fn make_directory(&self, path: &str, metadata: &fs::Metadata) -> Result<(), FileError> {
        // Writable while it is filled; what else it should be comes afterwards.
        let mut attributes = FileAttributes::empty();
        attributes.permissions = Some(metadata.permissions().mode() & 0o777 | 0o700);
        match self.ask(self.sftp.mkdir(path, attributes)).await {
            Ok(_) => Ok(()),
            Err(error) => match self.stat(path).await? {
                Some(found) if found.is_dir() => Ok(()),
                Some(_) => Err(FileError::NoDirectory),
                None => Err(error.into()),
            },
        }
    }

    /// Sends one file. Gives its size.
    async fn send(&self, job: &Job, tally: &Tally) -> Result<u64, FileError> {
        let mut opening = fs::OpenOptions::new();
        opening.read(true);
        if job.whose == Whose::Nodes {
            // What it is by now counts, and not what it was when the copy looked.
            opening.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        }
        let file = opening.open(&job.from).map_err(FileError::Unread)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut attributes = FileAttributes::empty();
        attributes.permissions = Some(job.metadata.permissions().mode() & 0o777);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let handle = self
            .ask(self.sftp.open(job.to.as_str(), flags, attributes))
            .await
            .map_err(|error| job.unwritten(error))?
            .handle;
        let mut sent = self.write_all(job, &handle, &mut file, tally).await;
        if sent.is_ok() && tally.options.preserve {
            // By handle, so that it is this file whatever happens to its name.
            let set = self.ask(self.sftp.fsetstat(handle.as_str(), preserved(&job.metadata))).await;
            if let Err(error) = set {
                let (doing, path) = ("set the mode and times of", job.to.clone());
                sent = Err(FileError::There { doing, path, error });
            }
        }
        // A full disk may show only here.
        match (sent, self.ask(self.sftp.close(handle)).await) {
            (Ok(_), Err(error)) => Err(job.unwritten(error)),
            (sent, _) => sent,
        }
    }

    /// Sends pieces without waiting for the answers to the ones before.
    async fn write_all(
        &self,
        job: &Job,
        handle: &str,
        file: &mut tokio::fs::File,
        tally: &Tally,
    ) -> Result<u64, FileError> {
        let chunk = self.write_bytes;
        let mut pending = FuturesUnordered::new();
        let (mut offset, mut done) = (0_u64, false);
        loop {
            while !done && pending.len() < Self::depth(chunk) {
                // The answers to this file's own requests are what frees the budget.
                let permit = tokio::select! {
                    permit = self.budget.acquire_many(Self::permits(chunk)) => permit.map_err(|_| FileError::Over)?,
                    Some(written) = pending.next(), if !pending.is_empty() => {
                        self.wrote(job, written, tally)?;
                        continue;
                    }
                };
                let mut piece = Vec::with_capacity(chunk as usize);
                file.take(u64::from(chunk)).read_to_end(&mut piece).await.map_err(FileError::Unread)?;
                if piece.is_empty() {
                    done = true;
                    break;
                }
                let (at, count) = (offset, piece.len() as u64);
                offset += count;
                pending.push(async move {
                    let written = self.ask(self.sftp.write(handle, at, piece)).await;
                    drop(permit);
                    written.map(|_| count)
                });
                // Sends what was just queued, and takes what is answered already.
                while let std::task::Poll::Ready(Some(written)) = futures::poll!(pending.next()) {
                    self.wrote(job, written, tally)?;
                }
            }
            match pending.next().await {
                Some(written) => self.wrote(job, written, tally)?,
                None => return Ok(offset),
            }
        }
    }

    fn wrote(&self, job: &Job, written: Result<u64, ServiceError>, tally: &Tally) -> Result<(), FileError> {
        let bytes = written.map_err(|error| job.unwritten(error))?;
        tally.tell(Progress::Moved { path: &job.name, bytes });
        Ok(())
    }
}

/// The mode and times of a local file, for `preserve`. Times past 2106 do not fit into the protocol.
fn preserved(metadata: &fs::Metadata) -> FileAttributes {
    let mut attributes = FileAttributes::empty();
    attributes.permissions = Some(metadata.permissions().mode() & 0o7777);
    attributes.mtime = u32::try_from(metadata.mtime()).ok();
    attributes.atime =
        u32::try_from(metadata.atime()).ok().or(attributes.mtime).filter(|_| attributes.mtime.is_some());
    attributes
}
