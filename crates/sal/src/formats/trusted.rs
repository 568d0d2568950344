//! PKCS#8 that a provider has just made, or that is built in: read without proof, and without words when it fails.

use zeroize::Zeroizing;

use super::spki::{modulus_bits, put_length, take};
use crate::algorithm::KeyKind;
use crate::{KeyAlgorithm, PrivateKeyMaterial};

/// A document that a provider just made, with the public half in it: ring or graviola, which a build with the module is without.
#[cfg(not(feature = "fips"))]
pub(crate) fn decode_with_public(der: &[u8]) -> Option<PrivateKeyMaterial> {
    let parts = parse(der)?;
    Some(PrivateKeyMaterial::new(parts.algorithm, parts.secret, parts.public?))
}

/// A document of ours, whose public half is known from elsewhere.
pub(crate) fn decode_trusted(der: &[u8], public: &[u8]) -> Option<PrivateKeyMaterial> {
    let parts = parse(der)?;
    Some(PrivateKeyMaterial::new(parts.algorithm, parts.secret, public.to_vec()))
}

/// The private key inside a document.
pub(crate) fn inner_key(der: &[u8]) -> Option<&[u8]> {
    let (content, _) = take(der, 0x30)?;
    let (_, content) = take(content, 0x02)?;
    let (_, content) = take(content, 0x30)?;
    take(content, 0x04).map(|(inner, _)| inner)
}

struct Parts {
    algorithm: KeyAlgorithm,
    secret: Zeroizing<Vec<u8>>,
    #[cfg_attr(feature = "fips", allow(dead_code))]
    public: Option<Vec<u8>>,
}

fn parse(der: &[u8]) -> Option<Parts> {
    let (content, rest) = take(der, 0x30)?;
    let (version, content) = take(content, 0x02)?;
    if !rest.is_empty() || !matches!(version, [0 | 1]) {
        return None;
    }
    let algorithm =
        KeyAlgorithm::ALL.iter().copied().find(|one| content.starts_with(one.spki_algorithm_der()))?;
    let (inner, mut content) = take(content.get(algorithm.spki_algorithm_der().len()..)?, 0x04)?;
    if let Some((_attributes, after)) = take(content, 0xa0) {
        content = after;
    }
    let mut public = match take(content, 0x81) {
        Some(([0, public @ ..], [])) => Some(public.to_vec()),
        Some(_) => return None,
        // ring writes the field as constructed, which RFC 5958 §2 reads as well.
        None => match take(content, 0xa1) {
            Some((bits, [])) => match take(bits, 0x03)? {
                ([0, public @ ..], []) => Some(public.to_vec()),
                _ => return None,
            },
            Some(_) => return None,
            None if content.is_empty() => None,
            None => return None,
        },
    };
    let (algorithm, secret) = match algorithm.kind() {
        KeyKind::Ed25519 => (algorithm, sized(algorithm, take(inner, 0x04)?)?),
        KeyKind::MlDsa => (algorithm, sized(algorithm, take(inner, 0x80)?)?),
        KeyKind::Ecdsa => {
            let (scalar, point) = decode_sec1(inner)?;
            public = public.or_else(|| point.map(<[u8]>::to_vec));
            (algorithm, sized(algorithm, (scalar, &[]))?)
        }
        KeyKind::Rsa => {
            let (fields, rest) = take(inner, 0x30)?;
            let (version, fields) = take(fields, 0x02)?;
            let (modulus, fields) = take(fields, 0x02)?;
            let (exponent, _) = take(fields, 0x02)?;
            if version != [0] || !rest.is_empty() {
                return None;
            }
            let mut numbers = element(0x02, modulus).to_vec();
            numbers.extend_from_slice(&element(0x02, exponent));
            let made = element(0x30, &numbers).to_vec();
            (KeyAlgorithm::rsa(modulus_bits(&made)?)?, inner)
        }
    };
    Some(Parts { algorithm, secret: Zeroizing::new(secret.to_vec()), public })
}

/// Scalar and, where it is there, public key of an `ECPrivateKey`.
fn decode_sec1(der: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (content, rest) = take(der, 0x30)?;
    let (version, content) = take(content, 0x02)?;
    let (scalar, mut content) = take(content, 0x04)?;
    if version != [1] || !rest.is_empty() {
        return None;
    }
    if let Some((_, after)) = take(content, 0xa0) {
        content = after;
    }
    let public = match take(content, 0xa1) {
        Some((bits, [])) => match take(bits, 0x03)? {
            ([0, public @ ..], []) => Some(public),
            _ => return None,
        },
        Some(_) => return None,
        None if content.is_empty() => None,
        None => return None,
    };
    Some((scalar, public))
}

fn sized<'a>(algorithm: KeyAlgorithm, (secret, rest): (&'a [u8], &[u8])) -> Option<&'a [u8]> {
    (rest.is_empty() && Some(secret.len()) == algorithm.secret_bytes()).then_some(secret)
}

/// One DER element.
pub(super) fn element(tag: u8, content: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(content.len() + 4));
    out.push(tag);
    put_length(&mut out, content.len());
    out.extend_from_slice(content);
    out
}
