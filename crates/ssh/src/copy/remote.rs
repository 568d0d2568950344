//! The node's file service, as copying needs it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::rawsession::Limits;
use russh_sftp::client::{Config, RawSftpSession};
use russh_sftp::protocol::{FileAttributes, OpenFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::{CopyError, FileError, ListError, ServiceError};
use super::glob;
use crate::BoxedStream;

/// Bytes of requests under way: what a link of 100 ms and 1 Gbit/s holds.
const UNDER_WAY_BYTES: u32 = 12 << 20;

/// Bytes in one request, when the service says that it takes as many.
const CHUNK_BYTES: u32 = 128 * 1024;

/// Bytes in one request that every service takes (draft-ietf-secsh-filexfer-02 §3).
const SAFE_CHUNK_BYTES: u32 = 32 * 1024;

/// The connection's keepalives find a dead peer. A request may be slow for good reasons: a queue of others before it.
const REQUEST_TIMEOUT_SECS: u64 = 24 * 60 * 60;

/// Names in one directory, at most.
const MOST_ENTRIES: usize = 1_000_000;

/// Bytes of the names in one directory, at most.
const MOST_NAME_BYTES: usize = 64 << 20;

/// Bytes of a name, at most: file systems here take no longer ones.
const LONGEST_NAME: usize = 255;

/// Most names that one pattern may stand for.
const MAX_MATCHES: usize = 100_000;

/// A node's files.
#[derive(Clone)]
pub struct Remote {
    pub(super) sftp: Arc<RawSftpSession>,
    pub(super) read_bytes: u32,
    pub(super) write_bytes: u32,
    /// One permit for each [`SAFE_CHUNK_BYTES`] under way, over all files.
    pub(super) budget: Arc<Semaphore>,
    gone: CancellationToken,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("read_bytes", &self.read_bytes)
            .field("write_bytes", &self.write_bytes)
            .finish_non_exhaustive()
    }
}

/// An entry of a directory, or what a path leads to.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) attributes: FileAttributes,
}

