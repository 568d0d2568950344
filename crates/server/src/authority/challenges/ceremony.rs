//! A ceremony of WebAuthn that was begun, as it is stored: given out once.

use sallyport_webauthn::Pending;
use serde::{Deserialize, Serialize};
use tonic::Status;

/// What a response is held against, as JSON. The store gives it out in the same step in which it forgets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptCeremony(String);

impl KeptCeremony {
    pub(crate) fn of(pending: &Pending) -> Result<Self, Status> {
        serde_json::to_string(pending).map(Self).map_err(|error| Status::internal(error.to_string()))
    }

    pub(crate) fn begun(self) -> Result<Pending, Status> {
        serde_json::from_str(&self.0).map_err(|error| {
            tracing::error!(%error, "a ceremony that was begun cannot be read");
            Status::internal("what was begun cannot be read; begin again")
        })
    }
}

/// What the browser is given, as JSON.
pub(crate) fn options_json(options: &impl Serialize) -> Result<String, Status> {
    serde_json::to_string(options).map_err(|error| Status::internal(error.to_string()))
}
