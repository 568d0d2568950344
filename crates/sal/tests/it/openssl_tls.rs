//! TLS 1.3 with OpenSSL's own `s_client` and `s_server`: every key exchange group, certificate type and cipher suite
//! that both know, in both directions, with and without a client's certificate.
//!
//! What the installed OpenSSL does not know is skipped, with its reason, and counted; a newer one is asked for more.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::kept;
use crate::programs::{Installed, Program, TIME_LIMIT};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
    ServerConnection, SupportedCipherSuite,
};
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::formats::{self, Format};
use sallyport_sal::measure::certificate::{self, Role};
use sallyport_sal::tls::{self, rustls};
use sallyport_sal::{KeyAlgorithm, MemoryKey, PublicKey, Signer, selection};
use tempfile::TempDir;

const CERTIFICATES: [KeyAlgorithm; 10] = [
    KeyAlgorithm::Ed25519,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::EcdsaP521,
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::Rsa4096,
    KeyAlgorithm::MlDsa44,
    KeyAlgorithm::MlDsa65,
    KeyAlgorithm::MlDsa87,
];
const SUITES: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];
/// Connections for each group and certificate type: three suites, two directions, with and without a client's
/// certificate.
const CONNECTIONS: usize = 12;

fn suite_name(suite: CipherSuite) -> String {
    suite.as_str().unwrap().replace("TLS13_", "TLS_")
}

/// The ephemeral key of a group in the words of `s_client`, where it has some.
fn temporary_key(group: KexGroup) -> Option<&'static str> {
    match group {
        KexGroup::X25519 => Some("X25519, 253 bits"),
        KexGroup::P256 => Some("ECDH, prime256v1, 256 bits"),
        KexGroup::P384 => Some("ECDH, secp384r1, 384 bits"),
        _ => None,
    }
}

/// Whether `s_client` says that it used this group: the first is how OpenSSL 3.0 does, the other how later versions do.
fn names_group(text: &str, group: KexGroup) -> bool {
    let key = temporary_key(group).map(|key| format!("Server Temp Key: {key}"));
    let name = format!("Negotiated TLS1.3 group: {}", group.name());
    text.lines().map(str::trim).any(|line| line == name || key.as_deref() == Some(line))
}

/// The hash and the type of a handshake's signature as OpenSSL 3.0 names them; later versions give the name of RFC 8446.
fn signature_names(algorithm: KeyAlgorithm) -> (Option<&'static str>, [&'static str; 2]) {
    match algorithm {
        KeyAlgorithm::Ed25519 => (None, ["Ed25519", "ed25519"]),
        KeyAlgorithm::EcdsaP256 => (Some("SHA256"), ["ECDSA", "ecdsa_secp256r1_sha256"]),
        KeyAlgorithm::EcdsaP384 => (Some("SHA384"), ["ECDSA", "ecdsa_secp384r1_sha384"]),
        KeyAlgorithm::EcdsaP521 => (Some("SHA512"), ["ECDSA", "ecdsa_secp521r1_sha512"]),
        KeyAlgorithm::MlDsa44 => (None, ["mldsa44", "ML-DSA-44"]),
        KeyAlgorithm::MlDsa65 => (None, ["mldsa65", "ML-DSA-65"]),
        KeyAlgorithm::MlDsa87 => (None, ["mldsa87", "ML-DSA-87"]),
        _ => (Some("SHA256"), ["RSA-PSS", "rsa_pss_rsae_sha256"]),
    }
}

/// The certificates of one type, as values and as files.
struct Credentials {
    algorithm: KeyAlgorithm,
    roots: Arc<RootCertStore>,
    server: Side,
    client: Side,
    directory: TempDir,
}

struct Side {
    name: &'static str,
    chain: CertificateDer<'static>,
    key: Arc<MemoryKey>,
}

impl Side {
    fn certified(&self) -> Arc<SingleCertAndKey> {
        let key = tls::signing_key(Arc::clone(&self.key) as Arc<dyn Signer>);
        Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![self.chain.clone()], key)))
    }
}

