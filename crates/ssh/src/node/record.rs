//! What an SSH session leaves behind: its recording and its events.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use sallyport_access::{RecordAt, RecordInput};
use sallyport_audit::recording::{self, Body, Recorders};
use sallyport_audit::{Code, Event, Sink};
use sallyport_sal::hash::Sha256;
use sallyport_session::{About, How, Record, Unrecordable};

use crate::session::{Ended, Exit, FileOperation, Happening, Observer, Stop};

/// What of a recording that goes on may be missing.
pub(super) const COUNTED: &str = "bytes of output";

/// The record of one SSH session, which observes it.
pub(super) struct SessionRecord {
    record: Record,
    /// Whether what the client sends is recorded itself.
    has_input: bool,
    /// Of a session without a terminal: what the client has sent.
    given: Option<Mutex<Given>>,
}

/// What a client has sent to a session without a terminal: commands on the input of a shell, or a file that is no
/// file to the node. The recording shows what comes of it, and this which bytes they were, to those who have them.
#[derive(Debug, Default)]
struct Given {
    bytes: u64,
    hash: Sha256,
}

impl SessionRecord {
    /// Begins the record of a session. What it means when it cannot be recorded is the role's choice.
    pub(super) async fn begin(
        about: About,
        recorders: &Recorders,
        how: How,
        input: RecordInput,
        sink: Arc<dyn Sink>,
    ) -> Result<Arc<Self>, Unrecordable> {
        let metadata = about.metadata();
        // Of files the operations are recorded.
        let has_input = input == RecordInput::Full && how.mode.at != RecordAt::Off && metadata.kind != "sftp";
        let given = (metadata.term.is_none() && metadata.kind != "sftp").then(Mutex::default);
        let record = Record::begin(about, recorders, how, sink).await?;
        Ok(Arc::new(Self { record, has_input, given }))
    }

    /// How many bytes the client has sent, and their SHA-256 in hexadecimal; none where a person types, or files are told of.
    pub(super) fn given(&self) -> Option<(u64, String)> {
        let given = self.given.as_ref()?.lock();
        Some((given.bytes, HEXLOWER.encode(&given.hash.clone().finish())))
    }

    /// Whether what the client sends is recorded itself.
    pub(super) fn has_input(&self) -> bool {
        self.has_input
    }

    /// Ends the recording; returns when it is on disk.
    pub(super) async fn finish(&self, ended: &Ended) {
        let exit = match (&ended.exit, &ended.cut) {
            (Some(Exit::Status(status)), _) => recording::Exit::Status(*status),
            (Some(Exit::Signal { name, .. }), _) => recording::Exit::Signal(name.clone()),
            (None, Some(reason)) => recording::Exit::Cut(reason.clone()),
            (None, None) => recording::Exit::Cut("the client went away".to_owned()),
        };
        self.record.finish(exit).await;
    }
}

impl Deref for SessionRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

#[async_trait]
impl Observer for SessionRecord {
    async fn happened(&self, what: Happening) -> Result<(), Stop> {
        if let (Happening::Input(bytes), Some(given)) = (&what, &self.given) {
            let mut given = given.lock();
            given.bytes += bytes.len() as u64;
            given.hash.update(bytes);
        }
        match what {
            Happening::Output(bytes) => self.output(bytes).await?,
            Happening::Input(bytes) if self.has_input => self.input(bytes).await?,
            // How it ended is what the recording's end says.
            Happening::Input(_) | Happening::Exit(_) => {}
            Happening::Outlived => {
                let message = "the server has not said that what the session ran has ended";
                self.emit(self.event(Code::SessionOutlived).message(message));
            }
            Happening::Left { processes, more } => {
                let mut message = format!("what the session ran goes on: {}", processes.join(", "));
                if more > 0 {
                    message.push_str(&format!(" and {more} more"));
                }
                let mut event = self.event(Code::SessionOutlived).message(message);
                if more > 0 {
                    event = event.field("processes_more", more);
                }
                self.emit(event.field("processes", processes));
            }
            Happening::Resize(size) => {
                self.note(Body::Resize { cols: size.columns, rows: size.rows }).await?;
            }
            Happening::File(operation) => {
                self.emit(file_event(self.event(Code::SessionSftp), &operation));
                let moved = || (operation.operation == "close").then(|| moved(&operation));
                let detail = operation.error.clone().or_else(|| operation.target.clone()).or_else(moved);
                let success = operation.error.is_none();
                let FileOperation { operation, path, .. } = operation;
                self.note(Body::Sftp { operation, path, detail, success }).await?;
            }
        }
        Ok(())
    }
}

/// What a closed file was, in words.
fn moved(operation: &FileOperation) -> String {
    let mut words = format!("{} bytes read, {} written", operation.read, operation.written);
    if let Some(size) = operation.size {
        words.push_str(&format!(", size {size}"));
    }
    match (&operation.sha256, &operation.unhashed) {
        (Some(hash), _) => words.push_str(&format!(", sha256 {hash}")),
        (None, Some(why)) => words.push_str(&format!(", sha256 unknown: {why}")),
        (None, None) => {}
    }
    words
}

fn file_event(event: Event, operation: &FileOperation) -> Event {
    let mut event = event
        .message(match &operation.error {
            None => format!("{} {}", operation.operation, operation.path),
            Some(error) => format!("{} {}: {error}", operation.operation, operation.path),
        })
        .field("operation", operation.operation.as_str())
        .field("path", operation.path.as_str())
        .field("success", operation.error.is_none());
    if let Some(target) = &operation.target {
        event = event.field("target", target.as_str());
    }
    if operation.operation == "close" {
        event = event.field("bytes_read", operation.read).field("bytes_written", operation.written);
        if let Some(size) = operation.size {
            event = event.field("size", size);
        }
        if let Some(hash) = &operation.sha256 {
            event = event.field("sha256", hash.as_str());
        }
        if let Some(why) = &operation.unhashed {
            event = event.field("sha256_unknown", why.as_str());
        }
    }
    event
}
