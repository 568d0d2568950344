//! What every [`Backend`] must do, as one suite that each implementation runs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a suite of tests")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;

use crate::{Backend, Change, Changes, Op, StoreError};

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

fn later(seconds: i64) -> OffsetDateTime {
    NOW + time::Duration::seconds(seconds)
}

fn put(key: &str, value: &str) -> Op {
    Op::Put { key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()), expires: None }
}

fn create(key: &str, value: &str) -> Op {
    Op::Create { key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()), expires: None }
}

fn swap(key: &str, revision: u64, value: &str) -> Op {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Op::CompareAndSwap { key: key.to_owned(), revision, value, expires: None }
}

fn delete(key: &str, revision: Option<u64>) -> Op {
    Op::Delete { key: key.to_owned(), revision }
}

async fn one(backend: &Arc<dyn Backend>, op: Op) -> Result<u64, StoreError> {
    backend.transact(vec![op], NOW).await.map(|revisions| revisions[0])
}

async fn value(backend: &Arc<dyn Backend>, key: &str) -> Option<String> {
    let item = backend.get(key, NOW).await.unwrap()?;
    Some(String::from_utf8(item.value.to_vec()).unwrap())
}

async fn next(changes: &mut Changes) -> Change {
    tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("a change in time").unwrap()
}

