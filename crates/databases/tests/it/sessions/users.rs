//! Database users that are made as people come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_audit::Code;

use crate::client::Client;
use crate::world::World;

const ALICE: &[(&str, &str)] = &[("user", "alice"), ("database", "postgres")];

async fn session(world: &World) -> Client {
    let mut client = Client::hello(world, ALICE).await;
    let answers = client.answers().await;
    assert_eq!(answers[0].0, b'R', "{}", crate::client::words(&answers));
    client
}

fn can_log_in(world: &World) -> String {
    world.postgres.sql("select rolcanlogin from pg_roles where rolname = 'alice'")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_is_made_closed_opened_and_dropped() {
    let world = World::new("create_db_user_mode: keep");
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(
        text.contains("28000 prod: the database user cannot be made: the account that makes users"),
        "{text}"
    );
    world.postgres.sql("create role keeper login createrole");
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(text.contains("role \"reader\" does not exist"), "{text}");
    assert_eq!(can_log_in(&world), "", "nothing is left of what failed");
    world.postgres.sql("create role reader; create role other");
    let mut one = session(&world).await;
    assert!(one.query("select pg_has_role('reader', 'member')").await.contains("D t"));
    let two = session(&world).await;
    assert_eq!(world.of(&Code::DatabaseUserProvisioned).len(), 1);
    drop(two);
    world.until_sessions(1).await;
    assert_eq!(can_log_in(&world), "t", "one session is left");
    drop(one);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
    world.event(Code::DatabaseUserDeactivated).await;
    // Opened again, without the role that another client granted.
    world.postgres.sql("grant other to alice");
    let mut again = session(&world).await;
    assert!(again.query("select pg_has_role('other', 'member')").await.contains("D f"));
    assert_eq!(world.of(&Code::DatabaseUserProvisioned).len(), 2);
    again.query("create temp table x (a int)").await;
    drop(again);
    world.quiet().await;
    world.set("create_db_user_mode: best_effort_drop");
    drop(session(&world).await);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "");
    world.event(Code::DatabaseUserDropped).await;
    // One that owns something stays, and is closed.
    world.postgres.sql("grant create on schema public to reader");
    let mut owner = session(&world).await;
    assert_eq!(owner.query("create table mine (a int)").await, "CREATE TABLE|Z");
    drop(owner);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
    let closed = world.of(&Code::DatabaseUserDeactivated).pop().unwrap();
    assert!(closed.fields["not_dropped"].as_str().unwrap().contains("cannot be dropped"), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_were_there_are_not_touched_and_many_come_at_once() {
    let world = World::new("create_db_user_mode: keep");
    world.postgres.sql("create role keeper login createrole; create role reader; create role alice nologin");
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(text.contains("alice is there and was not made by Sallyport"), "{text}");
    assert_eq!(can_log_in(&world), "f");
    world.postgres.sql("drop role alice");
    // The account that makes users is not made itself.
    world.serve(|database| database.admin_user = Some("alice".to_owned()));
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(text.contains("28000 prod: the database user alice makes users (admin_user)"), "{text}");
    assert_eq!(world.event(Code::DatabaseSessionRefused).await.login, "alice");
    world.serve(|_| {});
    let world = Arc::new(world);
    let come = |world: Arc<World>| async move {
        let mut client = session(&world).await;
        assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
    };
    let all: Vec<_> = (0..6).map(|_| tokio::spawn(come(Arc::clone(&world)))).collect();
    for one in all {
        one.await.unwrap();
    }
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_keep_their_roles_and_a_user_that_is_in_use_is_closed_later() {
    let world = World::paced("create_db_user_mode: keep", |pace| {
        (pace.looks, pace.again) = (10, Duration::from_millis(100));
    });
    world.postgres.sql("create role keeper login createrole; create role reader; create role other");
    let mut one = session(&world).await;
    world.give("create_db_user_mode: keep", "other");
    let refused = "28000 prod: the database user alice has sessions with other roles";
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(text.contains(refused), "{text}");
    assert_eq!(world.of(&Code::DatabaseSessionRefused).len(), 1);
    assert!(one.query("select pg_has_role('reader', 'member')").await.contains("D t"));
    // One that this agent knows nothing of, as another agent's.
    let mut elsewhere = world.postgres.begin("alice", "select pg_sleep(60)");
    let sleeps = "select count(*) from pg_stat_activity where usename = 'alice' and query like '%sleep%'";
    world.postgres.until(sleeps, "1");
    drop(one);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "t", "it is in use");
    let text = Client::hello(&world, ALICE).await.end().await;
    assert!(text.contains(refused), "{text}");
    world.postgres.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'");
    elsewhere.wait().unwrap();
    world.event(Code::DatabaseUserDeactivated).await;
    assert_eq!(can_log_in(&world), "f");
    let mut two = session(&world).await;
    let has = two.query("select pg_has_role('other', 'member'), pg_has_role('reader', 'member')").await;
    assert!(has.contains("D t\0\0\0\u{1}f"), "{has:?}");
    assert_eq!(world.of(&Code::DatabaseUserLeft), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_waits_for_ever_for_a_user() {
    let longest = Duration::from_secs(2);
    let world = World::paced("create_db_user_mode: keep", |pace| pace.user = longest);
    world.postgres.sql("create role keeper login createrole; create role reader");
    let mut holder =
        world.postgres.begin("postgres", "select pg_advisory_lock(7237125411902861), pg_sleep(300)");
    world.postgres.until("select count(*) from pg_locks where locktype = 'advisory' and granted", "1");
    let begun = Instant::now();
    let (one, two) = (Client::hello(&world, ALICE).await, Client::hello(&world, ALICE).await);
    for text in [one.end().await, two.end().await] {
        assert!(text.contains("57P03 prod: the database answers too late"), "{text}");
    }
    // The server itself would have made them wait for ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    world.quiet().await;
    let holds = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted";
    world.postgres.sql(holds);
    holder.wait().unwrap();
    drop(session(&world).await);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_asked_for_the_database_that_is_dialled() {
    let world = World::new("create_db_user_mode: keep");
    world.postgres.sql("create role scram login createrole password 'x'; create role reader");
    world.cluster.passwords.lock().unwrap().insert("scram".to_owned(), "x".to_owned());
    world.serve(|database| {
        database.login = sallyport_access::DatabaseLogin::Password;
        database.admin_user = Some("scram".to_owned());
    });
    let client = Client::hello(&world, &[("user", "alice"), ("database", "template1")]).await;
    // The server asks alice for a certificate alone.
    let said = client.end().await;
    assert!(said.contains("the database let the agent in without SCRAM"), "{said}");
    let asked = world.cluster.asked.lock().unwrap().clone();
    let expected = [("scram", "postgres"), ("alice", "template1")];
    assert_eq!(asked[..2], expected.map(|(user, name)| (user.to_owned(), name.to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_without_a_client_keeps_no_user_open() {
    let goodbye = Duration::from_millis(200);
    let world = World::paced("create_db_user_mode: keep", |pace| pace.goodbye = goodbye);
    world.postgres.sql("create role keeper login createrole; create role reader");
    let mut client = session(&world).await;
    client.say(&[(b'Q', b"select pg_sleep(300)\0")]).await;
    let sleeps = "select count(*) from pg_stat_activity where usename = 'alice' and wait_event = 'PgSleep'";
    world.postgres.until(sleeps, "1");
    drop(client);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
    assert_eq!(world.postgres.sql("select count(*) from pg_stat_activity where usename = 'alice'"), "0");
}
