//! Why this agent opens nothing for a user who has proven the certificate.

use sallyport_access::{NodeName, Refusal as Refused};
use sallyport_session::NotBegun;
use sallyport_session::factor::Missing;

use super::dial::NotReached;

/// Why not. `Display` is for the person at the other end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the agent does not understand what the program says first")]
    Malformed,
    #[error("the proxy asked for something else than your program, which wants {0:?}")]
    Contradicted(String),
    #[error("the agent of {agent} serves no {word} called {name:?}")]
    NotServed { word: &'static str, name: String, agent: NodeName },
    #[error("{}", .0.public_message())]
    Refused(#[from] Refused),
    #[error("{0}")]
    Factor(#[from] Missing),
    #[error("this agent does not understand the document")]
    NotUnderstood,
    #[error("{word} {name} cannot be reached from {agent}: {problem}")]
    NotReached {
        word: &'static str,
        document: &'static str,
        name: String,
        agent: NodeName,
        problem: NotReached,
    },
    #[error("{0}")]
    NotBegun(#[from] NotBegun),
}

impl Refusal {
    /// What to try; may be empty.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Malformed => "sallyport --version  (program and agent may be too far apart)".to_owned(),
            Self::Contradicted(_) => {
                "do not go on before you know why: ask an administrator whether the proxy can be trusted"
                    .to_owned()
            }
            Self::NotServed { .. } => "an administrator may have moved it a moment ago: try again".to_owned(),
            Self::Refused(_) | Self::Factor(_) | Self::NotBegun(_) => String::new(),
            Self::NotUnderstood => "ask an administrator to update the agent".to_owned(),
            Self::NotReached { document, name, .. } => {
                format!("is it running? if its address is wrong: sallyport admin edit {document}/{name}")
            }
        }
    }

    /// A stable word for metrics, traces and events.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Contradicted(_) => "contradicted",
            Self::NotServed { .. } => "not_served",
            Self::Refused(_) => "refused",
            Self::Factor(missing) => missing.reason(),
            Self::NotUnderstood => "not_understood",
            Self::NotReached { .. } => "not_reached",
            Self::NotBegun(not) => not.reason(),
        }
    }

    /// For the audit log.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Refused(refused) => refused.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether the user may not, rather than that it failed.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Factor(_) | Self::NotServed { .. } | Self::Contradicted(_))
    }

    /// Whether an event has told it already.
    pub(super) fn is_told(&self) -> bool {
        matches!(self, Self::NotBegun(_))
    }
}
