//! Hybrid public key encryption (RFC 9180): base mode with AES-256-GCM and HKDF-SHA256, and as KEM DHKEM(X25519, HKDF-SHA256)
//! or, where everything must be approved under FIPS 140-3, DHKEM(P-256, HKDF-SHA256).
//!
//! Anyone with the public key can seal; only the holder of the private key can open. Nodes seal the keys of their
//! recordings with it, so that a stolen node gives no recording away. A public key says by its length of which KEM it is, and so
//! does what is sealed to it.

use std::fmt;

use zeroize::Zeroizing;

use crate::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm};
use crate::hash::{Hmac, expand};
use crate::provider::AeadKey;
use crate::selection::{self, Mode, RunError};
use crate::{Primitive, SalError, aead, random, strict};

/// The longest public key, in bytes: an uncompressed point of P-256.
const MOST_PUBLIC_BYTES: usize = 65;
/// Length of a private key, in bytes, of either KEM.
const PRIVATE_KEY_BYTES: usize = 32;
/// What marks a private key of P-256 among the stored ones: the identifier of its KEM (RFC 9180 §7.1). Those of X25519, which
/// were there first, have no mark.
const P256_MARK: [u8; 2] = [0, 0x10];

/// The cipher of what is sealed.
const AEAD: AeadAlgorithm = AeadAlgorithm::Aes256Gcm;

/// How a key for a message is agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kem {
    /// DHKEM(X25519, HKDF-SHA256).
    X25519,
    /// DHKEM(P-256, HKDF-SHA256): approved under FIPS 140-3.
    P256,
}

impl Kem {
    /// Every one.
    pub const ALL: &[Self] = &[Self::X25519, Self::P256];

    /// The one that this process makes keys of and has others seal to, by the policy of its selection.
    #[must_use]
    pub fn preferred() -> Self {
        Self::under(&selection::global().policy().mode)
    }

    fn under(mode: &Mode) -> Self {
        if matches!(mode, Mode::Fips) { Self::P256 } else { Self::X25519 }
    }

    /// Its name in logs and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::P256 => "p256",
        }
    }

    const fn group(self) -> DhGroup {
        match self {
            Self::X25519 => DhGroup::X25519,
            Self::P256 => DhGroup::P256,
        }
    }

    /// RFC 9180 §7.1.
    const fn identifier(self) -> [u8; 2] {
        match self {
            Self::X25519 => [0, 0x20],
            Self::P256 => P256_MARK,
        }
    }

    /// Of a public key and of an encapsulated one.
    const fn public_bytes(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::P256 => MOST_PUBLIC_BYTES,
        }
    }
}

/// The public half, for those who seal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecipientPublic {
    kem: Kem,
    bytes: [u8; MOST_PUBLIC_BYTES],
}

impl RecipientPublic {
    /// Reads 32 bytes of X25519 or the 65 of an uncompressed point of P-256.
    ///
    /// # Errors
    /// [`SalError::BadPublicKey`] when there is another number of them, or they are not such a point.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SalError> {
        let refused = |reason: &str| SalError::BadPublicKey { reason: reason.to_owned() };
        let kem = Kem::ALL.iter().copied().find(|kem| kem.public_bytes() == bytes.len());
        let kem = kem.ok_or_else(|| refused("it has neither the 32 bytes of X25519 nor the 65 of P-256"))?;
        strict::check_share(kem.group(), bytes).map_err(|_| refused("it is no point of its curve"))?;
        let mut held = [0; MOST_PUBLIC_BYTES];
        for (to, from) in held.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(Self { kem, bytes: held })
    }

    /// What [`RecipientPublic::from_bytes`] reads.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.kem.public_bytes()).unwrap_or_default()
    }

    /// Of which KEM it is.
    #[must_use]
    pub fn kem(&self) -> Kem {
        self.kem
    }
}

impl fmt::Debug for RecipientPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kem.name(), data_encoding::HEXLOWER.encode(self.as_bytes()))
    }
}

/// The private half: opens what was sealed to its public key.
pub struct RecipientKey {
    private: Zeroizing<[u8; PRIVATE_KEY_BYTES]>,
    public: RecipientPublic,
}

impl RecipientKey {
    /// Makes a fresh key.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness, [`SalError::NoSource`] where the policy leaves none that has the KEM.
    pub fn generate(kem: Kem) -> Result<Self, SalError> {
        match kem {
            Kem::X25519 => Self::of(kem, Zeroizing::new(random::bytes()?)),
            Kem::P256 => {
                // The module's own generator of keys, which rejects what is no scalar.
                let made = selection::global().generate_key(KeyAlgorithm::EcdsaP256)?;
                Self::of(kem, scalar(made.secret())?)
            }
        }
    }

