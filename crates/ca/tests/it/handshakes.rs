//! TLS handshakes with the configurations of `tls`, in memory.

use std::sync::Arc;

use crate::cluster;
use crate::cluster::{Cluster, Host, User, alice, connect};
use sallyport_access::{HostRole, Identity};
use sallyport_ca::tls::{
    ClientAuth, client_config, danger, parse_pin, pinned_client_config, public_server_config, refusal,
    server_config, without_resumption,
};
use sallyport_ca::{CaError, CaKind, Trust, server_name};
use sallyport_sal::Suite;
use sallyport_sal::tls::rustls::crypto::CryptoProvider;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sallyport_sal::tls::rustls::{
    self, ClientConfig, HandshakeKind, NamedGroup, PeerIncompatible, ProtocolVersion, ServerConfig,
    ServerConnection,
};
use sallyport_sal::tls::{is_hybrid, provider};
use time::{Duration, OffsetDateTime};

const ALPN: &[&[u8]] = &[b"sallyport-auth", b"h2"];

fn serve(trust: &Trust, host: &Host, auth: ClientAuth) -> Arc<ServerConfig> {
    Arc::new(server_config(trust, &host.certificates.tls_pem, &host.tls.pkcs8_pem(), ALPN, auth).unwrap())
}

fn as_user(trust: &Trust, user: &User) -> Arc<ClientConfig> {
    let identity = (user.certificates.tls_pem.as_str(), &*user.tls.pkcs8_pem());
    Arc::new(client_config(trust, Some((identity.0, identity.1)), ALPN).unwrap())
}

fn identity_of(trust: &Trust, server: &ServerConnection, now: OffsetDateTime) -> Result<Identity, CaError> {
    trust.identify_tls(&server.peer_certificates().unwrap()[0], now)
}

fn name(trust: &Trust, role: HostRole) -> String {
    server_name(role, trust.cluster())
}

#[test]
fn users_and_hosts_are_let_in_and_known() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let proxy = cluster.host("edge", HostRole::Proxy, &[]);
    let node = cluster.host("web-1", HostRole::Node, &[]);
    let server = serve(trust, &proxy, ClientAuth::Required);

    let (client, accepted) =
        connect(&as_user(trust, &cluster.user(&alice())), &server, &name(trust, HostRole::Proxy)).unwrap();
    assert_eq!(identity_of(trust, &accepted, cluster.now).unwrap().user().unwrap().as_str(), "alice");
    assert_eq!(client.alpn_protocol(), Some(b"sallyport-auth".as_slice()));
    assert_eq!(client.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(client.negotiated_key_exchange_group().unwrap().name(), NamedGroup::X25519MLKEM768);

    let pem = node.tls.pkcs8_pem();
    let as_node = Arc::new(client_config(trust, Some((&node.certificates.tls_pem, &pem)), ALPN).unwrap());
    let (_, accepted) = connect(&as_node, &server, &name(trust, HostRole::Proxy)).unwrap();
    assert_eq!(identity_of(trust, &accepted, cluster.now).unwrap().display_name(), "node:web-1");
}

/// The same trust under a suite that requires hybrid key exchange.
fn requiring(trust: &Trust) -> Trust {
    let mut bundle = trust.to_bundle();
    Suite::PqV1.name().clone_into(&mut bundle.suite);
    Trust::from_bundle(&bundle).unwrap()
}

/// A configuration of a client or server whose machine prefers classical key exchange.
fn classical<T>(configure: impl FnOnce(Arc<CryptoProvider>) -> T) -> T {
    let provider = provider();
    let kx_groups = provider.kx_groups.iter().copied().filter(|group| group.name() == NamedGroup::X25519);
    configure(Arc::new(CryptoProvider { kx_groups: kx_groups.collect(), ..provider.as_ref().clone() }))
}

