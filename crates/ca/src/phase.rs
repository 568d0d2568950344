//! Where a rotation stands.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a rotation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// One CA; none is being replaced.
    #[default]
    Standby,
    /// The new CA is trusted and signs nothing.
    Init,
    /// Users, and whatever is not a host, get certificates of the new CA.
    UpdateClients,
    /// Hosts get certificates of the new CA.
    UpdateServers,
    /// The old CA signs again, and the new one is trusted until no certificate that it signed is held.
    Rollback,
}

impl Phase {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::Standby, Self::Init, Self::UpdateClients, Self::UpdateServers, Self::Rollback];

    /// The name, as it is stored and typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Init => "init",
            Self::UpdateClients => "update_clients",
            Self::UpdateServers => "update_servers",
            Self::Rollback => "rollback",
        }
    }

    /// The phase that follows when all goes well.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Standby => Self::Init,
            Self::Init => Self::UpdateClients,
            Self::UpdateClients => Self::UpdateServers,
            Self::UpdateServers | Self::Rollback => Self::Standby,
        }
    }

    /// The order of phases within one rotation: what a host has applied is compared by it.
    pub(crate) const fn step(self) -> u8 {
        match self {
            Self::Init => 1,
            Self::UpdateClients => 2,
            Self::UpdateServers => 3,
            Self::Rollback => 4,
            Self::Standby => 5,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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

/// Where the rotation of a CA stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RotationStatus {
    /// How many rotations were begun.
    pub generation: u64,
    /// The phase in force.
    pub phase: Phase,
}
