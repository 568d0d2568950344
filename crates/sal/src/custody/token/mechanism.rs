//! Which mechanisms of PKCS#11 do what our algorithms need, and which of them a token has.

use std::borrow::Cow;
use std::ffi::c_ulong;

use cryptoki::context::Pkcs11;
use cryptoki::error::Error as Pkcs11Error;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::slot::Slot;

use crate::algorithm::{HashAlgorithm, KeyKind, SignatureScheme};
use crate::{KeyAlgorithm, hash};

/// DER of a DigestInfo up to the digest (RFC 8017 §9.2, note 1).
const SHA256_INFO: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];
const SHA384_INFO: &[u8] = &[
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00,
    0x04, 0x30,
];
const SHA512_INFO: &[u8] = &[
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00,
    0x04, 0x40,
];

/// What a token can do of what we need.
#[derive(Debug, Clone)]
pub(super) struct Mechanisms(Vec<Offered>);

#[derive(Debug, Clone, Copy)]
struct Offered {
    mechanism: MechanismType,
    makes_key_pairs: bool,
    signs: bool,
    /// Bounds of the key's size as the token gives them. RSA: bits of the modulus. EC: bits of the field. Zero or
    /// nonsense from some tokens, so that they are believed only where they are plausible.
    min_size: usize,
    max_size: usize,
}

impl Offered {
    fn takes(&self, bits: usize) -> bool {
        self.max_size < self.min_size || self.max_size == 0 || (self.min_size..=self.max_size).contains(&bits)
    }
}

/// A way to have a signature made.
pub(super) struct Plan {
    pub(super) mechanism: Mechanism<'static>,
    input: Input,
}

enum Input {
    /// The token hashes, or the algorithm does.
    Message,
    /// We hash.
    Digest(HashAlgorithm),
    /// We hash, and say with which hash.
    DigestInfo(HashAlgorithm),
}

impl Plan {
    /// What the token is given of a message.
    pub(super) fn input<'m>(&self, message: &'m [u8]) -> Cow<'m, [u8]> {
        match self.input {
            Input::Message => message.into(),
            Input::Digest(hash) => digest(hash, message).into(),
            Input::DigestInfo(hash) => {
                let info = match hash {
                    HashAlgorithm::Sha256 => SHA256_INFO,
                    HashAlgorithm::Sha384 => SHA384_INFO,
                    HashAlgorithm::Sha512 => SHA512_INFO,
                };
                [info, &digest(hash, message)].concat().into()
            }
        }
    }
}

impl Mechanisms {
    /// Asks a token.
    pub(super) fn read(context: &Pkcs11, slot: Slot) -> Result<Self, Pkcs11Error> {
        let offered = context.get_mechanism_list(slot)?.into_iter().filter_map(|mechanism| {
            // A mechanism that is listed and then not explained is of no use.
            let info = context.get_mechanism_info(slot, mechanism).ok()?;
            Some(Offered {
                mechanism,
                makes_key_pairs: info.generate_key_pair(),
                signs: info.sign(),
                min_size: info.min_key_size(),
                max_size: info.max_key_size(),
            })
        });
        Ok(Self(offered.collect()))
    }

    /// Whether the token makes such keys.
    pub(super) fn can_generate(&self, algorithm: KeyAlgorithm) -> bool {
        generator(algorithm).is_some_and(|generator| {
            self.0.iter().any(|offered| {
                offered.mechanism == generator.mechanism_type()
                    && offered.makes_key_pairs
                    && size(algorithm).is_none_or(|bits| offered.takes(bits))
            })
        })
    }

    /// Whether the token signs with such keys by every scheme.
    pub(super) fn can_sign(&self, algorithm: KeyAlgorithm) -> bool {
        generator(algorithm).is_some()
            && algorithm.schemes().iter().all(|scheme| self.plan(*scheme, algorithm).is_some())
    }

    /// How to have a signature made by a scheme: the first way that the token has.
    pub(super) fn plan(&self, scheme: SignatureScheme, algorithm: KeyAlgorithm) -> Option<Plan> {
        plans(scheme).into_iter().find(|plan| {
            let wanted = plan.mechanism.mechanism_type();
            self.0.iter().any(|offered| {
                offered.mechanism == wanted
                    && offered.signs
                    && size(algorithm).is_none_or(|bits| offered.takes(bits))
            })
        })
    }

    /// The names of what makes key pairs and signatures, for people.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<String> = self
            .0
            .iter()
            .filter(|offered| offered.makes_key_pairs || offered.signs)
            .map(|offered| offered.mechanism.to_string())
            .filter(|name| !name.contains("MAC"))
            .collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The mechanism that makes keys of a type; none for types that are not made in tokens here.
pub(super) fn generator(algorithm: KeyAlgorithm) -> Option<Mechanism<'static>> {
    match algorithm {
        KeyAlgorithm::Ed25519 => Some(Mechanism::EccEdwardsKeyPairGen),
        KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 | KeyAlgorithm::EcdsaP521 => {
            Some(Mechanism::EccKeyPairGen)
        }
        KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
            Some(Mechanism::RsaPkcsKeyPairGen)
        }
        _ => None,
    }
}

