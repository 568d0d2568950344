//! Ciphers, hashes and HMAC.

use aes_gcm::KeyInit;
use aes_gcm::aead::AeadInOut;
use aes_gcm::aead::consts::{U12, U16};
use hmac::Mac;
use sha2::Digest;

use zeroize::Zeroize as _;

use crate::provider::contract::{AeadKey, Fault, HashContext, HmacKey};

pub(super) fn aead<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, Fault>
where
    C: KeyInit + AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync + 'static,
{
    let cipher = C::new_from_slice(key).map_err(|_| Fault::Refused("the key has another length"))?;
    Ok(Box::new(Cipher(cipher)))
}

struct Cipher<C>(C);

impl<C> AeadKey for Cipher<C>
where
    C: AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync,
{
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8]) -> Result<[u8; 16], Fault> {
        self.0
            .encrypt_inout_detached(&(*nonce).into(), aad, message.into())
            .map(Into::into)
            .map_err(|_| Fault::Broken("encrypt"))
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], message: &mut [u8], tag: &[u8; 16]) -> Result<(), Fault> {
        self.0
            .decrypt_inout_detached(&(*nonce).into(), aad, message.into(), &(*tag).into())
            .map_err(|_| Fault::Refused("the message or its tag is not as it was"))
    }
}

pub(super) fn hash<D: Digest>(parts: &[&[u8]], out: &mut [u8]) {
    let mut digest = D::new();
    for part in parts {
        digest.update(part);
    }
    fill(out, &digest.finalize());
}

pub(super) fn start_hash<D: Digest + Clone + Send + Sync + 'static>() -> Box<dyn HashContext> {
    Box::new(Running(D::new()))
}

struct Running<D>(D);

impl<D: Digest + Clone + Send + Sync + 'static> HashContext for Running<D> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(Self(self.0.clone()))
    }

    fn finish(self: Box<Self>, out: &mut [u8]) {
        fill(out, &self.0.finalize());
    }
}

pub(super) fn hmac<M: Mac + KeyInit + Clone + Send + Sync + 'static>(
    key: &[u8],
) -> Result<Box<dyn HmacKey>, Fault> {
    // HMAC takes a key of any length; the error is there for other constructions.
    let keyed = <M as KeyInit>::new_from_slice(key).map_err(|_| Fault::Broken("take a key for HMAC"))?;
    Ok(Box::new(Keyed(keyed)))
}

struct Keyed<M>(M);

impl<M: Mac + Clone + Send + Sync> HmacKey for Keyed<M> {
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        // Through HKDF this is key material.
        let mut tag = mac.finalize().into_bytes();
        fill(out, &tag);
        tag.as_mut_slice().zeroize();
    }
}

fn fill(out: &mut [u8], from: &[u8]) {
    for (to, from) in out.iter_mut().zip(from) {
        *to = *from;
    }
}
