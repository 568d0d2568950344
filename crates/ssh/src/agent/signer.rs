//! The user's side: signs one login, and nothing else, whatever it is asked for.

use std::sync::Arc;

use sallyport_access::{HostId, HostRole, Principal};
use sallyport_ca::Trust;
use sallyport_ca::keys::{certificate, verify_ssh_signature};
use time::OffsetDateTime;

use super::Binding;
use super::error::Asked;
use super::messages::{Answer, LoginRequest, Question, line};
use crate::client::Credentials;

/// Signatures of one login that is tried again.
const MAX_SIGNATURES: usize = 2;

/// What was not signed. It ends the connection. Unless the key did not sign, the proxy asked for what no honest one does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct NotSigned {
    login: String,
    host: String,
    asked: Asked,
}

impl NotSigned {
    fn told(&self) -> String {
        let Self { login, host, asked } = self;
        match asked {
            Asked::Key(why) => format!("your key did not sign the login {login} on {host}: {why}"),
            _ => format!(
                "the proxy asked your key for more than the login {login} on {host}: {asked}; nothing was signed"
            ),
        }
    }
}

/// An agent with one key and its certificate, that signs the login which the user has asked for.
///
/// A signature is given for the `ssh-connection` request of that login with that certificate (RFC 4252 §7), in a session
/// that a registered OpenSSH server with the name asked for has signed by its certified host key
/// (`session-bind@openssh.com`). So it is of no use anywhere else, nor a second time. A node never gets one: the user's own
/// client logs in there, end to end, and a proxy that asks for it wants a session of its own.
///
/// The authority says which servers log users in with their own key ([`LoginSigner::vouch`]). The proxy, which asks the
/// questions, is not believed.
#[derive(Debug)]
pub struct LoginSigner {
    credentials: Credentials,
    trust: Arc<Trust>,
    host: String,
    login: String,
    /// The server of which the authority says that the user's own key logs in there.
    vouched: Option<HostId>,
    /// The session that the host has signed. Where the key is an agent's, that is told of it, too.
    bound: Option<Binding>,
    signed: usize,
}

impl LoginSigner {
    /// For one connection: to `host`, a name that its certificate has, as `login`.
    #[must_use]
    pub fn new(credentials: Credentials, trust: Arc<Trust>, host: &str, login: &str) -> Self {
        Self {
            credentials,
            trust,
            host: host.to_owned(),
            login: login.to_owned(),
            vouched: None,
            bound: None,
            signed: 0,
        }
    }

    /// The registered server that a message says the login is for, whose trust the authority must be asked about before the
    /// message is answered ([`LoginSigner::vouch`]). None for other messages, and where the server is refused in any case.
    #[must_use]
    pub fn server_asked(&self, message: &[u8]) -> Option<HostId> {
        let Some(Question::Bind { host_key, session, signature, forwarding: false }) =
            Question::read(message)
        else {
            return None;
        };
        self.check_host(host_key, session, signature).ok().filter(|id| self.vouched != Some(*id))
    }

    /// The authority's own word, by a connection that ends there, that this is a registered server which trusts the user CA
    /// alone (`trust: user`).
    pub fn vouch(&mut self, server: HostId) {
        self.vouched = Some(server);
    }

    /// Answers a message of the agent protocol.
    ///
    /// # Errors
    /// [`NotSigned`] when it asks for what is not to be done.
    pub async fn answer(&mut self, message: &[u8]) -> Result<Vec<u8>, NotSigned> {
        self.answered(message).await.map(|answer| answer.encode()).map_err(|asked| NotSigned {
            login: self.login.clone(),
            host: self.host.clone(),
            asked,
        })
    }

    async fn answered(&mut self, message: &[u8]) -> Result<Answer, Asked> {
        let own = self.credentials.certificate().to_bytes();
        let own = own.map_err(|error| Asked::Key(error.to_string()))?;
        match Question::read(message) {
            Some(Question::Identities) => Ok(Answer::Identities(vec![own])),
            Some(Question::Bind { host_key, session, signature, forwarding: false }) => {
                let server = self.check_host(host_key, session, signature)?;
                if self.vouched != Some(server) {
                    return Err(Asked::NotVouched(server));
                }
                self.bound = Some(Binding {
                    host_key: host_key.to_vec(),
                    session: session.to_vec(),
                    signature: signature.to_vec(),
                });
                Ok(Answer::Done)
            }
            Some(Question::Bind { .. }) => Err(Asked::Forwarding),
            Some(Question::Sign { key, data, .. }) => {
                if key != own {
                    return Err(Asked::OtherKey);
                }
                self.check_login(&own, data)?;
                if self.signed >= MAX_SIGNATURES {
                    return Err(Asked::Signatures(MAX_SIGNATURES));
                }
                self.signed += 1;
                let signature = self.credentials.sign(data, self.bound.as_ref()).await;
                Ok(Answer::Signature(signature.map_err(|error| Asked::Key(error.to_string()))?))
            }
            None => Err(Asked::Kind(message.first().copied().unwrap_or_default())),
        }
    }

    /// The registered server that the login is for, which has signed this session.
    fn check_host(&self, host_key: &[u8], session: &[u8], signature: &[u8]) -> Result<HostId, Asked> {
        let shown = line(host_key).ok_or(Asked::NoHostKey)?;
        let host = certificate(&shown).map_err(|_| Asked::PlainHostKey)?;
        let identity = self
            .trust
            .verify_host_ssh(&host, &self.host, OffsetDateTime::now_utc())
            .map_err(|error| Asked::other_server(&error))?;
        let server = match identity.principal {
            Principal::Host { id, role: HostRole::OpenSsh, .. } => id,
            // What a proxy shows in a server's name is not that server.
            Principal::Host { role: HostRole::Proxy, .. } => {
                return Err(Asked::Proxy);
            }
            Principal::Host { role, .. } => {
                return Err(Asked::Node { role, host: self.host.clone() });
            }
            Principal::User { .. } => return Err(Asked::OtherServer("it is a user".to_owned())),
        };
        self.trust
            .verify_target_ssh(&host, &self.host, OffsetDateTime::now_utc())
            .map_err(|error| Asked::other_server(&error))?;
        verify_ssh_signature(host.public_key(), session, signature).map_err(|_| Asked::Unsigned)?;
        Ok(server)
    }

    fn check_login(&self, own: &[u8], data: &[u8]) -> Result<(), Asked> {
        let request = LoginRequest::read(data).ok_or(Asked::NoLogin)?;
        if request.login != self.login.as_bytes() {
            let login = String::from_utf8_lossy(request.login).escape_default().to_string();
            return Err(Asked::OtherLogin(login));
        }
        if request.key != own || self.credentials.algorithm().as_bytes() != request.scheme {
            return Err(Asked::OtherScheme);
        }
        match &self.bound {
            Some(bound) if bound.session == request.session => Ok(()),
            Some(_) => Err(Asked::OtherSession),
            None => Err(Asked::NoServer),
        }
    }
}
