//! People and their tools.

use std::collections::BTreeMap;

use sallyport_access::{HostId, Identity, Principal, SessionProof};
use sallyport_sal::PublicKey;
use ssh_key::public::KeyData;
use time::{Duration, OffsetDateTime};

use super::{Issued, Job, SshCertificate, TlsCertificate, tls_key};
use crate::lifetimes::CertificateKind;
use crate::x509::{Name, Profile};
use crate::{Authority, CaError, CaKind, extension, ssh};

/// What an SSH certificate lets its holder ask for. The node decides again; stock servers know only these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshOptions {
    /// `permit-pty`: a terminal. Default true.
    pub permit_pty: bool,
    /// `permit-port-forwarding`. Default true.
    pub port_forwarding: bool,
    /// `permit-agent-forwarding`. Default false: root on the target can use the agent meanwhile.
    pub agent_forwarding: bool,
    /// `permit-X11-forwarding`. Default false: programs of the target reach the user's display meanwhile.
    pub x11_forwarding: bool,
}

impl Default for SshOptions {
    fn default() -> Self {
        Self { permit_pty: true, port_forwarding: true, agent_forwarding: false, x11_forwarding: false }
    }
}

/// The serial numbers of a pair of certificates, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serials {
    /// Of the SSH certificate.
    pub ssh: u64,
    /// Of the X.509 certificate, in hexadecimal.
    pub tls: String,
}

/// What a login gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCertificates {
    /// OpenSSH one-line certificate.
    pub ssh: String,
    /// PEM of the X.509 certificate.
    pub tls_pem: String,
    /// Start of validity of both, skew allowance included.
    pub valid_after: OffsetDateTime,
    /// End of validity of both.
    pub valid_before: OffsetDateTime,
    /// Fingerprint of the certified SSH key: `SHA256:…`.
    pub ssh_fingerprint: String,
    /// Serial numbers.
    pub serials: Serials,
    /// What to write down: the SSH certificate, then the other.
    pub issued: Vec<Issued>,
}

/// Who holds the pair of certificates of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserKind {
    /// A person who logged in.
    Person,
    /// The proxy, for a session in the browser.
    WebSession,
    /// A machine user. Its X.509 certificate is [marked](crate::is_renewable): its holder may ask for the next.
    Bot,
}

impl UserKind {
    fn certificate(self) -> CertificateKind {
        match self {
            Self::Person => CertificateKind::User,
            Self::WebSession => CertificateKind::WebSession,
            Self::Bot => CertificateKind::Bot,
        }
    }
}

/// Certifies a person for `ttl` from `now`. The validity in `identity` is not looked at.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the user CA or the identity not a user's, [`CaError::BadPublicKey`],
/// [`CaError::BadLifetime`], or [`CaError::Sign`] when the key cannot sign.
pub fn issue_user(
    authority: &Authority,
    identity: &Identity,
    ssh_public_key: &str,
    tls_spki: &[u8],
    now: OffsetDateTime,
    ttl: Duration,
    options: &SshOptions,
) -> Result<UserCertificates, CaError> {
    issue_user_as(UserKind::Person, authority, identity, ssh_public_key, tls_spki, now, ttl, options)
}

/// [`issue_user`] for any holder of a user's certificates.
///
/// # Errors
/// As there.
#[allow(clippy::too_many_arguments, reason = "as many as the two certificates have fields to choose")]
pub fn issue_user_as(
    kind: UserKind,
    authority: &Authority,
    identity: &Identity,
    ssh_public_key: &str,
    tls_spki: &[u8],
    now: OffsetDateTime,
    ttl: Duration,
    options: &SshOptions,
) -> Result<UserCertificates, CaError> {
    let keys = (ssh_public_key, tls_spki);
    issue_pair(kind, authority, identity, keys, (now, ttl), options, None)
}

/// Both certificates of a user, with what was proven for sessions.
pub(crate) fn issue_pair(
    kind: UserKind,
    authority: &Authority,
    identity: &Identity,
    (ssh_public_key, tls_spki): (&str, &[u8]),
    (now, ttl): (OffsetDateTime, Duration),
    options: &SshOptions,
    session: Option<&SessionProof>,
) -> Result<UserCertificates, CaError> {
    let job = Job::new(authority, kind.certificate(), now, ttl)?.of_login(identity.login_id);
    let ssh_key = ssh::subject_key(ssh_public_key)?;
    let tls_key = tls_key(tls_spki)?;
    let (ssh_serial, ssh) = user_ssh(&job, identity, &ssh_key, options, session)?;
    let mark = extension::Mark {
        renewable: kind == UserKind::Bot,
        via: None,
        session: session.cloned(),
        device: identity.device,
        pinned_to: identity.pinned_to,
    };
    let tls = user_tls(&job, identity, &tls_key, mark)?;
    Ok(UserCertificates {
        ssh: ssh.line,
        tls_pem: tls.pem,
        valid_after: job.validity.after,
        valid_before: job.validity.before,
        ssh_fingerprint: ssh.issued.key.clone(),
        serials: Serials { ssh: ssh_serial, tls: tls.issued.serial.clone() },
        issued: vec![ssh.issued, tls.issued],
    })
}

