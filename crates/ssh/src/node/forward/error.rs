//! Why a connection is not forwarded, in the words that the client reads.

use std::io;

use crate::native::mux::NotOpened;
use crate::node::backend::{Target, TargetError};
use crate::node::error::Refused;

/// Why a client may not have a connection forwarded, or a listener.
#[derive(Debug, thiserror::Error)]
pub(in crate::node) enum ForwardRefused {
    #[error(transparent)]
    Access(#[from] Refused),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("your roles do not allow {what}{way} ({option})")]
    NotAllowed {
        what: &'static str,
        /// Which of both ways; empty when neither is allowed.
        way: &'static str,
        option: &'static str,
    },
    #[error("{most} connections are forwarded already; close some")]
    TooMany { most: usize },
    #[error("this connection listens on {most} places already")]
    TooManyListeners { most: usize },
    #[error("this connection listens on {0} already")]
    Listens(Target),
    #[error("cannot listen on {target}: {reason}")]
    Listen { target: Target, reason: NotMade },
}

/// Why a connection or a listener that a client may have is not made.
#[derive(Debug, thiserror::Error)]
pub(in crate::node) enum NotMade {
    /// The system's words, or those of the server behind.
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("no answer within {seconds} s")]
    Silent { seconds: u64 },
}

/// Why the node cannot open a channel towards its client.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoChannel {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error(transparent)]
    Native(#[from] NotOpened),
}
