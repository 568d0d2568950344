//! What a user proves itself with.

use std::fmt;
use std::sync::Arc;

use russh::client::{AuthResult, Handle};
use russh::keys::HashAlg;
use russh::keys::agent::AgentIdentity;
use sallyport_ca::CaError;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::formats::{self, FormatError};
use sallyport_sal::{MemoryKey, Signer};
use ssh_key::Certificate;
use ssh_key::public::KeyData;

use super::ClientError;
use super::events::Events;
use crate::agent::{Binding, UserAgent};

/// A user's SSH key, wherever it lives, and the certificate over it.
#[derive(Clone)]
pub struct Credentials {
    key: Key,
    certificate: Certificate,
}

#[derive(Clone)]
enum Key {
    Held(Arc<dyn Signer>),
    /// The user has it, and the user's agent signs.
    Agent(UserAgent),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("key_id", &self.certificate.key_id()).finish_non_exhaustive()
    }
}

impl Credentials {
    /// From the two texts that a login stores: an OpenSSH private key and a one-line certificate.
    ///
    /// # Errors
    /// [`ClientError::BadKey`] or [`ClientError::BadCertificate`], also when one does not belong to the other.
    pub fn from_openssh(private_key: &str, certificate: &str) -> Result<Self, ClientError> {
        let bad = |reason: String| ClientError::BadKey { reason };
        let material = formats::read_private(private_key.as_bytes(), None).map_err(|error| match error {
            FormatError::PassphraseNeeded { .. } => bad("it is locked with a passphrase".to_owned()),
            other => bad(other.to_string()),
        })?;
        let key = MemoryKey::from_material(material).map_err(|error| bad(error.to_string()))?;
        Self::new(Arc::new(key), certificate)
    }

    /// From a key in any custody and a one-line certificate. The key signs once for each connection.
    ///
    /// # Errors
    /// [`ClientError::BadKey`] for a type of key that SSH does not have, [`ClientError::BadCertificate`], also when it is
    /// for another key.
    pub fn new(key: Arc<dyn Signer>, certificate: &str) -> Result<Self, ClientError> {
        let public = ssh_public_key(&key.public_key())
            .map_err(|error| ClientError::BadKey { reason: error.to_string() })?;
        let certificate = Certificate::from_openssh(certificate.trim())
            .map_err(|error| ClientError::BadCertificate { reason: error.to_string() })?;
        if *certificate.public_key() != public {
            return Err(ClientError::BadCertificate { reason: "it is for another key".to_owned() });
        }
        Ok(Self { key: Key::Held(key), certificate })
    }

    /// From a one-line certificate whose key the user's agent holds.
    ///
    /// # Errors
    /// [`ClientError::BadCertificate`]; [`ClientError::Agent`] where the agent does not hold the key.
    pub async fn by_agent(agent: UserAgent, certificate: &str) -> Result<Self, ClientError> {
        let certificate = Certificate::from_openssh(certificate.trim())
            .map_err(|error| ClientError::BadCertificate { reason: error.to_string() })?;
        agent.held(&certificate).await?;
        Ok(Self::of_agent(agent, certificate))
    }

    /// A user's certificate whose key the user's agent has.
    pub(crate) fn of_agent(agent: UserAgent, certificate: Certificate) -> Self {
        Self { key: Key::Agent(agent), certificate }
    }

    /// Whether this program has the key, and no agent.
    #[must_use]
    pub fn are_held(&self) -> bool {
        matches!(self.key, Key::Held(_))
    }

    /// The key, when it is here.
    pub(crate) fn held(&self) -> Option<(Arc<dyn Signer>, Certificate)> {
        match &self.key {
            Key::Held(key) => Some((Arc::clone(key), self.certificate.clone())),
            Key::Agent(_) => None,
        }
    }

    pub(crate) fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The name of the scheme goes into what is signed, so that it must be the one that the key signs by.
    pub(crate) fn algorithm(&self) -> String {
        match self.certificate.public_key() {
            KeyData::Rsa(_) => "rsa-sha2-512-cert-v01@openssh.com".to_owned(),
            key => key.algorithm().to_certificate_type(),
        }
    }

    /// Signs the word that a login is wanted (`sallyport_ca::WantedLogin`), as two `string`, the scheme and the signature (RFC 4253 §6.6). What is
    /// signed is the caller's to choose: it takes nothing that others have made.
    ///
    /// # Errors
    /// [`ClientError::Signing`] or [`ClientError::Agent`] when the key cannot sign.
    pub async fn sign_word(&self, message: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.sign(message, None).await
    }

    /// Signs a login, on a connection that the user's agent is told of by `binding`: two `string`, the scheme and the signature
    /// (RFC 4253 §6.6).
    ///
    /// # Errors
    /// [`ClientError::Signing`] or [`ClientError::Agent`] when the key cannot sign.
    pub(crate) async fn sign(
        &self,
        message: &[u8],
        binding: Option<&Binding>,
    ) -> Result<Vec<u8>, ClientError> {
        match &self.key {
            Key::Held(key) => {
                let (key, signed) = (Arc::clone(key), message.to_vec());
                // Tokens take their time.
                let signing = tokio::task::spawn_blocking(move || {
                    ssh_signature(&*key, &signed).map_err(|error| match error {
                        CaError::Sign(error) => ClientError::Signing(error),
                        other => ClientError::BadKey { reason: other.to_string() },
                    })
                });
                signing.await.map_err(|_| ClientError::Ssh(russh::Error::SendError))?
            }
            Key::Agent(agent) => Ok(agent.sign(&self.certificate, binding, message).await?),
        }
    }

    /// Authenticates on a connection.
    ///
    /// # Errors
    /// [`ClientError::Signing`] or [`ClientError::Agent`] when the key cannot sign, [`ClientError::Ssh`] when the
    /// connection is gone.
    pub(super) async fn prove(
        &self,
        handle: &mut Handle<Events>,
        login: &str,
    ) -> Result<AuthResult, ClientError> {
        // The name of the scheme goes into what is signed, so that it must be the one we sign by.
        let rsa = matches!(self.certificate.public_key(), KeyData::Rsa(_));
        let hash = rsa.then_some(HashAlg::Sha512);
        let mut request =
            Request { credentials: self, binding: handle.agent_session_binding().map(Binding::from) };
        handle.authenticate_certificate_with(login, self.certificate.clone(), hash, &mut request).await
    }
}

/// Signs what russh asks to have signed.
struct Request<'a> {
    credentials: &'a Credentials,
    /// Which server the agent is told of.
    binding: Option<Binding>,
}

impl russh::Signer for Request<'_> {
    type Error = ClientError;

    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        _hash: Option<HashAlg>,
        mut message: Vec<u8>,
    ) -> Result<Vec<u8>, ClientError> {
        let signature = self.credentials.sign(&message, self.binding.as_ref()).await?;
        // The answer is the request with the signature behind it, as a `string` (RFC 4252 §7).
        let length = u32::try_from(signature.len()).unwrap_or(u32::MAX);
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&signature);
        Ok(message)
    }
}
