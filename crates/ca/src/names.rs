//! The DNS names of the cluster's own machinery.

use std::net::IpAddr;

use sallyport_access::{ClusterName, HostRole};
use sallyport_sal::tls::rustls::pki_types::ServerName;

use crate::CaError;

/// The domain that holds every cluster's internal names. `internal` is reserved for private use and resolves nowhere.
pub const DOMAIN: &str = "sallyport.internal";

/// The name that a host with this role proves in TLS. Clients verify it instead of the address they dialled, so an
/// address can change, and a node can never answer for the authority.
#[must_use]
pub fn server_name(role: HostRole, cluster: &ClusterName) -> String {
    format!("{}.{cluster}.{DOMAIN}", role_name(role))
}

pub(crate) fn role_name(role: HostRole) -> &'static str {
    match role {
        HostRole::Node => "node",
        HostRole::Proxy => "proxy",
        HostRole::Auth => "auth",
    }
}

/// A name as X.509 and SSH want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostName {
    Dns(String),
    Ip(IpAddr),
}

impl HostName {
    /// Parses what an operator calls a proxy: a DNS name or an address.
    pub(crate) fn parse(text: &str) -> Result<Self, CaError> {
        let bad = |reason| CaError::BadName { name: text.to_owned(), reason };
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        let lower = text.trim_end_matches('.').to_ascii_lowercase();
        match ServerName::try_from(lower.as_str()) {
            Ok(ServerName::DnsName(_)) => {}
            _ => return Err(bad("it is neither a DNS name nor an IP address")),
        }
        if lower == DOMAIN || lower.strip_suffix(DOMAIN).is_some_and(|rest| rest.ends_with('.')) {
            return Err(bad("names under sallyport.internal are given out by role, not on request"));
        }
        Ok(Self::Dns(lower))
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}
