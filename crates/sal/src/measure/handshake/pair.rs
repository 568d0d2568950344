//! Client and server that shake hands.

use std::io::{self, Read, Write};
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, HandshakeKind, ServerConfig, ServerConnection,
    SideData, SupportedProtocolVersion, version,
};

use super::{Credentials, Shape, Version, provider};
use crate::Selection;
use crate::economy::thread_cpu;
use crate::measure::MeasureError;

/// Sessions that a server keeps to be resumed.
const SESSIONS: usize = 256;

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

/// Time and bytes of handshakes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sides {
    /// Processor time of the client.
    pub client: Duration,
    /// Processor time of the server.
    pub server: Duration,
    /// Bytes that the client sent.
    pub client_bytes: usize,
    /// Bytes that the server sent.
    pub server_bytes: usize,
    /// Flights of messages, both ways: three without a HelloRetryRequest or tickets.
    pub flights: usize,
    /// How often the client waited for an answer before it could send data of its own.
    pub round_trips: usize,
}

impl Credentials {
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
        let versions: &[&SupportedProtocolVersion] = match shape.version {
            Version::Tls12 => &[&version::TLS12],
            Version::Tls13 => &[&version::TLS13],
        };
        let server = ServerConfig::builder_with_provider(Arc::clone(server_provider))
            .with_protocol_versions(versions)?;
        let server = if shape.client_certificate {
            let roots = Arc::clone(&self.roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(server_provider))
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
            server.with_client_cert_verifier(verifier)
        } else {
            server.with_no_client_auth()
        };
        let mut server = server.with_cert_resolver(Arc::new(Always(self.server.certified(server_provider)?)));
        if shape.resumed {
            server.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS);
            server.send_tls13_tickets = 2;
        } else {
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        let client = ClientConfig::builder_with_provider(Arc::clone(client_provider))
            .with_protocol_versions(versions)?
            .with_root_certificates(Arc::clone(&self.roots));
        let mut client = if shape.client_certificate {
            client.with_client_cert_resolver(Arc::new(Always(self.client.certified(client_provider)?)))
        } else {
            client.with_no_client_auth()
        };
        client.resumption =
            if shape.resumed { Resumption::in_memory_sessions(16) } else { Resumption::disabled() };
        Ok(Pair::new(Arc::new(client), Arc::new(server), shape.resumed))
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
    pub(super) fn new(client: Arc<ClientConfig>, server: Arc<ServerConfig>, resumed: bool) -> Self {
        Self { client, server, resumed }
    }

    /// Both configurations of a shape, made and run by one selection.
    ///
    /// # Errors
    /// [`MeasureError`] when there is no such handshake.
    pub fn of(selection: &'static Selection, shape: Shape) -> Result<Self, MeasureError> {
        let credentials = Credentials::with_chain(selection, shape.key, shape.chain)?;
        Self::with(selection, &credentials, shape)
    }

    /// The same with certificates that are there; their keys and the length of their chain must be those of the shape.
    ///
    /// # Errors
    /// As [`Pair::of`].
    pub fn with(
        selection: &'static Selection,
        credentials: &Credentials,
        shape: Shape,
    ) -> Result<Self, MeasureError> {
        if let Some(reason) = shape.impossible() {
            return Err(MeasureError::Impossible(reason));
        }
        let offered: Vec<_> = shape.guessed.into_iter().chain([shape.group]).collect();
        let compose = |groups: &[_]| match provider(selection, shape.version, shape.key, groups)? {
            provider if provider.kx_groups.len() < groups.len() => Err(MeasureError::NoSource(shape.group)),
            provider => Ok(provider),
        };
        let server = compose(&[shape.group])?;
        let client = if shape.guessed.is_some() { compose(&offered)? } else { Arc::clone(&server) };
        Ok(credentials.pair(&client, &server, shape)?)
    }

    /// Runs one handshake to its end on both sides, in memory.
    ///
    /// # Errors
    /// [`rustls::Error`] when it fails.
    pub fn run(&self) -> Result<Sides, rustls::Error> {
        let mut sides = Sides::default();
        let mut clock = Clock::start();
        let mut client = ClientConnection::new(Arc::clone(&self.client), name()?)?;
        clock.book(&mut sides.client);
        let mut server = ServerConnection::new(Arc::clone(&self.server))?;
        clock.book(&mut sides.server);
        let mut buffer = Vec::with_capacity(16 * 1024);
        while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
            let asked = flight(
                &mut client,
                &mut server,
                &mut buffer,
                (&mut sides.client, &mut sides.server),
                &mut clock,
            )?;
            let waiting = client.is_handshaking();
            let answered = flight(
                &mut server,
                &mut client,
                &mut buffer,
                (&mut sides.server, &mut sides.client),
                &mut clock,
            )?;
            sides.client_bytes += asked;
            sides.server_bytes += answered;
            sides.flights += usize::from(asked > 0) + usize::from(answered > 0);
            sides.round_trips += usize::from(waiting && answered > 0);
            if asked + answered == 0 {
                return Err(rustls::Error::General("the handshake stands still".to_owned()));
            }
        }
        self.check(&client)?;
        Ok(sides)
    }

    /// Runs so many handshakes one after the other: the sum of their times, and the bytes and flights of one.
    ///
    /// # Errors
    /// As [`Pair::run`].
    pub fn run_many(&self, count: u32) -> Result<Sides, rustls::Error> {
        let mut all = Sides::default();
        for _ in 0..count {
            let one = self.run()?;
            all = Sides { client: all.client + one.client, server: all.server + one.server, ..one };
        }
        Ok(all)
    }

    /// Makes it ready to measure: with resumption, the first session is not resumed.
    ///
    /// # Errors
    /// [`rustls::Error`] when handshakes fail.
    pub fn warm_up(&self) -> Result<(), rustls::Error> {
        self.first().run()?;
        self.run().map(|_| ())
    }

    /// The same with full handshakes, whose sessions can be resumed by this one.
    #[must_use]
    pub fn first(&self) -> Self {
        Self { resumed: false, ..self.clone() }
    }

    /// Plays the client on a stream: shakes hands, calls `done`, and reads until the server says farewell, so that it has
    /// the tickets that the server gives.
    ///
    /// # Errors
    /// When the stream or the handshake fails.
    pub fn connect(&self, stream: &mut (impl Read + Write), done: impl FnOnce()) -> io::Result<()> {
        let name = name().map_err(io::Error::other)?;
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        shake(&mut *client, stream)?;
        done();
        self.check(&client).map_err(io::Error::other)?;
        while client.wants_read() {
            if client.read_tls(stream)? == 0 {
                break;
            }
            let state = client.process_new_packets().map_err(io::Error::other)?;
            if state.peer_has_closed() {
                break;
            }
        }
        Ok(())
    }

    /// Plays the server on a stream: shakes hands and says farewell.
    ///
    /// # Errors
    /// When the stream or the handshake fails.
    pub fn accept(&self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let mut server = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        shake(&mut *server, stream)?;
        server.send_close_notify();
        while server.wants_write() {
            server.write_tls(stream)?;
        }
        Ok(())
    }

    /// That a session was resumed where it should have been.
    fn check(&self, client: &ClientConnection) -> Result<(), rustls::Error> {
        if self.resumed && client.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Err(rustls::Error::General("the session was not resumed".to_owned()));
        }
        Ok(())
    }
}

