//! Who may do what: identities, roles, locks and the one access decision.
//!
//! This crate is pure. It reads no clock, opens no file and talks to nobody: `now` and every fact come in as
//! arguments, so the same question always has the same answer, on the proxy, on the node and in a test.

mod compile;
pub mod identity;
pub mod ids;
pub mod labels;
pub mod lock;
pub mod node;
pub mod permit;
pub mod policy;
pub mod role;
pub mod yaml;

pub use identity::{HostRole, Identity, Principal, Traits};
pub use ids::{ClusterName, HostId, IdError, Login, NodeName, RoleName, SessionId, UserName};
pub use labels::Labels;
pub use lock::{Lock, LockTarget};
pub use node::Node;
pub use permit::{ApiPermit, Permit, RecordPolicy, Refusal, SessionOptions};
pub use policy::{Explanation, Policies, PolicyError};
pub use role::{Role, Verb};
