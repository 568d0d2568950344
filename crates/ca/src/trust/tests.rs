//! What is verified and what is remembered, counted at the verifiers themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use sallyport_access::{HostId, Login, NodeName, RoleName, UserName};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::tls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified};
use sallyport_sal::tls::rustls::pki_types::pem::PemObject as _;
use sallyport_sal::tls::rustls::server::danger::ClientCertVerified;
use sallyport_sal::tls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection,
    SignatureScheme,
};
use sallyport_sal::{PublicKey, Suite};
use time::Duration;
use uuid::Uuid;

use super::*;
use crate::keys::{SshKeyPair, TlsKey};
use crate::names::{DOMAIN, HostName};
use crate::tls::{ClientAuth, client_config, refusal, server_config, without_resumption};
use crate::x509::{Name, Profile, SERIAL_BYTES, Template};
use crate::{HostRequest, SshOptions, issue_host, issue_user, server_name};
use sallyport_sal::tls::rustls::pki_types::UnixTime;

/// Passes everything on, and counts the chains.
#[derive(Debug)]
struct Counting<V> {
    inner: V,
    count: Arc<AtomicUsize>,
}

impl ClientCertVerifier for Counting<Arc<dyn ClientCertVerifier>> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.verify_client_cert(leaf, intermediates, now)
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        panic!("handshakes are verified elsewhere")
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        panic!("handshakes are verified elsewhere")
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Counting<Arc<dyn ServerCertVerifier>> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.verify_server_cert(leaf, intermediates, name, ocsp, now)
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        panic!("handshakes are verified elsewhere")
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        panic!("handshakes are verified elsewhere")
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// A cluster whose trust counts the chains that are verified, on each side.
struct Rig {
    users: Authority,
    hosts: Authority,
    trust: Trust,
    clients: Arc<AtomicUsize>,
    servers: Arc<AtomicUsize>,
    now: OffsetDateTime,
    _directory: tempfile::TempDir,
}

type Holder = (String, TlsKey);

