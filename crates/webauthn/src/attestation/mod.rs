//! Attestation statements: what an authenticator's maker says of the model (WebAuthn L3 §6.5, §8).

mod certificate;
pub(crate) mod error;
mod fido_u2f;
pub(crate) mod format;
pub(crate) mod metadata;
mod packed;
mod procedure;
mod statement;

pub(crate) use certificate::chains;
pub use error::AttestationError;
pub use format::{Attestation, Format, Proof};
pub use metadata::Metadata;
pub(crate) use procedure::verify;
pub(crate) use statement::{Statement, Verified};
