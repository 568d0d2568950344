//! TLS configurations for the cluster's own connections.
//!
//! All of them are TLS 1.3 only, with the algorithms of [`sallyport_sal::tls::provider`], and prove hosts by the names
//! that their role gives them ([`crate::server_name`]), never by the address that was dialled.
//!
//! * [`server_config`] for listeners; clients show a certificate if they have one, or must.
//! * [`client_config`] for members of the cluster, users included.
//! * [`pinned_client_config`] for newcomers who were given the CA's pin, with a join token or an invite link.
//! * [`danger::unverified_client_config`] for newcomers who were given nothing and ask a person.
//! * [`database::database_client_config`] for agents, towards database servers.
//! * [`node::NodeClient`] and [`node::node_server_config`] between a user's program and a node.
//! * [`ProxyClient`] and [`with_early_data`] between a member that comes by QUIC and the proxy.
//!
//! Members and listeners follow the suite that the trust names: where it requires hybrid key exchange, they offer nothing
//! else. Newcomers do not know the suite yet; they offer hybrid groups first.
//!
//! # Resumption
//! A client keeps tickets in its configuration, so connections made from one configuration resume; a renewed
//! certificate means a new configuration and a full handshake. A resumed handshake does not verify the client's
//! certificate again: the server keeps what it saw. That is why every connection goes through
//! [`Trust::identify_peer`], which refuses a certificate that expired since. Early data is accepted by nodes
//! ([`node`]) and by proxies from those who come by QUIC, and only with tickets that are taken once ([`Tickets`]).
//!
//! A full handshake verifies the peer's signature over the handshake every time, and its chain only when the trust does
//! not [remember](crate::Remember) it.

use std::fmt;
use std::sync::Arc;

use sallyport_access::HostRole;
use sallyport_sal::tls::rustls::client::Resumption;
use sallyport_sal::tls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use sallyport_sal::tls::rustls::crypto::CryptoProvider;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sallyport_sal::tls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use sallyport_sal::tls::rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use sallyport_sal::tls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, ServerConfig,
    SignatureScheme, version,
};
use sallyport_sal::tls::{provider, provider_for};
use time::OffsetDateTime;

use crate::x509::CaCertificate;
use crate::{CaError, Trust, trust};

pub mod danger;
pub mod database;
pub mod node;
pub mod outside;
pub mod page;
mod returning;
mod tickets;

pub use returning::ProxyClient;
pub use tickets::{Counter, Tickets};

/// Sessions a server remembers for resumption: about 2 KiB each.
const SERVER_SESSIONS: usize = 4096;
/// Sessions a client remembers: one per server it talks to, and its tickets.
const CLIENT_SESSIONS: usize = 64;
/// Tickets a server gives per handshake: each is used once, and clients open few connections.
const TICKETS: usize = 2;

/// Pins that a newcomer may be given: two are enough for a rotation.
const MOST_PINS: usize = 4;

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    None,
    /// They may; one that is shown must be good.
    Optional,
    /// They must.
    Required,
}

/// A listener's configuration: its chain and key in PEM, the protocols it speaks (the first that the client offers
/// too, in the server's order, is chosen), and what it asks of clients. A client certificate is accepted when
/// [`Trust::identify_peer`] accepts it; call that once more on the connection to get the identity.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
pub fn server_config(
    trust: &Trust,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[&[u8]],
    client_auth: ClientAuth,
) -> Result<ServerConfig, CaError> {
    server(provider_for(trust.suite().key_exchange()), trust, chain_pem, key_pem, alpn, client_auth)
}

/// The same for a listener that has guests from outside the cluster too: it accepts classical key exchange whatever the
/// suite requires. A member of the cluster is held to it after the handshake: see
/// [`sallyport_sal::tls::is_hybrid`].
///
/// # Errors
/// As [`server_config`].
pub fn public_server_config(
    trust: &Trust,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[&[u8]],
    client_auth: ClientAuth,
) -> Result<ServerConfig, CaError> {
    server(provider(), trust, chain_pem, key_pem, alpn, client_auth)
}

