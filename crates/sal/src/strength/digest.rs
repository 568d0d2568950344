//! Hashes under signatures: an attacker who finds a collision has a signature under something else.

use serde::Serialize;

use super::{Estimate, Verdict};

/// The hash that a signature is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Digest {
    /// MD2 and MD4, too.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512, and what Ed25519 has within.
    Sha512,
    /// SHAKE256, which ML-DSA and Ed448 have within.
    Shake256,
}

impl Digest {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha224 => "SHA-224",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Shake256 => "SHAKE256",
        }
    }

    /// The work of a collision whose beginning is given, which is what forges a certificate: an estimate.
    #[must_use]
    pub const fn collision(self) -> Estimate {
        const BIRTHDAY: &str = "half the bits of the hash (birthday bound)";
        match self {
            Self::Md5 => {
                Estimate::new(39.0, "chosen-prefix collision (Stevens 2012); done for a certificate in 2008")
            }
            Self::Sha1 => Estimate::new(
                63.4,
                "chosen-prefix collision (Leurent and Peyrin 2020), done for 45,000 dollars",
            ),
            Self::Sha224 => Estimate::new(112.0, BIRTHDAY),
            Self::Sha256 => Estimate::new(128.0, BIRTHDAY),
            Self::Sha384 => Estimate::new(192.0, BIRTHDAY),
            Self::Sha512 | Self::Shake256 => Estimate::new(256.0, BIRTHDAY),
        }
    }

    /// Whether a signature over it is to be kept.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Md5 | Self::Sha1 => Verdict::Broken,
            Self::Sha224 => Verdict::Acceptable,
            _ => Verdict::Good,
        }
    }
}
