//! Issuing: one login or join gives one SSH and one X.509 certificate that say the same.

use sallyport_access::{HostId, HostRole, Identity, NodeName, Principal};
use sallyport_sal::{PublicKey, random};
use ssh_key::HashAlg;
use ssh_key::public::KeyData;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::names::{self, HostName};
use crate::x509::{self, Name, Profile, SERIAL_BYTES};
use crate::{Authority, CaError, CaKind, SKEW_ALLOWANCE, authority, extension, ssh};

/// Shortest lifetime of any certificate.
pub const MIN_TTL: Duration = Duration::minutes(1);
/// Longest lifetime of a user's certificate, whatever the roles say.
pub const MAX_USER_TTL: Duration = Duration::days(7);
/// Longest lifetime of a host's certificate.
pub const MAX_HOST_TTL: Duration = Duration::days(90);

/// What an SSH certificate lets its holder ask for. The node decides again; stock servers know only these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshOptions {
    /// `permit-pty`: a terminal. Default true.
    pub permit_pty: bool,
    /// `permit-port-forwarding`. Default true.
    pub port_forwarding: bool,
    /// `permit-agent-forwarding`. Default false: whoever is root on the target can use the agent meanwhile.
    pub agent_forwarding: bool,
}

impl Default for SshOptions {
    fn default() -> Self {
        Self { permit_pty: true, port_forwarding: true, agent_forwarding: false }
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
}

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
    /// For a proxy: the DNS names and addresses that users reach it by. Ignored for other roles.
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
}

/// Certifies a user for `ttl` from `now`. The validity in `identity` is not looked at.
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
    let Principal::User { name, logins, .. } = &identity.principal else {
        return Err(CaError::WrongAuthority { asked: CaKind::Host, authority: authority.kind() });
    };
    check_authority(authority, CaKind::User)?;
    let subject = Subject::parse(ssh_public_key, tls_spki)?;
    let validity = Validity::new(now, ttl, MAX_USER_TTL)?;
    let cluster = authority.cluster().as_str();

    let mut extensions = ssh::identity_extensions(cluster, identity.login_id, &identity.principal)?;
    for (permitted, extension) in [
        (options.permit_pty, "permit-pty"),
        (options.port_forwarding, "permit-port-forwarding"),
        (options.agent_forwarding, "permit-agent-forwarding"),
    ] {
        if permitted {
            extensions.insert(extension.to_owned(), String::new());
        }
    }
    let mut principals: Vec<String> = logins.iter().map(ToString::to_string).collect();
    if principals.is_empty() {
        principals.push(ssh::NO_LOGIN.to_owned());
    }
    let (ssh_serial, ssh) =
        sign_ssh(authority, &subject, &validity, name.as_str(), &principals, &extensions)?;

    let identity_json = extension::to_json(cluster, identity.login_id, &identity.principal)?;
    let (tls_serial, tls_der) = sign_tls(
        authority,
        &subject,
        &validity,
        name.as_str(),
        Profile::User { identity_json: &identity_json },
    )?;
    Ok(UserCertificates {
        ssh,
        tls_pem: x509::to_pem(&tls_der),
        valid_after: validity.after,
        valid_before: validity.before,
        ssh_fingerprint: subject.ssh.fingerprint(HashAlg::Sha256).to_string(),
        serials: Serials { ssh: ssh_serial, tls: hex(&tls_serial) },
    })
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
    check_authority(authority, CaKind::Host)?;
    let subject = Subject::parse(request.ssh_public_key, request.tls_spki)?;
    let validity = Validity::new(now, ttl, MAX_HOST_TTL)?;
    let cluster = authority.cluster();
    let principal = Principal::Host { id: request.id, name: request.name.clone(), role: request.role };

    // In TLS a host is its id and its role; in SSH, what people type.
    let mut tls_names = vec![
        HostName::Dns(format!("{}.{cluster}.{}", request.id, names::DOMAIN)),
        HostName::Dns(names::server_name(request.role, cluster)),
    ];
    let mut principals =
        vec![request.name.to_string(), request.id.to_string(), format!("{}.{cluster}", request.name)];
    if request.role == HostRole::Proxy {
        for public in request.public_names.iter().map(String::as_str).chain(["localhost", "127.0.0.1", "::1"])
        {
            let name = HostName::parse(public)?;
            if !principals.contains(&name.to_string()) {
                principals.push(name.to_string());
            }
            if !tls_names.contains(&name) {
                tls_names.push(name);
            }
        }
    }

    let extensions = ssh::identity_extensions(cluster.as_str(), request.join_id, &principal)?;
    let (ssh_serial, ssh) =
        sign_ssh(authority, &subject, &validity, request.name.as_str(), &principals, &extensions)?;
    let identity_json = extension::to_json(cluster.as_str(), request.join_id, &principal)?;
    let (tls_serial, tls_der) = sign_tls(
        authority,
        &subject,
        &validity,
        request.name.as_str(),
        Profile::Host { identity_json: &identity_json, names: &tls_names },
    )?;
    Ok(HostCertificates {
        ssh,
        tls_pem: x509::to_pem(&tls_der) + &authority.record().tls_certificate_pem,
        valid_after: validity.after,
        valid_before: validity.before,
        serials: Serials { ssh: ssh_serial, tls: hex(&tls_serial) },
    })
}