/// A trust without a key that could sign for it.
pub(super) fn trust_of(cluster: &str) -> Trust {
    let rig = Rig::new();
    let bundle = TrustBundle { cluster: cluster.to_owned(), ..rig.trust.to_bundle() };
    Trust::from_bundle(&bundle).unwrap()
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let seal = SealingKey::create(&directory.path().join("seal.key")).unwrap();
        let custody = SealedCustody::new(Arc::new(seal));
        let now = OffsetDateTime::from_unix_timestamp(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
        let name = ClusterName::new("prod").unwrap();
        let make = |kind| Authority::generate(kind, &name, &custody, Suite::BalancedV1, now).unwrap();
        let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
        let mut trust = Trust::from_authorities(&[&users, &hosts], None).unwrap();
        let (clients, servers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let anchors = Arc::get_mut(&mut trust.anchors).unwrap();
        for verifier in [&mut anchors.users, &mut anchors.hosts] {
            *verifier = Arc::new(Counting { inner: Arc::clone(verifier), count: Arc::clone(&clients) });
        }
        anchors.servers =
            Arc::new(Counting { inner: Arc::clone(&anchors.servers), count: Arc::clone(&servers) });
        Self { users, hosts, trust, clients, servers, now, _directory: directory }
    }

    fn user(&self, name: &str, ttl: Duration) -> Holder {
        let (ssh, tls) = (
            SshKeyPair::generate(Suite::BalancedV1, name).unwrap(),
            TlsKey::generate(Suite::BalancedV1).unwrap(),
        );
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new(name).unwrap(),
                roles: vec![RoleName::new("dev").unwrap()],
                logins: vec![Login::new("root").unwrap()],
                traits: BTreeMap::new(),
            },
            login_id: Uuid::from_u128(42),
            device: None,
            pinned_to: None,
            valid_after: OffsetDateTime::UNIX_EPOCH,
            valid_before: OffsetDateTime::UNIX_EPOCH,
        };
        let options = SshOptions::default();
        let made =
            issue_user(&self.users, &identity, ssh.public_line(), tls.spki_der(), self.now, ttl, &options);
        (made.unwrap().tls_pem, tls)
    }

    fn proxy(&self) -> Holder {
        let (ssh, tls) = (
            SshKeyPair::generate(Suite::BalancedV1, "edge").unwrap(),
            TlsKey::generate(Suite::BalancedV1).unwrap(),
        );
        let request = HostRequest {
            id: HostId::new(),
            name: &NodeName::new("edge").unwrap(),
            role: HostRole::Proxy,
            join_id: Uuid::from_u128(9),
            public_names: &["ssh.example.com".to_owned()],
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        (issue_host(&self.hosts, &request, self.now, Duration::days(1)).unwrap().tls_pem, tls)
    }

    /// A host's certificate that carries any names: as the host CA would sign it if it took what it is asked for.
    fn with_names(&self, id: HostId, role: HostRole, names: &[String]) -> Holder {
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let principal = Principal::Host { id, name: NodeName::new("web-1").unwrap(), role };
        let join = Uuid::from_u128(9);
        let identity_json = extension::to_json("prod", join, &principal, Mark::default()).unwrap();
        let names: Vec<HostName> = names.iter().map(|name| HostName::Dns(name.clone())).collect();
        let side = self.hosts.tls().unwrap();
        let template = Template {
            serial: [0x40; SERIAL_BYTES],
            issuer: side.name_der(),
            subject: Name::new("web-1", "prod"),
            not_before: self.now - Duration::minutes(1),
            not_after: self.now + Duration::days(1),
            subject_key: &PublicKey::from_spki_der(tls.spki_der()).unwrap(),
            profile: Profile::Host { identity_json: &identity_json, names: &names },
        };
        (x509::to_pem(&template.sign(side.signer()).unwrap()), tls)
    }

    fn verified(&self) -> (usize, usize) {
        (self.clients.load(Ordering::Relaxed), self.servers.load(Ordering::Relaxed))
    }

    fn name(&self) -> String {
        server_name(HostRole::Proxy, self.trust.cluster())
    }
}

fn der(holder: &Holder) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(holder.0.as_bytes()).collect::<Result<_, _>>().unwrap()
}

fn serve(trust: &Trust, host: &Holder) -> Arc<ServerConfig> {
    let mut config =
        server_config(trust, &host.0, &host.1.pkcs8_pem(), &[b"h2"], ClientAuth::Required).unwrap();
    without_resumption(&mut config);
    Arc::new(config)
}

fn dial(trust: &Trust, user: &Holder) -> Arc<ClientConfig> {
    Arc::new(client_config(trust, Some((&user.0, &user.1.pkcs8_pem())), &[b"h2"]).unwrap())
}

/// A full handshake, and how long the server computed.
fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<(ServerConnection, std::time::Duration), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    let mut served = std::time::Duration::ZERO;
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let began = std::time::Instant::now();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        served += began.elapsed();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok((server, served))
}

