//! A server that has a certificate for the name that was dialled, and is not the host that was dialled.

use sallyport_access::HostRole;
use sallyport_ssh::client::{ClientError, connect_pipelined};

use crate::openssh::rig::{Cluster, NODE, Sshd, SshdOptions, connected, settings};

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
