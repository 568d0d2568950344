//! A certificate for those who are not of the cluster: browsers, `curl`, clouds that fetch keys.
//!
//! The cluster's own programs ask for a proxy by the name that its role has ([`crate::server_name`]) and get the host
//! certificate. Every other client asks by the address that people type, and gets this one where there is one: the
//! operator's, which browsers trust, or one that the proxy made because other clients could not read its own.

use std::sync::Arc;

use sallyport_access::{ClusterName, HostRole};
use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::tls::provider;
use sallyport_sal::tls::rustls::ServerConfig;
use sallyport_sal::tls::rustls::server::{ClientHello, ResolvesServerCert};
use sallyport_sal::tls::rustls::sign::CertifiedKey;
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, Signer};
use time::{Duration, OffsetDateTime};

use crate::names::{self, HostName};
use crate::x509::{self, Name, Profile};
use crate::{CaError, authority};

/// A certificate that signs itself is replaced with every start and every renewal of the proxy's own.
const SELF_SIGNED_LIFETIME: Duration = Duration::days(90);
/// A clock may be off.
const BACKDATE: Duration = Duration::hours(1);

/// The certificate and its key.
#[derive(Debug, Clone)]
pub struct Page {
    key: Arc<CertifiedKey>,
}

impl Page {
    /// One from elsewhere: chain, leaf first, and key, both PEM.
    ///
    /// # Errors
    /// [`CaError::BadTlsIdentity`] when they cannot be read or do not belong together.
    pub fn from_pem(chain_pem: &str, key_pem: &str) -> Result<Self, CaError> {
        let (chain, key) = super::identity(chain_pem, key_pem)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(super::unusable)?;
        Ok(Self { key: Arc::new(key) })
    }

    /// The certificate itself.
    #[must_use]
    pub fn leaf_der(&self) -> &[u8] {
        self.key.cert.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// One that signs itself, with a fresh P-256 key, for the names that people type.
    ///
    /// # Errors
    /// [`CaError::BadName`] for a name that is none, [`CaError::Keys`] when no key can be made.
    pub fn self_signed(public_names: &[String], now: OffsetDateTime) -> Result<Self, CaError> {
        let mut all: Vec<HostName> = Vec::new();
        for name in public_names.iter().map(String::as_str).chain(["localhost", "127.0.0.1", "::1"]) {
            let name = HostName::parse(name)?;
            if !all.contains(&name) {
                all.push(name);
            }
        }
        let key = MemoryKey::generate_for(KeyPurpose::HostTls, KeyAlgorithm::EcdsaP256)?;
        let common_name = all.first().map(ToString::to_string).unwrap_or_default();
        let name = Name::new(&common_name, "Sallyport proxy");
        let der = x509::Template {
            serial: authority::serial()?,
            issuer: &name.der(),
            subject: name,
            not_before: now - BACKDATE,
            not_after: now + SELF_SIGNED_LIFETIME,
            subject_key: &key.public_key(),
            profile: Profile::DatabaseServer { names: &all },
        }
        .sign(&key)?;
        Self::from_pem(&x509::to_pem(&der), &key.to_pkcs8_pem()?)
    }
}

/// Whether programs of others can verify a chain (PEM, with its CA behind the leaf): none knows ML-DSA yet.
#[must_use]
pub fn is_read_by_others(chain_pem: &str) -> bool {
    use sallyport_sal::tls::rustls::pki_types::CertificateDer;
    use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
    CertificateDer::pem_slice_iter(chain_pem.as_bytes()).all(|certificate| {
        certificate
            .is_ok_and(|der| x509::public_key(&der).is_ok_and(|key| key.algorithm().kind() != KeyKind::MlDsa))
    })
}

/// Shows `page` to every client that does not ask for a proxy of this cluster by the name of its role.
pub fn show_to_others(config: &mut ServerConfig, cluster: &ClusterName, page: &Page) {
    config.cert_resolver = Arc::new(ByName {
        own_name: names::server_name(HostRole::Proxy, cluster),
        own: Arc::clone(&config.cert_resolver),
        page: Arc::clone(&page.key),
    });
}

#[derive(Debug)]
struct ByName {
    own_name: String,
    own: Arc<dyn ResolvesServerCert>,
    page: Arc<CertifiedKey>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls gives the name in lower case.
        match hello.server_name() {
            Some(name) if name == self.own_name => self.own.resolve(hello),
            _ => Some(Arc::clone(&self.page)),
        }
    }
}
