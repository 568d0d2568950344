//! A user's certificates, signed anew by the CA that has taken over: the same login, the same keys and the same end.

use sallyport_access::{Identity, Principal, SessionProof};
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};

use crate::issue::issue_pair;
use crate::x509;
use crate::{Authority, CaError, CaKind, SshOptions, Trust, UserCertificates, UserKind};

/// How long certificates are good that say what was proven for sessions.
pub const SESSION_TTL: Duration = Duration::minutes(1);

/// The certificates of one login, verified.
#[derive(Debug, Clone)]
pub struct UserPair {
    identity: Identity,
    ssh: Certificate,
    tls: CertificateDer<'static>,
}

impl UserPair {
    /// Verifies an OpenSSH certificate line and a PEM chain as the two certificates of one login.
    ///
    /// # Errors
    /// [`CaError`] with the reason why one of them is refused, or [`CaError::Malformed`] when they are not of the same
    /// login of a user.
    pub fn verify(trust: &Trust, ssh: &str, tls_pem: &str, now: OffsetDateTime) -> Result<Self, CaError> {
        let malformed = |reason: String| CaError::Malformed { reason };
        let ssh = Certificate::from_openssh(ssh.trim())
            .map_err(|error| malformed(format!("the SSH certificate cannot be read: {error}")))?;
        let tls = CertificateDer::from_pem_slice(tls_pem.as_bytes())
            .map_err(|error| malformed(format!("the TLS certificate cannot be read: {error}")))?;
        let by_ssh = trust.verify_user_ssh(&ssh, now)?;
        let by_tls = trust.identify_tls(&tls, now)?;
        if !matches!(by_tls.principal, Principal::User { .. }) {
            return Err(CaError::WrongKind { got: CaKind::Host, expected: CaKind::User });
        }
        let login = |identity: &Identity| (identity.login_id, identity.device, identity.pinned_to);
        if login(&by_ssh) != login(&by_tls) || by_ssh.principal != by_tls.principal {
            return Err(malformed("the SSH and the TLS certificate are not of the same login".to_owned()));
        }
        let valid_before = by_ssh.valid_before.min(by_tls.valid_before);
        Ok(Self { identity: Identity { valid_before, ..by_tls }, ssh, tls })
    }

    /// Whose they are, and until when.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether both were signed by this authority.
    #[must_use]
    pub fn is_signed_by(&self, authority: &Authority) -> bool {
        let by_ssh = authority
            .ssh()
            .ok()
            .and_then(|side| ssh_key::PublicKey::from_openssh(side.public_line()).ok())
            .is_some_and(|key| key.key_data() == self.ssh.signature_key());
        let by_tls = authority
            .tls()
            .is_ok_and(|side| x509::signed_by_key_id(&self.tls) == Some(x509::key_id(&side.public_key())));
        by_ssh && by_tls
    }

    /// Signs for the same keys again. The certificates end when the old ones would have, to the second.
    ///
    /// # Errors
    /// [`CaError::BadLifetime`] when they end so soon that it is not worth it; else as [`issue_user_as`](crate::issue_user_as).
    pub fn reissue(&self, authority: &Authority, now: OffsetDateTime) -> Result<UserCertificates, CaError> {
        let now = now - Duration::nanoseconds(i64::from(now.nanosecond()));
        self.sign(authority, (now, self.identity.valid_before - now), None)
    }

    /// Signs for the same keys for [`SESSION_TTL`], with what was proven for sessions, and never for longer than the login's own.
    ///
    /// # Errors
    /// As [`UserPair::reissue`].
    pub fn for_sessions(
        &self,
        authority: &Authority,
        now: OffsetDateTime,
        proof: &SessionProof,
    ) -> Result<UserCertificates, CaError> {
        let left = self.identity.valid_before - now;
        self.sign(authority, (now, SESSION_TTL.min(left)), Some(proof))
    }

    fn sign(
        &self,
        authority: &Authority,
        time: (OffsetDateTime, Duration),
        session: Option<&SessionProof>,
    ) -> Result<UserCertificates, CaError> {
        let public = ssh_key::PublicKey::new(self.ssh.public_key().clone(), self.ssh.comment())
            .to_openssh()
            .map_err(|error| CaError::Encode { what: "an SSH public key", reason: error.to_string() })?;
        let has = |name: &str| self.ssh.extensions().contains_key(name);
        let options = SshOptions {
            permit_pty: has("permit-pty"),
            port_forwarding: has("permit-port-forwarding"),
            agent_forwarding: has("permit-agent-forwarding"),
            x11_forwarding: has("permit-X11-forwarding"),
        };
        let spki = x509::subject_public_key_info(&self.tls)?;
        let kind = if crate::is_renewable(&self.tls)? { UserKind::Bot } else { UserKind::Person };
        issue_pair(kind, authority, &self.identity, (&public, &spki), time, &options, session)
    }
}
