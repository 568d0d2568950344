//! The native protocol of nodes, which takes fewer round trips than SSH: whether it is wanted, what a client needs for it, and what
//! its failures mean.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal;
use sallyport_ssh::endpoint::{EndpointError, reason};
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::alpn;

use super::profile::Stored;
use crate::error::{Doing, Error, Result, chain};

/// Which protocol to speak with nodes: `auto`, `native` or `ssh`.
const VARIABLE: &str = "SALLYPORT_FRONT";

/// How long a node that knew SSH alone is taken to know no more.
pub const SSH_ALONE: Duration = Duration::from_secs(10 * 60);

/// What `SALLYPORT_FRONT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The native one, and SSH where a node has no other.
    Auto,
    /// The native one, or nothing.
    Native,
    /// SSH.
    Ssh,
}

impl Protocol {
    /// What the environment asks for.
    pub fn wanted() -> Result<Self> {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> Result<Self> {
        match text.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("native") => Ok(Self::Native),
            Some("ssh") => Ok(Self::Ssh),
            Some(other) => Err(Error::Setting {
                variable: VARIABLE,
                value: other.to_owned(),
                allowed: "auto, native or ssh",
            }),
        }
    }

    /// Whether a login on a node may go natively. A user who joins others' sessions goes by SSH.
    pub fn may_be_native(self, login: &str) -> bool {
        self != Self::Ssh && login != JOIN_LOGIN
    }
}

/// What a client needs for a node.
pub fn client(stored: &Stored, node: &str) -> Result<NodeClient> {
    let (chain, key) = stored.tls_identity()?;
    NodeClient::new(&stored.trust()?, (&chain, &key), alpn::NATIVE, node).doing("use the stored certificates")
}

/// Whether the far end has greeted as SSH servers do.
pub fn is_ssh_alone(error: &io::Error) -> bool {
    reason(error) == Some(EndpointError::NotSpoken)
}

/// A failed handshake with a node in words, with what to try.
pub fn explain(node: &str, error: &io::Error) -> Error {
    let node = node.to_owned();
    if let Some(refused) = refusal(error) {
        return Error::OtherNode { node, why: refused.to_string() };
    }
    if reason(error) == Some(EndpointError::Unknown) {
        return Error::Unproven { node, why: error.to_string() };
    }
    Error::NodeFailed { node, why: chain(error, &error.to_string()) }
}

/// What there is to say where SSH was ruled out.
#[must_use]
pub fn only_ssh(node: &str) -> Error {
    Error::OnlySsh { node: node.to_owned(), variable: VARIABLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_which_door() {
        let of = |text: &str| Protocol::of(Some(OsStr::new(text)));
        assert_eq!(Protocol::of(None).unwrap(), Protocol::Auto);
        assert_eq!(of("").unwrap(), Protocol::Auto);
        assert_eq!(of("auto").unwrap(), Protocol::Auto);
        assert_eq!(of("native").unwrap(), Protocol::Native);
        assert_eq!(of("ssh").unwrap(), Protocol::Ssh);
        assert!(of("telnet").unwrap_err().to_string().contains("SALLYPORT_FRONT is \"telnet\""));
        assert!(Protocol::Auto.may_be_native("root") && !Protocol::Auto.may_be_native(JOIN_LOGIN));
        assert!(!Protocol::Ssh.may_be_native("root"));
    }
}
