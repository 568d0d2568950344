//! Who may do what: identities, roles, locks and the one access decision.
//!
//! This crate is pure. It reads no clock, opens no file and talks to nobody: `now` and every fact come in as
//! arguments, so the same question always has the same answer, on the proxy, on the node and in a test.

mod compile;
pub mod database;
pub mod identity;
pub mod ids;
pub mod labels;
pub mod lock;
pub mod newcomer;
pub mod node;
pub mod options;
pub mod permit;
pub mod policy;
pub mod query;
pub mod role;
pub mod session_policy;
pub mod text;
pub mod yaml;

pub use database::{
    Database, DatabaseLogin, DatabaseOptions, DatabasePermit, DatabaseProtocol, DatabaseTls, DatabaseTlsMode,
    DatabaseUserMode,
};
pub use identity::{HostRole, Identity, Principal, Traits};
pub use ids::{ClusterName, DatabaseName, HostId, IdError, Login, NodeName, RoleName, SessionId, UserName};
pub use labels::Labels;
pub use lock::{Lock, LockTarget};
pub use newcomer::Bounds;
pub use node::{Node, NodeKind, OpenSshServer, ServerTrust};
pub use options::Options;
pub use permit::{
    ApiPermit, Forwarding, JoinMode, JoinPermit, Permit, RecordAt, RecordInput, RecordPolicy, RecordingMode,
    Refusal, SessionOptions,
};
pub use policy::{DatabaseChoices, Explanation, ForwardingSomewhere, JoinTarget, Policies, PolicyError};
pub use query::{Query, QueryError};
pub use role::{Role, Verb};
pub use session_policy::{SESSION_POLICY_NAME, SessionPolicy};
