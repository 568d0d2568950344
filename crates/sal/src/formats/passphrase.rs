//! Keys from passphrases: what they cost, and that they are made outside of any module.

use super::error::FormatError;
use crate::selection;
use crate::uses::{self, Aside};

/// What it costs to try one passphrase on a file that is written. The less, the sooner it is guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Iterations of PBKDF2 in an encrypted PKCS#8 file. The product writes 600,000.
    pub pbkdf2_iterations: u32,
    /// Rounds of bcrypt in an encrypted OpenSSH file. The product writes 24.
    pub bcrypt_rounds: u32,
}

/// What comes before a passphrase is turned into a key: it is counted, and refused in FIPS mode.
pub(super) fn outside_module() -> Result<(), FormatError> {
    if selection::global().is_fips() {
        return Err(FormatError::PassphraseOutsideModule);
    }
    uses::count(Aside::Passphrase);
    Ok(())
}
