//! Tokens and links: made, and kept as hashes.

use sallyport_sal::{hash, random};
use tonic::Status;

/// The public part of a token is its first characters.
pub(crate) const TOKEN_NAME: usize = 8;

/// A token is remembered for so long after its end, to say "stale" and not "unknown".
pub(crate) const REMEMBERED: time::Duration = time::Duration::hours(24);

/// A fresh token: its text, which is shown once, and its name.
pub(crate) fn fresh_token() -> Result<(String, String, String), Status> {
    let text = random::token(20).map_err(|error| Status::internal(error.to_string()))?;
    let name = text.chars().take(TOKEN_NAME).collect();
    let hash = hash_of(&text);
    Ok((text, name, hash))
}

/// A secret as it is kept: SHA-256, in hexadecimal.
pub(crate) fn hash_of(secret: &str) -> String {
    data_encoding::HEXLOWER.encode(&hash::sha256(secret.as_bytes()))
}
