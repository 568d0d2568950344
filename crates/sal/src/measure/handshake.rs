//! TLS 1.3 handshakes in memory: one thread plays client and server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SideData};

use super::certificate::{self, Role};
use super::operation::Work;
use super::timing::{self, Effort};
use crate::algorithm::{KexGroup, KeyAlgorithm};
use crate::{MemoryKey, SalError, Selection, Signer, tls};

/// What a handshake is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Type of the keys of server, client and authority.
    pub key: KeyAlgorithm,
    /// The group that both sides use.
    pub group: KexGroup,
    /// Whether the client has a certificate.
    pub client_certificate: bool,
    /// Whether it resumes an earlier session (RFC 8446 §2.2), which leaves the certificates out.
    pub resumed: bool,
}

/// Both configurations for a shape.
#[derive(Clone)]
pub struct Pair {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    resumed: bool,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Time and bytes of one handshake.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sides {
    /// Time of the client.
    pub client: Duration,
    /// Time of the server.
    pub server: Duration,
    /// Bytes that the client sent.
    pub client_bytes: usize,
    /// Bytes that the server sent.
    pub server_bytes: usize,
    /// Flights of messages, both ways: three without a HelloRetryRequest or tickets.
    pub flights: usize,
}

/// Keys and certificates of a server and its authority, and of a client.
#[derive(Debug)]
pub struct Credentials {
    roots: RootCertStore,
    server: (CertificateDer<'static>, Arc<MemoryKey>),
    client: (CertificateDer<'static>, Arc<MemoryKey>),
}

impl Credentials {
    /// Makes them: one authority, and a certificate for each side.
    ///
    /// # Errors
    /// [`SalError`] when there is no source for such keys.
    pub fn new(selection: &'static Selection, algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        let authority = MemoryKey::generate_in(selection, algorithm)?;
        let root = certificate::issue(&authority.public_key(), 1, Role::Authority, &authority, 1)?;
        let leaf = |number| -> Result<_, SalError> {
            let key = MemoryKey::generate_in(selection, algorithm)?;
            let der = certificate::issue(&key.public_key(), number, Role::Leaf, &authority, 1)?;
            Ok((CertificateDer::from(der), Arc::new(key)))
        };
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from(root))
            .map_err(|_| SalError::Provider { operation: "read a certificate" })?;
        Ok(Self { roots, server: leaf(2)?, client: leaf(3)? })
    }

    /// Configurations by these providers for client and server.
    ///
    /// # Errors
    /// [`rustls::Error`] when a provider cannot do what the shape asks.
    pub fn pair(
        &self,
        client_provider: &Arc<CryptoProvider>,
        server_provider: &Arc<CryptoProvider>,
        shape: Shape,
    ) -> Result<Pair, rustls::Error> {
        let roots = Arc::new(self.roots.clone());
        let certified = |provider: &CryptoProvider,
                         (chain, key): &(CertificateDer<'static>, Arc<MemoryKey>)| {
            let key = provider.key_provider.load_private_key(
                rustls::pki_types::PrivatePkcs8KeyDer::from(
                    crate::formats::pkcs8::encode(key.material()).to_vec(),
                )
                .into(),
            )?;
            Ok::<_, rustls::Error>(Arc::new(CertifiedKey::new(vec![chain.clone()], key)))
        };
        let server = ServerConfig::builder_with_provider(Arc::clone(server_provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let server = if shape.client_certificate {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(server_provider))
                    .build()
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
            server.with_client_cert_verifier(verifier)
        } else {
            server.with_no_client_auth()
        };
        let mut server =
            server.with_cert_resolver(Arc::new(Always(certified(server_provider, &self.server)?)));
        server.send_tls13_tickets = if shape.resumed { 2 } else { 0 };
        let client = ClientConfig::builder_with_provider(Arc::clone(client_provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        let mut client = if shape.client_certificate {
            client.with_client_cert_resolver(Arc::new(Always(certified(client_provider, &self.client)?)))
        } else {
            client.with_no_client_auth()
        };
        client.resumption =
            if shape.resumed { Resumption::in_memory_sessions(16) } else { Resumption::disabled() };
        Ok(Pair { client: Arc::new(client), server: Arc::new(server), resumed: shape.resumed })
    }
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Always {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl rustls::client::ResolvesClientCert for Always {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Pair {
    /// Both configurations of a shape, made and run by one selection.
    ///
    /// # Errors
    /// A sentence that says what cannot be had.
    pub fn of(selection: &'static Selection, shape: Shape) -> Result<Self, String> {
        let provider = tls::compose(selection, &[shape.group]).map_err(|error| error.to_string())?;
        let credentials = Credentials::new(selection, shape.key).map_err(|error| error.to_string())?;
        credentials.pair(&provider, &provider, shape).map_err(|error| error.to_string())
    }

    /// Runs one handshake to its end on both sides.
    ///
    /// # Errors
    /// [`rustls::Error`] when it fails.
    pub fn run(&self) -> Result<Sides, rustls::Error> {
        let mut sides = Sides::default();
        let name =
            ServerName::try_from("localhost").map_err(|_| rustls::Error::General("a name".to_owned()))?;
        let started = Instant::now();
        let mut client = ClientConnection::new(Arc::clone(&self.client), name)?;
        sides.client += started.elapsed();
        let started = Instant::now();
        let mut server = ServerConnection::new(Arc::clone(&self.server))?;
        sides.server += started.elapsed();
        let mut buffer = Vec::with_capacity(16 * 1024);
        while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
            let moved = (sides.client_bytes, sides.server_bytes);
            sides.client_bytes +=
                flight(&mut client, &mut server, &mut buffer, (&mut sides.client, &mut sides.server))?;
            sides.server_bytes +=
                flight(&mut server, &mut client, &mut buffer, (&mut sides.server, &mut sides.client))?;
            sides.flights +=
                usize::from(moved.0 != sides.client_bytes) + usize::from(moved.1 != sides.server_bytes);
            if moved == (sides.client_bytes, sides.server_bytes) {
                return Err(rustls::Error::General("the handshake stands still".to_owned()));
            }
        }
        if self.resumed != (client.handshake_kind() == Some(rustls::HandshakeKind::Resumed)) && self.resumed {
            return Err(rustls::Error::General("the session was not resumed".to_owned()));
        }
        Ok(sides)
    }

    /// Makes it ready to measure: with resumption, the first session is not resumed.
    ///
    /// # Errors
    /// [`rustls::Error`] when handshakes fail.
    pub fn warm_up(&self) -> Result<(), rustls::Error> {
        let first = Self { resumed: false, ..self.clone() };
        first.run()?;
        self.run().map(|_| ())
    }
}

/// Moves what one side has to say to the other.
fn flight<From: SideData, To: SideData>(
    from: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<From>>,
    to: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<To>>,
    buffer: &mut Vec<u8>,
    (from_time, to_time): (&mut Duration, &mut Duration),
) -> Result<usize, rustls::Error> {
    let failed = |error: std::io::Error| rustls::Error::General(error.to_string());
    buffer.clear();
    let started = Instant::now();
    while from.wants_write() {
        from.write_tls(buffer).map_err(failed)?;
    }
    *from_time += started.elapsed();
    let started = Instant::now();
    let mut rest = buffer.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).map_err(failed)?;
        to.process_new_packets()?;
    }
    *to_time += started.elapsed();
    Ok(buffer.len())
}

/// A handshake taken apart: what each side pays for each phase, and what is left for everything else.
#[derive(Debug, Clone)]
pub struct Phases {
    /// What was measured.
    pub shape: Shape,
    /// One for each phase, the whole handshake last.
    pub rows: Vec<Phase>,
    /// Bytes on the wire.
    pub sides: Sides,
}

/// One phase of a handshake, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// The client's least time.
    pub client: f64,
    /// The server's least time.
    pub server: f64,
}

/// Takes a full handshake with a server certificate apart.
///
/// # Errors
/// A sentence that says what cannot be had.
pub fn phases(selection: &'static Selection, shape: Shape, effort: Effort) -> Result<Phases, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let provider = tls::compose(selection, &[shape.group]).map_err(|error| text(&error))?;
    let group =
        *provider.kx_groups.first().ok_or_else(|| format!("there is no source for {}", shape.group))?;
    let credentials = Credentials::new(selection, shape.key).map_err(|error| text(&error))?;
    let pair = credentials.pair(&provider, &provider, shape).map_err(|error| text(&error))?;
    pair.run().map_err(|error| text(&error))?;

    let share = group.start().map_err(|error| text(&error))?.pub_key().to_vec();
    let server_exchange: Work = Box::new(move || {
        drop(std::hint::black_box(group.start_and_complete(&share)));
    });
    // The answer must belong to the share, so that a client's exchange holds a server's, which is taken off again.
    let both_exchange: Work = Box::new(move || {
        if let Ok(client) = group.start()
            && let Ok(answer) = group.start_and_complete(client.pub_key())
        {
            let _ = std::hint::black_box(client.complete(&answer.pub_key));
        }
    });
    let (_, key) = &credentials.server;
    let signer = tls::signing_key(Arc::clone(key) as Arc<dyn Signer>)
        .choose_scheme(&provider.signature_verification_algorithms.supported_schemes())
        .ok_or("the key signs by no scheme of TLS")?;
    let message = [0x20; 130];
    let scheme = signer.scheme();
    let signature = signer.sign(&message).map_err(|error| text(&error))?;
    let signing: Work = Box::new(move || drop(std::hint::black_box(signer.sign(&message))));
    let our_scheme = crate::SignatureScheme::ALL
        .iter()
        .copied()
        .find(|one| one.iana_code() == u16::from(scheme))
        .ok_or("the scheme has no name here")?;
    let public = key.public_key();
    let verifying: Work = Box::new(move || {
        let _ = std::hint::black_box(public.verify_in(selection, our_scheme, &message, &signature));
    });
    let verifier = WebPkiServerVerifier::builder_with_provider(
        Arc::new(credentials.roots.clone()),
        Arc::clone(&provider),
    )
    .build()
    .map_err(|error| text(&error))?;
    let chain = credentials.server.0.clone();
    let name = ServerName::try_from("localhost").map_err(|error| text(&error))?;
    let verifying_chain: Work = Box::new(move || {
        let _ = std::hint::black_box(verifier.verify_server_cert(&chain, &[], &name, &[], UnixTime::now()));
    });
    let mut works = [server_exchange, both_exchange, signing, verifying, verifying_chain];
    let times = timing::interleaved(&mut works, effort, || ());
    let minimum = |at: usize| times.get(at).map_or(0.0, timing::Times::minimum);

    // Whole handshakes, the least of each side.
    let (mut client, mut server, mut sides) = (f64::INFINITY, f64::INFINITY, Sides::default());
    let started = Instant::now();
    while started.elapsed() < effort.batch * u32::try_from(effort.passes * 8).unwrap_or(u32::MAX) {
        sides = pair.run().map_err(|error| text(&error))?;
        client = client.min(sides.client.as_secs_f64() * 1e9);
        server = server.min(sides.server.as_secs_f64() * 1e9);
    }
    let rows = vec![
        Phase { name: "key exchange", client: (minimum(1) - minimum(0)).max(0.0), server: minimum(0) },
        Phase { name: "transcript signature", client: minimum(3), server: minimum(2) },
        Phase { name: "chain verification", client: minimum(4), server: 0.0 },
    ];
    let sum = |side: fn(&Phase) -> f64| rows.iter().map(side).sum::<f64>();
    let rest = Phase {
        name: "everything else",
        client: (client - sum(|phase| phase.client)).max(0.0),
        server: (server - sum(|phase| phase.server)).max(0.0),
    };
    let whole = Phase { name: "the whole handshake", client, server };
    Ok(Phases { shape, rows: rows.into_iter().chain([rest, whole]).collect(), sides })
}

/// Whole handshakes of several pairs in turns: the time of both sides together.
#[must_use]
pub fn compare(pairs: Vec<Pair>, effort: Effort) -> Vec<timing::Times> {
    let mut works: Vec<Work> = pairs
        .into_iter()
        .map(|pair| {
            let work: Work = Box::new(move || {
                let _ = std::hint::black_box(pair.run());
            });
            work
        })
        .collect();
    timing::interleaved(&mut works, effort, || ())
}

/// What a HelloRetryRequest (RFC 8446 §4.1.4) adds to a handshake, apart from the round trip.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// The group that the client sends a share for, and the server does not have.
    pub sent: KexGroup,
    /// The group that both have.
    pub common: KexGroup,
    /// The least times and the bytes when the client sends the right share at once.
    pub straight: Sides,
    /// The same when it is asked for another one.
    pub retried: Sides,
}

/// Measures handshakes in which the client guesses the server's group rightly, and wrongly.
///
/// # Errors
/// A sentence that says what cannot be had.
pub fn retry(
    selection: &'static Selection,
    key: KeyAlgorithm,
    (sent, common): (KexGroup, KexGroup),
    effort: Effort,
) -> Result<Retry, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let compose = |groups: &[KexGroup]| tls::compose(selection, groups).map_err(|error| text(&error));
    let (server, right, wrong) = (compose(&[common])?, compose(&[common, sent])?, compose(&[sent, common])?);
    let credentials = Credentials::new(selection, key).map_err(|error| text(&error))?;
    let shape = Shape { key, group: common, client_certificate: false, resumed: false };
    let pair = |client| credentials.pair(client, &server, shape).map_err(|error| text(&error));
    let (straight, retried) = (pair(&right)?, pair(&wrong)?);
    let least = |best: Option<Sides>, now: Sides| match best {
        None => now,
        Some(best) => {
            Sides { client: best.client.min(now.client), server: best.server.min(now.server), ..now }
        }
    };
    let (mut quick, mut slow) = (None, None);
    for _ in 0..effort.passes * 20 {
        quick = Some(least(quick, straight.run().map_err(|error| text(&error))?));
        slow = Some(least(slow, retried.run().map_err(|error| text(&error))?));
    }
    match (quick, slow) {
        (Some(straight), Some(retried)) if retried.flights > straight.flights => {
            Ok(Retry { sent, common, straight, retried })
        }
        _ => Err(format!("a share of {sent} serves {common} too: no second flight is needed")),
    }
}
