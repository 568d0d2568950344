//! Keys, certificates and requests in DER.

use sallyport_sal::strength::{Curve, Digest, Lattice, Problem};

use super::der::{self, BIT_STRING, Der, INTEGER, OCTET_STRING, OID, SEQUENCE, SET};
use super::error::NoKey;
use super::found::{Found, Key, Signature, printable};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// What a DER file holds, found by the types of its first elements.
///
/// # Errors
/// What it is instead.
pub(super) fn whole(bytes: &[u8]) -> Result<Found, NoKey> {
    let content = Der::new(bytes).inside(SEQUENCE).ok_or(NoKey::CutDer)?;
    let tags = content.tags();
    match tags.as_slice() {
        [SEQUENCE, SEQUENCE, BIT_STRING, ..] => certificate(bytes).or_else(|| request(bytes)),
        [SEQUENCE, BIT_STRING, ..] => public(bytes),
        [INTEGER, SEQUENCE, OCTET_STRING, ..] => pkcs8(bytes),
        [INTEGER, OCTET_STRING, ..] => sec1(bytes),
        [INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, ..] => pkcs1(bytes, true),
        [INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER] => dsa_private(bytes),
        [INTEGER, INTEGER] => pkcs1(bytes, false),
        [SEQUENCE, OCTET_STRING] => return Err(NoKey::Encrypted),
        [INTEGER, SEQUENCE, SEQUENCE, ..] | [INTEGER, SEQUENCE] => return Err(NoKey::Pkcs12),
        [OID, 0xa0] => return Err(NoKey::Pkcs7Der),
        _ => None,
    }
    .ok_or(NoKey::OtherDer)
}

/// SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
pub(super) fn public(bytes: &[u8]) -> Option<Found> {
    let info = Der::new(bytes).inside(SEQUENCE)?;
    Some(Found::new("public key", subject_key(info)?))
}

/// The elements of a SubjectPublicKeyInfo.
fn subject_key(mut info: Der<'_>) -> Option<Key> {
    let mut identifier = info.inside(SEQUENCE)?;
    let (unused, raw) = info.take(BIT_STRING)?.split_first()?;
    if *unused != 0 {
        return None;
    }
    Some(match key_type(&mut identifier)? {
        Type::Rsa => {
            let mut numbers = Der::new(raw).inside(SEQUENCE)?;
            Key::rsa(der::bits(numbers.take(INTEGER)?))
        }
        Type::Known(key) => key,
    })
}

enum Type {
    /// Its size is in the key itself.
    Rsa,
    Known(Key),
}

/// What an AlgorithmIdentifier says about a key.
fn key_type(identifier: &mut Der<'_>) -> Option<Type> {
    let oid = identifier.take(OID)?;
    Some(match oid {
        RSA | RSA_PSS => Type::Rsa,
        DSA => Type::Known(identifier.inside(SEQUENCE).and_then(dsa_parameters).unwrap_or_else(|| {
            Key::Unknown("a DSA key that leaves its parameters to its issuer's certificate".to_owned())
        })),
        EC => Type::Known(named_curve(identifier)),
        _ => {
            let known = Curve::of_oid(oid).map(Problem::Curve).or(Lattice::of_oid(oid).map(Problem::Lattice));
            Type::Known(known.map_or_else(|| unknown("a key of type", oid), Key::Known))
        }
    })
}

fn named_curve(parameters: &mut Der<'_>) -> Key {
    match parameters.take(OID) {
        Some(oid) => Curve::of_oid(oid)
            .map_or_else(|| unknown("an elliptic curve", oid), |curve| Key::Known(Problem::Curve(curve))),
        None => Key::Unknown("an elliptic curve that is spelled out instead of named".to_owned()),
    }
}

fn unknown(what: &str, oid: &[u8]) -> Key {
    Key::Unknown(format!("{what} that is not known here, OID {}", der::dotted(oid)))
}

