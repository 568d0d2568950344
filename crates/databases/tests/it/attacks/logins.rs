//! A server, or a machine in between, that is after the password of a database user.

use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sallyport_access::{DatabaseLogin, DatabaseTlsMode};
use sallyport_databases::postgres::message::encode;
use sallyport_databases::postgres::startup;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{OK, PATIENCE, READY, hello, sasl};
use crate::client::{Client, words};
use crate::world::World;

const MECHANISM: &[u8] = b"SCRAM-SHA-256\0\0";

/// A server's part in SCRAM.
#[derive(Clone, Copy)]
struct Part {
    what: &'static str,
    mechanisms: &'static [u8],
    /// Its answer to this nonce.
    challenge: fn(&str) -> String,
    /// Its last message, and what comes with it.
    last: fn() -> Vec<u8>,
    /// Whether the agent gives its proof.
    proof: bool,
    /// What the client reads.
    words: &'static str,
}

/// Nothing is wrong with it but what it cannot know.
const PART: Part = Part {
    what: "",
    mechanisms: MECHANISM,
    challenge: |nonce| format!("r={nonce}more,s=c2FsdA==,i=4096"),
    last: || [sasl(12, b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), ready()].concat(),
    proof: true,
    words: "has not proven that it knows the password",
};

fn ready() -> Vec<u8> {
    [encode(b'R', OK), encode(b'Z', READY)].concat()
}

/// One message of a client.
async fn message(stream: &mut (impl AsyncRead + Unpin), has_kind: bool) -> std::io::Result<Vec<u8>> {
    if has_kind {
        stream.read_u8().await?;
    }
    let length = stream.read_u32().await?;
    let mut content = vec![0; usize::try_from(length).unwrap_or(4).saturating_sub(4)];
    stream.read_exact(&mut content).await?;
    Ok(content)
}

/// Plays its part to the end. All that the agent says in SCRAM is kept.
async fn play(mut stream: TcpStream, part: Part, heard: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let keep = |content: &[u8]| heard.lock().unwrap().push(String::from_utf8_lossy(content).into_owned());
    message(&mut stream, false).await?;
    stream.write_all(&sasl(10, part.mechanisms)).await?;
    let first = message(&mut stream, true).await?;
    keep(&first);
    let first = String::from_utf8_lossy(&first).into_owned();
    let nonce = first.rsplit_once("r=").map_or("", |(_, nonce)| nonce);
    stream.write_all(&sasl(11, (part.challenge)(nonce).as_bytes())).await?;
    keep(&message(&mut stream, true).await?);
    stream.write_all(&(part.last)()).await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

async fn listener(world: &World, tls: DatabaseTlsMode) -> TcpListener {
    certified_listener(world, tls, &world.cluster.pki.server_ca).await
}

/// The agent believes this CA.
async fn certified_listener(world: &World, tls: DatabaseTlsMode, ca_pem: &str) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.serve(|database| {
        database.address = address;
        database.tls.mode = tls;
        database.tls.ca_pem = Some(ca_pem.to_owned());
        database.login = DatabaseLogin::Password;
    });
    listener
}

