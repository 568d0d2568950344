//! The contract, and what is this backend's own: durability, full disks and damaged files.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bytes::Bytes;
use rusqlite::{StatementStatus, params};

use super::listing::{Bound, end_of, listing, range, select};
use super::*;
use crate::Change;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn put(key: &str, value: &[u8]) -> Op {
    Op::Put { key: key.to_owned(), value: Bytes::copy_from_slice(value), expires: None }
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    crate::contract::suite(|| {
        let path = directory.path().join(format!("{}.db", count.fetch_add(1, Ordering::Relaxed)));
        async move { Arc::new(SqliteBackend::open(&path).unwrap()) as Arc<dyn Backend> }
    })
    .await;
}

/// All of it, and some of it beside what is in the file.
#[tokio::test]
async fn what_is_in_memory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for in_memory in [&[""][..], &["a", "n/", "t/b"], &["b", "k/1", "c/"]] {
        crate::contract::suite(|| {
            let path = directory.path().join(format!("{}.db", count.fetch_add(1, Ordering::Relaxed)));
            async move { Arc::new(SqliteBackend::open_with(&path, in_memory).unwrap()) as Arc<dyn Backend> }
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_in_memory_ends_with_the_process_and_the_rest_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let first = SqliteBackend::open_with(&path, &["passing/"]).unwrap();
    let revisions = first.transact(vec![put("passing/a", b"1"), put("kept/a", b"1")], NOW).await.unwrap();
    assert!(revisions[0] < revisions[1]);
    assert!(first.get("passing/a", NOW).await.unwrap().is_some());
    first.close().await;
    let second = SqliteBackend::open_with(&path, &["passing/"]).unwrap();
    assert!(second.get("passing/a", NOW).await.unwrap().is_none());
    assert!(second.get("kept/a", NOW).await.unwrap().is_some());
    assert!(second.transact(vec![put("kept/b", b"1")], NOW).await.unwrap()[0] > revisions[1]);
}

fn keys(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.key.as_str()).collect()
}

#[tokio::test]
async fn what_an_older_release_kept_in_the_file_is_taken_out_where_it_is_in_memory_now() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let before = b"an attempt of before";
    let first = SqliteBackend::open(&path).unwrap();
    let others = ["other/a", "passing", "passing0"];
    let mut ops: Vec<Op> = others.iter().map(|key| put(key, b"1")).collect();
    ops.push(put("passing/a", before));
    let last = first.transact(ops, NOW).await.unwrap()[3];
    first.close().await;
    let in_file = |bytes: Vec<u8>| bytes.windows(before.len()).any(|part| part == before);
    assert!(in_file(std::fs::read(&path).unwrap()));
    let second = SqliteBackend::open_with(&path, &["none/", "passing/"]).unwrap();
    assert_eq!(second.get("passing/a", NOW).await.unwrap(), None);
    assert_eq!(keys(&second.list("", None, 9, NOW).await.unwrap()), others);
    assert_eq!(keys(&second.watch(vec![String::new()], NOW).await.unwrap().snapshot), others);
    let revision = second.transact(vec![put("passing/a", b"2")], NOW).await.unwrap()[0];
    assert!(revision > last);
    let all = ["other/a", "passing", "passing/a", "passing0"];
    let listed = second.list("", None, 9, NOW).await.unwrap();
    let watched = second.watch(vec![String::new()], NOW).await.unwrap().snapshot;
    for items in [listed, watched] {
        assert_eq!(keys(&items), all);
        assert_eq!(items[2].revision, revision);
    }
    second.close().await;
    assert!(!in_file(std::fs::read(&path).unwrap()));
    let third = SqliteBackend::open(&path).unwrap();
    assert_eq!(keys(&third.list("", None, 9, NOW).await.unwrap()), others);
}

