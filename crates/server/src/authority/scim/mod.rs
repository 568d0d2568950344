//! Provisioning by SCIM 2.0: what an identity provider says of who is there, and the end of the logins of those who leave.
//!
//! A SCIM client comes with a bearer token ([`tokens`]) that is good for one connector of single sign-on. What it makes is kept
//! apart from the cluster's users ([`directory`]): a user that it says to be active may log in by that connector, and none else may
//! ([`admission`]). When it says otherwise, the user that came so is removed in the same transaction, with the logins that are
//! open: proxies and nodes hear of it as of every lock. Users of the cluster's own, and those of other connectors, are not in its
//! reach. Requests are read and answered by the crate `scim` ([`answering`]).

pub(crate) mod admission;
pub(crate) mod answering;
mod directory;
mod forgetting;
mod held;
mod knowing;
mod known;
mod members;
mod names;
pub(crate) mod provisioning;
pub(crate) mod records;
mod roles;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
mod tokens;
