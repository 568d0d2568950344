//! What any certificate says, of whatever issuer. It is for looking at servers: nothing of it is checked or believed.

use sallyport_sal::{KeyAlgorithm, PublicKey};
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::ParsedExtension;
use x509_parser::public_key::PublicKey as ParsedKey;

use crate::{CaError, x509};

/// Names of one certificate that are kept.
const MOST_NAMES: usize = 1000;
/// Characters of a text from a certificate that are kept.
const LONGEST_TEXT: usize = 300;

/// A certificate in words and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The subject, as RFC 4514 writes it.
    pub subject: String,
    /// The issuer, in the same way.
    pub issuer: String,
    /// From when.
    pub not_before: OffsetDateTime,
    /// Until when.
    pub not_after: OffsetDateTime,
    /// The certified key.
    pub key: SubjectKey,
    /// How it is signed.
    pub signature: SignatureAlgorithm,
    /// DNS names and IP addresses of the subject alternative name.
    pub names: Vec<String>,
    /// Whether it says that it is a CA's.
    pub is_ca: bool,
    /// Whether subject and issuer are the same.
    pub is_self_issued: bool,
    /// Whether it says where its issuer's certificate can be had (RFC 5280 §4.2.2.1), as those of public CAs do.
    pub names_its_issuer: bool,
    /// Whether servers must staple an answer of OCSP (RFC 7633).
    pub must_staple: bool,
    /// Length in bytes.
    pub bytes: usize,
    subject_der: Vec<u8>,
    issuer_der: Vec<u8>,
    key_id: Option<Vec<u8>>,
    issuer_key_id: Option<Vec<u8>>,
}

/// A certified key, of a known type or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectKey {
    /// One that this build knows.
    Known(KeyAlgorithm),
    /// RSA with a modulus of so many bits.
    Rsa(usize),
    /// Something else: its name, or its object identifier.
    Other(String),
}

impl SubjectKey {
    /// Length of an RSA modulus, in bits; none for other keys.
    #[must_use]
    pub fn rsa_bits(&self) -> Option<usize> {
        match self {
            Self::Known(algorithm) => algorithm.modulus_bits(),
            Self::Rsa(bits) => Some(*bits),
            Self::Other(_) => None,
        }
    }
}

impl std::fmt::Display for SubjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(algorithm) => f.pad(algorithm.name()),
            Self::Rsa(bits) => f.pad(&format!("rsa-{bits}")),
            Self::Other(name) => f.pad(name),
        }
    }
}

/// How a certificate is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureAlgorithm {
    /// The name in the standards; the object identifier when this build knows none.
    pub name: String,
    /// Whether its hash is broken: MD5 or SHA-1.
    pub is_broken: bool,
}

/// Object identifiers of signature algorithms, their names, and whether the hash is broken (RFC 3279, RFC 4055, RFC
/// 5758, RFC 8410, RFC 9881).
const SIGNATURES: &[(&str, &str, bool)] = &[
    ("1.2.840.113549.1.1.2", "md2WithRSAEncryption", true),
    ("1.2.840.113549.1.1.4", "md5WithRSAEncryption", true),
    ("1.2.840.113549.1.1.5", "sha1WithRSAEncryption", true),
    ("1.2.840.113549.1.1.10", "RSASSA-PSS", false),
    ("1.2.840.113549.1.1.11", "sha256WithRSAEncryption", false),
    ("1.2.840.113549.1.1.12", "sha384WithRSAEncryption", false),
    ("1.2.840.113549.1.1.13", "sha512WithRSAEncryption", false),
    ("1.2.840.10040.4.3", "dsa-with-SHA1", true),
    ("1.2.840.10045.4.1", "ecdsa-with-SHA1", true),
    ("1.2.840.10045.4.3.2", "ecdsa-with-SHA256", false),
    ("1.2.840.10045.4.3.3", "ecdsa-with-SHA384", false),
    ("1.2.840.10045.4.3.4", "ecdsa-with-SHA512", false),
    ("1.3.101.112", "Ed25519", false),
    ("1.3.101.113", "Ed448", false),
    ("2.16.840.1.101.3.4.3.17", "ML-DSA-44", false),
    ("2.16.840.1.101.3.4.3.18", "ML-DSA-65", false),
    ("2.16.840.1.101.3.4.3.19", "ML-DSA-87", false),
];