impl Remote {
    /// Greets the file service on a stream, such as [`crate::client::Connection::sftp`] opens.
    ///
    /// # Errors
    /// [`CopyError::Service`] when what answers is no SFTP service.
    pub fn open<S>(stream: S) -> BoxFuture<'static, Result<Self, CopyError>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::open_boxed(Box::new(stream))
    }

    fn open_boxed(stream: BoxedStream) -> BoxFuture<'static, Result<Self, CopyError>> {
        Box::pin(Self::greet(stream))
    }

    async fn greet(stream: BoxedStream) -> Result<Self, CopyError> {
        let config = Config { request_timeout_secs: REQUEST_TIMEOUT_SECS, ..Config::default() };
        let gone = CancellationToken::new();
        let mut sftp = RawSftpSession::new_with_config(Mortal::new(stream, gone.clone()), config);
        let version = ask(&gone, sftp.init()).await.map_err(CopyError::Service)?;
        let limited = version.extensions.get("limits@openssh.com").is_some_and(|version| version == "1");
        let limits = if limited {
            Limits::from(ask(&gone, sftp.limits()).await.map_err(CopyError::Service)?)
        } else {
            Limits::default()
        };
        sftp.set_limits(limits);
        let chunk = |said: Option<u64>| {
            let said = said.and_then(|said| u32::try_from(said).ok());
            said.map_or(SAFE_CHUNK_BYTES, |said| said.clamp(1024, CHUNK_BYTES))
        };
        Ok(Self {
            sftp: Arc::new(sftp),
            read_bytes: chunk(limits.read_len),
            write_bytes: chunk(limits.write_len),
            budget: Arc::new(Semaphore::new((UNDER_WAY_BYTES / SAFE_CHUNK_BYTES) as usize)),
            gone,
        })
    }

    /// Waits for an answer, or for the end of the stream: the library leaves requests without an answer then.
    pub(super) async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, SftpError>>,
    ) -> Result<T, ServiceError> {
        ask(&self.gone, answer).await
    }

    /// Permits that a request of this size takes from the budget.
    pub(super) fn permits(bytes: u32) -> u32 {
        bytes.div_ceil(SAFE_CHUNK_BYTES).max(1)
    }

    /// Requests of one file under way at a time.
    pub(super) fn depth(chunk: u32) -> usize {
        ((UNDER_WAY_BYTES / chunk) as usize).max(2)
    }

    /// What a path leads to; `None` when it leads nowhere.
    pub(super) async fn stat(&self, path: &str) -> Result<Option<FileAttributes>, ServiceError> {
        match self.ask(self.sftp.stat(path)).await {
            Ok(found) => Ok(Some(found.attrs)),
            Err(error) if error.is_no_such_file() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How long a file is; `None` when it is something else than a file.
    pub(crate) async fn size(&self, path: &str) -> Result<Option<u64>, FileError> {
        let found = self.stat(path).await?.ok_or(FileError::Missing)?;
        Ok(found.size.filter(|_| found.is_regular()))
    }

    /// Hands over the content of a file, up to `most` bytes.
    pub(crate) async fn read_whole(
        &self,
        path: &str,
        most: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), FileError> {
        let opened = self.sftp.open(path, OpenFlags::READ, FileAttributes::empty());
        let handle = self.ask(opened).await?.handle;
        let mut offset = 0;
        let read = loop {
            match self.ask(self.sftp.read(handle.as_str(), offset, self.read_bytes)).await {
                Ok(data) if data.data.is_empty() => break Ok(()),
                Ok(data) => {
                    take(&data.data);
                    offset += data.data.len() as u64;
                    if offset > most {
                        break Err(FileError::TooLong(most));
                    }
                }
                Err(error) if error.is_eof() => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        let _ = self.ask(self.sftp.close(handle)).await;
        read
    }

    /// What is in a directory, without `.` and `..`, sorted by name.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Entry>, ListError> {
        let handle = self.ask(self.sftp.opendir(path)).await.map_err(|error| self.unlisted(error))?.handle;
        let mut entries = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        let listed = loop {
            match self.ask(self.sftp.readdir(handle.as_str())).await {
                // No names are no end, and no way on either: OpenSSH stops here, too.
                Ok(names) if names.files.is_empty() => break Ok(()),
                Ok(names) => {
                    count += names.files.len();
                    bytes += names.files.iter().map(|file| file.filename.len()).sum::<usize>();
                    if count > MOST_ENTRIES || bytes > MOST_NAME_BYTES {
                        let (names, mebibytes) = (MOST_ENTRIES, MOST_NAME_BYTES >> 20);
                        break Err(ListError::Endless { names, mebibytes });
                    }
                    entries.extend(
                        names
                            .files
                            .into_iter()
                            .filter(|file| !matches!(file.filename.as_str(), "." | ".."))
                            .map(|file| Entry { name: file.filename, attributes: file.attrs }),
                    );
                }
                Err(error) if error.is_eof() => break Ok(()),
                Err(error) => break Err(self.unlisted(error)),
            }
        };
        let _ = self.ask(self.sftp.close(handle)).await;
        listed?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn unlisted(&self, error: ServiceError) -> ListError {
        if self.gone.is_cancelled() { ListError::Lost } else { ListError::Refused(error) }
    }

    /// The paths that a name with patterns stands for; the name itself when it has none.
    pub(super) async fn expand(&self, path: &str) -> Result<Vec<String>, FileError> {
        let path = from_home(path);
        if !glob::is_pattern(path) {
            return Ok(vec![glob::literal(path)]);
        }
        let (mut found, rest) = match path.strip_prefix('/') {
            Some(rest) => (vec!["/".to_owned()], rest),
            None => (vec![String::new()], path),
        };
        let components: Vec<&str> = rest.split('/').filter(|component| !component.is_empty()).collect();
        let mut unlisted = None;
        for (at, component) in components.iter().enumerate() {
            let last = at + 1 == components.len();
            let mut next = Vec::new();
            for base in &found {
                if !glob::is_pattern(component) {
                    next.push(join(base, &glob::literal(component)));
                    continue;
                }
                let directory = if base.is_empty() { "." } else { base.as_str() };
                let entries = match self.list(directory).await {
                    Ok(entries) => entries,
                    // What the login may not list has nothing that fits, unless nothing else has.
                    Err(error @ ListError::Refused(_)) => {
                        let directory = directory.to_owned();
                        unlisted.get_or_insert(FileError::Unlisted { directory, error });
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                for entry in entries {
                    let leads_on = last || entry.attributes.is_dir() || entry.attributes.is_symlink();
                    if leads_on && is_plain_name(&entry.name) && glob::matches(component, &entry.name) {
                        next.push(join(base, &entry.name));
                    }
                    if next.len() > MAX_MATCHES {
                        return Err(FileError::Matches(MAX_MATCHES));
                    }
                }
            }
            found = next;
        }
        match (found.is_empty(), unlisted) {
            (false, _) => Ok(found),
            (true, Some(error)) => Err(error),
            (true, None) => Err(FileError::NoMatch),
        }
    }
}

async fn ask<T>(
    gone: &CancellationToken,
    answer: impl Future<Output = Result<T, SftpError>>,
) -> Result<T, ServiceError> {
    tokio::select! {
        biased;
        answer = answer => Ok(answer?),
        () = gone.cancelled() => Err(ServiceError::gone()),
    }
}

/// A stream whose writer learns that its reader has come to the end. The library's writer would otherwise wait for
/// ever for a peer that is gone to take more.
struct Mortal<S> {
    stream: S,
    gone: CancellationToken,
    write_gone: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Mortal<S> {
    fn new(stream: S, gone: CancellationToken) -> Self {
        Self { stream, write_gone: Box::pin(gone.clone().cancelled_owned()), gone }
    }
}

impl<S> Drop for Mortal<S> {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Mortal<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if read.is_err() || (room > 0 && buffer.filled().len() == before) {
            self.gone.cancel();
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Mortal<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Paths are relative to the login's home directory, so `~/x` is `x`.
pub(super) fn from_home(path: &str) -> &str {
    match path {
        "" | "~" | "~/" => ".",
        _ => path.strip_prefix("~/").unwrap_or(path),
    }
}

/// A path below another.
pub(super) fn join(base: &str, name: &str) -> String {
    match base {
        "" | "." => name.to_owned(),
        _ if base.ends_with('/') => format!("{base}{name}"),
        _ => format!("{base}/{name}"),
    }
}

/// Whether a name from the node may become the name of a local file: one that leads elsewhere may not.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !matches!(name, "." | "..")
        && !name.contains(['/', '\0'])
}
