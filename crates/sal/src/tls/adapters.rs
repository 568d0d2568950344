//! Ciphers, hashes and key derivation for rustls, from a source for which rustls has none of its own.

use rustls::crypto::cipher::{
    AeadKey as TlsKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Nonce, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
    UnsupportedOperationError, make_tls13_aad,
};
use rustls::crypto::hash::{Context, Hash, HashAlgorithm as TlsHash, Output};
use rustls::crypto::hmac::{Hmac, Key as TlsHmacKey, Tag};
use rustls::crypto::tls13::{Hkdf, HkdfUsingHmac};
use rustls::{CipherSuite, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion};

use crate::algorithm::{AeadAlgorithm, HashAlgorithm};
use crate::provider::{AeadKey, Fault, HashContext, HmacKey, Provider};

/// Length of a tag, in bytes.
const TAG_BYTES: usize = 16;

pub(super) fn suite_name(algorithm: AeadAlgorithm) -> CipherSuite {
    match algorithm {
        AeadAlgorithm::Aes128Gcm => CipherSuite::TLS13_AES_128_GCM_SHA256,
        AeadAlgorithm::Aes256Gcm => CipherSuite::TLS13_AES_256_GCM_SHA384,
        AeadAlgorithm::ChaCha20Poly1305 => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    }
}

/// How many records one key may protect (RFC 8446 §5.5: 2^24.5 for AES-GCM; no limit that a sequence number reaches
/// for ChaCha20).
pub(super) fn confidentiality_limit(algorithm: AeadAlgorithm) -> u64 {
    match algorithm {
        AeadAlgorithm::ChaCha20Poly1305 => u64::MAX,
        AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => 1 << 24,
    }
}

pub(super) fn aead(
    source: &'static dyn Provider,
    algorithm: AeadAlgorithm,
) -> &'static dyn Tls13AeadAlgorithm {
    Box::leak(Box::new(Cipher { source, algorithm }))
}

pub(super) fn hash(source: &'static dyn Provider, algorithm: HashAlgorithm) -> &'static dyn Hash {
    Box::leak(Box::new(Digest { source, algorithm }))
}

pub(super) fn hkdf(source: &'static dyn Provider, algorithm: HashAlgorithm) -> &'static dyn Hkdf {
    let mac: &'static Mac = Box::leak(Box::new(Mac { source, algorithm }));
    Box::leak(Box::new(HkdfUsingHmac(mac)))
}

struct Cipher {
    source: &'static dyn Provider,
    algorithm: AeadAlgorithm,
}

impl Cipher {
    fn key(&self, key: &TlsKey) -> Result<Box<dyn AeadKey>, Fault> {
        self.source.aead(self.algorithm, key.as_ref())
    }
}

impl Tls13AeadAlgorithm for Cipher {
    fn encrypter(&self, key: TlsKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Records { key: self.key(&key), iv })
    }

    fn decrypter(&self, key: TlsKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Records { key: self.key(&key), iv })
    }

    fn key_len(&self) -> usize {
        self.algorithm.key_bytes()
    }

    fn extract_keys(
        &self,
        key: TlsKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(match self.algorithm {
            AeadAlgorithm::Aes128Gcm => ConnectionTrafficSecrets::Aes128Gcm { key, iv },
            AeadAlgorithm::Aes256Gcm => ConnectionTrafficSecrets::Aes256Gcm { key, iv },
            AeadAlgorithm::ChaCha20Poly1305 => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
        })
    }
}

/// One direction of a connection. A source that refused the key, which has the right length by construction, fails
/// every record rather than the process.
struct Records {
    key: Result<Box<dyn AeadKey>, Fault>,
    iv: Iv,
}

