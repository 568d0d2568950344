//! X.509 certificates: DER written and read (RFC 5280).
//!
//! Writing is ours: each profile is a few lines that can be held against the RFC, and keys of every algorithm go in and
//! sign, ML-DSA too. Path validation is not ours: rustls does it.

use sallyport_sal::algorithm::KeyKind;
use sallyport_sal::{KeyAlgorithm, PublicKey, Signer, hash};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};
use yasna::{DERWriter, Tag};

use crate::extension::{self, Claims, IDENTITY_OID, is_identity};
use crate::names::HostName;
use crate::{CaError, CaKind};

// Content octets of OIDs.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
pub(crate) const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// Length of a serial number, in bytes: 127 random bits, where RFC 5280 §4.1.2.2 allows 20 bytes.
pub(crate) const SERIAL_BYTES: usize = 16;

/// Longest common name and organization, in characters (RFC 5280 appendix A.1, `ub-common-name`).
const NAME_CHARACTERS: usize = 64;

/// A distinguished name of ours: who, within which cluster.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Name<'a> {
    pub(crate) common_name: Option<&'a str>,
    pub(crate) organization: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// Who, within which cluster. A common name that X.509 has no room for is left out and not cut short: two people
    /// may begin alike. No identity is known by it here.
    pub(crate) fn new(common_name: &'a str, cluster: &'a str) -> Self {
        let fits = |name: &&str| name.chars().count() <= NAME_CHARACTERS;
        Self { common_name: Some(common_name).filter(fits), organization: Some(cluster).filter(fits) }
    }

    pub(crate) fn der(self) -> Vec<u8> {
        yasna::construct_der(|writer| write_name(writer, self))
    }
}