/// Runs the whole contract; `make` gives a fresh, empty backend each time.
///
/// # Panics
/// When the contract is broken.
pub async fn suite<F, Fut>(make: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Backend>>,
{
    values_and_revisions(make().await).await;
    compare_and_swap(make().await).await;
    all_or_nothing(make().await).await;
    listing(make().await).await;
    expiry(make().await).await;
    watching(make().await).await;
    watching_misses_nothing_under_writes(make().await).await;
    a_slow_watcher_is_told(make().await).await;
    closing(make().await).await;
}

async fn values_and_revisions(backend: Arc<dyn Backend>) {
    assert_eq!(value(&backend, "a").await, None);
    let first = one(&backend, create("a", "1")).await.unwrap();
    assert!(first > 0);
    let refused = one(&backend, create("a", "2")).await;
    assert!(matches!(refused, Err(StoreError::Exists { key }) if key == "a"));
    let second = one(&backend, put("a", "3")).await.unwrap();
    assert!(second > first, "revisions grow");
    let item = backend.get("a", NOW).await.unwrap().unwrap();
    assert_eq!((item.revision, item.value.as_ref()), (second, &b"3"[..]));
    let gone = one(&backend, delete("a", None)).await.unwrap();
    assert!(gone > second, "a deletion has a revision");
    assert_eq!(value(&backend, "a").await, None);
    assert!(matches!(one(&backend, delete("a", None)).await, Err(StoreError::NotFound { .. })));
    assert!(one(&backend, create("a", "4")).await.unwrap() > gone);
    let binary = Op::Put { key: "b".to_owned(), value: Bytes::from_static(&[0, 255, 1]), expires: None };
    one(&backend, binary).await.unwrap();
    assert_eq!(backend.get("b", NOW).await.unwrap().unwrap().value.as_ref(), &[0, 255, 1]);
}

async fn compare_and_swap(backend: Arc<dyn Backend>) {
    let first = one(&backend, put("a", "1")).await.unwrap();
    let second = one(&backend, swap("a", first, "2")).await.unwrap();
    let stale = one(&backend, swap("a", first, "3")).await;
    assert!(
        matches!(stale, Err(StoreError::Conflict { expected, found, .. }) if expected == first && found == second)
    );
    assert_eq!(value(&backend, "a").await.as_deref(), Some("2"));
    assert!(matches!(one(&backend, swap("none", 7, "x")).await, Err(StoreError::Conflict { found: 0, .. })));
    assert!(matches!(one(&backend, swap("none", 0, "x")).await, Err(StoreError::Conflict { .. })));
    assert!(matches!(one(&backend, delete("a", Some(first))).await, Err(StoreError::Conflict { .. })));
    one(&backend, delete("a", Some(second))).await.unwrap();
}

async fn all_or_nothing(backend: Arc<dyn Backend>) {
    let first = one(&backend, put("a", "1")).await.unwrap();
    let failed = backend.transact(vec![put("b", "1"), put("a", "2"), swap("a", first, "3")], NOW).await;
    assert!(matches!(failed, Err(StoreError::Conflict { .. })), "a step sees the steps before it");
    assert_eq!(value(&backend, "a").await.as_deref(), Some("1"));
    assert_eq!(value(&backend, "b").await, None);
    let check = |revision| Op::Check { key: "a".to_owned(), revision };
    assert!(backend.transact(vec![check(first + 100), put("b", "1")], NOW).await.is_err());
    assert_eq!(value(&backend, "b").await, None);
    let done = backend.transact(vec![check(first), put("b", "1"), delete("a", None)], NOW).await.unwrap();
    assert_eq!(done[0], 0);
    assert!(done[1] > first && done[2] > done[1]);
    let absent = Op::Check { key: "a".to_owned(), revision: 0 };
    backend.transact(vec![absent, put("c", "1")], NOW).await.unwrap();
}

async fn listing(backend: Arc<dyn Backend>) {
    for key in ["n/b", "n/a", "n/c", "n", "n0", "m/a", "n/ä", "n%/x", "N/a"] {
        one(&backend, put(key, key)).await.unwrap();
    }
    let names = |items: Vec<crate::Item>| items.into_iter().map(|item| item.key).collect::<Vec<_>>();
    let all = names(backend.list("n/", None, 100, NOW).await.unwrap());
    assert_eq!(all, ["n/a", "n/b", "n/c", "n/ä"], "in the order of bytes, nothing else");
    let page = names(backend.list("n/", None, 2, NOW).await.unwrap());
    assert_eq!(page, ["n/a", "n/b"]);
    let rest = names(backend.list("n/", Some("n/b"), 100, NOW).await.unwrap());
    assert_eq!(rest, ["n/c", "n/ä"]);
    let between = names(backend.list("n/", Some("n/bb"), 100, NOW).await.unwrap());
    assert_eq!(between, ["n/c", "n/ä"], "the name to go on after need not exist");
    assert_eq!(backend.list("", None, 100, NOW).await.unwrap().len(), 9);
    assert_eq!(backend.list("none/", None, 100, NOW).await.unwrap().len(), 0);
    assert_eq!(backend.list("n/", None, 0, NOW).await.unwrap().len(), 0);
}

async fn expiry(backend: Arc<dyn Backend>) {
    let until = |key: &str, at| Op::Create {
        key: key.to_owned(),
        value: Bytes::from_static(b"v"),
        expires: Some(at),
    };
    one(&backend, until("t/a", later(10))).await.unwrap();
    one(&backend, until("t/b", later(20))).await.unwrap();
    let item = backend.get("t/a", later(9)).await.unwrap().unwrap();
    assert_eq!(item.expires, Some(later(10)));
    assert!(backend.get("t/a", later(10)).await.unwrap().is_none(), "gone at its end, swept or not");
    assert_eq!(backend.list("t/", None, 10, later(10)).await.unwrap().len(), 1);
    let again = backend.transact(vec![until("t/a", later(30))], later(11)).await;
    assert!(again.is_ok(), "an expired name is free: {again:?}");
    let gone = backend.transact(vec![delete("t/b", None)], later(25)).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
    let mut watch = backend.watch(vec!["t/".to_owned()], later(5)).await.unwrap();
    assert_eq!(backend.sweep(later(25)).await.unwrap(), 1);
    assert!(matches!(next(&mut watch.changes).await, Change::Delete { key, .. } if key == "t/b"));
    assert_eq!(backend.sweep(later(25)).await.unwrap(), 0);
    assert!(backend.get("t/a", later(25)).await.unwrap().is_some());
}

async fn watching(backend: Arc<dyn Backend>) {
    one(&backend, put("a/1", "old")).await.unwrap();
    one(&backend, put("b/1", "old")).await.unwrap();
    let mut watch = backend.watch(vec!["a/".to_owned(), "c/".to_owned()], NOW).await.unwrap();
    let keys: Vec<&str> = watch.snapshot.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["a/1"]);
    one(&backend, put("b/2", "unseen")).await.unwrap();
    backend.transact(vec![put("c/1", "new"), delete("a/1", None)], NOW).await.unwrap();
    let Change::Put(item) = next(&mut watch.changes).await else { panic!("a put") };
    assert_eq!((item.key.as_str(), item.value.as_ref()), ("c/1", &b"new"[..]));
    assert!(matches!(next(&mut watch.changes).await, Change::Delete { key, .. } if key == "a/1"));
    let failed = backend.transact(vec![put("a/9", "x"), create("c/1", "x")], NOW).await;
    assert!(failed.is_err());
    one(&backend, put("a/2", "after")).await.unwrap();
    assert_eq!(next(&mut watch.changes).await.key(), "a/2", "what did not happen is not told");
}

