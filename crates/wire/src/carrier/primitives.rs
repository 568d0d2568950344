//! What QUIC needs of cryptography beside TLS: random numbers, a keyed hash, and the seal of address tokens.
//!
//! All of it comes from the provider of the TLS configuration, so that one choice of sources serves both. quinn on its own draws
//! these with rand and computes them with whichever library it was built with.

use std::sync::Arc;

use quinn::ConnectionId;
use quinn::crypto::{AeadKey as SealingKey, CryptoError, HandshakeTokenKey};
use quinn::rustls::crypto::CryptoProvider;
use quinn::rustls::crypto::cipher::{AeadKey, Iv, NONCE_LEN};
use quinn::rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};
use quinn::rustls::quic::{Algorithm, PacketKey};
use quinn::rustls::{SupportedCipherSuite, Tls13CipherSuite};

use super::error::CarrierError;

/// Gives what a keyed hash makes of what is given: HMAC-SHA-256, or as good.
pub type Sealer = dyn Fn(&[u8]) -> [u8; SEAL_BYTES] + Send + Sync;

/// Of what a [`Sealer`] gives.
pub(super) const SEAL_BYTES: usize = 32;
/// Of the keys that tokens are sealed with: AES-256-GCM's, and ChaCha20-Poly1305's.
const KEY_BYTES: usize = 32;
/// The longest that a name of a connection may be (RFC 9000 §17.2), as the first one that a client gives is.
const FIRST_NAME_BYTES: usize = 20;

/// The parts of a TLS provider that serve QUIC outside of handshakes and packets.
pub(super) struct Primitives {
    provider: Arc<CryptoProvider>,
    hkdf: &'static dyn Hkdf,
    seal: &'static dyn Algorithm,
}

impl Primitives {
    /// # Errors
    /// [`CarrierError::Unfit`] when the provider has no cipher with keys of 32 bytes for QUIC.
    pub(super) fn of(provider: &Arc<CryptoProvider>) -> Result<Self, CarrierError> {
        let found = provider.cipher_suites.iter().find_map(|suite| match suite {
            SupportedCipherSuite::Tls13(Tls13CipherSuite { hkdf_provider, quic: Some(seal), .. })
                if seal.aead_key_len() == KEY_BYTES =>
            {
                Some((*hkdf_provider, *seal))
            }
            _ => None,
        });
        let (hkdf, seal) = found.ok_or_else(|| {
            CarrierError::Unfit("its provider has no cipher with keys of 32 bytes for QUIC".to_owned())
        })?;
        Ok(Self { provider: Arc::clone(provider), hkdf, seal })
    }

    /// Random bytes.
    ///
    /// # Errors
    /// [`CarrierError::NoRandomness`].
    pub(super) fn random<const N: usize>(&self) -> Result<[u8; N], CarrierError> {
        let mut bytes = [0; N];
        self.provider.secure_random.fill(&mut bytes).map_err(|_| CarrierError::NoRandomness)?;
        Ok(bytes)
    }

    /// A hash by a key that is drawn here and known to nothing else.
    ///
    /// # Errors
    /// [`CarrierError::NoRandomness`].
    pub(super) fn sealer(&self) -> Result<Arc<Sealer>, CarrierError> {
        let (key, hkdf) = (OkmBlock::new(&self.random::<KEY_BYTES>()?), self.hkdf);
        Ok(Arc::new(move |data| {
            let mut sealed = [0; SEAL_BYTES];
            let tag = hkdf.hmac_sign(&key, data);
            sealed.iter_mut().zip(tag.as_ref()).for_each(|(out, byte)| *out = *byte);
            sealed
        }))
    }

    /// The name that a client gives to a connection before the server has given one; it cannot be guessed (RFC 9000 §7.2).
    ///
    /// # Errors
    /// [`CarrierError::NoRandomness`].
    pub(super) fn first_name(&self) -> Result<ConnectionId, CarrierError> {
        Ok(ConnectionId::new(&self.random::<FIRST_NAME_BYTES>()?))
    }