impl MessageEncrypter for Records {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let key = self.key.as_ref().map_err(|_| Error::EncryptError)?;
        let length = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(length);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&[message.typ.into()]);
        let nonce = Nonce::new(&self.iv, sequence).0;
        let tag =
            key.seal(&nonce, &make_tls13_aad(length), payload.as_mut()).map_err(|_| Error::EncryptError)?;
        payload.extend_from_slice(&tag);
        Ok(OutboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, payload))
    }

    fn encrypted_payload_len(&self, payload: usize) -> usize {
        payload + 1 + TAG_BYTES
    }
}

impl MessageDecrypter for Records {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let key = self.key.as_ref().map_err(|_| Error::DecryptError)?;
        let payload = &mut message.payload;
        let aad = make_tls13_aad(payload.len());
        let length = payload.len().checked_sub(TAG_BYTES).ok_or(Error::DecryptError)?;
        let (body, tag) = payload.split_last_chunk_mut::<TAG_BYTES>().ok_or(Error::DecryptError)?;
        key.open(&Nonce::new(&self.iv, sequence).0, &aad, body, tag).map_err(|_| Error::DecryptError)?;
        payload.truncate(length);
        message.into_tls13_unpadded_message()
    }
}

struct Digest {
    source: &'static dyn Provider,
    algorithm: HashAlgorithm,
}

impl Hash for Digest {
    fn start(&self) -> Box<dyn Context> {
        let context = self
            .source
            .start_hash(self.algorithm)
            .expect("a source that passed its self-test starts a hash, which asks for nothing that can fail");
        Box::new(Transcript { algorithm: self.algorithm, context })
    }

    fn hash(&self, data: &[u8]) -> Output {
        let mut context = self.start();
        context.update(data);
        context.finish()
    }

    fn output_len(&self) -> usize {
        self.algorithm.bytes()
    }

    fn algorithm(&self) -> TlsHash {
        match self.algorithm {
            HashAlgorithm::Sha256 => TlsHash::SHA256,
            HashAlgorithm::Sha384 => TlsHash::SHA384,
            HashAlgorithm::Sha512 => TlsHash::SHA512,
        }
    }
}

struct Transcript {
    algorithm: HashAlgorithm,
    context: Box<dyn HashContext>,
}

impl Context for Transcript {
    fn fork_finish(&self) -> Output {
        self.fork().finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self { algorithm: self.algorithm, context: self.context.fork() })
    }

    fn finish(self: Box<Self>) -> Output {
        let mut out = [0; HashAlgorithm::MAX_BYTES];
        let out = out.get_mut(..self.algorithm.bytes()).unwrap_or_default();
        self.context.finish(out);
        Output::new(out)
    }

    fn update(&mut self, data: &[u8]) {
        self.context.update(data);
    }
}

struct Mac {
    source: &'static dyn Provider,
    algorithm: HashAlgorithm,
}

impl Hmac for Mac {
    fn with_key(&self, key: &[u8]) -> Box<dyn TlsHmacKey> {
        let key = self
            .source
            .hmac(self.algorithm, key)
            .expect("a source that passed its self-test takes a key of any length for HMAC");
        Box::new(MacKey { algorithm: self.algorithm, key })
    }

    fn hash_output_len(&self) -> usize {
        self.algorithm.bytes()
    }
}

struct MacKey {
    algorithm: HashAlgorithm,
    key: Box<dyn HmacKey>,
}

impl TlsHmacKey for MacKey {
    fn sign_concat(&self, first: &[u8], middle: &[&[u8]], last: &[u8]) -> Tag {
        let mut parts = Vec::with_capacity(middle.len() + 2);
        parts.push(first);
        parts.extend_from_slice(middle);
        parts.push(last);
        let mut out = zeroize::Zeroizing::new([0; HashAlgorithm::MAX_BYTES]);
        let out = out.get_mut(..self.algorithm.bytes()).unwrap_or_default();
        self.key.sign(&parts, out);
        Tag::new(out)
    }

    fn tag_len(&self) -> usize {
        self.algorithm.bytes()
    }
}