    /// Reads what [`RecipientKey::to_bytes`] gives.
    ///
    /// # Errors
    /// [`SalError::BadPrivateKey`] when it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SalError> {
        match bytes.strip_prefix(&P256_MARK) {
            Some(rest) if rest.len() == PRIVATE_KEY_BYTES => Self::of(Kem::P256, scalar(rest)?),
            _ => Self::of(Kem::X25519, scalar(bytes)?),
        }
    }

    fn of(kem: Kem, private: Zeroizing<[u8; PRIVATE_KEY_BYTES]>) -> Result<Self, SalError> {
        let share = selection::global().kept_share(kem.group(), private.as_slice())?;
        Ok(Self { private, public: RecipientPublic::from_bytes(&share)? })
    }

    /// The private key: for X25519 raw, for P-256 behind a mark.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mark = match self.public.kem {
            Kem::X25519 => [].as_slice(),
            Kem::P256 => P256_MARK.as_slice(),
        };
        Zeroizing::new([mark, self.private.as_slice()].concat())
    }

    /// The public key, for those who seal.
    #[must_use]
    pub fn public(&self) -> RecipientPublic {
        self.public
    }

    /// Opens a message that [`seal`] made. `info` and `aad` must be what they were.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`] when anything is not as it was, or it was sealed to another key.
    pub fn open(&self, info: &[u8], aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SalError> {
        self.open_by(AEAD, info, aad, sealed)
            .ok_or_else(|| SalError::Undecryptable { what: "a message sealed to a public key".to_owned() })
    }

    /// `Decap` (RFC 9180 §4.1) and `ContextR.Open` (§5.2).
    fn open_by(
        &self,
        algorithm: AeadAlgorithm,
        info: &[u8],
        aad: &[u8],
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let kem = self.public.kem;
        let (encapsulated, body) = sealed.split_at_checked(kem.public_bytes())?;
        let (ciphertext, tag) = body.split_last_chunk::<{ aead::TAG_BYTES }>()?;
        let dh =
            selection::global().kept_agreement(kem.group(), self.private.as_slice(), encapsulated).ok()?;
        let to = self.public.as_bytes();
        let (key, nonce) = schedule(kem, algorithm, dh.as_bytes(), encapsulated, to, info).ok()?;
        let mut plaintext = Zeroizing::new(ciphertext.to_vec());
        key.open(&nonce, aad, &mut plaintext, tag).ok()?;
        Some(plaintext)
    }
}

fn scalar(bytes: &[u8]) -> Result<Zeroizing<[u8; PRIVATE_KEY_BYTES]>, SalError> {
    let read = bytes.try_into().map(Zeroizing::new);
    read.map_err(|_| SalError::BadPrivateKey {
        reason: format!("a key that opens what is sealed has {PRIVATE_KEY_BYTES} bytes"),
    })
}

impl fmt::Debug for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecipientKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The private keys of one recipient: what was sealed to any of them opens.
#[derive(Debug)]
pub struct RecipientKeys {
    first: RecipientKey,
    others: Vec<RecipientKey>,
}

impl RecipientKeys {
    /// One or more.
    #[must_use]
    pub fn new(first: RecipientKey, others: Vec<RecipientKey>) -> Self {
        Self { first, others }
    }

    /// One more.
    pub fn add(&mut self, key: RecipientKey) {
        self.others.push(key);
    }

    /// One fresh key alone.
    ///
    /// # Errors
    /// As [`RecipientKey::generate`].
    pub fn generate(kem: Kem) -> Result<Self, SalError> {
        Ok(Self::new(RecipientKey::generate(kem)?, Vec::new()))
    }

    /// The public half that others are to seal to: of [`Kem::preferred`] where there is one, else the first.
    #[must_use]
    pub fn public(&self) -> RecipientPublic {
        self.public_of(Kem::preferred())
    }

    fn public_of(&self, preferred: Kem) -> RecipientPublic {
        let preferred = self.all().find(|key| key.public.kem == preferred);
        preferred.unwrap_or(&self.first).public()
    }