impl Credentials {
    fn new(algorithm: KeyAlgorithm) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, content: &[u8]| std::fs::write(directory.path().join(name), content).unwrap();
        let authority = kept::key(algorithm);
        let issue = |key: &PublicKey, number, role| {
            CertificateDer::from(certificate::issue(key, number, role, &authority, 1).unwrap())
        };
        let root = issue(&authority.public_key(), 1, Role::Authority);
        write("roots.pem", pem(&root).as_bytes());
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        let side = |name: &'static str, number| {
            let key = kept::key(algorithm);
            let chain = issue(&key.public_key(), number, Role::Leaf);
            write(&format!("{name}.pem"), pem(&chain).as_bytes());
            let private = formats::write_private(key.material(), Format::Pkcs8Pem, None).unwrap();
            write(&format!("{name}.key"), &private);
            Side { name, chain, key: Arc::new(key) }
        };
        let (server, client) = (side("server", 2), side("client", 3));
        Self { algorithm, roots: Arc::new(roots), server, client, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Options by which an OpenSSL program shows a certificate.
    fn shown(&self, side: &Side) -> [String; 4] {
        let file = |ending: &str| self.path(&format!("{}.{ending}", side.name)).display().to_string();
        ["-cert".to_owned(), file("pem"), "-key".to_owned(), file("key")]
    }

    fn client_config(&self, provider: &Arc<CryptoProvider>, certificate: bool) -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = if certificate {
            config.with_client_cert_resolver(self.client.certified())
        } else {
            config.with_no_client_auth()
        };
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    }

    fn server_config(&self, provider: &Arc<CryptoProvider>, certificate: bool) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap();
        let config = if certificate {
            let roots = Arc::clone(&self.roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            config.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        Arc::new(config.with_cert_resolver(self.server.certified()))
    }
}

fn pem(der: &[u8]) -> String {
    let base64 = data_encoding::BASE64.encode(der);
    let lines: Vec<&str> =
        base64.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// A provider with these groups and, if one is given, this suite alone.
fn provider(groups: &[KexGroup], suite: Option<CipherSuite>) -> Arc<CryptoProvider> {
    let composed = tls::compose(selection::global(), groups).unwrap();
    let kept = |one: &SupportedCipherSuite| suite.is_none_or(|suite| one.suite() == suite);
    let cipher_suites = composed.cipher_suites.iter().copied().filter(kept).collect();
    Arc::new(CryptoProvider { cipher_suites, ..(*composed).clone() })
}

/// A line that differs everywhere and starts with no command of `s_client`.
fn line(seed: usize) -> String {
    let mut state = seed + 1;
    let mut text = String::from("a");
    for _ in 0..4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(char::from(b"abcdefghijklmnopqrstuvwxyz012345"[(state >> 40) & 31]));
    }
    text
}

fn reversed(line: &str) -> String {
    line.chars().rev().collect()
}

fn read_line(stream: &mut impl Read) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn limited(stream: TcpStream) -> TcpStream {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    stream.set_write_timeout(Some(TIME_LIMIT)).unwrap();
    stream
}

/// What our side negotiated.
fn check_ours<Data>(connection: &rustls::ConnectionCommon<Data>, group: KexGroup, suite: CipherSuite) {
    assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(connection.negotiated_cipher_suite().unwrap().suite(), suite);
    let negotiated = connection.negotiated_key_exchange_group().unwrap();
    assert_eq!(u16::from(negotiated.name()), group.iana_code());
}

