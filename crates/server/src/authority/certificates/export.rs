//! The public halves of the authorities, and the lists of what was denied, in the formats of others.

use std::collections::HashMap;

use sallyport_ca::jwt::KeySet;
use sallyport_ca::revocation::{DeniedSerials, crl, crl_pem, krl};
use sallyport_ca::{CaKind, known_hosts_lines, spiffe};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::certificates::register::CertificateRegister;
use crate::authority::issuance::issued::DenialRecord;
use sallyport_ca::revocation::{has_crl, has_krl};

/// How long a list of revoked certificates may be used before it is asked for again.
const LIST_TTL: time::Duration = time::Duration::days(1);

/// Which CAs have a format.
type Has = fn(CaKind) -> bool;

/// The formats, and the CAs that have each.
const FORMATS: [(&str, Has); 7] = [
    ("openssh", |kind| kind.ssh_purpose().is_some()),
    ("known_hosts", |kind| kind == CaKind::Host),
    ("tls", |kind| kind.tls_purpose().is_some()),
    ("jwks", |kind| kind.jwt_purpose().is_some()),
    ("spiffe", |kind| kind == CaKind::Spiffe),
    ("crl", has_crl),
    ("krl", has_krl),
];

impl CertificateRegister {
    /// A CA as other software reads it, with both keys during a rotation.
    pub(crate) async fn export_ca(
        &self,
        asked: &v1::ExportCaRequest,
    ) -> Result<v1::ExportCaResponse, Status> {
        let kind: CaKind = asked
            .kind
            .parse()
            .map_err(|error: sallyport_ca::UnknownCa| Status::invalid_argument(error.to_string()))?;
        let fits = || FORMATS.iter().filter(|(_, has)| has(kind)).map(|(name, _)| *name);
        let format = if asked.format.is_empty() { fits().next().unwrap_or_default() } else { &asked.format };
        if !fits().any(|name| name == format) {
            return Err(Status::invalid_argument(format!(
                "the {kind} CA has no format {:?}; expected {}",
                shown(format),
                fits().collect::<Vec<_>>().join(", ")
            )));
        }
        let authorities = self.issuance.with_signer(kind).await?;
        let trust = authorities.trust();
        let keys = trust.public_keys(kind);
        let failed = |error: sallyport_ca::CaError| Status::internal(error.to_string());
        let text = match format {
            "openssh" => keys.ssh.iter().map(|line| format!("{line}\n")).collect(),
            "known_hosts" => {
                let patterns = [format!("*.{}", self.config.cluster), self.config.cluster.to_string()];
                known_hosts_lines(trust, &patterns)
            }
            "tls" => keys.tls.concat(),
            "jwks" => KeySet::of(trust, kind).and_then(|set| set.jwks()).map_err(failed)? + "\n",
            "spiffe" => spiffe::bundle(trust).map_err(failed)? + "\n",
            "crl" => self.crls(kind).await?,
            _ => {
                let data = self.krl(kind).await?.into();
                return Ok(v1::ExportCaResponse { text: String::new(), data });
            }
        };
        Ok(v1::ExportCaResponse { text, data: bytes::Bytes::new() })
    }

    /// One list for each key of the CA, the one in use first.
    async fn crls(&self, kind: CaKind) -> Result<String, Status> {
        let denials = self.issued.denials().await?;
        let authorities = self.issuance.authorities();
        let entry = authorities
            .entry(kind)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))?;
        let now = OffsetDateTime::now_utc();
        // The number has to grow with every list (RFC 5280 §5.2.3); so does the clock.
        let number = u64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        let mut text = String::new();
        for authority in std::iter::once(&entry.signer).chain(&entry.also_trusted) {
            let made = authority.tls().and_then(|side| {
                let pin = side.pin();
                let denied = of_key(&denials, kind, &pin);
                let denied: Vec<_> = denied.map(|denial| (denial.serial.clone(), denial.at)).collect();
                crl(authority, number, now, now + LIST_TTL, &denied)
            });
            text += &crl_pem(&made.map_err(|error| Status::unavailable(error.to_string()))?);
        }
        Ok(text)
    }

    async fn krl(&self, kind: CaKind) -> Result<Vec<u8>, Status> {
        let denials = self.issued.denials().await?;
        let authorities = self.issuance.authorities();
        let entry = authorities
            .entry(kind)
            .ok_or_else(|| Status::unavailable(format!("there is no {kind} CA yet")))?;
        let now = OffsetDateTime::now_utc();
        let version = u64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        let failed = |error: sallyport_ca::CaError| Status::internal(error.to_string());
        let mut denied = Vec::new();
        for authority in std::iter::once(&entry.signer).chain(&entry.also_trusted) {
            let side = authority.ssh().map_err(failed)?;
            // An X.509 serial number of the same CA is no decimal of 64 bits, and its key has another name.
            let serials = of_key(&denials, kind, side.fingerprint());
            let serials = serials.filter_map(|denial| denial.serial.parse().ok()).collect();
            denied.push(DeniedSerials { ca_line: side.public_line(), serials });
        }
        krl(version, now, self.config.cluster.as_str(), &denied).map_err(failed)
    }
}

fn of_key<'d>(
    denials: &'d HashMap<String, DenialRecord>,
    kind: CaKind,
    key: &str,
) -> impl Iterator<Item = &'d DenialRecord> {
    denials.values().filter(move |denial| denial.signed_by == kind && denial.signing_key == key)
}
