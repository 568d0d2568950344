//! Random numbers of the system, and what every file here says alike.

use zeroize::Zeroizing;

use crate::provider::contract::Fault;

pub(super) const NO_RANDOMNESS: Fault = Fault::Broken("give random bytes");
pub(super) const MISMATCH: Fault = Fault::Refused("the public key does not belong to the private key");

pub(super) fn random_array<const N: usize>() -> Result<Zeroizing<[u8; N]>, Fault> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice()).map_err(|_| NO_RANDOMNESS)?;
    Ok(bytes)
}