pub(super) fn name() -> Result<ServerName<'static>, rustls::Error> {
    ServerName::try_from("localhost").map_err(|_| rustls::Error::General("a name".to_owned()))
}

/// Processor time of this thread, booked on the side that had it.
struct Clock(Duration);

impl Clock {
    fn start() -> Self {
        Self(thread_cpu())
    }

    /// What was spent since the last time.
    fn book(&mut self, account: &mut Duration) {
        let now = thread_cpu();
        *account += now.saturating_sub(self.0);
        self.0 = now;
    }
}

/// Moves what one side has to say to the other.
fn flight<From: SideData, To: SideData>(
    from: &mut impl DerefMut<Target = ConnectionCommon<From>>,
    to: &mut impl DerefMut<Target = ConnectionCommon<To>>,
    buffer: &mut Vec<u8>,
    (from_time, to_time): (&mut Duration, &mut Duration),
    clock: &mut Clock,
) -> Result<usize, rustls::Error> {
    let failed = |error: io::Error| rustls::Error::General(error.to_string());
    buffer.clear();
    while from.wants_write() {
        from.write_tls(buffer).map_err(failed)?;
    }
    clock.book(from_time);
    let mut rest = buffer.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).map_err(failed)?;
        to.process_new_packets()?;
    }
    clock.book(to_time);
    Ok(buffer.len())
}

