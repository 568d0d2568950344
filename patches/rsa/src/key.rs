//! Keys, of which only the public half is kept.

use crypto_bigint::{BoxedUint, NonZero};
use rand_core::CryptoRng;
use zeroize::Zeroize;

use crate::errors::{Error, Result};
use crate::traits::{PrivateKeyParts, PublicKeyParts};

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RsaPublicKey {
    n: NonZero<BoxedUint>,
    e: BoxedUint,
}

impl RsaPublicKey {
    /// From modulus and exponent. Whether they are those of a key that may be used is for the backend to say.
    ///
    /// # Errors
    /// [`Error::Refused`] for the modulus 0.
    pub fn new(n: BoxedUint, e: BoxedUint) -> Result<Self> {
        let n = NonZero::new(n).into_option().ok_or(Error::Refused)?;
        Ok(Self { n, e })
    }

    /// The modulus, big endian without leading zeros.
    #[must_use]
    pub fn n_bytes(&self) -> Vec<u8> {
        digits(&self.n)
    }

    /// The public exponent, big endian without leading zeros.
    #[must_use]
    pub fn e_bytes(&self) -> Vec<u8> {
        digits(&self.e)
    }
}

fn digits(number: &BoxedUint) -> Vec<u8> {
    number.to_be_bytes().iter().copied().skip_while(|byte| *byte == 0).collect()
}

impl PublicKeyParts for RsaPublicKey {
    fn n(&self) -> &NonZero<BoxedUint> {
        &self.n
    }

    fn e(&self) -> &BoxedUint {
        &self.e
    }
}

/// Stands for a private key that the backend knows by its public half.
#[derive(Debug, Clone)]
pub struct RsaPrivateKey {
    public: RsaPublicKey,
    none: BoxedUint,
}

impl RsaPrivateKey {
    /// Keys are not made here.
    ///
    /// # Errors
    /// [`Error::NotHere`], always.
    pub fn new<R: CryptoRng + ?Sized>(_: &mut R, _: usize) -> Result<Self> {
        Err(Error::NotHere)
    }

    /// Takes the public parts and wipes the others.
    ///
    /// # Errors
    /// As [`RsaPublicKey::new`].
    pub fn from_components(
        n: BoxedUint,
        e: BoxedUint,
        mut d: BoxedUint,
        mut primes: Vec<BoxedUint>,
    ) -> Result<Self> {
        d.zeroize();
        primes.iter_mut().for_each(Zeroize::zeroize);
        Ok(Self { public: RsaPublicKey::new(n, e)?, none: BoxedUint::zero() })
    }

    /// The public half.
    #[must_use]
    pub fn to_public_key(&self) -> RsaPublicKey {
        self.public.clone()
    }

    pub(crate) fn public(&self) -> &RsaPublicKey {
        &self.public
    }
}

impl PublicKeyParts for RsaPrivateKey {
    fn n(&self) -> &NonZero<BoxedUint> {
        &self.public.n
    }

    fn e(&self) -> &BoxedUint {
        &self.public.e
    }
}

/// ssh-key asks for these when it turns a key of this crate into one of its own, which has no use here: without a
/// coefficient it gives up.
impl PrivateKeyParts for RsaPrivateKey {
    fn d(&self) -> &BoxedUint {
        &self.none
    }

    fn primes(&self) -> &[BoxedUint] {
        &[]
    }

    fn crt_coefficient(&self) -> Option<BoxedUint> {
        None
    }
}

impl pkcs8::EncodePrivateKey for RsaPrivateKey {
    fn to_pkcs8_der(&self) -> pkcs8::Result<pkcs8::SecretDocument> {
        Err(pkcs8::Error::KeyMalformed(pkcs8::KeyError::Invalid))
    }
}

impl pkcs1::DecodeRsaPrivateKey for RsaPrivateKey {
    fn from_pkcs1_der(_: &[u8]) -> pkcs1::Result<Self> {
        Err(pkcs1::Error::Crypto)
    }
}
