//! Why something cannot be measured here.

use rustls::client::VerifierBuilderError;

use crate::SalError;
use crate::algorithm::KexGroup;
use crate::provider::Fault;

/// Why there is no such measurement on this machine, with these sources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    // The caller.
    /// The standards have no such handshake.
    #[error("{0}")]
    Impossible(&'static str),
    /// An operation on messages without a size of message.
    #[error("{0} are measured by bytes")]
    NoSize(&'static str),
    /// No HelloRetryRequest follows from such a guess.
    #[error("a share of {sent} serves {common} too: no second flight is needed")]
    NoSecondFlight {
        /// The group that the client sends a share for.
        sent: KexGroup,
        /// The group that both sides have.
        common: KexGroup,
    },

    // The machine, and what was chosen for it.
    /// No source has the group.
    #[error("there is no source for {0}")]
    NoSource(KexGroup),
    /// The key has no scheme of signatures that can be measured.
    #[error("{0}")]
    NoScheme(&'static str),
    /// The kernel gives no counter of instructions.
    #[error(transparent)]
    NoCounter(std::io::Error),
    /// The kernel gives a counter that does not count.
    #[error("the counter stands still")]
    StillCounter,

    // The sources.
    /// A source failed at the operation.
    #[error(transparent)]
    Source(#[from] Fault),
    /// Keys or certificates could not be made.
    #[error(transparent)]
    Keys(#[from] SalError),
    /// A handshake, or its configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The verifier of certificates.
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}
