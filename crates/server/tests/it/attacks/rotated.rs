//! Certificates of a CA that was replaced, with their keys, in the hands of who kept them.

use sallyport_access::HostRole;
use sallyport_wire::alpn;
use sallyport_wire::v1::rotate_ca_request::Step;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::ClientConfig;

use crate::rotation::{details, phase, rotation, step};
use crate::support::member::Joining;
use crate::support::{self, Cluster, os_login};

/// How an HTTP/2 connection begins (RFC 9113 §3.4), with settings that say nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Whether a service answers on a connection with this certificate. Refusing one is the server's last word of a handshake that the
/// client has finished by then (RFC 8446 §4.4.2.4).
async fn is_served(cluster: &Cluster, config: ClientConfig, role: HostRole) -> bool {
    let server = sallyport_ca::server_name(role, &support::cluster());
    let Ok(mut stream) = support::tls(&cluster.proxy(), config, &server).await else { return false };
    let mut answer = [0; 1];
    stream.write_all(PREFACE).await.is_ok() && matches!(stream.read(&mut answer).await, Ok(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replaced_ca_has_signed_opens_nothing() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let mut bob = cluster.user("bob", &[&login]).await;
    let mut thief = cluster.user("alice", &[&login]).await;
    let proxy = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    let hosts = |trust: &sallyport_ca::Trust, protocol: &[u8]| {
        let own = Some((proxy.issued.tls_certificate_pem.as_str(), proxy.key.as_str()));
        sallyport_ca::tls::client_config(trust, own, &[protocol]).unwrap()
    };
    for (protocol, role) in [(alpn::H2, HostRole::Proxy), (alpn::AUTH, HostRole::Auth)] {
        assert!(is_served(&cluster, thief.tls(protocol), role).await);
    }
    assert!(is_served(&cluster, hosts(&bob.trust, alpn::AUTH), HostRole::Auth).await);
    let rotation = rotation(&cluster).await;
    for kind in ["user", "host"] {
        step(&rotation, kind, Step::Phase("init".to_owned()), false).await.unwrap();
        loop {
            bob.follow().await.unwrap();
            let next = details(&rotation, kind).await.next_phase;
            // The proxy in the thief's hands confirms nothing, and an administrator goes on without it.
            step(&rotation, kind, Step::Phase(next), true).await.unwrap();
            if phase(&details(&rotation, kind).await) == "standby" {
                break;
            }
        }
    }
    // The thief knows today's hosts, which is no secret, and has the keys and certificates of before.
    support::until("today's trust", async || bob.open("web-1", &login).await.ok()).await;
    thief.trust = bob.trust.clone();
    for (protocol, role) in [(alpn::H2, HostRole::Proxy), (alpn::AUTH, HostRole::Auth)] {
        assert!(is_served(&cluster, bob.tls(protocol), role).await, "{role:?} serves today's users");
        assert!(!is_served(&cluster, thief.tls(protocol), role).await, "{role:?} takes a user of before");
    }
    assert!(
        !is_served(&cluster, hosts(&bob.trust, alpn::AUTH), HostRole::Auth).await,
        "the authority takes a host of before"
    );
    // By another's way to the node, which decides by itself.
    let stream = bob.open("web-1", &login).await.unwrap();
    let settings = bob.settings("web-1", &login);
    let entered = sallyport_ssh::client::connect(stream, &thief.credentials(), settings).await;
    assert!(entered.is_err(), "the node takes a user of before");
    cluster.running.shutdown(false).await;
}