/// The SSH certificate of the pair.
pub(super) fn user_ssh(
    job: &Job<'_>,
    identity: &Identity,
    key: &KeyData,
    options: &SshOptions,
    session: Option<&SessionProof>,
) -> Result<(u64, SshCertificate), CaError> {
    let (name, logins) = person(job.authority, identity)?;
    let mut extensions = ssh::identity_extensions(job.cluster(), identity.login_id, &identity.principal)?;
    extensions.extend(identity.device.map(|device| ssh::device_extension(&device)));
    extensions.extend(permissions(options));
    if let Some(session) = session {
        let text = serde_json::to_string(session).map_err(|error| CaError::Encode {
            what: "what was proven for sessions",
            reason: error.to_string(),
        })?;
        extensions.insert(ssh::SESSION_FACTOR.to_owned(), text);
    }
    let principals = if logins.is_empty() { vec![ssh::NO_LOGIN.to_owned()] } else { logins.clone() };
    extensions.extend(identity.pinned_to.map(ssh::pin_extension));
    let critical: BTreeMap<String, String> =
        identity.pinned_to.map(ssh::source_address).into_iter().collect();
    let (serial, mut certificate) = job.ssh(key, name, &principals, &critical, &extensions)?;
    certificate.issued.names = logins;
    Ok((serial, certificate))
}

/// The X.509 certificate of the pair.
pub(super) fn user_tls(
    job: &Job<'_>,
    identity: &Identity,
    key: &PublicKey,
    mark: extension::Mark,
) -> Result<TlsCertificate, CaError> {
    let (name, logins) = person(job.authority, identity)?;
    let cluster = job.cluster();
    let identity_json = extension::to_json(cluster, identity.login_id, &identity.principal, mark)?;
    let profile = Profile::User { identity_json: &identity_json };
    job.tls(key, name, Name::new(name, cluster), logins, profile)
}

/// A user's name and logins.
fn person<'a>(authority: &Authority, identity: &'a Identity) -> Result<(&'a str, Vec<String>), CaError> {
    match &identity.principal {
        Principal::User { name, logins, .. } => {
            Ok((name.as_str(), logins.iter().map(ToString::to_string).collect()))
        }
        Principal::Host { .. } => {
            Err(CaError::WrongAuthority { asked: CaKind::Host, authority: authority.kind() })
        }
    }
}

/// Certifies a person for stock OpenSSH servers, which trust the openssh CA. Such servers do not ask the authority: they know the
/// principals, the options and, if they were given one, a list of revoked keys. `only_at` is the one server that is to take it, whose
/// sshd was told its id.
///
/// # Errors
/// [`CaError::WrongAuthority`] when this is not the openssh CA or the identity not a user's, [`CaError::NoLogins`] when
/// it may log in nowhere, [`CaError::BadPublicKey`], [`CaError::BadLifetime`], or [`CaError::Sign`].
pub fn issue_openssh_user(
    authority: &Authority,
    identity: &Identity,
    ssh_public_key: &str,
    now: OffsetDateTime,
    ttl: Duration,
    options: &SshOptions,
    only_at: Option<HostId>,
) -> Result<SshCertificate, CaError> {
    let (name, mut principals) = person(authority, identity)?;
    if let Some(server) = only_at {
        principals.iter_mut().for_each(|login| *login = ssh::own_login(login, &server.to_string()));
    }
    let job = Job::new(authority, CertificateKind::OpensshUser, now, ttl)?;
    let key = ssh::subject_key(ssh_public_key)?;
    if principals.is_empty() {
        return Err(CaError::NoLogins { user: name.to_string() });
    }
    let extensions: BTreeMap<String, String> = permissions(options).collect();
    job.ssh(&key, name, &principals, &BTreeMap::new(), &extensions).map(|(_, certificate)| certificate)
}

fn permissions(options: &SshOptions) -> impl Iterator<Item = (String, String)> {
    [
        (options.permit_pty, "permit-pty"),
        (options.port_forwarding, "permit-port-forwarding"),
        (options.agent_forwarding, "permit-agent-forwarding"),
        (options.x11_forwarding, "permit-X11-forwarding"),
    ]
    .into_iter()
    .filter(|(permitted, _)| *permitted)
    .map(|(_, extension)| (extension.to_owned(), String::new()))
}
