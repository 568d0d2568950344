//! A user's word that a login at a registered OpenSSH server is wanted, signed with the key of the user's SSH certificate. With
//! it the authority knows by itself that the user's own program asks for this login now, and takes no proxy's word for it.

use sallyport_access::Identity;
use sallyport_sal::{Signer, random};
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};

use crate::encoding::put_string;
use crate::{CaError, SKEW_ALLOWANCE, Trust, keys, ssh};

/// How long the word counts: a proxy asks for its certificate while the user waits.
pub const LOGIN_WORD_LIFE: Duration = Duration::minutes(1);
/// Bytes that make each word another one.
pub const LOGIN_WORD_NONCE_BYTES: usize = 16;
/// What nothing else that a user's SSH key signs begins with: a request to log in begins with a session's identifier, whose length
/// is a hash's (RFC 4252 §7), and a signature of `ssh-keygen -Y` with its own magic.
const CONTEXT: &[u8] = b"sallyport login at a registered server v1";

/// Which login is wanted.
#[derive(Debug, Clone, Copy)]
pub struct WantedLogin<'a> {
    /// The server as the user has named it: a name, with or without the cluster behind it, or an id.
    pub server: &'a str,
    /// As which account.
    pub login: &'a str,
}

/// The word for one [`WantedLogin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginWord {
    /// When it was given, in seconds since 1970.
    pub at: i64,
    /// Makes it good for one use.
    pub nonce: Vec<u8>,
    /// By the certified key, in SSH's form.
    pub signature: Vec<u8>,
}

impl WantedLogin<'_> {
    fn message(&self, at: i64, nonce: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(256);
        put_string(&mut message, CONTEXT);
        for text in [self.server, self.login] {
            put_string(&mut message, text.as_bytes());
        }
        message.extend_from_slice(&at.to_be_bytes());
        put_string(&mut message, nonce);
        message
    }

    /// Signs it with the key of the user's SSH certificate.
    ///
    /// # Errors
    /// [`CaError::Sign`] or [`CaError::Keys`] when the key cannot sign.
    pub fn sign(&self, signer: &dyn Signer, now: OffsetDateTime) -> Result<LoginWord, CaError> {
        let (word, message) = self.unsigned(now)?;
        Ok(LoginWord { signature: ssh::signature(signer, &message)?, ..word })
    }

    /// A word without its signature, and what is to be signed: for a key that an agent holds.
    ///
    /// # Errors
    /// [`CaError::Keys`] when there is no randomness.
    pub fn unsigned(&self, now: OffsetDateTime) -> Result<(LoginWord, Vec<u8>), CaError> {
        let (at, nonce) = (now.unix_timestamp(), random::bytes::<LOGIN_WORD_NONCE_BYTES>()?.to_vec());
        let message = self.message(at, &nonce);
        Ok((LoginWord { at, nonce, signature: Vec::new() }, message))
    }
}

impl Trust {
    /// Whose word it is that a login is wanted: checks the certificate, its key's signature over all of the word, and that it is of
    /// now. That the word was not used before is for the caller to know. The key of a security key gives none: programs give their word
    /// for each login by SSH, whether it is asked for or not, and a person would touch the key twice.
    ///
    /// # Errors
    /// [`CaError`] with the reason for a refusal.
    pub fn verify_login_word(
        &self,
        wanted: &WantedLogin<'_>,
        certificate: &Certificate,
        word: &LoginWord,
        now: OffsetDateTime,
    ) -> Result<Identity, CaError> {
        let refused = |reason: &str| CaError::Refused { reason: reason.to_owned() };
        let age = now.unix_timestamp().saturating_sub(word.at);
        let oldest = (LOGIN_WORD_LIFE + SKEW_ALLOWANCE).whole_seconds();
        if age > oldest || age < -SKEW_ALLOWANCE.whole_seconds() {
            return Err(refused("the login was not asked for just now"));
        }
        if word.nonce.len() != LOGIN_WORD_NONCE_BYTES {
            return Err(refused("its nonce is not of 16 bytes"));
        }
        let user = self.verify_user_ssh(certificate, now)?;
        let message = wanted.message(word.at, &word.nonce);
        keys::verify_ssh_signature(certificate.public_key(), &message, &word.signature)?;
        Ok(user)
    }
}
