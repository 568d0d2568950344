//! Passwords at rest: argon2id (RFC 9106), or, where everything must be approved under FIPS 140-3, PBKDF2 with HMAC-SHA-512
//! (SP 800-132).
//!
//! Argon2id takes memory 19 MiB, 2 passes, 1 lane: the first choice of the OWASP password storage guidance, about 20 ms on one core
//! in release. PBKDF2 takes 210,000 iterations, its choice for that function, about five times as long. Kind and parameters
//! are part of each hash (PHC string format), so that a process verifies what it would not make and raising them later keeps old
//! hashes valid; [`needs_rehash`] tells which to replace at the next login. Run these on a bounded pool of blocking
//! threads: each call in flight holds its 19 MiB.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use zeroize::Zeroizing;

use crate::algorithm::HashAlgorithm;
use crate::selection::{self, Mode};
use crate::uses::{self, Aside};
use crate::{Primitive, SalError, constant_time_eq, random};

/// Memory per hash, in KiB.
pub const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over the memory.
pub const PASSES: u32 = 2;
/// Lanes.
pub const LANES: u32 = 1;
/// Memory in KiB, and passes, of what [`danger::hash_cheaply`] asks for.
const CHEAP_COST: (u32, u32) = (64, 1);
/// Length of the salt, in bytes (RFC 9106 §3.1 recommends 16, SP 800-132 §5.1 demands it).
pub const SALT_BYTES: usize = 16;
/// Iterations of PBKDF2.
pub const ITERATIONS: u32 = 210_000;
/// As many as [`danger::hash_cheaply`] asks for: the least that SP 800-132 §5.2 allows.
const CHEAP_ITERATIONS: u32 = 1000;
/// More than a stored hash may ask for: a login takes a bounded time, whatever the state holds.
const MOST_ITERATIONS: u32 = 10_000_000;
/// What a hash of PBKDF2 begins with.
const PBKDF2: &str = "pbkdf2-sha512";
const PBKDF2_BYTES: usize = 64;

/// How passwords are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Argon2id (RFC 9106).
    Argon2id,
    /// PBKDF2 with HMAC-SHA-512 (SP 800-132).
    Pbkdf2,
}

impl Kind {
    /// The one that this process makes hashes of, by the policy of its selection.
    #[must_use]
    pub fn preferred() -> Self {
        match selection::global().policy().mode {
            Mode::Fips => Self::Pbkdf2,
            _ => Self::Argon2id,
        }
    }
}

/// Hashes a new password under a fresh salt, by [`Kind::preferred`]. The result is a PHC string such as
/// `$argon2id$v=19$m=19456,t=2,p=1$…` or `$pbkdf2-sha512$i=210000$…`.
///
/// # Errors
/// [`SalError::Provider`] when there is no randomness or memory.
pub fn hash(password: &[u8]) -> Result<String, SalError> {
    hash_by(Kind::preferred(), password)
}

/// As [`hash`], by one kind.
///
/// # Errors
/// As [`hash`], and [`SalError::NoSource`] where the policy leaves no source of HMAC.
pub fn hash_by(kind: Kind, password: &[u8]) -> Result<String, SalError> {
    let salt = random::bytes::<SALT_BYTES>()?;
    let failed = SalError::Provider { operation: "hash a password" };
    let hash = match kind {
        Kind::Argon2id => hasher()?.hash_password_with_salt(password, &salt).map_err(|_| failed)?,
        Kind::Pbkdf2 => {
            let iterations = if is_cheap() { CHEAP_ITERATIONS } else { ITERATIONS };
            let derived = derive(iterations, &salt, password)?;
            written(iterations, &salt, derived.as_slice()).ok_or(failed)?
        }
    };
    Ok(hash.to_string())
}

/// A hash of PBKDF2 as it is stored.
fn written(iterations: u32, salt: &[u8], derived: &[u8]) -> Option<PasswordHash> {
    let mut params = ParamsString::new();
    params.add_decimal("i", iterations).ok()?;
    Some(PasswordHash {
        algorithm: argon2::password_hash::phc::Ident::new(PBKDF2).ok()?,
        version: None,
        params,
        salt: Some(Salt::new(salt).ok()?),
        hash: Some(Output::new(derived).ok()?),
    })
}

