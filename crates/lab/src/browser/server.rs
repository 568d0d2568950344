//! The server that the browser opens: HTTP/1.1 over TLS 1.3 on loopback, with one page that says what it took.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme, Stream};
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::measure::certificate::{self, Role};
use sallyport_sal::tls::{self, rustls};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, random, selection};

use super::timing::{self, MAX_MESSAGE_BYTES, PageTiming};
use crate::LabError;

/// How long one read or write may take: a browser that is slow, or a stranger who says nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest head of a request, in bytes.
const MAX_HEAD_BYTES: u64 = 16 << 10;
/// The most fields of a head.
const MAX_HEADERS: usize = 64;
/// Requests on one connection at most.
const MAX_REQUESTS: usize = 32;

/// What a handshake agreed on, as the server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) version: String,
    pub(super) group: String,
    pub(super) scheme: String,
    /// Whether it was a full handshake at the first try.
    pub(super) full: bool,
}

/// What a server has to tell.
#[derive(Debug)]
pub(super) enum Event {
    /// A page was loaded, over a connection with this handshake.
    Timed { number: usize, timing: PageTiming, agreed: Agreed },
    /// The browser did not get as far, or said nonsense.
    Failed { number: usize, why: String },
}

/// The keys of all servers: one root, which the browser trusts, and a leaf for each.
#[derive(Debug)]
pub(super) struct Authority {
    key: MemoryKey,
    /// The root certificate, DER.
    pub(super) certificate: Vec<u8>,
}

fn ours(error: impl std::fmt::Display) -> LabError {
    LabError::Failed { what: "the server that the browser opens".to_owned(), said: error.to_string() }
}

impl Authority {
    pub(super) fn new() -> Result<Self, LabError> {
        let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).map_err(ours)?;
        let certificate = certificate::issue(&key.public_key(), 1, Role::Authority, &key, 1).map_err(ours)?;
        Ok(Self { key, certificate })
    }
}

/// One server, which ends when it goes.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    /// Where its page is; no other program on this machine knows.
    pub(super) place: String,
    /// SHA-256 of the leaf's public key, as `--ignore-certificate-errors-spki-list` takes it.
    pub(super) pin: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    number: usize,
    place: String,
    config: ServerConfig,
    certified: (Vec<CertificateDer<'static>>, Arc<dyn SigningKey>),
    events: Mutex<SyncSender<Event>>,
    /// The page, which changes from run to run.
    page: Mutex<String>,
    /// What was agreed on by the connection that the page went over.
    agreed: Mutex<Option<Agreed>>,
    stop: AtomicBool,
}

