//! Addresses as people type them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A name or address with a port, as people type it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            return Err("is a URL: leave out https:// and write host:port alone");
        }
        let (host, port) = text.rsplit_once(':').ok_or("has no port")?;
        let port: u16 = port.parse().map_err(|_| "does not end in a port number")?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner.parse::<IpAddr>().map_err(|_| "is not an address in brackets")?.to_string(),
            None if host.is_empty() => return Err("has no host before the port"),
            None if host.contains(':') => return Err("needs brackets around its IPv6 address"),
            None => host.to_owned(),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
        if !host.chars().all(allowed) || host.len() > 253 {
            return Err("is not a host name");
        }
        Ok(Self { host, port })
    }
}
