//! What a proxy shows to its own and to others.

use std::process::Command;
use std::sync::Arc;

use crate::cluster;
use crate::cluster::{Cluster, connect, leaf};
use sallyport_access::HostRole;
use sallyport_ca::server_name;
use sallyport_ca::tls::page::{Page, is_read_by_others, show_to_others};
use sallyport_ca::tls::{ClientAuth, client_config, server_config};
use sallyport_ca::{Authority, CaKind};
use sallyport_sal::Suite;
use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::{ClientConfig, RootCertStore, ServerConfig};

const ALPN: &[&[u8]] = &[b"h2"];

/// The certificate that a client sees, when it accepts it.
fn shown(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: &str) -> Option<Vec<u8>> {
    let (client, _) = connect(client, server, name).ok()?;
    Some(client.peer_certificates()?[0].to_vec())
}

fn browser(root: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(root.to_vec())).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[test]
fn the_cluster_sees_the_host_certificate_and_others_see_the_page() {
    let cluster = Cluster::new("prod");
    let proxy = cluster.host("edge", HostRole::Proxy, &["proxy.example.com"]);
    let names = ["proxy.example.com".to_owned(), "192.0.2.7".to_owned()];
    let page = Page::self_signed(&names, cluster.now).unwrap();
    let key = proxy.tls.pkcs8_pem();
    let chain = &proxy.certificates.tls_pem;
    let mut server = server_config(&cluster.trust, chain, &key, ALPN, ClientAuth::Optional).unwrap();
    show_to_others(&mut server, cluster.trust.cluster(), &page);
    let server = Arc::new(server);

    let member = Arc::new(client_config(&cluster.trust, None, ALPN).unwrap());
    let own = server_name(HostRole::Proxy, cluster.trust.cluster());
    assert_eq!(shown(&member, &server, &own), Some(leaf(chain)));

    let page = page.leaf_der().to_vec();
    let browser = browser(&page);
    for name in ["proxy.example.com", "192.0.2.7", "localhost", "127.0.0.1"] {
        assert_eq!(shown(&browser, &server, name).as_ref(), Some(&page), "{name}");
    }
    assert_eq!(shown(&browser, &server, "other.example.com"), None, "the page is not for every name");
    assert_eq!(
        shown(&member, &server, "proxy.example.com"),
        None,
        "a member does not take the page for the proxy"
    );
}

#[test]
fn what_others_cannot_read_is_known() {
    let cluster = Cluster::new("prod");
    let classical = cluster.host("edge", HostRole::Proxy, &[]);
    assert!(is_read_by_others(&classical.certificates.tls_pem));
    let name = cluster.trust.cluster().clone();
    let quantum =
        Authority::generate(CaKind::Host, &name, &cluster.custody, Suite::PqV1, cluster.now).unwrap();
    assert!(!is_read_by_others(&quantum.record().tls_certificate_pem));
    assert!(!is_read_by_others(&format!(
        "{}{}",
        classical.certificates.tls_pem,
        quantum.record().tls_certificate_pem
    )));
}

#[test]
fn openssl_accepts_a_page_that_signs_itself() {
    let cluster = Cluster::new("prod");
    let page = Page::self_signed(&["proxy.example.com".to_owned()], cluster.now).unwrap();
    let path = cluster.dir.path().join("page.pem");
    std::fs::write(&path, cluster::pem(page.leaf_der())).unwrap();
    let verified = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "proxy.example.com"])
        .arg("-partial_chain")
        .arg("-CAfile")
        .args([&path, &path])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
