//! The native protocol of nodes, which takes fewer round trips than SSH: whether it is wanted, what a client needs for it, and what
//! its failures mean.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal;
use sallyport_ssh::door::{DoorError, reason};
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::alpn;

use super::profile::Stored;
use crate::error::{CliError, CliResult, Context, Exit, chain};

/// Which protocol to speak with nodes: `auto`, `native` or `ssh`.
const VARIABLE: &str = "SALLYPORT_FRONT";

/// What may be so when something was said early and not answered,
const PERHAPS_DONE: &str = "what was asked may have been done";
/// and what to do then.
const LOOK: &str = "look whether it was done before you do it again";

/// How long a node that knew SSH alone is taken to know no more.
pub(crate) const SSH_ALONE: Duration = Duration::from_secs(10 * 60);

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The native one, and SSH where a node has no other.
    Auto,
    Native,
    Ssh,
}

impl Protocol {
    /// What the environment asks for.
    pub(crate) fn wanted() -> CliResult<Self> {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> CliResult<Self> {
        match text.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("native") => Ok(Self::Native),
            Some("ssh") => Ok(Self::Ssh),
            Some(other) => Err(CliError::new(format!("{VARIABLE} is {other:?}"))
                .hint(format!("{VARIABLE}=auto, native or ssh"))
                .exit(Exit::Usage)),
        }
    }

    /// Whether a login on a node may go by the native door. Who comes to join others' sessions goes by SSH.
    pub(crate) fn may_be_native(self, login: &str) -> bool {
        self != Self::Ssh && login != JOIN_LOGIN
    }
}

/// What a client needs for a node.
pub(crate) fn client(stored: &Stored, node: &str) -> CliResult<NodeClient> {
    let (chain, key) = stored.tls_identity()?;
    NodeClient::new(&stored.trust()?, (&chain, &key), alpn::NATIVE, node).doing("use the stored certificates")
}

/// Whether the far end has greeted as SSH servers do.
pub(crate) fn is_ssh_alone(error: &io::Error) -> bool {
    reason(error) == Some(DoorError::NotSpoken)
}

/// A failed handshake with a node in words, with what to try.
pub(crate) fn explain(node: &str, error: &io::Error) -> CliError {
    if let Some(refused) = refusal(error) {
        return CliError::new(format!("{node} is not who it should be: {refused}"))
            .hint("do not go on before you know why: ask an administrator whether this node was replaced")
            .exit(Exit::Connection);
    }
    if reason(error) == Some(DoorError::Unknown) {
        return CliError::new(format!("{node}: {error}")).hint(LOOK).exit(Exit::Connection);
    }
    let said = chain(error, &error.to_string());
    CliError::new(format!("the connection to {node} failed: {said}"))
        .hint("sallyport status  (is the certificate still valid?); SALLYPORT_FRONT=ssh goes by SSH")
        .exit(Exit::Connection)
}

/// An error that follows something said early, of which the node has not proven what became of it.
pub(crate) fn perhaps_done(error: CliError) -> CliError {
    let said = error.what().to_owned();
    let said = if said.contains(PERHAPS_DONE) { said } else { format!("{said}; {PERHAPS_DONE}") };
    let exit = error.exit_kind();
    CliError::new(said).hint(LOOK).exit(exit)
}

/// What there is to say where SSH was ruled out.
pub(crate) fn only_ssh(node: &str) -> CliError {
    CliError::new(format!("{node} speaks SSH alone, and {VARIABLE} asks for the native door"))
        .hint(format!("{VARIABLE}=auto; or update the node's agent"))
        .exit(Exit::Connection)
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
