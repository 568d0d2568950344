use quinn::rustls::RootCertStore;
use quinn::rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom, aws_lc_rs};
use quinn::rustls::pki_types::pem::PemObject;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions};
use quinn::rustls::version::TLS13;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::carrier::{ServerSettings, bind};

const NAME: &str = "proxy.example";
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
/// An Ed25519 key (RFC 8410 §7) that protects nothing.
const KEY: &[u8] =
    b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20a key that is in every checkout..";

/// Made out by that key to itself, for [`NAME`], from the year 2000 to the year 9999.
const CERTIFICATE: &[u8] = include_bytes!("proxy.example.pem");

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(CERTIFICATE).unwrap()
}

fn client() -> Arc<rustls::ClientConfig> {
    client_by(aws_lc_rs::default_provider())
}

fn client_by(provider: CryptoProvider) -> Arc<rustls::ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_early_data = true;
    Arc::new(config)
}

fn server() -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], PrivatePkcs8KeyDer::from(KEY).into())
        .unwrap();
    tls.max_early_data_size = u32::MAX;
    Arc::new(tls)
}

/// A server that says everything back, with the next of `tickets` at each connection.
fn echo(tickets: Vec<Arc<dyn StoresServerSessions>>) -> SocketAddr {
    let settings = ServerSettings::new(server()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listener = bind(socket, &settings, None).unwrap();
    tokio::spawn(async move {
        for tickets in tickets {
            let arriving = listener.next().await.unwrap();
            let settings = settings.clone();
            tokio::spawn(async move {
                let (stream, shaking) = arriving.accept(&settings, tickets).await.unwrap();
                tokio::spawn(shaking.finish());
                let (mut from, mut to) = tokio::io::split(stream);
                tokio::io::copy(&mut from, &mut to).await
            });
        }
        std::future::pending::<()>().await;
    });
    address
}

async fn is_said_back(stream: &mut Stream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, text);
}

/// A machine that is busy lets a client on only when the handshake is over already.
#[tokio::test]
async fn an_answer_that_is_quicker_than_the_stream_is_heard() {
    let known: Arc<dyn StoresServerSessions> = ServerSessionMemoryCache::new(16);
    for (second, taken) in [(Arc::clone(&known), true), (Arc::new(NoServerSessionStorage {}), false)] {
        let (address, tls) = (echo(vec![Arc::clone(&known), second]), client());
        is_said_back(&mut connect(address, NAME, Arc::clone(&tls)).await.unwrap(), b"first").await;
        let Ok((connection, answer)) = begin(address, NAME, tls, Congestion::default()).unwrap().into_0rtt()
        else {
            panic!("there is a ticket");
        };
        while connection.stats().frame_rx.handshake_done == 0 {
            tokio::task::yield_now().await;
        }
        let Begun::Early(mut stream, mut answer) = early(connection, answer).await.unwrap() else {
            panic!("there is a ticket");
        };
        assert_eq!(answer.wait().await, Some(taken));
        is_said_back(&mut stream, &[7; 100_000]).await;
    }
}

/// Gives one byte over and over.
#[derive(Debug)]
struct Always(u8);

impl SecureRandom for Always {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        buffer.fill(self.0);
        Ok(())
    }
}

/// The names of a connection in the header of a client's first packet (RFC 9000 §17.2): the server's and its own.
fn names(packet: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut rest = &packet[5..];
    let mut name = || {
        let (name, after) = rest[1..].split_at(usize::from(rest[0]));
        rest = after;
        name.to_vec()
    };
    (name(), name())
}

/// quinn would draw them with a generator of its own, whatever the TLS configuration says.
#[tokio::test]
async fn every_random_number_comes_of_the_tls_configuration_s_provider() {
    static FIXED: [Always; 2] = [Always(0x5a), Always(0x5b)];
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let address = silent.local_addr().unwrap();
    let silent = tokio::net::UdpSocket::from_std(silent).unwrap();
    let mut own = Vec::new();
    for random in &FIXED {
        for _ in 0..2 {
            let tls = client_by(CryptoProvider { secure_random: random, ..aws_lc_rs::default_provider() });
            let dialling = begin(address, NAME, tls, Congestion::default()).unwrap();
            let mut packet = [0; 2_048];
            // One more of an earlier client may come first.
            let (first, name) = loop {
                let (length, _) =
                    tokio::time::timeout(PATIENCE, silent.recv_from(&mut packet)).await.unwrap().unwrap();
                let (first, name) = names(&packet[..length]);
                if first[0] == random.0 {
                    break (first, name);
                }
            };
            assert_eq!(first, [random.0; 20]);
            assert_eq!(name.len(), 8);
            own.push(name);
            drop(dialling);
        }
    }
    assert_eq!(own[0], own[1], "made of what was drawn");
    assert_ne!(own[1], own[2], "and of nothing else");
    assert_eq!(own[2], own[3]);
}

/// The seed of an endpoint's random numbers is a secret.
#[tokio::test]
async fn nothing_of_a_listener_s_randomness_is_printed() {
    let settings = ServerSettings::new(server()).unwrap();
    let listener = bind(UdpSocket::bind("127.0.0.1:0").unwrap(), &settings, None).unwrap();
    assert_eq!(format!("{listener:?}"), "Listener");
}