/// What a certificate is for, with what only that use needs.
#[derive(Debug)]
pub(crate) enum Profile<'a> {
    /// Signs leaves directly; nothing lies between (path length 0).
    Ca,
    /// A client.
    User { identity_json: &'a [u8] },
    /// A client and a server.
    Host { identity_json: &'a [u8], names: &'a [HostName] },
    /// A server that is none of ours.
    DatabaseServer { names: &'a [HostName] },
    /// A client of such a server, which knows it by the subject's name.
    DatabaseClient,
    /// A workload, as client and as server (X.509-SVID §4).
    Workload { id: &'a str },
}

/// All that a certificate says.
#[derive(Debug)]
pub(crate) struct Template<'a> {
    pub(crate) serial: [u8; SERIAL_BYTES],
    /// The issuer's name as its own certificate has it, in DER: chains are built by comparing the bytes.
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: Name<'a>,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(crate) subject_key: &'a PublicKey,
    pub(crate) profile: Profile<'a>,
}

impl Template<'_> {
    /// Signs it and gives the DER of the certificate.
    pub(crate) fn sign(&self, issuer: &dyn Signer) -> Result<Vec<u8>, CaError> {
        let algorithm = issuer.algorithm();
        let issuer_key = issuer.public_key();
        let to_be_signed = yasna::construct_der(|writer| self.write(writer, algorithm, &issuer_key));
        let signature = issuer.sign(&to_be_signed)?;
        Ok(signed(&to_be_signed, algorithm, &signature))
    }

    fn write(&self, writer: DERWriter<'_>, algorithm: KeyAlgorithm, issuer_key: &PublicKey) {
        writer.write_sequence(|writer| {
            // version: v3
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&self.serial, true);
            write_algorithm(writer.next(), algorithm);
            writer.next().write_der(self.issuer);
            writer.next().write_sequence(|writer| {
                write_time(writer.next(), self.not_before);
                write_time(writer.next(), self.not_after);
            });
            write_name(writer.next(), self.subject);
            writer.next().write_der(&self.subject_key.spki_der());
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    for extension in self.extensions(issuer_key) {
                        write_extension(writer.next(), &extension);
                    }
                });
            });
        });
    }

    fn extensions(&self, issuer_key: &PublicKey) -> Vec<Extension<'static>> {
        let subject_id = key_id(self.subject_key);
        let mut extensions =
            vec![Extension { oid: AUTHORITY_KEY_ID, critical: false, value: authority_key_id(issuer_key) }];
        let mut add = |oid, critical, value| extensions.push(Extension { oid, critical, value });
        add(SUBJECT_KEY_ID, false, yasna::construct_der(|writer| writer.write_bytes(&subject_id)));
        add(KEY_USAGE, true, self.key_usage());
        match &self.profile {
            Profile::Ca => {
                add(
                    BASIC_CONSTRAINTS,
                    true,
                    yasna::construct_der(|writer| {
                        writer.write_sequence(|writer| {
                            writer.next().write_bool(true);
                            writer.next().write_u8(0);
                        });
                    }),
                );
            }
            Profile::User { identity_json } => {
                add(BASIC_CONSTRAINTS, true, not_a_ca());
                add(EXTENDED_KEY_USAGE, false, purposes(&[CLIENT_AUTH]));
                add(IDENTITY_OID, false, identity_json.to_vec());
            }
            Profile::Host { identity_json, names } => {
                add(BASIC_CONSTRAINTS, true, not_a_ca());
                add(EXTENDED_KEY_USAGE, false, purposes(&[SERVER_AUTH, CLIENT_AUTH]));
                add(SUBJECT_ALT_NAME, false, alt_names(names));
                add(IDENTITY_OID, false, identity_json.to_vec());
            }
            Profile::DatabaseServer { names } => {
                add(BASIC_CONSTRAINTS, true, not_a_ca());
                add(EXTENDED_KEY_USAGE, false, purposes(&[SERVER_AUTH]));
                add(SUBJECT_ALT_NAME, false, alt_names(names));
            }
            Profile::DatabaseClient => {
                add(BASIC_CONSTRAINTS, true, not_a_ca());
                add(EXTENDED_KEY_USAGE, false, purposes(&[CLIENT_AUTH]));
            }
            Profile::Workload { id } => {
                add(BASIC_CONSTRAINTS, true, not_a_ca());
                add(EXTENDED_KEY_USAGE, false, purposes(&[SERVER_AUTH, CLIENT_AUTH]));
                add(SUBJECT_ALT_NAME, false, alt_uri(id));
            }
        }
        extensions
    }

    /// KeyUsage, a named bit list: bit 0 digitalSignature, bit 2 keyEncipherment, bit 5 keyCertSign, bit 6 cRLSign
    /// (§4.2.1.3).
    fn key_usage(&self) -> Vec<u8> {
        let (bits, length) = match &self.profile {
            Profile::Ca => (0b0000_0110, 7),
            // TLS 1.2 without forward secrecy, which drivers of old databases speak, encrypts to the key. Only RSA can
            // (RFC 8813 §3, RFC 9881 §5).
            Profile::DatabaseServer { .. } if self.subject_key.algorithm().kind() == KeyKind::Rsa => {
                (0b1010_0000, 3)
            }
            _ => (0b1000_0000, 1),
        };
        yasna::construct_der(|writer| writer.write_bitvec_bytes(&[bits], length))
    }
}

/// What was signed, with its signature (§4.1.1, §5.1.1).
pub(crate) fn signed(to_be_signed: &[u8], algorithm: KeyAlgorithm, signature: &[u8]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(to_be_signed);
            write_algorithm(writer.next(), algorithm);
            writer.next().write_bitvec_bytes(signature, signature.len() * 8);
        });
    })
}

/// AuthorityKeyIdentifier by the key alone (§4.2.1.1).
pub(crate) fn authority_key_id(issuer_key: &PublicKey) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer
                .next()
                .write_tagged_implicit(Tag::context(0), |writer| writer.write_bytes(&key_id(issuer_key)));
        });
    })
}

/// What a leaf says, before anyone checked who signed it.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) issuer: Vec<u8>,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(crate) claims: Claims,
}

impl Leaf {
    pub(crate) fn parse(der: &[u8]) -> Result<Self, CaError> {
        let certificate = parse(der)?;
        let mut identities =
            certificate.extensions().iter().filter(|extension| is_identity(extension.oid.as_bytes()));
        let Some(identity) = identities.next() else {
            return Err(CaError::Malformed { reason: "it has no Sallyport identity extension".to_owned() });
        };
        if identities.next().is_some() {
            return Err(CaError::Malformed { reason: "it has two Sallyport identity extensions".to_owned() });
        }
        let claims = extension::from_json(identity.value)?;
        Ok(Self {
            issuer: certificate.issuer().as_raw().to_vec(),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
            claims,
        })
    }
}

