//! Suites: which algorithm serves which purpose, chosen once, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::algorithm::KeyAlgorithm;

/// What a key is for. Each purpose has a key of its own, so that a signature made for one can never serve another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KeyPurpose {
    /// Signs the SSH certificates of users.
    UserCaSsh,
    /// Signs the X.509 certificates of users.
    UserCaTls,
    /// Signs the SSH certificates of hosts.
    HostCaSsh,
    /// Signs the X.509 certificates of hosts.
    HostCaTls,
    /// A user's SSH key.
    UserSsh,
    /// A user's TLS client key.
    UserTls,
    /// A host's SSH key.
    HostSsh,
    /// A host's TLS key, as client and as server.
    HostTls,
    /// Signs checkpoints of the audit log.
    AuditCheckpoint,
}

impl KeyPurpose {
    /// Every purpose.
    pub const ALL: &[Self] = &[
        Self::UserCaSsh,
        Self::UserCaTls,
        Self::HostCaSsh,
        Self::HostCaTls,
        Self::UserSsh,
        Self::UserTls,
        Self::HostSsh,
        Self::HostTls,
        Self::AuditCheckpoint,
    ];
}

/// A named table from purpose to algorithm. A cluster has one; changing it changes the keys made from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Suite {
    /// Ed25519 for SSH and the audit log, P-256 for TLS, where some clients and most hardware know nothing newer.
    #[default]
    #[serde(rename = "balanced-v1")]
    BalancedV1,
}

impl Suite {
    /// Every suite this build knows.
    pub const ALL: &[Self] = &[Self::BalancedV1];

    /// The name in configuration files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BalancedV1 => "balanced-v1",
        }
    }

    /// The algorithm that serves a purpose.
    #[must_use]
    pub fn algorithm(self, purpose: KeyPurpose) -> KeyAlgorithm {
        match self {
            Self::BalancedV1 => match purpose {
                KeyPurpose::UserCaSsh
                | KeyPurpose::HostCaSsh
                | KeyPurpose::UserSsh
                | KeyPurpose::HostSsh
                | KeyPurpose::AuditCheckpoint => KeyAlgorithm::Ed25519,
                KeyPurpose::UserCaTls | KeyPurpose::HostCaTls | KeyPurpose::UserTls | KeyPurpose::HostTls => {
                    KeyAlgorithm::EcdsaP256
                }
            },
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a suite that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown suite {got:?}; this build knows {known}", known = Suite::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownSuite {
    /// The name given.
    pub got: String,
}

impl FromStr for Suite {
    type Err = UnknownSuite;
    fn from_str(name: &str) -> Result<Self, UnknownSuite> {
        Self::ALL
            .iter()
            .copied()
            .find(|suite| suite.name() == name)
            .ok_or_else(|| UnknownSuite { got: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn suites_are_found_by_name() {
        assert_eq!("balanced-v1".parse::<Suite>().unwrap(), Suite::BalancedV1);
        let error = "balanced-v9".parse::<Suite>().unwrap_err().to_string();
        assert_eq!(error, "unknown suite \"balanced-v9\"; this build knows balanced-v1");
    }

    #[test]
    fn balanced_keeps_ssh_and_tls_keys_apart() {
        let suite = Suite::BalancedV1;
        assert_eq!(suite.algorithm(KeyPurpose::UserCaSsh), KeyAlgorithm::Ed25519);
        assert_eq!(suite.algorithm(KeyPurpose::UserCaTls), KeyAlgorithm::EcdsaP256);
        assert_eq!(suite.algorithm(KeyPurpose::AuditCheckpoint), KeyAlgorithm::Ed25519);
    }
}