/// One connection of our client to an `s_server` that sends each line back reversed.
fn ask_server(
    config: &Arc<ClientConfig>,
    port: u16,
    seed: usize,
) -> Result<ClientConnection, std::io::Error> {
    let mut socket = limited(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let sent = line(seed);
    let mut stream = rustls::Stream::new(&mut connection, &mut socket);
    stream.write_all(format!("{sent}\n").as_bytes())?;
    assert_eq!(read_line(&mut stream), reversed(&sent));
    connection.send_close_notify();
    connection.complete_io(&mut socket)?;
    Ok(connection)
}

/// Serves one connection of an `s_client`: reads a line and sends it back reversed.
fn answer_client(
    config: &Arc<ServerConfig>,
    listener: &TcpListener,
    client: &mut Program,
) -> Result<(ServerConnection, String), std::io::Error> {
    listener.set_nonblocking(true).unwrap();
    let began = Instant::now();
    let mut socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break limited(socket),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        assert!(client.is_running() && began.elapsed() < TIME_LIMIT, "{}", client.said());
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = rustls::Stream::new(&mut connection, &mut socket);
    stream.conn.complete_io(stream.sock)?;
    let got = read_line(&mut stream);
    stream.write_all(format!("{}\n", reversed(&got)).as_bytes())?;
    connection.send_close_notify();
    connection.complete_io(&mut socket)?;
    Ok((connection, got))
}

/// Our client against one `s_server`, for all groups and suites. Gives the number of connections.
fn clients_of_ours(credentials: &Credentials, groups: &[KexGroup], certificate: bool) -> usize {
    let mut arguments: Vec<String> =
        ["s_server", "-accept", "127.0.0.1:0", "-tls1_3", "-rev"].map(str::to_owned).into();
    arguments.extend(credentials.shown(&credentials.server));
    arguments.extend(["-naccept".to_owned(), (groups.len() * SUITES.len()).to_string()]);
    arguments.extend(["-groups".to_owned(), openssl_groups(groups)]);
    if certificate {
        let roots = credentials.path("roots.pem").display().to_string();
        arguments.extend(["-verify_return_error", "-Verify", "1", "-CAfile"].map(str::to_owned));
        arguments.push(roots);
    }
    let mut server = Program::start(credentials.directory.path(), &arguments);
    let port = server.port();
    let mut expected = Vec::new();
    for &group in groups {
        for suite in SUITES {
            let config = credentials.client_config(&provider(&[group], Some(suite)), certificate);
            let connection = ask_server(&config, port, expected.len())
                .unwrap_or_else(|error| panic!("{group} {suite:?}: {error}\n{}", server.said()));
            check_ours(&connection, group, suite);
            assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full));
            // With a file of authorities at hand, s_server shows the root as well.
            assert!(connection.peer_certificates().unwrap()[0] == credentials.server.chain);
            expected.push(suite);
        }
    }
    let said = server.finish();
    let connections: Vec<&str> = said.split("CONNECTION ESTABLISHED").skip(1).collect();
    assert_eq!(connections.len(), expected.len(), "{said}");
    for (text, suite) in connections.iter().zip(&expected) {
        let has = |line: &str| text.lines().any(|one| one.trim() == line);
        assert!(has("Protocol version: TLSv1.3"), "{text}");
        assert!(has(&format!("Ciphersuite: {}", suite_name(*suite))), "{text}");
        if certificate {
            let (hash, names) = signature_names(credentials.algorithm);
            assert!(has("Verification: OK"), "{text}");
            assert!(text.contains("measurement 3"), "{text}");
            assert!(hash.is_none_or(|hash| has(&format!("Hash used: {hash}"))), "{text}");
            assert!(names.iter().any(|name| has(&format!("Signature type: {name}"))), "{text}");
        }
    }
    connections.len()
}

/// As `-groups` wants them.
fn openssl_groups(groups: &[KexGroup]) -> String {
    let name = |group: &KexGroup| match group {
        KexGroup::X25519 => "X25519",
        KexGroup::P256 => "P-256",
        KexGroup::P384 => "P-384",
        other => other.name(),
    };
    groups.iter().map(name).collect::<Vec<_>>().join(":")
}

