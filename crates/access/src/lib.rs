//! Who may do what: identities, roles, locks and the one access decision.
//!
//! This crate is pure. It reads no clock, opens no file and has no connection: `now` and every fact come in as
//! arguments, so the same question always has the same answer, on the proxy, on the node and in a test.

mod compile;
pub mod database;
pub mod device;
mod document;
pub mod factor;
pub mod identity;
pub mod ids;
pub mod join;
pub mod kind;
pub mod labels;
pub mod limits;
pub mod listed;
pub mod lock;
pub mod login_claims;
pub mod login_rule;
pub mod newcomer;
pub mod node;
pub mod options;
pub mod permit;
pub mod pin;
pub mod policy;
pub mod query;
pub mod refusal;
pub mod resource;
pub mod role;
pub mod session_policy;
pub mod text;
pub mod yaml;

pub use database::{
    Database, DatabaseAccount, DatabaseLogin, DatabaseOptions, DatabaseProtocol, DatabaseTls,
    DatabaseTlsMode, DatabaseUserMode,
};
pub use device::{Device, DeviceCustody, DeviceTrust};
pub use document::read_document;
pub use factor::{FactorDemand, FactorRule, SessionFactor, SessionProof, SessionTarget};
pub use identity::{HostRole, Identity, Principal, Traits};
pub use ids::{
    ClusterName, DatabaseName, DeviceId, HostId, IdError, Login, NodeName, ResourceName, RoleName, SessionId,
    UserName,
};
pub use join::{JoinMode, JoinPermit};
pub use kind::{Kind, KindRow, Nature};
pub use labels::Labels;
pub use limits::{Limits, RecordAt, RecordPolicy, RecordingMode};
pub use listed::{Listed, ListedId};
pub use lock::{Lock, LockTarget};
pub use login_claims::{ClaimsRead, LoginClaims};
pub use login_rule::LoginRule;
pub use newcomer::Bounds;
pub use node::{Forwarding, Node, NodeKind, OpenSshServer, RecordInput, ServerTrust, SshOptions};
pub use options::Options;
pub use permit::{ApiPermit, DatabasePermit, Permit};
pub use pin::{Elsewhere, Unpinned};
pub use policy::login_rules::{
    ConditionError, LoginAsked, LoginDenied, LoginRuleError, LoginRules, RuleOutcome,
};
pub use policy::{
    AccountError, DatabaseChoices, Decidable, Explanation, ForwardingSomewhere, JoinTarget, Merged, Policies,
    PolicyError, Question, SchemaError, Seeker,
};
pub use query::{Query, QueryError};
pub use refusal::Refusal;
pub use resource::Resource;
pub use role::{Role, Verb};
pub use session_policy::{SESSION_POLICY_NAME, SessionPolicy};