#[test]
fn a_suite_can_require_hybrid_key_exchange_of_members_and_not_of_guests() {
    let cluster = Cluster::new("prod");
    let (trust, strict) = (&cluster.trust, &requiring(&cluster.trust));
    let proxy = cluster.host("edge", HostRole::Proxy, &[]);
    let proxy_name = name(trust, HostRole::Proxy);
    let user = cluster.user(&alice());
    let server = serve(strict, &proxy, ClientAuth::Optional);
    // Members that know of the suite, and those that do not yet: hybrid groups are their first choice.
    for client in [as_user(strict, &user), as_user(trust, &user)] {
        let (client, accepted) = connect(&client, &server, &proxy_name).unwrap();
        assert!(is_hybrid(&client) && is_hybrid(&accepted));
    }
    let mut roots = rustls::RootCertStore::empty();
    let authorities = trust.tls_certificates_pem(CaKind::Host);
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(authorities.as_bytes()).map(Result::unwrap),
    );
    let guest = |groups: Arc<CryptoProvider>| {
        let client = ClientConfig::builder_with_provider(groups)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let mut client = client;
        client.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(client)
    };
    let refused = connect(&classical(guest), &server, &proxy_name).err().unwrap();
    assert_eq!(refused, rustls::Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon));
    let (chain, key) = (&proxy.certificates.tls_pem, proxy.tls.pkcs8_pem());
    let open = public_server_config(strict, chain, &key, ALPN, ClientAuth::Optional).unwrap();
    let (_, accepted) = connect(&classical(guest), &Arc::new(open), &proxy_name).unwrap();
    assert!(!is_hybrid(&accepted));
    // And a member refuses a server that offers nothing else.
    let old = classical(|groups| {
        ServerConfig::builder_with_provider(groups)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap(),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap()
    });
    assert!(connect(&as_user(strict, &user), &Arc::new(old), &proxy_name).is_err());
}

#[test]
fn every_suite_shakes_hands_with_both_sides_known() {
    for suite in Suite::ALL {
        let cluster = Cluster::with_suite("prod", *suite);
        let proxy = cluster.host("edge", HostRole::Proxy, &[]);
        let node = cluster.host("web-1", HostRole::Node, &[]);
        let server = serve(&cluster.trust, &proxy, ClientAuth::Required);
        let alice_now = cluster.user(&alice());
        let as_host = client_config(
            &cluster.trust,
            Some((&node.certificates.tls_pem, &node.tls.pkcs8_pem())),
            &[b"sallyport-auth"],
        );
        for (client, who) in
            [(as_user(&cluster.trust, &alice_now), "alice"), (Arc::new(as_host.unwrap()), "node:web-1")]
        {
            let (_, accepted) = connect(&client, &server, &name(&cluster.trust, HostRole::Proxy)).unwrap();
            let identity = identity_of(&cluster.trust, &accepted, cluster.now).unwrap();
            assert_eq!(identity.display_name(), who, "{suite}");
        }
    }
}

#[test]
fn strangers_are_let_in_only_where_that_is_said() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let proxy = cluster.host("edge", HostRole::Proxy, &[]);
    let stranger = Arc::new(client_config(trust, None, ALPN).unwrap());
    let to = name(trust, HostRole::Proxy);
    for auth in [ClientAuth::None, ClientAuth::Optional] {
        let (_, accepted) = connect(&stranger, &serve(trust, &proxy, auth), &to).unwrap();
        assert!(accepted.peer_certificates().is_none());
    }
    let error = connect(&stranger, &serve(trust, &proxy, ClientAuth::Required), &to).unwrap_err();
    assert_eq!(error, rustls::Error::NoCertificatesPresented);

    // One that is shown must be good, also where none is needed.
    let other = Cluster::new("prod");
    let intruder = other.user(&alice());
    for auth in [ClientAuth::Optional, ClientAuth::Required] {
        let error = connect(&as_user(trust, &intruder), &serve(trust, &proxy, auth), &to).unwrap_err();
        assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{error}");
    }
}

#[test]
fn expired_users_are_refused_and_a_minute_is_forgiven() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let server = serve(trust, &cluster.host("edge", HostRole::Proxy, &[]), ClientAuth::Required);
    let to = name(trust, HostRole::Proxy);
    // Ended 30 s ago.
    let late = cluster.user_at(&alice(), cluster.now - Duration::seconds(630), Duration::minutes(10));
    connect(&as_user(trust, &late), &server, &to).unwrap();
    // Starts in 30 s.
    let early = cluster.user_at(&alice(), cluster.now + Duration::seconds(90), Duration::minutes(10));
    connect(&as_user(trust, &early), &server, &to).unwrap();
    for (offset, what) in [(-700, "ExpiredContext"), (300, "NotValidYetContext")] {
        let user = cluster.user_at(&alice(), cluster.now + Duration::seconds(offset), Duration::minutes(10));
        let error = connect(&as_user(trust, &user), &server, &to).unwrap_err();
        assert!(format!("{error:?}").contains(what), "{error:?}");
    }
}