/// The two keys to be certified.
struct Subject {
    ssh: KeyData,
    tls: PublicKey,
}

impl Subject {
    fn parse(ssh_public_key: &str, tls_spki: &[u8]) -> Result<Self, CaError> {
        Ok(Self {
            ssh: ssh::subject_key(ssh_public_key)?,
            tls: PublicKey::from_spki_der(tls_spki)
                .map_err(|error| CaError::BadPublicKey { which: "TLS", reason: error.to_string() })?,
        })
    }
}

/// Validity in whole seconds, as both formats count.
struct Validity {
    after: OffsetDateTime,
    before: OffsetDateTime,
}

impl Validity {
    fn new(now: OffsetDateTime, ttl: Duration, max: Duration) -> Result<Self, CaError> {
        if ttl < MIN_TTL || ttl > max {
            return Err(CaError::BadLifetime {
                got: ttl.whole_seconds(),
                min: MIN_TTL.whole_seconds(),
                max: max.whole_seconds(),
            });
        }
        let now = now - Duration::nanoseconds(i64::from(now.nanosecond()));
        let ttl = Duration::seconds(ttl.whole_seconds());
        Ok(Self { after: now - SKEW_ALLOWANCE, before: now + ttl })
    }
}

fn check_authority(authority: &Authority, asked: CaKind) -> Result<(), CaError> {
    if authority.kind() == asked {
        Ok(())
    } else {
        Err(CaError::WrongAuthority { asked, authority: authority.kind() })
    }
}

fn sign_ssh(
    authority: &Authority,
    subject: &Subject,
    validity: &Validity,
    key_id: &str,
    principals: &[String],
    extensions: &std::collections::BTreeMap<String, String>,
) -> Result<(u64, String), CaError> {
    let seconds = |time: OffsetDateTime| {
        u64::try_from(time.unix_timestamp()).map_err(|_| CaError::Encode {
            what: "the SSH certificate",
            reason: "it is valid before 1970".to_owned(),
        })
    };
    let serial = u64::from_be_bytes(random::bytes()?);
    let certificate = ssh::Template {
        nonce: random::bytes()?,
        subject_key: &subject.ssh,
        serial,
        kind: authority.kind(),
        key_id,
        principals,
        valid_after: seconds(validity.after)?,
        valid_before: seconds(validity.before)?,
        extensions,
    }
    .sign(authority.ssh()?.signer())?;
    let line = certificate
        .to_openssh()
        .map_err(|error| CaError::Encode { what: "the SSH certificate", reason: error.to_string() })?;
    Ok((serial, line))
}

fn sign_tls(
    authority: &Authority,
    subject: &Subject,
    validity: &Validity,
    common_name: &str,
    profile: Profile<'_>,
) -> Result<([u8; SERIAL_BYTES], Vec<u8>), CaError> {
    let cluster = authority.cluster().as_str();
    let issuer = x509::ca_common_name(authority.kind(), cluster);
    let serial = authority::serial()?;
    let der = x509::Template {
        serial,
        issuer: Name { common_name: &issuer, organization: cluster },
        subject: Name { common_name, organization: cluster },
        not_before: validity.after,
        not_after: validity.before,
        subject_key: &subject.tls,
        profile,
    }
    .sign(authority.tls()?.signer())?;
    Ok((serial, der))
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
