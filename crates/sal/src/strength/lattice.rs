//! Module lattices: ML-DSA and ML-KEM, and NIST's categories of strength, which they were chosen by.

use serde::{Serialize, Serializer};

use super::nist::Nist;

/// A parameter set of ML-DSA (FIPS 204) or ML-KEM (FIPS 203).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lattice {
    /// ML-DSA-44.
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// ML-DSA-87.
    MlDsa87,
    /// ML-KEM-512.
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

impl Lattice {
    /// Every parameter set.
    pub const ALL: &[Self] =
        &[Self::MlDsa44, Self::MlDsa65, Self::MlDsa87, Self::MlKem512, Self::MlKem768, Self::MlKem1024];

    /// The name in its standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
            Self::MlKem512 => "ML-KEM-512",
            Self::MlKem768 => "ML-KEM-768",
            Self::MlKem1024 => "ML-KEM-1024",
        }
    }

    /// The category that NIST counts it in (FIPS 204 table 1, FIPS 203 §8).
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::MlKem512 => Category::One,
            Self::MlDsa44 => Category::Two,
            Self::MlDsa65 | Self::MlKem768 => Category::Three,
            Self::MlDsa87 | Self::MlKem1024 => Category::Five,
        }
    }

    /// The parameter set with these content octets of an OID.
    #[must_use]
    pub fn of_oid(oid: &[u8]) -> Option<Self> {
        // 2.16.840.1.101.3.4.3.17 and on for ML-DSA, 2.16.840.1.101.3.4.4.1 and on for ML-KEM.
        let (family, number) = match oid {
            [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, family, number] => (*family, *number),
            _ => return None,
        };
        Some(match (family, number) {
            (3, 17) => Self::MlDsa44,
            (3, 18) => Self::MlDsa65,
            (3, 19) => Self::MlDsa87,
            (4, 1) => Self::MlKem512,
            (4, 2) => Self::MlKem768,
            (4, 3) => Self::MlKem1024,
            _ => return None,
        })
    }
}

/// A category of strength (NIST's call for proposals of 2016, §4.A.5): as hard to break as something well known, by
/// whatever computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// As a search for the key of AES-128.
    One,
    /// As a collision of SHA-256.
    Two,
    /// As a search for the key of AES-192.
    Three,
    /// As a search for the key of AES-256.
    Five,
}

impl Category {
    pub(super) const BY: &'static str =
        "by definition of NIST's category: the work of what it is compared with";

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Five => 5,
        }
    }

    /// What it means.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::One => "category 1: at least as hard as a search for the key of AES-128, by any computer",
            Self::Two => "category 2: at least as hard as a collision of SHA-256, by any computer",
            Self::Three => "category 3: at least as hard as a search for the key of AES-192, by any computer",
            Self::Five => "category 5: at least as hard as a search for the key of AES-256, by any computer",
        }
    }

    /// What it means where a curve stands beside it.
    pub(super) const fn half_words(self) -> &'static str {
        match self {
            Self::One => {
                "the curve is lost, ML-KEM holds: category 1, as hard as a search for the key of AES-128"
            }
            Self::Two => {
                "the curve is lost, the lattice holds: category 2, as hard as a collision of SHA-256"
            }
            Self::Three => {
                "the curve is lost, ML-KEM holds: category 3, as hard as a search for the key of AES-192"
            }
            Self::Five => {
                "the curve is lost, ML-KEM holds: category 5, as hard as a search for the key of AES-256"
            }
        }
    }

    const fn counted(self) -> u32 {
        match self {
            Self::One | Self::Two => 128,
            Self::Three => 192,
            Self::Five => 256,
        }
    }

    pub(super) fn classical_bits(self) -> f64 {
        f64::from(self.counted())
    }

    pub(super) const fn nist(self) -> Nist {
        Nist::AtLeast(self.counted())
    }
}

impl Serialize for Category {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("Category", 2)?;
        fields.serialize_field("number", &self.number())?;
        fields.serialize_field("means", self.words())?;
        fields.end()
    }
}
