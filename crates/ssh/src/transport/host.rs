//! What a server proves itself with in key exchanges.

use std::fmt;
use std::sync::Arc;

use sallyport_ca::CaError;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::Signer;
use sallyport_sal::algorithm::SignatureScheme;
use ssh_key::Certificate;

use super::Breach;
use super::message::put_string;
use super::proposal::{CERTIFICATE, host_keys, shape};

/// The name by which RSA signs with the shorter of its hashes (RFC 8332 §3).
const RSA_SHA256: &str = "rsa-sha2-256";

/// A host key, and the certificate over it.
#[derive(Clone)]
pub struct Host {
    signer: Arc<dyn Signer>,
    /// The public key on the wire.
    key: Vec<u8>,
    certificate: Option<Vec<u8>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("key", &self.signer.public_key()).finish_non_exhaustive()
    }
}

impl Host {
    /// A key in any custody, and the certificate over it.
    ///
    /// # Errors
    /// [`CaError::Encode`] for keys that SSH does not have.
    pub fn new(signer: Arc<dyn Signer>, certificate: Option<&Certificate>) -> Result<Self, CaError> {
        let failed =
            |error: ssh_key::Error| CaError::Encode { what: "a host key", reason: error.to_string() };
        let key =
            ssh_key::PublicKey::from(ssh_public_key(&signer.public_key())?).to_bytes().map_err(failed)?;
        let certificate = certificate.map(Certificate::to_bytes).transpose().map_err(failed)?;
        Ok(Self { signer, key, certificate })
    }

    /// The names of algorithms that this can be shown by, best first. There is none where the mode of this process has none.
    pub(crate) fn algorithms(&self) -> Vec<&'static str> {
        let fits = |name: &&str| {
            let (kind, _, certified) = shape(name);
            let mut named = Vec::with_capacity(kind.len() + 4);
            put_string(&mut named, kind.as_bytes());
            let blob = if certified { self.certificate.as_deref() } else { Some(&*self.key) };
            blob.is_some_and(|blob| blob.starts_with(&named))
        };
        host_keys().filter(fits).collect()
    }

    /// What is shown under an algorithm of [`Host::algorithms`].
    pub(crate) fn shown(&self, algorithm: &str) -> &[u8] {
        let certificate = self.certificate.as_deref().filter(|_| algorithm.ends_with(CERTIFICATE));
        certificate.unwrap_or(&self.key)
    }

    /// Whether this is what is shown under one of them.
    pub(crate) fn is_shown_as(&self, blob: &[u8]) -> bool {
        blob == self.key || self.certificate.as_deref() == Some(blob)
    }

    pub(crate) fn sign(&self, algorithm: &str, message: &[u8]) -> Result<Vec<u8>, Breach> {
        let unavailable =
            |reason: String| Breach::Unavailable(format!("the host key does not sign: {reason}"));
        if shape(algorithm).1 != RSA_SHA256 {
            return ssh_signature(&*self.signer, message).map_err(|error| unavailable(error.to_string()));
        }
        let signature = self.signer.sign_with(SignatureScheme::RsaPkcs1Sha256, message);
        let signature = signature.map_err(|error| unavailable(error.to_string()))?;
        let mut blob = Vec::with_capacity(signature.len() + 24);
        put_string(&mut blob, RSA_SHA256.as_bytes());
        put_string(&mut blob, &signature);
        Ok(blob)
    }
}
