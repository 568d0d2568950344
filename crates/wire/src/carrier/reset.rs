//! Words to those who are still connected with a process that is no more.
//!
//! The kernel answers for a TCP connection whose process has ended. For QUIC, a process that gets a packet of a connection which
//! it does not know may answer with a token that only the holder of the key can have told the peer before: a stateless reset
//! (RFC 9000 §10.3). The key must outlive the process.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::{CryptoError, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use quinn_proto::InvalidCid;

use super::error::CarrierError;
use super::primitives::{Primitives, SEAL_BYTES, Sealer};

/// The part of a connection's name that differs from name to name,
const NUMBER_BYTES: usize = 4;
/// and the part that tells names of this endpoint from what others send.
const MARK_BYTES: usize = 4;
const NAME_BYTES: usize = NUMBER_BYTES + MARK_BYTES;
/// What a mark is made of besides the number. A name has 8 bytes, so that the token of none is what a mark was made of.
const MARKS: &[u8] = b"names of connections";

/// An endpoint whose random numbers, names of connections and tokens are made by `primitives`; by `sealer`, names and tokens such
/// as another process with the same one would make.
///
/// # Errors
/// [`CarrierError::NoRandomness`].
pub(super) fn endpoint(
    primitives: &Primitives,
    sealer: Option<Arc<Sealer>>,
) -> Result<EndpointConfig, CarrierError> {
    let sealer = match sealer {
        Some(sealer) => sealer,
        None => primitives.sealer()?,
    };
    let numbers = primitives.sealer()?;
    let mut config = EndpointConfig::new(Arc::new(Sealing(Arc::clone(&sealer))));
    config
        // quinn stretches it for what is not secret, or proves an address and no more.
        .rng_seed(Some(primitives.random()?))
        .cid_generator(move || {
            let (marks, numbers) = (Arc::clone(&sealer), Arc::clone(&numbers));
            Box::new(Names { marks, numbers, given: 0 })
        });
    Ok(config)
}

/// Makes the names of connections: nothing in them tells which belong to one connection (RFC 9000 §5.1).
struct Names {
    marks: Arc<Sealer>,
    numbers: Arc<Sealer>,
    /// Names given so far.
    given: u64,
}

impl Names {
    fn mark(&self, number: &[u8]) -> [u8; MARK_BYTES] {
        let [a, b, c, d, ..] = (self.marks)(&[MARKS, number].concat());
        [a, b, c, d]
    }
}

impl ConnectionIdGenerator for Names {
    fn generate_cid(&mut self) -> ConnectionId {
        self.given = self.given.wrapping_add(1);
        let [a, b, c, d, ..] = (self.numbers)(&self.given.to_be_bytes());
        let number: [u8; NUMBER_BYTES] = [a, b, c, d];
        ConnectionId::new(&[number, self.mark(&number)].concat())
    }

    fn validate(&self, name: &ConnectionId) -> Result<(), InvalidCid> {
        let (number, mark) = name.split_first_chunk::<NUMBER_BYTES>().ok_or(InvalidCid)?;
        if mark == self.mark(number) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        NAME_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

struct Sealing(Arc<Sealer>);

impl HmacKey for Sealing {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.iter_mut().zip((self.0)(data)).for_each(|(out, byte)| *out = byte);
    }

    fn signature_len(&self) -> usize {
        SEAL_BYTES
    }

    /// quinn does not ask: tokens are compared by the peers who were told them.
    fn verify(&self, _data: &[u8], _signature: &[u8]) -> Result<(), CryptoError> {
        Err(CryptoError)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_is_sealed_is_the_same_for_every_process_and_another_for_every_name() {
        let sealing = |key: u8| Sealing(Arc::new(move |data: &[u8]| [key ^ data[0]; SEAL_BYTES]));
        let token = |key: u8, name: &[u8]| {
            let mut token = [0; SEAL_BYTES];
            sealing(key).sign(name, &mut token);
            token
        };
        assert_eq!(token(1, b"name"), token(1, b"name"));
        assert_ne!(token(1, b"name"), token(1, b"another"));
        assert_ne!(token(1, b"name"), token(2, b"name"));
        assert!(sealing(1).verify(b"name", &token(1, b"name")).is_err());
    }

    #[test]
    fn names_are_known_to_every_process_with_the_key_and_to_no_other() {
        let hash = |key: u8| -> Arc<Sealer> {
            Arc::new(move |data: &[u8]| {
                // Good enough for a test: every byte that is given changes every byte that comes.
                let sum = data.iter().fold(u64::from(key) + 1, |sum, byte| {
                    (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
                });
                let mut out = [0; SEAL_BYTES];
                out.iter_mut().zip(sum.to_be_bytes().into_iter().cycle()).for_each(|(out, byte)| *out = byte);
                out
            })
        };
        let names = |marks, numbers| Names { marks: hash(marks), numbers: hash(numbers), given: 0 };
        let (mut here, next, other) = (names(1, 1), names(1, 2), names(2, 1));
        let mut given = HashSet::new();
        for _ in 0..1_000 {
            let name = here.generate_cid();
            assert_eq!(name.len(), here.cid_len());
            assert!(here.validate(&name).is_ok() && next.validate(&name).is_ok());
            assert!(other.validate(&name).is_err());
            given.insert(name.to_vec());
        }
        assert_eq!(given.len(), 1_000);
        assert_ne!(here.generate_cid()[..], names(1, 2).generate_cid()[..]);
        for wrong in [&[][..], &[1; 7], &[0; 8], &[0; 20]] {
            assert!(here.validate(&ConnectionId::new(wrong)).is_err(), "{wrong:?}");
        }
    }
}
