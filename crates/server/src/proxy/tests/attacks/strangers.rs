//! Strangers and former guests at the one port: what they may ask, how much of it they may leave undone, and what a ticket of
//! TLS spares them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::HostRole;
use sallyport_ca::server_name;
use sallyport_sal::tls::provider;
use sallyport_wire::alpn;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, SignatureScheme};
use tonic::Code;

use crate::config::Limits;
use crate::proxy::tests::rig::{PATIENCE, Pair, Rig, channel, client_hello, open, until};

/// One request by HTTP/1.1 without a certificate; the answer's status and all of it.
pub(super) async fn ask(rig: &Rig, method: &str, path: &str) -> (u16, String) {
    let mut stream = rig.tls_to_proxy(None, &[alpn::HTTP11]).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: proxy\r\nContent-Type: application/grpc\r\nContent-Length: \
         0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("an answer in time");
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{method} {path}: {text}")), text)
}

/// How long strangers wait for a page, each.
async fn waits(rig: &Rig, count: usize) -> Vec<Duration> {
    let mut waits = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        let (status, _) = ask(rig, "GET", "/healthz").await;
        assert_eq!(status, 200);
        waits.push(began.elapsed());
    }
    waits.sort();
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_half_handshakes_keep_no_user_waiting() {
    const HALVES: usize = 5_000;
    // Two descriptors for each.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let limits = Limits { connections_per_address: 10_000, ..Limits::default() };
    let rig = Rig::with(Limits { handshake_timeout: Duration::from_secs(120), ..limits }).await;
    let hello = client_hello(&[alpn::HTTP11]).await;
    let mut held = Vec::new();
    for number in 0..HALVES {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        // Nothing, the first bytes, half of it, and all of it without a word after the server's answer.
        let part = [0, 5, hello.len() / 2, hello.len()][number % 4];
        // The last kind costs the proxy a signature each, which is what the machine is tested with elsewhere.
        let part = if number % 4 == 3 && number > 400 { hello.len() - 1 } else { part };
        stream.write_all(&hello[..part]).await.unwrap();
        held.push(stream);
    }
    let waits = waits(&rig, 50).await;
    let last = waits.last().unwrap();
    assert!(*last < Duration::from_secs(5), "beside {HALVES} half handshakes: {waits:?}");
    println!("median {:?}, longest {last:?}", waits[waits.len() / 2]);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_with_oversized_bodies_keep_no_user_waiting() {
    let rig = Rig::new().await;
    let mut held = Vec::new();
    let ways = [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        "POST /sallyport.v1.Transport/ProxySsh HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for head in ways {
        for _ in 0..8 {
            let mut stream = rig.tls_to_proxy(None, &[alpn::HTTP11]).await.unwrap();
            held.push(tokio::spawn(async move {
                let chunk = [&b"10000\r\n"[..], &[7; 0x10000], b"\r\n"].concat();
                stream.write_all(head.as_bytes()).await?;
                for _ in 0..256 {
                    stream.write_all(&chunk).await?;
                }
                Ok::<_, std::io::Error>(())
            }));
        }
    }
    let waits = waits(&rig, 10).await;
    assert!(*waits.last().unwrap() < Duration::from_secs(5), "{waits:?}");
    for sending in held {
        sending.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_are_cut_and_give_their_places_back() {
    let limits = Limits { connections_per_address: 24, ..Limits::default() };
    let rig = Rig::with(Limits { handshake_timeout: Duration::from_secs(3), ..limits }).await;
    let mut held = Vec::new();
    // All that one address gets.
    while let Ok(mut stream) = rig.tls_to_proxy(None, &[alpn::HTTP11]).await {
        stream.write_all(b"POST /scim/v2/Users HTTP/1.1\r\nHost: proxy\r\nAuthor").await.unwrap();
        held.push(stream);
        assert!(held.len() <= 64, "there is no bound");
    }
    assert!(held.len() > 8, "{}", held.len());
    let cut = async {
        for stream in &mut held {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.expect("slow heads are cut");
    let back = async {
        while rig.tls_to_proxy(None, &[alpn::HTTP11]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("their places are given back");
    assert_eq!(ask(&rig, "GET", "/scim/v2/Users").await.0, 401);
}

/// One element of DER (X.690 §8.1).
#[allow(clippy::cast_possible_truncation, reason = "what is made here is short")]
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    match length {
        0..=127 => out.push(length as u8),
        _ => {
            let bytes = (length as u32).to_be_bytes();
            let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// The odd parts of a certificate; each is something well-formed where it is not said.
struct Odd {
    serial: Vec<u8>,
    names: Vec<u8>,
    validity: Vec<u8>,
    key: Vec<u8>,
    extensions: Vec<u8>,
    signature: Vec<u8>,
}

impl Odd {
    fn new() -> Self {
        let time = |text: &str| der(0x17, text.as_bytes());
        Self {
            serial: der(0x02, &[7]),
            names: sequence(&[]),
            validity: sequence(&[&time("250101000000Z"), &time("490101000000Z")]),
            key: Self::rsa(2048),
            extensions: Vec::new(),
            signature: der(0x03, &[0; 65]),
        }
    }

    /// An RSA key with so many bits (RFC 8017 §A.1.1).
    fn rsa(bits: usize) -> Vec<u8> {
        let modulus = [&[0][..], &vec![0xd5; bits / 8]].concat();
        let key = sequence(&[&der(0x02, &modulus), &der(0x02, &[1, 0, 1])]);
        let algorithm = sequence(&[&der(0x06, b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"), &[5, 0]]);
        sequence(&[&algorithm, &der(0x03, &[&[0], &key[..]].concat())])
    }

    fn extension(id: u8, value: &[u8]) -> Vec<u8> {
        sequence(&[&der(0x06, &[0x55, 0x1d, id]), &der(0x04, value)])
    }

    fn der(&self) -> Vec<u8> {
        let algorithm = sequence(&[&der(0x06, b"\x2b\x65\x70")]);
        let extensions = der(0xa3, &sequence(&[&self.extensions]));
        let version = der(0xa0, &der(0x02, &[2]));
        let body = [
            &version[..],
            &self.serial,
            &algorithm,
            &self.names,
            &self.validity,
            &self.names,
            &self.key,
            &extensions,
        ];
        sequence(&[&sequence(&body), &algorithm, &self.signature])
    }
}

/// Certificates that parsers of others have fallen over, and a good one with bytes changed.
fn hostile(good: &[u8]) -> Vec<Vec<u8>> {
    let odd = |change: &dyn Fn(&mut Odd)| {
        let mut odd = Odd::new();
        change(&mut odd);
        odd.der()
    };
    let mut all = vec![
        Vec::new(),
        vec![0x30],
        vec![0x30, 0],
        vec![0x30, 0x80],
        vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        vec![0; 64],
        // An empty extended key usage, key usage, name and basic constraints; an extension without a value.
        odd(&|odd| odd.extensions = Odd::extension(0x25, &sequence(&[]))),
        odd(&|odd| odd.extensions = Odd::extension(0x0f, &der(0x03, &[]))),
        odd(&|odd| odd.extensions = Odd::extension(0x0f, &der(0x03, &[9]))),
        odd(&|odd| odd.extensions = Odd::extension(0x11, &sequence(&[]))),
        odd(&|odd| odd.extensions = Odd::extension(0x13, &sequence(&[]))),
        odd(&|odd| odd.extensions = Odd::extension(0x25, &[])),
        odd(&|odd| odd.extensions = Odd::extension(0x25, &sequence(&[&der(0x06, &[])]))),
        // Parts of no length.
        odd(&|odd| odd.serial = der(0x02, &[])),
        odd(&|odd| odd.serial = der(0x02, &[0x7f; 300])),
        odd(&|odd| odd.validity = sequence(&[])),
        odd(&|odd| odd.validity = sequence(&[&der(0x17, b""), &der(0x17, b"")])),
        odd(&|odd| odd.validity = sequence(&[&der(0x18, b"99991332256199Z"), &der(0x17, b"000000000000Z")])),
        odd(&|odd| odd.key = sequence(&[])),
        odd(&|odd| odd.key = der(0x30, &[0x30, 0, 0x03, 0])),
        odd(&|odd| odd.signature = der(0x03, &[])),
        // Keys beyond all measure.
        odd(&|odd| odd.key = Odd::rsa(16_384)),
        odd(&|odd| odd.key = Odd::rsa(65_536)),
        odd(&|odd| odd.key = Odd::rsa(8)),
        odd(&|odd| odd.key = Odd::rsa(0)),
    ];
    let step = (good.len() / 24).max(1);
    for at in (0..good.len()).step_by(step) {
        all.push(good[..at].to_vec());
        for byte in [0, 0xff] {
            let mut changed = good.to_vec();
            changed[at] = byte;
            all.push(changed);
        }
    }
    all.retain(|certificate| certificate != good);
    all
}

/// Shows any bytes as its certificate, and signs with a key that it has.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_certificate_ends_more_than_its_own_connection() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let alice = rig.user("alice");
    let (chain, key) = alice.pem();
    let good = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap().to_vec();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key: Arc<dyn SigningKey> = provider().key_provider.load_private_key(key).unwrap();
    let name = ServerName::try_from(server_name(HostRole::Proxy, &rig.cluster)).unwrap();
    for certificate in hostile(&good) {
        for protocol in [alpn::H2, alpn::TUNNEL, alpn::POSTGRESQL] {
            let shown = vec![CertificateDer::from(certificate.clone())];
            let mut config = rig.tls(None, &[protocol]);
            let shows = Shows(Arc::new(CertifiedKey::new(shown, Arc::clone(&key))));
            config.client_auth_cert_resolver = Arc::new(shows);
            let tcp = TcpStream::connect(rig.address).await.unwrap();
            let connecting = TlsConnector::from(Arc::new(config)).connect(name.clone(), tcp);
            // TLS 1.3 tells the client after its own handshake is over.
            if let Ok(Ok(mut stream)) = tokio::time::timeout(PATIENCE, connecting).await {
                let mut got = Vec::new();
                let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut got)).await;
                let ended = read.unwrap_or_else(|_| panic!("kept: {certificate:02x?}"));
                assert!(ended.is_err() || got.len() < 1024, "{certificate:02x?}");
            }
        }
    }
    // Other clients are served as before.
    let mut call = rig.open(&alice, "web-1", "alice").await.unwrap();
    call.send("still").await;
    assert_eq!(call.read(5).await, b"still");
}

/// A connection by TLS on TCP with a client's own tickets.
async fn again(rig: &Rig, config: &Arc<ClientConfig>) -> (TlsStream<TcpStream>, Option<HandshakeKind>) {
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    let name = ServerName::try_from(server_name(HostRole::Proxy, &rig.cluster)).unwrap();
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await.unwrap();
    let kind = stream.get_ref().1.handshake_kind();
    (stream, kind)
}

/// A user who was here by TCP and has tickets.
async fn returning(rig: &Rig, pair: &Pair) -> Arc<ClientConfig> {
    let config = Arc::new(rig.tls(Some(pair), &[alpn::H2]));
    let (stream, kind) = again(rig, &config).await;
    assert_eq!(kind, Some(HandshakeKind::Full));
    let mut call = open(channel(stream).await.unwrap(), "web-1", "alice").await.unwrap();
    call.send("first").await;
    assert_eq!(call.read(5).await, b"first");
    config
}

const LOCK: &str =
    "kind: lock\nversion: v1\nmetadata:\n  name: NAME\nspec:\n  target:\n    TARGET\n  message: gone\n";

fn lock(rig: &Rig, name: &str, target: &str) {
    rig.put("lock", name, &LOCK.replace("NAME", name).replace("TARGET", target));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_handshake_by_tcp_meets_the_locks_roles_and_trust_of_now() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let (alice, bob, carol) = (rig.user("alice"), rig.user("bob"), rig.user("carol"));
    let (alice, bob, carol) =
        (returning(&rig, &alice).await, returning(&rig, &bob).await, returning(&rig, &carol).await);

    lock(&rig, "out", "user: bob");
    let (stream, kind) = again(&rig, &bob).await;
    assert_eq!(kind, Some(HandshakeKind::Resumed), "else this shows nothing");
    let refused = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");

    // A role that was taken away.
    rig.delete("role", "dev");
    let (stream, kind) = again(&rig, &carol).await;
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    let refused = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert!(matches!(refused.code(), Code::PermissionDenied | Code::NotFound), "{refused}");

    // A user CA that is trusted no longer.
    let mut bundle = rig.service.view.bundle();
    bundle.user_tls_certificates = Rig::new().await.trust().to_bundle().user_tls_certificates;
    rig.service.view.trust_in(&bundle);
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    let name = ServerName::try_from(server_name(HostRole::Proxy, &rig.cluster)).unwrap();
    if let Ok(stream) = TlsConnector::from(Arc::clone(&alice)).connect(name, tcp).await {
        assert_ne!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
        if let Ok(channel) = channel(stream).await {
            open(channel, "web-1", "alice").await.err().expect("a certificate of a CA that is gone");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_handshake_by_tcp_ends_with_its_certificate() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    // Good for some seconds more, in which it comes for the first time.
    let issued = OffsetDateTime::now_utc() - time::Duration::hours(1) + time::Duration::seconds(4);
    let config = returning(&rig, &rig.user_at("alice", issued)).await;
    let over = issued + time::Duration::hours(1) + time::Duration::seconds(1);
    until("the end of the certificate", || OffsetDateTime::now_utc() > over).await;
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    let name = ServerName::try_from(server_name(HostRole::Proxy, &rig.cluster)).unwrap();
    if let Ok(stream) = TlsConnector::from(config).connect(name, tcp).await
        && let Ok(channel) = channel(stream).await
    {
        open(channel, "web-1", "alice").await.err().expect("an expired certificate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_that_is_resumed_by_a_locked_node_does_not_open() {
    let rig = Rig::new().await;
    let id = rig.know("web-1");
    let pair = rig.host(id, "web-1", HostRole::Node);
    let config = Arc::new(rig.tls(Some(&pair), &[alpn::TUNNEL]));
    let (mut first, _) = again(&rig, &config).await;
    until("the tunnel", || rig.service.hub.tunnels(&id) == 1).await;
    // Tickets come with what the proxy says first.
    let _ = tokio::time::timeout(Duration::from_millis(500), first.read(&mut [0; 64])).await;
    drop(first);
    until("its end", || rig.service.hub.tunnels(&id) == 0).await;
    lock(&rig, "out", &format!("node: {id}"));
    let (mut second, kind) = again(&rig, &config).await;
    println!("{kind:?}");
    let mut got = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, second.read_to_end(&mut got)).await.expect("it is closed");
    assert_eq!(rig.service.hub.tunnels(&id), 0);
}
