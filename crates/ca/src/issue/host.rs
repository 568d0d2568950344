//! Hosts of the cluster, and stock OpenSSH servers.

use std::collections::BTreeMap;

use sallyport_access::{HostId, HostRole, NodeName, Principal};
use sallyport_sal::PublicKey;
use ssh_key::public::KeyData;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Issued, Job, Serials, SshCertificate, TlsCertificate, tls_key};
use crate::lifetimes::CertificateKind;
use crate::names::{self, HostName};
use crate::x509::{Name, Profile};
use crate::{Authority, CaError, extension, ssh};

/// Which host is certified, and for what.
#[derive(Debug, Clone)]
pub struct HostRequest<'a> {
    /// Its id.
    pub id: HostId,
    /// Its name. The caller has checked that no other host has a claim to it.
    pub name: &'a NodeName,
    /// What it is.
    pub role: HostRole,
    /// The join that this certificate goes back to; renewals keep it.
    pub join_id: Uuid,
    /// For a proxy and a stock server: the DNS names and addresses that users reach it by. Ignored for other roles.
    pub public_names: &'a [String],
    /// OpenSSH one-line public key.
    pub ssh_public_key: &'a str,
    /// SubjectPublicKeyInfo, DER.
    pub tls_spki: &'a [u8],
}

/// What a join or a renewal gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificates {
    /// OpenSSH one-line certificate.
    pub ssh: String,
    /// PEM chain: the host's X.509 certificate and the CA's, which clients with only a pin need.
    pub tls_pem: String,
    /// Start of validity of both, skew allowance included.
    pub valid_after: OffsetDateTime,
    /// End of validity of both.
    pub valid_before: OffsetDateTime,
    /// Serial numbers.
    pub serials: Serials,
    /// What to write down: the SSH certificate, then the other.
    pub issued: Vec<Issued>,
}

/// Which stock OpenSSH server is certified.
#[derive(Debug, Clone)]
pub struct OpensshHostRequest<'a> {
    /// DNS names and addresses that people reach it by; at least one. The caller has checked that none belongs to a
    /// host of the cluster: users' `ssh` would take the one for the other.
    pub names: &'a [String],
    /// OpenSSH one-line public key.
    pub ssh_public_key: &'a str,
}

/// Certifies a host for `ttl` from `now`.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the host CA, [`CaError::BadName`] for a public name that is not one,
/// [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_host(
    authority: &Authority,
    request: &HostRequest<'_>,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<HostCertificates, CaError> {
    let job = Job::new(authority, CertificateKind::Host, now, ttl)?.of_login(request.join_id);
    let ssh_key = ssh::subject_key(request.ssh_public_key)?;
    let tls_key = tls_key(request.tls_spki)?;
    let (ssh_serial, ssh) = host_ssh(&job, request, &ssh_key, request.role)?;
    let tls = host_tls(&job, request, &tls_key)?;
    Ok(HostCertificates {
        ssh: ssh.line,
        valid_after: job.validity.after,
        valid_before: job.validity.before,
        serials: Serials { ssh: ssh_serial, tls: tls.issued.serial.clone() },
        tls_pem: tls.pem + &tls.ca_pem,
        issued: vec![ssh.issued, tls.issued],
    })
}

/// Certifies a host for TLS alone: one that speaks no SSH. The SSH key of the request is not looked at.
///
/// # Errors
/// As [`issue_host`].
pub fn issue_host_tls(
    authority: &Authority,
    request: &HostRequest<'_>,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<TlsCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::Host, now, ttl)?.of_login(request.join_id);
    host_tls(&job, request, &tls_key(request.tls_spki)?)
}

/// Certifies a proxy's key for the name of a server that the proxy stands before: users' clients meet the proxy where
/// they asked for the server. The request is about the server; its join is the proxy's, so that a lock on the proxy is
/// one on this, too. As its holder it names the proxy's role, so that a client who wants the server itself can tell, and an
/// extension names the server: without it, no client takes a proxy for a server. The TLS key of the request is not
/// looked at.
///
/// # Errors
/// As [`issue_host`].
pub fn issue_target_host(
    authority: &Authority,
    request: &HostRequest<'_>,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<SshCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::Host, now, ttl)?.of_login(request.join_id);
    let key = ssh::subject_key(request.ssh_public_key)?;
    host_ssh(&job, request, &key, HostRole::Proxy).map(|(_, certificate)| certificate)
}

