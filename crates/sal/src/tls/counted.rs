//! The parts of a cipher suite, which are bound to their source when the provider is composed: each counts what it is asked.

use rustls::crypto::ActiveKeyExchange;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};
use rustls::{ConnectionTrafficSecrets, Error, quic};

use crate::Primitive;
use crate::selection::Selection;

/// Where to count.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) selection: &'static Selection,
    pub(super) primitive: Primitive,
    /// Of the source, among the selection's providers.
    pub(super) at: usize,
}

impl Place {
    fn count(&self) {
        self.selection.used(self.primitive, self.at);
    }
}

pub(super) fn aead(place: Place, inner: &'static dyn Tls13AeadAlgorithm) -> &'static dyn Tls13AeadAlgorithm {
    Box::leak(Box::new(Counted { place, inner }))
}

pub(super) fn hash(place: Place, inner: &'static dyn Hash) -> &'static dyn Hash {
    Box::leak(Box::new(Counted { place, inner }))
}

pub(super) fn hkdf(place: Place, inner: &'static dyn Hkdf) -> &'static dyn Hkdf {
    Box::leak(Box::new(Counted { place, inner }))
}

pub(super) fn packets(place: Place, inner: &'static dyn quic::Algorithm) -> &'static dyn quic::Algorithm {
    Box::leak(Box::new(Counted { place, inner }))
}

struct Counted<T: ?Sized + 'static> {
    place: Place,
    inner: &'static T,
}

impl Tls13AeadAlgorithm for Counted<dyn Tls13AeadAlgorithm> {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.place.count();
        self.inner.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.place.count();
        self.inner.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.inner.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.inner.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

impl Hash for Counted<dyn Hash> {
    fn start(&self) -> Box<dyn Context> {
        self.place.count();
        self.inner.start()
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.place.count();
        self.inner.hash(data)
    }

    fn output_len(&self) -> usize {
        self.inner.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.inner.algorithm()
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

impl Hkdf for Counted<dyn Hkdf> {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.place.count();
        self.inner.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.place.count();
        self.inner.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        exchange: Box<dyn ActiveKeyExchange>,
        peer: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, Error> {
        self.place.count();
        self.inner.extract_from_kx_shared_secret(salt, exchange, peer)
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        self.place.count();
        self.inner.expander_for_okm(okm)
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        self.place.count();
        self.inner.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

impl quic::Algorithm for Counted<dyn quic::Algorithm> {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn quic::PacketKey> {
        self.place.count();
        self.inner.packet_key(key, iv)
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn quic::HeaderProtectionKey> {
        self.place.count();
        self.inner.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.inner.aead_key_len()
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}