/// Object identifiers of keys and curves of which this build knows no more than the name.
const KEYS: &[(&str, &str)] = &[
    ("1.2.840.10040.4.1", "dsa"),
    ("1.3.101.113", "ed448"),
    ("1.3.132.0.10", "ecdsa-secp256k1"),
    ("1.3.132.0.33", "ecdsa-p224"),
    ("1.2.840.10045.3.1.1", "ecdsa-p192"),
    ("1.3.36.3.3.2.8.1.1.7", "ecdsa-brainpoolP256r1"),
    ("1.3.36.3.3.2.8.1.1.11", "ecdsa-brainpoolP384r1"),
    ("1.3.36.3.3.2.8.1.1.13", "ecdsa-brainpoolP512r1"),
];

/// RFC 7633 §4.1, and the content that says `status_request`.
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
const STATUS_REQUEST: &[u8] = &[0x30, 3, 2, 1, 5];

impl Described {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// [`CaError::Malformed`] when it is none.
    pub fn read(der: &[u8]) -> Result<Self, CaError> {
        let certificate = x509::parse(der)?;
        let oid = certificate.signature_algorithm.algorithm.to_id_string();
        let signature = SIGNATURES.iter().find(|(known, ..)| *known == oid).map_or_else(
            || SignatureAlgorithm { name: oid.clone(), is_broken: false },
            |(_, name, is_broken)| SignatureAlgorithm { name: (*name).to_owned(), is_broken: *is_broken },
        );
        let mut described = Self {
            subject: printable(&certificate.subject().to_string()),
            issuer: printable(&certificate.issuer().to_string()),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
            key: subject_key(&certificate),
            signature,
            names: Vec::new(),
            is_ca: certificate.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca),
            is_self_issued: certificate.subject().as_raw() == certificate.issuer().as_raw(),
            names_its_issuer: false,
            must_staple: false,
            bytes: der.len(),
            subject_der: certificate.subject().as_raw().to_vec(),
            issuer_der: certificate.issuer().as_raw().to_vec(),
            key_id: None,
            issuer_key_id: None,
        };
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(found) => {
                    let names = found.general_names.iter().filter_map(name);
                    described.names = names.take(MOST_NAMES).collect();
                }
                ParsedExtension::SubjectKeyIdentifier(found) => described.key_id = Some(found.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(found) => {
                    described.issuer_key_id = found.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                ParsedExtension::AuthorityInfoAccess(found) => {
                    // id-ad-caIssuers
                    described.names_its_issuer = found
                        .accessdescs
                        .iter()
                        .any(|place| place.access_method.to_id_string() == "1.3.6.1.5.5.7.48.2");
                }
                _ if extension.oid.to_id_string() == TLS_FEATURE => {
                    described.must_staple = extension.value == STATUS_REQUEST;
                }
                _ => {}
            }
        }
        Ok(described)
    }

    /// Whether it says that the other one's key signed it: by name, and by the key's id where both have one. The
    /// signature itself is not verified.
    #[must_use]
    pub fn is_issued_by(&self, other: &Self) -> bool {
        let ids_differ =
            matches!((&self.issuer_key_id, &other.key_id), (Some(wanted), Some(found)) if wanted != found);
        self.issuer_der == other.subject_der && !ids_differ
    }

    /// Whether it is for a server of this name or address; a wildcard stands for one label (RFC 9525 §6.3).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let wanted = name.trim_end_matches('.').to_ascii_lowercase();
        let is_address = wanted.parse::<std::net::IpAddr>().is_ok();
        self.names.iter().any(|known| {
            let known = known.to_ascii_lowercase();
            let by_wildcard = || {
                let (Some(rest), Some((_, parent))) = (known.strip_prefix("*."), wanted.split_once('.'))
                else {
                    return false;
                };
                !is_address && rest == parent
            };
            known == wanted || by_wildcard()
        })
    }

    /// For how long it is valid, in days, of which a part counts as one (CA/Browser Forum Baseline Requirements
    /// §1.6.1, "Validity Period": both ends belong to it).
    #[must_use]
    pub fn days(&self) -> i64 {
        let seconds = (self.not_after - self.not_before).whole_seconds() + 1;
        seconds.div_euclid(86_400) + i64::from(seconds.rem_euclid(86_400) > 0)
    }
}