/// The SSH certificate of the pair: in SSH a host is what people type. `holder` has the key.
pub(super) fn host_ssh(
    job: &Job<'_>,
    request: &HostRequest<'_>,
    key: &KeyData,
    holder: HostRole,
) -> Result<(u64, SshCertificate), CaError> {
    let cluster = job.cluster();
    // The id leads to a node whose name another has, too; stock ssh knows both with the cluster behind them.
    let mut principals = vec![
        request.name.to_string(),
        request.id.to_string(),
        format!("{}.{cluster}", request.name),
        format!("{}.{cluster}", request.id),
    ];
    let names = match request.role {
        HostRole::OpenSsh => request.public_names.iter().map(|name| HostName::parse_public(name)).collect(),
        _ => public_names(request),
    };
    for name in names? {
        if !principals.contains(&name.to_string()) {
            principals.push(name.to_string());
        }
    }
    let stands_for = holder != request.role;
    let holder = Principal::Host { id: request.id, name: request.name.clone(), role: holder };
    let mut extensions = ssh::identity_extensions(cluster, request.join_id, &holder)?;
    if stands_for {
        extensions.insert(ssh::STANDS_FOR.to_owned(), request.id.to_string());
    }
    job.ssh(key, request.name.as_str(), &principals, &BTreeMap::new(), &extensions)
}

/// The X.509 certificate of the pair: in TLS a host is its id and its role.
pub(super) fn host_tls(
    job: &Job<'_>,
    request: &HostRequest<'_>,
    key: &PublicKey,
) -> Result<TlsCertificate, CaError> {
    let (name, cluster) = (request.name.as_str(), job.authority.cluster());
    let mut names = vec![
        HostName::Dns(format!("{}.{cluster}.{}", request.id, names::DOMAIN)),
        HostName::Dns(names::server_name(request.role, cluster)),
    ];
    for name in public_names(request)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mark = extension::Mark::default();
    let identity_json = extension::to_json(cluster.as_str(), request.join_id, &principal(request), mark)?;
    job.tls(
        key,
        name,
        Name::new(name, cluster.as_str()),
        names.iter().map(ToString::to_string).collect(),
        Profile::Host { identity_json: &identity_json, names: &names },
    )
}

fn principal(request: &HostRequest<'_>) -> Principal {
    Principal::Host { id: request.id, name: request.name.clone(), role: request.role }
}

/// What users reach a proxy by.
fn public_names(request: &HostRequest<'_>) -> Result<Vec<HostName>, CaError> {
    if request.role != HostRole::Proxy {
        return Ok(Vec::new());
    }
    let local = ["localhost", "127.0.0.1", "::1"];
    request.public_names.iter().map(String::as_str).chain(local).map(HostName::parse).collect()
}

/// Certifies a stock OpenSSH server. It is no host of the cluster: nothing of Sallyport's takes it for one.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the host CA, [`CaError::BadName`] for a name that is not one or belongs
/// to the cluster's machinery, [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`].
pub fn issue_openssh_host(
    authority: &Authority,
    request: &OpensshHostRequest<'_>,
    now: OffsetDateTime,
    ttl: Duration,
) -> Result<SshCertificate, CaError> {
    let job = Job::new(authority, CertificateKind::OpensshHost, now, ttl)?;
    let key = ssh::subject_key(request.ssh_public_key)?;
    let mut principals: Vec<String> = Vec::new();
    for name in request.names {
        let name = HostName::parse_public(name)?.to_string();
        if !principals.contains(&name) {
            principals.push(name);
        }
    }
    let Some(first) = principals.first().cloned() else {
        return Err(CaError::BadName {
            name: String::new(),
            reason: "a host certificate needs at least one name: without any it would be good for every host",
        });
    };
    job.ssh(&key, &first, &principals, &BTreeMap::new(), &BTreeMap::new()).map(|(_, certificate)| certificate)
}
