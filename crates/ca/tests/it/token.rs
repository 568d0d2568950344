//! Authorities whose keys live in a PKCS#11 token, and a server whose TLS key does: against a real SoftHSM2, with
//! ssh-keygen and openssl as judges.

#[allow(dead_code)]
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::cluster::{Cluster, SUITE, User, alice, connect, leaf, pem};
use crate::softhsm::{SoftHsm, alone, soon};
use sallyport_access::{HostId, HostRole, NodeName};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::client_config;
use sallyport_ca::{
    Authority, CaError, CaKind, HostRequest, SshOptions, Trust, UserCertificates, issue_host, issue_user,
    server_name, trusted_user_ca_lines,
};
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::custody::Custody;
use sallyport_sal::custody::token::TokenCustody;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use sallyport_sal::tls::rustls::{ServerConfig, version};
use sallyport_sal::tls::{provider, signing_key};
use ssh_key::Certificate;
use time::Duration;
use uuid::Uuid;

/// A cluster whose authorities are in the token.
fn cluster_in(custody: &TokenCustody) -> Cluster {
    let mut cluster = Cluster::new("prod");
    let name = cluster.trust.cluster().clone();
    let make = |kind| Authority::generate(kind, &name, custody, SUITE, cluster.now).unwrap();
    (cluster.users, cluster.hosts) = (make(CaKind::User), make(CaKind::Host));
    cluster.trust = Trust::from_authorities(&[&cluster.users, &cluster.hosts], None).unwrap();
    cluster
}

fn certify(cluster: &Cluster, authority: &Authority) -> Result<UserCertificates, CaError> {
    let (ssh, tls) = (SshKeyPair::generate(SUITE, "alice").unwrap(), TlsKey::generate(SUITE).unwrap());
    let options = SshOptions::default();
    let ttl = Duration::hours(1);
    issue_user(authority, &alice(), ssh.public_line(), tls.spki_der(), cluster.now, ttl, &options)
}

