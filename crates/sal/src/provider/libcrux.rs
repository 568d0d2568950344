//! libcrux: ML-KEM-768 and ML-DSA, with the arithmetic formally verified in its portable and AVX2 forms.
//!
//! The library draws no randomness of its own here: it is given the system's, by which ML-DSA signatures are hedged
//! (FIPS 204 §3.4). Its keys are plain arrays, so their wiping is ours. It does not check what it is given: an
//! encapsulation key passes the check of FIPS 203 §7.2 and a decapsulation key that of §7.3 before either is used.
//! Every string of the right length is an ML-DSA public key; a signature with a malformed hint or a response out of
//! range is refused (FIPS 204 algorithms 8 and 21).

use libcrux_ml_kem::mlkem768::{self, MlKem768Ciphertext, MlKem768PrivateKey, MlKem768PublicKey};
use zeroize::{Zeroize as _, Zeroizing};

use super::contract::{BAD_KEY, BAD_PUBLIC, Decapsulation, Fault, Offer, PrivateKey, Provider, Secret};
use crate::algorithm::{KeyAlgorithm, KeyKind, SignatureScheme};
use crate::{Primitive, PrivateKeyMaterial};

/// libcrux.
#[derive(Debug)]
pub struct Libcrux;

impl Provider for Libcrux {
    fn name(&self) -> &'static str {
        "libcrux"
    }

    fn credit(&self) -> &'static str {
        "libcrux (libcrux-ml-kem 0.0.11, libcrux-ml-dsa 0.0.11)"
    }

    fn offer(&self, primitive: Primitive) -> Offer {
        match primitive {
            Primitive::GenerateKey(algorithm) | Primitive::Sign(algorithm) | Primitive::Verify(algorithm)
                if algorithm.kind() == KeyKind::MlDsa =>
            {
                Offer::Yes
            }
            Primitive::Decapsulate | Primitive::Encapsulate => Offer::Yes,
            _ => Offer::No,
        }
    }

    fn generate_key(&self, algorithm: KeyAlgorithm) -> Result<PrivateKeyMaterial, Fault> {
        let seed = random::<32>()?;
        let public = self.derive_public(algorithm, seed.as_slice())?;
        Ok(PrivateKeyMaterial::new(algorithm, Zeroizing::new(seed.to_vec()), public))
    }

    fn derive_public(&self, algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, Fault> {
        match algorithm {
            KeyAlgorithm::MlDsa44 => Ok(ml_dsa_44::expand(secret)?.1),
            KeyAlgorithm::MlDsa65 => Ok(ml_dsa_65::expand(secret)?.1),
            KeyAlgorithm::MlDsa87 => Ok(ml_dsa_87::expand(secret)?.1),
            _ => Err(Fault::Unsupported),
        }
    }

    fn load_key(&self, key: &PrivateKeyMaterial) -> Result<Box<dyn PrivateKey>, Fault> {
        fn paired(
            (private, public): (Box<dyn PrivateKey>, Vec<u8>),
            expected: &[u8],
        ) -> Result<Box<dyn PrivateKey>, Fault> {
            if public == expected {
                Ok(private)
            } else {
                Err(Fault::Refused("the public key does not belong to the private key"))
            }
        }
        match key.algorithm() {
            KeyAlgorithm::MlDsa44 => paired(ml_dsa_44::expand(key.secret())?, key.public()),
            KeyAlgorithm::MlDsa65 => paired(ml_dsa_65::expand(key.secret())?, key.public()),
            KeyAlgorithm::MlDsa87 => paired(ml_dsa_87::expand(key.secret())?, key.public()),
            _ => Err(Fault::Unsupported),
        }
    }

    fn check_public(&self, algorithm: KeyAlgorithm, public: &[u8]) -> Result<(), Fault> {
        match algorithm.public_bytes() {
            _ if algorithm.kind() != KeyKind::MlDsa => Err(Fault::Unsupported),
            Some(length) if length == public.len() => Ok(()),
            _ => Err(BAD_PUBLIC),
        }
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
        match algorithm {
            KeyAlgorithm::MlDsa44 => ml_dsa_44::verify(public, message, signature),
            KeyAlgorithm::MlDsa65 => ml_dsa_65::verify(public, message, signature),
            KeyAlgorithm::MlDsa87 => ml_dsa_87::verify(public, message, signature),
            _ => Err(Fault::Unsupported),
        }
    }

    fn start_decapsulation(&self) -> Result<Box<dyn Decapsulation>, Fault> {
        self.load_decapsulation(Some(&*random::<64>()?), None)
    }

    fn load_decapsulation(
        &self,
        seed: Option<&[u8; 64]>,
        expanded: Option<&[u8]>,
    ) -> Result<Box<dyn Decapsulation>, Fault> {
        let half = match (seed, expanded) {
            (Some(seed), expanded) => {
                let half = Half::generate(seed);
                if expanded.is_some_and(|expanded| !crate::constant_time_eq(half.private.as_ref(), expanded))
                {
                    return Err(Fault::Refused("the seed does not give the expanded key"));
                }
                half
            }
            (None, Some(expanded)) => Half::load(expanded)?,
            (None, None) => return Err(Fault::Unsupported),
        };
        Ok(Box::new(half))
    }

    fn encapsulate(&self, public: &[u8]) -> Result<(Vec<u8>, Secret), Fault> {
        let refused = Fault::Refused("the ML-KEM key is malformed");
        let public = MlKem768PublicKey::try_from(public).map_err(|_| refused)?;
        if !mlkem768::validate_public_key(&public) {
            return Err(refused);
        }
        let (ciphertext, secret) = mlkem768::encapsulate(&public, *random()?);
        let secret = Zeroizing::new(secret);
        Ok((ciphertext.as_ref().to_vec(), Secret::new(secret.as_slice())))
    }
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Fault> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice()).map_err(|_| Fault::Broken("give random bytes"))?;
    Ok(bytes)
}

