//! Algorithms as types, with the names that every standard gives them.
//!
//! A [`KeyAlgorithm`] is a key's type and size; a [`SignatureScheme`] is a way to sign with such a key; a
//! [`KexGroup`] is a way to agree on a secret; [`AeadAlgorithm`] and [`HashAlgorithm`] are what they say. Each knows
//! its name here, in TLS (IANA), in X.509 (OID), in SSH, in JOSE and in PKCS#11, where it has one.

mod group;
mod key;
mod scheme;
mod symmetric;

pub use group::{DhGroup, KexGroup};
pub use key::{KeyAlgorithm, KeyKind, Standing};
pub use scheme::SignatureScheme;
pub use symmetric::{AeadAlgorithm, HashAlgorithm};

/// A name that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {got:?}; this build knows {known}")]
pub struct UnknownName {
    /// What was named: "key algorithm", "key exchange group".
    pub what: &'static str,
    /// The name given.
    pub got: String,
    /// The names that would have done, separated by commas.
    pub known: String,
}

/// `Display` by [`name`](KeyAlgorithm::name), `FromStr` and serde by the same.
macro_rules! named {
    ($type:ty, $what:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::algorithm::UnknownName;
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| {
                    $crate::algorithm::UnknownName {
                        what: $what,
                        got: name.to_owned(),
                        known: Self::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "),
                    }
                })
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for algorithm in KeyAlgorithm::ALL {
            assert_eq!(algorithm.name().parse::<KeyAlgorithm>().unwrap(), *algorithm);
        }
        for scheme in SignatureScheme::ALL {
            assert_eq!(scheme.name().parse::<SignatureScheme>().unwrap(), *scheme);
        }
        for group in KexGroup::ALL {
            assert_eq!(group.name().parse::<KexGroup>().unwrap(), *group);
            assert_eq!(KexGroup::from_iana(group.iana_code()), Some(*group));
        }
        for aead in AeadAlgorithm::ALL {
            assert_eq!(aead.name().parse::<AeadAlgorithm>().unwrap(), *aead);
        }
        let error = "rsa-1".parse::<KeyAlgorithm>().unwrap_err().to_string();
        assert!(error.starts_with("unknown key algorithm \"rsa-1\"; this build knows ed25519, "), "{error}");
        assert_eq!(serde_json::to_string(&KeyAlgorithm::EcdsaP256).unwrap(), "\"ecdsa-p256\"");
        assert_eq!(serde_json::from_str::<KeyAlgorithm>("\"ml-dsa-65\"").unwrap(), KeyAlgorithm::MlDsa65);
    }

    #[test]
    fn every_key_signs_by_some_scheme_and_every_scheme_has_a_key() {
        for algorithm in KeyAlgorithm::ALL {
            assert!(algorithm.schemes().contains(&algorithm.default_scheme()), "{algorithm}");
            for scheme in algorithm.schemes() {
                assert_eq!(scheme.kind(), algorithm.kind());
                assert!(scheme.fits(*algorithm));
            }
        }
        for scheme in SignatureScheme::ALL {
            assert!(KeyAlgorithm::ALL.iter().any(|algorithm| scheme.fits(*algorithm)), "{scheme}");
        }
    }
}
