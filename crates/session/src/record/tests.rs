use std::fs;
use std::io::Cursor;

use sallyport_audit::event::MemorySink;
use sallyport_audit::recording::Reader;
use sallyport_sal::hpke::{Kem, RecipientKeys};
use tempfile::TempDir;

use super::*;
use crate::about::tests::about;

struct Stand {
    directory: TempDir,
    keys: RecipientKeys,
    recorders: Recorders,
    sink: Arc<MemorySink>,
}

impl Stand {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let keys = RecipientKeys::generate(Kem::X25519).unwrap();
        let recorders = Recorders::open(&directory.path().join("spool"), keys.public()).unwrap();
        Self { directory, keys, recorders, sink: Arc::default() }
    }

    async fn begin(&self, policy: RecordPolicy) -> Result<Record, Unrecordable> {
        let mode = RecordingMode::default();
        let how = How { policy, mode, counted: "bytes of output" };
        Record::begin(about(), &self.recorders, how, self.sink.clone()).await
    }

    fn codes(&self) -> Vec<Code> {
        self.sink.events().into_iter().map(|event| event.code).collect()
    }

    /// What is in the only recording.
    fn frames(&self) -> Vec<Body> {
        let files: Vec<_> = fs::read_dir(self.directory.path().join("spool")).unwrap().flatten().collect();
        assert_eq!(files.len(), 1);
        let bytes = fs::read(files[0].path()).unwrap();
        let mut reader = Reader::open(Cursor::new(bytes), &self.keys).unwrap();
        std::iter::from_fn(|| reader.next_frame().unwrap()).map(|frame| frame.body).collect()
    }
}

#[tokio::test]
async fn the_end_is_the_last_thing_in_a_recording() {
    let stand = Stand::new();
    let record = stand.begin(RecordPolicy::Strict).await.unwrap();
    record.output(Bytes::from_static(b"hello")).await.unwrap();
    record.finish(Exit::Status(3)).await;
    // What comes too late, and a second end, are left out.
    record.note(Body::Note { text: "late".to_owned() }).await.unwrap();
    record.finish(Exit::Status(0)).await;
    let mut frames = stand.frames();
    assert_eq!(frames.pop(), Some(Body::Exit(Exit::Status(3))));
    assert_eq!(frames.pop(), Some(Body::Output(Bytes::from_static(b"hello"))));
    assert!(stand.codes().is_empty(), "{:?}", stand.codes());
}

/// Who joined is told goodbye, and forwarded connections end, while the disk is still waited for.
#[tokio::test]
async fn nothing_waits_for_the_end_of_a_recording_to_be_on_disk() {
    let stand = Stand::new();
    let record = stand.begin(RecordPolicy::Strict).await.unwrap();
    let mut finishing = std::pin::pin!(record.finish(Exit::Status(3)));
    assert!(waits(finishing.as_mut()).await);
    let late = record.note(Body::Note { text: "late".to_owned() });
    let told = std::pin::pin!(late);
    assert!(!waits(told).await, "a note waits for the end to be on disk");
    finishing.await;
    assert_eq!(stand.frames().pop(), Some(Body::Exit(Exit::Status(3))));
}

/// Whether a future still waits after one turn.
async fn waits<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_recording_that_cannot_be_made_keeps_strict_sessions_out_and_lets_others_go_on() {
    let stand = Stand::new();
    fs::remove_dir_all(stand.recorders.directory()).unwrap();
    let error = stand.begin(RecordPolicy::Strict).await.unwrap_err();
    assert_eq!(error.to_string(), "this session has to be recorded and cannot be; tell an administrator");
    let record = stand.begin(RecordPolicy::BestEffort).await.unwrap();
    assert!(!record.is_recorded());
    record.output(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(stand.codes(), [Code::RecordingFailed, Code::RecordingFailed]);
    assert_eq!(stand.sink.events()[0].fields["policy"], "strict");
}

#[tokio::test]
async fn what_is_missing_of_a_recording_that_goes_on_is_told_once() {
    let stand = Stand::new();
    let record = stand.begin(RecordPolicy::BestEffort).await.unwrap();
    record.failure(&RecordingError::Stopped).unwrap();
    record.failure(&RecordingError::Stopped).unwrap();
    record.resumed(7);
    record.resumed(7);
    assert_eq!(stand.codes(), [Code::RecordingFailed, Code::RecordingResumed]);
    let told = stand.sink.events().pop().unwrap();
    assert_eq!(told.message, "recording goes on; about 7 bytes of output are missing");
}

#[tokio::test]
async fn a_session_without_a_recording_has_its_events_alone() {
    let stand = Stand::new();
    let how = How::events_alone();
    let record = Record::begin(about(), &stand.recorders, how, stand.sink.clone()).await.unwrap();
    record.output(Bytes::from_static(b"secret")).await.unwrap();
    record.finish(Exit::Status(0)).await;
    assert_eq!((record.place(), record.is_recorded()), ("off", false));
    assert_eq!(fs::read_dir(stand.recorders.directory()).unwrap().count(), 0);
    let never = tokio::time::timeout(Duration::from_millis(10), record.broken()).await;
    assert!(never.is_err());
}
