//! Whether the numbers of an RSA key belong together (RFC 8017 §3.2).
//!
//! Not every library checks them when it loads a key, and a key with one wrong number makes signatures from which
//! an attacker can work out the rest. Everything takes time that depends on the lengths alone.

use crypto_bigint::{BoxedUint, NonZero};
use zeroize::Zeroizing;

use super::rsa::Private;

const LENGTHS: &str = "a number is longer than the modulus";

/// Checks that the modulus is the product of the primes, and that the exponents and the coefficient follow from them.
/// That the primes are prime shows when the key signs.
///
/// # Errors
/// What does not hold.
pub(super) fn check(key: &Private<'_>) -> Result<(), &'static str> {
    // Room for the product of any two of the numbers, so that none overflows.
    let room = 2 * key.public.n.as_bytes().len();
    let number = |bytes: &[u8]| if 2 * bytes.len() > room { Err(LENGTHS) } else { uint(bytes, room) };
    let (p, q) = (number(key.p.as_bytes())?, number(key.q.as_bytes())?);
    if *product(&p, &q) != *number(key.public.n.as_bytes())? {
        return Err("the modulus is not the product of the primes");
    }
    let e = number(key.public.e.as_bytes())?;
    let d = number(key.d.as_bytes())?;
    let one = uint(&[1], room)?;
    for (prime, reduced) in [(key.p, key.dp), (key.q, key.dq)] {
        let order = modulus(&less_one(prime.as_bytes())?, room)?;
        let reduced = number(reduced.as_bytes())?;
        if *remainder(&d, &order) != *reduced {
            return Err("an exponent for a prime does not follow from the private exponent");
        }
        if *remainder(&product(&e, &reduced), &order) != *one {
            return Err("the private exponent does not undo the public one");
        }
    }
    let coefficient = number(key.qi.as_bytes())?;
    let prime = modulus(key.p.as_bytes(), room)?;
    if *remainder(&coefficient, &prime) != *coefficient
        || *remainder(&product(&coefficient, &q), &prime) != *one
    {
        return Err("the coefficient is not the inverse of the second prime");
    }
    Ok(())
}

/// The private exponent reduced for one prime: d mod (p - 1).
///
/// # Errors
/// What is wrong with the numbers.
pub(super) fn reduced_exponent(d: &[u8], prime: &[u8]) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    let room = d.len().max(prime.len());
    let order = modulus(&less_one(prime)?, room)?;
    let reduced = remainder(&*uint(d, room)?, &order);
    Ok(Zeroizing::new(reduced.to_be_bytes().into_vec()))
}

type Secret = Zeroizing<BoxedUint>;

fn uint(bytes: &[u8], room: usize) -> Result<Secret, &'static str> {
    let bits = u32::try_from(room * 8).map_err(|_| LENGTHS)?;
    BoxedUint::from_be_slice(bytes, bits).map(Zeroizing::new).map_err(|_| LENGTHS)
}

fn modulus(bytes: &[u8], room: usize) -> Result<Zeroizing<NonZero<BoxedUint>>, &'static str> {
    let number = uint(bytes, room)?;
    Option::from(NonZero::new((*number).clone())).map(Zeroizing::new).ok_or("a prime is 1")
}

/// One less than a prime, which is odd, so that it is the same number with the last bit cleared.
fn less_one(prime: &[u8]) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    let mut order = Zeroizing::new(prime.to_vec());
    match order.last_mut() {
        Some(last) if *last & 1 == 1 => *last &= 0xfe,
        _ => return Err("a prime is even"),
    }
    Ok(order)
}

fn product(left: &BoxedUint, right: &BoxedUint) -> Secret {
    Zeroizing::new(left.wrapping_mul(right))
}

fn remainder(number: &BoxedUint, modulus: &NonZero<BoxedUint>) -> Secret {
    Zeroizing::new(number.rem(modulus))
}