/// Shakes hands on a stream, to the end of this side.
fn shake<Side: SideData>(
    connection: &mut ConnectionCommon<Side>,
    stream: &mut (impl Read + Write),
) -> io::Result<()> {
    loop {
        while connection.wants_write() {
            connection.write_tls(stream)?;
        }
        if !connection.is_handshaking() {
            return Ok(());
        }
        if connection.read_tls(stream)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        connection.process_new_packets().map_err(io::Error::other)?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Version;
    use super::*;
    use crate::algorithm::KexGroup;
    use crate::{KeyAlgorithm, selection};

    fn run(shape: Shape) -> Sides {
        let pair = Pair::of(selection::global(), shape).unwrap();
        pair.warm_up().unwrap();
        pair.run().unwrap()
    }

    const BASE: Shape = Shape::new(KeyAlgorithm::EcdsaP256, KexGroup::X25519);

    #[test]
    fn flights_and_round_trips_are_those_of_the_standards() {
        for (shape, flights, round_trips) in [
            (BASE, 3, 1),
            (Shape { client_certificate: true, ..BASE }, 3, 1),
            // The tickets are a flight of their own, for which neither side waits.
            (Shape { resumed: true, ..BASE }, 4, 1),
            (Shape { guessed: Some(KexGroup::P256), ..BASE }, 5, 2),
            (Shape { version: Version::Tls12, ..BASE }, 4, 2),
            (Shape { version: Version::Tls12, client_certificate: true, ..BASE }, 4, 2),
            (Shape { version: Version::Tls12, resumed: true, ..BASE }, 3, 1),
        ] {
            let sides = run(shape);
            assert_eq!((sides.flights, sides.round_trips), (flights, round_trips), "{shape:?}");
            assert!(sides.client > Duration::ZERO && sides.server > Duration::ZERO, "{shape:?}");
        }
    }

    #[test]
    fn each_certificate_more_is_that_much_more_to_send() {
        let bytes = |chain| run(Shape { chain, ..BASE }).server_bytes;
        let (one, two, three) = (bytes(1), bytes(2), bytes(3));
        // A P-256 certificate of a few extensions; its signatures vary by a few bytes.
        assert!((250..500).contains(&(two - one)), "{one} {two}");
        assert!((three - two).abs_diff(two - one) < 20, "{one} {two} {three}");
        let guessed = run(Shape { guessed: Some(KexGroup::P256), ..BASE });
        // The share that was of no use, 65 bytes, and a second ClientHello.
        assert!(guessed.client_bytes > 2 * 65 + run(BASE).client_bytes, "{guessed:?}");
    }

    #[test]
    fn sizes_of_rsa_that_production_does_not_sign_with_are_measured() {
        for key in [KeyAlgorithm::Rsa1024, KeyAlgorithm::Rsa8192] {
            for version in Version::ALL {
                let full = run(Shape {
                    version: *version,
                    chain: 2,
                    client_certificate: true,
                    ..Shape::new(key, KexGroup::X25519)
                });
                // Two certificates, each with a modulus and a signature, and one over the transcript.
                let modulus = key.modulus_bits().unwrap() / 8;
                assert!(full.server_bytes > 5 * modulus, "{key} {version}: {full:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let tls12 = Shape { version: Version::Tls12, ..BASE };
        for (shape, reason) in [
            (Shape { key: KeyAlgorithm::MlDsa65, ..tls12 }, "ML-DSA"),
            (Shape { group: KexGroup::X25519MlKem768, ..tls12 }, "ML-KEM"),
            (Shape { guessed: Some(KexGroup::P256), ..tls12 }, "HelloRetryRequest"),
            (Shape { guessed: Some(KexGroup::X25519MlKem768), ..BASE }, "serves the other"),
            (Shape { chain: 5, ..BASE }, "four"),
        ] {
            let error = Pair::of(selection::global(), shape).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn streams_carry_full_and_resumed_handshakes() {
        for version in Version::ALL {
            let shape = Shape { version: *version, resumed: true, ..BASE };
            let pair = Pair::of(selection::global(), shape).unwrap();
            for turn in [pair.first(), pair.clone(), pair] {
                let (mut near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
                let server = turn.clone();
                let serving = std::thread::spawn(move || server.accept(&mut far));
                let mut done = false;
                turn.connect(&mut near, || done = true).unwrap();
                serving.join().unwrap().unwrap();
                assert!(done);
            }
        }
    }
}