fn derive(iterations: u32, salt: &[u8], password: &[u8]) -> Result<Zeroizing<[u8; PBKDF2_BYTES]>, SalError> {
    let bad = || SalError::BadPasswordHash { reason: "it has no iterations".to_owned() };
    let iterations = NonZeroU32::new(iterations).ok_or_else(bad)?;
    EVALUATIONS.fetch_add(1, Ordering::Relaxed);
    let mut out = Zeroizing::new([0; PBKDF2_BYTES]);
    selection::global()
        .run(Primitive::Hmac(HashAlgorithm::Sha512), |provider| {
            provider.pbkdf2_sha512(iterations, salt, password, &mut out)
        })
        .map_err(|error| error.into_sal(|_| SalError::Provider { operation: "hash a password" }))?;
    Ok(out)
}

/// Whether a password is the one that was hashed. Takes the same time for a right and a wrong one.
///
/// # Errors
/// [`SalError::BadPasswordHash`] when the stored string is not one of ours.
pub fn verify(password: &[u8], stored: &str) -> Result<bool, SalError> {
    let bad = |reason: &str| SalError::BadPasswordHash { reason: reason.to_owned() };
    let parsed = PasswordHash::new(stored).map_err(|error| bad(&error.to_string()))?;
    if parsed.algorithm.as_str() == PBKDF2 {
        let iterations =
            iterations(&parsed).ok_or_else(|| bad("its number of iterations is out of range"))?;
        let (Some(salt), Some(hash)) = (&parsed.salt, &parsed.hash) else {
            return Err(bad("it has no salt, or no hash"));
        };
        let derived = derive(iterations, salt.as_ref(), password)?;
        return Ok(constant_time_eq(derived.as_slice(), hash.as_bytes()));
    }
    match hasher()?.verify_password(password, &parsed) {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(bad(&error.to_string())),
    }
}

fn iterations(stored: &PasswordHash) -> Option<u32> {
    stored.params.get_decimal("i").filter(|iterations| (1..=MOST_ITERATIONS).contains(iterations))
}

/// A hash of no user's password, with the parameters of the hashes that [`hash`] makes. It is a constant: made at the first login
/// of an unknown user, it would let that one answer take twice as long.
const NO_USERS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2FsdCBvZiBub2JvZHkhIQ$bm9ib2R5IGhhcyBhIHBhc3N3b3JkIHdpdGggdGhpcyE";

/// As [`NO_USERS`], where [`danger::hash_cheaply`] was called.
const NO_USERS_CHEAP: &str =
    "$argon2id$v=19$m=64,t=1,p=1$c2FsdCBvZiBub2JvZHkhIQ$bm9ib2R5IGhhcyBhIHBhc3N3b3JkIHdpdGggdGhpcyE";

/// Does the work of [`verify`] for an account that does not exist, so that the answer takes the same time as for one whose hash is
/// of the preferred kind. Always false.
pub fn dummy_verify(password: &[u8]) -> bool {
    match (Kind::preferred(), is_cheap()) {
        (Kind::Argon2id, false) => drop(verify(password, NO_USERS)),
        (Kind::Argon2id, true) => drop(verify(password, NO_USERS_CHEAP)),
        (Kind::Pbkdf2, false) => drop(derive(ITERATIONS, &[0; SALT_BYTES], password)),
        (Kind::Pbkdf2, true) => drop(derive(CHEAP_ITERATIONS, &[0; SALT_BYTES], password)),
    }
    false
}

static CHEAP: AtomicBool = AtomicBool::new(false);

fn is_cheap() -> bool {
    CHEAP.load(Ordering::Relaxed)
}

/// What no program but a test may call.
pub mod danger {
    use super::{CHEAP, Ordering};

    /// From now on this process makes hashes that cost next to nothing, or, with `false`, proper ones again: for tests in which
    /// users only have to be there. Such a hash says how it was made, so that it is verified by any process, and wherever hashes
    /// are proper [`needs_rehash`](super::needs_rehash) tells it.
    pub fn hash_cheaply(cheaply: bool) {
        CHEAP.store(cheaply, Ordering::Relaxed);
    }
}

static EVALUATIONS: AtomicU64 = AtomicU64::new(0);

/// How often argon2 or PBKDF2 was computed in this process: what the slow part of an answer to a login depends on.
#[must_use]
pub fn evaluations() -> u64 {
    EVALUATIONS.load(Ordering::Relaxed)
}

/// Whether a stored hash is of another kind than [`Kind::preferred`], or was made with weaker parameters than today's.
#[must_use]
pub fn needs_rehash(stored: &str) -> bool {
    is_short_of(Kind::preferred(), stored)
}

