//! What the cluster remembers of clients that were really there.

use std::process::Stdio;
use std::sync::Arc;

use sallyport_ca::CaKind;
use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::crypto::CryptoProvider;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sallyport_sal::tls::rustls::{self, ClientConfig, NamedGroup, RootCertStore};
use sallyport_wire::v1;
use sallyport_wire::v1::suites_client::SuitesClient;
use tokio::process::Command;

use crate::support::{self, Cluster, User, os_login, until};

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

    // Clients whose handshake fails are listed, too, with the reason.
    let address = format!("{}:{}", proxy.host, proxy.port);
    let old_kex = ["-F", "none", "-o", "KexAlgorithms=ecdh-sha2-nistp521", "-o", "StrictHostKeyChecking=no"];
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
    assert_eq!(failed.key_exchange, ["ecdh-sha2-nistp521"]);
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

    // All of it outlives a restart.
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let mut again = support::config(&directory.path().join("cluster"));
    again.auth = Some(support::auth_section());
    again.proxy = Some(support::proxy_section());
    let running = sallyport_server::start(again).await.unwrap();
    let cluster = Cluster { directory, running };
    let stock = seen(&cluster, "stock ssh, from before", |client| client.seen_by.len() == 2).await;
    assert_eq!((stock.users.as_slice(), stock.count), (&["alice".to_owned()][..], 2));
}

/// A member's program without hybrid key exchange.
fn classical(user: &User) -> ClientConfig {
    let provider = provider();
    let groups = provider.kx_groups.iter().copied().filter(|group| group.name() == NamedGroup::X25519);
    let classical = CryptoProvider { kx_groups: groups.collect(), ..provider.as_ref().clone() };
    let chain = CertificateDer::pem_slice_iter(user.tls_chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(user.tls_key.as_bytes()).unwrap();
    let authorities = user.trust.tls_certificates_pem(CaKind::Host);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(authorities.as_bytes()).map(Result::unwrap),
    );
    let mut config = ClientConfig::builder_with_provider(Arc::new(classical))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_hybrid_key_exchange_is_told_where_the_suite_requires_it() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let open =
        async || support::open(alice.connect_by(classical(&alice)).await.unwrap(), "web-1", &login).await;
    assert!(open().await.is_ok(), "any other suite takes it");
    let mut suites = SuitesClient::new(support::admin_channel(&cluster.data_dir()).await);
    let (from, to) = ("balanced-v1".to_owned(), "pq-v1".to_owned());
    suites.set_suite(v1::SetSuiteRequest { from, to, accept_breaks: true }).await.unwrap();
    let refused = until("the refusal", async || open().await.err()).await;
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("this cluster requires post-quantum key exchange"), "{refused:?}");
    let told = seen(&cluster, "the sighting", |client| !client.refused.is_empty()).await;
    assert_eq!(
        (told.users.as_slice(), told.key_exchange),
        (&["alice".to_owned()][..], vec!["x25519".to_owned()])
    );
    // With a program of today it goes on.
    assert!(alice.open("web-1", &login).await.is_ok());
}