/// p and q.
fn dsa_parameters(mut numbers: Der<'_>) -> Option<Key> {
    let prime_bits = der::bits(numbers.take(INTEGER)?);
    let order_bits = der::bits(numbers.take(INTEGER)?);
    Some(Key::Known(Problem::Dsa { prime_bits, order_bits }))
}

/// A private key as RFC 5958 has it. Nothing but its type, and the modulus of RSA, is looked at.
pub(super) fn pkcs8(bytes: &[u8]) -> Option<Found> {
    let mut content = Der::new(bytes).inside(SEQUENCE)?;
    content.take(INTEGER)?;
    let mut identifier = content.inside(SEQUENCE)?;
    let inner = content.take(OCTET_STRING)?;
    match key_type(&mut identifier)? {
        Type::Rsa => pkcs1(inner, true),
        Type::Known(key) => Some(Found::new("private key", key)),
    }
}

/// `RSAPrivateKey`, or `RSAPublicKey` (RFC 8017 appendix A.1).
pub(super) fn pkcs1(bytes: &[u8], private: bool) -> Option<Found> {
    let mut numbers = Der::new(bytes).inside(SEQUENCE)?;
    if private {
        numbers.take(INTEGER)?;
    }
    let modulus = numbers.take(INTEGER)?;
    numbers.take(INTEGER)?;
    Some(Found::new(if private { "private key" } else { "public key" }, Key::rsa(der::bits(modulus))))
}

/// `ECPrivateKey` (RFC 5915).
pub(super) fn sec1(bytes: &[u8]) -> Option<Found> {
    let mut content = Der::new(bytes).inside(SEQUENCE)?;
    content.take(INTEGER)?;
    content.take(OCTET_STRING)?;
    let key = content.inside(0xa0).map_or_else(
        || Key::Unknown("an elliptic curve that is not named".to_owned()),
        |mut parameters| named_curve(&mut parameters),
    );
    Some(Found::new("private key", key))
}

/// OpenSSL's own form of a DSA key: version, p, q, g, y, x.
pub(super) fn dsa_private(bytes: &[u8]) -> Option<Found> {
    let mut numbers = Der::new(bytes).inside(SEQUENCE)?;
    numbers.take(INTEGER)?;
    Some(Found::new("private key", dsa_parameters(numbers)?))
}

/// A certificate (RFC 5280 §4.1), with any signer and valid at any time. What follows it is not looked at.
pub(crate) fn certificate(bytes: &[u8]) -> Option<Found> {
    let mut content = Der::new(bytes).inside(SEQUENCE)?;
    let mut body = content.inside(SEQUENCE)?;
    let signature = signature(content.inside(SEQUENCE)?)?;
    body.take(0xa0);
    body.take(INTEGER)?;
    body.take(SEQUENCE)?;
    let issuer = body.take(SEQUENCE)?;
    body.take(SEQUENCE)?;
    let subject = body.take(SEQUENCE)?;
    let key = subject_key(body.inside(SEQUENCE)?)?;
    let own = issuer == subject;
    let by = if own { "self-signed".to_owned() } else { format!("issued by {}", name(issuer)) };
    let mut found = Found::new(format!("certificate of {}, {by}", name(subject)), key);
    found.signature = Some(Signature { matters: !own, own, ..signature });
    Some(found)
}

/// A request for one (RFC 2986).
pub(super) fn request(bytes: &[u8]) -> Option<Found> {
    let mut content = Der::new(bytes).inside(SEQUENCE)?;
    let mut body = content.inside(SEQUENCE)?;
    let signature = signature(content.inside(SEQUENCE)?)?;
    body.take(INTEGER)?;
    let subject = body.take(SEQUENCE)?;
    let key = subject_key(body.inside(SEQUENCE)?)?;
    let mut found = Found::new(format!("certificate request of {}", name(subject)), key);
    // It only proves possession, for the moment.
    found.signature = Some(Signature { matters: false, ..signature });
    Some(found)
}