fn password(world: &World, user: &str) {
    world.cluster.passwords.lock().unwrap().insert(user.to_owned(), "secret".to_owned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_know_the_password_is_told_nothing_that_helps_to_guess_it_quickly() {
    let malformed = Part { proof: false, words: "SCRAM message is malformed", ..PART };
    let rounds = Part { proof: false, words: "rounds of SCRAM, and 4096 to 1000000 are done", ..PART };
    let cases = [
        Part { what: "a wrong signature", ..PART },
        Part { what: "a short signature", last: || [sasl(12, b"v=AAAA"), ready()].concat(), ..PART },
        Part {
            what: "no signature",
            last: || [sasl(12, b""), ready()].concat(),
            words: "malformed: it has no signature",
            ..PART
        },
        Part { what: "a login without a signature", last: ready, words: "in the middle of SCRAM", ..PART },
        Part {
            what: "SCRAM from the beginning",
            last: || sasl(10, MECHANISM),
            words: "in the middle of SCRAM",
            ..PART
        },
        Part {
            what: "a refusal in SCRAM",
            last: || [sasl(12, b"e=invalid-proof"), ready()].concat(),
            words: "the server refused the SCRAM login: invalid-proof",
            ..PART
        },
        Part { what: "one round", challenge: |nonce| format!("r={nonce}x,s=c2FsdA==,i=1"), ..rounds },
        Part { what: "few rounds", challenge: |nonce| format!("r={nonce}x,s=c2FsdA==,i=4095"), ..rounds },
        Part {
            what: "2^31 rounds",
            challenge: |nonce| format!("r={nonce}x,s=c2FsdA==,i=2147483648"),
            ..rounds
        },
        Part { what: "no salt", challenge: |nonce| format!("r={nonce}x,s=,i=4096"), ..malformed },
        Part { what: "bad base64", challenge: |nonce| format!("r={nonce}x,s=AAA,i=4096"), ..malformed },
        Part {
            what: "the client's nonce",
            challenge: |nonce| format!("r={nonce},s=c2FsdA==,i=4096"),
            ..malformed
        },
        Part { what: "another nonce", challenge: |_| "r=other,s=c2FsdA==,i=4096".to_owned(), ..malformed },
        Part {
            what: "an extension",
            challenge: |nonce| format!("m=x,r={nonce}x,s=c2FsdA==,i=4096"),
            ..malformed
        },
        Part {
            what: "a binding to TLS that is not there",
            mechanisms: b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            proof: false,
            words: "bound to TLS, on a connection without TLS",
            ..PART
        },
    ];
    let world = World::new("");
    password(&world, "app");
    for part in cases {
        let what = part.what;
        let listener = listener(&world, DatabaseTlsMode::Disabled).await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        let server = tokio::spawn(async move { play(listener.accept().await.unwrap().0, part, kept).await });
        let begun = Instant::now();
        let said =
            timeout(PATIENCE, hello(&world).await.end()).await.unwrap_or_else(|_| panic!("{what}: no end"));
        assert!(said.starts_with("E 28000 prod: ") || said.starts_with("E 08006 prod: "), "{what}: {said}");
        assert!(said.contains(part.words) && !said.contains("secret"), "{what}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", begun.elapsed());
        // It ends when the agent has closed the connection.
        let _ = timeout(PATIENCE, server).await.unwrap();
        let heard = heard.lock().unwrap().clone();
        assert_eq!(heard.iter().any(|said| said.contains(",p=")), part.proof, "{what}: {heard:?}");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_its_time_is_given_up() {
    let world = World::hasty("", Duration::from_millis(400));
    password(&world, "app");
    let silent = listener(&world, DatabaseTlsMode::Disabled).await;
    let one = hello(&world).await;
    let (silent, _) = timeout(PATIENCE, silent.accept()).await.unwrap().unwrap();
    let dripping = listener(&world, DatabaseTlsMode::Disabled).await;
    let other = hello(&world).await;
    let (mut dripping, _) = timeout(PATIENCE, dripping.accept()).await.unwrap().unwrap();
    // A message of 20,000 bytes, of which one comes every 20 ms.
    let drips = tokio::spawn(async move {
        dripping.write_all(&[b'R', 0, 0, 0x4e, 0x20]).await?;
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            dripping.write_all(&[0]).await?;
        }
        #[allow(unreachable_code)]
        std::io::Result::Ok(())
    });
    for client in [one, other] {
        let said = timeout(Duration::from_secs(20), client.end()).await.expect("an end");
        assert!(
            said.starts_with("E 57P03 prod: ") && said.contains("has not finished the login within"),
            "{said}"
        );
    }
    world.quiet().await;
    assert!(timeout(PATIENCE, drips).await.unwrap().unwrap().is_err(), "the connection is closed");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_before_tls_is_not_believed() {
    let world = World::new("");
    password(&world, "app");
    for (answer, words) in [
        // In the middle of the connection: the offer of TLS is taken away.
        (b"N".to_vec(), "takes no TLS"),
        // Behind the answer, as if it had come through TLS (CVE-2021-23222).
        ([b"S", &ready()[..]].concat(), "the TLS connection to the database"),
        // An error that is shown to people (CVE-2024-10977).
        (encode(b'E', b"SFATAL\0C28000\0Mcall 555-0100\0\0"), "no PostgreSQL by its answer"),
    ] {
        let listener = listener(&world, DatabaseTlsMode::VerifyFull).await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            message(&mut stream, false).await?;
            stream.write_all(&answer).await?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map(|_| rest)
        });
        let said = timeout(PATIENCE, hello(&world).await.end()).await.expect("an end");
        assert!(said.starts_with("E 08006 prod: ") && said.contains(words), "{said}");
        assert!(!said.contains("555"), "{said}");
        let rest = timeout(PATIENCE, server).await.unwrap().unwrap().unwrap_or_default();
        assert!(!rest.windows(4).any(|part| part == b"user"), "{rest:?}");
    }
}

/// Ends the agent's TLS with a certificate that the agent takes, and goes on to the true server, by TLS too.
async fn between(
    agent: TcpStream,
    identity: (String, String),
    server: u16,
    ca: String,
    strips: bool,
) -> std::io::Result<()> {
    let builder = || sallyport_sal::tls::provider();
    let chain = CertificateDer::pem_slice_iter(identity.0.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.1.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(builder())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(builder())
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut agent = agent;
    message(&mut agent, false).await?;
    agent.write_all(&[startup::ACCEPTED]).await?;
    let mut agent = TlsAcceptor::from(Arc::new(config)).accept(agent).await?;
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    server.write_all(&startup::ask_for_tls()).await?;
    server.read_u8().await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut server = TlsConnector::from(Arc::new(client)).connect(name, server).await?;
    let first = message(&mut agent, false).await?;
    let length = u32::try_from(first.len() + 4).unwrap().to_be_bytes();
    send(&mut server, &[&length[..], &first].concat()).await?;
    let offer = message(&mut server, true).await?;
    assert!(
        offer.windows(19).any(|name| name == b"SCRAM-SHA-256-PLUS\0"),
        "the true server offers it: {offer:?}"
    );
    let offer = if strips { sasl(10, MECHANISM) } else { encode(b'R', &offer) };
    send(&mut agent, &offer).await?;
    copy_bidirectional(&mut agent, &mut server).await.map(drop)
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// A CA that signs with a key of this kind of OpenSSL's, and a certificate of it for the server, with its key.
fn certified(algorithm: &[&str]) -> (String, (String, String)) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let text = "[req]\ndistinguished_name = name\n[name]\n[ca]\nbasicConstraints = critical,CA:TRUE\n\
                [leaf]\nsubjectAltName = IP:127.0.0.1\n";
    fs::write(file("config"), text).unwrap();
    let make = |arguments: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-config", "config", "-nodes", "-days", "1"]).args(arguments);
        let out = openssl.current_dir(directory.path()).output();
        let out = out.unwrap_or_else(|error| panic!("openssl: {error}; install the package openssl"));
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let ca = ["-subj", "/CN=CA", "-extensions", "ca", "-keyout", "ca.key", "-out", "ca.crt", "-newkey"];
    make(&[&ca[..], algorithm].concat());
    let leaf = ["-subj", "/CN=db", "-extensions", "leaf", "-keyout", "leaf.key", "-out", "leaf.crt"];
    let leaf = [&leaf[..], &["-CA", "ca.crt", "-CAkey", "ca.key", "-newkey", "ec"]].concat();
    make(&[&leaf[..], &["-pkeyopt", "ec_paramgen_curve:P-256"]].concat());
    let read = |name| fs::read_to_string(file(name)).unwrap();
    (read("ca.crt"), (read("leaf.crt"), read("leaf.key")))
}

const ECDSA: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const ED25519: &[&str] = &["ed25519"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_through_another_certified_server_does_not_succeed_at_the_true_one() {
    use DatabaseTlsMode::{Insecure, VerifyCa, VerifyFull};

    const CHECK: &str = "SCRAM channel binding check failed";
    const NEGOTIATION: &str = "SCRAM channel binding negotiation error";
    const UNBINDABLE: &str = "a machine in between could pass the login on";
    let world = World::new("");
    world.postgres.sql("create role scram login password 'secret'");
    password(&world, "scram");
    let hello = || Client::hello(&world, &[("user", "scram"), ("database", "postgres")]);
    let (ecdsa, ed25519) = (certified(ECDSA), certified(ED25519));
    for (mode, (ca, identity), strips, words) in [
        (VerifyFull, &ecdsa, false, CHECK),
        (VerifyFull, &ecdsa, true, NEGOTIATION),
        (VerifyCa, &ecdsa, false, CHECK),
        (Insecure, &ecdsa, true, NEGOTIATION),
        // There is nothing to bind to in a certificate that the machine in between has chosen.
        (VerifyCa, &ed25519, false, UNBINDABLE),
        (Insecure, &ed25519, false, UNBINDABLE),
        (VerifyCa, &ed25519, true, NEGOTIATION),
        (Insecure, &ed25519, true, NEGOTIATION),
        (VerifyFull, &ed25519, true, NEGOTIATION),
    ] {
        let listener = certified_listener(&world, mode, ca).await;
        let (port, true_ca) = (world.postgres.port, world.cluster.pki.server_ca.clone());
        let identity = identity.clone();
        let between = tokio::spawn(async move {
            let (agent, _) = listener.accept().await?;
            between(agent, identity, port, true_ca, strips).await
        });
        let said = timeout(PATIENCE, hello().await.end()).await.expect("an end");
        assert!(said.starts_with("E 28") && said.contains(words), "{mode:?} {strips}: {said}");
        let _ = timeout(PATIENCE, between).await.unwrap().unwrap();
    }

    // What answers by the name that was dialled is the server: it may have any certificate.
    let (ca, identity) = ed25519;
    let listener = certified_listener(&world, VerifyFull, &ca).await;
    let (port, true_ca) = (world.postgres.port, world.cluster.pki.server_ca.clone());
    let named = tokio::spawn(async move {
        let (agent, _) = listener.accept().await?;
        between(agent, identity, port, true_ca, false).await
    });
    let mut client = hello().await;
    let said = words(&client.answers().await);
    assert!(said.starts_with('R'), "{said}");
    drop(client);
    let _ = timeout(PATIENCE, named).await.unwrap().unwrap();

    // Without anything in between the same login is bound, and succeeds.
    for mode in [VerifyFull, VerifyCa, Insecure] {
        world.serve(|database| (database.login, database.tls.mode) = (DatabaseLogin::Password, mode));
        let said = words(&hello().await.answers().await);
        assert!(said.starts_with('R'), "{mode:?}: {said}");
    }
}