/// The side of ML-KEM with the private key, which is kept as FIPS 203 §7.1 writes it down.
struct Half {
    private: MlKem768PrivateKey,
    public: MlKem768PublicKey,
}

impl Half {
    fn generate(seed: &[u8; 64]) -> Self {
        let (private, public) = mlkem768::generate_key_pair(*seed).into_parts();
        Self { private, public }
    }

    /// The encapsulation key follows the private vector (FIPS 203 algorithm 16).
    fn load(expanded: &[u8]) -> Result<Self, Fault> {
        let public = expanded
            .get(1152..2336)
            .and_then(|public| MlKem768PublicKey::try_from(public).ok())
            .ok_or(BAD_KEY)?;
        let half = Self { private: expanded.try_into().map_err(|_| BAD_KEY)?, public };
        // The check looks at the lengths and the hash in the key; the ciphertext can be any.
        let ciphertext = MlKem768Ciphertext::default();
        if mlkem768::validate_private_key(&half.private, &ciphertext)
            && mlkem768::validate_public_key(&half.public)
        {
            Ok(half)
        } else {
            Err(BAD_KEY)
        }
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        self.private[0..].zeroize();
    }
}

impl Decapsulation for Half {
    fn public(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn finish(self: Box<Self>, ciphertext: &[u8]) -> Result<Secret, Fault> {
        let ciphertext = MlKem768Ciphertext::try_from(ciphertext)
            .map_err(|_| Fault::Refused("the ML-KEM ciphertext has another length"))?;
        let secret = Zeroizing::new(mlkem768::decapsulate(&self.private, &ciphertext));
        Ok(Secret::new(secret.as_slice()))
    }
}

/// One parameter set of ML-DSA. The library has a module and types of its own for each.
macro_rules! ml_dsa {
    ($module:ident, $scheme:expr, $signing:ident, $verification:ident, $signature:ident) => {
        mod $module {
            use libcrux_ml_dsa::$module::{self as library, $signature, $signing, $verification};

            use super::random;
            use crate::algorithm::SignatureScheme;
            use crate::provider::contract::{BAD_KEY, BAD_PUBLIC, BAD_SIGNATURE, Fault, PrivateKey};
            use zeroize::Zeroize as _;

            /// The key ready to sign, and its public half.
            pub(super) fn expand(secret: &[u8]) -> Result<(Box<dyn PrivateKey>, Vec<u8>), Fault> {
                let seed = secret.try_into().map_err(|_| BAD_KEY)?;
                let pair = library::generate_key_pair(seed);
                Ok((Box::new(Key(pair.signing_key)), pair.verification_key.as_slice().to_vec()))
            }

            pub(super) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
                let public = public.try_into().map_err(|_| BAD_PUBLIC)?;
                let signature = signature.try_into().map_err(|_| BAD_SIGNATURE)?;
                library::verify(&$verification::new(public), message, &[], &$signature::new(signature))
                    .map_err(|_| BAD_SIGNATURE)
            }

            struct Key($signing);

            impl PrivateKey for Key {
                fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
                    if scheme != $scheme {
                        return Err(Fault::Unsupported);
                    }
                    let signature = library::sign(&self.0, message, &[], *random()?)
                        .map_err(|_| Fault::Broken("sign"))?;
                    Ok(signature.as_slice().to_vec())
                }
            }

            impl Drop for Key {
                fn drop(&mut self) {
                    self.0.as_mut_slice().zeroize();
                }
            }
        }
    };
}

