//! OpenSSL, as the system has it, for comparison.
//!
//! Where it is laxer than we are: its Ed25519 takes public keys of low order and such that are not reduced; its DER
//! reader takes what follows a structure, so keys are written again and compared; the exponent of an RSA key may be
//! even or 1, which is refused here. Its ECDSA signatures are strict DER. It refuses points that are not on the curve
//! and X25519 secrets that are zero.

use openssl::bn::{BigNum, BigNumContext};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::derive::Deriver;
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, Private, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};
use openssl::{sha, version};
use zeroize::{Zeroize as _, Zeroizing};

use super::contract::{
    ALTERED, AeadKey, Agreement, BAD_KEY, BAD_PUBLIC, BAD_SHARE, BAD_SIGNATURE, Fault, HashContext, HmacKey,
    Offer, PrivateKey, Provider, Secret, copy,
};
use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

const MISMATCH: Fault = Fault::Refused("the public key does not belong to the private key");

/// The system's OpenSSL.
#[derive(Debug)]
pub struct OpenSsl;

impl Provider for OpenSsl {
    fn name(&self) -> &'static str {
        "openssl"
    }

    fn credit(&self) -> &'static str {
        version::version()
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            Primitive::GenerateKey(algorithm) | Primitive::Sign(algorithm) | Primitive::Verify(algorithm)
                if algorithm.kind() == KeyKind::MlDsa =>
            {
                Offer::No
            }
            Primitive::Decapsulate | Primitive::Encapsulate => Offer::No,
            _ => Offer::Yes,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let failed = |_| Fault::Broken("generate a key pair");
        let (secret, public) = match algorithm.kind() {
            KeyKind::Ed25519 => {
                let key = PKey::generate_ed25519().map_err(failed)?;
                (key.raw_private_key().map_err(failed)?, key.raw_public_key().map_err(failed)?)
            }
            KeyKind::Ecdsa => {
                let group = curve(algorithm)?;
                let key = EcKey::generate(&group).map_err(failed)?;
                let length = algorithm.secret_bytes().and_then(|length| length.try_into().ok());
                let secret =
                    key.private_key().to_vec_padded(length.ok_or(Fault::Unsupported)?).map_err(failed)?;
                (secret, encode_point(&group, key.public_key()).map_err(failed)?)
            }
            KeyKind::Rsa => {
                let bits = algorithm.modulus_bits().and_then(|bits| bits.try_into().ok());
                let key = Rsa::generate(bits.ok_or(Fault::Unsupported)?).map_err(failed)?;
                (key.private_key_to_der().map_err(failed)?, key.public_key_to_der_pkcs1().map_err(failed)?)
            }
            KeyKind::MlDsa => return Err(Fault::Unsupported),
        };
        Ok(PrivateKeyMaterial::new(algorithm, Zeroizing::new(secret), public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(load(algorithm, secret)?.1)
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        let (pair, public) = load(key.algorithm(), key.secret())?;
        if public != key.public() {
            return Err(MISMATCH);
        }
        Ok(Box::new(Key { pair, algorithm: key.algorithm() }))
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        if algorithm.kind() == KeyKind::MlDsa {
            return Err(Fault::Unsupported);
        }
        load_public(algorithm, public).map(|_| ())
    }

    fn verify(
        &self,
        algorithm: KeyAlgorithm,
        scheme: SignatureScheme,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        if !scheme.fits(algorithm) {
            return Err(Fault::Unsupported);
        }
        let key = load_public(algorithm, public)?;
        let check = || {
            let mut verifier = match scheme.hash() {
                Some(hash) => Verifier::new(digest(hash), &key)?,
                None => Verifier::new_without_digest(&key)?,
            };
            if let Some(hash) = scheme.hash().filter(|_| scheme.is_pss()) {
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_mgf1_md(digest(hash))?;
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
            }
            verifier.verify_oneshot(signature, message)
        };
        match settled(check()) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(BAD_SIGNATURE),
        }
    }

    fn start_agreement(&self, group: DhGroup) -> Result<Box<dyn Agreement>, Fault> {
        let make = || -> Result<_, ErrorStack> {
            Ok(match nist(group) {
                None => {
                    let pair = PKey::generate_x25519()?;
                    Side { group, share: pair.raw_public_key()?, pair }
                }
                Some(nid) => {
                    let curve = EcGroup::from_curve_name(nid)?;
                    let key = EcKey::generate(&curve)?;
                    Side {
                        group,
                        share: encode_point(&curve, key.public_key())?,
                        pair: PKey::from_ec_key(key)?,
                    }
                }
            })
        };
        Ok(Box::new(settled(make()).map_err(|_| Fault::Broken("generate a key share"))?))
    }

    fn load_agreement(&self, group: DhGroup, private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
        let side = match nist(group) {
            None => {
                let pair = PKey::private_key_from_raw_bytes(private, Id::X25519);
                let pair = settled(pair).map_err(|_| BAD_KEY)?;
                Side { group, share: pair.raw_public_key().map_err(|_| BAD_KEY)?, pair }
            }
            Some(nid) => {
                let (pair, share) = load_scalar(nid, private, group.secret_bytes())?;
                Side { group, share, pair }
            }
        };
        Ok(Box::new(side))
    }

    fn aead(&self, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Box<dyn AeadKey>, Fault> {
        if key.len() != algorithm.key_bytes() {
            return Err(Fault::Refused("the key has another length"));
        }
        let name = match algorithm {
            AeadAlgorithm::Aes128Gcm => "AES-128-GCM",
            AeadAlgorithm::Aes256Gcm => "AES-256-GCM",
            AeadAlgorithm::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        };
        let cipher = settled(Cipher::fetch(None, name, None)).map_err(|_| Fault::Broken("find a cipher"))?;
        Ok(Box::new(Aead { cipher, key: Zeroizing::new(key.to_vec()) }))
    }

    fn hash(&self, algorithm: HashAlgorithm, parts: &[&[u8]], out: &mut [u8]) -> Result<(), Fault> {
        let mut context = self.start_hash(algorithm)?;
        for part in parts {
            context.update(part);
        }
        context.finish(out);
        Ok(())
    }

    fn start_hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Fault> {
        // The digests of EVP can fail at each step, which a hash here cannot; these cannot either.
        Ok(match algorithm {
            HashAlgorithm::Sha256 => Box::new(sha::Sha256::new()),
            HashAlgorithm::Sha384 => Box::new(sha::Sha384::new()),
            HashAlgorithm::Sha512 => Box::new(sha::Sha512::new()),
        })
    }

    fn hmac(&self, algorithm: HashAlgorithm, key: &[u8]) -> Result<Box<dyn HmacKey>, Fault> {
        // It refuses the empty key, which pads to the same block as one zero (RFC 2104 §2).
        let key = if key.is_empty() { &[0] } else { key };
        let key = settled(PKey::hmac(key)).map_err(|_| Fault::Broken("take a key for HMAC"))?;
        Ok(Box::new(Mac { key, hash: digest(algorithm) }))
    }

    fn random(&self, out: &mut [u8]) -> Result<(), Fault> {
        settled(openssl::rand::rand_bytes(out)).map_err(|_| Fault::Broken("give random bytes"))
    }
}

