//! One certificate authority: an SSH key and a TLS key with its certificate.

use std::fmt;
use std::sync::Arc;

use sallyport_access::{ClusterName, HostRole};
use sallyport_sal::custody::{Custody, StoredKey};
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, Signer, Suite, random};
use serde::{Deserialize, Serialize};
use ssh_key::HashAlg;
use time::{Duration, OffsetDateTime};

use crate::x509::{self, CaCertificate, Name, Profile, SERIAL_BYTES};
use crate::{CaError, names, ssh};

/// Lifetime of a CA's own certificate. The keys are replaced by rotation, long before.
const CA_LIFETIME: Duration = Duration::days(10 * 365);
/// How far a CA's certificate starts in the past: the clock of the machine may be set back after the first start.
const CA_BACKDATE: Duration = Duration::days(1);

/// Whom an authority certifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaKind {
    /// People and machine accounts.
    User,
    /// Nodes, proxies and the authority service itself.
    Host,
}

impl fmt::Display for CaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Host => "host",
        })
    }
}

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
    pub ssh_key: StoredKey,
    /// Signs X.509 certificates.
    pub tls_key: StoredKey,
    /// The self-signed certificate of `tls_key`.
    pub tls_certificate_pem: String,
}

/// A certificate authority, ready to sign.
#[derive(Clone)]
pub struct Authority {
    record: AuthorityRecord,
    ssh: Arc<dyn Signer>,
    tls: Arc<dyn Signer>,
    certificate: CaCertificate,
    ssh_public_line: String,
    ssh_fingerprint: String,
}

impl Authority {
    /// Makes an authority with fresh keys. Store its [`record`](Authority::record).
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
        let (ssh_purpose, tls_purpose) = match kind {
            CaKind::User => (KeyPurpose::UserCaSsh, KeyPurpose::UserCaTls),
            CaKind::Host => (KeyPurpose::HostCaSsh, KeyPurpose::HostCaTls),
        };
        let ssh_key = custody.generate(&format!("{cluster} {kind} ca ssh"), suite.algorithm(ssh_purpose))?;
        let tls_key = custody.generate(&format!("{cluster} {kind} ca tls"), suite.algorithm(tls_purpose))?;
        let signer = custody.load(&tls_key)?;
        let common_name = x509::ca_common_name(kind, cluster.as_str());
        let name = Name { common_name: &common_name, organization: cluster.as_str() };
        let certificate = x509::Template {
            serial: serial()?,
            issuer: name,
            subject: name,
            not_before: now - CA_BACKDATE,
            not_after: now + CA_LIFETIME,
            subject_key: &signer.public_key(),
            profile: Profile::Ca,
        }
        .sign(signer.as_ref())?;
        let record = AuthorityRecord {
            kind,
            cluster: cluster.clone(),
            suite,
            created: now,
            ssh_key,
            tls_key,
            tls_certificate_pem: x509::to_pem(&certificate),
        };
        Self::load(&record, custody)
    }

    /// Brings a stored authority back to life.
    ///
    /// # Errors
    /// [`CaError::Keys`] when its custody cannot find or open the keys; [`CaError::BadTrust`] when its certificate
    /// does not belong to them.
    pub fn load(record: &AuthorityRecord, custody: &dyn Custody) -> Result<Self, CaError> {
        let bad = |reason: String| CaError::BadTrust { field: "tls_certificate_pem", reason };
        let ssh = custody.load(&record.ssh_key)?;
        let tls = custody.load(&record.tls_key)?;
        let der = CertificateDer::from_pem_slice(record.tls_certificate_pem.as_bytes())
            .map_err(|error| bad(error.to_string()))?;
        let certificate = CaCertificate::parse(&der)?;
        if certificate.public_key != tls.public_key() {
            return Err(bad(format!("it does not belong to the {} CA's TLS key", record.kind)));
        }
        let key = ssh_key::PublicKey::new(
            ssh::key_data(&ssh.public_key())?,
            x509::ca_common_name(record.kind, record.cluster.as_str()),
        );
        Ok(Self {
            record: record.clone(),
            ssh_public_line: key
                .to_openssh()
                .map_err(|error| CaError::Encode { what: "an SSH public key", reason: error.to_string() })?,
            ssh_fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
            ssh,
            tls,
            certificate,
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

    /// Its cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.record.cluster
    }

    /// Its SSH public key as an OpenSSH line.
    #[must_use]
    pub fn ssh_public_line(&self) -> &str {
        &self.ssh_public_line
    }

    /// The fingerprint of its SSH key, as `ssh-keygen -l` shows it: `SHA256:…`.
    #[must_use]
    pub fn ssh_fingerprint(&self) -> &str {
        &self.ssh_fingerprint
    }

    /// The algorithm of its SSH key.
    #[must_use]
    pub fn ssh_algorithm(&self) -> KeyAlgorithm {
        self.ssh.algorithm()
    }

    /// Its TLS certificate.
    #[must_use]
    pub fn tls_certificate_pem(&self) -> &str {
        &self.record.tls_certificate_pem
    }

    /// The pin of its TLS key: `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn tls_pin(&self) -> String {
        self.certificate.pin()
    }

    /// The algorithm of its TLS key.
    #[must_use]
    pub fn tls_algorithm(&self) -> KeyAlgorithm {
        self.tls.algorithm()
    }

    /// When its TLS certificate ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.certificate.not_after
    }

    pub(crate) fn ssh_signer(&self) -> &dyn Signer {
        self.ssh.as_ref()
    }

    pub(crate) fn tls_signer(&self) -> &dyn Signer {
        self.tls.as_ref()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("kind", &self.record.kind)
            .field("cluster", &self.record.cluster)
            .field("ssh", &self.ssh_fingerprint)
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
