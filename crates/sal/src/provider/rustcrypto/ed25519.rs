//! Ed25519 from dalek.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use super::draws::MISMATCH;
use crate::algorithm::SignatureScheme;
use crate::provider::contract::{BAD_KEY, BAD_PUBLIC, BAD_SIGNATURE, Fault, PrivateKey};

pub(super) fn load(secret: &[u8]) -> Result<SigningKey, Fault> {
    Ok(SigningKey::from_bytes(secret.try_into().map_err(|_| BAD_KEY)?))
}

pub(super) fn load_key(secret: &[u8], public: &[u8]) -> Result<Box<dyn PrivateKey>, Fault> {
    let key = load(secret)?;
    if key.verifying_key().as_bytes() != public {
        return Err(MISMATCH);
    }
    Ok(Box::new(Key(key)))
}

pub(super) fn load_public(public: &[u8]) -> Result<VerifyingKey, Fault> {
    let public: &[u8; 32] = public.try_into().map_err(|_| BAD_PUBLIC)?;
    let key = VerifyingKey::from_bytes(public).map_err(|_| BAD_PUBLIC)?;
    if is_reduced(public) && !key.is_weak() { Ok(key) } else { Err(BAD_PUBLIC) }
}

pub(super) fn verify(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Fault> {
    let key = load_public(public)?;
    let signature = Signature::from_slice(signature).map_err(|_| BAD_SIGNATURE)?;
    key.verify_strict(message, &signature).map_err(|_| BAD_SIGNATURE)
}

/// Whether `y` is below `p`, which is `2^255 - 19`. The sign of `x` in the highest bit is not part of it.
pub(super) fn is_reduced(public: &[u8; 32]) -> bool {
    let [lowest, middle @ .., highest] = public;
    *lowest < 0xed || middle.iter().any(|byte| *byte != 0xff) || highest & 0x7f != 0x7f
}

struct Key(SigningKey);

impl PrivateKey for Key {
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, Fault> {
        if scheme != SignatureScheme::Ed25519 {
            return Err(Fault::Unsupported);
        }
        let signature = self.0.try_sign(message).map_err(|_| Fault::Broken("sign"))?;
        Ok(signature.to_bytes().to_vec())
    }
}
