//! Why a connection to a node, or something on it, failed.

use std::io;

use sallyport_ca::CaError;
use sallyport_sal::SignError;

use crate::agent::AgentError;

/// What went wrong on the client's side of SSH, by who is to blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    // The peer.
    /// The host did not prove to be who it should be.
    #[error("{host} did not prove its identity")]
    HostCertificate {
        /// The name that was asked for.
        host: String,
        /// What is wrong with its certificate.
        source: CaError,
    },
    /// The host has no certificate at all.
    #[error(
        "{host} showed a plain host key ({fingerprint}), expected a certificate of the cluster's host CA; it is not a node of this cluster, or it has not joined it"
    )]
    PlainHostKey {
        /// The name that was asked for.
        host: String,
        /// `SHA256:…` of the key it showed.
        fingerprint: String,
    },
    /// The host refused the certificate or the login.
    #[error("{host} refused to log in {login}{}", said(.reason))]
    Authentication {
        /// The name that was asked for.
        host: String,
        /// The OS login that was asked for.
        login: String,
        /// What the host said; empty when it said nothing.
        reason: String,
    },
    /// The host refused one channel or request; the connection still stands.
    #[error("{what} was refused{}", said(.reason))]
    Refused {
        /// What was asked for.
        what: String,
        /// What the host said; empty when it said nothing.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection to {host} was lost{}", said(.reason))]
    Lost {
        /// The name that was asked for.
        host: String,
        /// What the host or the network said; empty when nothing did.
        reason: String,
    },
    /// The host wants this login by SSH, and not by the native protocol.
    #[error("{host} does not take this connection without SSH{}", said(.reason))]
    NotNative {
        /// The name that was asked for.
        host: String,
        /// What the host said; empty when it said nothing.
        reason: String,
    },
    /// The handshake did not get to its end.
    #[error("the SSH handshake with {host} failed")]
    Handshake {
        /// The name that was asked for.
        host: String,
        /// How.
        source: russh::Error,
    },

    /// The host did what SSH does not allow, or what was sent was altered.
    #[error("the SSH connection to {host} failed: it {reason}")]
    Protocol {
        /// The name that was asked for.
        host: String,
        /// What it did.
        reason: String,
    },
    /// The pipelined client cannot speak with this host; the other one may. Nothing of the user's was sent.
    #[error("{host} cannot be reached by the pipelined SSH client: it {reason}")]
    NotPipelined {
        /// The name that was asked for.
        host: String,
        /// Why.
        reason: String,
    },

    // The caller.
    /// The private key cannot be read.
    #[error("the SSH private key cannot be used: {reason}")]
    BadKey {
        /// How.
        reason: String,
    },
    /// The certificate cannot be read, or is not for that key.
    #[error("the SSH certificate cannot be used: {reason}")]
    BadCertificate {
        /// How.
        reason: String,
    },
    /// The user's key cannot sign: a token that was pulled out, for example.
    #[error("the SSH key cannot sign")]
    Signing(#[source] SignError),
    /// The user's agent did not sign.
    #[error("your agent did not sign the login: {0}")]
    Agent(AgentError),
    /// A local socket or file failed.
    #[error("cannot {doing}")]
    Local {
        /// Completes "cannot …".
        doing: String,
        /// How.
        source: io::Error,
    },

    /// The SSH library failed in a way that has no better name here.
    #[error("SSH failed")]
    Ssh(#[from] russh::Error),
}

impl From<AgentError> for ClientError {
    fn from(error: AgentError) -> Self {
        Self::Agent(error)
    }
}

impl From<russh::SendError> for ClientError {
    fn from(_: russh::SendError) -> Self {
        Self::Ssh(russh::Error::SendError)
    }
}

/// `: reason`, or nothing.
fn said(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
