//! The private keys that clients and hosts keep on disk, in the formats that other tools read.

use std::fmt;
use std::sync::Arc;

use sallyport_sal::formats::openssh;
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, PublicKey, Signer, Suite};
use ssh_key::PrivateKey;
use ssh_key::encoding::Decode;
use ssh_key::private::{EcdsaKeypair, EcdsaPrivateKey, Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::{EcdsaPublicKey, KeyData};
use zeroize::Zeroizing;

use crate::security_keys::verify_user;
use crate::{CaError, ssh};

/// An SSH key pair: Ed25519, ECDSA or RSA.
#[derive(Clone)]
pub struct SshKeyPair {
    key: Arc<MemoryKey>,
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

    /// Makes a fresh key of the suite's type for a purpose. RSA takes tens of milliseconds and more.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn generate_for(suite: Suite, purpose: KeyPurpose, comment: &str) -> Result<Self, CaError> {
        Self::from_key(MemoryKey::generate_for(purpose, suite.algorithm(purpose))?, comment)
    }

    /// Takes a key that was made elsewhere, in a [pool](sallyport_sal::KeyPool) for instance.
    ///
    /// # Errors
    /// [`CaError::Encode`] for ML-DSA keys, which SSH does not have, and for a comment of more than one line.
    pub fn from_key(key: MemoryKey, comment: &str) -> Result<Self, CaError> {
        let failed = |error: sallyport_sal::formats::FormatError| CaError::Encode {
            what: "an SSH key",
            reason: error.to_string(),
        };
        let private_openssh = openssh::encode(key.material(), comment, None).map_err(failed)?;
        Ok(Self {
            public_line: openssh::encode_line(&key.public_key(), comment).map_err(failed)?,
            private: to_private(&key, comment, &private_openssh)?,
            private_openssh,
            key: Arc::new(key),
        })
    }

    /// Reads an OpenSSH private key without passphrase (`-----BEGIN OPENSSH PRIVATE KEY-----`).
    ///
    /// # Errors
    /// [`CaError::BadPrivateKey`] when it is malformed, encrypted, or an RSA key of another size than ours.
    pub fn from_openssh(text: &str) -> Result<Self, CaError> {
        let bad = |reason: String| CaError::BadPrivateKey { which: "SSH", reason };
        let (material, comment) =
            openssh::decode(text.as_bytes(), None).map_err(|error| bad(error.to_string()))?;
        let key = MemoryKey::from_material(material).map_err(|error| bad(error.to_string()))?;
        Self::from_key(key, &comment)
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
        fingerprint(self.private.public_key().key_data())
    }

    /// The key as SSH libraries take it.
    #[must_use]
    pub fn private_key(&self) -> &PrivateKey {
        &self.private
    }

    /// The key as the one that signs.
    #[must_use]
    pub fn signer(&self) -> Arc<dyn Signer> {
        Arc::clone(&self.key) as Arc<dyn Signer>
    }
}

impl fmt::Debug for SshKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKeyPair").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// A key for TLS: of any type that suites have, ML-DSA included.
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
        Self::from_key(&MemoryKey::generate_for(purpose, suite.algorithm(purpose))?)
    }

    /// Takes a key that was made elsewhere, in a [pool](sallyport_sal::KeyPool) for instance.
    ///
    /// # Errors
    /// None today.
    pub fn from_key(key: &MemoryKey) -> Result<Self, CaError> {
        Ok(Self { pkcs8_pem: key.to_pkcs8_pem()?, spki: key.public_key().spki_der() })
    }

    /// Reads PKCS#8 in PEM.
    ///
    /// # Errors
    /// [`CaError::BadPrivateKey`] when it is malformed, or of a type or size that we do not use.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, CaError> {
        let key = MemoryKey::from_pkcs8_pem(pem)
            .map_err(|error| CaError::BadPrivateKey { which: "TLS", reason: error.to_string() })?;
        Self::from_key(&key)
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

/// A public key line of a user or host, without its comment, when it is of a type that we certify.
///
/// # Errors
/// [`CaError::BadPublicKey`] with what is wrong.
pub fn public_line(line: &str) -> Result<String, CaError> {
    ssh_key::PublicKey::from(ssh::subject_key(line)?)
        .to_openssh()
        .map_err(|error| CaError::BadPublicKey { which: "SSH", reason: error.to_string() })
}

/// Whether a certificate is over the key of a public key line.
#[must_use]
pub fn certifies(certificate: &ssh_key::Certificate, line: &str) -> bool {
    ssh_key::PublicKey::from_openssh(line.trim()).is_ok_and(|key| key.key_data() == certificate.public_key())
}