/// An error with its causes, as logs print it.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Runs a tool in the directory of the test.
fn run(hsm: &SoftHsm, program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(hsm.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} does not run: {error}"));
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn write_secret(hsm: &SoftHsm, name: &str, text: &str) {
    fs::write(hsm.path(name), text).unwrap();
    fs::set_permissions(hsm.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// What ssh-keygen and openssl say of a user's and a host's certificates.
fn tools_agree(hsm: &SoftHsm, cluster: &Cluster, user: &User, host_ssh: &str, host_tls: &str) {
    let write = |name: &str, text: &str| fs::write(hsm.path(name), text).unwrap();
    write("alice-cert.pub", &user.certificates.ssh);
    let (ok, text) = run(hsm, "ssh-keygen", &["-L", "-f", "alice-cert.pub"]);
    let signed =
        format!("Signing CA: ED25519 {} (using ssh-ed25519)", cluster.users.ssh().unwrap().fingerprint());
    assert!(ok && text.contains(&signed) && text.contains("Key ID: \"alice\""), "{text}");
    write("web-cert.pub", host_ssh);
    let (ok, text) = run(hsm, "ssh-keygen", &["-L", "-f", "web-cert.pub"]);
    assert!(ok && text.contains("host certificate") && text.contains("web-1.prod"), "{text}");

    // -L prints without checking; -Y verify checks the authority's signature.
    write_secret(hsm, "id", &user.ssh.private_openssh());
    write("id.pub", user.ssh.public_line());
    write("id-cert.pub", &user.certificates.ssh);
    write("message", "hello");
    let (ok, text) = run(hsm, "ssh-keygen", &["-Y", "sign", "-f", "id-cert.pub", "-n", "test", "message"]);
    assert!(ok, "{text}");
    let other = Cluster::new("prod");
    for (trust, good) in [(&cluster.trust, true), (&other.trust, false)] {
        write("allowed", &format!("root cert-authority {}", trusted_user_ca_lines(trust)));
        let command = "ssh-keygen -Y verify -f allowed -I root -n test -s message.sig < message";
        let (ok, text) = run(hsm, "sh", &["-c", command]);
        assert_eq!(ok, good, "{text}");
    }

    write("users.pem", &cluster.trust.tls_certificates_pem(CaKind::User));
    write("hosts.pem", &cluster.trust.tls_certificates_pem(CaKind::Host));
    write("alice.pem", &user.certificates.tls_pem);
    write("web.pem", &pem(&leaf(host_tls)));
    for (authority, purpose, file, good) in [
        ("users.pem", "sslclient", "alice.pem", true),
        ("hosts.pem", "sslclient", "alice.pem", false),
        ("hosts.pem", "sslserver", "web.pem", true),
        ("users.pem", "sslserver", "web.pem", false),
    ] {
        let arguments = ["verify", "-x509_strict", "-CAfile", authority, "-purpose", purpose, file];
        let (ok, text) = run(hsm, "openssl", &arguments);
        assert_eq!(ok, good, "{arguments:?}: {text}");
    }
}

#[test]
fn authorities_sign_in_a_token() {
    alone("token::authorities_sign_in_a_token", "", |hsm| {
        let custody = hsm.custody();
        let cluster = cluster_in(&custody);
        for authority in [&cluster.users, &cluster.hosts] {
            assert_eq!(authority.record().keys().count(), 2);
            assert!(authority.record().keys().all(|key| key.custody == "token"));
        }
        let user = cluster.user(&alice());
        let host = cluster.host("web-1", HostRole::Node, &[]);

        let (trust, now) = (&cluster.trust, cluster.now);
        let read = |line: &str| Certificate::from_openssh(line).unwrap();
        let identity = trust.verify_user_ssh(&read(&user.certificates.ssh), now).unwrap();
        assert_eq!(identity.user().unwrap().as_str(), "alice");
        let identity = trust.identify_tls(&leaf(&user.certificates.tls_pem), now).unwrap();
        assert_eq!(identity.user().unwrap().as_str(), "alice");
        let identity = trust.verify_host_ssh(&read(&host.certificates.ssh), "web-1.prod", now).unwrap();
        assert_eq!(identity.display_name(), "node:web-1");
        let identity = trust.identify_tls(&leaf(&host.certificates.tls_pem), now).unwrap();
        assert_eq!(identity.display_name(), "node:web-1");
        assert!(Cluster::new("prod").trust.identify_tls(&leaf(&user.certificates.tls_pem), now).is_err());
        tools_agree(hsm, &cluster, &user, &host.certificates.ssh, &host.certificates.tls_pem);

        // From its record, as after a restart: no private key is in it.
        let record = serde_json::to_string(cluster.users.record()).unwrap();
        let again = Authority::load(&serde_json::from_str(&record).unwrap(), &custody).unwrap();
        let certificates = certify(&cluster, &again).unwrap();
        trust.verify_user_ssh(&read(&certificates.ssh), now).unwrap();
        // Another custody does not open it.
        let error = chain(&Authority::load(cluster.users.record(), &cluster.custody).unwrap_err());
        assert!(error.contains("token") && error.contains("sealed"), "{error}");
    });
}

#[test]
fn an_authority_survives_its_token_being_pulled_out() {
    alone("token::an_authority_survives_its_token_being_pulled_out", "", |hsm| {
        let custody = hsm.custody();
        let cluster = cluster_in(&custody);
        let before = certify(&cluster, &cluster.users).unwrap();
        for _ in 0..2 {
            let pulled = hsm.pull_out();
            let error = certify(&cluster, &cluster.users).unwrap_err();
            assert!(matches!(error, CaError::Sign(_)), "{error:?}");
            let error = chain(&error);
            assert!(error.starts_with("the CA could not sign: "), "{error}");
            assert!(error.contains("is gone") && error.contains("put it back"), "{error}");
            // Loading and making authorities says the same.
            let error = chain(&Authority::load(cluster.hosts.record(), &custody).unwrap_err());
            assert!(error.contains("is gone") && error.contains("put it back"), "{error}");
            let name = cluster.trust.cluster();
            let made = Authority::generate(CaKind::User, name, &custody, SUITE, cluster.now);
            assert!(chain(&made.unwrap_err()).contains("is gone"));
            // What was issued stands: verifying needs no token.
            cluster.trust.identify_tls(&leaf(&before.tls_pem), cluster.now).unwrap();

            pulled.put_back();
            // The same authority, without a restart.
            let after = soon(|| certify(&cluster, &cluster.users));
            let ssh = Certificate::from_openssh(&after.ssh).unwrap();
            cluster.trust.verify_user_ssh(&ssh, cluster.now).unwrap();
            cluster.trust.identify_tls(&leaf(&after.tls_pem), cluster.now).unwrap();
        }
    });
}

#[test]
fn a_server_proves_itself_with_a_key_in_a_token() {
    alone("token::a_server_proves_itself_with_a_key_in_a_token", "", |hsm| {
        let custody = hsm.custody();
        let cluster = cluster_in(&custody);
        let user = cluster.user(&alice());
        let identity = (user.certificates.tls_pem.as_str(), &*user.tls.pkcs8_pem());
        let client = Arc::new(client_config(&cluster.trust, Some((identity.0, identity.1)), &[]).unwrap());
        let to = server_name(HostRole::Proxy, cluster.trust.cluster());
        for algorithm in
            [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Rsa2048]
        {
            let signer = custody.load(&custody.generate("a server", algorithm).unwrap()).unwrap();
            let ssh = SshKeyPair::generate(SUITE, "edge").unwrap();
            let request = HostRequest {
                id: HostId::new(),
                name: &NodeName::new("edge").unwrap(),
                role: HostRole::Proxy,
                join_id: Uuid::from_u128(9),
                public_names: &[],
                ssh_public_key: ssh.public_line(),
                tls_spki: &signer.public_key().spki_der(),
            };
            let issued = issue_host(&cluster.hosts, &request, cluster.now, Duration::days(1)).unwrap();
            let shown: Vec<CertificateDer<'static>> =
                CertificateDer::pem_slice_iter(issued.tls_pem.as_bytes()).map(Result::unwrap).collect();
            let certified = CertifiedKey::new(shown, signing_key(signer));
            // It belongs to the certificate.
            certified.keys_match().unwrap();
            let mut server = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
            // A resumed session needs no signature.
            server.send_tls13_tickets = 0;
            let server = Arc::new(server);
            let (connected, _) = connect(&client, &server, &to).unwrap();
            let peer = connected.peer_certificates().unwrap();
            let identity = cluster.trust.identify_peer(peer, cluster.now).unwrap();
            assert_eq!(identity.display_name(), "proxy:edge", "{algorithm}");

            let pulled = hsm.pull_out();
            let error = connect(&client, &server, &to).unwrap_err().to_string();
            assert!(error.contains("is gone") && error.contains("put it back"), "{algorithm}: {error}");
            pulled.put_back();
            soon(|| connect(&client, &server, &to));
        }
    });
}
