//! A user's certificates without their keys.

use std::sync::Arc;

use sallyport_sal::tls::rustls;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sallyport_ssh::client::Credentials;
use sallyport_wire::alpn;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn it_opens_nothing_beside_another_key() {
    let scene = Scene::new().await;
    let alice = &scene.alice;
    let own = TlsKey::generate(Suite::BalancedV1).unwrap();
    for alpn in [alpn::H2, alpn::AUTH] {
        let mut config = alice.tls(alpn);
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(alice.tls_chain.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(own.pkcs8_pem().as_bytes()).unwrap();
        let key = config.crypto_provider().key_provider.load_private_key(key).unwrap();
        // The thief's program does not ask whether the two belong together.
        let pair = rustls::sign::CertifiedKey::new(chain, key);
        config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(pair));
        let refused = match alice.connect_by(config).await {
            // With TLS 1.3 a client hears of the refusal with the first answer.
            Ok(channel) => support::open(channel, "web-1", &scene.login).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{}", String::from_utf8_lossy(alpn));
    }
    let own = SshKeyPair::generate(Suite::BalancedV1, "thief").unwrap();
    let stream = alice.open("web-1", &scene.login).await.unwrap();
    let refused = match Credentials::from_openssh(&own.private_openssh(), &alice.ssh_certificate) {
        Ok(credentials) => {
            let settings = alice.settings("web-1", &scene.login);
            sallyport_ssh::client::connect(stream, &credentials, settings).await.is_err()
        }
        Err(_) => true,
    };
    assert!(refused);
    scene.end().await;
}
