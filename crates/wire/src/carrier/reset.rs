//! Words to those who are still connected with a process that is no more.
//!
//! The kernel answers for a TCP connection that nobody has any more. For QUIC, whoever gets a packet of a connection that
//! it does not know may answer with a token that only the one with the key can have told the peer before: a stateless reset
//! (RFC 9000 §10.3). The key must outlive the process.

use std::sync::Arc;

use quinn::EndpointConfig;
use quinn::crypto::{CryptoError, HmacKey};
use quinn_proto::HashedConnectionIdGenerator;

/// Gives what a keyed hash makes of what is given: HMAC-SHA-256, or as good.
pub type Sealer = dyn Fn(&[u8]) -> [u8; SEAL_BYTES] + Send + Sync;

const SEAL_BYTES: usize = 32;
/// What the key is made of that tells names of own connections from others.
const NAMES: &[u8] = b"names of connections";

/// Makes tokens, and the names of connections, such as another process with the same key would.
pub(super) fn outlive(endpoint: &mut EndpointConfig, sealer: Arc<Sealer>) {
    let [a, b, c, d, e, f, g, h, ..] = sealer(NAMES);
    let names = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    // Names have 8 bytes, so that the token of none is what `names` was made of.
    endpoint
        .reset_key(Arc::new(Sealing(sealer)))
        .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(names)));
}

struct Sealing(Arc<Sealer>);

impl HmacKey for Sealing {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.iter_mut().zip((self.0)(data)).for_each(|(out, byte)| *out = byte);
    }

    fn signature_len(&self) -> usize {
        SEAL_BYTES
    }

    /// Nobody asks: tokens are compared by those who were told them.
    fn verify(&self, _data: &[u8], _signature: &[u8]) -> Result<(), CryptoError> {
        Err(CryptoError)
    }
}

#[cfg(test)]
mod tests {
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
}
