//! What NIST counts keys as.

use std::fmt;

use serde::Serialize;

/// What NIST counts a key as (SP 800-57 Part 1 Rev. 5, table 2), in bits. The table has a few sizes; between them it
/// says nothing but that a longer key is no weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "bits", rename_all = "snake_case")]
pub enum Nist {
    /// Shorter than the shortest key of the table.
    Below(u32),
    /// In the table.
    Equal(u32),
    /// Between two rows of the table, or past its end.
    AtLeast(u32),
}

impl Nist {
    /// The bits that may be counted on; none below the table.
    #[must_use]
    pub const fn floor(self) -> Option<u32> {
        match self {
            Self::Below(_) => None,
            Self::Equal(bits) | Self::AtLeast(bits) => Some(bits),
        }
    }
}

impl fmt::Display for Nist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(bits) => write!(f, "below {bits}"),
            Self::Equal(bits) => write!(f, "{bits}"),
            Self::AtLeast(bits) => write!(f, "at least {bits}"),
        }
    }
}

/// The rows of SP 800-57 Part 1 Rev. 5, table 2 for factoring and finite fields: length of the key, and what it counts as.
pub const NIST_ROWS: &[(u32, u32)] = &[(1024, 80), (2048, 112), (3072, 128), (7680, 192), (15_360, 256)];

/// What NIST counts an RSA modulus or the prime of DSA as.
#[must_use]
pub fn nist_of_modulus(bits: u32) -> Nist {
    let below = NIST_ROWS.iter().rev().find(|(row, _)| *row <= bits);
    match below {
        None => Nist::Below(80),
        Some((row, counts)) if *row == bits => Nist::Equal(*counts),
        Some((_, counts)) => Nist::AtLeast(*counts),
    }
}
