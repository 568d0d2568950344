//! JSON Web Tokens: of users for applications, of workloads, and of the cluster for cloud providers.

use sallyport_access::{Identity, Principal};
use serde_json::Map;
use time::{Duration, OffsetDateTime};

use super::{Job, Token};
use crate::jwt::Claims;
use crate::lifetimes::CertificateKind;
use crate::spiffe::SpiffeId;
use crate::{Authority, CaError, CaKind};

/// Longest subject and audience of a token, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Who made a token, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct TokenSubject<'a> {
    /// `iss`: the public address of the cluster as a URL without a slash at the end, where the keys can be had.
    pub issuer: &'a str,
    /// `aud`: for whom.
    pub audience: &'a [String],
}

/// Makes a token that proves a user to an application.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the jwt CA or the identity not a user's, [`CaError::BadClaim`],
/// [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_jwt(
    authority: &Authority,
    subject: TokenSubject<'_>,
    identity: &Identity,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<Token, CaError> {
    let Principal::User { name, roles, traits, .. } = &identity.principal else {
        return Err(CaError::WrongAuthority { asked: CaKind::Host, authority: authority.kind() });
    };
    let job = Job::new(authority, CertificateKind::Jwt, now, ttl)?;
    let roles: Vec<&str> = roles.iter().map(AsRef::as_ref).collect();
    let custom = Map::from_iter([
        ("username".to_owned(), name.as_str().into()),
        ("roles".to_owned(), roles.into()),
        ("traits".to_owned(), serde_json::json!(traits)),
        ("cluster".to_owned(), job.cluster().into()),
    ]);
    job.jwt(claims(&job, Some(subject.issuer), name.as_str(), subject.audience, custom)?)
}

/// Makes the JWT-SVID of a workload (JWT-SVID §3).
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the spiffe CA, [`CaError::BadName`] when the ID is of another trust
/// domain, [`CaError::BadClaim`], [`CaError::BadLifetime`], or [`CaError::Sign`].
pub fn issue_jwt_svid(
    authority: &Authority,
    id: &SpiffeId,
    audience: &[String],
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<Token, CaError> {
    let job = Job::new(authority, CertificateKind::JwtSvid, now, ttl)?;
    id.require_domain(authority.cluster())?;
    job.jwt(claims(&job, None, &id.to_string(), audience, Map::new())?)
}

/// Makes a token that proves the cluster, or a part of it, to a cloud provider.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the oidc_idp CA, [`CaError::BadClaim`], [`CaError::BadLifetime`], or
/// [`CaError::Sign`].
pub fn issue_oidc(
    authority: &Authority,
    subject: TokenSubject<'_>,
    name: &str,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<Token, CaError> {
    let job = Job::new(authority, CertificateKind::Oidc, now, ttl)?;
    job.jwt(claims(&job, Some(subject.issuer), name, subject.audience, Map::new())?)
}

fn claims(
    job: &Job<'_>,
    issuer: Option<&str>,
    subject: &str,
    audience: &[String],
    custom: Map<String, serde_json::Value>,
) -> Result<Claims, CaError> {
    let bad = |name: &str, reason| Err(CaError::BadClaim { name: name.to_owned(), reason });
    // The names of workloads are the spiffe CA's to give.
    let workload = subject.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("spiffe:"));
    if workload && job.kind != CertificateKind::JwtSvid {
        return bad("sub", "a SPIFFE ID is certified by the spiffe CA alone");
    }
    if issuer.is_some_and(|issuer| !issuer.starts_with("https://") || issuer.ends_with('/')) {
        return bad("iss", "expected https://HOST[:PORT] without a slash at the end");
    }
    let plain =
        |text: &str| !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control);
    // SPIFFE IDs have their own, larger bound.
    if job.kind != CertificateKind::JwtSvid && !plain(subject) {
        return bad("sub", "expected 1 to 255 bytes without control characters");
    }
    if !audience.iter().all(|name| plain(name)) {
        return bad("aud", "expected 1 to 255 bytes without control characters");
    }
    Ok(Claims {
        issuer: issuer.map(ToOwned::to_owned),
        subject: subject.to_owned(),
        audience: audience.to_vec(),
        expires: job.validity.before,
        not_before: None,
        issued: None,
        id: None,
        custom,
    })
}