/// The errors of the library wait on a list of the thread for the next caller; a refusal must not leave any there.
fn settled<T>(result: Result<T, ErrorStack>) -> Result<T, ErrorStack> {
    if result.is_err() {
        drop(ErrorStack::get());
    }
    result
}

fn digest(hash: HashAlgorithm) -> MessageDigest {
    match hash {
        HashAlgorithm::Sha256 => MessageDigest::sha256(),
        HashAlgorithm::Sha384 => MessageDigest::sha384(),
        HashAlgorithm::Sha512 => MessageDigest::sha512(),
    }
}

fn curve_name(algorithm: KeyAlgorithm) -> Result<Nid, Fault> {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => Ok(Nid::X9_62_PRIME256V1),
        KeyAlgorithm::EcdsaP384 => Ok(Nid::SECP384R1),
        KeyAlgorithm::EcdsaP521 => Ok(Nid::SECP521R1),
        _ => Err(Fault::Unsupported),
    }
}

fn curve(algorithm: KeyAlgorithm) -> Result<EcGroup, Fault> {
    EcGroup::from_curve_name(curve_name(algorithm)?).map_err(|_| Fault::Broken("find a curve"))
}

fn nist(group: DhGroup) -> Option<Nid> {
    match group {
        DhGroup::X25519 => None,
        DhGroup::P256 => Some(Nid::X9_62_PRIME256V1),
        DhGroup::P384 => Some(Nid::SECP384R1),
    }
}

fn encode_point(group: &EcGroup, point: &openssl::ec::EcPointRef) -> Result<Vec<u8>, ErrorStack> {
    point.to_bytes(group, PointConversionForm::UNCOMPRESSED, &mut *BigNumContext::new()?)
}

