//! URLs of issuers and of their endpoints.

/// Longest URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// Checks a URL to which secrets are sent: `https`, or `http` to this machine; a host; nothing that hides where it goes.
pub(crate) fn check(url: &str) -> Result<(), &'static str> {
    if url.len() > MAX_URL_BYTES {
        return Err("it is longer than 2048 bytes");
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic())
        || url.contains(['\\', '"', '<', '>', '^', '`', '{', '|', '}'])
    {
        return Err("it has a character that URLs have not");
    }
    let (secure, rest) = match url.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        _ => return Err("it does not begin with https://"),
    };
    if rest.contains('#') {
        return Err("it has a fragment");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("it has a user name in it");
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            if port.parse::<u16>().is_err() {
                return Err("its port is no number");
            }
            host
        }
        _ => authority,
    };
    if host.is_empty() {
        return Err("it has no host");
    }
    if !secure && !["localhost", "127.0.0.1", "[::1]"].contains(&host) {
        return Err("it is not https");
    }
    Ok(())
}

/// Checks an issuer (OpenID Connect Discovery §3): a URL without query and fragment.
pub(crate) fn check_issuer(issuer: &str) -> Result<(), &'static str> {
    check(issuer)?;
    if issuer.contains('?') { Err("it has a query") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_where_a_person_reads_that_they_go() {
        for good in [
            "https://accounts.example.com",
            "https://login.example.com/tenant/v2.0",
            "https://example.com:8443/a?b=c",
            "http://localhost:8080/realms/x",
            "http://[::1]:1/",
            "https://[2001:db8::1]/",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "https://",
            "https:///path",
            "http://example.com",
            "http://localhost.example.com",
            "https://example.com@evil.example",
            "https://example.com#@evil.example",
            "https://example.com\\@evil.example",
            "https://exa mple.com",
            "https://ex\u{e4}mple.com",
            "https://example.com:port",
            "ftp://example.com",
            "javascript:alert(1)",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check_issuer("https://example.com?x=1").is_err());
    }
}
