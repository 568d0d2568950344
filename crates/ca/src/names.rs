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
    format!("{}.{cluster}.{DOMAIN}", role.name())
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

impl HostName {
    /// Parses a name of a stock server, which is never one that means "this machine" to its clients.
    pub(crate) fn parse_public(text: &str) -> Result<Self, CaError> {
        let name = Self::parse(text)?;
        let bad = |reason| Err(CaError::BadName { name: text.to_owned(), reason });
        match &name {
            Self::Dns(dns) if dns == "localhost" || dns.ends_with(".localhost") => {
                bad("every machine is called so by its own programs")
            }
            Self::Ip(ip) if ip.is_loopback() || ip.is_unspecified() => {
                bad("every machine has this address for its own programs")
            }
            _ => Ok(name),
        }
    }

    /// Parses a name of a database server: as [`HostName::parse`], or `*.` before a name of at least two labels. The
    /// asterisk stands for one label (RFC 9525 §6.3). A database is often on the machine of its clients, so that
    /// `localhost` is as good a name as another.
    pub(crate) fn parse_database(text: &str) -> Result<Self, CaError> {
        let bad = |reason| Err(CaError::BadName { name: text.to_owned(), reason });
        let Some(parent) = text.strip_prefix("*.") else { return Self::parse(text) };
        match Self::parse(parent)? {
            Self::Dns(parent) if parent.contains('.') => Ok(Self::Dns(format!("*.{parent}"))),
            Self::Dns(_) => bad("a wildcard needs at least two labels behind it"),
            Self::Ip(_) => bad("a wildcard stands before a DNS name"),
        }
    }
}

/// Whether a name, which may begin with `*.`, means a host name.
#[must_use]
pub fn name_covers(name: &str, host: &str) -> bool {
    let (name, host) = (name.trim_end_matches('.'), host.trim_end_matches('.'));
    match name.strip_prefix("*.") {
        Some(parent) => host
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(host),
    }
}

/// Longest name of a database user, in characters: the bound of a common name (RFC 5280 appendix A.1).
const DATABASE_USER_CHARACTERS: usize = 64;

/// Checks the name of a database user, which becomes the common name of a certificate: whatever a database allows that
/// survives a comparison of subjects as text.
pub(crate) fn database_user(name: &str) -> Result<(), CaError> {
    let bad = |reason| Err(CaError::BadName { name: name.chars().take(128).collect(), reason });
    if name.is_empty() || name.chars().count() > DATABASE_USER_CHARACTERS {
        return bad("a database user has 1 to 64 characters");
    }
    if name.trim() != name {
        return bad("databases that compare subjects as text lose spaces at the ends");
    }
    // RFC 4514 §2.4: these begin another attribute, or hide the next character.
    if name
        .chars()
        .any(|c| c.is_control() || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' | '/' | '#'))
    {
        return bad("in a subject that is compared as text, it could be taken for another name");
    }
    if name.to_ascii_lowercase().starts_with("spiffe:") {
        return bad("names of workloads are certified by the spiffe CA alone");
    }
    Ok(())
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_databases_are_names_and_never_the_clusters() {
        for good in ["db.example.com", "DB", "*.db.example.com", "localhost", "::1", "192.0.2.1"] {
            let name = HostName::parse_database(good).unwrap().to_string();
            assert_eq!(name, good.to_ascii_lowercase());
        }
        for bad in [
            "",
            "*",
            "*.",
            "*.com",
            "*.*.example.com",
            "db*.example.com",
            "*.192.0.2.1",
            "a.*.example.com",
            "no spaces",
            "web-1.prod.sallyport.internal",
            "*.prod.sallyport.internal",
            "*.sallyport.internal",
            "spiffe://prod/web",
            "db.example.com/x",
            "db.example.com:5432",
        ] {
            assert!(matches!(HostName::parse_database(bad), Err(CaError::BadName { .. })), "{bad}");
        }
        assert!(HostName::parse_public("*.example.com").is_err());
        for local in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.2", "::1", "0.0.0.0", "::"] {
            assert!(HostName::parse_public(local).is_err(), "{local}");
        }
    }

    #[test]
    fn database_users_cannot_pass_for_others() {
        for good in ["alice", "größe", "svc-1", "a b", "alice@example.com", &"x".repeat(64)] {
            database_user(good).unwrap();
        }
        let long = "x".repeat(65);
        for bad in [
            "",
            &long,
            " alice",
            "alice ",
            "a,CN=root",
            "a/CN=root",
            "a=b",
            "a\0b",
            "a\nb",
            "a\\2c",
            "spiffe:x",
            "SPIFFE://p/x",
        ] {
            assert!(database_user(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_wildcard_covers_one_label() {
        assert!(name_covers("*.example.com", "SSH.example.com."));
        assert!(name_covers("ssh.example.com", "SSH.EXAMPLE.com"));
        for host in ["example.com", "a.b.example.com", ".example.com", "ssh.example.org"] {
            assert!(!name_covers("*.example.com", host), "{host}");
        }
    }
}
