//! Keys that sign and keys that verify.

use std::fmt;
use std::sync::OnceLock;

use zeroize::Zeroizing;

use crate::algorithm::SignatureScheme;
use crate::formats::{self, pkcs8, spki};
use crate::provider::{self, Fault, PrivateKey};
use crate::selection::{RunError, Selection};
use crate::{
    KeyAlgorithm, KeyPurpose, Primitive, PrivateKeyMaterial, SalError, SignError, economy, hash, selection,
    strict,
};

/// Signs, wherever its private key lives.
pub trait Signer: Send + Sync + fmt::Debug {
    /// The type of the key.
    fn algorithm(&self) -> KeyAlgorithm;

    /// The public half.
    fn public_key(&self) -> PublicKey;

    /// Signs a message by a scheme of the key's type. Ed25519 gives the 64 bytes of RFC 8032, ECDSA the DER of RFC 3279
    /// §2.2.3, RSA a number as long as its modulus.
    ///
    /// # Errors
    /// [`SignError`] when the scheme belongs to another type of key, or the key cannot be used: a token that is gone,
    /// no randomness.
    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError>;

    /// Signs a message by [`KeyAlgorithm::default_scheme`].
    ///
    /// # Errors
    /// As [`Signer::sign_with`].
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        self.sign_with(self.algorithm().default_scheme(), message)
    }
}

/// A public key of a type we use, checked when it was made.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    algorithm: KeyAlgorithm,
    raw: Vec<u8>,
}