/// A CA certificate, as a trust bundle carries it.
#[derive(Debug, Clone)]
pub(crate) struct CaCertificate {
    pub(crate) der: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) public_key: PublicKey,
    pub(crate) not_after: OffsetDateTime,
}

impl CaCertificate {
    pub(crate) fn parse(der: &[u8]) -> Result<Self, CaError> {
        let certificate = parse(der)?;
        let is_ca = certificate.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca);
        if !is_ca {
            return Err(CaError::Malformed { reason: "it is not a CA certificate".to_owned() });
        }
        Ok(Self {
            der: der.to_vec(),
            subject: certificate.subject().as_raw().to_vec(),
            public_key: PublicKey::from_spki_der(certificate.public_key().raw)?,
            not_after: certificate.validity().not_after.to_datetime(),
        })
    }

    pub(crate) fn pin(&self) -> String {
        pin_of(&self.public_key)
    }
}

/// From when until when a certificate is valid, before anyone checked who signed it.
pub(crate) fn validity(der: &[u8]) -> Result<(OffsetDateTime, OffsetDateTime), CaError> {
    let certificate = parse(der)?;
    let validity = certificate.validity();
    Ok((validity.not_before.to_datetime(), validity.not_after.to_datetime()))
}

/// The id of the key that signed a certificate, as the certificate says it.
pub(crate) fn signed_by_key_id(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = parse(der).ok()?;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(found) => Some(found.key_identifier.as_ref()?.0.to_vec()),
        _ => None,
    })
}

/// The certified key of a certificate, DER.
pub(crate) fn subject_public_key_info(der: &[u8]) -> Result<Vec<u8>, CaError> {
    Ok(parse(der)?.public_key().raw.to_vec())
}

/// `sha256:` and the digest of a SubjectPublicKeyInfo.
pub(crate) fn pin_of(key: &PublicKey) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&key.spki_sha256()))
}

/// The public key of a certificate.
pub(crate) fn public_key(der: &[u8]) -> Result<PublicKey, CaError> {
    Ok(PublicKey::from_spki_der(parse(der)?.public_key().raw)?)
}

pub(crate) fn to_pem(der: &[u8]) -> String {
    pem("CERTIFICATE", der)
}

/// A PEM block (RFC 7468).
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let base64 = data_encoding::BASE64.encode(der);
    let mut pem = String::with_capacity(base64.len() + 80);
    pem.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CaError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(CaError::Malformed { reason: "bytes follow the certificate".to_owned() }),
        Err(error) => Err(CaError::Malformed { reason: error.to_string() }),
    }
}

struct Extension<'a> {
    oid: &'a [u8],
    critical: bool,
    value: Vec<u8>,
}

fn write_extension(writer: DERWriter<'_>, extension: &Extension<'_>) {
    writer.write_sequence(|writer| {
        write_oid(writer.next(), extension.oid);
        // DEFAULT FALSE: DER leaves it out then (X.690 §11.5).
        if extension.critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&extension.value);
    });
}

pub(crate) fn write_oid(writer: DERWriter<'_>, content: &[u8]) {
    // Every OID here is shorter than 128 bytes, so its length is one byte.
    let mut der = vec![0x06, u8::try_from(content.len()).unwrap_or_default()];
    der.extend_from_slice(content);
    writer.write_der(&der);
}

pub(crate) fn write_algorithm(writer: DERWriter<'_>, algorithm: KeyAlgorithm) {
    // The default scheme is never PSS, which alone has no short form.
    writer.write_der(&algorithm.default_scheme().x509_algorithm_der().unwrap_or_default());
}

fn write_name(writer: DERWriter<'_>, name: Name<'_>) {
    writer.write_sequence(|writer| {
        for (oid, value) in [(ORGANIZATION, name.organization), (COMMON_NAME, name.common_name)] {
            let Some(value) = value else { continue };
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    write_oid(writer.next(), oid);
                    writer.next().write_utf8_string(value);
                });
            });
        }
    });
}

