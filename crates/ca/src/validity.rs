//! When a certificate counts.

use sallyport_sal::tls::rustls::pki_types::UnixTime;
use time::OffsetDateTime;

use crate::{CaError, SKEW_ALLOWANCE};

/// The time to validate a path at: now, or the nearer end of the leaf's validity when now is outside by no more than
/// the allowance.
pub(crate) fn effective_time(
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<UnixTime, CaError> {
    if now < not_before - SKEW_ALLOWANCE {
        return Err(CaError::NotYetValid { valid_after: not_before, now });
    }
    if now >= not_after + SKEW_ALLOWANCE {
        return Err(CaError::Expired { valid_before: not_after, now });
    }
    let at = now.clamp(not_before, not_after.max(not_before)).unix_timestamp();
    let seconds = u64::try_from(at)
        .map_err(|_| CaError::Malformed { reason: "its validity is out of range".to_owned() })?;
    Ok(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
}
