use quinn::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn::rustls::crypto::{CryptoProvider, aws_lc_rs};
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use quinn::rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions,
};
use quinn::rustls::sign::CertifiedKey;
use quinn::rustls::version::TLS13;
use quinn::rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::carrier::{ServerSettings, bind};

const NAME: &str = "proxy.example";
/// An Ed25519 key (RFC 8410 §7) that protects nothing.
const KEY: &[u8] =
    b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20a key that is in every checkout..";

fn key(provider: &CryptoProvider) -> Arc<CertifiedKey> {
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(KEY).into()).unwrap();
    let public = CertificateDer::from(key.public_key().unwrap().to_vec());
    Arc::new(CertifiedKey::new(vec![public], key))
}

/// Who the server is does not matter here.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("there is no TLS 1.2 by QUIC".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn client() -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    config.enable_early_data = true;
    Arc::new(config)
}

/// A server that says everything back, with the next of `tickets` at each connection.
fn echo(tickets: Vec<Arc<dyn StoresServerSessions>>) -> SocketAddr {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let own = key(&provider);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    tls.max_early_data_size = u32::MAX;
    let settings = ServerSettings::new(Arc::new(tls)).unwrap();
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
        let Ok((connection, answer)) = begin(address, NAME, tls).unwrap().into_0rtt() else {
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
