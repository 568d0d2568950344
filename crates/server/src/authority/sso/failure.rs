//! Why a step of single sign-on fails.

use sallyport_store::StoreError;
use tonic::Status;

use super::error::SsoError;
use crate::authority::storage::storage;

/// Why a step fails: by single sign-on itself, or by the state.
#[derive(Debug)]
pub(crate) enum Failure {
    Sso(Box<SsoError>),
    State(Status),
}

impl<E: Into<SsoError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Sso(Box::new(error.into()))
    }
}

pub(super) fn state(error: &StoreError) -> Failure {
    Failure::State(storage(error))
}
