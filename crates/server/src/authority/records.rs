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

use crate::authority::challenges::ceremony::KeptCeremony;

/// The cluster itself, under the name `self`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) name: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    pub(crate) suite: Suite,
    /// The authority's own id as a host.
    pub(crate) auth_id: HostId,
}

impl Kind for ClusterRecord {
    const KIND: &'static str = "cluster";
}

/// A certificate authority with the one that replaces it, under its kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CaRecord(pub(crate) CaState);

impl Kind for CaRecord {
    const KIND: &'static str = "ca";
}

/// Keys of a CA that are being made outside the state, under a name of their own: until the CA's record names them,
/// no CA has them, and they are removed with this record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CaAttemptRecord {
    /// Their labels.
    pub(crate) labels: Vec<String>,
}

impl Kind for CaAttemptRecord {
    const KIND: &'static str = "ca_attempt";
}

/// An audit event about a change that is in the state, written with it, under the event's id. It is here until it is
/// in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AnnouncementRecord {
    pub(crate) event: String,
}

impl Kind for AnnouncementRecord {
    const KIND: &'static str = "announcement";
}

/// What a host has confirmed of rotations, under its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfirmationRecord {
    /// When the newest of its certificates ends: from then on no rotation waits for it.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) valid_until: OffsetDateTime,
    /// The pin of the host CA that signed what it presents; empty when it never said.
    #[serde(default)]
    pub(crate) signed_by: String,
    /// The rotations that it says it has applied; none when it never said. A CA that is missing was never rotated.
    #[serde(default)]
    pub(crate) applied: Option<BTreeMap<CaKind, RotationStatus>>,
    /// Of an OpenSSH server: its sshd takes certificates for a login there alone.
    #[serde(default)]
    pub(crate) takes_own_logins: bool,
}

impl Kind for ConfirmationRecord {
    const KIND: &'static str = "confirmation";
}

/// A signing key that belongs to no CA, by what it is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyRecord(pub(crate) StoredKey);

impl Kind for KeyRecord {
    const KIND: &'static str = "key";
}

/// Bytes sealed under the seal key, in base64, by what they are for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SecretRecord {
    pub(crate) sealed: String,
}

impl Kind for SecretRecord {
    const KIND: &'static str = "secret";
}

/// The last signed checkpoint of the audit log, sealed, in base64, under the name `self`. It only ever moves on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeadRecord {
    pub(crate) sealed: String,
}

impl Kind for HeadRecord {
    const KIND: &'static str = "audit_head";
}

/// A role, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RoleRecord {
    pub(crate) yaml: String,
}

impl Kind for RoleRecord {
    const KIND: &'static str = "role";
}

/// A lock, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LockRecord {
    pub(crate) yaml: String,
}

impl Kind for LockRecord {
    const KIND: &'static str = "lock";
}

/// The cluster's session policy, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionPolicyRecord {
    pub(crate) yaml: String,
}

impl Kind for SessionPolicyRecord {
    const KIND: &'static str = "session_policy";
}

/// A login rule, as the YAML that was accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoginRuleRecord {
    pub(crate) yaml: String,
}

impl Kind for LoginRuleRecord {
    const KIND: &'static str = "login_rule";
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserRecord {
    pub(crate) name: UserName,
    pub(crate) roles: Vec<RoleName>,
    pub(crate) traits: Traits,
    /// Of a user who comes by single sign-on; none of a local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// Of a local user who is linked with a person of a provider, and logs in by single sign-on, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<Origin>,
}

impl UserRecord {
    /// As whom the user logs in by single sign-on.
    pub(crate) fn comes_as(&self) -> Option<&Origin> {
        self.origin.as_ref().or(self.link.as_ref())
    }
}

/// Who a user is at the identity provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// By which the user came last.
    pub(crate) connector: String,
    pub(crate) issuer: String,
    pub(crate) subject: String,
}

impl Kind for UserRecord {
    const KIND: &'static str = "user";
}