async fn watching_misses_nothing_under_writes(backend: Arc<dyn Backend>) {
    let writer = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move {
            for number in 0..300 {
                one(&backend, put(&format!("k/{number:03}"), "v")).await.unwrap();
            }
        }
    });
    for written in ["k/000", "k/050", "k/150"] {
        // In the middle of the writes, each time further on.
        while backend.get(written, NOW).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        let mut watch = backend.watch(vec!["k/".to_owned()], NOW).await.unwrap();
        let mut seen: std::collections::BTreeSet<String> =
            watch.snapshot.iter().map(|item| item.key.clone()).collect();
        while seen.len() < 300 {
            let change = next(&mut watch.changes).await;
            assert!(seen.insert(change.key().to_owned()), "{} came twice", change.key());
        }
    }
    writer.await.unwrap();
}

async fn a_slow_watcher_is_told(backend: Arc<dyn Backend>) {
    let mut watch = backend.watch(vec!["k/".to_owned()], NOW).await.unwrap();
    // One batch is one notification, however many changes it has: so many batches are needed to overtake a reader.
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..crate::backend::WATCH_BACKLOG + 200 {
        let op = put(&format!("k/{number}"), "v");
        if number % 8 == 0 {
            one(&backend, op).await.unwrap();
        } else {
            let backend = Arc::clone(&backend);
            writes.spawn(async move { one(&backend, op).await });
        }
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap().unwrap();
    }
    let mut seen = 0;
    loop {
        match tokio::time::timeout(Duration::from_secs(10), watch.changes.next()).await.expect("an answer") {
            Ok(_) => seen += 1,
            Err(StoreError::Lagged { missed }) => {
                assert!(missed > 0);
                break;
            }
            Err(other) => panic!("{other}"),
        }
        if seen == crate::backend::WATCH_BACKLOG + 200 {
            // The writes were gathered into few batches, so nothing was missed.
            break;
        }
    }
    let fresh = backend.watch(vec!["k/".to_owned()], NOW).await.unwrap();
    assert_eq!(fresh.snapshot.len(), crate::backend::WATCH_BACKLOG + 200);
}

async fn closing(backend: Arc<dyn Backend>) {
    let mut watch = backend.watch(vec!["a".to_owned()], NOW).await.unwrap();
    one(&backend, put("a", "1")).await.unwrap();
    backend.close().await;
    assert!(matches!(one(&backend, put("a", "2")).await, Err(StoreError::Closed)));
    assert!(matches!(backend.get("a", NOW).await, Err(StoreError::Closed)));
    assert_eq!(next(&mut watch.changes).await.key(), "a", "what was committed is still told");
    let end = tokio::time::timeout(Duration::from_secs(10), watch.changes.next()).await.expect("an end");
    assert!(matches!(end, Err(StoreError::Closed)));
}