#[test]
fn a_client_can_say_why_it_refuses_a_server() {
    let (cluster, other) = (Cluster::new("prod"), Cluster::new("prod"));
    let client = as_user(&cluster.trust, &cluster.user(&alice()));
    let server = serve(&other.trust, &other.host("edge", HostRole::Proxy, &[]), ClientAuth::None);
    let error = connect(&client, &server, "proxy.prod.sallyport.internal").unwrap_err();
    assert_eq!(
        refusal(&error).unwrap().to_string(),
        "the certificate was not issued by the host CA of cluster prod; it belongs to another cluster, or the CA was replaced since"
    );
    let node = serve(&cluster.trust, &cluster.host("web-1", HostRole::Node, &[]), ClientAuth::None);
    let error = connect(&client, &node, "proxy.prod.sallyport.internal").unwrap_err();
    let wrapped = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    assert!(matches!(refusal(&wrapped), Some(CaError::WrongHost { .. })), "{wrapped}");
    assert!(refusal(&std::io::Error::other("unrelated")).is_none());
}

#[test]
fn servers_must_be_who_they_should_be() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let client = as_user(trust, &cluster.user(&alice()));
    let node = serve(trust, &cluster.host("web-1", HostRole::Node, &[]), ClientAuth::Required);
    for role in [HostRole::Auth, HostRole::Proxy] {
        let error = connect(&client, &node, &name(trust, role)).unwrap_err();
        assert!(format!("{error:?}").contains("WrongHost"), "{error:?}");
    }
    connect(&client, &node, &name(trust, HostRole::Node)).unwrap();

    let proxy = cluster.host("edge", HostRole::Proxy, &["ssh.example.com"]);
    let proxy = serve(trust, &proxy, ClientAuth::Required);
    for good in ["ssh.example.com", "localhost", "127.0.0.1"] {
        connect(&client, &proxy, good).unwrap();
    }
    assert!(connect(&client, &proxy, "www.example.com").is_err());

    // Another cluster of the same name.
    let other = Cluster::new("prod");
    let theirs = serve(&other.trust, &other.host("edge", HostRole::Proxy, &[]), ClientAuth::None);
    assert!(connect(&client, &theirs, &name(trust, HostRole::Proxy)).is_err());

    // A user's certificate does not serve.
    let user = cluster.user(&alice());
    let impostor =
        server_config(trust, &user.certificates.tls_pem, &user.tls.pkcs8_pem(), ALPN, ClientAuth::None);
    assert!(connect(&client, &Arc::new(impostor.unwrap()), "auth.prod.sallyport.internal").is_err());
}

#[test]
fn a_pin_lets_in_the_authority_of_one_cluster_alone() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let authority = serve(trust, &cluster.host("auth", HostRole::Auth, &[]), ClientAuth::Optional);
    let newcomer = Arc::new(pinned_client_config(&trust.pin(), ALPN).unwrap());
    // Whatever name was dialled.
    connect(&newcomer, &authority, "sallyport.example.com").unwrap();
    connect(&newcomer, &authority, "127.0.0.1").unwrap();
    let upper = Arc::new(pinned_client_config(&trust.pin().to_uppercase(), ALPN).unwrap());
    connect(&upper, &authority, "127.0.0.1").unwrap();
    // While one CA replaces another, newcomers get the pins of both.
    let (old, new) = (format!("sha256:{:064}", 1), format!("sha256:{:064}", 2));
    let both = Arc::new(pinned_client_config(&format!("{old}, {}", trust.pin()), ALPN).unwrap());
    connect(&both, &authority, "127.0.0.1").unwrap();
    let neither = Arc::new(pinned_client_config(&format!("{old},{new}"), ALPN).unwrap());
    let error = connect(&neither, &authority, "127.0.0.1").unwrap_err();
    assert!(format!("{error:?}").contains(&format!("{old} or {new}")), "{error:?}");

    // Hosts of the cluster that are not the authority never see a password.
    for role in [HostRole::Node, HostRole::Proxy] {
        let server = serve(trust, &cluster.host("web-1", role, &[]), ClientAuth::Optional);
        let error = connect(&newcomer, &server, "127.0.0.1").unwrap_err();
        assert!(format!("{error:?}").contains("WrongRole"), "{error:?}");
    }

    // Another cluster; and one that appends our public CA certificate to a chain of its own.
    let other = Cluster::new("prod");
    let mut intruder = other.host("auth", HostRole::Auth, &[]);
    let error =
        connect(&newcomer, &serve(&other.trust, &intruder, ClientAuth::None), "127.0.0.1").unwrap_err();
    assert!(format!("{error:?}").contains("OtherPin"), "{error:?}");
    intruder.certificates.tls_pem.push_str(cluster.hosts.record().tls_certificate_pem.as_str());
    let error =
        connect(&newcomer, &serve(&other.trust, &intruder, ClientAuth::None), "127.0.0.1").unwrap_err();
    assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{error:?}");

    // An authority that does not show its CA.
    let mut bare = cluster.host("auth", HostRole::Auth, &[]);
    bare.certificates.tls_pem = cluster::pem(&cluster::leaf(&bare.certificates.tls_pem));
    let error = connect(&newcomer, &serve(trust, &bare, ClientAuth::None), "127.0.0.1").unwrap_err();
    assert!(format!("{error:?}").contains("no CA certificate"), "{error:?}");

    let (trailing, many) = (format!("{},", trust.pin()), vec![trust.pin(); 5].join(","));
    let cut = &trust.pin()[7..];
    let long = format!("{}0", trust.pin());
    for pin in ["", ",", "sha256:", "sha256:12", "md5:00", cut, &long, &trailing, &many] {
        assert!(matches!(parse_pin(pin), Err(CaError::BadPin { .. })), "{pin}");
        assert!(pinned_client_config(pin, ALPN).is_err());
    }
}

