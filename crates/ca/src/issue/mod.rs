//! Issuing: what the authorities sign, for whom, and what is written down of it.
//!
//! One file for each group of subjects: people and their tools ([`user`]), hosts ([`host`]), a proxy that speaks for a
//! user ([`proxied`]), databases ([`database`]), workloads ([`workload`]) and tokens ([`token`]). A lifetime is chosen
//! by the caller, with [`Lifetimes`](crate::Lifetimes); here, only what no policy could allow is refused.

mod database;
mod host;
pub mod measure;
mod proxied;
mod token;
mod user;
mod workload;

use std::collections::BTreeMap;

use sallyport_sal::{PublicKey, hash, random};
use serde::{Deserialize, Serialize};
use ssh_key::public::KeyData;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

pub use database::{DatabaseServerRequest, issue_database_client, issue_database_server};
pub use host::{
    HostCertificates, HostRequest, OpensshHostRequest, issue_host, issue_host_tls, issue_openssh_host,
    issue_target_host,
};
pub use proxied::issue_proxied;
pub use token::{TokenSubject, issue_jwt, issue_jwt_svid, issue_oidc};
pub(crate) use user::issue_pair;
pub use user::{
    Serials, SshOptions, UserCertificates, UserKind, issue_openssh_user, issue_user, issue_user_as,
};
pub use workload::issue_svid;

use crate::lifetimes::CertificateKind;
use crate::x509::{self, Name, Profile, SERIAL_BYTES};
use crate::{Authority, CaError, CaKind, SKEW_ALLOWANCE, authority, jwt, ssh};

/// Longest lifetime of a user's certificate, whatever the roles say.
pub const MAX_USER_TTL: Duration = Duration::days(7);
/// Longest lifetime of a host's certificate.
pub const MAX_HOST_TTL: Duration = Duration::days(90);

/// What a certificate is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// An OpenSSH certificate.
    Ssh,
    /// An X.509 certificate.
    X509,
    /// A JSON Web Token.
    Jwt,
}

/// One certificate or token, as the audit log and the list of what was issued have it. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// What it is.
    pub kind: CertificateKind,
    /// What it is written in.
    pub form: Form,
    /// Who signed it.
    pub signed_by: CaKind,
    /// The key that signed it: of SSH the fingerprint `SHA256:…`, of TLS the pin `sha256:…`, of JWT the `kid`.
    pub signing_key: String,
    /// The serial number: of SSH in decimal, of X.509 in hexadecimal, of a JWT its `jti`.
    pub serial: String,
    /// SHA-256 of the whole: of the certificate's bytes, or of the token as text. In hexadecimal.
    pub fingerprint: String,
    /// The certified key: of SSH the fingerprint `SHA256:…`, of X.509 the SHA-256 of its SubjectPublicKeyInfo. A token
    /// certifies none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Who it is about.
    pub subject: String,
    /// Logins, host names, addresses, URIs or audiences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Start of validity, skew allowance included.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_after: OffsetDateTime,
    /// End of validity.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_before: OffsetDateTime,
    /// The login or join that it goes back to, which a lock can name. Only certificates that this cluster itself
    /// believes have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_id: Option<Uuid>,
}

/// An SSH certificate by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshCertificate {
    /// OpenSSH one-line certificate.
    pub line: String,
    /// What to write down.
    pub issued: Issued,
}

/// An X.509 certificate by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsCertificate {
    /// The certificate, PEM.
    pub pem: String,
    /// The certificate of the CA that signed it, PEM.
    pub ca_pem: String,
    /// What to write down.
    pub issued: Issued,
}

/// A JSON Web Token. Every reader can use it: it has no `Debug` that shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub text: String,
    /// What to write down.
    pub issued: Issued,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("issued", &self.issued).finish_non_exhaustive()
    }
}

/// Validity in whole seconds, as all forms count.
#[derive(Debug, Clone, Copy)]
struct Validity {
    after: OffsetDateTime,
    now: OffsetDateTime,
    before: OffsetDateTime,
}

impl Validity {
    fn new(kind: CertificateKind, now: OffsetDateTime, ttl: Duration) -> Result<Self, CaError> {
        kind.check(ttl)?;
        let now = now - Duration::nanoseconds(i64::from(now.nanosecond()));
        let ttl = Duration::seconds(ttl.whole_seconds());
        Ok(Self { after: now - SKEW_ALLOWANCE, now, before: now + ttl })
    }
}

/// What every signature needs to know.
#[derive(Clone, Copy)]
struct Job<'a> {
    authority: &'a Authority,
    kind: CertificateKind,
    validity: Validity,
    login_id: Option<Uuid>,
}

