//! One certificate authority: its keys, at most one for each of SSH, TLS and JWT, and its own certificate.

use std::fmt;
use std::sync::Arc;

use sallyport_access::{ClusterName, HostRole};
use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::formats::jwk;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, PublicKey, Signer, Suite, random};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::public_keys::PublicKeys;
use crate::x509::{self, CaCertificate, Name, Profile, SERIAL_BYTES};
use crate::{CaError, CaKind, names, ssh};

/// Lifetime of a CA's own certificate. The keys are replaced by rotation, long before.
const CA_LIFETIME: Duration = Duration::days(10 * 365);
/// How far a CA's certificate starts in the past: the clock of the machine may be set back after the first start.
const CA_BACKDATE: Duration = Duration::days(1);

/// An authority as it is stored. The private keys in it are in their custody's form: sealed, or a reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// Whom it certifies.
    pub kind: CaKind,
    /// The cluster it belongs to.
    pub cluster: ClusterName,
    /// The suite that chose its algorithms.
    pub suite: Suite,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// Signs SSH certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<StoredKey>,
    /// Signs X.509 certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<StoredKey>,
    /// The self-signed certificate of `tls_key`; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_certificate_pem: String,
    /// Signs JWTs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_key: Option<StoredKey>,
}

impl AuthorityRecord {
    /// Its keys, as their custodies store them.
    pub fn keys(&self) -> impl Iterator<Item = &StoredKey> {
        [&self.ssh_key, &self.tls_key, &self.jwt_key].into_iter().flatten()
    }
}

/// The SSH side of an authority.
#[derive(Clone)]
pub struct SshSide {
    signer: Arc<dyn Signer>,
    public_line: String,
    fingerprint: String,
}

/// The X.509 side of an authority.
#[derive(Clone)]
pub struct TlsSide {
    signer: Arc<dyn Signer>,
    certificate: CaCertificate,
}

/// The JWT side of an authority.
#[derive(Clone)]
pub struct JwtSide {
    signer: Arc<dyn Signer>,
    public_jwk: String,
    key_id: String,
}

/// A certificate authority, ready to sign.
#[derive(Clone)]
pub struct Authority {
    record: Arc<AuthorityRecord>,
    ssh: Option<SshSide>,
    tls: Option<TlsSide>,
    jwt: Option<JwtSide>,
}

impl Authority {
    /// Makes an authority with fresh keys: those that its kind has, of the suite's algorithms. Store its
    /// [`record`](Authority::record).
    ///
    /// # Errors
    /// [`CaError::BadName`] when the cluster's name cannot be part of a DNS name; [`CaError::Keys`] when the custody
    /// cannot make keys.
    pub fn generate(
        kind: CaKind,
        cluster: &ClusterName,
        custody: &dyn Custody,
        suite: Suite,
        now: OffsetDateTime,
    ) -> Result<Self, CaError> {
        if ServerName::try_from(names::server_name(HostRole::Proxy, cluster)).is_err() {
            return Err(CaError::BadName {
                name: cluster.to_string(),
                reason: "a cluster name must be one or more DNS labels: no empty label, none that ends in '-'",
            });
        }
        let make = |purpose: Option<KeyPurpose>, what: &str| -> Result<Option<StoredKey>, CaError> {
            let Some(purpose) = purpose else { return Ok(None) };
            let label = format!("{cluster} {kind} ca {what}");
            Ok(Some(custody.generate_for(Some(purpose), &label, suite.algorithm(purpose))?))
        };
        let ssh_key = make(kind.ssh_purpose(), "ssh")?;
        let tls_key = make(kind.tls_purpose(), "tls")?;
        let jwt_key = make(kind.jwt_purpose(), "jwt")?;
        let tls_certificate_pem = match &tls_key {
            Some(key) => x509::to_pem(&own_certificate(kind, cluster, custody.load(key)?.as_ref(), now)?),
            None => String::new(),
        };
        let record = AuthorityRecord {
            kind,
            cluster: cluster.clone(),
            suite,
            created: now,
            ssh_key,
            tls_key,
            tls_certificate_pem,
            jwt_key,
        };
        Self::load(&record, custody)
    }

    /// Brings a stored authority back to life.
    ///
    /// # Errors
    /// [`CaError::Keys`] when its custody cannot find or open the keys; [`CaError::BadTrust`] when its certificate
    /// does not belong to them; [`CaError::NoKey`] when one of them is missing.
    pub fn load(record: &AuthorityRecord, custody: &dyn Custody) -> Result<Self, CaError> {
        let kind = record.kind;
        let load =
            |purpose: Option<KeyPurpose>, key: &Option<StoredKey>, what: &'static str| match (purpose, key) {
                (None, _) => Ok(None),
                (Some(_), Some(key)) => custody.load(key).map(Some).map_err(CaError::from),
                (Some(_), None) => Err(CaError::NoKey { kind, what }),
            };
        let ssh = load(kind.ssh_purpose(), &record.ssh_key, "SSH")?;
        let tls = load(kind.tls_purpose(), &record.tls_key, "TLS")?;
        let jwt = load(kind.jwt_purpose(), &record.jwt_key, "JWT")?;
        Ok(Self {
            ssh: ssh.map(|signer| SshSide::new(signer, record)).transpose()?,
            tls: tls.map(|signer| TlsSide::new(signer, record)).transpose()?,
            jwt: jwt.map(JwtSide::new).transpose()?,
            record: Arc::new(record.clone()),
        })
    }

    /// What to store.
    #[must_use]
    pub fn record(&self) -> &AuthorityRecord {
        &self.record
    }

    /// Whom it certifies.
    #[must_use]
    pub fn kind(&self) -> CaKind {
        self.record.kind
    }

    /// The cluster it belongs to.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.record.cluster
    }

    /// Its SSH side.
    ///
    /// # Errors
    /// [`CaError::NoKey`] when its kind has none.
    pub fn ssh(&self) -> Result<&SshSide, CaError> {
        self.ssh.as_ref().ok_or(CaError::NoKey { kind: self.kind(), what: "SSH" })
    }

    /// Its X.509 side.
    ///
    /// # Errors
    /// [`CaError::NoKey`] when its kind has none.
    pub fn tls(&self) -> Result<&TlsSide, CaError> {
        self.tls.as_ref().ok_or(CaError::NoKey { kind: self.kind(), what: "TLS" })
    }

    /// Its JWT side.
    ///
    /// # Errors
    /// [`CaError::NoKey`] when its kind has none.
    pub fn jwt(&self) -> Result<&JwtSide, CaError> {
        self.jwt.as_ref().ok_or(CaError::NoKey { kind: self.kind(), what: "JWT" })
    }

    /// The public halves, as a trust bundle carries them.
    #[must_use]
    pub fn public_keys(&self) -> PublicKeys {
        PublicKeys {
            ssh: self.ssh.iter().map(|side| side.public_line.clone()).collect(),
            tls: self.tls.iter().map(|_| self.record.tls_certificate_pem.clone()).collect(),
            jwt: self.jwt.iter().map(|side| side.public_jwk.clone()).collect(),
        }
    }
}

