//! Why a stream by the helper did not come to be, or has ended.

use sallyport_access::text::Foreign;
use sallyport_client::advice::{AGAIN, LOOK};
use sallyport_client::demanded::Demanded;
use sallyport_client::error::{Error as ClientError, Kind, chain};

/// What something comes to.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a stream by the helper did not come to be, or has ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It would have been so without a helper.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The helper has ended below a stream.
    #[error("the connection was lost: the helper daemon has ended")]
    Ended,
    /// The input or the output of a program cannot be waited for.
    #[error("the helper cannot wait for input and output: {0}")]
    CannotWait(String),
    /// The stream has ended.
    #[error("the connection was lost{}", because(.why.as_deref()))]
    Lost {
        /// Why, where that is known.
        why: Option<String>,
    },
    /// A node does not answer.
    #[error("{node} did not answer within {seconds} s")]
    NodeSilent {
        /// The node.
        node: String,
        /// How long it had.
        seconds: u64,
    },
    /// No agent answers.
    #[error("no agent of {to} answered within {seconds} s")]
    AgentSilent {
        /// The database or other resource.
        to: String,
        /// How long they had.
        seconds: u64,
    },
    /// The connection to an agent has ended.
    #[error("the connection to {to} was lost: {why}")]
    AgentLost {
        /// The database or other resource.
        to: String,
        /// Why.
        why: String,
    },
    /// The connection to an agent did not come to be.
    #[error("the connection to the agent of {to} failed: {why}")]
    AgentFailed {
        /// The database or other resource.
        to: String,
        /// Why.
        why: String,
    },
    /// What answers is none of the agents that may.
    #[error("who answers for {to} is none of its agents: {why}")]
    OtherAgent {
        /// The database or other resource.
        to: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// What answers is no host.
    #[error("{0} is no agent")]
    NoAgent(String),
    /// The proxy ends the user's TLS, where the authority says that it does not.
    #[error(
        "the way to {to} does not go on to its agent end to end, as the authority says that it does: the proxy is of an \
         earlier release, or does not tell the truth"
    )]
    NotEndToEnd {
        /// The database or other resource.
        to: String,
    },
    /// The agent, proven, has opened nothing.
    #[error("{why}")]
    NotOpened {
        /// Why, in the agent's words.
        why: String,
        /// What to try, in the agent's words; may be empty.
        hint: String,
        /// Whether the user may not, rather than that it failed.
        denied: bool,
    },
    /// The authority knows no agent of a resource that takes TLS of the user's own.
    #[error(
        "none of the agents of {to} can serve it end to end: they have not joined, are of an earlier release, or two nodes share \
         a name"
    )]
    NoAgents {
        /// The resource.
        to: String,
        /// Its kind, as documents have it.
        kind: String,
    },
    /// This program does not know the kind.
    #[error("this program has no sessions with resources of the kind {0:?}")]
    UnknownKind(String),
    /// Something was sent early, and the node has not proven what became of it.
    #[error("{}", perhaps_done(.0))]
    PerhapsDone(Box<Error>),
}

/// What may be so when something was said early and not answered.
const PERHAPS_DONE: &str = "what was asked may have been done";

fn because(why: Option<&str>) -> String {
    why.map(|why| format!(": {why}")).unwrap_or_default()
}

fn perhaps_done(error: &Error) -> String {
    let said = error.told();
    if said.contains(PERHAPS_DONE) { said } else { format!("{said}; {PERHAPS_DONE}") }
}

impl Error {
    /// What happened, with the causes behind it, on one line and without what acts on a terminal.
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::Client(error) => error.told(),
            other => Foreign::new(chain(other, &other.to_string())).into(),
        }
    }

    /// Whether the proxy says that other agents serve the resource now.
    pub(crate) fn is_of_other_agents(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_of_other_agents())
    }

    /// What has to be proven, where a second factor would do.
    #[must_use]
    pub fn demanded(&self) -> Option<Demanded> {
        match self {
            Self::Client(error) => error.demanded(),
            Self::PerhapsDone(error) => error.demanded(),
            _ => None,
        }
    }

    /// The next command to try, or what to look at.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let advice = match self {
            Self::Client(error) => return error.advice(),
            Self::Ended => "connect again; SALLYPORT_CONNECT=off goes without it",
            Self::CannotWait(_) => "connect again with SALLYPORT_CONNECT=off, which goes without it",
            Self::Lost { .. } | Self::AgentLost { .. } => AGAIN,
            Self::NodeSilent { .. } => "sallyport ls  (is it online?)",
            Self::AgentSilent { .. } => "sallyport status  (is the agent up, and connected to the proxy?)",
            Self::AgentFailed { .. } => "sallyport status  (is the certificate still valid?)",
            Self::OtherAgent { .. } | Self::NoAgent(_) => {
                "do not go on before you know why: ask an administrator whether the proxy can be trusted"
            }
            Self::NotEndToEnd { .. } => "ask an administrator to update the proxy",
            Self::NotOpened { hint, .. } if hint.is_empty() => return None,
            Self::NotOpened { hint, .. } => return Some(Foreign::new(hint.clone()).into()),
            Self::NoAgents { kind, .. } => {
                return Some(format!(
                    "sallyport {kind} ls; an administrator looks at the nodes of its document's via: sallyport admin hosts ls"
                ));
            }
            Self::UnknownKind(_) => "sallyport --version  (client and cluster versions may be too far apart)",
            Self::PerhapsDone(_) => LOOK,
        };
        Some(advice.to_owned())
    }

    /// Of which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Client(error) => error.kind(),
            Self::PerhapsDone(error) => error.kind(),
            Self::NotOpened { denied: true, .. } => Kind::Refused,
            Self::Lost { .. } | Self::NoAgent(_) | Self::UnknownKind(_) => Kind::Failed,
            Self::Ended
            | Self::CannotWait(_)
            | Self::NodeSilent { .. }
            | Self::AgentSilent { .. }
            | Self::AgentLost { .. }
            | Self::AgentFailed { .. }
            | Self::OtherAgent { .. }
            | Self::NotOpened { .. }
            | Self::NoAgents { .. }
            | Self::NotEndToEnd { .. } => Kind::Connection,
        }
    }

    /// Whether the agent has answered so, which no end of a stream explains any further.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::NotOpened { .. })
    }

    /// The same, for a stream that is not only the helper's.
    pub(crate) fn of_stream(self) -> ClientError {
        match self {
            Self::Client(error) => error,
            other => {
                let (what, advice, kind) = (other.told(), other.advice(), other.kind());
                ClientError::Relayed { what, advice, kind, demanded: other.demanded().map(Box::new) }
            }
        }
    }
}
