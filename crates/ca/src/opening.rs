//! The word that a database session was opened for a user, to one agent: the user's own, signed with the key of the certificate
//! that is shown, or that of a proxy at which the client's TLS ends. With it, and with nothing that an agent could keep of a user, the authority
//! certifies the agent as a database user.

use sallyport_access::{HostId, HostRole, Identity, Principal};
use sallyport_sal::{Signer, hash, random};
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};

use crate::encoding::put_string;
use crate::{CaError, SKEW_ALLOWANCE, Trust, keys, ssh, x509};

/// How long the word counts: an agent asks at once.
pub const OPENING_LIFE: Duration = Duration::minutes(1);
/// Bytes that make each word another one.
pub const OPENING_NONCE_BYTES: usize = 16;
/// What nothing else that a proxy's host key signs begins with.
const BY_PROXY: &[u8] = b"sallyport database opening v1";
/// What nothing else that the key of a user's TLS certificate signs begins with: a handshake's 64 spaces (RFC 8446 §4.4.3) are
/// no length of a string.
const BY_USER: &[u8] = b"sallyport database opening by its user v1";

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

/// Whose word a session was opened by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opener {
    /// The user's own: the key of the certificate has signed for this one session.
    User(Identity),
    /// A proxy's, which says for whom.
    Proxy(Identity),
}

/// The word for one [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningWord {
    /// The proxy's SSH host certificate, one OpenSSH line. Empty in the user's own word, which goes with the certificate that
    /// the opening has.
    pub certificate: String,
    /// When it was opened, in seconds since 1970.
    pub at: i64,
    /// Makes it good for one use.
    pub nonce: Vec<u8>,
    /// By the certified key; a proxy's in SSH's form.
    pub signature: Vec<u8>,
}

impl Opening<'_> {
    fn message(&self, context: &[u8], at: i64, nonce: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(256);
        put_string(&mut message, context);
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
        let (at, nonce) = (now.unix_timestamp(), random::bytes::<OPENING_NONCE_BYTES>()?.to_vec());
        let signature = ssh::signature(signer, &self.message(BY_PROXY, at, &nonce))?;
        Ok(OpeningWord { certificate: certificate.to_owned(), at, nonce, signature })
    }

    /// Signs it with the key of the user's certificate.
    ///
    /// # Errors
    /// As [`Opening::sign`].
    pub fn sign_as_user(&self, signer: &dyn Signer, now: OffsetDateTime) -> Result<OpeningWord, CaError> {
        let (at, nonce) = (now.unix_timestamp(), random::bytes::<OPENING_NONCE_BYTES>()?.to_vec());
        let signature = signer.sign(&self.message(BY_USER, at, &nonce))?;
        Ok(OpeningWord { certificate: String::new(), at, nonce, signature })
    }
}

impl OpeningWord {
    /// Whether it says of itself that it is the user's own, and no proxy's. [`Trust::verify_opening`] looks.
    #[must_use]
    pub fn is_by_user(&self) -> bool {
        self.certificate.is_empty()
    }
}

impl Trust {
    /// Whose word it is that this session was opened: checks the certificate, the signature over all of the opening, and that
    /// it is of now. A user speaks for the own login alone, a proxy for every user. That the word was not used before is for the
    /// caller to know.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_opening(
        &self,
        opening: &Opening<'_>,
        word: &OpeningWord,
        now: OffsetDateTime,
    ) -> Result<Opener, CaError> {
        let refused = |reason: &str| CaError::Refused { reason: reason.to_owned() };
        let age = now.unix_timestamp().saturating_sub(word.at);
        let oldest = (OPENING_LIFE + SKEW_ALLOWANCE).whole_seconds();
        if age > oldest || age < -SKEW_ALLOWANCE.whole_seconds() {
            return Err(refused("the session was not opened just now"));
        }
        if word.nonce.len() != OPENING_NONCE_BYTES {
            return Err(refused("its nonce is not of 16 bytes"));
        }
        if word.is_by_user() {
            let user = self.identify_tls(opening.user_certificate, now)?;
            if user.user().is_none() {
                return Err(refused("hosts open no sessions with databases of their own"));
            }
            let message = opening.message(BY_USER, word.at, &word.nonce);
            let key = x509::public_key(opening.user_certificate)?;
            key.verify(&message, &word.signature).map_err(|_| CaError::BadSignature)?;
            return Ok(Opener::User(user));
        }
        let certificate: Certificate = keys::certificate(&word.certificate)?;
        let proxy = self.identify_host_ssh(&certificate, now)?;
        let Principal::Host { role: HostRole::Proxy, .. } = &proxy.principal else {
            return Err(refused("only a proxy opens sessions with databases"));
        };
        if ssh::stands_for(&certificate).is_some() {
            return Err(refused("it is the certificate with which a proxy stands before a server"));
        }
        let message = opening.message(BY_PROXY, word.at, &word.nonce);
        keys::verify_ssh_signature(certificate.public_key(), &message, &word.signature)?;
        Ok(Opener::Proxy(proxy))
    }
}
