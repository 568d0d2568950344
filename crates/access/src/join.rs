//! Taking part in live sessions of others.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::factor::FactorDemand;
use crate::{HostId, UserName};

/// How a user takes part in another user's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMode {
    /// Watches.
    Observer,
    /// Watches and types.
    Peer,
    /// Watches and may end it.
    Moderator,
}

impl JoinMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Observer, Self::Peer, Self::Moderator];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Peer => "peer",
            Self::Moderator => "moderator",
        }
    }
}

/// The proof that a user may take part in sessions of others on one node. Only [`crate::Policies`] makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinPermit {
    pub(crate) user: UserName,
    pub(crate) node: HostId,
    pub(crate) rule: String,
    pub(crate) factor: Option<FactorDemand>,
    pub(crate) valid_until: OffsetDateTime,
}

impl JoinPermit {
    /// Who.
    #[must_use]
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Where.
    #[must_use]
    pub fn node(&self) -> HostId {
        self.node
    }

    /// By which rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Which second factor has to be proven first, where one has to: the strictest that any of the user's roles demands.
    #[must_use]
    pub fn factor(&self) -> Option<&FactorDemand> {
        self.factor.as_ref()
    }

    /// Until the certificate behind it ends.
    #[must_use]
    pub fn valid_until(&self) -> OffsetDateTime {
        self.valid_until
    }
}
