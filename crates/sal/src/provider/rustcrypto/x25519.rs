//! X25519 from dalek.

use x25519_dalek::{PublicKey, StaticSecret};

use zeroize::Zeroizing;

use crate::provider::contract::{Agreement, BAD_KEY, BAD_SHARE, Fault, Secret};

pub(super) fn load(private: &[u8]) -> Result<Box<dyn Agreement>, Fault> {
    let private = Zeroizing::new(<[u8; 32]>::try_from(private).map_err(|_| BAD_KEY)?);
    let secret = StaticSecret::from(*private);
    let share = PublicKey::from(&secret);
    Ok(Box::new(Half { secret, share }))
}

struct Half {
    secret: StaticSecret,
    share: PublicKey,
}

impl Agreement for Half {
    fn share(&self) -> &[u8] {
        self.share.as_bytes()
    }

    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Secret, Fault> {
        let peer: [u8; 32] = peer.try_into().map_err(|_| BAD_SHARE)?;
        let secret = self.secret.diffie_hellman(&PublicKey::from(peer));
        // RFC 7748 §6.1: a peer that sends a point of low order fixes the secret.
        if !secret.was_contributory() {
            return Err(BAD_SHARE);
        }
        Ok(Secret::new(secret.as_bytes()))
    }
}
