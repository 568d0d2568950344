//! Recordings through their public surface: written by recorders, read by readers.

use std::fs;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sallyport_access::{RecordPolicy, SessionId};
use sallyport_audit::recording::{
    Body, Encoder, Exit, Frame, Reader, Recorders, RecordingEntry, RecordingError, RecordingState,
    RecordingStore, SessionMetadata, StoreError, SyncBounds,
};
use sallyport_sal::hpke::{Kem, RecipientKeys};
use time::OffsetDateTime;

fn metadata(session: SessionId) -> SessionMetadata {
    SessionMetadata {
        session_id: session,
        cluster: "test".to_owned(),
        user: "alice".to_owned(),
        login: "root".to_owned(),
        node: "web-1".to_owned(),
        node_id: "n".to_owned(),
        source: "127.0.0.1:1".to_owned(),
        started: OffsetDateTime::UNIX_EPOCH,
        kind: "shell".to_owned(),
        command: None,
        term: Some("xterm".to_owned()),
        size: Some((80, 24)),
        application: None,
    }
}

fn frame(at: u64, body: Body) -> Frame {
    Frame { at: Duration::from_micros(at), body }
}

fn read_all(bytes: &[u8], key: &RecipientKeys) -> (Vec<Frame>, usize, bool) {
    let mut reader = Reader::open(Cursor::new(bytes.to_vec()), key).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push(frame);
    }
    (frames, reader.damage().len(), reader.is_complete())
}

/// A recording of `count` chunks of one output frame each, and where each chunk begins.
fn sample(count: u64, finish: bool) -> (Vec<u8>, Vec<usize>, RecipientKeys) {
    let key = RecipientKeys::generate(Kem::X25519).unwrap();
    let mut out = BytesMut::new();
    let mut encoder = Encoder::new(SessionId::new(), &key.public(), &mut out).unwrap();
    let mut starts = Vec::new();
    for number in 0..count {
        starts.push(out.len());
        encoder.push(&frame(number * 1000, Body::Output(Bytes::from(format!("line {number}\n")))));
        encoder.flush(&mut out).unwrap();
    }
    if finish {
        encoder.finish(&mut out).unwrap();
    }
    (out.to_vec(), starts, key)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_written_is_read(outputs in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..30), flush in 1_usize..5) {
        let key = RecipientKeys::generate(Kem::X25519).unwrap();
        let mut out = BytesMut::new();
        let mut encoder = Encoder::new(SessionId::new(), &key.public(), &mut out).unwrap();
        let mut frames = Vec::new();
        for (number, bytes) in outputs.into_iter().enumerate() {
            let one = frame(number as u64 * 7, Body::Output(Bytes::from(bytes)));
            encoder.push(&one);
            frames.push(one);
            if number % flush == 0 {
                encoder.flush(&mut out).unwrap();
            }
        }
        encoder.finish(&mut out).unwrap();
        prop_assert_eq!(read_all(&out, &key), (frames, 0, true));
    }

    #[test]
    fn damage_costs_one_chunk_and_is_told(chunk in 0_usize..20, at in 0_usize..60, flip in 1_u8..=255) {
        let (mut bytes, starts, key) = sample(20, true);
        let end = starts.get(chunk + 1).copied().unwrap_or(bytes.len());
        let position = (starts[chunk] + at).min(end - 1);
        // The last chunk's neighbour is the index; stay inside the chunk.
        prop_assume!(chunk < 19);
        bytes[position] ^= flip;
        let (frames, damage, complete) = read_all(&bytes, &key);
        prop_assert_eq!(frames.len(), 19);
        prop_assert!(damage >= 1);
        prop_assert!(complete);
    }

    #[test]
    fn a_cut_off_recording_plays_to_its_last_whole_chunk(cut in 0_usize..3000) {
        let (bytes, starts, key) = sample(20, true);
        let cut = starts[0] + cut % (bytes.len() - starts[0]);
        let (frames, _, complete) = read_all(&bytes[..cut], &key);
        let whole = starts.iter().skip(1).filter(|start| **start <= cut).count();
        prop_assert!(frames.len() >= whole, "{} of {}", frames.len(), whole);
        prop_assert!(!complete || cut == bytes.len());
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let (mut recording, starts, key) = sample(2, false);
        let _ = Reader::open(Cursor::new(bytes.clone()), &key);
        recording.truncate(starts[1]);
        recording.extend(bytes);
        let _ = read_all(&recording, &key);
    }
}

