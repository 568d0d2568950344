//! `ECPrivateKey` (RFC 5915) as it is written.

use zeroize::Zeroizing;

use super::spki::put_length;
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