/// An `s_client` towards this port.
fn s_client(credentials: &Credentials, port: u16, groups: &[KexGroup], more: &[String]) -> Program {
    let mut arguments: Vec<String> =
        ["s_client", "-tls1_3", "-verify_return_error", "-verify_hostname", "localhost"]
            .map(str::to_owned)
            .into();
    arguments.extend(["-connect".to_owned(), format!("127.0.0.1:{port}")]);
    arguments.extend(["-CAfile".to_owned(), credentials.path("roots.pem").display().to_string()]);
    arguments.extend(["-groups".to_owned(), openssl_groups(groups)]);
    arguments.extend_from_slice(more);
    Program::start(credentials.directory.path(), &arguments)
}

/// One `s_client` against our server.
fn server_of_ours(credentials: &Credentials, group: KexGroup, suite: CipherSuite, certificate: bool) {
    let config = credentials.server_config(&provider(&[group], None), certificate);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut more = vec!["-ciphersuites".to_owned(), suite_name(suite)];
    if certificate {
        more.extend(credentials.shown(&credentials.client));
    }
    let mut client = s_client(credentials, port, &[group], &more);
    let sent = line(usize::from(port));
    client.say(&format!("{sent}\n"));
    let (connection, got) = answer_client(&config, &listener, &mut client)
        .unwrap_or_else(|error| panic!("{group} {suite:?}: {error}\n{}", client.said()));
    assert_eq!(got, sent);
    check_ours(&connection, group, suite);
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full));
    let shown = connection.peer_certificates().map(|chain| &chain[0]);
    assert!(shown == certificate.then_some(&credentials.client.chain));

    let text = client.finish();
    let has = |line: &str| text.lines().any(|one| one.trim() == line);
    let (hash, names) = signature_names(credentials.algorithm);
    assert!(has(&reversed(&sent)), "{text}");
    assert!(text.contains(&format!("Cipher is {}", suite_name(suite))), "{text}");
    assert!(has("Verification: OK"), "{text}");
    assert!(hash.is_none_or(|hash| has(&format!("Peer signing digest: {hash}"))), "{text}");
    assert!(names.iter().any(|name| has(&format!("Peer signature type: {name}"))), "{text}");
    assert!(names_group(&text, group), "{text}");
}

/// Everything for one type of certificate. Gives the number of connections for each group.
fn all_connections(algorithm: KeyAlgorithm, groups: &[KexGroup]) -> BTreeMap<KexGroup, usize> {
    let credentials = Credentials::new(algorithm);
    let mut ran = BTreeMap::new();
    for certificate in [false, true] {
        let connections = clients_of_ours(&credentials, groups, certificate);
        for &group in groups {
            *ran.entry(group).or_default() += connections / groups.len();
            for suite in SUITES {
                server_of_ours(&credentials, group, suite, certificate);
                *ran.entry(group).or_default() += 1;
            }
        }
    }
    ran
}

#[test]
fn both_directions_for_every_group_certificate_and_suite() {
    let Some(installed) = Installed::find() else { return };
    let groups: Vec<KexGroup> =
        KexGroup::ALL.iter().copied().filter(|group| installed.knows_group(*group)).collect();
    let groups = &groups;
    let ran: BTreeMap<KeyAlgorithm, BTreeMap<KexGroup, usize>> = std::thread::scope(|scope| {
        let running: Vec<_> = CERTIFICATES
            .into_iter()
            .filter(|algorithm| installed.knows_key(*algorithm))
            .map(|algorithm| (algorithm, scope.spawn(move || all_connections(algorithm, groups))))
            .collect();
        running.into_iter().map(|(algorithm, thread)| (algorithm, thread.join().unwrap())).collect()
    });

    println!("{}: our client and s_server, our server and s_client", installed.version);
    println!("{:<19} {:<12} connections", "group", "certificate");
    let (mut pairs, mut connections, mut skipped) = (0, 0, 0);
    for &group in KexGroup::ALL {
        for algorithm in CERTIFICATES {
            let row = match ran.get(&algorithm).and_then(|ran| ran.get(&group)) {
                Some(count) => {
                    pairs += 1;
                    connections += count;
                    format!("{count} ran")
                }
                None => {
                    skipped += 1;
                    let unknown = if installed.knows_group(group) { algorithm.name() } else { group.name() };
                    format!("skipped: this OpenSSL does not know {unknown}")
                }
            };
            println!("{:<19} {:<12} {row}", group.name(), algorithm.name());
        }
    }
    println!("{pairs} pairs ran with {connections} connections, {skipped} pairs were skipped");

    assert_eq!(connections, pairs * CONNECTIONS);
    assert_eq!(pairs + skipped, KexGroup::ALL.len() * CERTIFICATES.len());
    for group in [KexGroup::X25519, KexGroup::P256, KexGroup::P384] {
        assert!(installed.knows_group(group));
    }
    if installed.version.starts_with("OpenSSL 3.0.") {
        // It has neither ML-KEM nor ML-DSA.
        assert_eq!((pairs, connections, skipped), (21, 252, 39));
    }
}

