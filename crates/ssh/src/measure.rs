//! SSH handshakes to be measured: a client by the library and a server by [`crate::transport`], as they are outside FIPS mode, with our
//! settings, and nothing of a node behind it.
//!
//! From the first byte to the end of the user's authentication. Policy, audit and sessions are left out: `lab connect` has
//! them. What one side shows to the other is checked as elsewhere: the signature of the exchange by the library (RSA by the layer),
//! those of the login and of certificates by the layer.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use russh::client::AuthResult;
use russh::keys::agent::AgentIdentity;
use russh::keys::{HashAlg, PublicKeyOrCertificate};
use russh::server::Auth;
use russh::{Disconnect, Preferred, SshId, kex};
use sallyport_ca::CaError;
use sallyport_ca::keys::{SshKeyPair, ssh_signature, verify_ssh_signature};
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::measure::danger::published_key;
use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, SalError, Signer, random, selection};
use ssh_key::certificate::{Builder, CertType};
use ssh_key::public::KeyData;
use ssh_key::{Certificate, PublicKey};

use crate::Stream;
use crate::algorithms;
use crate::capabilities::IDENTIFICATION;
use crate::client::ClientError;
use crate::node::{HostIdentity, NodeConfig, NodeError};
use crate::transport::accept::{Authenticator, Farewell, NotIn, Proven, Terms, Verdict, accept};
use crate::transport::server::Offer;

/// Who logs in, and the principal of its certificate.
const LOGIN: &str = "measurement";
/// The host's name, and the principal of its certificate.
const HOST: &str = "measurement.host";
/// Certificates are valid from 2020 to 2049.
const VALID: (u64, u64) = (1_577_836_800, 2_524_608_000);

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// No such key exchange.
    #[error("unknown key exchange {name:?}; measured are {}", KeyExchange::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "))]
    Exchange {
        /// As it was asked for.
        name: String,
    },
    /// A key of this type is not to be had.
    #[error(transparent)]
    Key(#[from] SalError),
    /// SSH has no such keys.
    #[error(transparent)]
    SshKey(#[from] CaError),
    /// The host's certificate does not fit its key.
    #[error(transparent)]
    Host(#[from] NodeError),
    /// A certificate was not made.
    #[error(transparent)]
    Certificate(#[from] ssh_key::Error),
    /// The handshake failed.
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    /// The client did not get in.
    #[error("no login: {0}")]
    NotIn(NotIn),
    /// The user's key did not sign.
    #[error(transparent)]
    User(Box<ClientError>),
    /// The server does not believe the user.
    #[error("the user was refused")]
    Refused,
}

/// A key exchange method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyExchange {
    /// ML-KEM-768 and X25519 (draft-ietf-sshm-mlkem-hybrid-kex).
    MlKem768X25519,
    /// X25519 (RFC 8731).
    Curve25519,
    /// ECDH on P-256 (RFC 5656).
    NistP256,
}

impl KeyExchange {
    /// Those that are measured. The last one is not offered by anything of ours.
    pub const ALL: &[Self] = &[Self::MlKem768X25519, Self::Curve25519, Self::NistP256];

    /// Its name in SSH.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MlKem768X25519 => "mlkem768x25519-sha256",
            Self::Curve25519 => "curve25519-sha256",
            Self::NistP256 => "ecdh-sha2-nistp256",
        }
    }

    fn method(self) -> kex::Name {
        match self {
            Self::MlKem768X25519 => kex::MLKEM768X25519_SHA256,
            Self::Curve25519 => kex::CURVE25519,
            Self::NistP256 => kex::ECDH_SHA2_NISTP256,
        }
    }
}

impl fmt::Display for KeyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KeyExchange {
    type Err = MeasureError;
    fn from_str(name: &str) -> Result<Self, MeasureError> {
        let found = Self::ALL.iter().copied().find(|one| one.name() == name);
        found.ok_or_else(|| MeasureError::Exchange { name: name.to_owned() })
    }
}

/// What a handshake is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Type of the host key.
    pub host: KeyAlgorithm,
    /// Whether the host shows a certificate for it, by an authority with an Ed25519 key, or the key alone.
    pub host_certificate: bool,
    /// The key exchange.
    pub exchange: KeyExchange,
    /// Type of the user's key.
    pub user: KeyAlgorithm,
    /// Whether the user shows a certificate for it, by the same authority, or the key alone.
    pub user_certificate: bool,
}

