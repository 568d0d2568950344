//! What is done to the log by hosts that report into it, and by people who can write its files.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sallyport_audit::log::{
    AuditLog, Checkpoint, Head, LogError, Opened, Problem, repair, verify, verify_against,
};
use sallyport_audit::{Code, EVENT_BYTES, Event};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use time::OffsetDateTime;

fn key() -> Arc<MemoryKey> {
    Arc::new(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap())
}

fn event(user: &str) -> Event {
    Event::new(Code::UserLogin, OffsetDateTime::now_utc()).user(user)
}

async fn write(directory: &Path, key: &Arc<MemoryKey>, users: &[&str]) {
    let (log, _) = AuditLog::open(directory, key.clone()).unwrap();
    for user in users {
        log.append(vec![event(user)]).await.unwrap();
    }
    log.close().await.unwrap();
}

fn open(directory: &Path, key: &Arc<MemoryKey>, kept: Option<Head>) -> Opened {
    AuditLog::open_against(directory, key.clone(), kept, OffsetDateTime::now_utc()).unwrap()
}

fn last_checkpoint(directory: &Path) -> Checkpoint {
    let text = fs::read_to_string(directory.join("checkpoints")).unwrap();
    Checkpoint::parse(text.lines().last().unwrap()).unwrap()
}

fn first_file(directory: &Path) -> std::path::PathBuf {
    directory.join("events-0000000000000001.log")
}

#[tokio::test]
async fn an_event_of_five_mebibytes_costs_no_record_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let (log, _) = AuditLog::open(directory.path(), key.clone()).unwrap();
    log.append(vec![event("before")]).await.unwrap();
    log.append(vec![event("mallory").message("x".repeat(5 << 20)).field("statement", "y".repeat(5 << 20))])
        .await
        .unwrap();
    log.append(vec![event("after")]).await.unwrap();
    log.close().await.unwrap();
    let longest = fs::read_to_string(first_file(directory.path())).unwrap();
    assert!(longest.lines().all(|line| line.len() < EVENT_BYTES + 100));
    let opened = open(directory.path(), &key, None);
    assert_eq!((opened.repair, opened.log.head().0), (None, 3));
    let report = verify(directory.path(), &key.public_key()).unwrap();
    assert_eq!((report.records, report.problem), (3, None));
}

#[tokio::test]
async fn a_whole_line_is_never_cut_off_and_repair_keeps_every_byte() {
    for line in [b"no record\n".to_vec(), [vec![b'7'; 17 << 20], b"\n".to_vec()].concat()] {
        let directory = tempfile::tempdir().unwrap();
        let key = key();
        write(directory.path(), &key, &["alice", "bob"]).await;
        let kept = last_checkpoint(directory.path()).head;
        let file = first_file(directory.path());
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend(&line);
        // Records behind it, and a record that was under way.
        bytes.extend(b"4 00 {}\n5 11");
        fs::write(&file, &bytes).unwrap();
        for _ in 0..2 {
            let refused = AuditLog::open(directory.path(), key.clone()).unwrap_err();
            assert!(matches!(refused, LogError::Broken(_)), "{refused}");
            let said = refused.to_string();
            assert!(said.contains("line 3") && said.contains("admin audit repair"), "{said}");
            assert!(fs::read(&file).unwrap() == bytes, "the log was changed");
        }
        let set = repair(directory.path(), OffsetDateTime::now_utc()).unwrap();
        assert_eq!((set.last, set.line.as_ref().map(|(_, line, _)| *line)), (2, Some(3)));
        assert!(fs::read(set.aside.join(file.file_name().unwrap())).unwrap() == bytes, "bytes are missing");
        let opened = open(directory.path(), &key, Some(kept));
        let broken = opened.broken.unwrap();
        assert_eq!((broken.aside, broken.last, broken.beginning), (set.aside, 2, 2));
        opened.log.append(vec![event("after")]).await.unwrap();
        assert_eq!(opened.log.head().0, 3);
        opened.log.checkpoint().await.unwrap();
        let report = opened.log.verify().unwrap();
        assert_eq!((report.records, report.problem), (3, None));
        let report = opened.log.verify_against(&[kept]).unwrap();
        assert_eq!(report.problem, Some(Problem::Before { sequence: 2, beginning: 2 }));
        opened.log.close().await.unwrap();
        // The break is named once.
        assert_eq!(open(directory.path(), &key, Some(kept)).broken, None);
    }
}

#[tokio::test]
async fn a_history_written_anew_does_not_hold_the_head_that_was_kept() {
    let key = key();
    // Without a line, without checkpoints, chained anew by the program itself; longer than before, shorter, and gone.
    for users in [&["alice", "bob", "x", "y", "z"][..], &["alice", "bob"], &[]] {
        let before = tempfile::tempdir().unwrap();
        write(before.path(), &key, &["alice", "mallory", "bob"]).await;
        let kept = last_checkpoint(before.path()).head;
        assert_eq!(open(before.path(), &key, Some(kept)).broken, None);
        let directory = tempfile::tempdir().unwrap();
        if !users.is_empty() {
            write(directory.path(), &key, users).await;
            fs::remove_file(directory.path().join("checkpoints")).unwrap();
            assert_eq!(verify(directory.path(), &key.public_key()).unwrap().problem, None);
            let found = verify_against(directory.path(), &key.public_key(), &[kept]).unwrap().problem;
            assert_eq!(found, Some(Problem::Missing { sequence: 3 }));
        }
        let opened = open(directory.path(), &key, Some(kept));
        let broken = opened.broken.expect("it is said");
        assert!(broken.reason.contains("record 3"), "{}", broken.reason);
        assert_eq!(broken.last, users.len() as u64);
        // It goes on, behind every number that was ever given.
        opened.log.append(vec![event("after")]).await.unwrap();
        assert_eq!(opened.log.head().0, 3.max(users.len() as u64) + 1);
        opened.log.close().await.unwrap();
        assert_eq!(open(directory.path(), &key, Some(kept)).broken, None, "it is said once");
        assert_eq!(verify(directory.path(), &key.public_key()).unwrap().problem, None);
        // Where a log begins is not for everybody to say.
        let begins = directory.path().join("beginning");
        let text = fs::read_to_string(&begins).unwrap();
        fs::write(&begins, text.replacen(text.split(' ').nth(1).unwrap(), &"00".repeat(32), 1)).unwrap();
        let found = verify(directory.path(), &key.public_key()).unwrap().problem;
        assert_eq!(found, Some(Problem::Beginning));
    }
}

#[tokio::test]
async fn room_for_what_is_urgent_is_taken_before_it_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let key = key();
    let (log, _) = AuditLog::open(directory.path(), key).unwrap();
    log.append(vec![event("alice")]).await.unwrap();
    let metadata = File::open(first_file(directory.path())).unwrap().metadata().unwrap();
    assert!(metadata.len() < 1000);
    assert!(metadata.blocks() * 512 >= 1 << 20, "{} blocks", metadata.blocks());
}
