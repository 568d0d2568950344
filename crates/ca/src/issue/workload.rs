//! Workloads.

use time::{Duration, OffsetDateTime};

use super::{Job, TlsCertificate, tls_key};
use crate::lifetimes::CertificateKind;
use crate::spiffe::SpiffeId;
use crate::x509::{Name, Profile};
use crate::{Authority, CaError};

/// Makes the X.509-SVID of a workload: client and server, known by its SPIFFE ID alone.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the spiffe CA, [`CaError::BadName`] when the ID is of another trust
/// domain, [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_svid(
    authority: &Authority,
    id: &SpiffeId,
    tls_spki: &[u8],
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<TlsCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::Svid, now, ttl)?;
    id.require_domain(authority.cluster())?;
    let key = tls_key(tls_spki)?;
    let uri = id.to_string();
    let name = Name { common_name: None, organization: Some(job.cluster()) };
    job.tls(&key, &uri, name, vec![uri.clone()], Profile::Workload { id: &uri })
}
