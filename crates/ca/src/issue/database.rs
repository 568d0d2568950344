//! Database servers, and the agents that log in to them.
//!
//! These certificates have no identity extension: no member of the cluster is known by one.

use time::{Duration, OffsetDateTime};

use super::{Job, TlsCertificate, tls_key};
use crate::lifetimes::CertificateKind;
use crate::names::{HostName, database_user};
use crate::x509::{Name, Profile};
use crate::{Authority, CaError};

/// Which database server is certified.
#[derive(Debug, Clone)]
pub struct DatabaseServerRequest<'a> {
    /// DNS names, also `*.example.com`, and addresses that clients reach it by; at least one. The caller has checked
    /// that none belongs to a host of the cluster.
    pub names: &'a [String],
    /// SubjectPublicKeyInfo, DER.
    pub tls_spki: &'a [u8],
}

/// Certifies a database server for `ttl` from `now`.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the db CA, [`CaError::BadName`] for a name that is not one,
/// [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_database_server(
    authority: &Authority,
    request: &DatabaseServerRequest<'_>,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<TlsCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::DatabaseServer, now, ttl)?;
    let key = tls_key(request.tls_spki)?;
    let mut names: Vec<HostName> = Vec::new();
    for name in request.names {
        let name = HostName::parse_database(name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let shown: Vec<String> = names.iter().map(ToString::to_string).collect();
    let Some(first) = shown.first().cloned() else {
        return Err(CaError::BadName {
            name: String::new(),
            reason: "a database server needs at least one name or address that clients reach it by",
        });
    };
    job.tls(&key, &first, Name::new(&first, job.cluster()), shown, Profile::DatabaseServer { names: &names })
}

/// Certifies an agent that logs in to a database as `user`, which is all that the subject says: databases compare it as
/// a whole (`CN=user`), and MongoDB takes a client whose organization is its own for a member of the replica set.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the db_client CA, [`CaError::BadName`] for a user name that cannot be
/// one, [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_database_client(
    authority: &Authority,
    user: &str,
    tls_spki: &[u8],
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<TlsCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::AgentToDatabase, now, ttl)?;
    let key = tls_key(tls_spki)?;
    database_user(user)?;
    let name = Name { common_name: Some(user), organization: None };
    job.tls(&key, user, name, Vec::new(), Profile::DatabaseClient)
}