/// A private key with the public half that follows from it.
fn load(algorithm: KeyAlgorithm, secret: &[u8]) -> Result<(PKey<Private>, Vec<u8>), Fault> {
    match algorithm.kind() {
        KeyKind::Ed25519 => {
            let key = PKey::private_key_from_raw_bytes(secret, Id::ED25519);
            let key = settled(key).map_err(|_| BAD_KEY)?;
            let public = key.raw_public_key().map_err(|_| BAD_KEY)?;
            Ok((key, public))
        }
        KeyKind::Ecdsa => {
            load_scalar(curve_name(algorithm)?, secret, algorithm.secret_bytes().unwrap_or_default())
        }
        KeyKind::Rsa => {
            let key = settled(Rsa::private_key_from_der(secret)).map_err(|_| BAD_KEY)?;
            let again = Zeroizing::new(key.private_key_to_der().map_err(|_| BAD_KEY)?);
            let whole = crate::constant_time_eq(&again, secret);
            if !whole || !has_sound_parts(&key, algorithm) || !matches!(settled(key.check_key()), Ok(true)) {
                return Err(BAD_KEY);
            }
            let public = key.public_key_to_der_pkcs1().map_err(|_| BAD_KEY)?;
            Ok((PKey::from_rsa(key).map_err(|_| BAD_KEY)?, public))
        }
        KeyKind::MlDsa => Err(Fault::Unsupported),
    }
}

fn load_scalar(nid: Nid, secret: &[u8], length: usize) -> Result<(PKey<Private>, Vec<u8>), Fault> {
    if secret.len() != length {
        return Err(BAD_KEY);
    }
    let make = || -> Result<_, ErrorStack> {
        let group = EcGroup::from_curve_name(nid)?;
        let mut context = BigNumContext::new_secure()?;
        let mut order = BigNum::new()?;
        group.order(&mut order, &mut context)?;
        let mut scalar = BigNum::new_secure()?;
        scalar.copy_from_slice(secret)?;
        scalar.set_const_time();
        if scalar.num_bits() == 0 || *scalar >= *order {
            return Ok(None);
        }
        let mut point = EcPoint::new(&group)?;
        point.mul_generator2(&group, &scalar, &mut context)?;
        let public = encode_point(&group, &point)?;
        let key = EcKey::from_private_components(&group, &scalar, &point)?;
        Ok(Some((PKey::from_ec_key(key)?, public)))
    };
    settled(make()).ok().flatten().ok_or(BAD_KEY)
}

fn load_public(algorithm: KeyAlgorithm, public: &[u8]) -> Result<PKey<Public>, Fault> {
    let make = || -> Result<_, ErrorStack> {
        Ok(match algorithm.kind() {
            KeyKind::Ed25519 => Some(PKey::public_key_from_raw_bytes(public, Id::ED25519)?),
            KeyKind::Ecdsa => {
                let Ok(nid) = curve_name(algorithm) else { return Ok(None) };
                Some(load_point(nid, public)?)
            }
            KeyKind::Rsa => {
                let key = Rsa::public_key_from_der_pkcs1(public)?;
                let whole = key.public_key_to_der_pkcs1()? == public;
                if whole && has_sound_parts(&key, algorithm) { Some(PKey::from_rsa(key)?) } else { None }
            }
            KeyKind::MlDsa => None,
        })
    };
    // The identity, compressed and hybrid points have other first bytes (SEC 1 §2.3.3).
    if algorithm.kind() == KeyKind::Ecdsa && public.first() != Some(&0x04) {
        return Err(BAD_PUBLIC);
    }
    settled(make()).ok().flatten().ok_or(BAD_PUBLIC)
}

fn load_point(nid: Nid, point: &[u8]) -> Result<PKey<Public>, ErrorStack> {
    let group = EcGroup::from_curve_name(nid)?;
    let point = EcPoint::from_bytes(&group, point, &mut *BigNumContext::new()?)?;
    PKey::from_ec_key(EcKey::from_public_key(&group, &point)?)
}

/// A modulus of the type's length, and an odd exponent of at least 3.
fn has_sound_parts<T: HasPublic>(key: &Rsa<T>, algorithm: KeyAlgorithm) -> bool {
    let bits = algorithm.modulus_bits().and_then(|bits| i32::try_from(bits).ok());
    Some(key.n().num_bits()) == bits && key.e().is_bit_set(0) && key.e().num_bits() > 1
}

