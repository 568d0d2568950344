//! Types of keys by the identifiers of X.509.

use der::Decode as _;
use der::asn1::ObjectIdentifier;
use pkcs5::AlgorithmIdentifierRef;

use super::error::FormatError;
use crate::KeyAlgorithm;
use crate::algorithm::KeyKind;

/// What to call parameters of a curve that are not its name.
pub(super) const SPELLED_OUT: &str = "a curve spelled out in parameters";

/// The AlgorithmIdentifier of a key's type.
fn of(algorithm: KeyAlgorithm) -> Result<AlgorithmIdentifierRef<'static>, FormatError> {
    AlgorithmIdentifierRef::from_der(algorithm.spki_algorithm_der())
        .map_err(|_| FormatError::Provider { operation: "name an algorithm" })
}

/// The key's type from its canonical AlgorithmIdentifier. For RSA it is some type of that kind: the size shows in the
/// key alone.
pub(super) fn identify(
    format: &'static str,
    identifier: AlgorithmIdentifierRef<'_>,
) -> Result<KeyAlgorithm, FormatError> {
    for algorithm in KeyAlgorithm::ALL {
        if of(*algorithm)? == identifier {
            return Ok(*algorithm);
        }
    }
    let found = match (identifier.oid, identifier.parameters_oid()) {
        (EC_PUBLIC_KEY, Ok(curve)) => format!("a key on {}", describe(curve)),
        (EC_PUBLIC_KEY, Err(_)) => SPELLED_OUT.to_owned(),
        (oid, _) if is_ours(oid)? => {
            return Err(FormatError::malformed(
                format,
                "the parameters in the AlgorithmIdentifier are not those of the standard",
            ));
        }
        (oid, _) => format!("a key of type {}", describe(oid)),
    };
    Err(FormatError::UnsupportedKey { format, found, expected: KEYS.to_owned() })
}

const KEYS: &str = "Ed25519, ECDSA on P-256, P-384 or P-521, RSA, or ML-DSA";
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");

/// The ECDSA key type on the curve of this name.
pub(super) fn curve(oid: ObjectIdentifier) -> Option<KeyAlgorithm> {
    KeyAlgorithm::ALL.iter().copied().find(|algorithm| {
        algorithm.kind() == KeyKind::Ecdsa && of(*algorithm).is_ok_and(|one| one.parameters_oid() == Ok(oid))
    })
}

fn is_ours(oid: ObjectIdentifier) -> Result<bool, FormatError> {
    for algorithm in KeyAlgorithm::ALL {
        if of(*algorithm)?.oid == oid {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An OID with its name where people may know it, so that the error says more than numbers.
pub(super) fn describe(oid: ObjectIdentifier) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("1.2.840.10040.4.1", "DSA"),
        ("1.2.840.113549.1.1.7", "RSA for OAEP alone"),
        ("1.2.840.113549.1.1.10", "RSA for PSS alone"),
        ("1.2.840.113549.1.3.1", "Diffie-Hellman"),
        ("1.3.101.110", "X25519"),
        ("1.3.101.111", "X448"),
        ("1.3.101.113", "Ed448"),
        ("1.3.132.0.10", "secp256k1"),
        ("1.3.132.0.33", "P-224"),
        ("1.2.840.10045.3.1.1", "P-192"),
        ("1.3.36.3.3.2.8.1.1.7", "brainpoolP256r1"),
        ("1.3.36.3.3.2.8.1.1.11", "brainpoolP384r1"),
        ("1.3.36.3.3.2.8.1.1.13", "brainpoolP512r1"),
        ("2.16.840.1.101.3.4.4.1", "ML-KEM-512"),
        ("2.16.840.1.101.3.4.4.2", "ML-KEM-768"),
        ("2.16.840.1.101.3.4.4.3", "ML-KEM-1024"),
        ("1.2.840.113549.1.5.3", "PBES1 with MD5 and DES"),
        ("1.2.840.113549.1.5.10", "PBES1 with SHA-1 and DES"),
        ("1.2.840.113549.1.12.1.3", "PKCS#12 encryption with SHA-1 and 3DES"),
        ("1.2.840.113549.1.12.1.6", "PKCS#12 encryption with SHA-1 and RC2"),
        ("1.2.840.113549.3.7", "3DES"),
        ("1.3.14.3.2.7", "DES"),
    ];
    let oid = oid.to_string();
    match NAMES.iter().find(|(known, _)| *known == oid) {
        Some((_, name)) => format!("{name} ({oid})"),
        None => format!("OID {oid}"),
    }
}
