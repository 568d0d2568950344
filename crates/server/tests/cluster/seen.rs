//! What the cluster remembers of clients that were really there.

use std::process::Stdio;

use sallyport_wire::v1;
use sallyport_wire::v1::suites_client::SuitesClient;
use tokio::process::Command;

use crate::support::{self, Cluster, os_login, until};

async fn clients(cluster: &Cluster) -> Vec<v1::SeenClient> {
    let mut suites = SuitesClient::new(support::admin_channel(&cluster.data_dir()).await);
    suites.list_clients(v1::ListClientsRequest::default()).await.unwrap().into_inner().clients
}

fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|have| have == name)
}

/// The first client that fits, as soon as it is there.
async fn seen(cluster: &Cluster, what: &str, fits: impl Fn(&v1::SeenClient) -> bool) -> v1::SeenClient {
    let found = until(what, || async { clients(cluster).await.into_iter().find(&fits) });
    found.await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_remembered_with_what_they_can_do_and_whose_they_are() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let directory = tempfile::tempdir().unwrap();
    let key = alice.write_keys(directory.path());
    let proxy = cluster.proxy();
    let jump = format!(
        "ssh -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -W %h:%p -p {port} \
         alice@{host}",
        key = key.display(),
        host = proxy.host,
        port = proxy.port
    );
    let ran = Command::new("ssh")
        .args(["-F", "none", "-i", key.to_str().unwrap(), "-o", "BatchMode=yes"])
        .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", &format!("ProxyCommand={jump}"), &format!("{login}@web-1"), "true"])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));

    let stock = seen(&cluster, "stock ssh at both hops", |client| {
        client.software.starts_with("OpenSSH_") && client.seen_by.len() == 2
    })
    .await;
    assert_eq!((stock.kind.as_str(), stock.users.as_slice()), ("ssh", &["alice".to_owned()][..]));
    assert!(stock.seen_by.iter().any(|by| by == "node:web-1") && stock.count == 2, "{stock:?}");
    assert!(has(&stock.key_exchange, "curve25519-sha256"), "{stock:?}");
    assert!(has(&stock.signatures, "ssh-ed25519-cert-v01@openssh.com"), "{stock:?}");

    // Our own programs, by their user agent: the node, to the authority.
    let node = seen(&cluster, "the node", |client| has(&client.users, "node:web-1")).await;
    assert_eq!(node.software, concat!("sallyport/", env!("CARGO_PKG_VERSION")));
    assert_eq!((node.kind.as_str(), node.seen_by.as_slice()), ("sallyport", &["auth".to_owned()][..]));
    assert!(has(&node.key_exchange, "X25519MLKEM768") && has(&node.signatures, "mldsa65"), "{node:?}");

    // Whoever fails, with the reason.
    let address = format!("{}:{}", proxy.host, proxy.port);
    let old_kex = ["-F", "none", "-o", "KexAlgorithms=ecdh-sha2-nistp256", "-o", "StrictHostKeyChecking=no"];
    let failed = Command::new("ssh")
        .args(old_kex)
        .args(["-o", "UserKnownHostsFile=/dev/null", "-p", &proxy.port.to_string(), &proxy.host])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(!failed.status.success());
    let failed =
        seen(&cluster, "the failed ssh", |client| client.kind == "ssh" && !client.refused.is_empty()).await;
    assert_eq!(failed.key_exchange, ["ecdh-sha2-nistp256"]);
    assert!(failed.refused.starts_with("it offers no key exchange method that is spoken here"), "{failed:?}");
    assert_eq!((failed.addresses.as_slice(), failed.users.len()), (&["127.0.0.1".to_owned()][..], 0));

    let tls = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-tls1_3", "-groups", "X448", "-alpn", "http/1.1"])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(!tls.status.success(), "{}", String::from_utf8_lossy(&tls.stderr));
    let tls = seen(&cluster, "the failed TLS client", |client| client.kind == "tls").await;
    assert_eq!((tls.key_exchange, tls.versions), (vec!["x448".to_owned()], vec!["TLS 1.3".to_owned()]));
    assert_eq!(tls.protocols, ["http/1.1"]);
    assert_eq!(tls.refused, "it offers no key exchange that is spoken here");
    assert!(has(&tls.signatures, "ecdsa_secp256r1_sha256"), "{:?}", tls.signatures);
}
