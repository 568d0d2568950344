//! Who is asking, as a certificate proves it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::pin::Elsewhere;
use crate::{Device, HostId, Login, NodeName, RoleName, UserName};

/// Facts about a user that role templates refer to, such as `{"internal.logins": ["alice"]}` or `{"team": ["db"]}`.
pub type Traits = BTreeMap<String, Vec<String>>;

/// What a host is in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostRole {
    /// Serves sessions.
    Node,
    /// Serves the public address.
    Proxy,
    /// Holds the certificate authorities.
    Auth,
    /// A stock OpenSSH server that has joined to keep its host certificate fresh. It serves no client in our protocols.
    OpenSsh,
}

impl HostRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Node, Self::Proxy, Self::Auth, Self::OpenSsh];

    /// The role's name in certificates, tokens and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Proxy => "proxy",
            Self::Auth => "auth",
            Self::OpenSsh => "openssh",
        }
    }
}

/// The two kinds of certificate holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Principal {
    /// A person or a machine account.
    User {
        /// Account name.
        name: UserName,
        /// Roles at the time of login, in the order the user holds them.
        roles: Vec<RoleName>,
        /// OS logins that the roles together may allow; the decision at the target narrows them.
        logins: Vec<Login>,
        /// Facts for templates.
        traits: Traits,
    },
    /// A member of the cluster's own machinery.
    Host {
        /// Its id.
        id: HostId,
        /// Its name.
        name: NodeName,
        /// What it may do.
        role: HostRole,
    },
}

/// A proven caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Who.
    #[serde(flatten)]
    pub principal: Principal,
    /// The login (or join) that this certificate came from; all certificates of one login share it.
    pub login_id: Uuid,
    /// The trusted device that a user's login came from; none of hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The one address that a user's login counts from, in its canonical form; none of hosts, and none where no role pins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_to: Option<IpAddr>,
    /// Start of validity, skew allowance included.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_after: OffsetDateTime,
    /// End of validity.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_before: OffsetDateTime,
}

impl Identity {
    /// The user's name, when this is a user.
    #[must_use]
    pub fn user(&self) -> Option<&UserName> {
        match &self.principal {
            Principal::User { name, .. } => Some(name),
            Principal::Host { .. } => None,
        }
    }

    /// Whether the user's certificate counts where the client shows it from; that of a pinned login counts from one address, and no other.
    ///
    /// # Errors
    /// [`Elsewhere`] from another address, and where none is known.
    pub fn comes_from(&self, address: Option<IpAddr>) -> Result<(), Elsewhere> {
        let from = address.map(|address| address.to_canonical());
        match self.pinned_to {
            Some(pinned_to) if from != Some(pinned_to) => Err(Elsewhere { pinned_to, from }),
            _ => Ok(()),
        }
    }

    /// What audit events call this identity: the user name, or `node:web-1`.
    #[must_use]
    pub fn display_name(&self) -> String {
        match &self.principal {
            Principal::User { name, .. } => name.to_string(),
            Principal::Host { name, role, .. } => format!("{}:{name}", role.name()),
        }
    }
}