ml_dsa!(ml_dsa_44, SignatureScheme::MlDsa44, MLDSA44SigningKey, MLDSA44VerificationKey, MLDSA44Signature);
ml_dsa!(ml_dsa_65, SignatureScheme::MlDsa65, MLDSA65SigningKey, MLDSA65VerificationKey, MLDSA65Signature);
ml_dsa!(ml_dsa_87, SignatureScheme::MlDsa87, MLDSA87SigningKey, MLDSA87VerificationKey, MLDSA87Signature);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provider::rustcrypto::RustCrypto;

    #[test]
    fn it_exchanges_everything_with_aws_lc() {
        crate::provider::round_trip::check(&Libcrux);
    }

    #[test]
    fn decapsulation_keys_load_from_seed_and_expanded_form() {
        let seed = [5; 64];
        let expanded = Half::generate(&seed).private.as_ref().to_vec();
        let from_seed = Libcrux.load_decapsulation(Some(&seed), None).unwrap();
        let from_expanded = Libcrux.load_decapsulation(None, Some(&expanded)).unwrap();
        assert_eq!(from_seed.public(), from_expanded.public());
        let elsewhere = RustCrypto.load_decapsulation(Some(&seed), Some(&expanded)).unwrap();
        assert_eq!(from_seed.public(), elsewhere.public());
        assert!(Libcrux.load_decapsulation(Some(&seed), Some(&expanded)).is_ok());

        // The hash of the encapsulation key stands 64 bytes before the end.
        let mut damaged = expanded;
        damaged[2400 - 64] ^= 1;
        for provider in [&Libcrux as &dyn Provider, &RustCrypto] {
            for (seed, expanded) in [(Some(&seed), Some(&damaged)), (None, Some(&damaged))] {
                let answer = provider.load_decapsulation(seed, expanded.map(Vec::as_slice)).err();
                assert!(matches!(answer, Some(Fault::Refused(_))), "{} {answer:?}", provider.name());
            }
            assert_eq!(provider.load_decapsulation(None, None).err(), Some(Fault::Unsupported));
        }
    }

    #[test]
    fn signatures_are_hedged() {
        let key = Libcrux.generate_key(KeyAlgorithm::MlDsa44).unwrap();
        let key = Libcrux.load_key(&key).unwrap();
        let sign = || key.sign(SignatureScheme::MlDsa44, b"message").unwrap();
        assert_ne!(sign(), sign());
    }
}
