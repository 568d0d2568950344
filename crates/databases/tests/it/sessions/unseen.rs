//! Database users who may run what is not in the record.

use sallyport_audit::Code;

use crate::client::Client;
use crate::world::World;

async fn refused(world: &World, user: &str) -> String {
    Client::hello(
        world,
        &[("user", user), ("database", "postgres"), ("options", "-c search_path=evil,pg_catalog")],
    )
    .await
    .end()
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_run_what_is_not_on_record_is_refused_where_a_role_says_so() {
    let world = World::new("");
    world.postgres.sql(
        "create role boss superuser login; create role reached login in role boss; \
         create role runs login in role pg_execute_server_program; create role reads login; \
         create role between; grant pg_read_server_files to between; grant between to reads; \
         create role writes login noinherit in role pg_write_server_files; create role makes login createrole; \
         create role ordinary login; create role fooled login noinherit in role pg_execute_server_program; \
         create schema evil authorization fooled; \
         create function evil.pg_has_role(name, oid, text) returns bool language sql as 'select false'; \
         grant usage on schema evil to public",
    );
    // Where nothing is said they may.
    assert_eq!(Client::ready(&world, "boss").await.query("select 1").await, "T|D 1|SELECT 1|Z");
    world.set("db_unseen_sql: refused");
    for (user, why) in [
        ("boss", "it is a superuser"),
        ("reached", "it may become the superuser boss"),
        ("runs", "it is a member of pg_execute_server_program"),
        ("reads", "it is a member of pg_read_server_files"),
        ("writes", "it is a member of pg_write_server_files"),
        ("fooled", "it is a member of pg_execute_server_program"),
    ] {
        let text = refused(&world, user).await;
        assert!(text.starts_with("E 28000 prod: the database user"), "{user}: {text}");
        assert!(text.contains(why) && text.contains("db_unseen_sql: refused"), "{user}: {text}");
        assert!(text.contains("-U"), "{user}: {text}");
    }
    let event = world.event(Code::DatabaseSessionRefused).await;
    assert_eq!((event.login.as_str(), &event.fields["reason"]), ("fooled", &"unseen_sql".into()));
    let version = world.postgres.sql("show server_version_num").parse::<u32>().unwrap();
    if version < 160_000 {
        let text = refused(&world, "makes").await;
        assert!(text.contains("it has CREATEROLE"), "{text}");
    }
    assert_eq!(Client::ready(&world, "ordinary").await.query("select 1").await, "T|D 1|SELECT 1|Z");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dblink_that_a_user_may_call_is_found_in_the_sessions_own_database() {
    let world = World::new("db_unseen_sql: refused");
    world.postgres.sql("create role app login; create role may; create schema links");
    world.postgres.sql("create extension dblink schema links");
    // No user gets into the schema.
    assert_eq!(Client::ready(&world, "app").await.query("select 1").await, "T|D 1|SELECT 1|Z");
    world.postgres.sql("grant usage on schema links to may; grant may to app; alter role app noinherit");
    let text = refused(&world, "app").await;
    assert!(text.contains("it may call dblink") && text.contains("of the extension dblink"), "{text}");
    world.postgres.sql("create database other");
    let mut client = Client::hello(&world, &[("user", "app"), ("database", "other")]).await;
    let answers = client.answers().await;
    assert_eq!(answers[0].0, b'R', "{}", crate::client::words(&answers));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_takes_no_connection_from_the_session_and_is_asked_of_users_that_are_made() {
    let world = World::new("db_unseen_sql: refused, create_db_user_mode: keep");
    world.postgres.sql(
        "create role once login connection limit 1; create role keeper login createrole; create role reader; \
         create role alice nologin; create role sallyport_auto_user; grant sallyport_auto_user to alice",
    );
    // The server has room for one connection of it: the question's has ended when the session's comes.
    for _ in 0..5 {
        let mut client = Client::ready(&world, "once").await;
        assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
        client.say(&[(b'X', b"")]).await;
        assert!(client.message().await.is_none());
        world.quiet().await;
    }
    assert_eq!(Client::ready(&world, "alice").await.query("select 1").await, "T|D 1|SELECT 1|Z");
}