/// A disk without room refuses what is in the file, and nothing else.
#[tokio::test]
async fn what_is_in_memory_is_taken_and_swept_whatever_becomes_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let opened = SqliteBackend::open_with(&path, &["passing/"]).unwrap();
    let shared = Arc::clone(&opened.shared);
    // One that finds no room.
    let reserve = Reserve::of(&directory.path().join("none").join("state.db"));
    let mut writer = Writer { connection: connect(&path).unwrap(), shared: Arc::clone(&shared), reserve };
    let (works, answers): (Vec<_>, Vec<_>) = [
        (vec![put("passing/a", b"1")], false),
        (vec![put("passing/b", b"1"), put("kept/b", b"1")], false),
        (vec![put("passing/c", b"1")], true),
    ]
    .into_iter()
    .map(|(ops, urgent)| {
        let (answer, answered) = oneshot::channel();
        (Work::Transact { ops, now: NOW, urgent, answer }, answered)
    })
    .unzip();
    // As they come to the writer when it has held an item of theirs.
    assert!(writer.commit_all(works).is_none());
    let done = answers.into_iter().map(|mut answer| answer.try_recv().unwrap().is_ok());
    assert_eq!(done.collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(keys(&opened.list("passing/", None, 9, NOW).await.unwrap()), ["passing/a", "passing/c"]);

    let (work, queue) = mpsc::channel(QUEUE);
    std::thread::spawn(move || writer.run(queue));
    let (reads, reads_ahead) = (opened.reads.clone(), opened.reads_ahead.clone());
    let full = SqliteBackend { shared, work, reads, reads_ahead };
    let end = NOW + time::Duration::SECOND;
    let ends = Op::Create { key: "passing/d".to_owned(), value: Bytes::new(), expires: Some(end) };
    full.transact(vec![ends.clone()], NOW).await.unwrap();
    assert!(full.sweep(end).await.is_err(), "the file could not be swept");
    // Asked as of before its end: it is gone, and not only over.
    assert_eq!(full.get("passing/d", NOW).await.unwrap(), None);
    opened.transact(vec![ends], NOW).await.unwrap();
    assert_eq!(opened.sweep(end).await.unwrap(), 1);
}

/// On one thread: what is there at once never waits, and would have it for itself.
#[tokio::test]
async fn what_is_in_memory_lets_other_tasks_have_the_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let backend = Arc::new(SqliteBackend::open_with(&path, &["passing/"]).unwrap());
    backend.transact(vec![put("kept/a", b"1"), put("passing/a", b"1")], NOW).await.unwrap();
    backend.list("kept/a/", None, 9, NOW).await.unwrap();
    for call in ["get", "get in memory", "list", "list in memory", "transact"] {
        let over = Arc::new(AtomicBool::new(false));
        let asking = tokio::spawn({
            let (backend, over) = (Arc::clone(&backend), Arc::clone(&over));
            async move {
                for _ in 0..10_000 {
                    match call {
                        "get" => drop(backend.get("kept/a", NOW).await.unwrap()),
                        "get in memory" => drop(backend.get("passing/a", NOW).await.unwrap()),
                        "list" => drop(backend.list("kept/a/", None, 9, NOW).await.unwrap()),
                        "list in memory" => drop(backend.list("passing/", None, 9, NOW).await.unwrap()),
                        _ => drop(backend.transact(vec![put("passing/a", b"1")], NOW).await.unwrap()),
                    }
                    if over.load(Ordering::Relaxed) {
                        return true;
                    }
                }
                false
            }
        });
        let other = tokio::spawn(async move { over.store(true, Ordering::Relaxed) });
        assert!(asking.await.unwrap(), "{call}");
        other.await.unwrap();
    }
}

/// Of many that want to change the same item at the same revision, one does, whether they go by the writer or not.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_uses_up_what_is_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let backend =
        Arc::new(SqliteBackend::open_with(&directory.path().join("state.db"), &["passing/"]).unwrap());
    for round in 0..50 {
        let key = format!("passing/{round}");
        let revision = backend.transact(vec![put(&key, b"open")], NOW).await.unwrap()[0];
        let mut users = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (backend, key) = (Arc::clone(&backend), key.clone());
            let value = Bytes::from_static(b"used");
            let mut ops = vec![Op::CompareAndSwap { key, revision, value, expires: None }];
            if number % 2 == 0 {
                ops.push(put(&format!("kept/{round}-{number}"), b"1"));
            }
            users.spawn(async move { backend.transact(ops, NOW).await });
        }
        let (mut used, mut refused) = (0, 0);
        while let Some(done) = users.join_next().await {
            match done.unwrap() {
                Ok(_) => used += 1,
                Err(StoreError::Conflict { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((used, refused), (1, 7));
        // Of the others' steps to the file, none is left.
        assert!(backend.list(&format!("kept/{round}-"), None, 9, NOW).await.unwrap().len() <= 1);
    }
}

/// Readers that read all the time never see an item go back, nor an answered change missing.
#[tokio::test(flavor = "multi_thread")]
async fn no_reader_sees_what_is_not_so_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Arc::new(SqliteBackend::open(&directory.path().join("state.db")).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (backend, over) = (Arc::clone(&backend), Arc::clone(&over));
        readers.spawn(async move {
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                let seen = backend.get("k/a/1", NOW).await.unwrap().map_or(last, |item| item.revision);
                assert!(seen >= last, "{seen} after {last}");
                last = seen;
                tokio::task::yield_now().await;
            }
        });
    }
    for round in 0..300 {
        let revision = backend.transact(vec![put("k/a/1", b"1")], NOW).await.unwrap()[0];
        assert_eq!(backend.get("k/a/1", NOW).await.unwrap().unwrap().revision, revision);
        let listed = backend.list("k/a/", None, 9, NOW).await.unwrap();
        assert_eq!(listed[0].revision, revision);
        if round % 3 == 0 {
            let gone = Op::Delete { key: "k/a/1".to_owned(), revision: None };
            backend.transact(vec![gone], NOW).await.unwrap();
            assert!(backend.get("k/a/1", NOW).await.unwrap().is_none());
            assert!(backend.list("k/a/", None, 9, NOW).await.unwrap().is_empty());
        }
    }
    over.store(true, Ordering::Relaxed);
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart_and_revisions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let first = SqliteBackend::open(&path).unwrap();
    let revision = first.transact(vec![put("a", b"1")], NOW).await.unwrap()[0];
    first.close().await;
    assert!(matches!(first.get("a", NOW).await, Err(StoreError::Closed)));
    let second = SqliteBackend::open(&path).unwrap();
    assert_eq!(second.get("a", NOW).await.unwrap().unwrap().value.as_ref(), b"1");
    assert!(second.transact(vec![put("b", b"2")], NOW).await.unwrap()[0] > revision);
}

