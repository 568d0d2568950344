//! Randomness for keys, nonces and tokens.

use data_encoding::BASE32_NOPAD;

use crate::{SalError, selection};

/// Fills a buffer with random bytes.
///
/// # Errors
/// [`SalError::Provider`] when the system has no randomness to give; nothing may go on then.
pub fn fill(buffer: &mut [u8]) -> Result<(), SalError> {
    selection::global().random(buffer)
}

/// An array of random bytes.
///
/// # Errors
/// As [`fill`].
pub fn bytes<const N: usize>() -> Result<[u8; N], SalError> {
    let mut buffer = [0; N];
    fill(&mut buffer)?;
    Ok(buffer)
}

/// A secret to be copied by people and put into links: `len` random bytes in lower-case base32 without padding (RFC
/// 4648 §6). 20 bytes (160 bits, 32 characters) are plenty for anything that can be guessed online or offline.
///
/// # Errors
/// As [`fill`].
pub fn token(len: usize) -> Result<String, SalError> {
    let mut buffer = zeroize::Zeroizing::new(vec![0; len]);
    fill(&mut buffer)?;
    Ok(BASE32_NOPAD.encode(&buffer).to_ascii_lowercase())
}

/// `len` random bytes in lower-case hexadecimal.
///
/// # Errors
/// As [`fill`].
pub fn hex(len: usize) -> Result<String, SalError> {
    let mut buffer = zeroize::Zeroizing::new(vec![0; len]);
    fill(&mut buffer)?;
    Ok(data_encoding::HEXLOWER.encode(&buffer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tokens_differ_and_have_the_asked_length() {
        let one = token(20).unwrap();
        assert_eq!(one.len(), 32);
        assert!(one.chars().all(|c| c.is_ascii_lowercase() || ('2'..='7').contains(&c)));
        assert_ne!(one, token(20).unwrap());
        assert_eq!(hex(16).unwrap().len(), 32);
        assert_ne!(bytes::<32>().unwrap(), bytes::<32>().unwrap());
    }
}
