//! What a node proves itself with.

use std::fmt;
use std::sync::Arc;

use sallyport_ca::CaError;
use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::{KeyAlgorithm, Signer};
use ssh_key::{Certificate, PrivateKey};
use time::OffsetDateTime;

use crate::rsa_keys::{self, HostSigner};
use crate::transport::Host;

/// Where a host key is.
#[derive(Debug, Clone)]
pub enum HostKey<'a> {
    /// In this process's memory.
    Memory(&'a SshKeyPair),
    /// In a custody that signs and does not give it out. The SSH library has no hook for these:
    /// [`HostIdentity::new`] refuses them until it has.
    Held(Arc<dyn Signer>),
}

impl<'a> From<&'a SshKeyPair> for HostKey<'a> {
    fn from(key: &'a SshKeyPair) -> Self {
        Self::Memory(key)
    }
}

/// What a node proves itself with: its host key and the cluster's certificate for it.
#[derive(Clone)]
pub struct HostIdentity {
    pub(super) key: PrivateKey,
    /// None for a key that is believed by itself.
    certificate: Option<Certificate>,
    /// Keeps an RSA key signing.
    pub(super) signer: Option<Arc<HostSigner>>,
    /// The same for [`crate::transport`].
    pub(crate) host: Arc<Host>,
}

impl HostIdentity {
    /// From a host key and the certificate line that the authority issued for it.
    ///
    /// # Errors
    /// [`NodeError::HostCertificate`] when the certificate is malformed or for another key,
    /// [`NodeError::HostKeyHeld`] when the key is not in memory.
    pub fn new<'a>(key: impl Into<HostKey<'a>>, certificate: &str) -> Result<Self, NodeError> {
        let key = match key.into() {
            HostKey::Memory(key) => key,
            HostKey::Held(signer) => {
                return Err(NodeError::HostKeyHeld { algorithm: signer.algorithm() });
            }
        };
        let certificate = Certificate::from_openssh(certificate)
            .map_err(|error| NodeError::HostCertificate { reason: error.to_string() })?;
        if certificate.public_key() != key.private_key().public_key().key_data() {
            return Err(NodeError::HostCertificate { reason: "it is for another key".to_owned() });
        }
        let unusable = |error: CaError| NodeError::HostCertificate { reason: error.to_string() };
        let host = Arc::new(Host::new(key.signer(), Some(&certificate)).map_err(unusable)?);
        let (key, signer) = rsa_keys::host_key(key).map_err(unusable)?;
        Ok(Self { key, certificate: Some(certificate), signer, host })
    }

    /// A key that is believed by itself: its clients know it beforehand.
    ///
    /// # Errors
    /// [`NodeError::HostKey`] when it cannot sign here.
    pub fn plain(key: &SshKeyPair) -> Result<Self, NodeError> {
        let unusable = |error: CaError| NodeError::HostKey { reason: error.to_string() };
        let host = Arc::new(Host::new(key.signer(), None).map_err(unusable)?);
        let (key, signer) = rsa_keys::host_key(key).map_err(unusable)?;
        Ok(Self { key, certificate: None, signer, host })
    }

    /// When the certificate ends.
    #[must_use]
    pub fn valid_before(&self) -> Option<OffsetDateTime> {
        i64::try_from(self.certificate.as_ref()?.valid_before())
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostIdentity")
            .field("certificate", &self.certificate.as_ref().map(Certificate::key_id))
            .finish_non_exhaustive()
    }
}

/// Why a node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The host certificate is not usable.
    #[error("the host certificate is not usable: {reason}; let the node join again")]
    HostCertificate {
        /// What is wrong with it.
        reason: String,
    },
    /// The host key is not usable.
    #[error("the host key is not usable: {reason}")]
    HostKey {
        /// What is wrong with it.
        reason: String,
    },
    /// The host key is in a custody that does not give it out.
    #[error(
        "the {algorithm} host key is not in memory, and russh signs with host keys from memory only; keep the host key in a file, and the user and CA keys in the token"
    )]
    HostKeyHeld {
        /// Its type.
        algorithm: KeyAlgorithm,
    },
    /// Ourselves: something that is built in does not work.
    #[error("what is built in does not work: {reason}")]
    Internal {
        /// What.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sallyport_sal::MemoryKey;

    use super::*;

    #[test]
    fn a_host_key_that_cannot_be_had_is_refused_in_words() {
        let held = HostKey::Held(Arc::new(MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap()));
        let error = HostIdentity::new(held, "").unwrap_err().to_string();
        assert!(error.contains("russh signs with host keys from memory only"), "{error}");
    }
}
