//! Where an application is: `tcp://host:port` (RFC 3986 §3.2).

use std::net::IpAddr;
use std::str::FromStr;

const SCHEME: &str = "tcp://";
/// Characters of a name in DNS (RFC 1035 §2.3.4).
const LONGEST_HOST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// Where an application is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// A name or an address; an IPv6 address in brackets.
    host: String,
    port: u16,
}

/// Why a text says nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoUri {
    /// It is of another scheme, or of none.
    #[error("does not begin with {SCHEME}")]
    Scheme,
    /// It has no port, or none that there can be.
    #[error("has no port from 1 to 65535 behind its host")]
    Port,
    /// The host is none.
    #[error("has no host name or address (IPv6 in brackets)")]
    Host,
    /// Something follows the port, which TCP has no place for.
    #[error("has more than host and port; a path, a query or a user means nothing to TCP")]
    More,
}

impl Uri {
    /// As it is dialled: `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl FromStr for Uri {
    type Err = NoUri;

    fn from_str(text: &str) -> Result<Self, NoUri> {
        let rest = text.strip_prefix(SCHEME).ok_or(NoUri::Scheme)?;
        if rest.contains(['/', '?', '#', '@']) {
            return Err(NoUri::More);
        }
        let (host, port) = rest.rsplit_once(':').ok_or(NoUri::Port)?;
        if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoUri::Port);
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(NoUri::Port)?;
        if is_host(host) { Ok(Self { host: host.to_owned(), port }) } else { Err(NoUri::Host) }
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inside) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return matches!(inside.parse(), Ok(IpAddr::V6(_)));
    }
    let label = |label: &str| {
        (1..=LONGEST_LABEL).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.len() <= LONGEST_HOST && host.strip_suffix('.').unwrap_or(host).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_and_ports_are_read_and_nothing_else_is() {
        for (text, address) in [
            ("tcp://grafana.internal:3000", "grafana.internal:3000"),
            ("tcp://localhost:1", "localhost:1"),
            ("tcp://127.0.0.1:65535", "127.0.0.1:65535"),
            ("tcp://[::1]:6379", "[::1]:6379"),
            ("tcp://a_b-c.example.:7", "a_b-c.example.:7"),
        ] {
            assert_eq!(text.parse::<Uri>().unwrap().address(), address);
        }
        for (text, problem) in [
            ("grafana:3000", NoUri::Scheme),
            ("http://grafana:3000", NoUri::Scheme),
            ("TCP://grafana:3000", NoUri::Scheme),
            ("tcp://grafana", NoUri::Port),
            ("tcp://grafana:", NoUri::Port),
            ("tcp://grafana:0", NoUri::Port),
            ("tcp://grafana:+80", NoUri::Port),
            ("tcp://grafana:65536", NoUri::Port),
            ("tcp://:80", NoUri::Host),
            ("tcp://a..b:80", NoUri::Host),
            ("tcp://a b:80", NoUri::Host),
            ("tcp://::1:80", NoUri::Host),
            ("tcp://[127.0.0.1]:80", NoUri::Host),
            ("tcp://user@grafana:80", NoUri::More),
            ("tcp://grafana:80/", NoUri::More),
        ] {
            assert_eq!(text.parse::<Uri>(), Err(problem), "{text}");
        }
    }

    proptest! {
        /// What is taken is written back as it was.
        #[test]
        fn nothing_breaks_the_reader(text in ".*", host in "[a-z.:\\[\\]_-]{0,80}", port in 0u32..70_000) {
            for text in [text, format!("tcp://{host}:{port}")] {
                if let Ok(uri) = text.parse::<Uri>() {
                    prop_assert_eq!(format!("{SCHEME}{}", uri.address()).parse::<Uri>(), Ok(uri));
                }
            }
        }
    }
}
