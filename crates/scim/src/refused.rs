//! What a client hears of what a backend did not do.

use crate::backend::BackendError;
use crate::error::{ScimError, shortened};

/// The refusal for a failure. [`BackendError::Changed`] is tried again before it comes to this.
pub(crate) fn refused(error: BackendError) -> ScimError {
    match error {
        BackendError::NotFound { kind, id } => ScimError::NotFound { kind, id: shortened(&id) },
        BackendError::Changed => ScimError::Busy,
        BackendError::UserNameTaken => ScimError::Uniqueness { attribute: "userName" },
        BackendError::NoSuchMember { id } => {
            ScimError::value("members", format!("there is no user or group {:?}", shortened(&id)))
        }
        BackendError::Full { kind, limit, remedy } => ScimError::Full { kind, limit, remedy },
        BackendError::TooMuch { got, unit, limit } => {
            ScimError::TooLarge { what: "all users and groups together", got, unit, limit }
        }
        failed @ BackendError::Failed(_) => ScimError::Backend(Box::new(failed)),
    }
}
