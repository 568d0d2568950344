//! The audit log through its public surface.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use sallyport_audit::log::{AuditLog, Filter, LogError, Problem, verify};
use sallyport_audit::{Code, Event};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use time::OffsetDateTime;

fn signer() -> Arc<MemoryKey> {
    Arc::new(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap())
}

fn event(user: &str) -> Event {
    Event::new(Code::UserLogin, OffsetDateTime::now_utc()).user(user)
}

fn only_file(directory: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    assert_eq!(files.len(), 1);
    files.remove(0)
}

/// A closed log of `count` records, and the key of its checkpoint.
async fn sample(directory: &Path, count: usize) -> Arc<MemoryKey> {
    let key = signer();
    let (log, repair) = AuditLog::open(directory, key.clone()).unwrap();
    assert!(repair.is_none());
    for number in 0..count {
        log.append(vec![event(&format!("user-{number}"))]).await.unwrap();
    }
    log.close().await.unwrap();
    assert!(matches!(log.append(vec![event("late")]).await, Err(LogError::Closed)));
    key
}

fn users(log: &AuditLog, filter: &Filter) -> Vec<String> {
    let mut users = Vec::new();
    log.scan(0, filter, |record| {
        users.push(record.event().unwrap().user);
        ControlFlow::Continue(())
    })
    .unwrap();
    users
}

#[tokio::test]
async fn records_are_chained_found_and_verified_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let key = sample(directory.path(), 3).await;
    let (log, _) = AuditLog::open(directory.path(), key.clone()).unwrap();
    assert_eq!(log.head().0, 3);
    let mut follower = log.subscribe();
    log.append(vec![event("alice"), event("bob")]).await.unwrap();
    assert_eq!(follower.recv().await.unwrap().event().unwrap().user, "alice");
    assert_eq!(follower.recv().await.unwrap().sequence, 5);
    assert_eq!(users(&log, &Filter::default()), ["user-0", "user-1", "user-2", "alice", "bob"]);
    assert_eq!(users(&log, &Filter { user: "bob".to_owned(), ..Filter::default() }), ["bob"]);
    assert_eq!(users(&log, &Filter { code: "user.login".to_owned(), ..Filter::default() }).len(), 5);
    assert!(users(&log, &Filter { code: "SP9999I".to_owned(), ..Filter::default() }).is_empty());
    log.checkpoint().await.unwrap();
    let report = log.verify().unwrap();
    assert_eq!((report.records, report.checkpoints, report.problem), (5, 2, None));
    assert_eq!(report.head, log.head().1);
}

#[tokio::test]
async fn statements_are_found_by_their_words() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = AuditLog::open(directory.path(), signer()).unwrap();
    let ran = |user: &str, statement: &str| event(user).field("statement", statement);
    let all = vec![event("alice"), ran("bob", "DELETE FROM orders\nWHERE id = 1"), ran("carol", "select 1")];
    log.append(all).await.unwrap();
    let found =
        |statement: &str| users(&log, &Filter { statement: statement.to_owned(), ..Filter::default() });
    assert_eq!(found("Orders  delete"), ["bob"]);
    assert_eq!(found("select"), ["carol"]);
    assert!(found("delete customers").is_empty());
    assert_eq!(found("").len(), 3);
}

#[tokio::test]
async fn an_event_that_comes_twice_is_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let key = signer();
    let (log, _) = AuditLog::open(directory.path(), key.clone()).unwrap();
    let one = event("alice");
    log.append(vec![one.clone(), one.clone()]).await.unwrap();
    log.append(vec![one.clone()]).await.unwrap();
    log.close().await.unwrap();
    let (log, _) = AuditLog::open(directory.path(), key).unwrap();
    log.append(vec![one]).await.unwrap();
    assert_eq!(log.head().0, 1);
}

#[tokio::test]
async fn a_torn_end_is_mended_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let key = sample(directory.path(), 3).await;
    let file = only_file(directory.path());
    let whole = fs::read(&file).unwrap();
    let mut torn = whole.clone();
    torn.extend(b"4 0123abc");
    fs::write(&file, &torn).unwrap();
    let (log, repair) = AuditLog::open(directory.path(), key.clone()).unwrap();
    assert_eq!(repair.unwrap().bytes, 9);
    log.append(vec![event("after")]).await.unwrap();
    log.close().await.unwrap();
    let report = verify(directory.path(), &key.public_key()).unwrap();
    assert_eq!((report.records, report.problem), (4, None));
}

#[tokio::test]
async fn cutting_off_the_end_shows_by_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let key = sample(directory.path(), 5).await;
    let file = only_file(directory.path());
    let text = fs::read_to_string(&file).unwrap();
    let shorter: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    fs::write(&file, shorter).unwrap();
    let report = verify(directory.path(), &key.public_key()).unwrap();
    assert_eq!(report.problem, Some(Problem::CutOff { last: 3, checkpoint: 5 }));
    let other = verify(directory.path(), &signer().public_key()).unwrap();
    assert_eq!(other.problem, Some(Problem::Signature { line: 1 }));
}

#[tokio::test]
async fn a_history_that_is_written_anew_does_not_fit_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let key = sample(directory.path(), 4).await;
    let other = tempfile::tempdir().unwrap();
    sample(other.path(), 4).await;
    fs::copy(only_file(other.path()), only_file(directory.path())).unwrap();
    let report = verify(directory.path(), &key.public_key()).unwrap();
    assert_eq!(report.problem, Some(Problem::Checkpoint { sequence: 4 }));
}

#[tokio::test]
async fn many_writers_at_once_make_one_chain() {
    let directory = tempfile::tempdir().unwrap();
    let key = signer();
    let (log, _) = AuditLog::open(directory.path(), key).unwrap();
    let mut tasks = Vec::new();
    for writer in 0..50 {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            for number in 0..20 {
                log.append(vec![event(&format!("{writer}-{number}"))]).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let report = log.verify().unwrap();
    assert_eq!((report.records, report.problem), (1000, None));
}

#[tokio::test]
async fn a_file_that_is_no_log_is_not_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    let key = sample(directory.path(), 2).await;
    let file = only_file(directory.path());
    fs::write(&file, "rubbish\n").unwrap();
    assert!(matches!(AuditLog::open(directory.path(), key), Err(LogError::Broken(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_change_is_found(at in any::<prop::sample::Index>(), what in 0_u8..4, flip in 1_u8..=255) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let key = runtime.block_on(sample(directory.path(), 8));
        let file = only_file(directory.path());
        let mut bytes = fs::read(&file).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        let line = at.index(lines.len());
        match what {
            0 => {
                let position = at.index(bytes.len());
                bytes[position] ^= flip;
            }
            1 => {
                lines.remove(line);
                bytes = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            }
            2 => {
                lines.insert(line, lines[line]);
                bytes = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            }
            _ => {
                let other = (line + 1) % lines.len();
                lines.swap(line, other);
                bytes = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            }
        }
        fs::write(&file, bytes).unwrap();
        let report = verify(directory.path(), &key.public_key()).unwrap();
        prop_assert!(report.problem.is_some());
    }
}
