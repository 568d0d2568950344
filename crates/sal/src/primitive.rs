//! Primitives: one operation with one parameter set each. They are what a source is chosen for.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm, UnknownName};

/// An operation with its parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Primitive {
    /// Making a key pair that signs.
    GenerateKey(KeyAlgorithm),
    /// Signing, by every scheme of the key's type.
    Sign(KeyAlgorithm),
    /// Verifying, by every scheme of the key's type.
    Verify(KeyAlgorithm),
    /// Diffie and Hellman's agreement: a fresh share, and the secret it gives with another's.
    Agree(DhGroup),
    /// ML-KEM-768, the side that makes the key: key generation and decapsulation (the client of TLS).
    Decapsulate,
    /// ML-KEM-768, the other side: encapsulation (the server of TLS).
    Encapsulate,
    /// Authenticated encryption and decryption.
    Aead(AeadAlgorithm),
    /// Hashing.
    Hash(HashAlgorithm),
    /// HMAC (RFC 2104), and HKDF (RFC 5869), which is made of it.
    Hmac(HashAlgorithm),
    /// Random bytes.
    Random,
}

const KEYS: usize = KeyAlgorithm::ALL.len();
const GROUPS: usize = DhGroup::ALL.len();
const AEADS: usize = AeadAlgorithm::ALL.len();
const HASHES: usize = HashAlgorithm::ALL.len();

impl Primitive {
    /// How many there are.
    pub const COUNT: usize = 3 * KEYS + GROUPS + 2 + AEADS + 2 * HASHES + 1;

    /// Every primitive, in the order of [`Primitive::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let keys = || KeyAlgorithm::ALL.iter().copied();
        let hashes = || HashAlgorithm::ALL.iter().copied();
        keys()
            .map(Self::GenerateKey)
            .chain(keys().map(Self::Sign))
            .chain(keys().map(Self::Verify))
            .chain(DhGroup::ALL.iter().copied().map(Self::Agree))
            .chain([Self::Decapsulate, Self::Encapsulate])
            .chain(AeadAlgorithm::ALL.iter().copied().map(Self::Aead))
            .chain(hashes().map(Self::Hash))
            .chain(hashes().map(Self::Hmac))
            .chain([Self::Random])
    }

    /// Its place in a table of [`Primitive::COUNT`] rows.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::GenerateKey(algorithm) => algorithm as usize,
            Self::Sign(algorithm) => KEYS + algorithm as usize,
            Self::Verify(algorithm) => 2 * KEYS + algorithm as usize,
            Self::Agree(group) => 3 * KEYS + group as usize,
            Self::Decapsulate => 3 * KEYS + GROUPS,
            Self::Encapsulate => 3 * KEYS + GROUPS + 1,
            Self::Aead(algorithm) => 3 * KEYS + GROUPS + 2 + algorithm as usize,
            Self::Hash(algorithm) => 3 * KEYS + GROUPS + 2 + AEADS + algorithm as usize,
            Self::Hmac(algorithm) => 3 * KEYS + GROUPS + 2 + AEADS + HASHES + algorithm as usize,
            Self::Random => 3 * KEYS + GROUPS + 2 + AEADS + 2 * HASHES,
        }
    }

    /// Whether it draws random bytes by its source's own means.
    #[must_use]
    pub const fn draws_randomness(self) -> bool {
        match self {
            Self::GenerateKey(_) | Self::Agree(_) | Self::Decapsulate | Self::Encapsulate | Self::Random => {
                true
            }
            // A nonce, a salt, blinding. Ed25519 alone needs nothing (RFC 8032 §5.1.6).
            Self::Sign(algorithm) => !matches!(algorithm, KeyAlgorithm::Ed25519),
            Self::Verify(_) | Self::Aead(_) | Self::Hash(_) | Self::Hmac(_) => false,
        }
    }

    /// The word for the operation alone.
    #[must_use]
    pub const fn operation(self) -> &'static str {
        match self {
            Self::GenerateKey(_) => "generate",
            Self::Sign(_) => "sign",
            Self::Verify(_) => "verify",
            Self::Agree(_) => "agree",
            Self::Decapsulate => "decapsulate",
            Self::Encapsulate => "encapsulate",
            Self::Aead(_) => "aead",
            Self::Hash(_) => "hash",
            Self::Hmac(_) => "hmac",
            Self::Random => "random",
        }
    }

    /// The parameter set alone; nothing for random bytes.
    #[must_use]
    pub const fn parameters(self) -> &'static str {
        match self {
            Self::GenerateKey(algorithm) | Self::Sign(algorithm) | Self::Verify(algorithm) => {
                algorithm.name()
            }
            Self::Agree(group) => group.name(),
            Self::Decapsulate | Self::Encapsulate => "ml-kem-768",
            Self::Aead(algorithm) => algorithm.name(),
            Self::Hash(algorithm) | Self::Hmac(algorithm) => algorithm.name(),
            Self::Random => "",
        }
    }
}

/// Operation and parameter set with a slash between, such as `sign/ecdsa-p256`: the name in configuration files,
/// profiles and reports.
impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.pad("random"),
            other => f.pad(&format!("{}/{}", other.operation(), other.parameters())),
        }
    }
}

impl FromStr for Primitive {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::all().find(|primitive| primitive.to_string() == name).ok_or_else(|| UnknownName {
            what: "primitive",
            got: name.to_owned(),
            known: Self::all().map(|one| one.to_string()).collect::<Vec<_>>().join(", "),
        })
    }
}

impl serde::Serialize for Primitive {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Primitive {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_primitive_has_its_own_place_and_name() {
        let all: Vec<_> = Primitive::all().collect();
        assert_eq!(all.len(), Primitive::COUNT);
        for (at, primitive) in all.iter().enumerate() {
            assert_eq!(primitive.index(), at, "{primitive}");
            assert_eq!(primitive.to_string().parse::<Primitive>().unwrap(), *primitive);
        }
        assert_eq!(Primitive::Sign(KeyAlgorithm::EcdsaP256).to_string(), "sign/ecdsa-p256");
        assert_eq!(Primitive::Decapsulate.to_string(), "decapsulate/ml-kem-768");
        assert!("sign".parse::<Primitive>().is_err());
    }
}
