//! What SSH alone has: its cipher of ChaCha20 and Poly1305, and the key exchange over a finite field.
//!
//! No selection chooses a source for these: the cipher is AWS-LC's in every build, the arithmetic of the field RustCrypto's, and
//! [`uses`](crate::uses) counts both. Neither is approved: in FIPS mode there are none.

mod cipher;
mod group16;

pub use cipher::PacketKey;
pub use group16::{Group16, SHARE_BYTES};

use crate::{SalError, selection};

/// Refuses in FIPS mode.
///
/// # Errors
/// [`SalError::Provider`] with what was asked for.
fn outside_fips(operation: &'static str) -> Result<(), SalError> {
    if selection::global().is_fips() { Err(SalError::Provider { operation }) } else { Ok(()) }
}