#[tokio::test]
async fn a_full_disk_undoes_a_group_and_nothing_is_done_that_was_not_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let backend = SqliteBackend::open(&path).unwrap();
    backend.transact(vec![put("kept", b"1")], NOW).await.unwrap();
    let connection = connect(&path).unwrap();
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    // No disk, but the same error: the file may not grow by more than this.
    connection.pragma_update(None, "max_page_count", pages + 4).unwrap();
    let reserve = Reserve::of(&path);
    let mut writer = Writer { connection, shared: Arc::clone(&backend.shared), reserve };
    let mut watch = backend.watch(vec![String::new()], NOW).await.unwrap();
    let asked = |writer: &mut Writer, keys: &[(&str, usize)]| {
        let (works, answers): (Vec<_>, Vec<_>) = keys
            .iter()
            .map(|(key, bytes)| {
                let (answer, answered) = oneshot::channel();
                let ops = vec![put(key, &vec![7; *bytes])];
                (Work::Transact { ops, now: NOW, urgent: false, answer }, answered)
            })
            .unzip();
        assert!(writer.commit(works).is_none());
        answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect::<Vec<_>>()
    };
    // The second is too large; the third would fit and comes after.
    let answers = asked(&mut writer, &[("a", 10), ("large", 1 << 20), ("b", 10)]);
    for answer in &answers {
        let error = answer.as_ref().expect_err("the disk is full");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("state.db is full: make room"), "{error}");
    }
    for key in ["a", "large", "b"] {
        assert!(backend.get(key, NOW).await.unwrap().is_none(), "{key} is there, and no watcher was told");
    }
    // It works again without a restart, and watchers see just what was done.
    writer.connection.pragma_update(None, "max_page_count", 1 << 20).unwrap();
    assert!(asked(&mut writer, &[("large", 1 << 20), ("b", 10)]).iter().all(Result::is_ok));
    for key in ["large", "b"] {
        assert!(backend.get(key, NOW).await.unwrap().is_some());
        assert!(matches!(watch.changes.next().await.unwrap(), Change::Put(item) if item.key == key));
    }
    assert_eq!(backend.get("kept", NOW).await.unwrap().unwrap().value.as_ref(), b"1");
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let _first = SqliteBackend::open(&path).unwrap();
    assert!(matches!(SqliteBackend::open(&path), Err(StoreError::InUse { .. })));
}

#[tokio::test]
async fn a_second_process_is_refused_by_whatever_name_it_opens_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let below = |name: &str| directory.path().join(name);
    std::fs::create_dir(below("place")).unwrap();
    let path = below("place/state.db");
    let first = SqliteBackend::open(&path).unwrap();
    let (linked, symbolic, hard) = (below("linked/state.db"), below("symbolic.db"), below("hard.db"));
    symlink(below("place"), below("linked")).unwrap();
    symlink(&path, &symbolic).unwrap();
    std::fs::hard_link(&path, &hard).unwrap();
    let mut opened = Vec::new();
    for name in [&linked, &symbolic, &hard] {
        let error = SqliteBackend::open(name).expect_err("the file is open");
        assert!(matches!(error, StoreError::InUse { .. }), "{}: {error}", name.display());
        // This process knows its own files; another one finds the lock.
        let file = File::options().read(true).write(true).open(name).unwrap();
        assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)), "{}", name.display());
        // Closed while SQLite has the file open, it would take the locks of this process along.
        opened.push(file);
    }
    first.transact(vec![put("a", b"1")], NOW).await.unwrap();
    first.close().await;
    let second = SqliteBackend::open(&hard).unwrap();
    assert!(second.get("a", NOW).await.unwrap().is_some());
    assert!(matches!(SqliteBackend::open(&path), Err(StoreError::InUse { .. })));
}

