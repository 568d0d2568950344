//! Between what PKCS#11 holds and what certificates hold.

use crate::KeyAlgorithm;

const DER_INTEGER: u8 = 0x02;
const DER_OCTET_STRING: u8 = 0x04;
const DER_SEQUENCE: u8 = 0x30;

/// `CKA_EC_PARAMS` for a curve, in the forms that tokens know, the most common first (PKCS#11 v3.1 §6.3.3: an OID or a
/// curve name).
pub(super) fn curve_parameters(algorithm: KeyAlgorithm) -> &'static [&'static [u8]] {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => &[&[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]],
        KeyAlgorithm::EcdsaP384 => &[&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22]],
        KeyAlgorithm::EcdsaP521 => &[&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23]],
        KeyAlgorithm::Ed25519 => &[
            // id-Ed25519 (RFC 8410 §3).
            &[0x06, 0x03, 0x2b, 0x65, 0x70],
            // PrintableString "edwards25519" (PKCS#11 v3.0 §2.3.10).
            &[0x13, 0x0c, b'e', b'd', b'w', b'a', b'r', b'd', b's', b'2', b'5', b'5', b'1', b'9'],
        ],
        _ => &[],
    }
}

/// The key in a `CKA_EC_POINT`: an OCTET STRING around it by the standard, the bare key from some tokens. The lengths
/// tell them apart.
pub(super) fn point(algorithm: KeyAlgorithm, attribute: &[u8]) -> Option<&[u8]> {
    let length = algorithm.public_bytes()?;
    if attribute.len() == length {
        return Some(attribute);
    }
    let header = match u8::try_from(length).ok()? {
        short @ 0..=0x7f => vec![DER_OCTET_STRING, short],
        long => vec![DER_OCTET_STRING, 0x81, long],
    };
    attribute.strip_prefix(header.as_slice()).filter(|key| key.len() == length)
}

/// `ECDSA-Sig-Value` (RFC 3279 §2.2.3) of the two halves that PKCS#11 puts side by side; none when they are not two
/// halves of the right length, or one of them is zero.
pub(super) fn ecdsa_signature(algorithm: KeyAlgorithm, raw: &[u8]) -> Option<Vec<u8>> {
    let length = algorithm.secret_bytes()?;
    let (r, s) = raw.split_at_checked(length)?;
    let is_zero = |number: &[u8]| number.iter().all(|byte| *byte == 0);
    (s.len() == length && !is_zero(r) && !is_zero(s)).then(|| sequence(&[integer(r), integer(s)].concat()))
}

/// DER of a positive number: without leading zeros, but for the one that keeps it positive.
fn integer(number: &[u8]) -> Vec<u8> {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let digits = number.get(first..).unwrap_or_default();
    let mut content = Vec::with_capacity(digits.len() + 1);
    if digits.first().is_none_or(|byte| byte & 0x80 != 0) {
        content.push(0);
    }
    content.extend_from_slice(digits);
    element(DER_INTEGER, &content)
}

fn sequence(content: &[u8]) -> Vec<u8> {
    element(DER_SEQUENCE, content)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits =
        length.get(length.iter().position(|byte| *byte != 0).unwrap_or(length.len())..).unwrap_or_default();
    let mut der = vec![tag];
    match digits {
        [] => der.push(0),
        [short @ 0..=0x7f] => der.push(*short),
        // A length has at most eight digits.
        long => {
            der.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            der.extend_from_slice(long);
        }
    }
    der.extend_from_slice(content);
    der
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_minimal_and_positive() {
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0x7f, 0xff]), [2, 2, 0x7f, 0xff]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
        let long = element(DER_SEQUENCE, &[7; 300]);
        assert_eq!(long.get(..4).unwrap(), [0x30, 0x82, 0x01, 0x2c]);
        assert_eq!(element(DER_SEQUENCE, &[7; 200]).get(..3).unwrap(), [0x30, 0x81, 200]);
        assert_eq!(element(DER_SEQUENCE, &[]), [0x30, 0]);
    }

    #[test]
    fn signatures_need_two_whole_halves() {
        let mut raw = [0; 64];
        assert_eq!(ecdsa_signature(KeyAlgorithm::EcdsaP256, &raw), None);
        *raw.get_mut(31).unwrap() = 1;
        assert_eq!(ecdsa_signature(KeyAlgorithm::EcdsaP256, &raw), None);
        *raw.get_mut(32).unwrap() = 0x80;
        let der = ecdsa_signature(KeyAlgorithm::EcdsaP256, &raw).unwrap();
        assert_eq!(der.get(..8).unwrap(), [0x30, 38, 2, 1, 1, 2, 33, 0]);
        for wrong in [&raw[..63], &[1; 65], &[1; 32], &[]] {
            assert_eq!(ecdsa_signature(KeyAlgorithm::EcdsaP256, wrong), None);
        }
        assert_eq!(
            ecdsa_signature(KeyAlgorithm::EcdsaP521, &[1; 132]).unwrap().get(..2).unwrap(),
            [0x30, 0x81]
        );
    }

    #[test]
    fn points_come_wrapped_or_bare() {
        for (algorithm, header) in [
            (KeyAlgorithm::Ed25519, vec![4, 32]),
            (KeyAlgorithm::EcdsaP256, vec![4, 65]),
            (KeyAlgorithm::EcdsaP384, vec![4, 97]),
            (KeyAlgorithm::EcdsaP521, vec![4, 0x81, 133]),
        ] {
            let key = vec![4; algorithm.public_bytes().unwrap()];
            let wrapped = [header, key.clone()].concat();
            assert_eq!(point(algorithm, &wrapped), Some(key.as_slice()));
            assert_eq!(point(algorithm, &key), Some(key.as_slice()));
            for cut in 0..wrapped.len() {
                let cut = wrapped.get(..cut).unwrap();
                assert!(cut.len() == key.len() || point(algorithm, cut).is_none());
            }
        }
    }
}
