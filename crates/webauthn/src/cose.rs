//! Public keys of credentials, as COSE has them (RFC 9053 §7, RFC 8230 §4; WebAuthn L3 §6.5.1.1).

use std::fmt;

use sallyport_sal::algorithm::Standing;
use sallyport_sal::{KeyAlgorithm, PublicKey, SignatureScheme};
use serde::{Deserialize, Serialize};

use crate::cbor::{self, Order, Value};

/// Ways to sign that a credential of ours may have, by their numbers in the IANA registry "COSE Algorithms".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "i64", try_from = "i64")]
#[non_exhaustive]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256 (-7): nearly every authenticator.
    Es256,
    /// EdDSA over edwards25519 (-8).
    EdDsa,
    /// ECDSA on P-384 with SHA-384 (-35).
    Es384,
    /// RSASSA-PKCS1-v1_5 with SHA-256 (-257): the TPMs of older machines.
    Rs256,
}

/// A number that is none of [`Algorithm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("COSE algorithm {0} is not one of ES256 (-7), EdDSA (-8), ES384 (-35) and RS256 (-257)")]
pub struct UnknownAlgorithm(pub i64);

impl Algorithm {
    /// All of them, the preferred first. WebAuthn L3 §5.4 wants -8, -7 and -257 offered at least.
    pub const ALL: &[Self] = &[Self::EdDsa, Self::Es256, Self::Es384, Self::Rs256];

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Es256 => -7,
            Self::EdDsa => -8,
            Self::Es384 => -35,
            Self::Rs256 => -257,
        }
    }

    pub(crate) const fn scheme(self) -> SignatureScheme {
        match self {
            Self::Es256 => SignatureScheme::EcdsaP256Sha256,
            Self::EdDsa => SignatureScheme::Ed25519,
            Self::Es384 => SignatureScheme::EcdsaP384Sha384,
            Self::Rs256 => SignatureScheme::RsaPkcs1Sha256,
        }
    }
}

impl TryFrom<i64> for Algorithm {
    type Error = UnknownAlgorithm;

    fn try_from(number: i64) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .iter()
            .copied()
            .find(|algorithm| algorithm.number() == number)
            .ok_or(UnknownAlgorithm(number))
    }
}

impl From<Algorithm> for i64 {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.number()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
        })
    }
}

/// Why a COSE key is not one that we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoseError {
    /// It is not canonical CBOR.
    #[error("not canonical CBOR")]
    Cbor(#[from] cbor::CborError),
    /// An algorithm that we have not.
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    /// A parameter is missing, has another type, or does not belong there.
    #[error("{0}")]
    Shape(&'static str),
    /// The abstraction layer refuses the key: a point off its curve, a modulus of another size.
    #[error("{0}")]
    Key(String),
}

/// The public key of a credential, with the one way that it signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialKey {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: PublicKey,
}

impl CredentialKey {
    /// Reads a key and nothing after it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, CoseError> {
        Self::of(&cbor::whole(bytes, Order::Canonical)?)
    }

    /// Reads the key that the input begins with, and says how long it is.
    pub(crate) fn first(input: &[u8]) -> Result<(Self, usize), CoseError> {
        let (value, used) = cbor::first(input, Order::Canonical)?;
        Ok((Self::of(&value)?, used))
    }

    fn of(value: &Value<'_>) -> Result<Self, CoseError> {
        let shape = CoseError::Shape;
        let entries = value.map().ok_or(shape("the key is not a map"))?;
        let number = |label| value.at(label).and_then(Value::integer);
        let bytes = |label| value.at(label).and_then(Value::bytes);
        let kty = number(1).ok_or(shape("the key has no kty"))?;
        let algorithm = Algorithm::try_from(number(3).ok_or(shape("the key has no alg"))?)?;
        let refused = |error: sallyport_sal::SalError| CoseError::Key(error.to_string());
        // §6.5.1: alg, what kty and alg require, and nothing else.
        let (key, members) = match (kty, algorithm) {
            (2, Algorithm::Es256) => {
                (point(KeyAlgorithm::EcdsaP256, number(-1), 1, bytes(-2), bytes(-3))?, 5)
            }
            (2, Algorithm::Es384) => {
                (point(KeyAlgorithm::EcdsaP384, number(-1), 2, bytes(-2), bytes(-3))?, 5)
            }
            (1, Algorithm::EdDsa) => {
                if number(-1) != Some(6) {
                    return Err(shape("the curve of an EdDSA key is not Ed25519"));
                }
                let x = bytes(-2).ok_or(shape("the key has no x"))?;
                (PublicKey::from_raw(KeyAlgorithm::Ed25519, x).map_err(refused)?, 4)
            }
            (3, Algorithm::Rs256) => {
                let n = bytes(-1).ok_or(shape("the key has no n"))?;
                let e = bytes(-2).ok_or(shape("the key has no e"))?;
                // RFC 8230 §4: no zero octets ahead of the number.
                if n.first().is_none_or(|first| *first == 0) || e.first().is_none_or(|first| *first == 0) {
                    return Err(shape("a number of the key is not in its shortest form"));
                }
                (PublicKey::from_rsa_numbers(n, e).map_err(refused)?, 4)
            }
            _ => return Err(shape("kty does not fit alg")),
        };
        if entries.len() != members {
            return Err(shape("the key has a parameter that does not belong to it"));
        }
        if key.algorithm().standing() == Standing::LabOnly {
            return Err(CoseError::Key(format!("keys of type {} are too weak", key.algorithm())));
        }
        Ok(Self { algorithm, key })
    }

    /// Whether the signature over these parts, one after the other, is by this key and in its one way.
    pub(crate) fn verifies(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        self.key.verify_with(self.algorithm.scheme(), &parts.concat(), signature).is_ok()
    }
}

fn point(
    algorithm: KeyAlgorithm,
    curve: Option<i64>,
    expected: i64,
    x: Option<&[u8]>,
    y: Option<&[u8]>,
) -> Result<PublicKey, CoseError> {
    if curve != Some(expected) {
        return Err(CoseError::Shape("the curve does not fit alg"));
    }
    // A compressed point has a boolean for y; WebAuthn L3 §5.8.5 refuses those.
    let (Some(x), Some(y)) = (x, y) else {
        return Err(CoseError::Shape("a coordinate is missing or not a byte string"));
    };
    if x.len() != y.len() {
        return Err(CoseError::Shape("the coordinates differ in length"));
    }
    PublicKey::from_raw(algorithm, &[&[0x04], x, y].concat())
        .map_err(|error| CoseError::Key(error.to_string()))
}
