//! A proxy's word that it has opened a database session for a user, to one agent. With it, and with nothing that an agent
//! could keep of a user, the authority certifies the agent as a database user.

use sallyport_access::{HostId, HostRole, Principal};
use sallyport_sal::{Signer, hash, random};
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};

use crate::encoding::put_string;
use crate::{CaError, SKEW_ALLOWANCE, Trust, keys, ssh};

/// How long a proxy's word counts: an agent asks at once.
pub const OPENING_LIFE: Duration = Duration::minutes(2);
/// Bytes that make each word another one.
pub const OPENING_NONCE_BYTES: usize = 16;
/// What nothing else that a host key signs begins with.
const CONTEXT: &[u8] = b"sallyport database opening v1";

/// Which session was opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The agent that serves it, which is the only one who may use the word.
    pub agent: HostId,
    /// The database in the cluster.
    pub database: &'a str,
    /// As which database user.
    pub db_user: &'a str,
    /// Which database of the server.
    pub db_name: &'a str,
    /// The user's certificate, DER, as the user has proven it to the proxy in a handshake.
    pub user_certificate: &'a [u8],
}

/// A proxy's word for one [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningWord {
    /// The proxy's SSH host certificate, one OpenSSH line.
    pub certificate: String,
    /// When it was opened, in seconds since 1970.
    pub at: i64,
    /// Makes it good for one use.
    pub nonce: Vec<u8>,
    /// By the certified key, in SSH's form.
    pub signature: Vec<u8>,
}

impl Opening<'_> {
    fn message(&self, at: i64, nonce: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(256);
        put_string(&mut message, CONTEXT);
        put_string(&mut message, self.agent.to_string().as_bytes());
        for text in [self.database, self.db_user, self.db_name] {
            put_string(&mut message, text.as_bytes());
        }
        put_string(&mut message, &hash::sha256(self.user_certificate));
        message.extend_from_slice(&at.to_be_bytes());
        put_string(&mut message, nonce);
        message
    }

    /// Signs it with a proxy's host key.
    ///
    /// # Errors
    /// [`CaError::Sign`] or [`CaError::Keys`] when the key cannot sign.
    pub fn sign(
        &self,
        signer: &dyn Signer,
        certificate: &str,
        now: OffsetDateTime,
    ) -> Result<OpeningWord, CaError> {
        let nonce = random::bytes::<OPENING_NONCE_BYTES>()?.to_vec();
        let at = now.unix_timestamp();
        let signature = ssh::signature(signer, &self.message(at, &nonce))?;
        Ok(OpeningWord { certificate: certificate.to_owned(), at, nonce, signature })
    }
}

impl Trust {
    /// Which proxy says that it has opened this session: checks its certificate, its signature over all of the opening,
    /// and that it says so now. That the word was not used before is for the caller to know.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_opening(
        &self,
        opening: &Opening<'_>,
        word: &OpeningWord,
        now: OffsetDateTime,
    ) -> Result<sallyport_access::Identity, CaError> {
        let refused = |reason: &str| CaError::Refused { reason: reason.to_owned() };
        let certificate: Certificate = keys::certificate(&word.certificate)?;
        let proxy = self.identify_host_ssh(&certificate, now)?;
        let Principal::Host { role: HostRole::Proxy, .. } = &proxy.principal else {
            return Err(refused("only a proxy opens sessions with databases"));
        };
        if ssh::stands_for(&certificate).is_some() {
            return Err(refused("it is the certificate with which a proxy stands before a server"));
        }
        let age = now.unix_timestamp().saturating_sub(word.at);
        let oldest = (OPENING_LIFE + SKEW_ALLOWANCE).whole_seconds();
        if age > oldest || age < -SKEW_ALLOWANCE.whole_seconds() {
            return Err(refused("the session was not opened just now"));
        }
        if word.nonce.len() != OPENING_NONCE_BYTES {
            return Err(refused("its nonce is not of 16 bytes"));
        }
        let message = opening.message(word.at, &word.nonce);
        keys::verify_ssh_signature(certificate.public_key(), &message, &word.signature)?;
        Ok(proxy)
    }
}
