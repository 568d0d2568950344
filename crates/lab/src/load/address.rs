//! What a user names: a URL, and whether it leads to this machine and nowhere else.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{LabError, reach};

/// Longest URL.
const URL_BYTES: usize = 8 << 10;
/// How long the resolver may take.
const RESOLVE: Duration = Duration::from_secs(5);

/// A URL of HTTP, in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// With TLS.
    pub secure: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port, said or implied.
    pub port: u16,
    /// Path and query, as they are sent.
    pub path: String,
}

impl Url {
    /// Reads `http://HOST[:PORT][/PATH]` or `https://...`.
    ///
    /// # Errors
    /// [`LabError::Input`] with what is wrong. Users, passwords and fragments are refused.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let bad = |why: &str| LabError::Input(format!("{}: {why}", text.escape_debug()));
        if text.len() > URL_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("a URL has no spaces, no control characters and only ASCII"));
        }
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| bad("expected http://HOST:PORT/PATH or https://..."))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(bad("only http:// and https:// can be measured")),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("a user or password in a URL is not sent"));
        }
        if path.contains('#') {
            return Err(bad("a fragment (#) is never sent"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| bad("the address has no closing ]"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| bad("what is in [] is no IPv6 address"))?;
                (host, port)
            }
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => {
                if secure {
                    443
                } else {
                    80
                }
            }
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse::<u16>()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| bad("the port is not a number from 1 to 65535"))?,
            _ => return Err(bad("the port is not a number from 1 to 65535")),
        };
        if host.is_empty() {
            return Err(bad("there is no host"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { secure, host: host.to_owned(), port, path })
    }

    /// Every address that the host has.
    ///
    /// # Errors
    /// [`LabError::Input`] when the name has none, or the resolver says nothing for five seconds.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, LabError> {
        let why =
            |error: String| LabError::Input(format!("cannot find the address of {}: {error}", self.host));
        let found = reach::resolve(&self.host, self.port, RESOLVE)
            .ok_or_else(|| why(format!("no answer within {} s", RESOLVE.as_secs())))?
            .map_err(|error| why(error.to_string()))?;
        if found.is_empty() {
            return Err(LabError::Input(format!("{} has no address", self.host)));
        }
        Ok(found)
    }

    /// Host and port as a request names them (RFC 9112 §3.2).
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Whether an address is this machine's own and cannot be reached from another: `127.0.0.0/8`, `::1`, and the first of these
/// as an IPv4-mapped address. `0.0.0.0` and `::` are not: where they lead is up to the system.
#[must_use]
pub fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

/// What the user said about a server that is not on loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Consent {
    /// That it is theirs.
    pub owned: bool,
    /// Most requests a second, all connections together.
    pub max_rate: Option<f64>,
}

/// Whether a server at these addresses may be pressed. Gives the address to use: one of them, so that a name which is
/// resolved again cannot lead elsewhere.
///
/// # Errors
/// [`LabError::Input`] when one of the addresses is not loopback and there is no consent, or no rate with it.
pub fn admit(url: &Url, addresses: &[SocketAddr], consent: Consent) -> Result<SocketAddr, LabError> {
    let foreign = addresses.iter().find(|address| !is_loopback(address.ip()));
    if let Some(foreign) = foreign {
        let at = format!("{} is at {}, which is not loopback", url.host, foreign.ip());
        if !consent.owned {
            return Err(LabError::Input(format!(
                "{at}: load on a server of others is an attack; if it is yours, say so with --i-own-this-server and \
                 bound it with --max-rate REQUESTS_A_SECOND"
            )));
        }
        if consent.max_rate.is_none() {
            return Err(LabError::Input(format!(
                "{at}: say how many requests a second it may get, with --max-rate"
            )));
        }
    }
    addresses.first().copied().ok_or_else(|| LabError::Input(format!("{} has no address", url.host)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = |text: &str| Url::parse(text).unwrap();
        assert_eq!(
            url("https://localhost:8443/a?b=c"),
            Url { secure: true, host: "localhost".to_owned(), port: 8443, path: "/a?b=c".to_owned() }
        );
        assert_eq!((url("http://127.0.0.1").port, url("HTTPS://x").port), (80, 443));
        assert_eq!((url("http://[::1]:81/").host.as_str(), url("http://[::1]:81/").port), ("::1", 81));
        assert_eq!(url("http://x?q").path, "/?q");
        assert_eq!(
            (url("http://[::1]:81/").authority(), url("http://x:80/").authority()),
            ("[::1]:81".to_owned(), "x".to_owned())
        );
        for bad in [
            "localhost:80",
            "ftp://x/",
            "http://",
            "http:///x",
            "http://u:p@x/",
            "http://x/#y",
            "http://x:0/",
            "http://x:65536/",
            "http://x:+1/",
            "http://x:/",
            "http://[::1/",
            "http://[x]/",
            "http://[::1]x/",
            "http://x/a b",
            "http://x/\r\nY: z",
            "",
        ] {
            assert!(matches!(Url::parse(bad), Err(LabError::Input(_))), "{bad}");
        }
    }

    #[test]
    fn only_loopback_is_loopback() {
        let is = |text: &str| is_loopback(text.parse().unwrap());
        for own in ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"] {
            assert!(is(own), "{own}");
        }
        for other in [
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "192.168.1.1",
            "128.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "::127.0.0.1",
            "2001:db8::1",
        ] {
            assert!(!is(other), "{other}");
        }
    }

    #[test]
    fn others_need_a_word_and_a_rate() {
        let url = Url::parse("http://example.invalid/").unwrap();
        let own: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let other: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let consent = |owned, max_rate| Consent { owned, max_rate };
        assert_eq!(admit(&url, &[own], Consent::default()).unwrap(), own);
        // One address that is not ours is enough.
        for (owned, rate) in [(false, None), (false, Some(5.0)), (true, None)] {
            for addresses in [&[other][..], &[own, other]] {
                let refused = admit(&url, addresses, consent(owned, rate)).unwrap_err().to_string();
                assert!(refused.contains("not loopback") && refused.contains("--max-rate"), "{refused}");
            }
        }
        assert_eq!(admit(&url, &[other], consent(true, Some(5.0))).unwrap(), other);
        assert!(admit(&url, &[], consent(true, Some(5.0))).is_err());
        let name = Url::parse("http://localhost:1/").unwrap();
        assert!(admit(&name, &name.resolve().unwrap(), Consent::default()).is_ok());
        assert!(Url::parse("http://no-such-host.invalid/").unwrap().resolve().is_err());
    }

    proptest! {
        #[test]
        fn no_text_takes_it_down(text in "\\PC{0,60}", url in "https?://[a-z0-9.:\\[\\]@/?#]{0,40}") {
            let _ = Url::parse(&text);
            if let Ok(url) = Url::parse(&url) {
                prop_assert!(url.path.starts_with('/') && url.port > 0 && !url.host.is_empty());
            }
        }
    }
}
