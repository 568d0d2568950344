//! What is cut ends at the server, too: a statement that catches its cancellation, and goes on when its client is gone.

use std::time::Duration;

use sallyport_audit::Code;

use crate::client::Client;
use crate::world::World;

/// Catches every cancellation, and commits a row each time round.
const STUBBORN: &[u8] =
    b"do $$ begin loop begin perform pg_sleep(0.05); exception when query_canceled then null; end; \
    insert into done values (1); commit; end loop; end $$\0";
/// The same, which needs none of the rights that a user that was made loses.
const ENDLESS: &[u8] =
    b"do $$ begin loop begin perform pg_sleep(0.05); exception when query_canceled then null; end; end loop; end $$\0";
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

async fn endless(world: &World, user: &str) -> Client {
    let mut client = Client::ready(world, user).await;
    client.say(&[(b'Q', ENDLESS)]).await;
    let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    world.postgres.until(sleeps, "1");
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
    assert!(world.live.end(&session, "ended by carol"));
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
async fn credentials_are_looked_after_for_as_long_as_a_session_runs() {
    let world = World::paced("", |pace| pace.renews = Duration::from_millis(10));
    world.postgres.sql("create role app login; create role other login");
    let client = Client::ready(&world, "app").await;
    let renewed = || world.cluster.renewed.lock().unwrap().clone();
    world.renewals(3).await;
    assert!(renewed().iter().all(|user| user == "app"));
    drop(client);
    world.quiet().await;
    // None is asked for between two sessions: the next one asks for all that are there by its end.
    let then = renewed().len();
    let other = Client::ready(&world, "other").await;
    world.renewals(then + 3).await;
    assert_eq!(renewed().iter().filter(|user| *user == "app").count(), then);
    drop(other);
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
    assert!(
        world.cluster.held.lock().unwrap().iter().any(|user| user == "app"),
        "what is held is tried, too"
    );
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
    let client = endless(&world, "alice").await;
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

/// Runs for as long as the table is empty, and commits then.
const WAITS: &[u8] =
    b"do $$ begin while not exists (select from go) loop perform pg_sleep(0.01); commit; end loop; \
    insert into done values (1); end $$\0";
const RUNS: &str = "select count(*) from pg_stat_activity where usename = 'app' and query like 'do %'";

async fn says_goodbye_in_the_middle(world: &World) {
    let mut client = Client::ready(world, "app").await;
    client.say(&[(b'Q', WAITS)]).await;
    world.postgres.until(RUNS, "1");
    client.say(&[(b'X', b"")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_finishes_in_whose_middle_the_client_says_goodbye() {
    let quick = Duration::from_millis(100);
    let world = World::paced("max_db_sessions: 2", |pace| {
        (pace.goodbye, pace.cancelled, pace.terminated) = (quick, quick, quick);
    });
    world.postgres.sql(
        "create role app login; create table go (a int); create table done (a int); grant all on go, done to app",
    );
    says_goodbye_in_the_middle(&world).await;
    let session = world.event(Code::DatabaseSessionStart).await.session_id;
    // One that came later and is ended by force has gone by every wait that there is.
    drop(stubborn(&world, "app").await);
    world.until_sessions(1).await;
    assert_eq!(processes(&world, "app"), "1");
    world.postgres.sql("truncate done");
    let other = Client::ready(&world, "app").await;
    let text = Client::hello(&world, &[("user", "app"), ("database", "postgres")]).await.end().await;
    assert!(text.starts_with("E 53300"), "it keeps its place: {text}");
    drop(other);
    world.postgres.sql("insert into go values (1)");
    world.quiet().await;
    assert_eq!(world.postgres.sql("select count(*) from done"), "1");
    let of = |code| world.of(&code).into_iter().find(|event| event.session_id == session);
    let query = of(Code::DatabaseQuery).unwrap();
    assert_eq!(query.fields.get("unanswered"), None, "its answer is on record: {query:?}");
    assert_eq!(of(Code::DatabaseSessionEnd).unwrap().message, "the client said goodbye");
    assert!(of(Code::DatabaseSessionCut).is_none() && world.of(&Code::DatabaseBackendLeft).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_without_end_is_not_read_for_a_client_that_has_said_goodbye() {
    let world = World::paced("", |pace| pace.goodbye = Duration::from_millis(100));
    world.postgres.sql("create role app login");
    let mut client = Client::ready(&world, "app").await;
    let sql = b"select repeat('x', 1000), generate_series(1, 1000000000)\0";
    client.say(&[(b'Q', sql), (b'X', b"")]).await;
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0");
    let query = world.event(Code::DatabaseQuery).await;
    assert_eq!(query.fields["unanswered"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_after_a_goodbye_ends_with_a_lock_and_at_its_bound() {
    let quick = Duration::from_millis(100);
    let world = World::paced("", |pace| {
        (pace.goodbye, pace.cancelled, pace.finishes) = (quick, quick, Duration::from_secs(1));
    });
    world.postgres.sql(
        "create role app login; create table go (a int); create table done (a int); grant all on go, done to app",
    );
    says_goodbye_in_the_middle(&world).await;
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "0");
    let cut = world.event(Code::DatabaseSessionCut).await;
    assert_eq!(cut.message, "the client has said goodbye, and its statement has run for 1 s since");
    says_goodbye_in_the_middle(&world).await;
    world.lock();
    world.quiet().await;
    assert_eq!(
        (processes(&world, "app"), world.postgres.sql("select count(*) from done")),
        ("0".into(), "0".into())
    );
    let cut = world.of(&Code::DatabaseSessionCut);
    assert!(cut.len() == 2 && cut.iter().any(|event| event.message.contains("call security")), "{cut:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_ended_is_given_up_at_last() {
    let quick = Duration::from_millis(100);
    let world = World::paced("", |pace| {
        (pace.cancelled, pace.terminated, pace.gives_up) = (quick, quick, Duration::from_millis(500));
    });
    world.postgres.sql("create role app login; create table done (a int); grant all on done to app");
    let client = stubborn(&world, "app").await;
    world.postgres.sql("alter role app nologin");
    drop(client);
    world.event(Code::DatabaseBackendLeft).await;
    world.quiet().await;
    assert_eq!(processes(&world, "app"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_comes_again_is_closed_again_while_an_old_process_goes_on() {
    let quick = Duration::from_millis(100);
    let world = World::paced("create_db_user_mode: keep", |pace| {
        (pace.cancelled, pace.terminated, pace.again) = (quick, quick, quick);
        pace.looks = 2;
    });
    world.postgres.sql(
        "create role keeper login createrole; create role reader; \
         revoke execute on function pg_terminate_backend from public",
    );
    let roles =
        "select count(*) from pg_auth_members where member = 'alice'::regrole and roleid = 'reader'::regrole";
    drop(endless(&world, "alice").await);
    world.postgres.until(roles, "0");
    let closed = async |times: usize| {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while world.of(&Code::DatabaseUserDeactivated).len() < times {
            assert!(std::time::Instant::now() < deadline, "it was not closed {times} times");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    closed(1).await;
    let mut again = Client::ready(&world, "alice").await;
    assert_eq!(world.postgres.sql(roles), "1");
    again.say(&[(b'X', b"")]).await;
    drop(again);
    world.postgres.until(roles, "0");
    closed(2).await;
    assert_eq!(processes(&world, "alice"), "1", "it went on all the time");
    world.postgres.sql("grant execute on function pg_terminate_backend to public");
    world.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'");
    world.quiet().await;
}