    /// What seals the tokens by which a client proves that it gets what is sent to its address (RFC 9000 §8.1.2).
    ///
    /// # Errors
    /// [`CarrierError::NoRandomness`].
    pub(super) fn token_key(&self) -> Result<Arc<dyn HandshakeTokenKey>, CarrierError> {
        let expander = self.hkdf.extract_from_secret(None, &self.random::<KEY_BYTES>()?);
        Ok(Arc::new(TokenKey { expander, seal: self.seal }))
    }
}

struct TokenKey {
    expander: Box<dyn HkdfExpander>,
    seal: &'static dyn Algorithm,
}

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn SealingKey> {
        let mut key = [0; KEY_BYTES];
        // It fails beyond 255 hashes (RFC 5869 §2.3).
        let expanded = self.expander.expand_slice(&[b"address token", random_bytes], &mut key);
        Box::new(TokenSeal {
            // Every token has a key of its own, which seals nothing else: the nonce need not differ.
            key: expanded.ok().map(|()| self.seal.packet_key(AeadKey::from(key), Iv::from([0; NONCE_LEN]))),
        })
    }
}

/// The key of one token; none where it could not be derived.
struct TokenSeal {
    key: Option<Box<dyn PacketKey>>,
}

impl SealingKey for TokenSeal {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let key = self.key.as_ref().ok_or(CryptoError)?;
        let tag = key.encrypt_in_place(0, additional_data, data).map_err(|_| CryptoError)?;
        data.extend_from_slice(tag.as_ref());
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let key = self.key.as_ref().ok_or(CryptoError)?;
        let opened = key.decrypt_in_place(0, additional_data, data).map_err(|_| CryptoError)?.len();
        data.get_mut(..opened).ok_or(CryptoError)
    }
}

#[cfg(test)]
mod tests {
    use quinn::rustls::crypto::{GetRandomFailed, SecureRandom, aws_lc_rs};

    use super::*;

    /// Gives one byte over and over, or nothing.
    #[derive(Debug)]
    struct Always(Option<u8>);

    impl SecureRandom for Always {
        fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
            buffer.fill(self.0.ok_or(GetRandomFailed)?);
            Ok(())
        }
    }

    fn drawing(random: &'static Always) -> Primitives {
        let provider = CryptoProvider { secure_random: random, ..aws_lc_rs::default_provider() };
        Primitives::of(&Arc::new(provider)).unwrap()
    }

    #[test]
    fn tokens_open_by_the_key_that_was_drawn_whole_and_under_their_own_number() {
        let key = |random| drawing(random).token_key().unwrap();
        let (one, same, other) = (key(&Always(Some(1))), key(&Always(Some(1))), key(&Always(Some(2))));
        let mut token = b"203.0.113.9".to_vec();
        one.aead_from_hkdf(&[7; 16]).seal(&mut token, &[]).unwrap();
        assert!(token.len() == 11 + 16 && !token.starts_with(b"203"));
        let opens = |key: &Arc<dyn HandshakeTokenKey>, number: u8, token: &[u8]| {
            let mut token = token.to_vec();
            let key = key.aead_from_hkdf(&[number; 16]);
            key.open(&mut token, &[]).ok().map(|text| text.to_vec())
        };
        assert_eq!(opens(&one, 7, &token).as_deref(), Some(b"203.0.113.9".as_slice()));
        assert_eq!(opens(&same, 7, &token).as_deref(), Some(b"203.0.113.9".as_slice()));
        assert_eq!(opens(&other, 7, &token), None);
        assert_eq!(opens(&one, 8, &token), None);
        for at in 0..token.len() {
            assert_eq!(opens(&one, 7, &token[..at]), None, "cut at {at}");
            let mut damaged = token.clone();
            damaged[at] ^= 1;
            assert_eq!(opens(&one, 7, &damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_provider_without_randomness_or_without_a_cipher_is_refused() {
        let none = drawing(&Always(None));
        assert!(matches!(none.random::<1>(), Err(CarrierError::NoRandomness)));
        assert!(matches!(none.token_key(), Err(CarrierError::NoRandomness)));
        assert!(matches!(none.sealer(), Err(CarrierError::NoRandomness)));
        assert!(matches!(none.first_name(), Err(CarrierError::NoRandomness)));
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
        assert!(matches!(Primitives::of(&Arc::new(provider)), Err(CarrierError::Unfit(_))));
    }
}
