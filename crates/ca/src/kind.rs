//! The certificate authorities of a cluster, by what they sign.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sallyport_sal::KeyPurpose;
use serde::{Deserialize, Serialize};

/// What an authority signs. A certificate of one is never believed where one of another is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaKind {
    /// Users: SSH and X.509.
    User,
    /// Hosts: SSH and X.509.
    Host,
    /// Database servers: X.509, verified by agents.
    Db,
    /// Agents that log in to databases: X.509, verified by databases.
    DbClient,
    /// Users at stock OpenSSH servers: SSH.
    Openssh,
    /// Users at applications: JWT.
    Jwt,
    /// The cluster at cloud providers: JWT, as an OpenID provider.
    OidcIdp,
    /// Workloads: X.509-SVID and JWT-SVID.
    Spiffe,
}

impl CaKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::User,
        Self::Host,
        Self::Db,
        Self::DbClient,
        Self::Openssh,
        Self::Jwt,
        Self::OidcIdp,
        Self::Spiffe,
    ];

    /// The name in commands, configuration and state, such as `db_client`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Host => "host",
            Self::Db => "db",
            Self::DbClient => "db_client",
            Self::Openssh => "openssh",
            Self::Jwt => "jwt",
            Self::OidcIdp => "oidc_idp",
            Self::Spiffe => "spiffe",
        }
    }

    /// What was keyed by the names of CAs, by CA. A name that only a newer release knows is left out and not refused,
    /// and so is a value that `read` does not understand.
    pub fn keyed<V, T>(
        named: impl IntoIterator<Item = (String, V)>,
        read: impl Fn(V) -> Option<T>,
    ) -> BTreeMap<Self, T> {
        named.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, read(value)?))).collect()
    }

    /// The purpose of its SSH key, if it has one.
    #[must_use]
    pub fn ssh_purpose(self) -> Option<KeyPurpose> {
        match self {
            Self::User => Some(KeyPurpose::UserCaSsh),
            Self::Host => Some(KeyPurpose::HostCaSsh),
            Self::Openssh => Some(KeyPurpose::OpensshCaSsh),
            Self::Db | Self::DbClient | Self::Jwt | Self::OidcIdp | Self::Spiffe => None,
        }
    }

    /// The purpose of its TLS key, if it has one.
    #[must_use]
    pub fn tls_purpose(self) -> Option<KeyPurpose> {
        match self {
            Self::User => Some(KeyPurpose::UserCaTls),
            Self::Host => Some(KeyPurpose::HostCaTls),
            Self::Db => Some(KeyPurpose::DbCaTls),
            Self::DbClient => Some(KeyPurpose::DbClientCaTls),
            Self::Spiffe => Some(KeyPurpose::SpiffeCaTls),
            Self::Openssh | Self::Jwt | Self::OidcIdp => None,
        }
    }

    /// The purpose of its JWT key, if it has one.
    #[must_use]
    pub fn jwt_purpose(self) -> Option<KeyPurpose> {
        match self {
            Self::Jwt => Some(KeyPurpose::JwtCa),
            Self::OidcIdp => Some(KeyPurpose::OidcIdpCa),
            Self::Spiffe => Some(KeyPurpose::SpiffeCaJwt),
            Self::User | Self::Host | Self::Db | Self::DbClient | Self::Openssh => None,
        }
    }

    /// The purposes of its keys.
    pub fn purposes(self) -> impl Iterator<Item = KeyPurpose> {
        [self.ssh_purpose(), self.tls_purpose(), self.jwt_purpose()].into_iter().flatten()
    }
}

impl fmt::Display for CaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no CA {got:?}; a cluster has {known}", known = CaKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownCa {
    /// The word given.
    pub got: String,
}

impl FromStr for CaKind {
    type Err = UnknownCa;
    /// Takes `db-client` as well as `db_client`.
    fn from_str(text: &str) -> Result<Self, UnknownCa> {
        let wanted = text.replace('-', "_");
        let found = Self::ALL.iter().copied().find(|kind| kind.name() == wanted);
        found.ok_or_else(|| UnknownCa { got: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kinds_are_found_by_name_and_have_keys_of_their_own() {
        let mut purposes = Vec::new();
        for kind in CaKind::ALL {
            assert_eq!(kind.name().parse::<CaKind>().unwrap(), *kind);
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
            assert!(kind.purposes().all(KeyPurpose::is_ca), "{kind}");
            purposes.extend(kind.purposes());
        }
        purposes.sort_unstable();
        let all: Vec<KeyPurpose> =
            KeyPurpose::ALL.iter().copied().filter(|purpose| purpose.is_ca()).collect();
        assert_eq!(purposes, all);
        assert_eq!("db-client".parse::<CaKind>().unwrap(), CaKind::DbClient);
        assert!("web".parse::<CaKind>().unwrap_err().to_string().contains("oidc_idp"));
    }
}
