//! How clients begin that are not the newest psql.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::{Database, DatabaseName, DatabaseTls, DatabaseTlsMode};
use sallyport_audit::Code;
use sallyport_databases::postgres::message::encode;
use sallyport_databases::postgres::startup::{self, Startup};
use sallyport_databases::service::{ConnectError, Directory, probe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};

use crate::client::{Client, kinds};
use crate::world::World;

/// A configuration that shows no certificate, as a probe has it.
fn stranger(world: &World) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(world.cluster.pki.server_ca.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(sallyport_sal::tls::provider())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_health_is_asked_has_nothing_to_write_of_it() {
    let world = World::new("");
    let database = world.cluster.database(&DatabaseName::new("prod").unwrap()).unwrap();
    let before = world.postgres.log();
    let patience = Duration::from_secs(10);
    for _ in 0..3 {
        probe(&database, Some(stranger(&world)), patience).await.unwrap();
    }
    // Whatever it would write is written when the process has ended that would write it.
    world.postgres.until("select count(*) from pg_stat_activity where backend_type = 'client backend'", "1");
    let after = world.postgres.log();
    assert_eq!(after.strip_prefix(&before), Some(""), "{after}");
    let plain = Database {
        tls: DatabaseTls { mode: DatabaseTlsMode::Disabled, ..database.tls.clone() },
        ..Database::clone(&database)
    };
    // Also where the server would take TLS.
    probe(&plain, None, patience).await.unwrap();
    world.postgres.sql("alter system set ssl = off");
    world.postgres.sql("select pg_reload_conf()");
    world.postgres.until("show ssl", "off");
    // Each process reads its settings when it begins.
    let before = world.postgres.log();
    probe(&plain, None, patience).await.unwrap();
    assert!(
        probe(&database, Some(stranger(&world)), patience)
            .await
            .unwrap_err()
            .to_string()
            .contains("takes no TLS")
    );
    let after = world.postgres.log();
    assert_eq!(after.strip_prefix(&before), Some(""), "{after}");
    world.postgres.sql("alter system set ssl = on");
    world.postgres.sql("select pg_reload_conf()");
    world.postgres.until("show ssl", "on");
    // What no session could begin with is found.
    let renamed = Database {
        tls: DatabaseTls { server_name: Some("elsewhere.example.com".to_owned()), ..database.tls.clone() },
        ..Database::clone(&database)
    };
    let problem = probe(&renamed, Some(stranger(&world)), patience).await.unwrap_err().to_string();
    assert!(problem.contains("TLS connection") && problem.contains("invalid peer certificate"), "{problem}");
    world.serve(|database| database.address = "127.0.0.1:1".to_owned());
    let gone = world.cluster.database(&DatabaseName::new("prod").unwrap()).unwrap();
    assert!(
        probe(&gone, Some(stranger(&world)), patience)
            .await
            .unwrap_err()
            .to_string()
            .contains("cannot be reached")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_time_bounds_the_whole_question_after_a_server_and_without_tls_nothing_is_asked() {
    let world = World::new("");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let prod = world.cluster.database(&DatabaseName::new("prod").unwrap()).unwrap();
    let database = Database { address, ..Database::clone(&prod) };
    let patience = Duration::from_secs(1);
    // Its answer takes most of the time, and its part in TLS as much again.
    let slow = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut said = [0; 8];
        stream.read_exact(&mut said).await?;
        tokio::time::sleep(patience * 7 / 10).await;
        stream.write_all(&[startup::ACCEPTED]).await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.map(|_| listener)
    });
    let begun = Instant::now();
    let problem = probe(&database, Some(stranger(&world)), patience).await.unwrap_err();
    let took = begun.elapsed();
    assert!(matches!(problem, ConnectError::Unreachable { .. }), "{problem}");
    assert!(took >= patience && took < patience * 16 / 10, "{took:?}");
    let listener = slow.await.unwrap().unwrap();
    // Without TLS the server hears nothing, and may take its time to close.
    let silent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.map(|_| (said, stream))
    });
    let plain =
        Database { tls: DatabaseTls { mode: DatabaseTlsMode::Disabled, ..database.tls.clone() }, ..database };
    probe(&plain, None, patience).await.unwrap();
    assert_eq!(silent.await.unwrap().unwrap().0, b"");
}

