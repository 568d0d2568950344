//! Where a session goes: `[login@]node`, `ssh://login@node:port`, or labels that select nodes.

use crate::error::{CliError, CliResult, Exit};

/// One node, as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) login: Option<String>,
    pub(crate) host: String,
    /// Given but of no effect: a node has one SSH service.
    pub(crate) port: Option<u16>,
}

impl Target {
    /// Whether the name is a selection such as `env=prod,team=db`.
    pub(crate) fn is_selector(&self) -> bool {
        self.host.contains('=')
    }
}

/// Reads what a person, or ssh's `%r@%h:%p`, gives.
pub(crate) fn parse(text: &str) -> CliResult<Target> {
    let bad = |why: &str| {
        CliError::new(format!("{text:?} is not a destination: {why}"))
            .hint("sallyport ssh LOGIN@NODE, or LOGIN@label=value")
            .exit(Exit::Usage)
    };
    let rest = text.strip_prefix("ssh://").map_or(text, |rest| rest.trim_end_matches('/'));
    // A login may have an @ in it; a node's name may not.
    let (login, host) = match rest.rsplit_once('@') {
        Some(("", _)) => return Err(bad("nothing stands before the @")),
        Some((login, host)) => (Some(login.to_owned()), host),
        None => (None, rest),
    };
    let (host, port) = match host.rsplit_once(':') {
        // More than one colon is an IPv6 address, which no node has for a name, but let the proxy say so.
        Some((name, port)) if !name.contains(':') && !name.contains('=') => {
            (name, Some(port.parse().map_err(|_| bad("the port is not a number up to 65535"))?))
        }
        _ => (host, None),
    };
    if host.is_empty() {
        return Err(bad("the node's name is missing"));
    }
    if host.starts_with('-') || host.contains(char::is_whitespace) {
        return Err(bad("a node's name does not look like this"));
    }
    Ok(Target { login, host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(login: Option<&str>, host: &str, port: Option<u16>) -> Target {
        Target { login: login.map(str::to_owned), host: host.to_owned(), port }
    }

    #[test]
    fn destinations_are_read_as_ssh_reads_them() {
        for (text, expected) in [
            ("web-1", target(None, "web-1", None)),
            ("root@web-1", target(Some("root"), "web-1", None)),
            ("root@web-1:22", target(Some("root"), "web-1", Some(22))),
            ("ssh://root@web-1:3022/", target(Some("root"), "web-1", Some(3022))),
            ("a@corp@web-1.example.com", target(Some("a@corp"), "web-1.example.com", None)),
            ("root@env=prod,team=db", target(Some("root"), "env=prod,team=db", None)),
            ("image=nginx:1.2", target(None, "image=nginx:1.2", None)),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for bad in ["", "@web", "root@", "web:x", "web:99999", "-oProxyCommand=x", "a b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