impl PublicKey {
    /// Reads the DER of a SubjectPublicKeyInfo. Only the canonical encoding is accepted.
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] for anything else, for points that are not on the curve or have small order, and for
    /// RSA keys of other sizes than ours or with an exponent that is even, 1 or longer than 32 bits.
    pub fn from_spki_der(der: &[u8]) -> Result<Self, SalError> {
        let (algorithm, raw) = spki::decode(der)?;
        Self::from_raw(algorithm, raw)
    }

    /// Reads the bare key, as a SubjectPublicKeyInfo holds it: 32 bytes of Ed25519, an uncompressed point (SEC 1
    /// §2.3.3), `RSAPublicKey` in DER (RFC 8017 appendix A.1.1), or the bytes of ML-DSA.
    ///
    /// # Errors
    /// As [`PublicKey::from_spki_der`].
    pub fn from_raw(algorithm: KeyAlgorithm, raw: &[u8]) -> Result<Self, SalError> {
        let bad = |reason: &str| SalError::BadPublicKey { reason: format!("{algorithm}: {reason}") };
        strict::check_public(algorithm, raw).map_err(bad)?;
        selection::global().check_public(algorithm, raw).map_err(bad)?;
        Ok(Self { algorithm, raw: raw.to_vec() })
    }

    /// An RSA key from its modulus and exponent, big endian.
    ///
    /// # Errors
    /// As [`PublicKey::from_spki_der`].
    pub fn from_rsa_numbers(modulus: &[u8], exponent: &[u8]) -> Result<Self, SalError> {
        let raw = spki::rsa_public(modulus, exponent);
        let bits = spki::modulus_bits(&raw).unwrap_or_default();
        let algorithm = KeyAlgorithm::rsa(bits).ok_or_else(|| spki::odd_size(bits))?;
        Self::from_raw(algorithm, &raw)
    }

    /// Modulus and exponent of an RSA key, big endian without leading zeros; none for other keys.
    #[must_use]
    pub fn rsa_numbers(&self) -> Option<(&[u8], &[u8])> {
        spki::rsa_numbers(&self.raw).filter(|_| self.algorithm.modulus_bits().is_some())
    }

    /// The type of the key.
    #[must_use]
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// The bare key, as [`PublicKey::from_raw`] takes it.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The DER of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki_der(&self) -> Vec<u8> {
        spki::encode(self.algorithm, &self.raw)
    }

    /// The SHA-256 of its SubjectPublicKeyInfo: what pins are made of.
    #[must_use]
    pub fn spki_sha256(&self) -> [u8; 32] {
        hash::sha256(&self.spki_der())
    }

    /// Checks a signature by [`KeyAlgorithm::default_scheme`].
    ///
    /// # Errors
    /// As [`PublicKey::verify_with`].
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SalError> {
        self.verify_with(self.algorithm.default_scheme(), message, signature)
    }

    /// Checks a signature in the form that [`Signer::sign_with`] gives.
    ///
    /// # Errors
    /// [`SalError::BadSignature`] when it was not made by this key over this message by this scheme, or is malformed.
    pub fn verify_with(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SalError> {
        self.verify_in(selection::global(), scheme, message, signature)
    }

    /// [`PublicKey::verify_with`] by the sources of a given selection.
    ///
    /// # Errors
    /// As there.
    pub fn verify_in(
        &self,
        selection: &Selection,
        scheme: SignatureScheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SalError> {
        let refused = |_| SalError::BadSignature { algorithm: self.algorithm };
        strict::check_signature(self.algorithm, scheme, signature).map_err(refused)?;
        selection
            .run(Primitive::Verify(self.algorithm), |provider| {
                provider.verify(self.algorithm, scheme, &self.raw, message, signature)
            })
            .map_err(|error| error.into_sal(refused))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("algorithm", &self.algorithm)
            .field("spki_sha256", &data_encoding::HEXLOWER.encode(&self.spki_sha256()))
            .finish()
    }
}

/// A private key in this process's memory, wiped when it goes. It signs by whatever source the selection gives.
pub struct MemoryKey {
    material: PrivateKeyMaterial,
    public: PublicKey,
    selection: &'static Selection,
    /// The key as each provider loaded it, made at the first use: one for each place in the selection.
    loaded: [OnceLock<Box<dyn PrivateKey>>; provider::MAX],
}

impl MemoryKey {
    /// Makes a fresh key for no purpose that a suite knows. It is counted as such; see [`economy`].
    ///
    /// # Errors
    /// [`SalError::NoSource`] when no source makes such keys.
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        Self::generate_in(selection::global(), algorithm)
    }

    /// Makes a fresh key for a purpose, which it is counted under.
    ///
    /// # Errors
    /// As [`MemoryKey::generate`].
    pub fn generate_for(purpose: KeyPurpose, algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        Self::generate_counted(selection::global(), Some(purpose), algorithm)
    }

    /// [`MemoryKey::generate`] by the sources of a given selection, which also sign.
    ///
    /// # Errors
    /// As there.
    pub fn generate_in(selection: &'static Selection, algorithm: KeyAlgorithm) -> Result<Self, SalError> {
        Self::generate_counted(selection, None, algorithm)
    }

    pub(crate) fn generate_counted(
        selection: &'static Selection,
        purpose: Option<KeyPurpose>,
        algorithm: KeyAlgorithm,
    ) -> Result<Self, SalError> {
        economy::counted(purpose, algorithm, || {
            Self::from_proven(selection, selection.generate_key(algorithm)?)
        })
    }

    /// Takes a key as bytes.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when its halves do not belong together.
    pub fn from_material(material: PrivateKeyMaterial) -> Result<Self, SalError> {
        Self::from_material_in(selection::global(), material)
    }

    /// The same, to sign by the sources of a given selection.
    ///
    /// # Errors
    /// As [`MemoryKey::from_material`].
    pub fn from_material_in(
        selection: &'static Selection,
        material: PrivateKeyMaterial,
    ) -> Result<Self, SalError> {
        formats::prove(&material)?;
        Self::from_proven(selection, material)
    }

    /// Takes a key that was just made, or read by a function that proves what it reads.
    pub(crate) fn from_proven(
        selection: &'static Selection,
        material: PrivateKeyMaterial,
    ) -> Result<Self, SalError> {
        let public = PublicKey::from_raw(material.algorithm(), material.public())?;
        let key = Self { material, public, selection, loaded: [const { OnceLock::new() }; provider::MAX] };
        key.selection
            .run(Primitive::Sign(key.public.algorithm), |provider| key.load(provider).map(|_| ()))
            .map_err(|error| error.into_sal(|reason| SalError::BadPrivateKey { reason: reason.to_owned() }))?;
        Ok(key)
    }

    /// Reads a PKCS#8 document (RFC 5958), version 1 or 2.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when it is malformed or holds a key of another type.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, SalError> {
        Self::from_proven(selection::global(), pkcs8::decode(der)?)
    }

    /// Reads PKCS#8 in PEM, as [`MemoryKey::to_pkcs8_pem`] and `openssl genpkey` write it.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when there is no `PRIVATE KEY` block or [`MemoryKey::from_pkcs8`] refuses it.
    pub fn from_pkcs8_pem(pem: &str) -> Result<Self, SalError> {
        use rustls::pki_types::PrivatePkcs8KeyDer;
        use rustls::pki_types::pem::PemObject;
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
            SalError::BadPrivateKey { reason: "no PEM block `BEGIN PRIVATE KEY` found".to_owned() }
        })?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// The key as bytes.
    #[must_use]
    pub fn material(&self) -> &PrivateKeyMaterial {
        &self.material
    }

    /// The key as PKCS#8 version 1 (RFC 5208), which OpenSSL and Go read too.
    ///
    /// # Errors
    /// None today.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, SalError> {
        Ok(pkcs8::encode(&self.material))
    }

    /// The key as PKCS#8 in PEM.
    ///
    /// # Errors
    /// As [`MemoryKey::to_pkcs8`].
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, SalError> {
        let der = self.to_pkcs8()?;
        let base64 = Zeroizing::new(data_encoding::BASE64.encode(&der));
        let mut pem = Zeroizing::new(String::with_capacity(base64.len() * 66 / 64 + 64));
        pem.push_str("-----BEGIN PRIVATE KEY-----\n");
        let mut rest = base64.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok(pem)
    }

    /// The bare secret, as [`PrivateKeyMaterial::secret`] has it. It exists for formats that PKCS#8 does not cover.
    ///
    /// # Errors
    /// None today.
    pub fn secret_bytes(&self) -> Result<Zeroizing<Vec<u8>>, SalError> {
        Ok(Zeroizing::new(self.material.secret().to_vec()))
    }

    fn load(&self, provider: &'static dyn provider::Provider) -> Result<&dyn PrivateKey, Fault> {
        let at = self.selection.place_of(provider).ok_or(Fault::Unsupported)?;
        let slot = self.loaded.get(at).ok_or(Fault::Unsupported)?;
        if slot.get().is_none() {
            let loaded = provider.load_key(&self.material)?;
            // Another thread may have been faster; either key is the same.
            let _ = slot.set(loaded);
        }
        slot.get().map(|key| &**key).ok_or(Fault::Unsupported)
    }
}