/// Both sides of a shape.
#[derive(Clone)]
pub struct Pair {
    client: Arc<russh::client::Config>,
    /// What the library is told behind it.
    inside: Arc<russh::server::Config>,
    terms: Terms,
    known: Arc<Known>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// What both sides believe, and what the user proves itself with.
struct Known {
    authority: KeyData,
    host: KeyData,
    user: Arc<dyn Signer>,
    user_key: KeyData,
    certificate: Option<Certificate>,
    /// Keeps an RSA host key signing.
    _identity: HostIdentity,
}

impl Pair {
    /// Makes keys, certificates and settings.
    ///
    /// # Errors
    /// [`MeasureError`], what cannot be had.
    pub fn of(shape: Shape) -> Result<Self, MeasureError> {
        let key = |algorithm: KeyAlgorithm| -> Result<SshKeyPair, MeasureError> {
            let key = published_key(selection::global(), algorithm)?;
            Ok(SshKeyPair::from_key(key, "")?)
        };
        let (authority, host, user) = (key(KeyAlgorithm::Ed25519)?, key(shape.host)?, key(shape.user)?);
        let data = |pair: &SshKeyPair| pair.private_key().public_key().key_data().clone();
        let line = certificate(&authority, &data(&host), CertType::Host, HOST)?.to_openssh()?;
        let identity = match shape.host_certificate {
            true => HostIdentity::new(&host, &line)?,
            false => HostIdentity::plain(&host)?,
        };

        let kex = vec![
            shape.exchange.method(),
            kex::EXTENSION_SUPPORT_AS_CLIENT,
            kex::EXTENSION_SUPPORT_AS_SERVER,
            kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
            kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
        ];
        let config = NodeConfig::default();
        let terms = Terms {
            host: Arc::clone(&identity.host),
            demand: HybridKeyExchange::Preferred,
            limits: algorithms::SERVER_LIMITS,
            most_failures: config.max_auth_attempts,
        };
        let inside = Arc::new(config.ssh(&identity));
        let mut preferred =
            Preferred { kex: Cow::Owned(kex), ..algorithms::client(HybridKeyExchange::Preferred) };
        if !shape.host_certificate {
            preferred.host_key_certificates = Cow::Borrowed(&[]);
        }
        let client = russh::client::Config {
            client_id: SshId::Standard(IDENTIFICATION.into()),
            limits: algorithms::client_limits(),
            preferred,
            ..russh::client::Config::default()
        };
        let user_key = data(&user);
        let certificate = shape
            .user_certificate
            .then(|| certificate(&authority, &user_key, CertType::User, LOGIN))
            .transpose()?;
        let known = Known {
            authority: data(&authority),
            host: data(&host),
            user: user.signer(),
            user_key,
            certificate,
            _identity: identity,
        };
        Ok(Self { client: Arc::new(client), inside, terms, known: Arc::new(known) })
    }

    /// Plays the client on a stream: shakes hands, logs in, calls `done` and says farewell.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub async fn connect(
        &self,
        stream: impl Stream + 'static,
        done: impl FnOnce(),
    ) -> Result<(), MeasureError> {
        let side = Client(Arc::clone(&self.known));
        let mut handle = russh::client::connect_stream(Arc::clone(&self.client), stream, side).await?;
        let rsa = self.known.user.algorithm().kind() == KeyKind::Rsa;
        let hash = rsa.then_some(HashAlg::Sha512);
        let mut signer = UserKey(Arc::clone(&self.known.user));
        let answer = match &self.known.certificate {
            Some(certificate) => {
                handle.authenticate_certificate_with(LOGIN, certificate.clone(), hash, &mut signer).await
            }
            None => {
                let key = PublicKey::new(self.known.user_key.clone(), "");
                handle.authenticate_publickey_with(LOGIN, key, hash, &mut signer).await
            }
        };
        match answer.map_err(|error| MeasureError::User(Box::new(error)))? {
            AuthResult::Success => done(),
            AuthResult::Failure { .. } => return Err(MeasureError::Refused),
        }
        handle.disconnect(Disconnect::ByApplication, "", "").await?;
        // The far end may have gone first.
        let _ = handle.await;
        Ok(())
    }

    /// Plays the server on a stream, until the client has said farewell.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub async fn accept(&self, stream: impl Stream + 'static) -> Result<(), MeasureError> {
        let mut side = Server(Arc::clone(&self.known));
        let entered = accept(Box::new(stream), &self.terms, &mut side, &Farewell::default()).await;
        let (stream, proven) = entered.map_err(MeasureError::NotIn)?;
        let running = russh::server::run_stream(Arc::clone(&self.inside), stream, Inside(proven)).await;
        let ended = running?.await;
        match ended {
            Ok(()) | Err(russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn certificate(
    authority: &SshKeyPair,
    key: &KeyData,
    kind: CertType,
    principal: &str,
) -> Result<Certificate, MeasureError> {
    let mut builder = Builder::new(random::bytes::<16>()?, key.clone(), VALID.0, VALID.1)?;
    builder.serial(1)?;
    builder.cert_type(kind)?;
    builder.key_id("measurement")?;
    builder.valid_principal(principal)?;
    Ok(builder.sign(authority.private_key())?)
}

/// Whether a certificate is of the one authority and for a principal. The library has checked the period of a host's.
fn is_certified(certificate: &Certificate, authority: &KeyData, principal: &str) -> bool {
    let check = || -> Option<()> {
        let bytes = certificate.to_bytes().ok()?;
        let signature = certificate.signature();
        // The last field is a `string` that holds two: the algorithm and the signature (RFC 4253 §6.6).
        let blob = 4 + signature.algorithm().as_str().len() + 4 + signature.as_bytes().len();
        let (rest, blob) = bytes.split_at_checked(bytes.len().checked_sub(blob)?)?;
        let signed = rest.get(..rest.len().checked_sub(4)?)?;
        verify_ssh_signature(authority, signed, blob).ok()
    };
    certificate.signature_key() == authority
        && certificate.valid_principals().iter().any(|one| one == principal)
        && check().is_some()
}

struct Client(Arc<Known>);

impl russh::client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(match shown.certificate() {
            Some(certificate) => is_certified(certificate, &self.0.authority, HOST),
            None => *shown.public_key().key_data() == self.0.host,
        })
    }
}

struct Server(Arc<Known>);

#[async_trait]
impl Authenticator for Server {
    fn banner(&mut self) -> Option<String> {
        None
    }

