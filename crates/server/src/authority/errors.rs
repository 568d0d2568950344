//! Errors of the authority as it opens.

use std::path::Path;

use crate::ServerError;

/// An error of the authority while it was doing this.
pub(crate) fn doing<E: std::error::Error + Send + Sync + 'static>(
    action: &str,
) -> impl FnOnce(E) -> ServerError + '_ {
    move |error| ServerError::Authority { action: action.to_owned(), source: error.into() }
}

/// The seal key does not open what is in the state of this directory.
pub(crate) fn wrong_seal(directory: &Path, source: &dyn std::error::Error) -> ServerError {
    ServerError::BadState {
        path: directory.join("seal.key"),
        problem: format!("does not open what is sealed in state.db ({source})"),
        fix: "restore the seal key that belongs to this state".to_owned(),
    }
}
