//! Who may do what: identities, roles, locks and the one access decision.
//!
//! This crate is pure. It reads no clock, opens no file and talks to nobody: `now` and every fact come in as
//! arguments, so the same question always has the same answer, on the proxy, on the node and in a test.

pub mod identity;
pub mod ids;
pub mod labels;
pub mod node;

pub use identity::{HostRole, Identity, Principal, Traits};
pub use ids::{ClusterName, HostId, IdError, Login, NodeName, RoleName, SessionId, UserName};
pub use labels::Labels;
pub use node::Node;
