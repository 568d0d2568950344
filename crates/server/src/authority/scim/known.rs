//! What is known of all that a connector's SCIM client has made.

use super::held::Held;
use super::members::Members;

/// What a connector's client has here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) held: Held,
    pub(super) members: Members,
}
