//! How strong a key is: the work of the best published attack on it, as the base-2 logarithm of a number of operations.
//!
//! No such figure can be proven. What a formula gives is called an estimate ([`Estimate`]); what NIST has decided is
//! its own figure and stands beside it ([`Nist`]). The two differ: a modulus of 2048 bits has 116.88 bits by the sieve's
//! complexity, and NIST counts it as 112.
//!
//! ```
//! use sallyport_sal::strength::{Problem, Verdict};
//!
//! let key: Problem = "rsa-2048".parse()?;
//! let strength = key.assess();
//! assert_eq!(format!("{:.2}", strength.classical.bits), "116.88");
//! assert_eq!(strength.verdict, Verdict::Acceptable);
//! # Ok::<(), sallyport_sal::strength::UnknownKey>(())
//! ```

mod curve;
mod digest;
mod lattice;
mod nist;
mod problem;
mod sieve;
mod verdict;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Serialize;

pub use curve::Curve;
pub use digest::Digest;
pub use lattice::{Category, Lattice};
pub use nist::{NIST_ROWS, Nist, nist_of_modulus};
pub use problem::Problem;
pub use sieve::{guidance_bits, sieve_bits};
pub use verdict::Verdict;

/// Lengths of an RSA modulus that are assessed, in bits. Below, anyone factors it at home; above, none is made.
pub const RSA_BITS: RangeInclusive<u32> = 512..=16_384;

/// A number of operations that a formula gives, as its base-2 logarithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Bits.
    pub bits: f64,
    /// Always true: programs that read the figure shall not take it for more.
    pub is_estimate: bool,
    /// The formula, in words.
    pub by: &'static str,
}

impl Estimate {
    const fn new(bits: f64, by: &'static str) -> Self {
        Self { bits, is_estimate: true, by }
    }
}

/// What is left against a large quantum computer. None is known to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantum {
    /// Bits that are left: zero where Shor's algorithm applies, none where a category says it instead.
    pub bits: Option<u32>,
    /// In words.
    pub words: &'static str,
}

/// Everything that is said about a key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Strength {
    /// The key, such as `RSA-2048`.
    pub key: String,
    /// Against the computers there are: an estimate.
    pub classical: Estimate,
    /// What NIST counts it as.
    pub nist: Nist,
    /// The continuous formula of the FIPS 140 implementation guidance, for RSA and DSA.
    pub fips_guidance: Option<Estimate>,
    /// NIST's category, for ML-DSA and ML-KEM.
    pub category: Option<Category>,
    /// Against a large quantum computer.
    pub quantum: Quantum,
    /// In one word.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
}

/// By which formula RSA is estimated, in words.
const SIEVE: &str = "general number field sieve, L_n[1/3, (64/9)^(1/3)] with o(1) = 0";
/// The same, where the shorter way into DSA is through its subgroup.
const RHO: &str = "half the bits of the group's order (Pollard's rho)";
const GUIDANCE: &str = "FIPS 140 implementation guidance D.B";

const SHOR: &str = "none is left: Shor's algorithm solves it on a large quantum computer, of which none is known to exist; \
                    the most recent estimate is fewer than a million noisy qubits for RSA-2048 (Gidney 2025, an estimate)";

impl Problem {
    /// An RSA key.
    ///
    /// # Errors
    /// [`UnknownKey`] when the modulus is shorter or longer than [`RSA_BITS`].
    pub fn rsa(modulus_bits: u32) -> Result<Self, UnknownKey> {
        if RSA_BITS.contains(&modulus_bits) {
            Ok(Self::Rsa { modulus_bits })
        } else {
            Err(UnknownKey::Size(modulus_bits))
        }
    }

    /// Everything that can be said about such a key.
    #[must_use]
    pub fn assess(self) -> Strength {
        let (verdict, reason) = verdict::of(self);
        let shor = Quantum { bits: Some(0), words: SHOR };
        Strength {
            key: self.to_string(),
            classical: self.classical(),
            nist: self.nist(),
            fips_guidance: match self {
                Self::Rsa { modulus_bits: bits } | Self::Dsa { prime_bits: bits, .. } => {
                    Some(Estimate::new(guidance_bits(bits), GUIDANCE))
                }
                _ => None,
            },
            category: match self {
                Self::Lattice(lattice) | Self::Hybrid(_, lattice) => Some(lattice.category()),
                _ => None,
            },
            quantum: match self {
                Self::Lattice(lattice) => Quantum { bits: None, words: lattice.category().words() },
                Self::Hybrid(_, lattice) => Quantum { bits: None, words: lattice.category().half_words() },
                _ => shor,
            },
            verdict,
            reason,
        }
    }

