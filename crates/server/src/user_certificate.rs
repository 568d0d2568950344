//! Certificates that users have shown to a proxy, as headers of streams carry them on to agents.

use data_encoding::BASE64;
use sallyport_access::Identity;
use sallyport_ca::{Trust, keys};
use sallyport_session::factor::Shown;
use sallyport_wire::stream_header::UserCertificate;
use time::OffsetDateTime;

/// The certificate of a TLS connection.
pub(crate) fn of_tls(der: &[u8]) -> UserCertificate {
    UserCertificate::Tls(BASE64.encode(der).into())
}

/// The same, as a host asks about it that decides about a session.
pub(crate) fn shown(certificate: &UserCertificate) -> Result<Shown, String> {
    match certificate {
        UserCertificate::Ssh(line) => Ok(Shown::Ssh(line.to_string())),
        UserCertificate::Tls(text) => {
            let der = BASE64.decode(text.as_bytes()).map_err(|error| error.to_string())?;
            Ok(Shown::Tls(der.into()))
        }
    }
}

/// Why a certificate proves no user. `Display` is for the log and for the person.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotProven {
    /// The header does not have it in base64.
    #[error("it is not in base64: {0}")]
    Encoding(#[from] data_encoding::DecodeError),
    /// The trust of this host does not accept it.
    #[error("{0}")]
    Certificate(#[from] sallyport_ca::CaError),
}

/// Whose it is, by this host's own trust.
pub(crate) fn identify(
    certificate: &UserCertificate,
    trust: &Trust,
    now: OffsetDateTime,
) -> Result<Identity, NotProven> {
    Ok(match certificate {
        UserCertificate::Ssh(line) => trust.verify_user_ssh(&keys::certificate(line)?, now)?,
        UserCertificate::Tls(text) => trust.identify_tls(&BASE64.decode(text.as_bytes())?, now)?,
    })
}