#[test]
fn the_file_is_locked_until_the_last_read_of_it_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let backend = Arc::new(SqliteBackend::open(&path).unwrap());
    let under_way = backend.shared.lock.read();
    let closing = std::thread::spawn({
        let backend = Arc::clone(&backend);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(backend.close());
        }
    });
    while !backend.shared.closed.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    assert!(matches!(SqliteBackend::open(&path), Err(StoreError::InUse { .. })));
    drop(under_way);
    closing.join().unwrap();
    assert!(SqliteBackend::open(&path).is_ok());
}

#[tokio::test]
async fn damage_and_loose_modes_are_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let backend = SqliteBackend::open(&path).unwrap();
    for number in 0..200 {
        backend.transact(vec![put(&format!("k/{number}"), &[7; 500])], NOW).await.unwrap();
    }
    backend.close().await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = std::fs::read(&path).unwrap();
    for keep in [0, 50, 5_000, whole.len() / 2] {
        std::fs::write(&path, &whole[..keep]).unwrap();
        let error = SqliteBackend::open(&path).expect_err("truncated");
        assert!(matches!(error, StoreError::Corrupt { .. }), "{keep} bytes: {error}");
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
    }
    std::fs::write(&path, &whole).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = SqliteBackend::open(&path).expect_err("loose");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(SqliteBackend::open(&path).is_ok());
}

#[tokio::test]
async fn many_writers_share_commits() {
    let directory = tempfile::tempdir().unwrap();
    let backend = Arc::new(SqliteBackend::open(&directory.path().join("state.db")).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..200 {
        let backend = Arc::clone(&backend);
        writers.spawn(async move { backend.transact(vec![put(&format!("k/{number}"), b"v")], NOW).await });
    }
    let mut revisions = std::collections::BTreeSet::new();
    while let Some(done) = writers.join_next().await {
        assert!(revisions.insert(done.unwrap().unwrap()[0]), "a revision was given twice");
    }
    assert_eq!(backend.list("k/", None, 1_000, NOW).await.unwrap().len(), 200);
}

#[test]
fn a_prefix_ends_before_the_next_one() {
    assert_eq!(end_of("node/").as_deref(), Some("node0"));
    assert_eq!(end_of(""), None);
}

/// What SQLite means to do for a listing: no key is read that is not in its range.
#[tokio::test]
async fn a_listing_reads_the_keys_of_its_range_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let backend = SqliteBackend::open(&path).unwrap();
    let connection = connect(&path).unwrap();
    for (prefix, after, bounds) in [
        ("user/a/", None, "(key>? AND key<?)"),
        ("user/a/", Some("user/a/7"), "(key>? AND key<?)"),
        ("", None, "(key>?)"),
        ("", Some("user/a/7"), "(key>?)"),
    ] {
        let (from, end) = range(prefix, after);
        let explain = format!("EXPLAIN QUERY PLAN {}", listing(&from, end.is_some()));
        let mut statement = connection.prepare(&explain).unwrap();
        let parameters = params![prefix, end, prefix, 0, 0, 1];
        let plan: String = statement.query_row(parameters, |row| row.get("detail")).unwrap();
        assert_eq!(plan, format!("SEARCH items USING PRIMARY KEY {bounds}"), "{prefix:?} after {after:?}");
    }
    backend.close().await;
}

#[test]
fn a_page_begins_after_the_last_key_or_at_the_prefix() {
    let end = Some("user/b0".to_owned());
    assert_eq!(range("user/b/", None), (Bound::Included("user/b/"), end.clone()));
    assert_eq!(range("user/b/", Some("user/b/1")), (Bound::Excluded("user/b/1"), end.clone()));
    // One that stands before all keys of the prefix leaves none of them out.
    assert_eq!(range("user/b/", Some("user/a/1")), (Bound::Included("user/b/"), end));
    assert_eq!(range("", Some("a")), (Bound::Excluded("a"), None));
}

#[test]
fn a_listing_is_planned_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    drop(SqliteBackend::open(&path).unwrap());
    let connection = file::connect(&path).unwrap();
    for prefix in ["a/", "b/", "b"] {
        select(&connection, prefix, None, 10, NOW).unwrap();
    }
    let (from, end) = range("a/", None);
    let statement = connection.prepare_cached(listing(&from, end.is_some())).unwrap();
    assert_eq!(statement.get_status(StatementStatus::Run), 3);
    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
}
