//! What the authority stores, each kind under its own prefix.

use std::collections::BTreeMap;

use sallyport_access::{
    Bounds, HostId, HostRole, Labels, Node, NodeKind, NodeName, OpenSshServer, RoleName, Traits, UserName,
};
use sallyport_ca::rotation::CaState;
use sallyport_ca::{CaKind, RotationStatus};
use sallyport_sal::Suite;
use sallyport_sal::custody::StoredKey;
use sallyport_store::Kind;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// The cluster itself, under the name `self`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClusterRecord {
    pub(super) name: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) created: OffsetDateTime,
    pub(super) suite: Suite,
    /// The authority's own id as a host.
    pub(super) auth_id: HostId,
}

impl Kind for ClusterRecord {
    const KIND: &'static str = "cluster";
}

/// A certificate authority with the one that replaces it, under its kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CaRecord(pub(super) CaState);

impl Kind for CaRecord {
    const KIND: &'static str = "ca";
}

/// Keys of a CA that are being made outside the state, under a name of their own: until the CA's record names them,
/// they are nobody's, and are removed with this record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CaAttemptRecord {
    /// Their labels.
    pub(super) labels: Vec<String>,
}

impl Kind for CaAttemptRecord {
    const KIND: &'static str = "ca_attempt";
}

/// An audit event about a change that is in the state, written with it, under the event's id. It is here until it is
/// in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AnnouncementRecord {
    pub(super) event: String,
}

impl Kind for AnnouncementRecord {
    const KIND: &'static str = "announcement";
}

/// What a host has confirmed of rotations, under its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConfirmationRecord {
    /// When the newest of its certificates ends: from then on nobody waits for it.
    #[serde(with = "time::serde::rfc3339")]
    pub(super) valid_until: OffsetDateTime,
    /// The pin of the host CA that signed what it presents; empty when it never said.
    #[serde(default)]
    pub(super) signed_by: String,
    /// What it has applied; none when it never said. A CA that is missing was never rotated.
    #[serde(default)]
    pub(super) applied: Option<BTreeMap<CaKind, RotationStatus>>,
    /// Of an OpenSSH server: its sshd takes certificates for a login there alone.
    #[serde(default)]
    pub(super) takes_own_logins: bool,
}

impl Kind for ConfirmationRecord {
    const KIND: &'static str = "confirmation";
}

/// A signing key that belongs to no CA, by what it is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeyRecord(pub(super) StoredKey);

impl Kind for KeyRecord {
    const KIND: &'static str = "key";
}

/// Bytes sealed under the seal key, in base64, by what they are for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SecretRecord {
    pub(super) sealed: String,
}

impl Kind for SecretRecord {
    const KIND: &'static str = "secret";
}

/// The last signed checkpoint of the audit log, sealed, in base64, under the name `self`. It only ever moves on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeadRecord {
    pub(super) sealed: String,
}

impl Kind for HeadRecord {
    const KIND: &'static str = "audit_head";
}

/// A role, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RoleRecord {
    pub(super) yaml: String,
}

impl Kind for RoleRecord {
    const KIND: &'static str = "role";
}

/// A lock, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LockRecord {
    pub(super) yaml: String,
}

impl Kind for LockRecord {
    const KIND: &'static str = "lock";
}

/// The cluster's session policy, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SessionPolicyRecord {
    pub(super) yaml: String,
}

impl Kind for SessionPolicyRecord {
    const KIND: &'static str = "session_policy";
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UserRecord {
    pub(super) name: UserName,
    pub(super) roles: Vec<RoleName>,
    pub(super) traits: Traits,
}

impl Kind for UserRecord {
    const KIND: &'static str = "user";
}

/// What a user proves themselves with, under the user's name; apart from the user, so that a login does not change the
/// revision that an administrator works with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CredentialRecord {
    /// argon2id, as a PHC string.
    pub(super) password: Option<String>,
    /// The secret of the one-time codes, sealed, in base64.
    pub(super) totp_sealed: Option<String>,
    /// The time step of the last code that was accepted: none is accepted twice.
    pub(super) last_step: Option<u64>,
    /// Failed logins of late, in seconds since 1970.
    #[serde(default)]
    pub(super) failures: Vec<i64>,
    /// Closed until then, in seconds since 1970.
    pub(super) locked_until: Option<i64>,
}

impl Kind for CredentialRecord {
    const KIND: &'static str = "credential";
}

/// Failed logins with a name that nobody has, under the name's hash, for as long as they count. Such a name is closed as a real one
/// is, and stays closed when the authority starts anew: a difference would tell which names exist.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct UnknownRecord(pub(super) CredentialRecord);

impl Kind for UnknownRecord {
    const KIND: &'static str = "unknown_login";
}

/// An invite or reset link that was not used yet, under the hash of its token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InviteRecord {
    pub(super) user: UserName,
    /// The secret to enrol, once the link has been opened; sealed, in base64.
    pub(super) totp_sealed: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) expires: OffsetDateTime,
    /// It has been used.
    pub(super) used: bool,
    /// The revision of the user that it was made for: it does not open an account that was changed since, or another of
    /// the same name. None in links of an earlier release.
    #[serde(default)]
    pub(super) user_revision: Option<u64>,
}

impl Kind for InviteRecord {
    const KIND: &'static str = "invite";
}

/// A join token, under its public part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    /// SHA-256 of the whole token, in hexadecimal.
    pub(super) hash: String,
    pub(super) role: HostRole,
    pub(super) uses_left: u32,
    pub(super) labels: BTreeMap<String, String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) expires: OffsetDateTime,
    /// What hosts that join with it may be called and may say of themselves.
    #[serde(default)]
    pub(super) bounds: Bounds,
    /// The host whose place and name the one that joins takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaces: Option<HostId>,
}

impl Kind for TokenRecord {
    const KIND: &'static str = "token";
}

/// A host that has joined, under its id. Certificates are renewed only for hosts that have one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HostRecord {
    pub(super) id: HostId,
    pub(super) name: NodeName,
    pub(super) role: HostRole,
    pub(super) join_id: Uuid,
    /// It was made by the authority's own process, not by a token.
    pub(super) in_process: bool,
    /// Labels that came with the token.
    pub(super) labels: BTreeMap<String, String>,
    /// What users reach a proxy or a server by, as its join token has allowed it.
    #[serde(default)]
    pub(super) public_names: Vec<String>,
    /// What else its join token has allowed it.
    #[serde(default)]
    pub(super) bounds: Bounds,
}

impl Kind for HostRecord {
    const KIND: &'static str = "host";
}

/// A node, under its id: what it says of itself. When it was last seen is kept in memory only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeRecord {
    pub(super) id: HostId,
    pub(super) name: NodeName,
    pub(super) labels: Labels,
    pub(super) version: String,
    pub(super) os_user: String,
    /// Labels that came with the token, which the node cannot change.
    #[serde(default)]
    pub(super) fixed: BTreeMap<String, String>,
    /// Set for a stock OpenSSH server, which has no agent of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) openssh: Option<OpenSshServer>,
    /// Whether it takes connections to databases as TLS from the user's program: kept, so that an authority that was just
    /// started does not send people another way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) databases_end_to_end: bool,
}

impl NodeRecord {
    /// What the access decision sees of it.
    pub(super) fn node(&self) -> Node {
        let kind = self.openssh.clone().map_or(NodeKind::Sallyport, NodeKind::OpenSsh);
        Node { id: self.id, name: self.name.clone(), labels: self.labels.clone(), kind }
    }
}

impl Kind for NodeRecord {
    const KIND: &'static str = "node";
}