    fn offered(&mut self, _: &Offer) -> bool {
        true
    }

    fn unfit(&mut self, _: &Offer, _: &str) {}

    fn unproven(&mut self, _: &str) -> bool {
        false
    }

    async fn proven(&mut self, offer: &Offer) -> Verdict {
        let is_known = match &offer.certificate {
            Some(certificate) => offer.user == LOGIN && is_certified(certificate, &self.0.authority, LOGIN),
            None => offer.key == self.0.user_key,
        };
        is_known.into()
    }
}

/// The library behind it, for a client that is in.
struct Inside(Proven);

impl russh::server::Handler for Inside {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, russh::Error> {
        Ok(if self.0.is_for(user) { Auth::Accept } else { Auth::reject() })
    }
}

/// Signs what the library asks to have signed.
struct UserKey(Arc<dyn Signer>);

impl russh::Signer for UserKey {
    type Error = ClientError;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        _: Option<HashAlg>,
        mut message: Vec<u8>,
    ) -> Result<Vec<u8>, ClientError> {
        let signature = ssh_signature(&*self.0, &message)
            .map_err(|error| ClientError::BadKey { reason: error.to_string() })?;
        // The answer is the request with the signature behind it, as a `string` (RFC 4252 §7).
        let length = u32::try_from(signature.len()).unwrap_or(u32::MAX);
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&signature);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BASE: Shape = Shape {
        host: KeyAlgorithm::Ed25519,
        host_certificate: true,
        exchange: KeyExchange::MlKem768X25519,
        user: KeyAlgorithm::Ed25519,
        user_certificate: true,
    };

    async fn shake(client: &Pair, server: &Pair) -> Result<(), MeasureError> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let mut done = false;
        let (shaken, served) = tokio::join!(client.connect(near, || done = true), server.accept(far));
        shaken?;
        served?;
        assert!(done);
        Ok(())
    }

    #[tokio::test]
    async fn every_shape_shakes_hands() {
        let hosts = [
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::Rsa4096,
        ];
        for host in hosts {
            for certificates in [false, true] {
                let shape =
                    Shape { host, host_certificate: certificates, user_certificate: certificates, ..BASE };
                let pair = Pair::of(shape).unwrap();
                shake(&pair, &pair).await.unwrap_or_else(|error| unreachable!("{shape:?}: {error}"));
            }
        }
        for exchange in KeyExchange::ALL {
            for user in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
                let pair = Pair::of(Shape { exchange: *exchange, user, ..BASE }).unwrap();
                shake(&pair, &pair).await.unwrap();
            }
        }
        assert!(Pair::of(Shape { host: KeyAlgorithm::MlDsa65, ..BASE }).is_err(), "SSH has no ML-DSA");
    }

    /// What is measured includes the checks: strangers are refused.
    #[tokio::test]
    async fn the_one_side_does_not_take_anybody() {
        for certificates in [false, true] {
            let shape = Shape { host_certificate: certificates, user_certificate: certificates, ..BASE };
            let (one, other) = (Pair::of(shape).unwrap(), Pair::of(shape).unwrap());
            assert!(shake(&one, &other).await.is_err(), "another host");
            let mut stranger = one.clone();
            let mut known = take(&other);
            known.authority = one.known.authority.clone();
            known.host = one.known.host.clone();
            stranger.known = Arc::new(known);
            assert!(shake(&stranger, &one).await.is_err(), "another user");
        }
    }

    fn take(pair: &Pair) -> Known {
        let known = &pair.known;
        Known {
            authority: known.authority.clone(),
            host: known.host.clone(),
            user: Arc::clone(&known.user),
            user_key: known.user_key.clone(),
            certificate: known.certificate.clone(),
            _identity: known._identity.clone(),
        }
    }
}
