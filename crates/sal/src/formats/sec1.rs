//! `ECPrivateKey` (RFC 5915).

use zeroize::Zeroizing;

use super::spki::{put_length, take};
use crate::{KeyAlgorithm, PrivateKeyMaterial};

/// DER of an `ECPrivateKey` with curve and public key; none for other keys.
#[must_use]
pub fn encode(key: &PrivateKeyMaterial) -> Option<Zeroizing<Vec<u8>>> {
    let curve = curve(key.algorithm())?;
    Some(write(key, Some(curve)))
}

/// The same without the curve, as it stands inside PKCS#8 (RFC 5915 §3 leaves it out where the context has it).
pub(crate) fn encode_inner(key: &PrivateKeyMaterial) -> Zeroizing<Vec<u8>> {
    write(key, None)
}

/// Scalar and, where it is there, public key of an `ECPrivateKey`.
pub(crate) fn decode_inner(der: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
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

fn write(key: &PrivateKeyMaterial, curve: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
    let mut bits = vec![0x03];
    put_length(&mut bits, key.public().len() + 1);
    bits.push(0);
    bits.extend_from_slice(key.public());
    let mut content = Zeroizing::new(Vec::with_capacity(512));
    content.extend_from_slice(&[0x02, 0x01, 0x01, 0x04]);
    put_length(&mut content, key.secret().len());
    content.extend_from_slice(key.secret());
    if let Some(curve) = curve {
        content.push(0xa0);
        put_length(&mut content, curve.len());
        content.extend_from_slice(curve);
    }
    content.push(0xa1);
    put_length(&mut content, bits.len());
    content.extend_from_slice(&bits);
    let mut out = Zeroizing::new(Vec::with_capacity(content.len() + 4));
    out.push(0x30);
    put_length(&mut out, content.len());
    out.extend_from_slice(&content);
    out
}

/// DER of the named curve's OID.
fn curve(algorithm: KeyAlgorithm) -> Option<&'static [u8]> {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => Some(&[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
        KeyAlgorithm::EcdsaP384 => Some(&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22]),
        KeyAlgorithm::EcdsaP521 => Some(&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23]),
        _ => None,
    }
}
