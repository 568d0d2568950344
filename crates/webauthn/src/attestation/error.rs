//! Why an attestation statement is wrong, or not believed.

use crate::cose::{Algorithm, UnknownAlgorithm};

/// What is wrong with an attestation statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttestationError {
    /// A field is missing, has another type, or does not belong there.
    #[error("{0}")]
    Syntax(&'static str),
    /// It is signed in a way that we have not.
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    /// Self attestation by another algorithm than the credential's.
    #[error("it is signed by {got}, and the credential signs by {expected}")]
    AlgorithmMismatch {
        /// What the statement says.
        got: Algorithm,
        /// What the credential does.
        expected: Algorithm,
    },
    /// The signature is wrong.
    #[error("its signature is not valid")]
    Signature,
    /// A certificate cannot be read, or says what it must not.
    #[error("certificate {at} of the statement: {reason}")]
    Certificate {
        /// Which, the attestation's own being 0.
        at: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The certificate is for another model than the authenticator says to be.
    #[error("its certificate is for another model than the authenticator data names")]
    OtherModel,
    /// The certificates lead to none of the roots.
    #[error("its certificates lead to none of the {roots} roots that the metadata has for the model")]
    NoRoot {
        /// How many roots there are.
        roots: usize,
    },
}
