//! Origins, and which of them an RP ID may have (WebAuthn L3 §5.1.2, §13.4.9; Secure Contexts §3.1).

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::error::WebAuthnError;

/// Longest domain name, in characters (RFC 1035 §2.3.4).
const MAX_DOMAIN: usize = 253;

/// A web origin in the one form in which browsers write it (HTML §7.1.1): `https://host`, and the port where it is not 443.
///
/// `http` is for `localhost` and its subdomains alone, which browsers take as secure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin {
    text: String,
    /// Where in the text the host is.
    host: (usize, usize),
}

impl Origin {
    /// Reads an origin.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (secure, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err("it does not begin with https://"),
        };
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        check_domain(host)?;
        if !secure && !is_local(host) {
            return Err("it is not https, which is only allowed for localhost");
        }
        if let Some(port) = port {
            let number: u16 = port.parse().map_err(|_| "its port is no number")?;
            if number == 0 || number.to_string() != port || number == if secure { 443 } else { 80 } {
                return Err(
                    "its port is not written as browsers write it: no zeros ahead, and none where it is the scheme's own",
                );
            }
        }
        let start = text.len() - rest.len();
        Ok(Self { text: text.to_owned(), host: (start, start + host.len()) })
    }

    /// Its host.
    #[must_use]
    pub fn host(&self) -> &str {
        self.text.get(self.host.0..self.host.1).unwrap_or_default()
    }

    /// All of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Origin {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::parse(&text)
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.text
    }
}

/// Checks a domain: lower case, in ASCII as it is in DNS, and no address.
pub(crate) fn check_domain(host: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        return Err("there is no host");
    }
    if host.len() > MAX_DOMAIN {
        return Err("the host is longer than 253 characters");
    }
    if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
        return Err("it is an IP address, for which browsers make no passkeys");
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if !host.split('.').all(label) {
        return Err("the host is not a domain name in lower-case ASCII");
    }
    // A host that ends in a number is an IPv4 address to browsers, whatever stands ahead of it (URL §3.5).
    if host.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("the host ends in a number, as addresses do");
    }
    Ok(())
}

/// The RP ID is the host, or the host is a subdomain of it (HTML §7.1.1, registrable domain suffix). Whether the RP ID is a
/// public suffix only the browser knows.
pub(crate) fn within(host: &str, rp_id: &str) -> bool {
    host == rp_id || host.strip_suffix(rp_id).is_some_and(|ahead| ahead.ends_with('.'))
}

fn is_local(host: &str) -> bool {
    within(host, "localhost")
}

impl Origin {
    /// An origin of this RP ID.
    pub(crate) fn of(text: &str, rp_id: &str) -> Result<Self, WebAuthnError> {
        let bad =
            |reason| WebAuthnError::BadOrigin { origin: text.to_owned(), rp_id: rp_id.to_owned(), reason };
        let origin = Self::parse(text).map_err(bad)?;
        if within(origin.host(), rp_id) {
            Ok(origin)
        } else {
            Err(bad("its host is neither the RP ID nor a subdomain of it"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn origins_are_what_browsers_write() {
        for text in [
            "https://example.org",
            "https://a.example.org:8443",
            "http://localhost:3080",
            "http://x.localhost",
        ] {
            assert_eq!(Origin::parse(text).unwrap().as_str(), text);
        }
        assert_eq!(Origin::parse("https://a.example.org:8443").unwrap().host(), "a.example.org");
        for text in [
            "http://example.org",
            "https://example.org:443",
            "https://example.org:08443",
            "https://example.org:0",
            "https://example.org:99999",
            "http://localhost:80",
            "https://example.org/",
            "https://Example.org",
            "https://user@example.org",
            "https://exämple.org",
            "https://127.0.0.1",
            "https://[::1]",
            "https://0x7f.1",
            "https://example..org",
            "https://example.org.",
            "https://",
            "HTTPS://example.org",
            "android:apk-key-hash:x",
            "null",
            "http://localhost.example.org",
            "http://notlocalhost",
            "",
        ] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_rp_id_covers_its_subdomains_and_no_lookalike() {
        assert!(within("example.org", "example.org"));
        assert!(within("login.example.org", "example.org"));
        assert!(!within("badexample.org", "example.org"));
        assert!(!within("example.org", "login.example.org"));
        assert!(!within("example.org.evil.net", "example.org"));
    }
}
