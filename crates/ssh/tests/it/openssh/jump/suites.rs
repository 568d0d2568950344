//! Suites whose SSH keys differ, at stock `ssh` and at our own client.

use sallyport_sal::Suite;
use sallyport_ssh::client::connect;
use sallyport_ssh::jump::JumpConfig;

use super::{Stand, text};
use crate::openssh::rig::{Cluster, NODE, settings};

/// The suites whose SSH keys differ: RSA, Ed25519 and P-256, of authorities, hosts and users alike.
#[tokio::test(flavor = "multi_thread")]
async fn every_suite_serves_stock_ssh_and_ours() {
    let mut suites = tokio::task::JoinSet::new();
    for (suite, shown) in [
        (Suite::Legacy, "rsa-sha2-512-cert-v01@openssh.com"),
        (Suite::BalancedV1, "ssh-ed25519-cert-v01@openssh.com"),
        (Suite::FipsV1, "ecdsa-sha2-nistp256-cert-v01@openssh.com"),
    ] {
        suites.spawn(serves(suite, shown));
    }
    suites.join_all().await;
}

async fn serves(suite: Suite, shown: &str) {
    let stand = Stand::of(Cluster::with_suite(suite), JumpConfig::default()).await;
    let user = stand.cluster.user();
    let words = ["-v", "-J", "jump", NODE, "echo hello"];
    let ran = stand.ssh(&user, &words, b"").await;
    let said = text(&ran.stderr);
    assert_eq!(text(&ran.stdout), "hello\n", "{suite}: {said}");
    // Of the two connections, the inner one is told on this standard error.
    assert!(said.contains(&format!("kex: host key algorithm: {shown}")), "{suite}: {said}");
    let outer = stand.ssh(&user, &["-v", "-W", "web-1:22", "jump"], b"SSH-2.0-test\r\n").await;
    assert!(text(&outer.stdout).starts_with("SSH-2.0-OpenSSH"), "{suite}: {}", text(&outer.stderr));
    let said = text(&outer.stderr);
    assert!(said.contains(&format!("kex: host key algorithm: {shown}")), "{suite}: {said}");
    // A client of ours to the jump host, and through it to the node, which is an sshd.
    let connection = stand.client().await;
    let way = connection.open_direct(NODE, 22, "127.0.0.1:1".parse().unwrap()).await.unwrap();
    connect(way, &user.credentials(), settings(&stand.cluster)).await.unwrap();
}