/// The names of what signs by a scheme, for people.
pub(super) fn signers(scheme: SignatureScheme) -> String {
    let names: Vec<String> =
        plans(scheme).iter().map(|plan| plan.mechanism.mechanism_type().to_string()).collect();
    names.join(" or ")
}

/// Size of a key as mechanisms bound it. Tokens disagree about what the size of an Ed25519 key is.
fn size(algorithm: KeyAlgorithm) -> Option<usize> {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => Some(256),
        KeyAlgorithm::EcdsaP384 => Some(384),
        KeyAlgorithm::EcdsaP521 => Some(521),
        other => other.modulus_bits(),
    }
}

/// The ways to sign by a scheme, the preferred first: that in which the token knows most of what it signs.
fn plans(scheme: SignatureScheme) -> Vec<Plan> {
    let plan = |mechanism, input| Plan { mechanism, input };
    // The salt is as long as the hash (RFC 8446 §4.2.3).
    let pss = |hash_alg, mgf, salt: u32| PkcsPssParams { hash_alg, mgf, s_len: c_ulong::from(salt).into() };
    let pss256 = pss(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256, 32);
    let pss384 = pss(MechanismType::SHA384, PkcsMgfType::MGF1_SHA384, 48);
    let pss512 = pss(MechanismType::SHA512, PkcsMgfType::MGF1_SHA512, 64);
    match (scheme, scheme.hash()) {
        (SignatureScheme::Ed25519, _) => {
            vec![plan(Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)), Input::Message)]
        }
        (_, Some(hash)) if scheme.kind() == KeyKind::Ecdsa => {
            vec![plan(Mechanism::Ecdsa, Input::Digest(hash))]
        }
        (_, Some(hash)) if scheme.kind() == KeyKind::Rsa => {
            let (hashing, bare) = match (scheme.is_pss(), hash) {
                (false, HashAlgorithm::Sha256) => (Mechanism::Sha256RsaPkcs, Mechanism::RsaPkcs),
                (false, HashAlgorithm::Sha384) => (Mechanism::Sha384RsaPkcs, Mechanism::RsaPkcs),
                (false, HashAlgorithm::Sha512) => (Mechanism::Sha512RsaPkcs, Mechanism::RsaPkcs),
                (true, HashAlgorithm::Sha256) => {
                    (Mechanism::Sha256RsaPkcsPss(pss256), Mechanism::RsaPkcsPss(pss256))
                }
                (true, HashAlgorithm::Sha384) => {
                    (Mechanism::Sha384RsaPkcsPss(pss384), Mechanism::RsaPkcsPss(pss384))
                }
                (true, HashAlgorithm::Sha512) => {
                    (Mechanism::Sha512RsaPkcsPss(pss512), Mechanism::RsaPkcsPss(pss512))
                }
            };
            let input = if scheme.is_pss() { Input::Digest(hash) } else { Input::DigestInfo(hash) };
            vec![plan(hashing, Input::Message), plan(bare, input)]
        }
        _ => Vec::new(),
    }
}

fn digest(algorithm: HashAlgorithm, message: &[u8]) -> Vec<u8> {
    let mut digest = vec![0; algorithm.bytes()];
    hash::digest(algorithm, &[message], &mut digest);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_of_a_key_that_tokens_make_has_a_mechanism_of_its_published_name() {
        for algorithm in KeyAlgorithm::ALL {
            let Some(generator) = generator(*algorithm) else { continue };
            assert_eq!(generator.mechanism_type().to_string(), algorithm.pkcs11_names().1);
            for scheme in algorithm.schemes() {
                let first =
                    plans(*scheme).into_iter().next().map(|plan| plan.mechanism.mechanism_type().to_string());
                assert_eq!(first.as_deref(), Some(scheme.pkcs11_mechanism()), "{scheme}");
            }
        }
        assert_eq!(signers(SignatureScheme::RsaPssSha256), "CKM_SHA256_RSA_PKCS_PSS or CKM_RSA_PKCS_PSS");
    }

    #[test]
    fn implausible_bounds_are_not_believed() {
        let offered = |min_size, max_size| Offered {
            mechanism: MechanismType::RSA_PKCS,
            makes_key_pairs: true,
            signs: true,
            min_size,
            max_size,
        };
        assert!(offered(0, 0).takes(4096));
        assert!(offered(512, 0).takes(4096));
        assert!(offered(1024, 4096).takes(4096));
        assert!(!offered(1024, 2048).takes(4096));
    }
}
