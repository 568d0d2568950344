//! A server that has a certificate for the name that was dialled, and is not the host that was dialled; and a proxy that wants
//! a session of its own where it is.

use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_ssh::client::{ClientError, connect_pipelined};

use crate::openssh::agent::signing;
use crate::openssh::recorded::{World, text};
use crate::openssh::rig::{Cluster, NODE, Sshd, SshdOptions, account, connected, settings};

#[tokio::test]
async fn a_proxys_certificate_is_no_nodes() {
    let cluster = Cluster::new();
    let user = cluster.user();
    for role in [HostRole::Proxy, HostRole::Auth] {
        let sshd = Sshd::start(&cluster, &cluster.host(NODE, role), &SshdOptions::default());
        let error = connected(&sshd, &user, settings(&cluster)).await.unwrap_err();
        let stream = tokio::net::TcpStream::connect(sshd.address).await.unwrap();
        let pipelined = connect_pipelined(stream, &user.credentials(), settings(&cluster)).await.unwrap_err();
        for error in [error, pipelined] {
            assert!(matches!(error, ClientError::HostCertificate { .. }), "{error:?}");
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(&format!("the far end is a {}", role.name())), "{source}");
        }
    }
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    connected(&sshd, &user, settings(&cluster)).await.unwrap();
}

/// A proxy that was taken over logs in on a real node, through the node's tunnel, and has the user's client sign that login. The
/// node's certificate says that it is a node, where only the client itself logs in.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_gets_no_signature_for_a_session_of_its_own_on_a_node() {
    let refused = Arc::<Mutex<String>>::default();
    let words = Arc::clone(&refused);
    let world = World::before(HostRole::Node, "", &SshdOptions::default(), |behind| {
        let (pair, trust) = (behind.pair.clone(), behind.proof.trust.clone());
        behind.by = Box::new(move || signing(&pair, &trust, &account(), &words));
    })
    .await;
    let output = world.ssh(&[NODE, "echo taken over"]).await;
    assert!(!text(&output.stdout).contains("taken over"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(255));
    let said = refused.lock().clone();
    assert!(said.contains("a session of its own on the node web-1"), "{said}: {}", text(&output.stderr));
}
