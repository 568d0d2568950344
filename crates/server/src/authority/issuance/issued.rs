//! What was issued, as it stands in events and on the list.

use sallyport_audit::Event;
use sallyport_ca::{CaKind, Issued};
use sallyport_store::Kind;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The field of an event that holds what was issued.
pub(crate) const FIELD: &str = "certificates";

/// Denials outlive what they deny by this: a list of revoked certificates names one that has just expired (RFC 5280
/// §3.3).
const DENIAL_KEPT: time::Duration = time::Duration::days(2);

/// One certificate or token that was issued, under its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CertificateRecord {
    #[serde(flatten)]
    pub(crate) issued: Issued,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    /// Who asked for it: the one it is about, or an administrator.
    pub(crate) by: String,
    pub(crate) source: String,
}

impl Kind for CertificateRecord {
    const KIND: &'static str = "certificate";
}

/// A certificate that was denied, under its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DenialRecord {
    pub(crate) signed_by: CaKind,
    pub(crate) signing_key: String,
    pub(crate) serial: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) by: String,
    pub(crate) reason: String,
    /// The lock that came with it; empty for what third parties alone verify.
    pub(crate) lock: String,
}

impl Kind for DenialRecord {
    const KIND: &'static str = "denial";
}

/// Puts into an event what was issued.
pub(crate) fn with_certificates(event: Event, issued: &[Issued]) -> Event {
    // Records of strings and times always encode.
    event.field(FIELD, serde_json::to_value(issued).unwrap_or_default())
}

/// Until when a denial is kept.
pub(crate) fn denial_end(issued: &Issued) -> OffsetDateTime {
    issued.valid_before + DENIAL_KEPT
}

/// What an administrator may call a certificate, as it is compared: a serial number, a fingerprint of it or of its key, in any
/// of the forms in which `ssh-keygen` and `openssl` print them.
pub(crate) fn is_called(record: &CertificateRecord, id: &str) -> bool {
    let issued = &record.issued;
    if issued.serial == id || issued.key == id || issued.fingerprint == id {
        return true;
    }
    // AB:CD:..., 0xabcd, upper case.
    let plain: String = id.trim_start_matches("0x").chars().filter(|c| *c != ':').collect();
    let plain = plain.to_ascii_lowercase();
    plain.len() >= 16
        && [&issued.serial, &issued.fingerprint, &issued.key].into_iter().any(|own| *own == plain)
}
