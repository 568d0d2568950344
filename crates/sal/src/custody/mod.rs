//! Where private keys live between runs.
//!
//! [`Custody`] is the seam: what comes out of `generate` is a record that can be stored anywhere, because it holds
//! either a sealed private key or only a reference to hardware. [`SealedCustody`] is the kind for a machine without
//! hardware: keys are encrypted under a [`SealingKey`], 32 random bytes in a file only its owner may read. A
//! thief of the state without that file has ciphertext alone. In [`token`], keys are made in hardware and never leave it.

pub mod token;

mod sealed;
mod secret_file;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use sealed::{SealedCustody, SealingKey};

use crate::{KeyAlgorithm, KeyPurpose, PublicKey, SalError, Signer};

/// A private key as its custody stores it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredKey {
    /// The kind of custody that made it, such as `sealed`.
    pub custody: String,
    /// What the key is for, in words that its owner chose; it is bound into the seal.
    pub label: String,
    /// The key's algorithm.
    pub algorithm: KeyAlgorithm,
    /// SubjectPublicKeyInfo of the public half, DER in base64.
    pub public_key: String,
    /// What the custody needs to find the private half again, in base64: a sealed PKCS#8 document, or a handle.
    pub handle: String,
}

impl StoredKey {
    /// The public half, without touching the private one.
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] when the record was damaged.
    pub fn public_key(&self) -> Result<PublicKey, SalError> {
        let der = data_encoding::BASE64.decode(self.public_key.as_bytes()).map_err(|_| {
            SalError::BadPublicKey { reason: "the stored public key is not base64".to_owned() }
        })?;
        PublicKey::from_spki_der(&der)
    }
}

impl fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredKey")
            .field("custody", &self.custody)
            .field("label", &self.label)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Makes private keys and finds them again.
pub trait Custody: Send + Sync + fmt::Debug {
    /// Makes a key for a purpose, or for none that a suite knows, and counts it; see [`crate::economy`]. The label says
    /// what it is for in words, and is checked again when it is loaded.
    ///
    /// # Errors
    /// [`SalError`] when the key cannot be made or kept.
    fn generate_for(
        &self,
        purpose: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError>;

    /// Makes a key for no purpose that a suite knows.
    ///
    /// # Errors
    /// As [`Custody::generate_for`].
    fn generate(&self, label: &str, algorithm: KeyAlgorithm) -> Result<StoredKey, SalError> {
        self.generate_for(None, label, algorithm)
    }

    /// Finds a key again.
    ///
    /// # Errors
    /// [`SalError`] when the record belongs to another custody, was damaged, or its key is gone.
    fn load(&self, key: &StoredKey) -> Result<Arc<dyn Signer>, SalError>;

    /// Removes keys that were made with one of these labels, which must be of keys of which there is no record; gives
    /// how many there were. For a custody that keeps nothing itself there is nothing to do.
    ///
    /// # Errors
    /// [`SalError`] when the custody cannot be asked.
    fn discard(&self, labels: &[String]) -> Result<usize, SalError> {
        let _ = labels;
        Ok(0)
    }
}