impl Signer for MemoryKey {
    fn algorithm(&self) -> KeyAlgorithm {
        self.public.algorithm
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }

    fn sign_with(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let algorithm = self.public.algorithm;
        let failed = |reason: String| SignError { algorithm, reason };
        if !scheme.fits(algorithm) {
            return Err(failed(format!("{scheme} belongs to another type of key")));
        }
        self.selection
            .run(Primitive::Sign(algorithm), |provider| self.load(provider)?.sign(scheme, message))
            .map_err(|error| {
                failed(match error {
                    RunError::Refused(reason) => reason.to_owned(),
                    RunError::NoSource(error) => error.to_string(),
                })
            })
    }
}

impl fmt::Debug for MemoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryKey").field("public", &self.public).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const ALGORITHMS: [KeyAlgorithm; 8] = [
        KeyAlgorithm::Ed25519,
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP384,
        KeyAlgorithm::EcdsaP521,
        KeyAlgorithm::Rsa2048,
        KeyAlgorithm::MlDsa44,
        KeyAlgorithm::MlDsa65,
        KeyAlgorithm::MlDsa87,
    ];

    #[test]
    fn what_is_signed_verifies_and_nothing_else_does() {
        for algorithm in ALGORITHMS {
            let key = MemoryKey::generate(algorithm).unwrap();
            let other = MemoryKey::generate(algorithm).unwrap();
            let public = key.public_key();
            let signature = key.sign(b"message").unwrap();
            public.verify(b"message", &signature).unwrap();
            assert!(public.verify(b"messagE", &signature).is_err());
            assert!(other.public_key().verify(b"message", &signature).is_err());
            for at in (0..signature.len()).step_by(1 + signature.len() / 80) {
                let mut damaged = signature.clone();
                damaged[at] ^= 0x01;
                assert!(public.verify(b"message", &damaged).is_err(), "{algorithm} byte {at}");
            }
            assert!(public.verify(b"message", &signature[1..]).is_err());
        }
    }

    /// RFC 8032 §7.1, test 2.
    #[test]
    fn ed25519_matches_the_published_vector() {
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let public = hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = hex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        PublicKey::from_raw(KeyAlgorithm::Ed25519, &public).unwrap().verify(&[0x72], &signature).unwrap();
    }

    #[test]
    fn keys_survive_every_encoding() {
        for algorithm in ALGORITHMS {
            let key = MemoryKey::generate(algorithm).unwrap();
            assert_eq!(key.algorithm(), algorithm);
            let spki = key.public_key().spki_der();
            assert_eq!(PublicKey::from_spki_der(&spki).unwrap(), key.public_key());
            let again = MemoryKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
            assert_eq!(again.public_key(), key.public_key());
            let again = MemoryKey::from_pkcs8_pem(&key.to_pkcs8_pem().unwrap()).unwrap();
            assert_eq!(again.public_key(), key.public_key());
            for cut in (0..spki.len()).step_by(1 + spki.len() / 200) {
                assert!(PublicKey::from_spki_der(&spki[..cut]).is_err(), "{algorithm} cut at {cut}");
            }
        }
    }

    #[test]
    fn other_keys_are_refused() {
        assert!(MemoryKey::from_pkcs8(b"").is_err());
        assert!(
            MemoryKey::from_pkcs8_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
                .is_err()
        );
        // (1, 1) is not on the curve.
        let mut point = vec![0x04; 65];
        point[1..].fill(0);
        point[32] = 1;
        point[64] = 1;
        assert!(PublicKey::from_raw(KeyAlgorithm::EcdsaP256, &point).is_err());
        assert!(PublicKey::from_raw(KeyAlgorithm::Ed25519, &[0; 31]).is_err());
    }

    #[test]
    fn private_keys_do_not_show() {
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let secret = data_encoding::HEXLOWER.encode(&key.secret_bytes().unwrap());
        assert!(!format!("{key:?}").contains(&secret));
    }
}
