//! The numbers of RSA keys, as PKCS#1 (RFC 8017 appendix A.1) writes them and every other format holds them.

use der::asn1::UintRef;
use der::{Decode as _, DecodeValue, Encode, EncodeValue, Header, Length, Reader, Sequence, Writer};
use zeroize::Zeroizing;

use super::error::FormatError;
use super::format::Accept;
use crate::{KeyAlgorithm, PrivateKeyMaterial};

pub(super) const NAME: &str = "PKCS#1 RSA private key";
pub(super) const PRIVATE_SIZES: &str = "2048, 3072 or 4096 bits";
const PUBLIC_SIZES: &str = "2048, 3072, 4096 or 8192 bits";

/// `RSAPublicKey`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Public<'a> {
    pub(super) n: UintRef<'a>,
    pub(super) e: UintRef<'a>,
}

impl<'a> Public<'a> {
    /// Reads its DER.
    pub(super) fn of(format: &'static str, der: &'a [u8]) -> Result<Self, FormatError> {
        Self::from_der(der).map_err(FormatError::der(format))
    }

    /// From two big-endian numbers.
    pub(super) fn new(format: &'static str, n: &'a [u8], e: &'a [u8]) -> Result<Self, FormatError> {
        Ok(Self { n: number(format, n)?, e: number(format, e)? })
    }

    /// The key's type, if a public key of that size is taken.
    pub(super) fn accept(&self, format: &'static str, accept: Accept) -> Result<KeyAlgorithm, FormatError> {
        match (self.algorithm(format, PUBLIC_SIZES)?, accept) {
            (KeyAlgorithm::Rsa1024, Accept::Production) => Err(self.wrong_size(format, PUBLIC_SIZES)),
            (algorithm, _) => Ok(algorithm),
        }
    }

    /// The key's type and its DER.
    pub(super) fn finish(
        &self,
        format: &'static str,
        accept: Accept,
    ) -> Result<(KeyAlgorithm, Vec<u8>), FormatError> {
        Ok((self.accept(format, accept)?, self.to_vec()?))
    }

    /// Its DER.
    pub(super) fn to_vec(self) -> Result<Vec<u8>, FormatError> {
        self.to_der().map_err(|_| FormatError::Provider { operation: "write an RSA public key" })
    }

    /// The key's type, if it is one of ours.
    pub(super) fn algorithm(&self, format: &'static str, sizes: &str) -> Result<KeyAlgorithm, FormatError> {
        let algorithm = KeyAlgorithm::rsa(bits(self.n)).ok_or_else(|| self.wrong_size(format, sizes))?;
        if !is_odd(self.n) {
            return Err(FormatError::malformed(format, "the RSA modulus is even"));
        }
        // An even exponent has no inverse, 1 does not encrypt, and a long one makes verifying as slow as signing.
        if !is_odd(self.e) || self.e.as_bytes() == [1] || bits(self.e) > 32 {
            return Err(FormatError::UnsupportedKey {
                format,
                found: format!("an RSA public exponent of {} bits that is {}", bits(self.e), parity(self.e)),
                expected: "65537, or another odd number from 3 to 2^32".to_owned(),
            });
        }
        Ok(algorithm)
    }

    pub(super) fn wrong_size(&self, format: &'static str, sizes: &str) -> FormatError {
        FormatError::UnsupportedKey {
            format,
            found: format!("an RSA key of {} bits", bits(self.n)),
            expected: sizes.to_owned(),
        }
    }
}

impl<'a> DecodeValue<'a> for Public<'a> {
    type Error = der::Error;
    fn decode_value<R: Reader<'a>>(reader: &mut R, _: Header) -> der::Result<Self> {
        Ok(Self { n: reader.decode()?, e: reader.decode()? })
    }
}

impl EncodeValue for Public<'_> {
    fn value_len(&self) -> der::Result<Length> {
        self.n.encoded_len()? + self.e.encoded_len()?
    }
    fn encode_value(&self, writer: &mut impl Writer) -> der::Result<()> {
        self.n.encode(writer)?;
        self.e.encode(writer)
    }
}

impl Sequence<'_> for Public<'_> {}

/// `RSAPrivateKey` of two primes. It borrows, so that it has nothing to wipe.
pub(super) struct Private<'a> {
    pub(super) public: Public<'a>,
    /// The private exponent.
    pub(super) d: UintRef<'a>,
    /// The first prime.
    pub(super) p: UintRef<'a>,
    /// The second prime.
    pub(super) q: UintRef<'a>,
    /// d mod (p - 1).
    pub(super) dp: UintRef<'a>,
    /// d mod (q - 1).
    pub(super) dq: UintRef<'a>,
    /// The inverse of q mod p.
    pub(super) qi: UintRef<'a>,
}

impl<'a> Private<'a> {
    /// Reads its DER.
    pub(super) fn read(format: &'static str, der: &'a [u8]) -> Result<Self, FormatError> {
        Self::from_der(der).map_err(FormatError::der(format))
    }

    /// Reads the secret half of an RSA key.
    pub(super) fn of(key: &'a PrivateKeyMaterial) -> Result<Self, FormatError> {
        Self::read(NAME, key.secret())
    }

    /// Its DER. The buffer has its full length from the start, so that it leaves nothing where it was.
    pub(super) fn to_vec(&self) -> Result<Zeroizing<Vec<u8>>, FormatError> {
        self.to_der()
            .map(Zeroizing::new)
            .map_err(|_| FormatError::Provider { operation: "write an RSA private key" })
    }
}

impl<'a> DecodeValue<'a> for Private<'a> {
    type Error = der::Error;
    fn decode_value<R: Reader<'a>>(reader: &mut R, header: Header) -> der::Result<Self> {
        // 0 for two primes; 1, for more of them, is not in use (RFC 8017 appendix A.1.2).
        if u8::decode(reader)? != 0 {
            return Err(reader.error(header.tag().value_error()));
        }
        Ok(Self {
            public: Public { n: reader.decode()?, e: reader.decode()? },
            d: reader.decode()?,
            p: reader.decode()?,
            q: reader.decode()?,
            dp: reader.decode()?,
            dq: reader.decode()?,
            qi: reader.decode()?,
        })
    }
}

impl EncodeValue for Private<'_> {
    fn value_len(&self) -> der::Result<Length> {
        let rest = [self.d, self.p, self.q, self.dp, self.dq, self.qi];
        rest.iter().try_fold((0u8.encoded_len()? + self.public.value_len()?)?, |sum, number| {
            sum + number.encoded_len()?
        })
    }
    fn encode_value(&self, writer: &mut impl Writer) -> der::Result<()> {
        0u8.encode(writer)?;
        self.public.encode_value(writer)?;
        [self.d, self.p, self.q, self.dp, self.dq, self.qi].iter().try_for_each(|one| one.encode(writer))
    }
}

impl Sequence<'_> for Private<'_> {}

/// A big-endian number, with or without leading zeros.
pub(super) fn number<'a>(format: &'static str, bytes: &'a [u8]) -> Result<UintRef<'a>, FormatError> {
    UintRef::new(bytes).map_err(FormatError::der(format))
}

fn bits(number: UintRef<'_>) -> usize {
    let bytes = number.as_bytes();
    let leading = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
    bytes.len() * 8 - leading
}

fn is_odd(number: UintRef<'_>) -> bool {
    number.as_bytes().last().is_some_and(|last| last & 1 == 1)
}

fn parity(number: UintRef<'_>) -> &'static str {
    if is_odd(number) { "odd" } else { "even" }
}