#[test]
fn an_unverified_contact_reports_the_pin() {
    let cluster = Cluster::new("prod");
    let authority = serve(&cluster.trust, &cluster.host("auth", HostRole::Auth, &[]), ClientAuth::Optional);
    let (config, seen) = danger::unverified_client_config(ALPN).unwrap();
    assert_eq!(seen.pin(), None);
    connect(&Arc::new(config), &authority, "127.0.0.1").unwrap();
    assert_eq!(seen.pin(), Some(cluster.trust.pin()));
}

#[test]
fn a_second_connection_resumes_and_still_tells_who_it_is() {
    let cluster = Cluster::new("prod");
    let trust = &cluster.trust;
    let host = cluster.host("edge", HostRole::Proxy, &[]);
    let server = serve(trust, &host, ClientAuth::Required);
    let client = as_user(trust, &cluster.user(&alice()));
    let to = name(trust, HostRole::Proxy);
    let (first, _) = connect(&client, &server, &to).unwrap();
    assert_ne!(first.handshake_kind(), Some(HandshakeKind::Resumed));
    let (second, accepted) = connect(&client, &server, &to).unwrap();
    assert_eq!(second.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(identity_of(trust, &accepted, cluster.now).unwrap().user().unwrap().as_str(), "alice");
    // Resumption checks no certificate, so the identity must be asked for with the time of the connection.
    let later = identity_of(trust, &accepted, cluster.now + Duration::days(1));
    assert!(matches!(later, Err(CaError::Expired { .. })));

    let mut forgetful =
        server_config(trust, &host.certificates.tls_pem, &host.tls.pkcs8_pem(), ALPN, ClientAuth::Required)
            .unwrap();
    without_resumption(&mut forgetful);
    let forgetful = Arc::new(forgetful);
    let client = as_user(trust, &cluster.user(&alice()));
    for _ in 0..2 {
        let (connection, _) = connect(&client, &forgetful, &to).unwrap();
        assert_ne!(connection.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn chains_and_keys_must_belong_together() {
    let cluster = Cluster::new("prod");
    let (one, two) = (cluster.host("a", HostRole::Proxy, &[]), cluster.host("b", HostRole::Proxy, &[]));
    let chain = &one.certificates.tls_pem;
    for (chain, key) in [
        (chain.as_str(), two.tls.pkcs8_pem().to_string()),
        (chain.as_str(), String::new()),
        ("", one.tls.pkcs8_pem().to_string()),
    ] {
        let made = server_config(&cluster.trust, chain, &key, ALPN, ClientAuth::None);
        assert!(matches!(made, Err(CaError::BadTlsIdentity { .. })));
        let made = client_config(&cluster.trust, Some((chain, &key)), ALPN);
        assert!(matches!(made, Err(CaError::BadTlsIdentity { .. })));
    }
}
