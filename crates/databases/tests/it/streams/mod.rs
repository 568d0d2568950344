//! Much data, many statements and many sessions: at the pace of the slower end, and without keeping them. By themselves, as
//! the memory of this process is looked at.
#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the modules are those of other tests"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_audit::Code;
use sallyport_databases::postgres::message::encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};

use crate::client::Client;
use crate::world::World;

/// One test at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The most memory that this process has had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_any_length_and_many_statements_pass_through() {
    let _turn = TURN.lock().await;
    let world = World::new("session_recording: off, max_db_sessions: 1000");
    world.postgres.sql("create role app login");
    let mut client = Client::ready(&world, "app").await;
    assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
    let before = peak();
    client.say(&[(b'Q', b"select repeat('x', 100000000)\0")]).await;
    let mut seen = 0_u64;
    let mut buffer = vec![0; 65536];
    let mut tail = Vec::new();
    while !tail.ends_with(b"Z\0\0\0\x05I") {
        let read = client.io.read(&mut buffer).await.unwrap();
        assert!(read > 0);
        seen += read as u64;
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(16));
    }
    assert!(seen > 100_000_000);
    assert!(peak() - before < 8 * 1024, "{} KiB more", peak() - before);

    // All of them are sent before anything is read; the server's answers have to wait.
    const STATEMENTS: usize = 100_000;
    let one =
        [encode(b'P', b"\0select 1\0\0\0"), encode(b'B', b"\0\0\0\0\0\0\0\0"), encode(b'E', b"\0\0\0\0\0")]
            .concat();
    let (mut read, mut write) = split(client.io);
    let before = peak();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let sender = tokio::spawn(async move {
        let hundred = one.repeat(100);
        for _ in 0..STATEMENTS / 100 {
            write.write_all(&hundred).await.unwrap();
            counted.fetch_add(100, Ordering::Relaxed);
        }
        write.write_all(&encode(b'S', b"")).await.unwrap();
        write
    });
    // Until nothing moves any more: all of them are sent, or there is no room on the way for another.
    let mut before_that = None;
    while before_that != Some(sent.load(Ordering::Relaxed)) && !sender.is_finished() {
        before_that = Some(sent.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (mut rows, mut content) = (0, Vec::new());
    loop {
        let kind = read.read_u8().await.unwrap();
        let length = read.read_u32().await.unwrap();
        content.resize(length as usize - 4, 0);
        read.read_exact(&mut content).await.unwrap();
        rows += usize::from(kind == b'D');
        if kind == b'Z' {
            break;
        }
    }
    assert_eq!(rows, STATEMENTS);
    drop((read, sender.await.unwrap()));
    world.quiet().await;
    assert!(peak() - before < 64 * 1024, "{} KiB more", peak() - before);
    // Each is on record, most of them with others in one event.
    let events = world.of(&Code::DatabaseQuery);
    let counts =
        events.iter().map(|event| event.fields.get("count").map_or(1, |count| count.as_u64().unwrap()));
    assert_eq!(counts.sum::<u64>(), STATEMENTS as u64 + 2);
    assert!(events.len() < STATEMENTS / 10, "{}", events.len());
    let folded = events.iter().find(|event| event.fields.contains_key("count")).unwrap();
    let texts = folded.fields["statement"].as_str().unwrap().lines();
    assert!(texts.clone().all(|text| text == "select 1"));
    assert_eq!(folded.fields["sha256s"].as_array().unwrap().len(), texts.count());
}

/// What this process has in memory now, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_takes_little_memory() {
    let _turn = TURN.lock().await;
    let world = World::new("max_db_sessions: 1000");
    world.postgres.sql("create role app login");
    let mut sessions = Vec::new();
    let mut open = async |count: usize| {
        for _ in 0..count {
            let mut client = Client::ready(&world, "app").await;
            client.query("select 1").await;
            sessions.push(client);
        }
        resident()
    };
    let before = open(10).await;
    let after = open(40).await;
    let asked = world.asked(Duration::from_secs(60));
    let (io, _) = tokio::io::duplex(64);
    let future = std::mem::size_of_val(&world.service.serve(io, asked));
    assert!(future < 12 * 1024, "{future} bytes");
    // It was 22 KiB each, with the client's end of this test.
    assert!(after.saturating_sub(before) < 40 * 60, "{} KiB for 40", after - before);
}
