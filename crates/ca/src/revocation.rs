//! What was denied, as third parties read it: they do not ask the authority when they see a certificate, but most read a list.
//!
//! Inside the cluster nothing needs these: a lock reaches every proxy and node within seconds.

use time::OffsetDateTime;
use yasna::{DERWriter, Tag};

use crate::encoding::put_string;
use crate::x509::{self, AUTHORITY_KEY_ID};
use crate::{Authority, CaError, CaKind};

/// Content octets of the OID of the CRL number (RFC 5280 §5.2.3).
const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 0x14];

/// Makes the revocation list (RFC 5280 §5) of one X.509 CA, in DER: serial numbers in hexadecimal, each with the time
/// of its denial. A list without any is a list, too: readers that demand one want to see it.
///
/// # Errors
/// [`CaError::NoKey`] when it is no X.509 CA, [`CaError::Encode`] for a serial number that is none, or
/// [`CaError::Sign`].
pub fn crl(
    authority: &Authority,
    number: u64,
    now: OffsetDateTime,
    next: OffsetDateTime,
    denied: &[(String, OffsetDateTime)],
) -> Result<Vec<u8>, CaError> {
    let side = authority.tls()?;
    let mut entries = Vec::with_capacity(denied.len());
    for (serial, at) in denied {
        let serial =
            data_encoding::HEXLOWER_PERMISSIVE.decode(serial.as_bytes()).map_err(|_| CaError::Encode {
                what: "a CRL",
                reason: format!("{serial:?} is not a serial number in hexadecimal"),
            })?;
        entries.push((serial, *at));
    }
    let signer = side.signer();
    let (algorithm, key) = (signer.algorithm(), signer.public_key());
    let list = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(1); // v2
            x509::write_algorithm(writer.next(), algorithm);
            writer.next().write_der(side.name_der());
            x509::write_time(writer.next(), now);
            x509::write_time(writer.next(), next);
            // §5.1.2.6: absent when there is none.
            if !entries.is_empty() {
                writer.next().write_sequence(|writer| {
                    for (serial, at) in &entries {
                        writer.next().write_sequence(|writer| {
                            writer.next().write_bigint_bytes(serial, true);
                            x509::write_time(writer.next(), *at);
                        });
                    }
                });
            }
            writer.next().write_tagged(Tag::context(0), |writer| {
                writer.write_sequence(|writer| {
                    write_extension(writer.next(), AUTHORITY_KEY_ID, &x509::authority_key_id(&key));
                    let number = yasna::construct_der(|writer| writer.write_u64(number));
                    write_extension(writer.next(), CRL_NUMBER, &number);
                });
            });
        });
    });
    let signature = signer.sign(&list)?;
    Ok(x509::signed(&list, algorithm, &signature))
}

/// A DER document as the PEM block `X509 CRL` (RFC 7468 §7).
#[must_use]
pub fn crl_pem(der: &[u8]) -> String {
    x509::pem("X509 CRL", der)
}

fn write_extension(writer: DERWriter<'_>, oid: &[u8], value: &[u8]) {
    writer.write_sequence(|writer| {
        x509::write_oid(writer.next(), oid);
        writer.next().write_bytes(value);
    });
}

/// First bytes of a revocation list of OpenSSH.
const KRL_MAGIC: &[u8] = b"SSHKRL\n\0";
const KRL_FORMAT: u32 = 1;
const SECTION_CERTIFICATES: u8 = 1;
const CERTIFICATE_SERIALS: u8 = 0x20;

/// The serial numbers that one SSH CA key has signed and that are denied.
#[derive(Debug, Clone)]
pub struct DeniedSerials<'a> {
    /// The key's OpenSSH line.
    pub ca_line: &'a str,
    /// The serial numbers.
    pub serials: Vec<u64>,
}

/// Makes a revocation list of OpenSSH (PROTOCOL.krl), as `RevokedKeys` of sshd_config(5) takes it. `version` has to
/// grow with every list.
///
/// # Errors
/// [`CaError::BadTrust`] for a CA line that is none.
pub fn krl(
    version: u64,
    now: OffsetDateTime,
    comment: &str,
    denied: &[DeniedSerials<'_>],
) -> Result<Vec<u8>, CaError> {
    let mut list = KRL_MAGIC.to_vec();
    list.extend_from_slice(&KRL_FORMAT.to_be_bytes());
    list.extend_from_slice(&version.to_be_bytes());
    list.extend_from_slice(&u64::try_from(now.unix_timestamp()).unwrap_or_default().to_be_bytes());
    list.extend_from_slice(&0_u64.to_be_bytes()); // flags
    put_string(&mut list, b""); // reserved
    put_string(&mut list, comment.as_bytes());
    for DeniedSerials { ca_line, serials } in denied {
        if serials.is_empty() {
            continue;
        }
        let bad = |error: ssh_key::Error| CaError::BadTrust { field: "ssh", reason: error.to_string() };
        let key = ssh_key::PublicKey::from_openssh(ca_line).and_then(|key| key.to_bytes()).map_err(bad)?;
        let mut serials = serials.clone();
        serials.sort_unstable();
        serials.dedup();
        let numbers: Vec<u8> = serials.iter().flat_map(|serial| serial.to_be_bytes()).collect();
        let mut section = Vec::new();
        put_string(&mut section, &key);
        put_string(&mut section, b""); // reserved
        section.push(CERTIFICATE_SERIALS);
        put_string(&mut section, &numbers);
        list.push(SECTION_CERTIFICATES);
        put_string(&mut list, &section);
    }
    Ok(list)
}

/// Whether third parties verify certificates of this CA in X.509, and may want a CRL.
#[must_use]
pub fn has_crl(kind: CaKind) -> bool {
    matches!(kind, CaKind::Db | CaKind::DbClient | CaKind::Spiffe)
}

/// Whether stock OpenSSH verifies certificates of this CA, and may want a KRL.
#[must_use]
pub fn has_krl(kind: CaKind) -> bool {
    matches!(kind, CaKind::User | CaKind::Host | CaKind::Openssh)
}