#[test]
fn a_host_that_carries_the_names_of_others_passes_for_none_of_them() {
    let rig = Rig::new();
    let alice = rig.user("alice", Duration::hours(1));
    let (own, other) = (HostId::new(), HostId::new());
    let by_id = |id: HostId| format!("{id}.prod.{DOMAIN}");
    let by_role = |role| server_name(role, rig.trust.cluster());
    let public = "ssh.example.com".to_owned();
    let mut names: Vec<String> = HostRole::ALL.into_iter().map(by_role).collect();
    names.extend([by_id(own), by_id(other), public.clone()]);
    for role in HostRole::ALL {
        let server = serve(&rig.trust, &rig.with_names(own, role, &names));
        for name in &names {
            let is_its_own =
                *name == by_role(role) || *name == by_id(own) || (role == HostRole::Proxy && *name == public);
            match connect(&dial(&rig.trust, &alice), &server, name) {
                Ok(_) => assert!(is_its_own, "{role:?} passes for {name}"),
                Err(error) => {
                    assert!(!is_its_own, "{role:?} as {name}: {error}");
                    let reason = refusal(&error);
                    assert!(
                        matches!(reason, Some(CaError::WrongRole { .. } | CaError::WrongHost { .. })),
                        "{role:?} as {name}: {reason:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_second_handshake_verifies_no_chain() {
    let rig = Rig::new();
    let (alice, bob) = (rig.user("alice", Duration::hours(1)), rig.user("bob", Duration::hours(1)));
    let server = serve(&rig.trust, &rig.proxy());
    let mut expected = 0;
    for (user, name, fresh) in
        [(&alice, "alice", true), (&alice, "alice", false), (&bob, "bob", true), (&alice, "alice", false)]
    {
        expected += usize::from(fresh);
        // Every connection has a configuration of its own, so that nothing is resumed.
        let (accepted, _) = connect(&dial(&rig.trust, user), &server, &rig.name()).unwrap();
        // The identity that follows the handshake costs nothing more. It is asked for by the clock that the handshake
        // went by: by an earlier time, the chain would be one from the future and verified anew.
        let now = OffsetDateTime::now_utc();
        let identity = rig.trust.identify_peer(accepted.peer_certificates().unwrap(), now).unwrap();
        assert_eq!(identity.user().unwrap().as_str(), name);
        // One server, one name: verified once.
        assert_eq!(rig.verified(), (expected, 1), "{name}");
    }
    // Another name of the same server is another question.
    connect(&dial(&rig.trust, &alice), &server, "ssh.example.com").unwrap();
    assert_eq!(rig.verified(), (2, 2));
    let wrong = connect(&dial(&rig.trust, &alice), &server, "www.example.com");
    assert!(wrong.is_err());
    let counts = rig.trust.chain_counts();
    assert_eq!(counts.verified, 5);
    assert!(counts.remembered >= 8, "{counts:?}");
}

#[test]
fn what_a_client_may_show_says_nothing_about_servers() {
    let rig = Rig::new();
    let (alice, proxy) = (der(&rig.user("alice", Duration::hours(1))), der(&rig.proxy()));
    let name = ServerName::try_from(rig.name()).unwrap();
    rig.trust.identify_peer(&alice, rig.now).unwrap();
    let (leaf, rest) = alice.split_first().unwrap();
    assert!(rig.trust.identify_server(leaf, rest, &name, rig.now).is_err());
    // And the other way about, with a certificate that is good for both: each is verified.
    let (leaf, rest) = proxy.split_first().unwrap();
    rig.trust.identify_server(leaf, rest, &name, rig.now).unwrap();
    let before = rig.verified();
    rig.trust.identify_peer(&proxy, rig.now).unwrap();
    assert_eq!(rig.verified(), (before.0 + 1, before.1));
}

#[test]
fn a_remembered_chain_ends_with_its_certificate() {
    let rig = Rig::new();
    let alice = der(&rig.user("alice", Duration::minutes(10)));
    let trust = rig.trust.remembering(Remember { age: std::time::Duration::from_secs(86_400), chains: 16 });
    let judge = |seconds| trust.identify_peer(&alice, rig.now + Duration::seconds(seconds));
    judge(0).unwrap();
    // A minute is forgiven at both ends, as for a chain that is verified.
    for seconds in [599, 659] {
        judge(seconds).unwrap();
    }
    assert_eq!(rig.verified().0, 1);
    assert!(matches!(judge(660), Err(CaError::Expired { .. })));
    assert!(matches!(judge(86_399), Err(CaError::Expired { .. })));
    assert!(matches!(judge(-600), Err(CaError::NotYetValid { .. })));
    // It was not forgotten for that: the clock may be right again.
    judge(1).unwrap();
    assert_eq!(rig.verified().0, 1);
    // The default is ten minutes.
    let trust = rig.trust.remembering(Remember::DEFAULT);
    let before = rig.verified().0;
    trust.identify_peer(&alice, rig.now).unwrap();
    trust.identify_peer(&alice, rig.now + Duration::seconds(601)).unwrap();
    assert_eq!(rig.verified().0, before + 2);
}

#[test]
fn another_trust_remembers_nothing() {
    let rig = Rig::new();
    let alice = der(&rig.user("alice", Duration::hours(1)));
    let shared = rig.trust.clone();
    rig.trust.identify_peer(&alice, rig.now).unwrap();
    shared.identify_peer(&alice, rig.now).unwrap();
    assert_eq!(rig.verified().0, 1);
    let fresh = Trust::from_bundle(&rig.trust.to_bundle()).unwrap();
    fresh.identify_peer(&alice, rig.now).unwrap();
    assert_eq!(fresh.chain_counts(), ChainCounts { verified: 1, remembered: 0 });
    // A trust whose user CA was replaced refuses what the other still knows to be good.
    let other = Rig::new();
    let replaced = Trust::from_authorities(&[&other.users, &rig.hosts], None).unwrap();
    assert!(replaced.identify_peer(&alice, rig.now).is_err());
    shared.identify_peer(&alice, rig.now).unwrap();
    // And what was refused is not remembered.
    assert!(shared.identify_peer(&der(&other.user("alice", Duration::hours(1))), rig.now).is_err());
    assert!(shared.identify_peer(&der(&other.user("alice", Duration::hours(1))), rig.now).is_err());
}

#[test]
fn without_a_memory_every_chain_is_verified() {
    let rig = Rig::new();
    let trust = rig.trust.remembering(Remember::OFF);
    let alice = rig.user("alice", Duration::hours(1));
    let server = serve(&trust, &rig.proxy());
    for round in 1..=3 {
        let (accepted, _) = connect(&dial(&trust, &alice), &server, &rig.name()).unwrap();
        trust.identify_peer(accepted.peer_certificates().unwrap(), rig.now).unwrap();
        assert_eq!(rig.verified(), (2 * round, round));
    }
    assert_eq!(trust.chain_counts().remembered, 0);
}

#[test]
fn a_changed_byte_is_another_chain() {
    let rig = Rig::new();
    let mut alice = der(&rig.user("alice", Duration::hours(1)));
    rig.trust.identify_peer(&alice, rig.now).unwrap();
    // The last byte is the signature's.
    let mut forged = alice.first().unwrap().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    *alice.first_mut().unwrap() = CertificateDer::from(forged);
    assert!(rig.trust.identify_peer(&alice, rig.now).is_err());
    assert_eq!(rig.verified().0, 2);
    assert!(matches!(rig.trust.identify_peer(&[], rig.now), Err(CaError::Malformed { .. })));
}

/// Says what memory is worth: run with `--nocapture`.
#[test]
fn memory_saves_server_time() {
    let rig = Rig::new();
    let (alice, host) = (rig.user("alice", Duration::hours(1)), rig.proxy());
    let mut sides = [Remember::OFF, Remember::DEFAULT].map(|remember| {
        let trust = rig.trust.remembering(remember);
        let (server, client) = (serve(&trust, &host), dial(&trust, &alice));
        (trust, server, client, std::time::Duration::MAX)
    });
    // Interleaved, and the least of each: the machine has other things to do.
    for _ in 0..40 {
        for (trust, server, client, least) in &mut sides {
            let (accepted, mut served) = connect(client, server, &rig.name()).unwrap();
            let began = std::time::Instant::now();
            trust.identify_peer(accepted.peer_certificates().unwrap(), rig.now).unwrap();
            served += began.elapsed();
            *least = served.min(*least);
        }
    }
    let [without, with] = sides.map(|side| side.3.as_secs_f64() * 1e6);
    println!(
        "server side of a full handshake with client certificates: {without:.0} us without memory, {with:.0} us with it"
    );
    assert!(with < without, "{with} us with memory, {without} us without");
}
