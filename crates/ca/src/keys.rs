//! The private keys that clients and hosts keep on disk, in the formats that other tools read.

use std::fmt;

use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, PublicKey, Signer, Suite};
use ssh_key::encoding::Decode;
use ssh_key::private::{EcdsaKeypair, EcdsaPrivateKey, Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::{EcdsaPublicKey, KeyData};
use ssh_key::{HashAlg, LineEnding, PrivateKey};
use zeroize::Zeroizing;

use crate::{CaError, ssh};

/// An SSH key pair.
#[derive(Clone)]
pub struct SshKeyPair {
    private: PrivateKey,
    private_openssh: Zeroizing<String>,
    public_line: String,
}

impl SshKeyPair {
    /// Makes a fresh key of the suite's type for users, with a comment that OpenSSH shows.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn generate(suite: Suite, comment: &str) -> Result<Self, CaError> {
        Self::generate_for(suite, KeyPurpose::UserSsh, comment)
    }

    /// Makes a fresh key of the suite's type for a purpose.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn generate_for(suite: Suite, purpose: KeyPurpose, comment: &str) -> Result<Self, CaError> {
        let key = MemoryKey::generate_for(purpose, suite.algorithm(purpose))?;
        Self::new(to_private(&key, comment)?)
    }

    /// Reads an OpenSSH private key without passphrase (`-----BEGIN OPENSSH PRIVATE KEY-----`).
    ///
    /// # Errors
    /// [`CaError::BadPrivateKey`] when it is malformed or encrypted.
    pub fn from_openssh(text: &str) -> Result<Self, CaError> {
        let bad = |reason: String| CaError::BadPrivateKey { which: "SSH", reason };
        let private = PrivateKey::from_openssh(text).map_err(|error| bad(error.to_string()))?;
        if private.is_encrypted() {
            return Err(bad("it is encrypted with a passphrase".to_owned()));
        }
        Self::new(private)
    }

    /// The public key as an OpenSSH line, without a line end.
    #[must_use]
    pub fn public_line(&self) -> &str {
        &self.public_line
    }

    /// The private key in OpenSSH's format, for a file of mode 0600.
    #[must_use]
    pub fn private_openssh(&self) -> Zeroizing<String> {
        self.private_openssh.clone()
    }

    /// The fingerprint as `ssh-keygen -l` shows it: `SHA256:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.private.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The key as SSH libraries take it.
    #[must_use]
    pub fn private_key(&self) -> &PrivateKey {
        &self.private
    }

    fn new(private: PrivateKey) -> Result<Self, CaError> {
        let failed =
            |error: ssh_key::Error| CaError::Encode { what: "an SSH key", reason: error.to_string() };
        Ok(Self {
            public_line: private.public_key().to_openssh().map_err(failed)?,
            private_openssh: private.to_openssh(LineEnding::LF).map_err(failed)?,
            private,
        })
    }
}

impl fmt::Debug for SshKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKeyPair").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// A key for TLS.
#[derive(Clone)]
pub struct TlsKey {
    pkcs8_pem: Zeroizing<String>,
    spki: Vec<u8>,
}

impl TlsKey {
    /// Makes a fresh key of the suite's type for users.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn generate(suite: Suite) -> Result<Self, CaError> {
        Self::generate_for(suite, KeyPurpose::UserTls)
    }

    /// Makes a fresh key of the suite's type for a purpose.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn generate_for(suite: Suite, purpose: KeyPurpose) -> Result<Self, CaError> {
        Self::new(&MemoryKey::generate_for(purpose, suite.algorithm(purpose))?)
    }

    /// Reads PKCS#8 in PEM.
    ///
    /// # Errors
    /// [`CaError::BadPrivateKey`] when it is malformed or not Ed25519 or P-256.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, CaError> {
        let key = MemoryKey::from_pkcs8_pem(pem)
            .map_err(|error| CaError::BadPrivateKey { which: "TLS", reason: error.to_string() })?;
        Self::new(&key)
    }

    /// SubjectPublicKeyInfo, DER: what is sent to be certified.
    #[must_use]
    pub fn spki_der(&self) -> &[u8] {
        &self.spki
    }

    /// PKCS#8 in PEM, for a file of mode 0600.
    #[must_use]
    pub fn pkcs8_pem(&self) -> Zeroizing<String> {
        self.pkcs8_pem.clone()
    }

    fn new(key: &MemoryKey) -> Result<Self, CaError> {
        Ok(Self { pkcs8_pem: key.to_pkcs8_pem()?, spki: key.public_key().spki_der() })
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").finish_non_exhaustive()
    }
}

/// A public key as SSH libraries take it.
///
/// # Errors
/// [`CaError::Encode`] for ML-DSA keys, which SSH does not have.
pub fn ssh_public_key(key: &PublicKey) -> Result<KeyData, CaError> {
    ssh::key_data(key)
}

/// Signs a message as SSH does (RFC 4253 §6.6), wherever the key lives: two `string`, the name of the scheme and the
/// signature. ECDSA comes as two `mpint` (RFC 5656 §3.1.2), RSA by `rsa-sha2-512` (RFC 8332 §3).
///
/// # Errors
/// [`CaError::Sign`] when the key cannot be used, [`CaError::Encode`] for ML-DSA keys, which SSH does not have.
pub fn ssh_signature(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, CaError> {
    ssh::signature(signer, message)
}

fn to_private(key: &MemoryKey, comment: &str) -> Result<PrivateKey, CaError> {
    let failed = |reason: String| CaError::Encode { what: "an SSH private key", reason };
    let secret = key.secret_bytes()?;
    let pair = match (key.algorithm(), ssh::key_data(&key.public_key())?) {
        (KeyAlgorithm::Ed25519, KeyData::Ed25519(public)) => {
            let private =
                Ed25519PrivateKey::try_from(secret.as_slice()).map_err(|error| failed(error.to_string()))?;
            KeypairData::from(Ed25519Keypair { public, private })
        }
        (KeyAlgorithm::EcdsaP256, KeyData::Ecdsa(EcdsaPublicKey::NistP256(public))) => {
            let mut mpint = Zeroizing::new(Vec::with_capacity(4 + secret.len()));
            crate::encoding::put_string(&mut mpint, &secret);
            let private = EcdsaPrivateKey::<32>::decode(&mut mpint.as_slice())
                .map_err(|error| failed(error.to_string()))?;
            KeypairData::from(EcdsaKeypair::NistP256 { public, private })
        }
        (other, _) => return Err(failed(format!("{other} has no SSH form"))),
    };
    PrivateKey::new(pair, comment).map_err(|error| failed(error.to_string()))
}
