//! Sessions that end before their time: each says so to its client, in an event and in its recording.

use std::time::{Duration, Instant};

use sallyport_audit::Code;
use sallyport_audit::recording::{Body, Exit};
use time::OffsetDateTime;

use crate::client::Client;
use crate::sessions::SLEEPS;
use crate::world::World;

fn sessions(world: &World) -> String {
    world.postgres.sql("select count(*) from pg_stat_activity where usename = 'app'")
}

/// Waits until the server has no session of app's any more.
async fn gone(world: &World) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while sessions(world) != "0" {
        assert!(Instant::now() < deadline, "a session is left at the server");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_a_limit_and_an_administrator_cut_sessions() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    // In the middle of a statement, which is ended at the server, too.
    client.say(&[(b'Q', b"select pg_sleep(600)\0")]).await;
    world.postgres.until(SLEEPS, "1");
    // A change that refuses nothing ends nothing. No event tells when a session has looked at it.
    world.set("client_idle_timeout: 1h");
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.lock();
    let text = client.end().await;
    assert!(text.starts_with("E 57P01") && text.contains("call security"), "{text}");
    gone(&world).await;
    world.quiet().await;
    let cut = world.event(Code::DatabaseSessionCut).await;
    assert!(cut.message.contains("call security"), "{}", cut.message);
    let unanswered = world.of(&Code::DatabaseQuery);
    assert_eq!(unanswered[0].fields["statement"], "select pg_sleep(600)");
    assert_eq!(unanswered[0].fields["unanswered"], true);
    let frames = world.recording(&session);
    assert!(matches!(&frames.last().unwrap().body, Body::Exit(Exit::Cut(why)) if why.contains("security")));
    let text = Client::hello(&world, &[("user", "app")]).await.end().await;
    assert!(text.starts_with("E 28000") && text.contains("call security"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_time_are_kept() {
    let world = World::new("client_idle_timeout: 1s");
    world.postgres.sql("create role app login");
    // A session has the limits that held when it began, so that all of them can run at once.
    let mut idle = Client::ready(&world, "app").await;
    let idle = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(idle.query("select 1").await, "T|D 1|SELECT 1|Z");
        }
        // Who waits for an answer is not idle.
        assert_eq!(idle.query("select pg_sleep(1.2)").await, "T|D |SELECT 1|Z");
        let text = idle.end().await;
        assert!(text.starts_with("E 57P01 the client was silent for 1 s"), "{text}");
    };
    let others = async {
        world.set("max_session_duration: 1s");
        let long = Client::ready(&world, "app").await;
        let app = [("user", "app"), ("database", "postgres")];
        world.set("disconnect_expired_cert: true");
        let valid = Duration::from_secs(2);
        let mut cut = Client::hello_for(&world, world.asked(valid), &app).await;
        cut.answers().await;
        // Or it may finish.
        world.set("disconnect_expired_cert: false");
        let asked = world.asked(valid);
        let (id, expires) = (asked.session, asked.identity.valid_before);
        let mut kept = Client::hello_for(&world, asked, &app).await;
        kept.answers().await;
        let text = long.end().await;
        assert!(text.starts_with("E 57P01 the session has lasted 1 s"), "{text}");
        let text = cut.end().await;
        assert!(text.starts_with("E 57P01 your certificate has expired"), "{text}");
        while OffsetDateTime::now_utc() <= expires {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // It is decided upon again, and goes on. No event tells when it has looked.
        world.set("client_idle_timeout: 1h");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(kept.query("select 1").await, "T|D 1|SELECT 1|Z");
        assert!(world.live.end(&id, "ended by carol"));
        let text = kept.end().await;
        assert!(text.starts_with("E 57P01 ended by carol"), "{text}");
    };
    tokio::join!(idle, others);
    gone(&world).await;
    assert_eq!(world.of(&Code::DatabaseSessionCut).len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_never_reach_the_database() {
    let world = World::new("");
    world.postgres.sql("create role app login; alter role app set log_statement = 'all'");
    for bytes in [
        &b"Q\0\0\0\x10drop table t"[..],
        b"Q\xff\xff\xff\xffdrop table t\0",
        b"Z\0\0\0\x05I",
        b"p\0\0\0\x08x\0\0\0",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"B\0\0\0\x0c\0\0\0\0\0\x09\0\0",
    ] {
        let asked = world.asked(Duration::from_secs(3600));
        let session = asked.session;
        let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
        client.answers().await;
        use tokio::io::AsyncWriteExt;
        client.io.write_all(bytes).await.unwrap();
        // The agent may have ended the session by then.
        let _ = client.io.write_all(b"Q\0\0\0\x14drop table other\0").await;
        let text = client.end().await;
        assert!(text.starts_with("E 08P01"), "{text}");
        world.quiet().await;
        assert!(world.recorded(&session).iter().any(|frame| frame.starts_with("Malformed { client: true")));
    }
    gone(&world).await;
    assert_eq!(world.of(&Code::DatabaseMalformed).len(), 6);
    let log = world.postgres.log();
    assert!(!log.contains("drop table") && !log.contains("invalid"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_dies_and_clients_that_vanish_leave_nothing() {
    let short = Duration::from_millis(200);
    let mut world = World::paced("", |pace| (pace.goodbye, pace.last_words) = (short, short));
    world.postgres.sql("create role app login; create table t (a text); grant all on t to app");
    // A client that is gone in the middle of a copy.
    let mut client = Client::ready(&world, "app").await;
    client.say(&[(b'Q', b"copy t from stdin\0")]).await;
    client.message().await;
    client.say(&[(b'd', b"one\n")]).await;
    client.say(&[(b'd', b"two\n")]).await;
    drop(client);
    gone(&world).await;
    world.quiet().await;
    assert_eq!(world.postgres.sql("select count(*) from t"), "0");
    // A client that reads nothing, and is cut all the same.
    let mut slow = Client::ready(&world, "app").await;
    slow.say(&[(b'Q', b"select repeat('x', 1000) from generate_series(1, 100000)\0")]).await;
    let stuck = "select count(*) from pg_stat_activity where usename = 'app' and wait_event = 'ClientWrite'";
    world.postgres.until(stuck, "1");
    let id = world.live.list().last().unwrap().about.session_id;
    assert!(world.live.end(&id, "too slow"));
    world.quiet().await;
    gone(&world).await;
    drop(slow);
    // An administrator of the database ends one; then it is killed.
    let client = Client::ready(&world, "app").await;
    world.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
    let text = client.end().await;
    assert_eq!(text, "E 57P01 terminating connection due to administrator command");
    let mut client = Client::ready(&world, "app").await;
    client.say(&[(b'Q', b"select pg_sleep(600)\0")]).await;
    world.postgres.until(SLEEPS, "1");
    world.postgres.kill();
    let text = client.end().await;
    assert!(
        text.contains("08006 the connection to the database was lost") || text.contains("57P0"),
        "{text}"
    );
    world.quiet().await;
    let lost = world.of(&Code::DatabaseSessionLost);
    assert!(lost.iter().any(|event| event.message.contains("in the middle of a statement")), "{lost:?}");
    let text = Client::hello(&world, &[("user", "app"), ("database", "postgres")]).await.end().await;
    assert!(text.starts_with("E 57P03"), "{text}");
    assert_eq!(world.of(&Code::DatabaseSessionEnd).len(), 4);
}

/// A process that takes nothing until this is dropped, also where the test fails: a stopped one outlives its server.
struct Stopped(String);

impl Stopped {
    fn stop(process: String) -> Self {
        assert!(signal(&process, "-STOP"), "{process} is not stopped");
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(&self.0, "-CONT");
    }
}

fn signal(process: &str, signal: &str) -> bool {
    std::process::Command::new("kill").args([signal, "--", process]).status().is_ok_and(|sent| sent.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_the_cut_although_the_server_takes_nothing() {
    use tokio::io::AsyncWriteExt;
    let world = World::new("");
    world.postgres.sql("create role app login; create table t (a text); grant all on t to app");
    let mut client = Client::ready(&world, "app").await;
    client.say(&[(b'Q', b"copy t from stdin\0")]).await;
    client.message().await;
    let backend = world.postgres.sql("select pid from pg_stat_activity where usename = 'app'");
    let stopped = Stopped::stop(backend);
    let rows = [b"d\0\0\x80\0".as_slice(), &[b'x'; 0x7ffc]].concat();
    let still = Duration::from_millis(500);
    while let Ok(sent) = tokio::time::timeout(still, client.io.write_all(&rows)).await {
        sent.unwrap();
    }
    world.lock();
    let heard = tokio::time::timeout(Duration::from_secs(5), client.end()).await;
    drop(stopped);
    let text = heard.expect("the client hears nothing of the cut");
    assert!(text.contains("57P01") && text.contains("call security"), "{text}");
    world.quiet().await;
    gone(&world).await;
    assert_eq!(world.postgres.sql("select count(*) from t"), "0");
    assert_eq!(world.of(&Code::DatabaseSessionCut).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_in_the_middle_of_a_result_is_on_record() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    let sql = "select repeat('x', 1000) from generate_series(1, 1000000)";
    client.say(&[(b'Q', format!("{sql}\0").as_bytes())]).await;
    for _ in 0..100 {
        client.message().await;
    }
    drop(client);
    world.quiet().await;
    gone(&world).await;
    let query = world.event(Code::DatabaseQuery).await;
    assert_eq!((&query.fields["statement"], &query.fields["unanswered"]), (&sql.into(), &true.into()));
    world.event(Code::DatabaseSessionEnd).await;
    let frames = world.recording(&session);
    assert!(matches!(&frames.last().unwrap().body, Body::Exit(_)), "{:?}", frames.last());
    assert!(world.recorded(&session).iter().any(|frame| frame.contains("generate_series")));
}
