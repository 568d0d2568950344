//! Diffie-Hellman in group 16 (RFC 3526 §5, RFC 8268): for clients without elliptic curves.

use std::fmt;
use std::sync::LazyLock;

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U512, U4096};
use zeroize::Zeroizing;

use super::outside_fips;
use crate::uses::{self, Aside};
use crate::{SalError, random};

/// Length of a share, and of the secret, in bytes.
pub const SHARE_BYTES: usize = 512;
/// Length of a private exponent, in bits: twice the strength that any of the keys made of the secret has, as OpenSSH has it. A longer
/// one costs more, and the group is not worth it (RFC 3526 §8: 150 to 240 bits).
const EXPONENT_BITS: u32 = 512;
const EXPONENT_BYTES: usize = 64;
const GENERATOR: U4096 = U4096::from_u8(2);

/// A safe prime: 2^4096 - 2^4032 - 1 + 2^64 * (floor(2^3966 * pi) + 240904).
const PRIME: Odd<U4096> = Odd::<U4096>::from_be_hex(concat!(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd",
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed",
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f",
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b",
    "e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510",
    "15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7",
    "abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c",
    "bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a92108011a723c12a787e6d7",
    "88719a10bdba5b2699c327186af4e23c1a946834b6150bda2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6",
    "287c59474e6bc05d99b2964fa090c3a2233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa9",
    "93b4ea988d8fddc186ffb7dc90a6c08f4df435c934063199ffffffffffffffff",
));
static FIELD: LazyLock<FixedMontyParams<{ U4096::LIMBS }>> = LazyLock::new(|| FixedMontyParams::new(PRIME));

/// One side of an exchange, with its fresh share.
pub struct Group16 {
    exponent: Zeroizing<U512>,
    share: [u8; SHARE_BYTES],
}

impl Group16 {
    /// Draws a private exponent. Costs a few milliseconds, and so does [`Group16::finish`].
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness, and in FIPS mode.
    pub fn start() -> Result<Self, SalError> {
        outside_fips("use a finite field in SSH: FIPS mode has none")?;
        uses::count(Aside::SshGroup16);
        let drawn = Zeroizing::new(random::bytes::<EXPONENT_BYTES>()?);
        Ok(Self::of(Zeroizing::new(U512::from_be_slice(drawn.as_slice()))))
    }

    fn of(exponent: Zeroizing<U512>) -> Self {
        let share = bytes(&power(&GENERATOR, &exponent));
        Self { exponent, share }
    }

    /// The share for the other side, big endian with leading zeros.
    #[must_use]
    pub fn share(&self) -> &[u8; SHARE_BYTES] {
        &self.share
    }

    /// The secret that follows from the other side's share, big endian with leading zeros. Takes time that does not depend on the
    /// exponent.
    ///
    /// On success the share is from 2 to the prime less 2. The prime is a safe one, so that the secret is neither 0 nor 1 nor one of few.
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] where the other side's share is outside of that range, or longer than the prime.
    pub fn finish(self, theirs: &[u8]) -> Result<Zeroizing<[u8; SHARE_BYTES]>, SalError> {
        let refused = || SalError::BadPublicKey { reason: "the share is not in the group".to_owned() };
        let zeros = SHARE_BYTES.checked_sub(theirs.len()).ok_or_else(refused)?;
        let mut padded = [0; SHARE_BYTES];
        for (to, from) in padded.iter_mut().skip(zeros).zip(theirs) {
            *to = *from;
        }
        let theirs = U4096::from_be_slice(&padded);
        // A share is no secret.
        let greatest = PRIME.as_ref().wrapping_sub(&GENERATOR);
        if theirs < GENERATOR || theirs > greatest {
            return Err(refused());
        }
        let secret = Zeroizing::new(power(&theirs, &self.exponent));
        Ok(Zeroizing::new(bytes(&secret)))
    }
}

impl fmt::Debug for Group16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Group16(..)")
    }
}

/// In time that depends on lengths alone.
fn power(base: &U4096, exponent: &U512) -> U4096 {
    let mut power = Zeroizing::new(FixedMontyForm::new(base, &FIELD));
    *power = power.pow_bounded_exp(exponent, EXPONENT_BITS);
    power.retrieve()
}

fn bytes(number: &U4096) -> [u8; SHARE_BYTES] {
    let mut bytes = [0; SHARE_BYTES];
    bytes.copy_from_slice(number.to_be_bytes().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::hash::sha256;

    fn exponent(first: u8) -> Zeroizing<U512> {
        let bytes: Vec<u8> = (first..first + 64).collect();
        Zeroizing::new(U512::from_be_slice(&bytes))
    }

    /// By Python's `pow`.
    #[test]
    fn powers_are_as_elsewhere() {
        let hex = |digest: [u8; 32]| data_encoding::HEXLOWER.encode(&digest);
        let (one, other) = (Group16::of(exponent(1)), Group16::of(exponent(65)));
        let (ours, theirs) = (*one.share(), *other.share());
        assert_eq!(hex(sha256(&ours)), "0439872574dafc9b300359ea0dd742c3976ccf9fa56883bdb8268462adedf8cf");
        let secret = one.finish(&theirs).unwrap();
        assert_eq!(
            hex(sha256(secret.as_slice())),
            "87b605a4430a403eb2e6163f874e2ee1bbac77357ca172d106f757a96cea5857"
        );
        assert_eq!(*other.finish(&ours).unwrap(), *secret);
    }

    #[test]
    fn both_sides_have_the_secret_and_no_one_else() {
        let (one, other, third) =
            (Group16::start().unwrap(), Group16::start().unwrap(), Group16::start().unwrap());
        let (first, second) = (*one.share(), *other.share());
        assert_ne!(first, second);
        let secret = one.finish(&second).unwrap();
        assert_eq!(*secret, *other.finish(&first).unwrap());
        assert_ne!(*secret, *third.finish(&first).unwrap());
    }

    #[test]
    fn shares_outside_of_the_group_are_refused() {
        let prime = bytes(PRIME.as_ref());
        let less = |by: u8| {
            let mut number = prime;
            number[SHARE_BYTES - 1] -= by;
            number.to_vec()
        };
        let more = {
            let mut number = prime;
            // The last eight bytes of the prime are all ones.
            number[SHARE_BYTES - 9] += 1;
            number[SHARE_BYTES - 8..].fill(0);
            number.to_vec()
        };
        let longer = [&[1][..], &prime].concat();
        let far = vec![0xff; SHARE_BYTES];
        for refused in [vec![], vec![0], vec![1], vec![0; SHARE_BYTES], less(1), less(0), more, longer, far] {
            let error = Group16::of(exponent(1)).finish(&refused).unwrap_err();
            assert!(matches!(error, SalError::BadPublicKey { .. }), "{refused:?}: {error}");
        }
        for taken in [vec![2], less(2)] {
            Group16::of(exponent(1)).finish(&taken).unwrap();
        }
    }
}