fn server(
    provider: Arc<CryptoProvider>,
    trust: &Trust,
    chain_pem: &str,
    key_pem: &str,
    alpn: &[&[u8]],
    client_auth: ClientAuth,
) -> Result<ServerConfig, CaError> {
    let (chain, key) = identity(chain_pem, key_pem)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?;
    let builder = match client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Optional | ClientAuth::Required => {
            builder.with_client_cert_verifier(Arc::new(ClientVerifier {
                trust: trust.clone(),
                mandatory: client_auth == ClientAuth::Required,
            }))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = protocols(alpn);
    config.session_storage = ServerSessionMemoryCache::new(SERVER_SESSIONS);
    config.send_tls13_tickets = TICKETS;
    config.max_early_data_size = 0;
    Ok(config)
}

/// The configuration of a member: verifies servers by this trust, and shows its certificate when it has one (chain
/// and key in PEM). Connect with the name that [`crate::server_name`] gives.
///
/// # Errors
/// [`CaError::BadTlsIdentity`] when chain and key cannot be read or do not belong together.
pub fn client_config(
    trust: &Trust,
    identity_pem: Option<(&str, &str)>,
    alpn: &[&[u8]],
) -> Result<ClientConfig, CaError> {
    let builder = ClientConfig::builder_with_provider(provider_for(trust.suite().key_exchange()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Judged(ServerVerifier { trust: trust.clone() })));
    let mut config = match identity_pem {
        Some((chain_pem, key_pem)) => {
            let (chain, key) = identity(chain_pem, key_pem)?;
            builder.with_client_auth_cert(chain, key).map_err(unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols(alpn);
    config.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS);
    Ok(config)
}

/// The configuration of a newcomer who knows only the pin of the host CA (`sha256:` and 64 hexadecimal digits), or the
/// pins of two while one replaces the other, with a comma between them. The
/// server must be the authority service itself, with a chain whose CA has that pin; the name connected with does not
/// matter, because a newcomer does not know the cluster's name yet. Nodes and proxies hold certificates of the same
/// CA, and are refused: a password or a join token goes to the authority alone.
///
/// # Errors
/// [`CaError::BadPin`] when the pin is malformed.
pub fn pinned_client_config(pin: &str, alpn: &[&[u8]]) -> Result<ClientConfig, CaError> {
    let pins = parse_pin(pin)?.split(',').map(str::to_owned).collect();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Judged(PinnedVerifier { pins })))
        .with_no_client_auth();
    config.alpn_protocols = protocols(alpn);
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Turns a pin, or several with commas between them, into the form that [`Trust::pin`] gives.
///
/// # Errors
/// [`CaError::BadPin`] when one is malformed, and when there are more than four.
pub fn parse_pin(pin: &str) -> Result<String, CaError> {
    let lower = pin.to_ascii_lowercase();
    let pins: Vec<&str> = lower.split(',').map(str::trim).collect();
    let well_formed = |pin: &&str| {
        pin.strip_prefix("sha256:")
            .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    if pins.len() <= MOST_PINS && pins.iter().all(well_formed) {
        Ok(pins.join(","))
    } else {
        Err(CaError::BadPin { got: pin.to_owned() })
    }
}

/// Why a connection failed, when it was because of a certificate that one of these configurations refused. The error
/// may be rustls' own or one that wraps it, such as the `io::Error` of a failed connect.
#[must_use]
pub fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a CaError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(reason)))) =
            error.downcast_ref::<rustls::Error>()
        {
            return reason.downcast_ref::<CaError>();
        }
        // An io::Error gives its content away here only; its source() skips it.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Makes of a listener's configuration one for QUIC with early data (RFC 9001 §4.6.1 knows this size or none). It remembers
/// nothing until it is given a store of tickets ([`Counter`]) for each connection.
pub fn with_early_data(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = TICKETS;
    config.max_early_data_size = u32::MAX;
}

/// For servers that must not remember sessions, such as one that runs for a single connection.
pub fn without_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

