//! Purposes of keys and suites, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a key is for. Each purpose has a key of its own, so that a signature made for one can never serve another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// Signs the X.509 certificates of database servers.
    DbCaTls,
    /// Signs the X.509 certificates with which agents log in to databases.
    DbClientCaTls,
    /// Signs the SSH user certificates that stock OpenSSH servers trust.
    OpensshCaSsh,
    /// Signs the JWTs that prove a user to applications.
    JwtCa,
    /// Signs the JWTs that prove the cluster to cloud providers.
    OidcIdpCa,
    /// Signs X.509-SVIDs.
    SpiffeCaTls,
    /// Signs JWT-SVIDs.
    SpiffeCaJwt,
    /// A user's SSH key.
    UserSsh,
    /// A user's TLS client key.
    UserTls,
    /// The SSH key of a session in the browser, held by the proxy.
    WebSessionSsh,
    /// The TLS key of a session in the browser, held by the proxy.
    WebSessionTls,
    /// A host's SSH key.
    HostSsh,
    /// A host's TLS key, as client and as server.
    HostTls,
    /// The TLS key with which a proxy speaks to an agent on a user's behalf.
    ProxyToAgent,
    /// The TLS key with which an agent logs in to a database.
    AgentToDatabase,
    /// The TLS key of a database server.
    DatabaseServer,
    /// A machine user's SSH key.
    BotSsh,
    /// A machine user's TLS key.
    BotTls,
    /// A workload's key, in its X.509-SVID.
    Svid,
    /// Signs checkpoints of the audit log.
    AuditCheckpoint,
}

impl KeyPurpose {
    /// Every purpose, in the order of the table.
    pub const ALL: &[Self] = &[
        Self::UserCaSsh,
        Self::UserCaTls,
        Self::HostCaSsh,
        Self::HostCaTls,
        Self::DbCaTls,
        Self::DbClientCaTls,
        Self::OpensshCaSsh,
        Self::JwtCa,
        Self::OidcIdpCa,
        Self::SpiffeCaTls,
        Self::SpiffeCaJwt,
        Self::UserSsh,
        Self::UserTls,
        Self::WebSessionSsh,
        Self::WebSessionTls,
        Self::HostSsh,
        Self::HostTls,
        Self::ProxyToAgent,
        Self::AgentToDatabase,
        Self::DatabaseServer,
        Self::BotSsh,
        Self::BotTls,
        Self::Svid,
        Self::AuditCheckpoint,
    ];

    /// The name in reports and metrics, such as `user-ca-ssh`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UserCaSsh => "user-ca-ssh",
            Self::UserCaTls => "user-ca-tls",
            Self::HostCaSsh => "host-ca-ssh",
            Self::HostCaTls => "host-ca-tls",
            Self::DbCaTls => "db-ca-tls",
            Self::DbClientCaTls => "db-client-ca-tls",
            Self::OpensshCaSsh => "openssh-ca-ssh",
            Self::JwtCa => "jwt-ca",
            Self::OidcIdpCa => "oidc-idp-ca",
            Self::SpiffeCaTls => "spiffe-ca-tls",
            Self::SpiffeCaJwt => "spiffe-ca-jwt",
            Self::UserSsh => "user-ssh",
            Self::UserTls => "user-tls",
            Self::WebSessionSsh => "web-session-ssh",
            Self::WebSessionTls => "web-session-tls",
            Self::HostSsh => "host-ssh",
            Self::HostTls => "host-tls",
            Self::ProxyToAgent => "proxy-to-agent",
            Self::AgentToDatabase => "agent-to-database",
            Self::DatabaseServer => "database-server",
            Self::BotSsh => "bot-ssh",
            Self::BotTls => "bot-tls",
            Self::Svid => "svid",
            Self::AuditCheckpoint => "audit-checkpoint",
        }
    }

    /// Whether it is the key of a certificate authority: a change of its algorithm takes a rotation. Other keys are
    /// made anew with the next certificate.
    #[must_use]
    pub const fn is_ca(self) -> bool {
        matches!(
            self,
            Self::UserCaSsh
                | Self::UserCaTls
                | Self::HostCaSsh
                | Self::HostCaTls
                | Self::DbCaTls
                | Self::DbClientCaTls
                | Self::OpensshCaSsh
                | Self::JwtCa
                | Self::OidcIdpCa
                | Self::SpiffeCaTls
                | Self::SpiffeCaJwt
        )
    }
}