impl<'a> Job<'a> {
    /// Checks that the authority is the one for this kind, and the lifetime.
    fn new(
        authority: &'a Authority,
        kind: CertificateKind,
        now: OffsetDateTime,
        ttl: Duration,
    ) -> Result<Self, CaError> {
        let asked = kind.authority();
        if authority.kind() != asked {
            return Err(CaError::WrongAuthority { asked, authority: authority.kind() });
        }
        Ok(Self { authority, kind, validity: Validity::new(kind, now, ttl)?, login_id: None })
    }

    fn of_login(self, login_id: Uuid) -> Self {
        Self { login_id: Some(login_id), ..self }
    }

    fn cluster(&self) -> &'a str {
        self.authority.cluster().as_str()
    }

    fn ssh(
        &self,
        subject: &KeyData,
        key_id: &str,
        principals: &[String],
        critical: &BTreeMap<String, String>,
        extensions: &BTreeMap<String, String>,
    ) -> Result<(u64, SshCertificate), CaError> {
        let failed = |reason: String| CaError::Encode { what: "the SSH certificate", reason };
        let seconds = |time: OffsetDateTime| {
            u64::try_from(time.unix_timestamp()).map_err(|_| failed("it is valid before 1970".to_owned()))
        };
        let side = self.authority.ssh()?;
        let serial = u64::from_be_bytes(random::bytes()?);
        let certificate = ssh::Template {
            nonce: random::bytes()?,
            subject_key: subject,
            serial,
            kind: self.authority.kind(),
            key_id,
            principals,
            valid_after: seconds(self.validity.after)?,
            valid_before: seconds(self.validity.before)?,
            critical,
            extensions,
        }
        .sign(side.signer())?;
        let line = certificate.to_openssh().map_err(|error| failed(error.to_string()))?;
        let bytes = certificate.to_bytes().map_err(|error| failed(error.to_string()))?;
        let issued = self.issued(
            Form::Ssh,
            side.fingerprint().to_owned(),
            serial.to_string(),
            hex(&hash::sha256(&bytes)),
            ssh::fingerprint(subject),
            key_id.to_owned(),
            principals.to_vec(),
        );
        Ok((serial, SshCertificate { line, issued }))
    }

    /// `subject` is for the record, `name` for the certificate: X.509 has no room for every one.
    fn tls(
        &self,
        subject_key: &PublicKey,
        subject: &str,
        name: Name<'_>,
        names: Vec<String>,
        profile: Profile<'_>,
    ) -> Result<TlsCertificate, CaError> {
        let side = self.authority.tls()?;
        let serial: [u8; SERIAL_BYTES] = authority::serial()?;
        // What a CA signed is worthless after its own end.
        let not_after = self.validity.before.min(side.valid_until());
        let der = x509::Template {
            serial,
            issuer: side.name_der(),
            subject: name,
            not_before: self.validity.after,
            not_after,
            subject_key,
            profile,
        }
        .sign(side.signer())?;
        let mut issued = self.issued(
            Form::X509,
            side.pin(),
            hex(&serial),
            hex(&hash::sha256(&der)),
            hex(&subject_key.spki_sha256()),
            subject.to_owned(),
            names,
        );
        issued.valid_before = not_after;
        Ok(TlsCertificate {
            pem: x509::to_pem(&der),
            ca_pem: self.authority.record().tls_certificate_pem.clone(),
            issued,
        })
    }

    fn jwt(&self, mut claims: jwt::Claims) -> Result<Token, CaError> {
        let side = self.authority.jwt()?;
        let serial = hex(&authority::serial()?);
        claims.expires = self.validity.before;
        claims.not_before = Some(self.validity.after);
        claims.issued = Some(self.validity.now);
        claims.id = Some(serial.clone());
        let text = jwt::sign(side.signer(), &claims)?;
        let issued = self.issued(
            Form::Jwt,
            side.key_id().to_owned(),
            serial,
            hex(&hash::sha256(text.as_bytes())),
            String::new(),
            claims.subject,
            claims.audience,
        );
        Ok(Token { text, issued })
    }

    #[allow(clippy::too_many_arguments, reason = "each is one column of the record")]
    fn issued(
        &self,
        form: Form,
        signing_key: String,
        serial: String,
        fingerprint: String,
        key: String,
        subject: String,
        names: Vec<String>,
    ) -> Issued {
        Issued {
            kind: self.kind,
            form,
            signed_by: self.authority.kind(),
            signing_key,
            serial,
            fingerprint,
            key,
            subject,
            names,
            valid_after: self.validity.after,
            valid_before: self.validity.before,
            login_id: self.login_id,
        }
    }
}

/// The key that an X.509 certificate is asked for.
fn tls_key(spki: &[u8]) -> Result<PublicKey, CaError> {
    PublicKey::from_spki_der(spki)
        .map_err(|error| CaError::BadPublicKey { which: "TLS", reason: error.to_string() })
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