fn subject_key(certificate: &x509_parser::certificate::X509Certificate<'_>) -> SubjectKey {
    let info = certificate.public_key();
    if let Ok(key) = PublicKey::from_spki_der(info.raw) {
        return SubjectKey::Known(key.algorithm());
    }
    if let Ok(ParsedKey::RSA(key)) = info.parsed() {
        let significant = key.modulus.iter().position(|byte| *byte != 0).and_then(|at| key.modulus.get(at..));
        let bits = significant.map_or(0, |bytes| {
            let leading = bytes.first().map_or(0, |byte| byte.leading_zeros());
            bytes.len() * 8 - usize::try_from(leading).unwrap_or_default()
        });
        return KeyAlgorithm::rsa(bits).map_or(SubjectKey::Rsa(bits), SubjectKey::Known);
    }
    let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    let oid = curve.as_ref().unwrap_or(&info.algorithm.algorithm).to_id_string();
    let known = KEYS.iter().find(|(known, _)| *known == oid);
    SubjectKey::Other(known.map_or(oid, |(_, name)| (*name).to_owned()))
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(printable(name)),
        GeneralName::IPAddress(bytes) => {
            let address = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(std::net::IpAddr::from),
                _ => <[u8; 16]>::try_from(*bytes).ok().map(std::net::IpAddr::from),
            };
            address.map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Another's text, for a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '?' } else { one }).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use sallyport_sal::measure::certificate::{Role, issue};
    use sallyport_sal::{MemoryKey, Signer as _};

    use super::*;

    fn made(algorithm: KeyAlgorithm) -> Vec<u8> {
        let authority = MemoryKey::generate(KeyAlgorithm::EcdsaP384).unwrap();
        let key = MemoryKey::generate(algorithm).unwrap();
        issue(&key.public_key(), 2, Role::Leaf, &authority, 1).unwrap()
    }

    #[test]
    fn a_certificate_is_described_whoever_issued_it() {
        let der = made(KeyAlgorithm::Ed25519);
        let found = Described::read(&der).unwrap();
        assert_eq!(found.subject, "CN=measurement 2");
        assert_eq!(found.issuer, "CN=measurement 1");
        assert_eq!(
            (found.key.to_string().as_str(), found.signature.name.as_str()),
            ("ed25519", "ecdsa-with-SHA384")
        );
        assert_eq!(found.names, ["localhost", "127.0.0.1"]);
        assert!(!found.is_ca && !found.is_self_issued && !found.signature.is_broken && !found.must_staple);
        assert_eq!((found.bytes, found.not_after.year(), found.key.rsa_bits()), (der.len(), 2049, None));
        assert_eq!(found.days(), 10_958);
    }

    #[test]
    fn names_are_matched_as_clients_match_them() {
        let mut found = Described::read(&made(KeyAlgorithm::EcdsaP256)).unwrap();
        found.names = ["www.example.com", "*.example.org", "::1"].map(str::to_owned).to_vec();
        for name in ["www.example.com", "WWW.example.com.", "a.example.org", "::1"] {
            assert!(found.covers(name), "{name}");
        }
        for name in ["example.com", "a.b.example.org", "example.org", "127.0.0.1", "x.www.example.com"] {
            assert!(!found.covers(name), "{name}");
        }
    }

    #[test]
    fn who_issued_whom_is_told_by_name_and_key() {
        let (one, other) = (made(KeyAlgorithm::EcdsaP256), made(KeyAlgorithm::EcdsaP256));
        let (one, other) = (Described::read(&one).unwrap(), Described::read(&other).unwrap());
        assert!(!one.is_issued_by(&other));
        let mut parent = other.clone();
        parent.subject_der = one.issuer_der.clone();
        assert!(one.is_issued_by(&parent));
        let mut child = one.clone();
        (child.issuer_key_id, parent.key_id) = (Some(vec![1]), Some(vec![2]));
        assert!(!child.is_issued_by(&parent));
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let der = made(KeyAlgorithm::Ed25519);
        assert!(Described::read(b"").is_err() && Described::read(&[0x30, 3, 1, 1, 1]).is_err());
        assert!(Described::read(&[&der[..], &[0]].concat()).is_err());
        for at in 0..der.len() {
            let mut changed = der.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 0x81;
            }
            let _ = Described::read(&changed);
        }
    }
}
