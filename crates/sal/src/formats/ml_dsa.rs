//! The private keys of ML-DSA in PKCS#8 (RFC 9881 §6): a seed, what follows from the seed, or both.

use ::ml_dsa::{ExpandedSigningKey, MlDsa44, MlDsa65, MlDsa87, MlDsaParams, Seed};
use der::asn1::OctetStringRef;
use der::{Decode as _, Header, Reader as _, SliceReader, Tag, TagNumber};
use zeroize::Zeroizing;

use super::error::FormatError;
use super::proof;
use crate::{KeyAlgorithm, PrivateKeyMaterial, constant_time_eq};

/// The tag of `seed [0] OCTET STRING`, implicit.
const SEED: Tag = Tag::ContextSpecific { constructed: false, number: TagNumber(0) };
/// That tag and the one length that there is.
const SEED_HEADER: [u8; 2] = [0x80, 32];

/// Reads the CHOICE. The expanded key alone is refused: the seed cannot be got back from it, and providers take seeds.
pub(super) fn decode(
    format: &'static str,
    algorithm: KeyAlgorithm,
    choice: &[u8],
    public: Option<&[u8]>,
) -> Result<PrivateKeyMaterial, FormatError> {
    let malformed = FormatError::der(format);
    let tag = SliceReader::new(choice).and_then(|reader| Header::peek(&reader)).map_err(&malformed)?.tag();
    let (seed, expanded) = match tag {
        SEED => {
            let seed = choice.strip_prefix(&SEED_HEADER).unwrap_or_default();
            (seed, None)
        }
        Tag::Sequence => {
            let mut reader = SliceReader::new(choice).map_err(&malformed)?;
            let both = reader.sequence(|reader| {
                Ok((
                    <&OctetStringRef>::decode(reader)?.as_bytes(),
                    <&OctetStringRef>::decode(reader)?.as_bytes(),
                ))
            });
            let (seed, expanded) = both.map_err(&malformed)?;
            reader.finish().map_err(&malformed)?;
            (seed, Some(expanded))
        }
        Tag::OctetString => {
            return Err(FormatError::UnsupportedKey {
                format,
                found: format!("the expanded form of an {algorithm} key without its seed"),
                expected: "the seed (RFC 9881 §6), from which the rest follows; write it out again where it was made"
                    .to_owned(),
            });
        }
        other => return Err(malformed(other.unexpected_error(Some(SEED)).into())),
    };
    if seed.len() != 32 {
        return Err(FormatError::malformed(format, "the seed does not have 32 bytes"));
    }
    let key = proof::assemble(format, algorithm, Zeroizing::new(seed.to_vec()), &[public])?;
    match expanded {
        Some(expanded) if !follows(algorithm, seed, expanded) => Err(FormatError::Inconsistent {
            format,
            algorithm,
            reason: "the expanded form does not follow from the seed".to_owned(),
        }),
        _ => Ok(key),
    }
}

/// Whether the expanded form is the one that the seed gives (FIPS 204 §6.1). RFC 9881 §8.1 wants it checked.
fn follows(algorithm: KeyAlgorithm, seed: &[u8], expanded: &[u8]) -> bool {
    match algorithm {
        KeyAlgorithm::MlDsa44 => expands_to::<MlDsa44>(seed, expanded),
        KeyAlgorithm::MlDsa65 => expands_to::<MlDsa65>(seed, expanded),
        KeyAlgorithm::MlDsa87 => expands_to::<MlDsa87>(seed, expanded),
        _ => false,
    }
}

fn expands_to<P: MlDsaParams>(seed: &[u8], expanded: &[u8]) -> bool {
    let Ok(seed) = Seed::try_from(seed).map(Zeroizing::new) else { return false };
    #[expect(
        deprecated,
        reason = "this form should not be written, and we compare with a file in which it was"
    )]
    let ours = Zeroizing::new(ExpandedSigningKey::<P>::from_seed(&seed).to_expanded());
    constant_time_eq(&ours, expanded)
}