#[test]
fn another_key_opens_nothing() {
    let (bytes, _, _) = sample(3, true);
    let error =
        Reader::open(Cursor::new(bytes.clone()), &RecipientKeys::generate(Kem::X25519).unwrap()).unwrap_err();
    assert!(error.to_string().contains("sealed for another key"), "{error}");
    assert!(!bytes.windows(4).any(|window| window == b"line"), "output stands in the clear");
    assert!(
        Reader::open(Cursor::new(b"not one".to_vec()), &RecipientKeys::generate(Kem::X25519).unwrap())
            .is_err()
    );
}

#[test]
fn seeking_goes_to_the_chunk_of_that_moment() {
    for finish in [true, false] {
        let (bytes, _, key) = sample(100, finish);
        let mut reader = Reader::open(Cursor::new(bytes), &key).unwrap();
        reader.seek(Duration::from_micros(42_500)).unwrap();
        let first = reader.next_frame().unwrap().unwrap();
        assert_eq!(first.at, Duration::from_micros(42_000), "with an index: {finish}");
        assert!(reader.damage().is_empty());
        reader.seek(Duration::ZERO).unwrap();
        assert_eq!(reader.next_frame().unwrap().unwrap().at, Duration::ZERO);
        let summary = reader.summary().unwrap();
        assert_eq!((summary.duration, summary.complete), (Duration::from_micros(99_000), finish));
    }
}

#[tokio::test]
async fn a_recorder_writes_what_a_session_shows() {
    let directory = tempfile::tempdir().unwrap();
    let key = Arc::new(RecipientKeys::generate(Kem::X25519).unwrap());
    let recorders = Recorders::open(directory.path(), key.public()).unwrap();
    let session = SessionId::new();
    let recorder = recorders.start(&metadata(session), RecordPolicy::Strict).unwrap();
    assert!(recorders.is_live(&session));
    recorder.output(Bytes::from_static(b"hello\r\n")).await.unwrap();
    recorder.body(Body::Resize { cols: 120, rows: 40 }).await.unwrap();
    recorder.finish(Exit::Status(3)).await.unwrap();
    assert!(!recorders.is_live(&session));
    let bytes = fs::read(directory.path().join(format!("{session}.rec"))).unwrap();
    let (frames, damage, complete) = read_all(&bytes, &key);
    assert_eq!((damage, complete), (0, true));
    let bodies: Vec<Body> = frames.into_iter().map(|frame| frame.body).collect();
    assert_eq!(
        bodies,
        [
            Body::Start(Box::new(metadata(session))),
            Body::Output(Bytes::from_static(b"hello\r\n")),
            Body::Resize { cols: 120, rows: 40 },
            Body::Exit(Exit::Status(3)),
        ]
    );
}

#[tokio::test]
async fn what_is_not_finished_is_there_after_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let key = RecipientKeys::generate(Kem::X25519).unwrap();
    let recorders = Recorders::open(directory.path(), key.public()).unwrap();
    let session = SessionId::new();
    let recorder = recorders.start(&metadata(session), RecordPolicy::BestEffort).unwrap();
    recorder.output(Bytes::from_static(b"still running")).await.unwrap();
    // Generous: a busy machine is slow, and without the timer it would never be there.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // As a killed process leaves it: nothing is closed.
        let bytes = fs::read(directory.path().join(format!("{session}.rec"))).unwrap();
        let (frames, damage, complete) = read_all(&bytes, &key);
        assert_eq!((damage, complete), (0, false));
        if frames.len() == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{} frames", frames.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(recorder);
}