/// An SSH certificate from its one line. Who signed it, and whether it is good, is for [`Trust`](crate::Trust) to say.
///
/// # Errors
/// [`CaError::Malformed`].
pub fn certificate(line: &str) -> Result<ssh_key::Certificate, CaError> {
    ssh_key::Certificate::from_openssh(line.trim())
        .map_err(|error| CaError::Malformed { reason: error.to_string() })
}

/// Signs a message as SSH does (RFC 4253 §6.6), wherever the key lives: two `string`, the name of the scheme and the
/// signature. ECDSA comes as two `mpint` (RFC 5656 §3.1.2), RSA by `rsa-sha2-512` (RFC 8332 §3).
///
/// # Errors
/// [`CaError::Sign`] when the key cannot be used, [`CaError::Encode`] for ML-DSA keys, which SSH does not have.
pub fn ssh_signature(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, CaError> {
    ssh::signature(signer, message)
}

/// Checks a signature as [`ssh_signature`] makes it.
///
/// # Errors
/// [`CaError::BadSignature`], also for schemes that the key does not have; [`CaError::BadPublicKey`] for a type of key
/// that is not used here.
pub fn verify_ssh_signature(key: &KeyData, message: &[u8], signature: &[u8]) -> Result<(), CaError> {
    ssh::verify_message(&ssh::public_key(key)?, message, signature)
}

/// Checks a user's signature: as [`verify_ssh_signature`] does, and those of security keys (`sk-…@openssh.com`), which must say that
/// the holder touched the key unless the certificate has `no-touch-required`, and that it verified the holder where the certificate
/// has `verify-required`. Who signed the certificate is the caller's to check.
///
/// # Errors
/// As [`verify_ssh_signature`].
pub fn verify_user_signature(
    key: &KeyData,
    certificate: Option<&ssh_key::Certificate>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), CaError> {
    verify_user(key, certificate, message, signature)
}

/// An SSH certificate on the wire (OpenSSH's PROTOCOL.certkeys). As with [`certificate`], nothing is checked.
///
/// # Errors
/// [`CaError::Malformed`], also for certificates that are signed by certificates that are signed by certificates, and so on.
pub fn read_certificate(blob: &[u8]) -> Result<ssh_key::Certificate, CaError> {
    ssh::read(blob)
}

/// The fingerprint of a public key as `ssh-keygen -l` shows it: `SHA256:…`. Every one that Sallyport shows or compares is made here,
/// by the abstraction layer.
#[must_use]
pub fn fingerprint(key: &KeyData) -> String {
    ssh::fingerprint(key)
}

/// The key as the SSH library has it. Its own reader refuses one in 512 of the ECDSA keys that are written by the
/// standard, those whose scalar is a byte shorter, so that these are put together here.
fn to_private(key: &MemoryKey, comment: &str, openssh: &str) -> Result<PrivateKey, CaError> {
    let failed = |reason: String| CaError::Encode { what: "an SSH private key", reason };
    let secret = key.secret_bytes()?;
    let pair = match (key.algorithm(), ssh::key_data(&key.public_key())?) {
        (KeyAlgorithm::Ed25519, KeyData::Ed25519(public)) => {
            let private =
                Ed25519PrivateKey::try_from(secret.as_slice()).map_err(|error| failed(error.to_string()))?;
            KeypairData::from(Ed25519Keypair { public, private })
        }
        (_, KeyData::Ecdsa(public)) => KeypairData::from(match public {
            EcdsaPublicKey::NistP256(public) => EcdsaKeypair::NistP256 { public, private: scalar(&secret)? },
            EcdsaPublicKey::NistP384(public) => EcdsaKeypair::NistP384 { public, private: scalar(&secret)? },
            EcdsaPublicKey::NistP521(public) => EcdsaKeypair::NistP521 { public, private: scalar(&secret)? },
        }),
        (_, KeyData::Rsa(_)) => {
            return PrivateKey::from_openssh(openssh).map_err(|error| failed(error.to_string()));
        }
        (other, _) => return Err(failed(format!("{other} has no SSH form"))),
    };
    PrivateKey::new(pair, comment).map_err(|error| failed(error.to_string()))
}

/// A scalar of a curve, at full length.
fn scalar<const BYTES: usize>(secret: &[u8]) -> Result<EcdsaPrivateKey<BYTES>, CaError> {
    let mut string = Zeroizing::new(Vec::with_capacity(4 + secret.len()));
    crate::encoding::put_string(&mut string, secret);
    EcdsaPrivateKey::decode(&mut string.as_slice())
        .map_err(|error| CaError::Encode { what: "an SSH private key", reason: error.to_string() })
}
