//! What is cut ends at the server, too: a statement that catches its cancellation, and goes on when its client is gone.

use std::time::Duration;

use sallyport_audit::Code;

use crate::client::Client;
use crate::world::World;

/// Catches every cancellation, and commits a row each time round.
const STUBBORN: &[u8] =
    b"do $$ begin loop begin perform pg_sleep(0.05); exception when query_canceled then null; end; \
    insert into done values (1); commit; end loop; end $$\0";
/// Waits for [`STUBBORN`] to be on its way.
const ROWS: &str = "select count(*) > 0 from done";

fn processes(world: &World, user: &str) -> String {
    world.postgres.sql(&format!("select count(*) from pg_stat_activity where usename = '{user}'"))
}

async fn stubborn(world: &World, user: &str) -> Client {
    let mut client = Client::hello(world, &[("user", user), ("database", "postgres")]).await;
    let answers = client.answers().await;
    assert_eq!(answers[0].0, b'R', "{}", crate::client::words(&answers));
    client.say(&[(b'Q', STUBBORN)]).await;
    world.postgres.until(ROWS, "t");
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_catches_its_cancellation_ends_with_its_session() {
    let quick = Duration::from_millis(200);
    let world = World::paced("", |pace| (pace.goodbye, pace.cancelled) = (quick, quick));
    world.postgres.sql("create role app login; create table done (a int); grant all on done to app");
    // A client that is gone without a word, one that is ended by an administrator, and one that is locked.
    drop(stubborn(&world, "app").await);
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0", "it is a session until its process is gone");
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    world.postgres.sql("truncate done");
    let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    client.say(&[(b'Q', STUBBORN)]).await;
    world.postgres.until(ROWS, "t");
    assert!(world.service.end(&session, "ended by carol"));
    let text = client.end().await;
    assert!(text.contains("E 57P01 ended by carol"), "{text}");
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0");
    world.postgres.sql("truncate done");
    let client = stubborn(&world, "app").await;
    world.lock();
    let text = client.end().await;
    assert!(text.contains("call security"), "{text}");
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0");
    assert!(world.of(&Code::DatabaseBackendLeft).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_be_ended_is_told_of_and_stays_a_session() {
    let quick = Duration::from_millis(100);
    let world = World::paced("", |pace| (pace.cancelled, pace.terminated) = (quick, quick));
    world.postgres.sql("create role app login; create table done (a int); grant all on done to app");
    let client = stubborn(&world, "app").await;
    // So that the agent cannot log in to end it.
    world.postgres.sql("alter role app nologin");
    world.lock();
    client.end().await;
    let left = world.event(Code::DatabaseBackendLeft).await;
    assert!(left.message.contains("not permitted to log in"), "{}", left.message);
    let process = world.postgres.sql("select pid from pg_stat_activity where usename = 'app'");
    assert_eq!(left.fields["process"].to_string(), process);
    assert_eq!(world.service.sessions(), 1);
    // It is tried again and again.
    world.postgres.sql("alter role app login");
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0");
    assert_eq!(world.of(&Code::DatabaseBackendLeft).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_was_made_loses_its_rights_before_its_last_process_ends() {
    let quick = Duration::from_millis(100);
    let world = World::paced("create_db_user_mode: best_effort_drop", |pace| {
        (pace.cancelled, pace.terminated, pace.again) = (quick, quick, quick);
        pace.looks = 2;
    });
    world.postgres.sql(
        "create role keeper login createrole; create role reader; create table done (a int); \
         grant all on done to reader",
    );
    drop(stubborn(&world, "alice").await);
    world.quiet().await;
    world.event(Code::DatabaseUserDropped).await;
    assert_eq!(processes(&world, "alice"), "0");
    world.postgres.sql("truncate done");
    let client = stubborn(&world, "alice").await;
    // So that the agent cannot log in a second time to end it.
    world.postgres.sql("alter role alice connection limit 1");
    world.lock();
    client.end().await;
    world.event(Code::DatabaseBackendLeft).await;
    world.postgres.until("select rolcanlogin from pg_roles where rolname = 'alice'", "f");
    let roles =
        "select count(*) from pg_auth_members where member = 'alice'::regrole and roleid = 'reader'::regrole";
    assert_eq!(world.postgres.sql(roles), "0");
    world.event(Code::DatabaseUserDeactivated).await;
    // Who makes users may be allowed to end their processes.
    world.postgres.sql("grant pg_signal_backend to keeper");
    world.quiet().await;
    world.postgres.until("select count(*) from pg_roles where rolname = 'alice'", "0");
    assert_eq!(world.of(&Code::DatabaseUserDropped).len(), 2);
}