impl fmt::Display for KeyPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyPurpose {
    type Err = UnknownPurpose;
    fn from_str(name: &str) -> Result<Self, UnknownPurpose> {
        let found = Self::ALL.iter().copied().find(|purpose| purpose.name() == name);
        found.ok_or_else(|| UnknownPurpose { got: name.to_owned() })
    }
}

/// The name of a purpose that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown purpose of a key {got:?}")]
pub struct UnknownPurpose {
    /// The name given.
    pub got: String,
}

/// Whether connections within the cluster must agree on their keys with ML-KEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HybridKeyExchange {
    /// X25519MLKEM768 (TLS) and `mlkem768x25519-sha256` (SSH) come first; classical groups are accepted.
    Preferred,
    /// Nothing else is accepted.
    Required,
}

/// A named table from purpose to algorithm. A cluster has one; changing it changes the keys made from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Suite {
    /// RSA-2048 everywhere: for clients that know nothing else.
    #[serde(rename = "legacy")]
    Legacy,
    /// Ed25519 for SSH, P-256 for TLS and JWT, and RSA-2048 where the ecosystem still needs it.
    #[default]
    #[serde(rename = "balanced-v1")]
    BalancedV1,
    /// As balanced, without Ed25519: what FIPS modules and their auditors accept everywhere.
    #[serde(rename = "fips-v1")]
    FipsV1,
    /// As balanced, with CA keys that tokens can hold: none of them is Ed25519. Other keys are never in a token.
    #[serde(rename = "hsm-v1")]
    HsmV1,
    /// Against quantum computers: hybrid key exchange required within the cluster, ML-DSA where only Sallyport reads.
    #[serde(rename = "pq-v1")]
    PqV1,
}

impl Suite {
    /// Every suite this build knows, in the order of the table's cells.
    pub const ALL: &[Self] = &[Self::Legacy, Self::BalancedV1, Self::FipsV1, Self::HsmV1, Self::PqV1];

    /// The name in configuration files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::BalancedV1 => "balanced-v1",
            Self::FipsV1 => "fips-v1",
            Self::HsmV1 => "hsm-v1",
            Self::PqV1 => "pq-v1",
        }
    }

    /// What it is for, in one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Legacy => "RSA-2048 everywhere, for clients that know nothing else",
            Self::BalancedV1 => {
                "Ed25519 for SSH, P-256 for TLS and JWT, RSA-2048 where databases and clouds need it"
            }
            Self::FipsV1 => "as balanced-v1 without Ed25519, for FIPS 140-3",
            Self::HsmV1 => "as balanced-v1 with CA keys that tokens can hold",
            Self::PqV1 => "hybrid ML-KEM required within the cluster, ML-DSA where only Sallyport reads",
        }
    }

    /// What it demands of key exchange within the cluster.
    #[must_use]
    pub fn key_exchange(self) -> HybridKeyExchange {
        match self {
            Self::PqV1 => HybridKeyExchange::Required,
            Self::Legacy | Self::BalancedV1 | Self::FipsV1 | Self::HsmV1 => HybridKeyExchange::Preferred,
        }
    }

    /// The suite of a new cluster whose configuration names none.
    #[must_use]
    pub fn of_new_cluster(fips: bool, token: bool) -> Self {
        match (fips, token) {
            (true, _) => Self::FipsV1,
            (false, true) => Self::HsmV1,
            (false, false) => Self::BalancedV1,
        }
    }

    /// Whether an authority may run with it in FIPS mode.
    #[must_use]
    pub fn is_for_fips(self) -> bool {
        matches!(self, Self::FipsV1 | Self::Legacy)
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
