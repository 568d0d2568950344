//! Which page a call is of, as the browser tells (Fetch, §3.2 "`Origin` header"; Fetch Metadata, §2.3).

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

use super::answer::Refused;

const FETCH_SITE: &str = "sec-fetch-site";

/// The names by which browsers come to this proxy.
#[derive(Debug, Clone)]
pub(super) struct Origins {
    names: Vec<String>,
}

impl Origins {
    pub(super) fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| bare(name).to_ascii_lowercase()).collect() }
    }

    /// Whether the call is of a page of this proxy's, at the very address where the call goes: a name of the proxy's alone is not
    /// enough, since something else may be served at another port of it.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins.next().and_then(|origin| origin.to_str().ok()).ok_or(Refused::Foreign)?;
        let host = uri
            .authority()
            .cloned()
            .or_else(|| headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok()))
            .ok_or(Refused::Foreign)?;
        let asked = origin.strip_prefix("https://").and_then(|rest| rest.parse::<Authority>().ok());
        let asked = asked.ok_or(Refused::Foreign)?;
        let same = asked.host().eq_ignore_ascii_case(host.host()) && port(&asked) == port(&host);
        let named = self.names.contains(&bare(asked.host()).to_ascii_lowercase());
        let site = headers.get_all(FETCH_SITE).iter().all(|site| site == "same-origin");
        if origins.next().is_some() || asked.as_str().contains('@') || !(same && named && site) {
            return Err(Refused::Foreign);
        }
        Ok(())
    }
}

fn port(authority: &Authority) -> u16 {
    authority.port_u16().unwrap_or(443)
}

/// IPv6 addresses stand in brackets in an address bar, and without them in a configuration.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn checked(host: &str, more: &[(&'static str, &str)]) -> bool {
        let origins = Origins::new(&["Proxy.example.org".to_owned(), "2001:db8::1".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        for (name, value) in more {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        origins.check(&Uri::from_static("/web/login/describe"), &headers).is_ok()
    }

    #[test]
    fn the_proxys_own_page_may_call() {
        for (host, origin) in [
            ("proxy.example.org", "https://proxy.example.org"),
            ("proxy.example.org:443", "https://proxy.example.org"),
            ("PROXY.example.org:3080", "https://proxy.example.org:3080"),
            ("[2001:db8::1]:3080", "https://[2001:db8::1]:3080"),
        ] {
            assert!(checked(host, &[("origin", origin)]), "{origin}");
            assert!(checked(host, &[("origin", origin), ("sec-fetch-site", "same-origin")]), "{origin}");
        }
        let uri = Uri::from_static("https://proxy.example.org/web/login/describe");
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static("https://proxy.example.org"));
        assert!(Origins::new(&["proxy.example.org".to_owned()]).check(&uri, &headers).is_ok(), "HTTP/2");
    }

    #[test]
    fn no_other_page_may() {
        let own = "proxy.example.org";
        assert!(!checked(own, &[]), "a browser always says it of a POST");
        for origin in [
            "null",
            "",
            "*",
            "http://proxy.example.org",
            "https://proxy.example.org:8443",
            "https://proxy.example.org.attacker.example",
            "https://attacker.example",
            "https://user@proxy.example.org",
            "https://proxy.example.org/",
            "https://proxy.example.org https://attacker.example",
            "HTTPS://proxy.example.org",
        ] {
            assert!(!checked(own, &[("origin", origin)]), "{origin}");
        }
        // A name that the attacker points at the proxy is none of its own.
        assert!(!checked("rebound.example", &[("origin", "https://rebound.example")]));
        let fine = ("origin", "https://proxy.example.org");
        for site in ["cross-site", "same-site", "none", "SAME-ORIGIN", ""] {
            assert!(!checked(own, &[fine, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!checked(own, &[fine, ("origin", "https://attacker.example")]));
        assert!(!checked(own, &[fine, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]));
    }
}