/// UTCTime until 2049, GeneralizedTime from then on (§4.1.2.5).
pub(crate) fn write_time(writer: DERWriter<'_>, time: OffsetDateTime) {
    let time = time.to_offset(time::UtcOffset::UTC);
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    let (tag, text) = if (1950..2050).contains(&time.year()) {
        (0x17, format!("{:02}{rest}", time.year().rem_euclid(100)))
    } else {
        (0x18, format!("{:04}{rest}", time.year()))
    };
    let mut der = vec![tag, u8::try_from(text.len()).unwrap_or_default()];
    der.extend_from_slice(text.as_bytes());
    writer.write_der(&der);
}

fn not_a_ca() -> Vec<u8> {
    yasna::construct_der(|writer| writer.write_sequence(|_| ()))
}

fn purposes(oids: &[&[u8]]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for oid in oids {
                write_oid(writer.next(), oid);
            }
        });
    })
}

/// dNSName is [2], iPAddress is [7] (§4.2.1.6).
fn alt_names(names: &[HostName]) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for name in names {
                match name {
                    HostName::Dns(name) => writer
                        .next()
                        .write_tagged_implicit(Tag::context(2), |writer| writer.write_ia5_string(name)),
                    HostName::Ip(ip) => {
                        let octets = match ip {
                            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
                            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
                        };
                        writer
                            .next()
                            .write_tagged_implicit(Tag::context(7), |writer| writer.write_bytes(&octets));
                    }
                }
            }
        });
    })
}

/// uniformResourceIdentifier is [6] (§4.2.1.6).
fn alt_uri(uri: &str) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_tagged_implicit(Tag::context(6), |writer| writer.write_ia5_string(uri));
        });
    })
}

/// The first 160 bits of the SHA-256 of the key (RFC 7093 §2 method 1).
pub(crate) fn key_id(key: &PublicKey) -> Vec<u8> {
    let mut id = hash::sha256(key.raw()).to_vec();
    id.truncate(20);
    id
}

/// What a CA is called in its certificate, and in the comment of its SSH key. The longest names of clusters leave no
/// room for their own; the organization has it.
pub(crate) fn ca_common_name(kind: CaKind, cluster: &str) -> String {
    let name = format!("{cluster} {kind} CA");
    if name.chars().count() <= NAME_CHARACTERS { name } else { format!("{kind} CA") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sallyport_sal::MemoryKey;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn every_algorithm_signs_and_times_change_form_in_2050() {
        for algorithm in [
            KeyAlgorithm::Ed25519,
            KeyAlgorithm::EcdsaP256,
            KeyAlgorithm::EcdsaP384,
            KeyAlgorithm::EcdsaP521,
            KeyAlgorithm::Rsa2048,
            KeyAlgorithm::MlDsa44,
            KeyAlgorithm::MlDsa65,
            KeyAlgorithm::MlDsa87,
        ] {
            let key = MemoryKey::generate(algorithm).unwrap();
            for not_after in [datetime!(2049-12-31 23:59:59 UTC), datetime!(2050-01-01 0:00 UTC)] {
                let name = Name::new("größe", "prod");
                let der = Template {
                    serial: [0x7f; SERIAL_BYTES],
                    issuer: &name.der(),
                    subject: name,
                    not_before: datetime!(2026-02-03 4:05:06 UTC),
                    not_after,
                    subject_key: &key.public_key(),
                    profile: Profile::Ca,
                }
                .sign(&key)
                .unwrap();
                let read = parse(&der).unwrap();
                assert_eq!(read.validity().not_before.to_datetime(), datetime!(2026-02-03 4:05:06 UTC));
                assert_eq!(read.validity().not_after.to_datetime(), not_after);
                assert_eq!(read.validity().not_after.is_generalizedtime(), not_after.year() >= 2050);
                assert_eq!(read.subject().to_string(), "O=prod, CN=größe");
                let signed = read.tbs_certificate.as_ref();
                key.public_key().verify(signed, &read.signature_value.data).unwrap();
                assert_eq!(CaCertificate::parse(&der).unwrap().public_key, key.public_key());
            }
        }
    }
}
