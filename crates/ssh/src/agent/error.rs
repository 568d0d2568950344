//! Why an agent does not sign, and why it is asked for what it does not do.

use sallyport_access::{HostId, HostRole};
use sallyport_ca::CaError;

/// Why there is no signature of a login. What it says completes "your agent did not sign: ".
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    // The agent.
    /// It is gone, or the user's program is.
    #[error("it does not answer")]
    Silent,
    /// It speaks another protocol.
    #[error("what it answers is no message of an agent")]
    NoMessage,
    /// It answers another question.
    #[error("it does not say which keys it holds")]
    NoIdentities,
    /// It refuses.
    #[error("it refused to sign")]
    Refused,

    // The user.
    /// The key is elsewhere.
    #[error(
        "it does not hold the certificate that you have shown, nor its key; add the key with `ssh-add`; a login over no key of your own puts its key there: sallyport login"
    )]
    NotHeld,

    // Ourselves.
    /// One login takes fewer.
    #[error("more than {most} questions to the agent of one connection")]
    TooMany {
        /// As many are taken.
        most: usize,
    },
    /// The certificate that was shown cannot be written.
    #[error(transparent)]
    Certificate(#[from] ssh_key::Error),
}

/// What a proxy asks a user's key for beyond the one login. What it says completes "the proxy asked your key for more than
/// the login: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Asked {
    #[error("a message of kind {0}, where identities and signatures are known")]
    Kind(u8),
    #[error("to be forwarded")]
    Forwarding,
    #[error("a signature with another key")]
    OtherKey,
    #[error("a signature over something that is no login")]
    NoLogin,
    #[error("the login {0}")]
    OtherLogin(String),
    #[error("a login with another key or scheme")]
    OtherScheme,
    #[error("a login in another session than the server has signed")]
    OtherSession,
    #[error("a login on a server that was not named")]
    NoServer,
    #[error("a login on a server that the authority does not name as one of `trust: user` ({0})")]
    NotVouched(HostId),
    #[error("more than {0} signatures")]
    Signatures(usize),
    #[error("a host key that is none")]
    NoHostKey,
    #[error("a server with a plain host key; one with a certificate was expected (sallyport join openssh)")]
    PlainHostKey,
    #[error("another server: {0}")]
    OtherServer(String),
    #[error("a server that is the proxy itself")]
    Proxy,
    #[error("a session of its own on the {} {host}, where your own client alone logs in", role.name())]
    Node { role: HostRole, host: String },
    #[error("a session that the server has not signed")]
    Unsigned,
    /// The key, and not the proxy, is to blame.
    #[error("{0}")]
    Key(String),
}

impl Asked {
    pub(super) fn other_server(error: &CaError) -> Self {
        Self::OtherServer(error.to_string())
    }
}
