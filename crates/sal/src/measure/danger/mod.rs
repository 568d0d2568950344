//! What is weak or public, to be measured and for nothing else: keys whose private halves are published, and
//! RSA of 1024 bits. Nothing that guards anything may name this module.

pub mod plain_rsa;

use crate::algorithm::{KeyAlgorithm, KeyKind};
use crate::{MemoryKey, SalError, Selection, selftest};

/// A key to measure with, in memory. RSA keys are **published** ones, the same for all, because making one takes longer
/// than the measurement; others are made.
///
/// # Errors
/// [`SalError::NoSource`] when there is no source for such keys.
pub fn published_key(selection: &'static Selection, algorithm: KeyAlgorithm) -> Result<MemoryKey, SalError> {
    match selftest::known_key(algorithm).filter(|_| algorithm.kind() == KeyKind::Rsa) {
        Some(material) => MemoryKey::from_proven(selection, material),
        None => MemoryKey::generate_in(selection, algorithm),
    }
}
