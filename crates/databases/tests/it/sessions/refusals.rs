//! Sessions that do not come about, and what people read then.

use std::time::Duration;

use sallyport_access::{DatabaseLogin, DatabaseName, DatabaseTlsMode};
use sallyport_audit::Code;
use sallyport_databases::service::{Asked, Came};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, words};
use crate::world::{Pki, World};

async fn refused(world: &World, parameters: &[(&str, &str)]) -> String {
    Client::hello(world, parameters).await.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_reads_why() {
    let world = World::new("");
    let text = refused(&world, &[("user", "forbidden"), ("database", "x")]).await;
    assert!(text.starts_with("E 28000 alice may not use the database prod as \"forbidden\""), "{text}");
    assert!(text.contains("sallyport db ls"), "{text}");
    let event = world.event(Code::DatabaseSessionRefused).await;
    assert_eq!(
        (event.user.as_str(), event.login.as_str(), event.node.as_str()),
        ("alice", "forbidden", "prod")
    );
    assert!(refused(&world, &[]).await.contains("no database user was given"));
    let text = refused(&world, &[("user", "app"), ("replication", "database")]).await;
    assert!(text.starts_with("E 0A000 replication"), "{text}");
    let asked = world.asked(Duration::from_secs(3600));
    let elsewhere =
        sallyport_databases::service::Asked { database: DatabaseName::new("other").unwrap(), ..asked };
    let text = Client::hello_for(&world, elsewhere, &[("user", "app")]).await.end().await;
    assert!(text.starts_with("E 3D000 the agent agent-1 does not serve other"), "{text}");
    let text = refused(&world, &[("user", "denied"), ("database", "postgres")]).await;
    assert!(text.contains("28000 prod: the authority denies it"), "{text}");
    // The server's own words.
    let text = refused(&world, &[("user", "missing"), ("database", "postgres")]).await;
    assert!(text.contains("role \"missing\" does not exist"), "{text}");
    world.postgres.sql("create role app login");
    let text = refused(&world, &[("user", "app"), ("database", "nothing")]).await;
    assert!(text.contains("3D000 database \"nothing\" does not exist"), "{text}");
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    client.io.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(client.end().await.starts_with("E 08P01"));
    world.event(Code::DatabaseMalformed).await;
    world.quiet().await;
    world.service.drain(Duration::ZERO).await;
    assert!(refused(&world, &[("user", "app")]).await.contains("being stopped"));
}

/// Where no authority can be asked, none is proven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_begins_without_the_factor_that_roles_demand() {
    let world = World::new("require_session_mfa: yes");
    world.postgres.sql("create role app login");
    let text = refused(&world, &[("user", "app"), ("database", "postgres")]).await;
    assert!(text.starts_with("E 28000 a second factor has to be proven before this session"), "{text}");
    let event = world.event(Code::DatabaseSessionRefused).await;
    assert_eq!(event.fields["reason"], "factor_unknown");
    assert!(world.of(&Code::DatabaseSessionStart).is_empty());
    world.set("require_session_mfa: no");
    let parameters = [("user", "app"), ("database", "postgres")];
    let mut client = Client::hello(&world, &parameters).await;
    assert!(words(&client.answers().await).starts_with('R'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_by_a_proxy_needs_a_permit_and_roles_that_let_proxies_see() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    world.postgres.sql("create role unpermitted login");
    let by_proxy = || Asked { came: Came::ByProxy, ..world.asked(Duration::from_secs(3600)) };
    let say = async |asked: Asked, user: &str| {
        let mut client = Client::hello_for(&world, asked, &[("user", user), ("database", "postgres")]).await;
        words(&client.answers().await)
    };
    // Each session has its own, also where the credentials are there already.
    for _ in 0..2 {
        let text = say(by_proxy(), "app").await;
        assert!(text.starts_with('R'), "{text}");
    }
    assert_eq!(std::mem::take(&mut *world.cluster.permitted.lock().unwrap()), [Came::ByProxy; 2]);
    let text = say(by_proxy(), "unpermitted").await;
    assert!(text.starts_with("E 28000 prod: the authority permits no such session"), "{text}");
    let seen = world.postgres.sql("select count(*) from pg_stat_activity where usename = 'unpermitted'");
    assert_eq!(seen, "0");
    world.cluster.permitted.lock().unwrap().clear();

    let text = say(world.asked(Duration::from_secs(3600)), "app").await;
    assert!(text.starts_with('R'), "{text}");
    world.set("db_end_to_end: required");
    let text = say(world.asked(Duration::from_secs(3600)), "app").await;
    assert!(text.starts_with('R'), "{text}");
    let text = say(by_proxy(), "app").await;
    assert!(text.starts_with("E 28000 your roles want sessions with prod end to end"), "{text}");
    assert!(text.contains("sallyport db connect prod"), "{text}");
    assert!(world.cluster.permitted.lock().unwrap().is_empty(), "the authority was not asked");
    let started = world.of(&Code::DatabaseSessionStart);
    let came: Vec<_> = started.iter().map(|event| event.fields["came"].as_str().unwrap()).collect();
    assert_eq!(came, ["by_proxy", "by_proxy", "end_to_end", "end_to_end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_the_right_one_gets_no_login() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let app = [("user", "app"), ("database", "postgres")];
    world.serve(|database| database.tls.server_name = Some("db.example.com".to_owned()));
    let text = refused(&world, &app).await;
    assert!(text.starts_with("E 08006") && text.contains("tls.server_name"), "{text}");
    world.serve(|database| database.tls.ca_pem = Some(Pki::new().server_ca.clone()));
    let text = refused(&world, &app).await;
    assert!(text.starts_with("E 08006") && text.contains("invalid peer certificate"), "{text}");
    world.serve(|database| database.address = "127.0.0.1:1".to_owned());
    let text = refused(&world, &app).await;
    assert!(text.starts_with("E 57P03 prod: the database at 127.0.0.1:1 cannot be reached"), "{text}");
    world.postgres.sql("alter system set ssl = off");
    world.postgres.sql("select pg_reload_conf()");
    world.serve(|_| {});
    let mut text = String::new();
    // The server reads its settings anew when it comes to it.
    world.postgres.until("show ssl", "off");
    for _ in 0..500 {
        text = refused(&world, &app).await;
        if text.contains("takes no TLS") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(text.contains("takes no TLS") && text.contains("ssl = on"), "{text}");
    assert!(world.of(&Code::DatabaseSessionLost).len() >= 4);
    world.serve(|database| database.tls.mode = DatabaseTlsMode::Disabled);
    assert_eq!(Client::ready(&world, "app").await.query("select 1").await, "T|D 1|SELECT 1|Z");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_shown_to_no_client() {
    let world = World::new("");
    world.postgres.sql("create role scram login password 'pen,cil='; create role plain login password 'x'");
    world.postgres.sql("set password_encryption = md5; create role md5 login password 'x'");
    let as_user = |user| [("user", user), ("database", "postgres")];
    let text = refused(&world, &as_user("scram")).await;
    assert!(text.contains("asks for a password, and this database is logged in to by certificate"), "{text}");
    world.serve(|database| database.login = DatabaseLogin::Password);
    let text = refused(&world, &as_user("scram")).await;
    assert!(text.contains("password file has none"), "{text}");
    let give = |user: &str, password: &str| {
        world.cluster.passwords.lock().unwrap().insert(user.to_owned(), password.to_owned());
    };
    give("scram", "wrong");
    let text = refused(&world, &as_user("scram")).await;
    assert!(text.contains("password authentication failed"), "{text}");
    give("scram", "pen,cil=");
    give("plain", "x");
    give("md5", "x");
    assert_eq!(Client::ready(&world, "scram").await.query("select 1").await, "T|D 1|SELECT 1|Z");
    assert!(
        refused(&world, &as_user("plain")).await.contains("the password in plain text, which is not used")
    );
    assert!(refused(&world, &as_user("md5")).await.contains("an MD5 of the password, which is not used"));
    assert!(!world.postgres.log().contains("wrong"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_recorded_is_refused_where_it_must_be() {
    let world = World::new("record_session: best_effort");
    world.postgres.sql("create role app login");
    world.lose_recordings();
    assert_eq!(Client::ready(&world, "app").await.query("select 1").await, "T|D 1|SELECT 1|Z");
    assert_eq!(world.event(Code::RecordingFailed).await.fields["policy"], "best_effort");
    world.set("record_session: strict");
    let text = refused(&world, &[("user", "app"), ("database", "postgres")]).await;
    assert!(text.starts_with("E 58000 this session has to be recorded and cannot be"), "{text}");
    world.event(Code::DatabaseSessionRefused).await;
}
