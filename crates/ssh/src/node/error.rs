//! Why a node, or a proxy in front of a server, refuses a login, a session or anything else on a connection. What these errors
//! say the client reads; the audit log has the same words, but for [`EntryRefused::internal`].

use std::error::Error;
use std::sync::Arc;

use sallyport_access::{IdError, Login, Refusal};
use sallyport_session::Unrecordable;
use sallyport_session::factor::Missing;

use super::reserved::JOIN_LOGIN;
use crate::client::ClientError;
use crate::session::{AdmissionError, ClosedAccount, OpeningError, StartError};

/// Why the caller of this crate does not bring a connection to a server, or a login on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// There is no connection to the server.
    #[error(transparent)]
    Unreached(Box<dyn Error + Send + Sync>),
    /// The user has no credentials for the server.
    #[error(transparent)]
    NoCredentials(Box<dyn Error + Send + Sync>),
}

/// Why a user is not logged in on the server behind this one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    // The user.
    /// The server goes by the user's own key, and the client's agent is out of reach.
    #[error(
        "{server} lets in only users who sign with their own key, and this connection brings no agent that could; \
         forward one: ssh -A (ssh-add -l shows whether it has your key), or connect with `sallyport ssh`, or with ssh \
         and ProxyCommand as `sallyport config` writes it"
    )]
    NoAgent { server: String },

    // The server, and the way there.
    #[error("no login on {server} within {seconds} s; check that it answers")]
    Silent { server: String, seconds: u64 },
    #[error("the connection to {server} was lost")]
    Lost { server: String },
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("{}", describe(.0.as_ref()))]
    Client(Box<ClientError>),

    // Ourselves.
    /// The user's certificate cannot be written as a line.
    #[error(transparent)]
    Certificate(#[from] ssh_key::Error),
}

/// Why a login has no place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    // The machine.
    #[error(transparent)]
    Account(#[from] StartError),
    #[error(transparent)]
    Closed(#[from] ClosedAccount),
    #[error("{}", describe(.0))]
    Admission(AdmissionError),
    #[error("this node is stopping")]
    Stopping,

    // The server behind.
    #[error("{server} is reached by SSH, and by nothing else; connect with SSH")]
    OnlySsh { server: String },
    #[error(transparent)]
    Login(#[from] LoginError),
    /// A relay's connection is for one login.
    #[error("this connection is for the login {login}")]
    OtherLogin { login: String },
}

/// Why a user with an authentic certificate may not enter.
#[derive(Debug, thiserror::Error)]
pub(super) enum EntryRefused {
    #[error(transparent)]
    NoLogin(#[from] IdError),
    #[error("{}", .0.public_message())]
    Policy(#[from] Refusal),
    #[error(
        "your certificate is not for the login {login}; log in again to get the logins that your roles have now"
    )]
    NotCertified { login: Login },
    #[error(transparent)]
    Factor(#[from] Missing),
    #[error(transparent)]
    Place(#[from] EnterError),
}

impl EntryRefused {
    /// What the audit log has: the refusal without the hint, and the rule that decided.
    pub(super) fn internal(&self) -> (String, Option<&str>) {
        match self {
            Self::Policy(refusal) => (refusal.to_string(), refusal.rule()),
            Self::NoLogin(_) | Self::NotCertified { .. } | Self::Factor(_) | Self::Place(_) => {
                (self.to_string(), None)
            }
        }
    }
}

/// Why nothing is done for a client now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("log in first")]
    NotLoggedIn,
    #[error(transparent)]
    AtEntry(Arc<EntryRefused>),
    #[error("{}", .0.public_message())]
    Policy(#[from] Refusal),
    #[error(transparent)]
    Factor(#[from] Missing),
    #[error("the login {JOIN_LOGIN} is for joining sessions, and for nothing else")]
    OnlyJoins,
}

/// Why a place begins no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{}", describe(.0))]
    Opening(OpeningError),
}

// What says its causes itself has no source besides, or a chain would say them twice.

impl From<AdmissionError> for EnterError {
    fn from(error: AdmissionError) -> Self {
        Self::Admission(error)
    }
}

impl From<OpeningError> for BeginError {
    fn from(error: OpeningError) -> Self {
        Self::Opening(error)
    }
}

/// Why a session that may run does not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotBegun {
    #[error(transparent)]
    Place(#[from] BeginError),
    #[error(transparent)]
    Unrecordable(#[from] Unrecordable),
    /// The node has cut the client off, for this reason.
    #[error("{0}")]
    Cut(String),
    #[error("the client went away")]
    ClientGone,
}

/// An error and its sources, in one line.
pub(super) fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let failed = || io::Error::from(io::ErrorKind::NotFound);
        let login = "alice".to_owned();
        let unasked = EnterError::from(AdmissionError::Unasked { login, source: failed() });
        let unasked = EntryRefused::from(unasked);
        assert_eq!(describe(&unasked), format!("PAM cannot be asked about alice: {}", failed()));
        assert_eq!(unasked.internal().0, describe(&unasked));
        let unheard = NotBegun::from(BeginError::from(OpeningError::Unheard(failed())));
        assert_eq!(unheard.to_string(), format!("the session's process cannot be heard: {}", failed()));
        assert_eq!(describe(&unheard), unheard.to_string());
    }
}
