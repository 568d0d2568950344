//! The parts of keys.

use crypto_bigint::{BoxedUint, NonZero};

/// The parts of a public key.
pub trait PublicKeyParts {
    /// The modulus.
    fn n(&self) -> &NonZero<BoxedUint>;
    /// The public exponent.
    fn e(&self) -> &BoxedUint;
}

/// The parts of a private key: none, since private keys do not come here.
pub trait PrivateKeyParts: PublicKeyParts {
    /// The private exponent.
    fn d(&self) -> &BoxedUint;
    /// The primes.
    fn primes(&self) -> &[BoxedUint];
    /// The inverse of the second prime modulo the first.
    fn crt_coefficient(&self) -> Option<BoxedUint>;
}