fn is_short_of(kind: Kind, stored: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(stored) else {
        return true;
    };
    let (memory, passes, rounds) = match is_cheap() {
        true => (CHEAP_COST.0, CHEAP_COST.1, CHEAP_ITERATIONS),
        false => (MEMORY_KIB, PASSES, ITERATIONS),
    };
    match (kind, parsed.algorithm.as_str()) {
        (Kind::Pbkdf2, PBKDF2) => iterations(&parsed).is_none_or(|iterations| iterations < rounds),
        (Kind::Argon2id, name) if name == Algorithm::Argon2id.ident().as_str() => Params::try_from(&parsed)
            .map_or(true, |params| params.m_cost() < memory || params.t_cost() < passes),
        _ => true,
    }
}

/// Counts: each is used once.
fn hasher() -> Result<Argon2<'static>, SalError> {
    let (memory, passes) = if is_cheap() { CHEAP_COST } else { (MEMORY_KIB, PASSES) };
    let params = Params::new(memory, passes, LANES, None)
        .map_err(|_| SalError::Provider { operation: "set up argon2id" })?;
    EVALUATIONS.fetch_add(1, Ordering::Relaxed);
    uses::count(Aside::Argon2id);
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provider::Provider;

    #[test]
    fn the_right_password_alone_is_accepted() {
        let stored = hash(b"correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify(b"correct horse", &stored).unwrap());
        assert!(!verify(b"correct horsE", &stored).unwrap());
        assert!(!verify(b"", &stored).unwrap());
        assert_ne!(stored, hash(b"correct horse").unwrap());
        assert!(!dummy_verify(b"no user has this password"));
        assert!(!needs_rehash(NO_USERS) && !verify(b"", NO_USERS).unwrap(), "the same work as for a user");
        assert!(!needs_rehash(&stored));
    }

    /// Computed by Python's hashlib.
    #[test]
    fn pbkdf2_is_what_others_compute() {
        let expected = "0697a650f36d9436cce4b2da03b8425695b5e85a0886ea5cd8c001f0ad05bea9\
                        6f8f379da22de48858a63c7ba442d79757b9d5864316dc281408c4db18502f6d";
        let salt = b"saltSALTsaltSALT";
        let derived = derive(4096, salt, b"passwordPASSWORDpassword").unwrap();
        assert_eq!(data_encoding::HEXLOWER.encode(derived.as_slice()), expected);
        // A library that has HMAC alone gives the same.
        let rounds = NonZeroU32::new(4096).unwrap();
        let mut by_hmac = [0; PBKDF2_BYTES];
        crate::provider::rustcrypto::RustCrypto
            .pbkdf2_sha512(rounds, salt, b"passwordPASSWORDpassword", &mut by_hmac)
            .unwrap();
        assert_eq!(by_hmac, *derived);
    }

    #[test]
    fn a_hash_of_either_kind_is_verified_and_moves_to_the_other() {
        let proper = hash_by(Kind::Pbkdf2, b"correct horse").unwrap();
        assert!(proper.starts_with("$pbkdf2-sha512$i=210000$"), "{proper}");
        assert!(!is_short_of(Kind::Pbkdf2, &proper) && is_short_of(Kind::Argon2id, &proper));
        assert!(is_short_of(Kind::Pbkdf2, NO_USERS), "another kind");

        let salt = [1; SALT_BYTES];
        let derived = derive(CHEAP_ITERATIONS, &salt, b"correct horse").unwrap();
        let stored = written(CHEAP_ITERATIONS, &salt, derived.as_slice()).unwrap().to_string();
        assert!(verify(b"correct horse", &stored).unwrap());
        assert!(!verify(b"correct horsE", &stored).unwrap());
        assert!(is_short_of(Kind::Pbkdf2, &stored), "fewer iterations than today's");
        for (from, to) in [("i=1000", "i=0"), ("i=1000", "i=4000000000"), ("i=1000$", "")] {
            let broken = stored.replace(from, to);
            let refused = verify(b"correct horse", &broken);
            assert!(matches!(refused, Err(SalError::BadPasswordHash { .. })), "{broken}");
        }
        let cut = stored.rsplit_once('$').unwrap().0;
        assert!(matches!(verify(b"", cut), Err(SalError::BadPasswordHash { .. })), "{cut}");
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