struct Key {
    pair: PKey<Private>,
    algorithm: KeyAlgorithm,
}

impl PrivateKey for Key {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if !scheme.fits(self.algorithm) {
            return Err(Fault::Unsupported);
        }
        let make = || {
            let mut signer = match scheme.hash() {
                Some(hash) => Signer::new(digest(hash), &self.pair)?,
                None => Signer::new_without_digest(&self.pair)?,
            };
            if let Some(hash) = scheme.hash().filter(|_| scheme.is_pss()) {
                signer.set_rsa_padding(Padding::PKCS1_PSS)?;
                signer.set_rsa_mgf1_md(digest(hash))?;
                signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
            }
            signer.sign_oneshot_to_vec(message)
        };
        settled(make()).map_err(|_| Fault::Broken("sign"))
    }
}

struct Side {
    group: DhGroup,
    pair: PKey<Private>,
    share: Vec<u8>,
}

impl Agreement for Side {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        if nist(self.group).is_some() && peer.first() != Some(&0x04) {
            return Err(BAD_SHARE);
        }
        let make = || {
            let peer = match nist(self.group) {
                None => PKey::public_key_from_raw_bytes(peer, Id::X25519)?,
                Some(nid) => load_point(nid, peer)?,
            };
            let mut deriver = Deriver::new(&self.pair)?;
            deriver.set_peer(&peer)?;
            deriver.derive_to_vec()
        };
        Ok(Secret::new(&Zeroizing::new(settled(make()).map_err(|_| BAD_SHARE)?)))
    }
}

struct Aead {
    cipher: Cipher,
    key: Zeroizing<Vec<u8>>,
}

/// The library counts in `int`, and its wrapper panics past that.
fn is_countable(length: usize) -> bool {
    i32::try_from(length).is_ok()
}

impl AeadKey for Aead {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
        const FAILED: Fault = Fault::Broken("encrypt");
        if !is_countable(aad.len()) || !is_countable(message.len()) {
            return Err(FAILED);
        }
        let mut tag = [0; 16];
        let mut make = || {
            let mut context = CipherCtx::new()?;
            context.encrypt_init(Some(&self.cipher), Some(&self.key), Some(nonce))?;
            context.cipher_update(aad, None)?;
            context.cipher_update_inplace(message, message.len())?;
            context.cipher_final(&mut [])?;
            context.tag(&mut tag)
        };
        settled(make()).map_err(|_| FAILED)?;
        Ok(tag)
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault> {
        const REFUSED: Fault = ALTERED;
        if !is_countable(aad.len()) || !is_countable(message.len()) {
            return Err(REFUSED);
        }
        let mut make = || {
            let mut context = CipherCtx::new()?;
            context.decrypt_init(Some(&self.cipher), Some(&self.key), Some(nonce))?;
            context.set_tag(tag)?;
            context.cipher_update(aad, None)?;
            context.cipher_update_inplace(message, message.len())?;
            context.cipher_final(&mut []).map(|_| ())
        };
        settled(make()).map_err(|_| {
            // The tag is checked last, when the text has been decrypted.
            message.zeroize();
            REFUSED
        })
    }
}

macro_rules! hash_context {
    ($type:ty) => {
        impl HashContext for $type {
            fn update(&mut self, data: &[u8]) {
                self.update(data);
            }

            fn fork(&self) -> Box<dyn HashContext> {
                Box::new(self.clone())
            }

            fn finish(self: Box<Self>, out: &mut [u8]) {
                copy(out, &(*self).finish());
            }
        }
    };
}

hash_context!(sha::Sha256);
hash_context!(sha::Sha384);
hash_context!(sha::Sha512);

struct Mac {
    key: PKey<Private>,
    hash: MessageDigest,
}

impl HmacKey for Mac {
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
        let make = || {
            let mut signer = Signer::new(self.hash, &self.key)?;
            for part in parts {
                signer.update(part)?;
            }
            signer.sign_to_vec()
        };
        if let Ok(mut tag) = settled(make()) {
            copy(out, &tag);
            tag.zeroize();
        } else {
            // Memory has run out, and there is no way to say so. A tag that no peer knows fails whatever hangs on it.
            let _ = getrandom::fill(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_exchanges_everything_with_aws_lc() {
        crate::provider::round_trip::check(&OpenSsl);
        assert!(ErrorStack::get().errors().is_empty());
    }
}
