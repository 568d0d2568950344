//! Whole TLS handshakes, for what TLS 1.3 encrypts: certificates, tickets, the protocol above.
//!
//! The client here believes every server ([`danger`](super::danger)): it looks at a server and says nothing to it that
//! matters. That is why it lives in the lab, and why no configuration of it leaves this module.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientConfig, ClientConnection, ResolvesClientCert};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use sallyport_sal::tls::rustls;

use super::danger::Witness;
use super::line::{Caller, Line, Trouble, is_late};
use super::shaken::Shaken;

/// How long tickets and refusals may take after a handshake.
const AFTERMATH: Duration = Duration::from_millis(300);
/// How long the answer to a request may take.
const ANSWER: Duration = Duration::from_millis(1500);
/// As much of an answer as is read.
const ANSWER_BYTES: usize = 16 * 1024;

/// The schemes of today's browsers (Chrome; Firefox and Safari have these and some more).
pub(crate) const BROWSER: &[u16] = &[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
/// Those of RSA keys.
pub(crate) const RSA: &[u16] = &[0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0401, 0x0501, 0x0601];
/// Those of keys on NIST curves.
pub(crate) const ECDSA: &[u16] = &[0x0403, 0x0503, 0x0603];
/// That of Ed25519.
pub(crate) const ED25519: &[u16] = &[0x0807];
/// Those of ML-DSA.
pub(crate) const ML_DSA: &[u16] = &[0x0904, 0x0905, 0x0906];

/// What a handshake offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer<'a> {
    /// TLS 1.3, or 1.2.
    pub(crate) tls13: bool,
    /// Signature schemes, and so types of certificates.
    pub(crate) schemes: &'a [u16],
    /// Protocols above TLS.
    pub(crate) alpn: &'a [&'a str],
}

/// A client that remembers sessions from one handshake to the next.
#[derive(Debug)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    witness: Arc<Witness>,
}

impl Client {
    /// One for an offer.
    pub(crate) fn new(offer: Offer<'_>) -> Result<Self, Trouble> {
        let failed = |error: rustls::Error| Trouble::StartTls(format!("cannot set up TLS: {error}"));
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
        let witness = Arc::new(Witness::new(offer.schemes));
        let version: &[&rustls::SupportedProtocolVersion] =
            if offer.tls13 { &[&rustls::version::TLS13] } else { &[&rustls::version::TLS12] };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(version)
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::clone(&witness) as Arc<dyn ResolvesClientCert>);
        config.alpn_protocols = offer.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), witness })
    }

    /// Makes a handshake, and waits a moment for what comes after it. With `request`, a web server is asked for the head
    /// of its first page.
    pub(crate) fn shake(&self, caller: &mut Caller, name: &str, request: bool) -> Result<Shaken, Trouble> {
        self.witness.forget();
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| Trouble::StartTls(format!("{name:?} is no name of a server")))?;
        let mut connection = ClientConnection::new(Arc::clone(&self.config), server)
            .map_err(|error| Trouble::StartTls(format!("cannot begin TLS: {error}")))?;
        let mut line = caller.dial_tls()?;
        let outcome = complete(&mut connection, &mut line);
        let mut shaken = self.witness.shown();
        if let Err(trouble) = outcome {
            // A server of TLS 1.2 refuses a client without a certificate before the handshake is over.
            shaken.refused = shaken.asked;
            return if shaken.chain.is_empty() { Err(trouble) } else { Ok(shaken) };
        }
        shaken.bytes = (line.written, line.read);
        shaken.alpn = connection.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        shaken.resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        shaken.retried = connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
        shaken.group = connection.negotiated_key_exchange_group().map(|group| u16::from(group.name()));
        shaken.suite = connection.negotiated_cipher_suite().map(|suite| u16::from(suite.suite()));
        let answer = aftermath(&mut connection, &mut line, name, request, &mut shaken);
        shaken.tickets = connection.tls13_tickets_received();
        shaken.software = answer.and_then(|answer| software(&answer));
        Ok(shaken)
    }
}

fn complete(connection: &mut ClientConnection, line: &mut Line) -> Result<(), Trouble> {
    while connection.is_handshaking() {
        connection.complete_io(line).map_err(|error| {
            if is_late(&error) {
                return line.silent();
            }
            match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(inner) => Trouble::StartTls(inner.to_string()),
                None => Trouble::Ended,
            }
        })?;
    }
    // Our last message may still wait to be sent.
    while connection.wants_write() {
        connection.write_tls(line).map_err(|_| Trouble::Ended)?;
    }
    Ok(())
}

/// Reads what comes after the handshake: tickets, a refusal, the answer to a request.
fn aftermath(
    connection: &mut ClientConnection,
    line: &mut Line,
    name: &str,
    request: bool,
    shaken: &mut Shaken,
) -> Option<Vec<u8>> {
    line.hurry(if request { ANSWER } else { AFTERMATH });
    if request {
        let text = format!(
            "HEAD / HTTP/1.1\r\nHost: {name}\r\nUser-Agent: SallyportLab\r\nConnection: close\r\n\r\n"
        );
        let _ = connection.writer().write_all(text.as_bytes());
        while connection.wants_write() {
            connection.write_tls(line).ok()?;
        }
    }
    let mut answer = Vec::new();
    while answer.len() < ANSWER_BYTES && !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        if !matches!(connection.read_tls(line), Ok(1..)) {
            break;
        }
        match connection.process_new_packets() {
            Ok(state) if state.plaintext_bytes_to_read() > 0 => {
                let mut part = vec![0; state.plaintext_bytes_to_read().min(ANSWER_BYTES)];
                let read = connection.reader().read(&mut part).unwrap_or_default();
                answer.extend_from_slice(part.get(..read).unwrap_or_default());
            }
            Ok(_) => {}
            Err(rustls::Error::AlertReceived(_)) => {
                shaken.refused = shaken.asked;
                break;
            }
            Err(_) => break,
        }
        // One round of tickets is enough where nothing else is waited for.
        if !request && !shaken.asked && connection.tls13_tickets_received() > 0 {
            break;
        }
    }
    connection.send_close_notify();
    while connection.wants_write() && connection.write_tls(line).is_ok() {}
    request.then_some(answer)
}

/// The `Server` field of an answer (RFC 9110 §10.2.4).
fn software(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer);
    let mut fields = text.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("server"))?;
    let value: String = value.trim().chars().filter(|one| matches!(one, ' '..='~')).take(80).collect();
    (!value.is_empty()).then_some(value)
}
