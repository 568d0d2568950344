//! One user's connections do not keep other users out.

use sallyport_access::{HostId, HostRole};
use sallyport_databases::postgres::startup::{self, CancelKey, Startup};
use sallyport_wire::alpn;
use sallyport_wire::tunnel::{self, Tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::Code;

use super::rig::{PATIENCE, Pair, Rig, rest, role, until};
use crate::config::Limits;

const FEW: usize = 3;
/// `session.refused`.
const REFUSED: &str = "SP2006W";
/// `db.session.refused`.
const DATABASE_REFUSED: &str = "SP2202W";

async fn few() -> Rig {
    let limits = Limits { connections_per_address: 2, connections_per_user: FEW, ..Limits::default() };
    Rig::with(limits).await
}

/// A connection of a database client that has said nothing yet.
async fn database(rig: &Rig, pair: &Pair) -> TlsStream<TcpStream> {
    let stream = rig.tls_to_proxy(Some(pair), &[alpn::POSTGRESQL]).await;
    stream.expect("the address has room")
}

/// What a database client reads to its hello, in words.
async fn answer(mut stream: TlsStream<TcpStream>) -> String {
    let parameters = vec![("user".to_owned(), "app".to_owned())];
    stream.write_all(&Startup { minor: 0, parameters }.to_bytes()).await.unwrap();
    String::from_utf8_lossy(&rest(&mut stream).await).into_owned()
}

/// Opens as many connections as a user may have, of all kinds.
async fn fill(rig: &Rig, pair: &Pair) -> Vec<TlsStream<TcpStream>> {
    let mut held = Vec::new();
    for count in 1..=FEW {
        held.push(database(rig, pair).await);
        until("it to be counted", || rig.service.limiter.of_user("alice") == count).await;
    }
    held
}

#[tokio::test]
async fn a_user_with_all_connections_that_one_may_have_leaves_the_address_to_others() {
    let rig = few().await;
    let (alice, bob) = (rig.user("alice"), rig.user("bob"));
    let mut held = fill(&rig, &alice).await;
    // More than the address may have in all.
    for _ in 0..4 {
        let said = answer(database(&rig, &alice).await).await;
        assert!(said.contains("53300") && said.contains("3 connections to this proxy"), "{said}");
        assert!(said.contains("proxy.limits.connections_per_user") && said.contains("pool"), "{said}");
    }
    let said = answer(database(&rig, &bob).await).await;
    assert!(said.contains("3D000"), "bob is served: {said}");
    // Once, and not for each.
    let told = |event: &serde_json::Value| {
        (&event["code"], &event["user"]) == (&REFUSED.into(), &"alice".into())
            && event["fields"]["reason"] == "too_many_connections"
    };
    until("it to be on record", || rig.waiting_events().iter().any(told)).await;
    assert_eq!(rig.waiting_events().iter().filter(|event| told(event)).count(), 1);
    // What runs may be cancelled, and ends in order.
    let mut stream = database(&rig, &alice).await;
    stream.write_all(&startup::cancel(&CancelKey { process: 7, secret: vec![1; 4] })).await.unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    held.pop();
    until("room for another", || rig.service.limiter.of_user("alice") < FEW).await;
    let said = answer(database(&rig, &alice).await).await;
    assert!(said.contains("3D000"), "{said}");
}

#[tokio::test]
async fn other_clients_of_a_user_with_too_many_connections_are_told_so() {
    use sallyport_ssh::client::{Credentials, Settings, connect_to_proxy};
    let rig = few().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let held = fill(&rig, &alice).await;
    let status = rig.open(&alice, "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("proxy.limits.connections_per_user"), "{status:?}");
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    let credentials = Credentials::from_openssh(&alice.ssh_key, &alice.ssh_certificate).unwrap();
    let settings = || Settings {
        login: "alice".to_owned(),
        host: "127.0.0.1".to_owned(),
        trust: std::sync::Arc::new(rig.trust()),
        keepalive: None,
        agent: None,
    };
    assert!(connect_to_proxy(tcp, &credentials, settings()).await.is_err());
    let told = |event: &serde_json::Value| event["fields"]["reason"] == "too_many_connections";
    until("it to be on record", || rig.waiting_events().iter().any(told)).await;
    drop(held);
    until("room for another", || rig.service.limiter.of_user("alice") == 0).await;
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    connect_to_proxy(tcp, &credentials, settings()).await.unwrap().disconnect().await;
    assert!(rig.open(&alice, "web-1", "deploy").await.is_ok());
}

#[tokio::test]
async fn tunnels_of_hosts_count_neither_for_users_nor_for_their_address() {
    let rig = few().await;
    let mut tunnels = Vec::new();
    // More than the address may have.
    for number in 0..6 {
        let id = HostId::new();
        let pair = rig.host(id, &format!("web-{number}"), HostRole::Node);
        let tls = rig.tls_to_proxy(Some(&pair), &[alpn::TUNNEL]).await.unwrap();
        tunnels.push(Tunnel::client(tls, tunnel::Config::default()));
        until("the tunnel", || rig.service.hub.tunnels(&id) == 1).await;
    }
    let alice = rig.user("alice");
    let held = fill(&rig, &alice).await;
    let id = HostId::new();
    let _tunnel = rig.tunnel(id, "web-9").await;
    assert_eq!(rig.service.hub.tunnels(&id), 1);
    drop(held);
}

#[tokio::test]
async fn the_sessions_of_a_user_with_a_database_are_bounded_over_all_of_its_agents() {
    let rig = Rig::new().await;
    let databases = "    db_labels:\n      env: test\n    db_names: [app]\n    db_users: [reader]\n  options: {max_db_sessions: 3}\n";
    rig.put("role", "dev", &role("dev", "[alice]", databases));
    for name in ["prod", "stage"] {
        let document = format!(
            "kind: db\nversion: v1\nmetadata: {{name: {name}, labels: {{env: test}}}}\n\
             spec: {{address: 'db.internal:5432', via: [web-1, web-2]}}\n"
        );
        rig.put("db", name, &document);
    }
    let (one, two) = (rig.know("web-1"), rig.know("web-2"));
    let (_tunnel_1, mut incoming_1) = rig.tunnel(one, "web-1").await;
    let (_tunnel_2, mut incoming_2) = rig.tunnel(two, "web-2").await;
    let (alice, bob) = (rig.user("alice"), rig.user("bob"));
    let open = async |pair: &Pair, name: &str| {
        let mut stream = database(&rig, pair).await;
        let options = format!("-c sallyport.database={name}");
        let said = [("user", "reader"), ("database", "app"), ("options", options.as_str())];
        let parameters = said.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        stream.write_all(&Startup { minor: 0, parameters }.to_bytes()).await.unwrap();
        stream
    };
    let mut held = Vec::new();
    for count in 1..=3 {
        let client = open(&alice, "prod").await;
        // An agent has it, whichever.
        let agent = async {
            tokio::select! {
                stream = incoming_1.next() => stream,
                stream = incoming_2.next() => stream,
            }
        };
        held.push((client, tokio::time::timeout(PATIENCE, agent).await.unwrap().unwrap()));
        until("it to be counted", || rig.service.sessions.open() == count).await;
    }
    let said = String::from_utf8_lossy(&rest(&mut open(&alice, "prod").await).await).into_owned();
    assert!(said.contains("53300") && said.contains("3 sessions with prod through this proxy"), "{said}");
    assert!(said.contains("max_db_sessions") && said.contains("pool"), "{said}");
    let told = |event: &serde_json::Value| {
        (&event["code"], &event["user"]) == (&DATABASE_REFUSED.into(), &"alice".into())
            && event["fields"]["reason"] == "too_many_sessions"
    };
    until("it to be on record", || rig.waiting_events().iter().any(told)).await;
    // Neither another database nor another user is in the way, and a place is free again.
    let mut others = Vec::new();
    for (pair, name, count) in [(&bob, "prod", 4), (&alice, "stage", 5)] {
        others.push(open(pair, name).await);
        until("the other way", || rig.service.sessions.open() == count).await;
    }
    held.pop();
    until("its end", || rig.service.sessions.open() == 4).await;
    others.push(open(&alice, "prod").await);
    until("the way in its place", || rig.service.sessions.open() == 5).await;
}
