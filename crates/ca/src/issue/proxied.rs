//! A proxy that speaks to one agent for a user.

use sallyport_access::{HostId, Identity, Principal};
use time::{Duration, OffsetDateTime};

use super::{Job, TlsCertificate, tls_key};
use crate::extension::{self, Mark, Via};
use crate::lifetimes::CertificateKind;
use crate::x509::{Name, Profile};
use crate::{Authority, CaError, CaKind};

/// Certifies that a proxy speaks for a user, to one agent. No other host takes the certificate for the user's:
/// [`Trust::identify_proxied`](crate::Trust::identify_proxied) is the only reader, and asks which agent it is.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the user CA or the identity not a user's, [`CaError::BadPublicKey`],
/// [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_proxied(
    authority: &Authority,
    identity: &Identity,
    proxy: HostId,
    agent: HostId,
    tls_spki: &[u8],
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<TlsCertificate, CaError> {
    let Principal::User { name, .. } = &identity.principal else {
        return Err(CaError::WrongAuthority { asked: CaKind::Host, authority: authority.kind() });
    };
    let job = Job::new(authority, CertificateKind::ProxyToAgent, now, ttl)?.of_login(identity.login_id);
    let key = tls_key(tls_spki)?;
    let mark = Mark {
        via: Some(Via { proxy, agent }),
        device: identity.device,
        pinned_to: identity.pinned_to,
        ..Mark::default()
    };
    let identity_json = extension::to_json(job.cluster(), identity.login_id, &identity.principal, mark)?;
    let names = vec![format!("proxy {proxy}"), format!("agent {agent}")];
    let profile = Profile::User { identity_json: &identity_json };
    job.tls(&key, name.as_str(), Name::new(name.as_str(), job.cluster()), names, profile)
}