    /// The estimate for the computers there are.
    #[must_use]
    pub fn classical(self) -> Estimate {
        match self {
            Self::Rsa { modulus_bits } => Estimate::new(sieve_bits(modulus_bits), SIEVE),
            Self::Dsa { prime_bits, order_bits } => {
                let (field, group) = (sieve_bits(prime_bits), f64::from(order_bits) / 2.0);
                if group < field { Estimate::new(group, RHO) } else { Estimate::new(field, SIEVE) }
            }
            Self::Curve(curve) => Estimate::new(curve.bits(), RHO),
            Self::Lattice(lattice) => Estimate::new(lattice.category().classical_bits(), Category::BY),
            // An attacker who wants the secret has to break both.
            Self::Hybrid(curve, lattice) => {
                let (curve, lattice) = (Self::Curve(curve).classical(), Self::Lattice(lattice).classical());
                if curve.bits > lattice.bits { curve } else { lattice }
            }
        }
    }

    /// What NIST counts it as.
    #[must_use]
    pub fn nist(self) -> Nist {
        match self {
            Self::Rsa { modulus_bits } => nist_of_modulus(modulus_bits),
            Self::Dsa { prime_bits, order_bits } => {
                // Table 2 has both lengths: 1024 and 160, 2048 and 224, 3072 and 256.
                let order = match order_bits {
                    0..160 => return Nist::Below(80),
                    160..224 => 80,
                    224..256 => 112,
                    256..384 => 128,
                    384..512 => 192,
                    _ => 256,
                };
                match nist_of_modulus(prime_bits) {
                    field if field.floor().is_some_and(|bits| bits > order) => Nist::AtLeast(order),
                    field => field,
                }
            }
            Self::Curve(curve) => curve.nist(),
            Self::Lattice(lattice) => lattice.category().nist(),
            // SP 800-56C Rev. 2 §2: an approved share makes the mixed secret an approved one.
            Self::Hybrid(_, lattice) => lattice.category().nist(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { modulus_bits } => write!(f, "RSA-{modulus_bits}"),
            Self::Dsa { prime_bits, order_bits } => write!(f, "DSA-{prime_bits}/{order_bits}"),
            Self::Curve(curve) => f.write_str(curve.name()),
            Self::Lattice(lattice) => f.write_str(lattice.name()),
            Self::Hybrid(Curve::X25519, Lattice::MlKem768) => f.write_str("X25519MLKEM768"),
            Self::Hybrid(Curve::P256, Lattice::MlKem768) => f.write_str("SecP256r1MLKEM768"),
            Self::Hybrid(Curve::P384, Lattice::MlKem1024) => f.write_str("SecP384r1MLKEM1024"),
            Self::Hybrid(curve, lattice) => write!(f, "{} with {}", curve.name(), lattice.name()),
        }
    }
}

/// A name or a size that is not assessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownKey {
    /// Nothing is called so.
    #[error(
        "no key is called {0:?}; there are rsa-BITS or just BITS ({min} to {max}), ed25519, x25519, p256, p384, p521, \
         ml-dsa-44, ml-dsa-65, ml-dsa-87, ml-kem-512, ml-kem-768, ml-kem-1024, x25519mlkem768",
        min = RSA_BITS.start(), max = RSA_BITS.end()
    )]
    Name(String),
    /// A modulus that is too short or too long.
    #[error("an RSA modulus of {0} bits; those from {min} to {max} are assessed", min = RSA_BITS.start(), max = RSA_BITS.end())]
    Size(u32),
}

impl FromStr for Problem {
    type Err = UnknownKey;

    /// Reads names as people write them: capitals, dashes and underscores do not matter.
    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let unknown = || UnknownKey::Name(text.chars().take(64).collect());
        let plain: String = text
            .chars()
            .take(64)
            .filter(|letter| !matches!(letter, '-' | '_' | ' '))
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        let digits = plain.strip_prefix("rsa").unwrap_or(&plain);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::rsa(digits.parse().map_err(|_| unknown())?);
        }
        match plain.as_str() {
            "x25519mlkem768" | "mlkem768x25519" | "mlkem768x25519sha256" => {
                return Ok(Self::Hybrid(Curve::X25519, Lattice::MlKem768));
            }
            "secp256r1mlkem768" | "mlkem768nistp256sha256" => {
                return Ok(Self::Hybrid(Curve::P256, Lattice::MlKem768));
            }
            "secp384r1mlkem1024" | "mlkem1024nistp384sha384" => {
                return Ok(Self::Hybrid(Curve::P384, Lattice::MlKem1024));
            }
            _ => {}
        }
        let curve = Curve::ALL.iter().copied().find(|curve| curve.is_called(&plain)).map(Self::Curve);
        let lattice = || {
            let called = |lattice: &Lattice| lattice.name().replace('-', "").to_ascii_lowercase() == plain;
            Lattice::ALL.iter().copied().find(called).map(Self::Lattice)
        };
        curve.or_else(lattice).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;
