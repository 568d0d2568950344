//! RSA from the `rsa` crate, for comparison only: its private-key operations leak through timing (RUSTSEC-2023-0071),
//! so they are offered as unsafe and never chosen.
//!
//! Public keys are strict DER with a modulus of exactly the bits that the key type says and an odd exponent of at least
//! 3; the library adds that the exponent is below 2^33. PSS takes salts as long as the hash and no others.

use rsa::pkcs1::{
    DecodeRsaPrivateKey as _, DecodeRsaPublicKey as _, EncodeRsaPrivateKey as _, EncodeRsaPublicKey as _,
};
use rsa::rand_core::OsRng;
use rsa::sha2::{Sha256, Sha384, Sha512};
use rsa::signature::{RandomizedSigner as _, SignatureEncoding as _, Verifier as _};
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey, pkcs1v15, pss};
use zeroize::Zeroizing;

use super::draws::{MISMATCH, random_array};
use crate::PrivateKeyMaterial;
use crate::algorithm::{KeyAlgorithm, SignatureScheme};
use crate::provider::contract::{BAD_KEY, BAD_PUBLIC, BAD_SIGNATURE, Fault, PrivateKey};

pub(super) fn generate(algorithm: KeyAlgorithm) -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), Fault> {
    const FAILED: Fault = Fault::Broken("generate a key pair");
    let bits = algorithm.modulus_bits().ok_or(Fault::Unsupported)?;
    // The library wants a source that cannot fail. The system's cannot once it has given its first bytes.
    random_array::<32>()?;
    let key = RsaPrivateKey::new(&mut OsRng, bits).map_err(|_| FAILED)?;
    let secret = key.to_pkcs1_der().map_err(|_| FAILED)?;
    let public = key.to_public_key().to_pkcs1_der().map_err(|_| FAILED)?;
    Ok((Zeroizing::new(secret.as_bytes().to_vec()), public.as_bytes().to_vec()))
}

pub(super) fn derive_public(algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
    let public = load(algorithm, secret)?.to_public_key().to_pkcs1_der().map_err(|_| BAD_KEY)?;
    Ok(public.as_bytes().to_vec())
}

pub(super) fn load_key(key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
    let pair = load(key.algorithm(), key.secret())?;
    if pair.to_public_key().to_pkcs1_der().map_err(|_| BAD_KEY)?.as_bytes() != key.public() {
        return Err(MISMATCH);
    }
    Ok(Box::new(pair))
}

fn load(algorithm: KeyAlgorithm, secret: &[u8]) -> Result<RsaPrivateKey, Fault> {
    let key = RsaPrivateKey::from_pkcs1_der(secret).map_err(|_| BAD_KEY)?;
    // The library reads n, e, d and the primes, checks them, and computes the rest again without a look at it.
    let again = key.to_pkcs1_der().map_err(|_| BAD_KEY)?;
    if has_bits(key.as_ref(), algorithm) && crate::constant_time_eq(again.as_bytes(), secret) {
        Ok(key)
    } else {
        Err(BAD_KEY)
    }
}

fn has_bits(key: &RsaPublicKey, algorithm: KeyAlgorithm) -> bool {
    algorithm.modulus_bits().is_some_and(|bits| key.n().bits() == bits)
}

pub(super) fn check_public(algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
    load_public(algorithm, public).map(|_| ())
}

fn load_public(algorithm: KeyAlgorithm, public: &[u8]) -> Result<RsaPublicKey, Fault> {
    let key = RsaPublicKey::from_pkcs1_der(public).map_err(|_| BAD_PUBLIC)?;
    let exponent = key.e().to_bytes_be();
    let odd = exponent.last().is_some_and(|lowest| lowest & 1 == 1);
    if has_bits(&key, algorithm) && odd && exponent != [1] { Ok(key) } else { Err(BAD_PUBLIC) }
}

pub(super) fn verify(
    algorithm: KeyAlgorithm,
    scheme: SignatureScheme,
    public: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), Fault> {
    let key = load_public(algorithm, public)?;
    macro_rules! check {
        ($padding:ident, $hash:ty) => {{
            let signature = $padding::Signature::try_from(signature).map_err(|_| BAD_SIGNATURE)?;
            $padding::VerifyingKey::<$hash>::new(key).verify(message, &signature).map_err(|_| BAD_SIGNATURE)
        }};
    }
    match scheme {
        SignatureScheme::RsaPkcs1Sha256 => check!(pkcs1v15, Sha256),
        SignatureScheme::RsaPkcs1Sha384 => check!(pkcs1v15, Sha384),
        SignatureScheme::RsaPkcs1Sha512 => check!(pkcs1v15, Sha512),
        SignatureScheme::RsaPssSha256 => check!(pss, Sha256),
        SignatureScheme::RsaPssSha384 => check!(pss, Sha384),
        SignatureScheme::RsaPssSha512 => check!(pss, Sha512),
        _ => Err(Fault::Unsupported),
    }
}

impl PrivateKey for RsaPrivateKey {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        // The randomness blinds the exponentiation, and salts PSS.
        macro_rules! make {
            ($padding:ident, $hash:ty) => {
                $padding::SigningKey::<$hash>::new(self.clone())
                    .try_sign_with_rng(&mut OsRng, message)
                    .map(|signature| signature.to_vec())
            };
        }
        match scheme {
            SignatureScheme::RsaPkcs1Sha256 => make!(pkcs1v15, Sha256),
            SignatureScheme::RsaPkcs1Sha384 => make!(pkcs1v15, Sha384),
            SignatureScheme::RsaPkcs1Sha512 => make!(pkcs1v15, Sha512),
            SignatureScheme::RsaPssSha256 => make!(pss, Sha256),
            SignatureScheme::RsaPssSha384 => make!(pss, Sha384),
            SignatureScheme::RsaPssSha512 => make!(pss, Sha512),
            _ => return Err(Fault::Unsupported),
        }
        .map_err(|_| Fault::Broken("sign"))
    }
}
