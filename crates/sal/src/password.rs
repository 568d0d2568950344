//! Passwords at rest: argon2id (RFC 9106).
//!
//! Memory 19 MiB, 2 passes, 1 lane: the first choice of the OWASP password storage guidance, about 20 ms on one core
//! in release. The parameters are part of each hash (PHC string format), so raising them later keeps old hashes valid;
//! [`needs_rehash`] tells which to replace at the next login. Run these on a bounded pool of blocking threads: each
//! call in flight holds its 19 MiB.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};

use crate::{SalError, random};

/// Memory per hash, in KiB.
pub const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over the memory.
pub const PASSES: u32 = 2;
/// Lanes.
pub const LANES: u32 = 1;
/// Memory in KiB, and passes, of what [`danger::hash_cheaply`] asks for.
const CHEAP_COST: (u32, u32) = (64, 1);
/// Length of the salt, in bytes (RFC 9106 §3.1 recommends 16).
pub const SALT_BYTES: usize = 16;

/// Hashes a new password under a fresh salt. The result is a PHC string such as `$argon2id$v=19$m=19456,t=2,p=1$…`.
///
/// # Errors
/// [`SalError::Provider`] when there is no randomness or memory.
pub fn hash(password: &[u8]) -> Result<String, SalError> {
    let salt = random::bytes::<SALT_BYTES>()?;
    let hash: PasswordHash = hasher()?
        .hash_password_with_salt(password, &salt)
        .map_err(|_| SalError::Provider { operation: "hash a password" })?;
    Ok(hash.to_string())
}

/// Whether a password is the one that was hashed. Takes the same time for a right and a wrong one.
///
/// # Errors
/// [`SalError::BadPasswordHash`] when the stored string is not one of ours.
pub fn verify(password: &[u8], stored: &str) -> Result<bool, SalError> {
    let parsed =
        PasswordHash::new(stored).map_err(|error| SalError::BadPasswordHash { reason: error.to_string() })?;
    match hasher()?.verify_password(password, &parsed) {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(SalError::BadPasswordHash { reason: error.to_string() }),
    }
}

/// A hash of no user's password, with the parameters of the hashes that [`hash`] makes. It is a constant: made at the first login
/// of an unknown user, it would let that one answer take twice as long.
const NO_USERS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdCBvZiBub2JvZHkhIQ$bm9ib2R5IGhhcyBhIHBhc3N3b3JkIHdpdGggdGhpcyE";

/// As [`NO_USERS`], where [`danger::hash_cheaply`] was called.
const NO_USERS_CHEAP: &str =
    "$argon2id$v=19$m=64,t=1,p=1$c2FsdCBvZiBub2JvZHkhIQ$bm9ib2R5IGhhcyBhIHBhc3N3b3JkIHdpdGggdGhpcyE";

/// Does the work of [`verify`] for an account that does not exist, so that the answer takes the same time. Always
/// false.
pub fn dummy_verify(password: &[u8]) -> bool {
    let stored = if CHEAP.load(Ordering::Relaxed) { NO_USERS_CHEAP } else { NO_USERS };
    let _ = verify(password, stored);
    false
}

static CHEAP: AtomicBool = AtomicBool::new(false);

/// What no program but a test may call.
pub mod danger {
    use super::{CHEAP, Ordering};

    /// From now on this process makes hashes that cost next to nothing, or, with `false`, proper ones again: for tests in which
    /// users only have to be there. Such a hash says how it was made, so that it is verified by any process, and
    /// [`needs_rehash`](super::needs_rehash) tells it.
    pub fn hash_cheaply(cheaply: bool) {
        CHEAP.store(cheaply, Ordering::Relaxed);
    }
}

static EVALUATIONS: AtomicU64 = AtomicU64::new(0);

/// How often argon2 was computed in this process: what the slow part of an answer to a login depends on.
#[must_use]
pub fn evaluations() -> u64 {
    EVALUATIONS.load(Ordering::Relaxed)
}

/// Whether a stored hash was made with weaker parameters than today's.
#[must_use]
pub fn needs_rehash(stored: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(stored) else {
        return true;
    };
    let Ok(params) = Params::try_from(&parsed) else {
        return true;
    };
    parsed.algorithm.as_str() != Algorithm::Argon2id.ident().as_str()
        || params.m_cost() < MEMORY_KIB
        || params.t_cost() < PASSES
}

/// Counts: each is used once.
fn hasher() -> Result<Argon2<'static>, SalError> {
    let (memory, passes) = if CHEAP.load(Ordering::Relaxed) { CHEAP_COST } else { (MEMORY_KIB, PASSES) };
    let params = Params::new(memory, passes, LANES, None)
        .map_err(|_| SalError::Provider { operation: "set up argon2id" })?;
    EVALUATIONS.fetch_add(1, Ordering::Relaxed);
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_right_password_alone_is_accepted() {
        let stored = hash(b"correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify(b"correct horse", &stored).unwrap());
        assert!(!verify(b"correct horsE", &stored).unwrap());
        assert!(!verify(b"", &stored).unwrap());
        assert_ne!(stored, hash(b"correct horse").unwrap());
        assert!(!dummy_verify(b"nobody has this password"));
        assert!(!needs_rehash(NO_USERS) && !verify(b"", NO_USERS).unwrap(), "the same work as for a user");
        assert!(!needs_rehash(&stored));
    }

    #[test]
    fn an_account_that_is_not_there_costs_what_one_costs_that_is() {
        for (stored, (memory, passes)) in [(NO_USERS, (MEMORY_KIB, PASSES)), (NO_USERS_CHEAP, CHEAP_COST)] {
            let cost = format!("$argon2id$v=19$m={memory},t={passes},p={LANES}$");
            assert!(stored.starts_with(&cost) && PasswordHash::new(stored).is_ok(), "{stored}");
        }
    }

    #[test]
    fn hashes_that_are_not_ours_are_named() {
        assert!(matches!(verify(b"x", "plain text"), Err(SalError::BadPasswordHash { .. })));
        assert!(matches!(verify(b"x", ""), Err(SalError::BadPasswordHash { .. })));
        assert!(needs_rehash("$argon2id$v=19$m=4096,t=1,p=1$c2FsdHNhbHRzYWx0$MTIzNDU2Nzg5MDEyMzQ1Ng"));
        assert!(needs_rehash("plain text"));
    }
}
