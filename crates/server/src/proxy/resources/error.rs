//! Why no stream to a resource is opened.

use sallyport_access::{Listed, Refusal};
use sallyport_session::factor::Missing;
use tonic::Status;

use crate::member::session_factors::of_factor;
use crate::proxy::open::Refused;

/// Why there is none. `Display` is for the person at the other end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("no {word} of the cluster is called {name:?}")]
    Unknown { word: &'static str, name: String },
    #[error("{}", .0.public_message())]
    Refused(Refusal),
    #[error("{0}")]
    Factor(Missing),
    #[error("{word} {name:?} cannot be reached: {problem}")]
    Offline { word: &'static str, name: String, problem: String },
    /// A client that remembers who served it asks the authority again.
    #[error(
        "{word} {name:?} cannot be reached: its agents have changed, and none of them is one that was asked for"
    )]
    OtherAgents { word: &'static str, name: String },
    #[error(
        "you have {0} ways to nodes, databases and other resources through this proxy, as many as one user may have \
         (proxy.limits.sessions_per_user)"
    )]
    TooMany(usize),
    #[error("only users have sessions")]
    NoUser,
    #[error("this proxy is shutting down; try again in a moment")]
    Stopping,
}

impl ResourceError {
    pub(super) fn offline(listed: &Listed, problem: &str) -> Self {
        let (word, name) = (listed.kind.row().word, listed.name.to_string());
        Self::Offline { word, name, problem: problem.to_owned() }
    }

    pub(super) fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Self::Unknown { .. } => Status::not_found(message),
            Self::Refused(_) | Self::NoUser => Status::permission_denied(message),
            Self::OtherAgents { .. } => Status::failed_precondition(message),
            Self::TooMany(_) => Status::resource_exhausted(message),
            Self::Factor(missing) => of_factor(missing),
            Self::Offline { .. } | Self::Stopping => Status::unavailable(message),
        }
    }
}

impl Refused for ResourceError {
    fn stopping() -> Self {
        Self::Stopping
    }

    fn too_many(bound: usize) -> Self {
        Self::TooMany(bound)
    }

    fn no_user() -> Self {
        Self::NoUser
    }

    fn factor(missing: Missing) -> Self {
        Self::Factor(missing)
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Factor(missing) => missing.reason(),
            Self::Unknown { .. } => "unknown_resource",
            Self::Refused(_) => "refused",
            Self::Offline { .. } => "offline",
            Self::OtherAgents { .. } => "other_agents",
            Self::TooMany(_) => "too_many_sessions",
            Self::NoUser => "not_a_user",
            Self::Stopping => "stopping",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        }
    }
}