/// Neither side has a share of the other's only group at first.
#[test]
fn a_second_try_finds_the_common_group() {
    if Installed::find().is_none() {
        return;
    }
    let credentials = Credentials::new(KeyAlgorithm::EcdsaP256);
    let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let mut arguments: Vec<String> =
        ["s_server", "-accept", "127.0.0.1:0", "-tls1_3", "-rev", "-naccept", "1", "-groups", "P-384"]
            .map(str::to_owned)
            .into();
    arguments.extend(credentials.shown(&credentials.server));
    let mut server = Program::start(credentials.directory.path(), &arguments);
    let config = credentials.client_config(&provider(KexGroup::DEFAULT, Some(suite)), false);
    let connection = ask_server(&config, server.port(), 1).unwrap();
    check_ours(&connection, KexGroup::P384, suite);
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    server.finish();

    let config = credentials.server_config(&provider(&[KexGroup::P384], None), false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let more = ["-ciphersuites".to_owned(), suite_name(suite)];
    let mut client = s_client(&credentials, port, &[KexGroup::X25519, KexGroup::P384], &more);
    client.say("again\n");
    let (connection, got) = answer_client(&config, &listener, &mut client).unwrap();
    assert_eq!(got, "again");
    check_ours(&connection, KexGroup::P384, suite);
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    let text = client.finish();
    assert!(names_group(&text, KexGroup::P384), "{text}");
}

#[test]
fn strangers_are_refused_by_both() {
    if Installed::find().is_none() {
        return;
    }
    for kind in [KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
        let (ours, theirs) = (Credentials::new(kind), Credentials::new(kind));
        let provider = provider(KexGroup::DEFAULT, None);

        // An s_server of another authority, to our client.
        let mut arguments: Vec<String> =
            ["s_server", "-accept", "127.0.0.1:0", "-tls1_3", "-rev"].map(str::to_owned).into();
        arguments.extend(theirs.shown(&theirs.server));
        let mut server = Program::start(theirs.directory.path(), &arguments);
        let config = ours.client_config(&provider, false);
        let error = ask_server(&config, server.port(), 0).unwrap_err().to_string();
        // Two authorities of the same name: it is the signature that does not fit, or the type of the key.
        assert!(error.contains("invalid peer certificate: BadSignature"), "{error}");
        drop(server);

        // Our server to an s_client that trusts another; and an s_client with another's certificate, or none.
        let attempts: [(&Credentials, Vec<String>, &str); 3] = [
            (&theirs, Vec::new(), "DecryptError"),
            (&ours, theirs.shown(&theirs.client).into(), "BadSignature"),
            (&ours, Vec::new(), "peer sent no certificates"),
        ];
        for (trusting, shown, reason) in attempts {
            let config = ours.server_config(&provider, true);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut client = s_client(trusting, port, &[KexGroup::X25519], &shown);
            client.say("let me in\n");
            let error = answer_client(&config, &listener, &mut client).err().unwrap().to_string();
            assert!(error.contains(reason), "{kind}: {error}\n{}", client.said());
            assert!(!client.end().0.success(), "{}", client.said());
        }
    }
}