/// What a user proves themselves with, under the user's name; apart from the user, so that a login does not change the
/// revision that an administrator works with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CredentialRecord {
    /// argon2id, as a PHC string.
    pub(crate) password: Option<String>,
    /// The secret of the one-time codes of an earlier release, sealed, in base64; a factor is made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) totp_sealed: Option<String>,
    /// The time step of the last of those codes that was accepted: none is accepted twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_step: Option<u64>,
    /// Failed logins of late, in seconds since 1970.
    #[serde(default)]
    pub(crate) failures: Vec<i64>,
    /// Closed until then, in seconds since 1970.
    pub(crate) locked_until: Option<i64>,
    /// When an administrator took all credentials away: what was proven or begun before counts no more.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) reset_at: Option<OffsetDateTime>,
}

impl Kind for CredentialRecord {
    const KIND: &'static str = "credential";
}

/// Failed logins with a name that no user has, under the name's hash, for as long as they count. Such a name is closed as a real one
/// is, and stays closed when the authority starts anew: a difference would tell which names exist.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UnknownRecord(pub(crate) CredentialRecord);

impl Kind for UnknownRecord {
    const KIND: &'static str = "unknown_login";
}

/// An invite or reset link that was not used yet, under the hash of its token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InviteRecord {
    pub(crate) user: UserName,
    /// The secret to enrol, once the link has been opened; sealed, in base64.
    pub(crate) totp_sealed: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
    /// It has been used.
    pub(crate) used: bool,
    /// The revision of the user that it was made for: it does not open an account that was changed since, or another of
    /// the same name. None in links of an earlier release.
    #[serde(default)]
    pub(crate) user_revision: Option<u64>,
    /// The registration of a passkey that was begun with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) passkey: Option<KeptCeremony>,
}

impl Kind for InviteRecord {
    const KIND: &'static str = "invite";
}

/// A join token, under its public part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    /// SHA-256 of the whole token, in hexadecimal.
    pub(crate) hash: String,
    pub(crate) role: HostRole,
    pub(crate) uses_left: u32,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires: OffsetDateTime,
    /// What hosts that join with it may be called and may say of themselves.
    #[serde(default)]
    pub(crate) bounds: Bounds,
    /// The host whose place and name the one that joins takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaces: Option<HostId>,
}

impl Kind for TokenRecord {
    const KIND: &'static str = "token";
}

/// A host that has joined, under its id. Certificates are renewed only for hosts that have one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) role: HostRole,
    pub(crate) join_id: Uuid,
    /// It was made by the authority's own process, not by a token.
    pub(crate) in_process: bool,
    /// Labels that came with the token.
    pub(crate) labels: BTreeMap<String, String>,
    /// What users reach a proxy or a server by, as its join token has allowed it.
    #[serde(default)]
    pub(crate) public_names: Vec<String>,
    /// What else its join token has allowed it.
    #[serde(default)]
    pub(crate) bounds: Bounds,
}

impl Kind for HostRecord {
    const KIND: &'static str = "host";
}

/// A node, under its id: what it says of itself. When it was last seen is kept in memory only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) id: HostId,
    pub(crate) name: NodeName,
    pub(crate) labels: Labels,
    pub(crate) version: String,
    pub(crate) os_user: String,
    /// Labels that came with the token, which the node cannot change.
    #[serde(default)]
    pub(crate) fixed: BTreeMap<String, String>,
    /// Set for a stock OpenSSH server, which has no agent of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openssh: Option<OpenSshServer>,
    /// Whether it takes connections to databases as TLS from the user's program: kept, so that an authority that was just
    /// started does not send people another way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) databases_end_to_end: bool,
    /// The kinds of the catalogue that its agent can serve: kept as the former is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<String>,
}

impl NodeRecord {
    /// What the access decision sees of it.
    pub(crate) fn node(&self) -> Node {
        let kind = self.openssh.clone().map_or(NodeKind::Sallyport, NodeKind::OpenSsh);
        Node { id: self.id, name: self.name.clone(), labels: self.labels.clone(), kind }
    }
}

impl Kind for NodeRecord {
    const KIND: &'static str = "node";
}