/// GSSENCRequest.
const GSSAPI: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

fn hello(minor: u16, more: &[(&str, &str)]) -> Vec<u8> {
    let all = [&[("user", "app"), ("database", "postgres")], more].concat();
    let parameters = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Startup { minor, parameters }.to_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_that_is_asked_for_is_declined_and_the_session_begins_on_the_same_connection() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    for ask in [GSSAPI.to_vec(), startup::ask_for_tls()] {
        client.io.write_all(&ask).await.unwrap();
        assert_eq!(client.io.read_u8().await.unwrap(), b'N');
    }
    // As pgx says it that reads the service of `sallyport db login`; a server takes it for a setting that it does not have.
    client.io.write_all(&hello(0, &[("gssencmode", "disable")])).await.unwrap();
    assert!(kinds(&client.answers().await).starts_with('R'));
    assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_change_the_protocol_is_negotiated_down() {
    let world = World::new("");
    world.postgres.sql("create role app login; alter role app set log_statement = 'all'");
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    client.io.write_all(&hello(9, &[("_pq_.compression", "zstd")])).await.unwrap();
    let answers = client.answers().await;
    assert!(kinds(&answers).starts_with("vR") && kinds(&answers).matches('v').count() == 1, "{answers:?}");
    let (newest, names) = answers[0].1.split_at(4);
    // What the server has: 3.0 before PostgreSQL 18, and never more than is understood here.
    assert!(newest[..2] == [0, 3] && newest[3] <= 2, "{newest:?}");
    assert_eq!(names, b"\0\0\0\x01_pq_.compression\0");
    assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
    // A client that asks for nothing new hears nothing of it.
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    client.io.write_all(&hello(0, &[])).await.unwrap();
    assert!(kinds(&client.answers().await).starts_with('R'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_server_hears_nothing_of_what_is_not_understood_here() {
    let world = World::new("");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.serve(|database| {
        (database.address, database.tls.mode) = (address, DatabaseTlsMode::Disabled);
    });
    // It would agree to everything.
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u32().await.unwrap();
        let mut said = vec![0; usize::try_from(length).unwrap() - 4];
        stream.read_exact(&mut said).await.unwrap();
        let ready = [encode(b'R', &[0; 4]), encode(b'K', b"\0\0\0\x01key1"), encode(b'Z', b"I")].concat();
        stream.write_all(&ready).await.unwrap();
        (stream, said)
    });
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    client.io.write_all(&hello(9, &[("_pq_.compression", "zstd")])).await.unwrap();
    let answers = client.answers().await;
    assert_eq!(kinds(&answers), "vRKZ");
    assert_eq!(answers[0].1, b"\0\x03\0\x02\0\0\0\x01_pq_.compression\0");
    let (_stream, said) = server.await.unwrap();
    let text = String::from_utf8_lossy(&said);
    assert!(said.starts_with(&[0, 3, 0, 2]) && text.contains("app") && !text.contains("_pq_"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replication_is_refused_with_what_to_do() {
    let world = World::new("");
    world.postgres.sql("create role app login replication");
    for value in ["true", "database", "on", "1", "yes"] {
        let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
        client.io.write_all(&hello(0, &[("replication", value)])).await.unwrap();
        let text = client.end().await;
        assert!(text.starts_with("E 0A000 replication connections (pg_basebackup"), "{value}: {text}");
        assert!(text.contains("pg_dump") && text.contains("past Sallyport"), "{value}: {text}");
    }
    assert_eq!(world.of(&Code::DatabaseSessionRefused).len(), 5);
    let mut client = Client::dial(&world, world.asked(Duration::from_secs(3600)));
    client.io.write_all(&hello(0, &[("replication", "off")])).await.unwrap();
    assert!(kinds(&client.answers().await).starts_with('R'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_before_the_session_is_refused_in_it() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    for kind in [b'p', b'R', b'K', b'v', b'Z', 0] {
        let mut client = Client::ready(&world, "app").await;
        client.io.write_all(&encode(kind, b"secret\0")).await.unwrap();
        let text = client.end().await;
        assert!(text.starts_with("E 08P01"), "{kind}: {text}");
    }
    world.quiet().await;
    assert_eq!(world.of(&Code::DatabaseMalformed).len(), 6);
}