    fn all(&self) -> impl Iterator<Item = &RecipientKey> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// As [`RecipientKey::open`], by whichever of the keys it was sealed to.
    ///
    /// # Errors
    /// As [`RecipientKey::open`].
    pub fn open(&self, info: &[u8], aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SalError> {
        let opened = self.all().find_map(|key| key.open(info, aad, sealed).ok());
        opened.ok_or_else(|| SalError::Undecryptable { what: "a message sealed to a public key".to_owned() })
    }
}

/// Seals a message to a public key. `info` names what the message is for, `aad` what it belongs to; both are
/// authenticated and neither is stored. The result is the encapsulated key (as long as the public one), the ciphertext and the tag
/// (16 bytes).
///
/// # Errors
/// [`SalError::BadPublicKey`] when the key is a point of low order or none, [`SalError::NoSource`] where the policy leaves no
/// source of its KEM.
pub fn seal(to: &RecipientPublic, info: &[u8], aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SalError> {
    let refused = |reason: &str| SalError::BadPublicKey { reason: reason.to_owned() };
    let group = to.kem.group();
    let (encapsulated, dh) = selection::global()
        .run(Primitive::Agree(group), |provider| {
            let side = provider.start_agreement(group)?;
            Ok((side.share().to_vec(), side.finish(to.as_bytes())?))
        })
        .map_err(|error| {
            error.into_sal(|_| refused("no secret comes of it: it has low order or is no point"))
        })?;
    let (key, nonce) = schedule(to.kem, AEAD, dh.as_bytes(), &encapsulated, to.as_bytes(), info)?;
    let mut sealed = Vec::with_capacity(encapsulated.len() + plaintext.len() + aead::TAG_BYTES);
    sealed.extend_from_slice(&encapsulated);
    sealed.extend_from_slice(plaintext);
    let failed = SalError::Provider { operation: "encrypt" };
    let Some(body) = sealed.get_mut(encapsulated.len()..) else { return Err(failed) };
    let tag = key.seal(&nonce, aad, body).map_err(|_| failed)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

type Schedule = (Box<dyn AeadKey>, [u8; aead::NONCE_BYTES]);

/// `ExtractAndExpand` of the KEM (RFC 9180 §4.1) and `KeySchedule` in base mode (§5.1): key and nonce of the one message.
fn schedule(
    kem: Kem,
    algorithm: AeadAlgorithm,
    dh: &[u8],
    encapsulated: &[u8],
    recipient: &[u8],
    info: &[u8],
) -> Result<Schedule, SalError> {
    // Identifiers of §7.1, §7.2 and §7.3: the KEM, HKDF-SHA256 and the AEAD.
    let aead: u8 = match algorithm {
        AeadAlgorithm::Aes128Gcm => 1,
        AeadAlgorithm::Aes256Gcm => 2,
        AeadAlgorithm::ChaCha20Poly1305 => 3,
    };
    let identifier = kem.identifier();
    let kem = Labels([b"KEM".as_slice(), &identifier].concat());
    let suite = Labels([b"HPKE".as_slice(), &identifier, b"\x00\x01\x00", &[aead]].concat());

    let pseudorandom = kem.extract(b"", "eae_prk", dh)?;
    let mut shared = Zeroizing::new([0; 32]);
    kem.expand(&*pseudorandom, "shared_secret", &[encapsulated, recipient].concat(), shared.as_mut())?;

    let context = [
        &[0],
        suite.extract(b"", "psk_id_hash", b"")?.as_slice(),
        suite.extract(b"", "info_hash", info)?.as_slice(),
    ]
    .concat();
    let secret = suite.extract(shared.as_slice(), "secret", b"")?;
    let mut key = Zeroizing::new(vec![0; algorithm.key_bytes()]);
    suite.expand(&*secret, "key", &context, &mut key)?;
    let mut nonce = [0; aead::NONCE_BYTES];
    suite.expand(&*secret, "base_nonce", &context, &mut nonce)?;
    let key = selection::global()
        .run(Primitive::Aead(algorithm), |provider| provider.aead(algorithm, &key))
        .map_err(|error: RunError| error.into_sal(|_| SalError::Provider { operation: "set up a cipher" }))?;
    Ok((key, nonce))
}

/// `LabeledExtract` and `LabeledExpand` under one suite identifier (RFC 9180 §4).
struct Labels(Vec<u8>);

impl Labels {
    fn extract(&self, salt: &[u8], label: &str, secret: &[u8]) -> Result<Zeroizing<[u8; 32]>, SalError> {
        let mut out = Zeroizing::new([0; 32]);
        let salt = if salt.is_empty() { &[0; 32] } else { salt };
        let parts: [&[u8]; 4] = [b"HPKE-v1", &self.0, label.as_bytes(), secret];
        Hmac::new(HashAlgorithm::Sha256, salt)?.sign(&parts, out.as_mut());
        Ok(out)
    }

    fn expand(&self, pseudorandom: &[u8], label: &str, info: &[u8], out: &mut [u8]) -> Result<(), SalError> {
        let length = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
        let info = [length.as_slice(), b"HPKE-v1", &self.0, label.as_bytes(), info].concat();
        expand(HashAlgorithm::Sha256, pseudorandom, &info, out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use rustls::crypto::aws_lc_rs::hpke::{
        DH_KEM_P256_HKDF_SHA256_AES_256, DH_KEM_X25519_HKDF_SHA256_AES_256,
    };
    use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
    }

    const INFO: &str = "4f6465206f6e2061204772656369616e2055726e";
    const AAD: &str = "436f756e742d30";
    const PLAINTEXT: &str = "4265617574792069732074727574682c20747275746820626561757479";

    /// The inputs of RFC 9180 §A.1.1 under our AEAD, which appendix A does not print for this KEM. The ciphertext was
    /// computed by a separate implementation of §4.1 and §5.1 in Python, which gives that of §A.1.1 for AES-128-GCM.
    #[test]
    fn opens_a_vector_computed_elsewhere() {
        let key = RecipientKey::from_bytes(&hex(
            "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        ))
        .unwrap();
        assert_eq!(
            key.public().as_bytes(),
            hex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
        );
        let sealed = hex(concat!(
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
            "090b7dc225419f7da9e8b460becfbb96a26c7964d79b8010d397fa838530a32a",
            "397b14f5776db19ff5e57734e0"
        ));
        assert_eq!(key.open(&hex(INFO), &hex(AAD), &sealed).unwrap().as_slice(), hex(PLAINTEXT));
    }

    /// RFC 9180 §A.1.1, the base mode with the same KEM and KDF that the appendix does print, for AES-128-GCM.
    #[test]
    fn the_key_schedule_opens_the_vector_in_the_appendix() {
        let key = RecipientKey::from_bytes(&hex(
            "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        ))
        .unwrap();
        let sealed = hex(concat!(
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
            "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9",
            "6d8770ac83d07bea87e13c512a"
        ));
        let opened = key.open_by(AeadAlgorithm::Aes128Gcm, &hex(INFO), &hex(AAD), &sealed).unwrap();
        assert_eq!(opened.as_slice(), hex(PLAINTEXT));
    }

    /// RFC 9180 §A.3.1: the same for P-256.
    #[test]
    fn the_key_schedule_opens_the_vector_for_p256() {
        let private = hex("f3ce7fdae57e1a310d87f1ebbde6f328be0a99cdbcadf4d6589cf29de4b8ffd2");
        let key = RecipientKey::from_bytes(&[P256_MARK.as_slice(), &private].concat()).unwrap();
        let public = concat!(
            "04fe8c19ce0905191ebc298a9245792531f26f0cece2460639e8bc39cb7f706a826a779b4cf969b8a0e539c7f62fb3d30ad6aa8f80e30f1d",
            "128aafd68a2ce72ea0"
        );
        assert_eq!(key.public().as_bytes(), hex(public));
        let sealed = hex(concat!(
            "04a92719c6195d5085104f469a8b9814d5838ff72b60501e2c4466e5e67b325ac98536d7b61a1af4b78e5b7f951c0900be863c403ce65c9b",
            "fcb9382657222d18c4",
            "5ad590bb8baa577f8619db35a36311226a896e7342a6d836d8b7bcd2f20b6c7f9076ac232e3ab2523f39513434"
        ));
        let opened = key.open_by(AeadAlgorithm::Aes128Gcm, &hex(INFO), &hex(AAD), &sealed).unwrap();
        assert_eq!(opened.as_slice(), hex(PLAINTEXT));
    }

    #[test]
    fn another_implementation_opens_what_we_seal_and_the_other_way_round() {
        let foreign: [(Kem, &dyn Hpke); 2] =
            [(Kem::X25519, DH_KEM_X25519_HKDF_SHA256_AES_256), (Kem::P256, DH_KEM_P256_HKDF_SHA256_AES_256)];
        for (kem, foreign) in foreign {
            let key = RecipientKey::generate(kem).unwrap();
            let public = key.public();
            let sealed = seal(&public, b"info", b"aad", b"secret").unwrap();
            let (encapsulated, body) = sealed.split_at(public.as_bytes().len());
            let private = HpkePrivateKey::from(key.private.to_vec());
            let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
            assert_eq!(foreign.open(&encapsulated, b"info", b"aad", body, &private).unwrap(), b"secret");

            let public = HpkePublicKey(public.as_bytes().to_vec());
            let (encapsulated, body) = foreign.seal(b"info", b"aad", b"secret", &public).unwrap();
            let sealed = [encapsulated.0, body].concat();
            assert_eq!(key.open(b"info", b"aad", &sealed).unwrap().as_slice(), b"secret");
        }
    }

    #[test]
    fn what_is_sealed_opens_only_whole_by_its_recipient_and_in_its_context() {
        for kem in Kem::ALL.iter().copied() {
            let key = RecipientKey::generate(kem).unwrap();
            let sealed = seal(&key.public(), b"info", b"aad", b"secret").unwrap();
            assert_eq!(sealed.len(), b"secret".len() + key.public().as_bytes().len() + aead::TAG_BYTES);
            let again = RecipientKey::from_bytes(&key.to_bytes()).unwrap();
            assert_eq!(again.public(), key.public());
            assert_eq!(RecipientPublic::from_bytes(key.public().as_bytes()).unwrap(), key.public());
            assert_eq!(again.open(b"info", b"aad", &sealed).unwrap().as_slice(), b"secret");
            assert!(key.open(b"Info", b"aad", &sealed).is_err());
            assert!(key.open(b"info", b"aaD", &sealed).is_err());
            assert!(RecipientKey::generate(kem).unwrap().open(b"info", b"aad", &sealed).is_err());
            for at in 0..sealed.len() {
                let mut damaged = sealed.clone();
                damaged[at] ^= 0x01;
                assert!(key.open(b"info", b"aad", &damaged).is_err(), "byte {at}");
                assert!(key.open(b"info", b"aad", &sealed[..at]).is_err(), "cut at {at}");
            }
            assert_ne!(sealed, seal(&key.public(), b"info", b"aad", b"secret").unwrap());
        }
    }

    #[test]
    fn a_recipient_whose_key_has_changed_opens_what_was_sealed_to_either() {
        let [old, new] = Kem::ALL else { panic!("two of them") };
        let (old, new) = (RecipientKey::generate(*old).unwrap(), RecipientKey::generate(*new).unwrap());
        let sealed = [&old, &new].map(|key| seal(&key.public(), b"", b"aad", b"secret").unwrap());
        let stranger = RecipientKey::generate(Kem::P256).unwrap();
        let lost = seal(&stranger.public(), b"", b"aad", b"secret").unwrap();
        let keys = RecipientKeys::new(old, vec![new]);
        let under = |mode| keys.public_of(Kem::under(&mode)).kem();
        assert_eq!((under(Mode::Fips), under(Mode::Preset)), (Kem::P256, Kem::X25519));
        let alone = RecipientKeys::generate(Kem::X25519).unwrap();
        assert_eq!(alone.public_of(Kem::P256).kem(), Kem::X25519);
        for sealed in sealed {
            assert_eq!(keys.open(b"", b"aad", &sealed).unwrap().as_slice(), b"secret");
        }
        assert!(keys.open(b"", b"aad", &lost).is_err());
    }

    #[test]
    fn bad_keys_are_refused_and_private_ones_do_not_show() {
        for (what, bytes) in [
            ("neither length", vec![1; 31]),
            ("a compressed point", [vec![2], vec![1; 32]].concat()),
            ("no point of the curve", [vec![4], vec![1; 64]].concat()),
            ("a point of low order", vec![0; 32]),
        ] {
            // What only the arithmetic shows is refused when something is sealed to it.
            let sealed = RecipientPublic::from_bytes(&bytes).and_then(|key| seal(&key, b"", b"", b""));
            assert!(matches!(sealed, Err(SalError::BadPublicKey { .. })), "{what}: {sealed:?}");
        }
        assert!(RecipientKey::from_bytes(&[P256_MARK.as_slice(), &[0; 32]].concat()).is_err(), "no scalar");
        assert!(RecipientKey::from_bytes(&[1; 31]).is_err());
        let key = RecipientKey::generate(Kem::X25519).unwrap();
        assert!(!format!("{key:?}").contains(&data_encoding::HEXLOWER.encode(&key.to_bytes())));
    }
}
