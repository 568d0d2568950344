//! SEC1 (RFC 5915): ECDSA keys and nothing else.

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetStringRef};
use der::{Decode as _, Header, Reader as _, SliceReader, Tag, TagNumber, Tagged as _};
use zeroize::Zeroizing;

pub use super::ec::encode;
pub(crate) use super::ec::encode_inner;
use super::error::FormatError;
use super::{identifier, proof};
use crate::{KeyAlgorithm, PrivateKeyMaterial};

pub(super) const LABEL: &str = "EC PRIVATE KEY";
pub(super) const NAME: &str = "SEC1 private key";

/// Reads the DER of an `ECPrivateKey` that names its curve.
///
/// # Errors
/// [`FormatError`] for other curves than P-256, P-384 and P-521, for curves spelled out in parameters, and for halves
/// that do not belong together.
pub fn decode(der: &[u8]) -> Result<PrivateKeyMaterial, FormatError> {
    decode_inside(NAME, der, None, None)
}

/// `ECPrivateKey`.
struct Private<'a> {
    scalar: &'a [u8],
    parameters: Option<AnyRef<'a>>,
    point: Option<&'a [u8]>,
}

impl<'a> Private<'a> {
    fn read(der: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        let read = reader.sequence(|reader: &mut SliceReader<'a>| -> der::Result<Self> {
            if reader.decode::<u8>()? != 1 {
                return Err(Tag::Integer.value_error().into());
            }
            let scalar = reader.decode::<&OctetStringRef>()?.as_bytes();
            let parameters = explicit(reader, 0)?;
            let point = match explicit(reader, 1)? {
                None => None,
                Some(bits) => {
                    let bits = bits.decode_as::<BitStringRef<'_>>()?;
                    Some(bits.as_bytes().ok_or_else(|| Tag::BitString.value_error())?)
                }
            };
            Ok(Self { scalar, parameters, point })
        })?;
        reader.finish()?;
        Ok(read)
    }
}

/// Reads an `ECPrivateKey`. Inside PKCS#8 the curve is known from outside, and there may be a public half there too.
pub(super) fn decode_inside(
    format: &'static str,
    der: &[u8],
    outside: Option<KeyAlgorithm>,
    public: Option<&[u8]>,
) -> Result<PrivateKeyMaterial, FormatError> {
    let key = Private::read(der).map_err(FormatError::der(format))?;
    let named = match key.parameters {
        None => None,
        Some(parameters) => Some(curve_of(format, parameters)?),
    };
    let algorithm = match (outside, named) {
        (Some(outside), Some(named)) if outside != named => {
            return Err(FormatError::malformed(
                format,
                format!("it is of type {outside} on the outside and {named} inside"),
            ));
        }
        (Some(algorithm), _) | (None, Some(algorithm)) => algorithm,
        (None, None) => return Err(FormatError::malformed(format, "it does not name its curve")),
    };
    let expected = algorithm.secret_bytes().unwrap_or_default();
    if key.scalar.len() != expected {
        return Err(FormatError::malformed(
            format,
            format!("a private scalar of {} bytes, expected {expected} (RFC 5915 §3)", key.scalar.len()),
        ));
    }
    proof::assemble(format, algorithm, Zeroizing::new(key.scalar.to_vec()), &[key.point, public])
}

/// The parameters are a CHOICE, of which RFC 5480 §2.1.1 allows the name alone.
fn curve_of(format: &'static str, parameters: AnyRef<'_>) -> Result<KeyAlgorithm, FormatError> {
    let found = match parameters.tag() {
        Tag::ObjectIdentifier => {
            let oid = parameters.decode_as::<ObjectIdentifier>().map_err(FormatError::der(format))?;
            match identifier::curve(oid) {
                Some(algorithm) => return Ok(algorithm),
                None => format!("a key on {}", identifier::describe(oid)),
            }
        }
        _ => identifier::SPELLED_OUT.to_owned(),
    };
    Err(FormatError::UnsupportedKey { format, found, expected: "P-256, P-384 or P-521".to_owned() })
}

/// What is inside an element with an explicit context tag, if that comes next.
fn explicit<'a>(reader: &mut SliceReader<'a>, number: u32) -> der::Result<Option<AnyRef<'a>>> {
    let tag = Tag::ContextSpecific { constructed: true, number: TagNumber(number) };
    if reader.is_finished() || Header::peek(reader)?.tag() != tag {
        return Ok(None);
    }
    AnyRef::from_der(reader.decode::<AnyRef<'_>>()?.value()).map(Some)
}
