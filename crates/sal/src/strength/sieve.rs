//! The cost of factoring.

use std::f64::consts::LN_2;

/// Work of the general number field sieve on a number of so many bits: `L_n[1/3, (64/9)^(1/3)]` with o(1) taken as zero,
/// as a base-2 logarithm. The constant that is left out makes all sizes a little stronger or weaker together.
#[must_use]
pub fn sieve_bits(modulus_bits: u32) -> f64 {
    sieve(modulus_bits, (64.0_f64 / 9.0).cbrt(), 0.0)
}

/// The same with the constants of the FIPS 140-2 and 140-3 implementation guidance (D.B, formerly 7.5), which was
/// fitted to NIST's table: `(1.923 * cbrt(L ln 2) * cbrt(ln(L ln 2)^2) - 4.69) / ln 2`.
#[must_use]
pub fn guidance_bits(modulus_bits: u32) -> f64 {
    sieve(modulus_bits, 1.923, 4.69)
}

fn sieve(modulus_bits: u32, factor: f64, less: f64) -> f64 {
    // The logarithm of n, taken for 2^bits: the number itself is too long for a float.
    let logarithm = f64::from(modulus_bits) * LN_2;
    if logarithm <= 1.0 {
        return 0.0;
    }
    let double = logarithm.ln();
    ((factor * logarithm.cbrt() * (double * double).cbrt() - less) / LN_2).max(0.0)
}