#[derive(Debug)]
struct ClientVerifier {
    trust: Trust,
    mandatory: bool,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    /// Empty: a client of ours has one certificate, so hints would only make the handshake longer.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.trust
            .identify_tls_with(end_entity, intermediates, from_unix(now)?)
            .map(|_| ClientCertVerified::assertion())
            .map_err(client_refused)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_handshake(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

/// Who a server is, by its certificates. What is the same for all servers of ours is [`Judged`]'s.
trait Judge: fmt::Debug + Send + Sync {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error>;
}

/// Verifies servers by a [`Judge`]: TLS 1.3 alone, every signature, and no stapled answers.
#[derive(Debug)]
struct Judged<J>(J);

impl<J: Judge> ServerCertVerifier for Judged<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.judge(end_entity, intermediates, server_name, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_handshake(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

#[derive(Debug)]
struct ServerVerifier {
    trust: Trust,
}

impl Judge for ServerVerifier {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.trust
            .identify_server(end_entity, intermediates, server_name, from_unix(now)?)
            .map(drop)
            .map_err(server_refused)
    }
}

#[derive(Debug)]
struct PinnedVerifier {
    pins: Vec<String>,
}

impl PinnedVerifier {
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: OffsetDateTime,
    ) -> Result<(), CaError> {
        let cas: Vec<CaCertificate> =
            intermediates.iter().filter_map(|der| CaCertificate::parse(der).ok()).collect();
        let Some(ca) = cas.iter().find(|ca| self.pins.contains(&ca.pin())) else {
            return Err(match cas.is_empty() {
                false => CaError::OtherPin { expected: self.pins.join(" or ") },
                true => CaError::Refused {
                    reason: "the server shows no CA certificate, so it is not a Sallyport cluster".to_owned(),
                },
            });
        };
        let identity = trust::identify_pinned_server(ca, end_entity, now)?;
        trust::require_role(&identity, HostRole::Auth)
    }
}

impl Judge for PinnedVerifier {
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.check(end_entity, intermediates, from_unix(now)?).map_err(server_refused)
    }
}

fn identity(
    chain_pem: &str,
    key_pem: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CaError> {
    let bad = |reason: String| CaError::BadTlsIdentity { reason };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad("there is no certificate in the chain".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
        .map_err(|error| bad(format!("the private key: {error}")))?;
    Ok((chain, key))
}

fn protocols(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|protocol| protocol.to_vec()).collect()
}

fn unusable(error: rustls::Error) -> CaError {
    CaError::BadTlsIdentity { reason: error.to_string() }
}

fn verify_handshake(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    rustls::crypto::verify_tls13_signature(
        message,
        certificate,
        signature,
        &provider().signature_verification_algorithms,
    )
}

fn schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}

/// TLS 1.2 is not offered, so nothing can ask for this.
fn no_tls12() -> rustls::Error {
    rustls::Error::General("TLS 1.2 is not used here".to_owned())
}

fn from_unix(now: UnixTime) -> Result<OffsetDateTime, rustls::Error> {
    i64::try_from(now.as_secs())
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .ok_or(rustls::Error::FailedToGetCurrentTime)
}

/// For the server's side: the kind of error decides which alert the client gets, so a client whose certificate
/// expired learns that and nothing more. The text stays here.
fn client_refused(error: CaError) -> rustls::Error {
    let unix = |time: OffsetDateTime| {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(
            u64::try_from(time.unix_timestamp()).unwrap_or(0),
        ))
    };
    rustls::Error::InvalidCertificate(match error {
        CaError::Expired { valid_before, now } => {
            CertificateError::ExpiredContext { time: unix(now), not_after: unix(valid_before) }
        }
        CaError::NotYetValid { valid_after, now } => {
            CertificateError::NotValidYetContext { time: unix(now), not_before: unix(valid_after) }
        }
        CaError::UnknownIssuer { .. } => CertificateError::UnknownIssuer,
        CaError::BadSignature => CertificateError::BadSignature,
        CaError::Malformed { .. } => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// For the client's side: a person reads the reason, which [`refusal`] finds again.
fn server_refused(error: CaError) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}
