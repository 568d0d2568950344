//! Database users that are made as people come.

use std::sync::Arc;
use std::time::Duration;

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
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(can_log_in(&world), "t", "one session is left");
    drop(one);
    world.quiet().await;
    assert_eq!(can_log_in(&world), "f");
    world.event(Code::DatabaseUserDeactivated).await;
    // Opened again, without what somebody else gave it.
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
