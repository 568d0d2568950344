//! PKCS#8 (RFC 5958).

use zeroize::Zeroizing;

use super::sec1;
use super::spki::{modulus_bits, put_length, take};
use crate::{KeyAlgorithm, PrivateKeyMaterial, SalError, selection};

/// DER of a PKCS#8 document, version 1 (RFC 5208), which OpenSSL, Go and Java read too. ML-DSA keys are written as
/// seeds (RFC 9881 §6).
#[must_use]
pub fn encode(key: &PrivateKeyMaterial) -> Zeroizing<Vec<u8>> {
    use crate::algorithm::KeyKind;
    let inner = match key.algorithm().kind() {
        KeyKind::Rsa => Zeroizing::new(key.secret().to_vec()),
        KeyKind::Ecdsa => sec1::encode_inner(key),
        KeyKind::Ed25519 => element(0x04, key.secret()),
        KeyKind::MlDsa => element(0x80, key.secret()),
    };
    let inner = element(0x04, &inner);
    let mut content = Zeroizing::new(Vec::with_capacity(inner.len() + 32));
    content.extend_from_slice(&[0x02, 0x01, 0x00]);
    content.extend_from_slice(key.algorithm().spki_algorithm_der());
    content.extend_from_slice(&inner);
    element(0x30, &content)
}

/// Reads a PKCS#8 document of version 1 or 2, and proves that its halves belong together.
///
/// # Errors
/// [`SalError::BadPrivateKey`] when it is malformed, of another algorithm, or inconsistent.
pub fn decode(der: &[u8]) -> Result<PrivateKeyMaterial, SalError> {
    let bad = || SalError::BadPrivateKey {
        reason: "expected PKCS#8 (DER) with a key of a type that this build knows".to_owned(),
    };
    let parts = parse(der).ok_or_else(bad)?;
    let public = selection::derive_public(parts.algorithm, &parts.secret)?;
    if parts.public.is_some_and(|stored| stored != public) {
        return Err(SalError::BadPrivateKey { reason: "its public half belongs to another key".to_owned() });
    }
    Ok(PrivateKeyMaterial::new(parts.algorithm, parts.secret, public))
}

/// A document that a provider just made, with the public half in it.
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
    public: Option<Vec<u8>>,
}

fn parse(der: &[u8]) -> Option<Parts> {
    use crate::algorithm::KeyKind;
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
            let (scalar, point) = sec1::decode_inner(inner)?;
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

fn sized<'a>(algorithm: KeyAlgorithm, (secret, rest): (&'a [u8], &[u8])) -> Option<&'a [u8]> {
    (rest.is_empty() && Some(secret.len()) == algorithm.secret_bytes()).then_some(secret)
}

fn element(tag: u8, content: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(content.len() + 4));
    out.push(tag);
    put_length(&mut out, content.len());
    out.extend_from_slice(content);
    out
}