impl SshSide {
    fn new(signer: Arc<dyn Signer>, record: &AuthorityRecord) -> Result<Self, CaError> {
        let key = ssh_key::PublicKey::new(
            ssh::key_data(&signer.public_key())?,
            x509::ca_common_name(record.kind, record.cluster.as_str()),
        );
        Ok(Self {
            public_line: key
                .to_openssh()
                .map_err(|error| CaError::Encode { what: "an SSH public key", reason: error.to_string() })?,
            fingerprint: ssh::fingerprint(key.key_data()),
            signer,
        })
    }

    /// The public key as an OpenSSH line.
    #[must_use]
    pub fn public_line(&self) -> &str {
        &self.public_line
    }

    /// The public key's fingerprint, `SHA256:...`.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The key's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.signer.algorithm()
    }

    pub(crate) fn signer(&self) -> &dyn Signer {
        self.signer.as_ref()
    }
}

impl TlsSide {
    fn new(signer: Arc<dyn Signer>, record: &AuthorityRecord) -> Result<Self, CaError> {
        let bad = |reason: String| CaError::BadTrust { field: "tls_certificate_pem", reason };
        let der = CertificateDer::from_pem_slice(record.tls_certificate_pem.as_bytes())
            .map_err(|error| bad(error.to_string()))?;
        let certificate = CaCertificate::parse(&der)?;
        if certificate.public_key != signer.public_key() {
            return Err(bad(format!("it does not belong to the {} CA's TLS key", record.kind)));
        }
        Ok(Self { signer, certificate })
    }

    /// The pin: SHA-256 of the public key, as [`crate::tls::pinned_client_config`] takes it.
    #[must_use]
    pub fn pin(&self) -> String {
        self.certificate.pin()
    }

    /// The key's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.signer.algorithm()
    }

    /// Its name as its certificate has it, in DER.
    pub(crate) fn name_der(&self) -> &[u8] {
        &self.certificate.subject
    }

    /// The public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.signer.public_key()
    }

    /// When its own certificate ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.certificate.not_after
    }

    pub(crate) fn signer(&self) -> &dyn Signer {
        self.signer.as_ref()
    }
}

impl JwtSide {
    fn new(signer: Arc<dyn Signer>) -> Result<Self, CaError> {
        let public = signer.public_key();
        let failed = |error: sallyport_sal::formats::FormatError| CaError::Encode {
            what: "a JSON Web Key",
            reason: error.to_string(),
        };
        Ok(Self {
            public_jwk: jwk::encode_public(&public).map_err(failed)?,
            key_id: jwk::thumbprint(&public).map_err(failed)?,
            signer,
        })
    }

    /// The public key as a JSON Web Key with the members of its type only (RFC 7638 §3.2).
    #[must_use]
    pub fn public_jwk(&self) -> &str {
        &self.public_jwk
    }

    /// The key's thumbprint (RFC 7638), which is its `kid`.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The key's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.signer.algorithm()
    }

    /// Signs with it.
    pub(crate) fn signer(&self) -> &dyn Signer {
        self.signer.as_ref()
    }
}

/// The self-signed certificate of an authority.
fn own_certificate(
    kind: CaKind,
    cluster: &ClusterName,
    signer: &dyn Signer,
    now: OffsetDateTime,
) -> Result<Vec<u8>, CaError> {
    let common_name = x509::ca_common_name(kind, cluster.as_str());
    let name = Name::new(&common_name, cluster.as_str());
    x509::Template {
        serial: serial()?,
        issuer: &name.der(),
        subject: name,
        not_before: now - CA_BACKDATE,
        not_after: now + CA_LIFETIME,
        subject_key: &signer.public_key(),
        profile: Profile::Ca,
    }
    .sign(signer)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("kind", &self.record.kind)
            .field("cluster", &self.record.cluster)
            .field("ssh", &self.ssh.as_ref().map(SshSide::fingerprint))
            .finish_non_exhaustive()
    }
}

/// A random serial number: positive, and never zero (RFC 5280 §4.1.2.2).
pub(crate) fn serial() -> Result<[u8; SERIAL_BYTES], CaError> {
    let mut serial = random::bytes::<SERIAL_BYTES>()?;
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    Ok(serial)
}
