//! One user does not take a database from the others.

use std::time::Duration;

use sallyport_access::DatabaseName;
use sallyport_audit::Code;
use sallyport_databases::service::Asked;

use crate::client::{Client, words};
use crate::world::World;

const APP: [(&str, &str); 2] = [("user", "app"), ("database", "postgres")];
/// As long as the test has it run, whatever is cancelled.
const STUBBORN: &[u8] =
    b"do $$ begin loop begin perform pg_sleep(0.05); exception when query_canceled then null; end; end loop; end $$\0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_so_many_sessions_with_a_database_and_no_more() {
    let world = World::new("max_db_sessions: 3");
    world.postgres.sql("create role app login");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(Client::ready(&world, "app").await);
    }
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    let text = Client::hello_for(&world, asked, &APP).await.end().await;
    assert!(text.starts_with("E 53300 alice has 3 sessions with prod through this agent"), "{text}");
    assert!(text.contains("max_db_sessions") && text.contains("pool"), "{text}");
    let event = world.event(Code::DatabaseSessionRefused).await;
    assert_eq!((event.session_id.as_str(), event.user.as_str()), (session.to_string().as_str(), "alice"));
    assert_eq!((&event.fields["reason"], &event.fields["limit"]), (&"too_many_sessions".into(), &3.into()));
    // Nothing of it has come to the server, and nothing was recorded.
    assert_eq!(world.postgres.sql("select count(*) from pg_stat_activity where usename = 'app'"), "3");
    assert_eq!(world.live.list().len(), 3);
    // Another database of the cluster has places of its own.
    world.serve(|database| database.name = DatabaseName::new("other").unwrap());
    let asked = world.asked(Duration::from_secs(3600));
    let elsewhere = Asked { database: DatabaseName::new("other").unwrap(), ..asked };
    let mut other = Client::hello_for(&world, elsewhere, &APP).await;
    let answers = other.answers().await;
    assert!(words(&answers).starts_with('R'), "{}", words(&answers));
    // And what has ended has none.
    drop(held.pop());
    world.until_sessions(3).await;
    held.push(Client::ready(&world, "app").await);
    assert_eq!(world.of(&Code::DatabaseSessionRefused).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_its_place_until_its_process_at_the_server_is_gone() {
    let quick = Duration::from_millis(100);
    let world = World::paced("max_db_sessions: 1", |pace| (pace.cancelled, pace.terminated) = (quick, quick));
    world.postgres.sql("create role app login");
    let mut client = Client::ready(&world, "app").await;
    client.say(&[(b'Q', STUBBORN)]).await;
    world.postgres.until(super::SLEEPS, "1");
    // So that the agent cannot log in to end it.
    world.postgres.sql("alter role app nologin");
    drop(client);
    world.event(Code::DatabaseBackendLeft).await;
    let text = Client::hello(&world, &APP).await.end().await;
    assert!(text.starts_with("E 53300 alice has 1 sessions"), "{text}");
    world.postgres.sql("alter role app login");
    world.quiet().await;
    Client::ready(&world, "app").await;
}
