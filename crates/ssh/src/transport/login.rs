//! The login by public key (RFC 4252 §7), as both sides write it.

use super::Breach;
use super::message::{Draft, USERAUTH_REQUEST, put_string};

/// The one service that is asked for (RFC 4254).
pub(crate) const CONNECTION: &[u8] = b"ssh-connection";
/// The service in which users log in.
pub(crate) const USERAUTH: &[u8] = b"ssh-userauth";

/// Who logs in, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The account.
    pub name: &'a str,
    /// The name of the public key algorithm, such as `ssh-ed25519-cert-v01@openssh.com`.
    pub algorithm: &'a str,
    /// The public key or certificate on the wire.
    pub key: &'a [u8],
}

impl Login<'_> {
    /// The request without its signature.
    pub(crate) fn draft(&self) -> Draft {
        let draft = Draft::new(USERAUTH_REQUEST).string(self.name.as_bytes()).string(CONNECTION);
        draft.string(b"publickey").flag(true).string(self.algorithm.as_bytes()).string(self.key)
    }

    /// What is to be signed, in this session.
    pub(crate) fn to_sign(self, session: Option<&[u8]>) -> Result<Vec<u8>, Breach> {
        let session = session.ok_or(Breach::Order("the host is not believed yet"))?;
        let mut signed = Vec::new();
        put_string(&mut signed, session);
        signed.extend_from_slice(&self.draft().0);
        Ok(signed)
    }
}