/// Common name, or else organization, of a distinguished name.
fn name(content: &[u8]) -> String {
    let attribute = |wanted: &[u8]| {
        let mut sets = Der::new(content);
        while let Some(mut set) = sets.inside(SET) {
            while let Some(mut pair) = set.inside(SEQUENCE) {
                if pair.take(OID) == Some(wanted)
                    && let Some((tag, value)) = pair.any()
                {
                    // BMPString has two bytes for a letter, the others are close enough to UTF-8.
                    let value: Vec<u8> = if tag == 0x1e {
                        value.iter().copied().filter(|byte| *byte != 0).collect()
                    } else {
                        value.to_vec()
                    };
                    return Some(printable(&value));
                }
            }
        }
        None
    };
    attribute(COMMON_NAME).or_else(|| attribute(ORGANIZATION)).unwrap_or_else(|| "no name".to_owned())
}

/// What an AlgorithmIdentifier says about a signature.
fn signature(mut identifier: Der<'_>) -> Option<Signature> {
    let oid = identifier.take(OID)?;
    let of = |name: &str, digest| Signature { name: name.to_owned(), digest, matters: true, own: false };
    const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    const DSA_SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03];
    let hashed = |name: &str, digest: Digest| of(&format!("{name} with {}", digest.name()), Some(digest));
    if oid == RSA_PSS {
        let digest = pss_digest(identifier);
        return Some(
            digest
                .map_or_else(|| of("RSA-PSS with an unknown hash", None), |digest| hashed("RSA-PSS", digest)),
        );
    }
    if let Some([last]) = oid.strip_prefix(PKCS1) {
        let digest = match last {
            2..=4 => Digest::Md5,
            5 => Digest::Sha1,
            11 => Digest::Sha256,
            12 => Digest::Sha384,
            13 => Digest::Sha512,
            14 => Digest::Sha224,
            _ => return Some(of(&format!("OID {}", der::dotted(oid)), None)),
        };
        return Some(hashed("RSA PKCS#1", digest));
    }
    Some(match oid.strip_prefix(ECDSA) {
        Some([1]) => hashed("ECDSA", Digest::Sha1),
        Some([3, 1]) => hashed("ECDSA", Digest::Sha224),
        Some([3, 2]) => hashed("ECDSA", Digest::Sha256),
        Some([3, 3]) => hashed("ECDSA", Digest::Sha384),
        Some([3, 4]) => hashed("ECDSA", Digest::Sha512),
        _ => match oid {
            [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03] => hashed("DSA", Digest::Sha1),
            _ if oid.strip_prefix(DSA_SHA2) == Some(&[1]) => hashed("DSA", Digest::Sha224),
            _ if oid.strip_prefix(DSA_SHA2) == Some(&[2]) => hashed("DSA", Digest::Sha256),
            _ => match (Curve::of_oid(oid), Lattice::of_oid(oid)) {
                (Some(Curve::Ed25519), _) => of("Ed25519", Some(Digest::Sha512)),
                (Some(Curve::Ed448), _) => of("Ed448", Some(Digest::Shake256)),
                (_, Some(lattice)) => of(lattice.name(), Some(Digest::Shake256)),
                _ => of(&format!("OID {}", der::dotted(oid)), None),
            },
        },
    })
}

/// The hash in the parameters of RSASSA-PSS (RFC 4055 §3.1); SHA-1 is what none means.
fn pss_digest(mut identifier: Der<'_>) -> Option<Digest> {
    let Some(mut parameters) = identifier.inside(SEQUENCE) else { return Some(Digest::Sha1) };
    let Some(mut hash) = parameters.inside(0xa0) else { return Some(Digest::Sha1) };
    match hash.inside(SEQUENCE)?.take(OID)? {
        [0x2b, 0x0e, 0x03, 0x02, 0x1a] => Some(Digest::Sha1),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, number] => match number {
            1 => Some(Digest::Sha256),
            2 => Some(Digest::Sha384),
            3 => Some(Digest::Sha512),
            4 => Some(Digest::Sha224),
            _ => None,
        },
        _ => None,
    }
}
