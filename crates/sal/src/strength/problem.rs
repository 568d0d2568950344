//! What keys rest on.

use super::curve::Curve;
use super::lattice::Lattice;

/// What an attacker has to solve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// To factor an RSA modulus of so many bits.
    Rsa {
        /// Length of the modulus, in bits.
        modulus_bits: u32,
    },
    /// To find a discrete logarithm modulo a prime, as in DSA.
    Dsa {
        /// Length of the prime, in bits.
        prime_bits: u32,
        /// Length of the order of the subgroup, in bits.
        order_bits: u32,
    },
    /// To find a discrete logarithm on a curve.
    Curve(Curve),
    /// To find a short vector in a lattice.
    Lattice(Lattice),
    /// Both: the secret is mixed from two key exchanges.
    Hybrid(Curve, Lattice),
}