impl Server {
    /// Listens with a leaf of this type, and nothing but this group. Its events have this number, and so has its leaf.
    pub(super) fn start(
        number: usize,
        authority: &Authority,
        key: KeyAlgorithm,
        group: KexGroup,
        events: SyncSender<Event>,
    ) -> Result<Self, LabError> {
        let leaf = Arc::new(MemoryKey::generate(key).map_err(ours)?);
        let subject = u8::try_from(number + 2).map_err(ours)?;
        let der =
            certificate::issue(&leaf.public_key(), subject, Role::Leaf, &authority.key, 1).map_err(ours)?;
        let pin = data_encoding::BASE64.encode(&leaf.public_key().spki_sha256());
        let provider = tls::compose(selection::global(), &[group]).map_err(ours)?;
        let signing = tls::signing_key(leaf as Arc<dyn Signer>);
        let chain = vec![CertificateDer::from(der)];
        let fixed = Fixed(Arc::new(CertifiedKey::new(chain.clone(), Arc::clone(&signing))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(ours)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(fixed));
        // Nothing is ever resumed, and nothing is sent after a handshake that would belong to it.
        config.send_tls13_tickets = 0;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(ours)?;
        let port = listener.local_addr().map_err(ours)?.port();
        let place = format!("/{}", random::hex(16).map_err(ours)?);
        let shared = Arc::new(Shared {
            number,
            place: place.clone(),
            config,
            certified: (chain, signing),
            events: Mutex::new(events),
            page: Mutex::default(),
            agreed: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), serving) = (stream, Arc::clone(&serving)) else { continue };
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(Self { port, place, pin, shared })
    }

    /// Where its page is.
    pub(super) fn address(&self) -> String {
        format!("https://127.0.0.1:{}{}", self.port, self.place)
    }

    /// Forgets the last run; the page leads to `next` from now on.
    pub(super) fn prepare(&self, next: Option<&str>, settle: Duration) {
        *self.shared.page.lock() = timing::page(&self.place, next, settle.as_millis());
        *self.shared.agreed.lock() = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // So that it does not wait for the next connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn tell(&self, event: Event) {
        let _ = self.events.lock().send(event);
    }

    fn serve(&self, mut stream: TcpStream) {
        if let Err(error) = self.try_serve(&mut stream) {
            self.tell(Event::Failed { number: self.number, why: error.to_string() });
        }
    }

    fn try_serve(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let scheme = Arc::new(Mutex::new(None));
        let (chain, key) = &self.certified;
        let noting = Noting { key: Arc::clone(key), chosen: Arc::clone(&scheme) };
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(Fixed(Arc::new(CertifiedKey::new(chain.clone(), Arc::new(noting)))));
        let mut connection = ServerConnection::new(Arc::new(config)).map_err(std::io::Error::other)?;
        while connection.is_handshaking() {
            // A connection that was opened and left is nothing to talk about.
            if connection.complete_io(stream)? == (0, 0) {
                return Ok(());
            }
        }
        let chosen = *scheme.lock();
        let agreed = Agreed {
            version: connection.protocol_version().map_or_else(String::new, |version| format!("{version:?}")),
            group: connection
                .negotiated_key_exchange_group()
                .map_or_else(String::new, |group| format!("{:?}", group.name())),
            scheme: chosen.map_or_else(String::new, |scheme| format!("{scheme:?}")),
            full: connection.handshake_kind() == Some(HandshakeKind::Full),
        };
        let mut stream = BufReader::new(Stream::new(&mut connection, stream));
        for _ in 0..MAX_REQUESTS {
            match request(&mut stream) {
                Ok(Some(request)) => self.answer(&request, &agreed, stream.get_mut())?,
                // A browser that is gone, or that keeps a connection for later, has done nothing wrong.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request, agreed: &Agreed, stream: &mut impl Write) -> std::io::Result<()> {
        let ours = request.path == self.place;
        match request.method.as_str() {
            "GET" if ours => {
                *self.agreed.lock() = Some(agreed.clone());
                let page = self.page.lock().clone();
                respond(stream, "200 OK", &page)
            }
            "POST" if ours => {
                let timing = PageTiming::read(&request.body);
                let agreed = self.agreed.lock().clone();
                let number = self.number;
                self.tell(match (timing, agreed) {
                    (Ok(timing), Some(agreed)) => Event::Timed { number, timing, agreed },
                    (Err(error), _) => Event::Failed { number, why: error.to_string() },
                    (_, None) => Event::Failed {
                        number,
                        why: "a timing came before the page was asked for".to_owned(),
                    },
                });
                respond(stream, "204 No Content", "")
            }
            _ => respond(stream, "404 Not Found", ""),
        }
    }
}

fn respond(stream: &mut impl Write, status: &str, body: &str) -> std::io::Result<()> {
    // The two policies isolate the page from others, for which its clock is made fine (High Resolution Time §7).
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes())?;
    stream.flush()
}

/// As much of a request as matters.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Reads a request (RFC 9112); none when the other side is done.
fn request(stream: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let odd = |why: &str| std::io::Error::other(format!("a request that {why}"));
    let mut head = Vec::new();
    let mut limited = stream.by_ref().take(MAX_HEAD_BYTES);
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_until(b'\n', &mut head)? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(odd("is cut short, or too long")) };
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed.parse(&head).map_err(std::io::Error::other)?;
    let (Some(method), Some(path)) = (parsed.method, parsed.path) else { return Err(odd("has no path")) };
    let length = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length: usize = match length.map(|header| std::str::from_utf8(header.value)) {
        Some(Ok(length)) => length.parse().map_err(|_| odd("has no length"))?,
        Some(Err(_)) => return Err(odd("has no length")),
        None => 0,
    };
    if length > MAX_MESSAGE_BYTES {
        return Err(odd("is too long"));
    }
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { method, path, body }))
}

/// Shows one certificate to every client.
#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Fixed {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A key that notes by which scheme it signs.
#[derive(Debug)]
struct Noting {
    key: Arc<dyn SigningKey>,
    chosen: Arc<Mutex<Option<SignatureScheme>>>,
}

impl SigningKey for Noting {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
        let signer = self.key.choose_scheme(offered)?;
        *self.chosen.lock() = Some(signer.scheme());
        Some(signer)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> std::io::Result<Option<Request>> {
        request(&mut text.as_bytes())
    }

    #[test]
    fn requests_are_read_and_bounded() {
        let request =
            read("POST /x HTTP/1.1\r\nHost: a\r\nContent-LENGTH: 2\r\n\r\n{}rest").unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), request.body.as_slice()),
            ("POST", "/x", &b"{}"[..])
        );
        assert_eq!(read("").unwrap(), None);
        for text in [
            "GET\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(20_000)),
            "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab".to_owned(),
        ] {
            assert!(read(&text).is_err(), "{text:.60}");
        }
    }
}