#[tokio::test]
async fn text_takes_less_disk_than_it_is_long() {
    let directory = tempfile::tempdir().unwrap();
    let key = RecipientKeys::generate(Kem::X25519).unwrap();
    let recorders = Recorders::open(directory.path(), key.public()).unwrap();
    let session = SessionId::new();
    let recorder = recorders.start(&metadata(session), RecordPolicy::Strict).unwrap();
    let mut total = 0;
    for number in 0..20_000 {
        let line = format!(
            "Nov 21 05:00:{:02} web-1 service[{number}]: request handled in {} ms\r\n",
            number % 60,
            number % 97
        );
        total += line.len();
        recorder.output(Bytes::from(line)).await.unwrap();
    }
    recorder.finish(Exit::Status(0)).await.unwrap();
    let stored = fs::metadata(directory.path().join(format!("{session}.rec"))).unwrap().len();
    assert!(stored * 3 < total as u64, "{stored} bytes for {total}");
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_ends_strict_sessions_only() {
    let directory = tempfile::tempdir().unwrap();
    let key = RecipientKeys::generate(Kem::X25519).unwrap();
    let recorders = Recorders::open(&directory.path().join("spool"), key.public()).unwrap();
    fs::remove_dir_all(directory.path().join("spool")).unwrap();
    let error = recorders.start(&metadata(SessionId::new()), RecordPolicy::Strict).unwrap_err();
    assert!(error.to_string().starts_with("the session cannot be recorded: "), "{error}");
}

#[test]
fn the_store_takes_uploads_in_order_from_one_host() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, starts, key) = sample(5, true);
    let session = SessionId::new();
    let store = RecordingStore::open(directory.path(), Arc::new(key)).unwrap();
    assert_eq!(store.offset(session, "web-1").unwrap(), (0, false));
    let cut = starts[2] + 3;
    assert_eq!(store.append(session, "web-1", 0, &bytes[..cut]).unwrap(), cut as u64);
    assert!(matches!(store.append(session, "web-1", 0, &bytes[..cut]), Err(StoreError::Offset { .. })));
    assert!(matches!(store.append(session, "web-2", cut as u64, b"x"), Err(StoreError::Owner(_))));
    assert!(matches!(store.offset(session, "web-2"), Err(StoreError::Owner(_))));
    assert_eq!(store.entry(session).unwrap().state, RecordingState::Live);
    store.append(session, "web-1", cut as u64, &bytes[cut..]).unwrap();
    assert_eq!(closed(&store, session, "web-1").state, RecordingState::Complete);
    assert!(matches!(store.append(session, "web-1", bytes.len() as u64, b"x"), Err(StoreError::Closed(_))));
    assert_eq!(store.sessions().unwrap(), [session]);

    let other = SessionId::new();
    store.append(other, "web-1", 0, &bytes[..starts[3]]).unwrap();
    assert_eq!(closed(&store, other, "web-1").state, RecordingState::Interrupted);
    assert!(matches!(store.entry(SessionId::new()), Err(StoreError::NotFound(_))));
}

fn recorders() -> (tempfile::TempDir, Recorders) {
    let spool = tempfile::tempdir().unwrap();
    let key = RecipientKeys::generate(Kem::X25519).unwrap();
    let recorders = Recorders::open(spool.path(), key.public()).unwrap();
    (spool, recorders)
}

const HURRIED: SyncBounds = SyncBounds { patience: Duration::from_millis(600), bytes: 32 * 1024 };

/// Output that does not compress.
fn noise(bytes: usize) -> Bytes {
    let mut out = vec![0; bytes];
    sallyport_sal::random::fill(&mut out).unwrap();
    Bytes::from(out)
}

#[tokio::test]
async fn a_recording_in_step_waits_for_its_head_and_for_room() {
    let (_spool, recorders) = recorders();
    let session = SessionId::new();
    let bounds = SyncBounds { patience: Duration::from_secs(20), ..HURRIED };
    let recorder = recorders.start_in_step(&metadata(session), RecordPolicy::Strict, bounds).unwrap();
    // The uploader is woken, and the session waits for what is uploaded.
    recorders.wanted().await;
    let head = recorders.written(&session).unwrap();
    recorders.stored(&session, head - 1);
    let waits = tokio::time::timeout(Duration::from_millis(100), recorder.head_stored()).await;
    assert!(waits.is_err(), "the head is not there yet");
    recorders.stored(&session, head);
    recorder.head_stored().await.unwrap();

    // More than the bound comes to the disk here: output waits until the authority has it. This may wait itself, when a
    // part of it was written already.
    let written = async {
        while recorders.written(&session).unwrap() < head + HURRIED.bytes {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), async {
        tokio::pin!(written);
        tokio::select! {
            _ = recorder.output(noise(200 * 1024)) => written.await,
            () = &mut written => {}
        }
    })
    .await
    .expect("it comes to the disk");
    let waits = tokio::time::timeout(Duration::from_millis(100), recorder.output(noise(10))).await;
    assert!(waits.is_err(), "the authority has not kept up");
    recorders.stored(&session, recorders.written(&session).unwrap());
    recorder.output(noise(10)).await.unwrap();
    recorder.finish(Exit::Status(0)).await.unwrap();
    assert_eq!(recorders.written(&session), None, "nothing is added any more");
}

#[tokio::test]
async fn an_authority_that_stands_still_fails_a_recording_in_step_until_it_is_back() {
    let (_spool, recorders) = recorders();
    for policy in [RecordPolicy::Strict, RecordPolicy::BestEffort] {
        let session = SessionId::new();
        let recorder = recorders.start_in_step(&metadata(session), policy, HURRIED).unwrap();
        assert_eq!(recorder.head_stored().await, Err(RecordingError::Behind(0)), "no uploader took it");
        let failed = tokio::time::timeout(Duration::from_secs(60), recorder.failed()).await.unwrap();
        assert_eq!(failed, RecordingError::Behind(0));
        let after = recorder.output(noise(10)).await;
        assert_eq!(after.is_err(), policy == RecordPolicy::Strict, "{after:?}");
        recorders.stored(&session, recorders.written(&session).unwrap());
        tokio::time::timeout(Duration::from_secs(60), async {
            // What was written meanwhile is taken, too.
            let recovered = recorder.recovered();
            tokio::pin!(recovered);
            while tokio::time::timeout(Duration::from_millis(10), &mut recovered).await.is_err() {
                recorders.stored(&session, recorders.written(&session).unwrap());
            }
        })
        .await
        .unwrap();
        recorder.finish(Exit::Status(0)).await.unwrap();
    }
}

