//! Rotation: replacing the keys of an authority while everything goes on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a rotation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No rotation: one set of keys.
    #[default]
    Standby,
    /// The new keys are trusted; the old ones sign.
    Init,
    /// Clients change over.
    UpdateClients,
    /// Servers change over.
    UpdateServers,
    /// The old keys sign again; the new ones are trusted until nothing signed by them is in use.
    Rollback,
}

impl Phase {
    /// Every phase.
    pub const ALL: &[Self] =
        &[Self::Standby, Self::Init, Self::UpdateClients, Self::UpdateServers, Self::Rollback];

    /// The name in commands and state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Init => "init",
            Self::UpdateClients => "update_clients",
            Self::UpdateServers => "update_servers",
            Self::Rollback => "rollback",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no phase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no phase {got:?}; the phases are standby, init, update_clients, update_servers, rollback")]
pub struct UnknownPhase {
    /// The word given.
    pub got: String,
}

impl FromStr for Phase {
    type Err = UnknownPhase;
    /// Takes `update-clients` as well as `update_clients`.
    fn from_str(text: &str) -> Result<Self, UnknownPhase> {
        let wanted = text.replace('-', "_");
        let found = Self::ALL.iter().copied().find(|phase| phase.name() == wanted);
        found.ok_or_else(|| UnknownPhase { got: text.to_owned() })
    }
}
