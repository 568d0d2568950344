//! How a handshake of TLS failed, as a person reads it.

/// How a handshake of TLS failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The cluster is not the one of a pin.
    #[error("{proxy} is not the cluster of this pin: {said}")]
    OtherPin {
        /// The address.
        proxy: String,
        /// What is wrong.
        said: String,
    },
    /// A certificate has expired.
    #[error("a certificate has expired, or this machine's clock is wrong ({clock})")]
    Expired {
        /// What is wrong, and what the clock says.
        clock: String,
    },
    /// A certificate is not valid yet.
    #[error("a certificate is not valid yet, so this machine's clock is probably wrong ({clock})")]
    NotYetValid {
        /// What is wrong, and what the clock says.
        clock: String,
    },
    /// The certificate is of another authority than the stored login's.
    #[error(
        "{proxy} is not the cluster you logged in to, or its certificate authority was replaced ({said})"
    )]
    UnknownIssuer {
        /// The address.
        proxy: String,
        /// What is wrong.
        said: String,
    },
    /// What answers does not speak TLS.
    #[error("{proxy} does not speak TLS ({said})")]
    NotSpoken {
        /// The address.
        proxy: String,
        /// What is wrong.
        said: String,
    },
    /// Anything else.
    #[error("the TLS handshake with {proxy} failed: {said}")]
    Other {
        /// The address.
        proxy: String,
        /// What is wrong.
        said: String,
    },
}