#[tokio::test]
async fn no_recording_begins_while_the_spool_is_full() {
    let (_spool, recorders) = recorders();
    recorders.full().store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = recorders.start(&metadata(SessionId::new()), RecordPolicy::BestEffort).unwrap_err();
    assert_eq!(refused, RecordingError::Full);
}

#[test]
fn two_uploads_of_one_recording_never_double_it() {
    let directory = tempfile::tempdir().unwrap();
    let key = Arc::new(RecipientKeys::generate(Kem::X25519).unwrap());
    let store = Arc::new(RecordingStore::open(directory.path(), key).unwrap());
    let session = SessionId::new();
    let (content, _, _) = sample(400, true);
    // Each goes on where the store says it ends, in pieces of its own, as if the other were not there.
    let uploads: Vec<_> = [700_usize, 1100, 333]
        .into_iter()
        .map(|piece| {
            let (store, content) = (store.clone(), content.clone());
            std::thread::spawn(move || {
                loop {
                    let (at, _) = store.offset(session, "node").unwrap();
                    let at_index = usize::try_from(at).unwrap();
                    let rest = &content[at_index..];
                    if rest.is_empty() {
                        return;
                    }
                    let _ = store.append(session, "node", at, &rest[..rest.len().min(piece)]);
                }
            })
        })
        .collect();
    for upload in uploads {
        upload.join().unwrap();
    }
    assert_eq!(fs::read(directory.path().join(format!("{session}.rec"))).unwrap(), content);
}

/// Closes a recording; what is put on record before is true after.
fn closed(store: &RecordingStore, session: SessionId, host: &str) -> RecordingEntry {
    let settled = store.settle(session, host).unwrap();
    let closed = store.close(session, host).unwrap();
    assert_eq!((settled.state, settled.bytes), (closed.state, closed.bytes));
    closed
}

#[test]
fn old_recordings_go_unless_they_are_held_or_grow() {
    let directory = tempfile::tempdir().unwrap();
    let key = Arc::new(RecipientKeys::generate(Kem::X25519).unwrap());
    let store = RecordingStore::open(directory.path(), key).unwrap();
    let day = Duration::from_secs(86_400);
    let (content, _, _) = sample(3, true);
    let made = |days: u32, over: bool| {
        let session = SessionId::new();
        store.append(session, "node", 0, &content).unwrap();
        if over {
            closed(&store, session, "node");
        }
        let file =
            fs::File::options().write(true).open(directory.path().join(format!("{session}.rec"))).unwrap();
        file.set_modified(std::time::SystemTime::now() - day * days).unwrap();
        session
    };
    let (old, held, lost, young) = (made(100, true), made(100, true), made(100, false), made(1, true));
    let live = made(0, false);
    assert!(store.hold(held, true).unwrap());
    assert!(!store.hold(held, true).unwrap(), "it is held already");
    let before = std::time::SystemTime::now() - day * 90;
    assert_eq!(store.older_than(before, 10).unwrap(), [old, lost]);
    assert_eq!(store.older_than(before, 1).unwrap(), [old], "so many at once");
    let silence = Duration::from_secs(3600);
    for session in [old, lost] {
        let aside = store.set_aside(session, silence).unwrap();
        assert_eq!(aside.bytes, content.len() as u64);
        assert!(matches!(store.entry(session), Err(StoreError::NotFound(_))));
        assert!(matches!(store.hold(session, true), Err(StoreError::NotFound(_))));
        assert_eq!(store.all_aside().unwrap(), [session], "the next process finds it after a crash");
        store.put_back(session).unwrap();
        assert_eq!(store.entry(session).unwrap().bytes, content.len() as u64);
        store.set_aside(session, silence).unwrap();
        store.discard(session).unwrap();
        assert!(store.all_aside().unwrap().is_empty());
    }
    assert!(matches!(store.set_aside(held, silence), Err(StoreError::Held(_))));
    assert!(matches!(store.set_aside(live, silence), Err(StoreError::Live(_))));
    assert!(matches!(store.set_aside(old, silence), Err(StoreError::NotFound(_))));
    let mut left = store.sessions().unwrap();
    left.sort_unstable();
    assert_eq!(left, [held, young, live]);
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        3 * 2 + 2 + 1,
        "owner, closed and held go, too"
    );
}
