//! Which front door of a node `sallyport ssh` and `scp` go to: the native one, which takes fewer round trips, or SSH,
//! which every node has.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::refusal;
use sallyport_ssh::door::{DoorError, DoorStream, reason};
use sallyport_ssh::node::JOIN_LOGIN;
use sallyport_wire::alpn;
use time::OffsetDateTime;
use tokio_util::either::Either;
use tracing::{Instrument, debug, info_span};

use crate::connect;
use crate::error::{CliError, CliResult, Context, Exit, chain};
use crate::follow::Channel;
use crate::met;
use crate::profile::Stored;
use crate::resident::{self, HelperStream, Offered};
use crate::trace::PHASE;
use crate::transport::{self, Ending, NodeStream};

/// Which door to go to: `auto`, `native` or `ssh`.
const VARIABLE: &str = "SALLYPORT_FRONT";

/// What may be so when something was said early and not answered,
const PERHAPS_DONE: &str = "what was asked may have been done";
/// and what to do then.
const LOOK: &str = "look whether it was done before you do it again";

/// How long a node that knew SSH alone is taken to know no more.
pub(crate) const SSH_ALONE: Duration = Duration::from_secs(10 * 60);

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// The native one, and SSH where a node has no other.
    Auto,
    Native,
    Ssh,
}

impl Front {
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

/// A stream to a node's native front door, proven in both directions.
pub(crate) type NativeStream = Either<HelperStream, DoorStream<NodeStream>>;

/// What came of asking for the native door.
pub(crate) enum Asked {
    Native(Box<NativeStream>, Ending),
    /// The node knows SSH alone. The connection to the proxy, where this program made one.
    SshAlone(Option<Channel>),
}

/// What a client needs for a node.
pub(crate) fn client(stored: &Stored, node: &str) -> CliResult<NodeClient> {
    let (chain, key) = stored.tls_identity()?;
    NodeClient::new(&stored.trust()?, (&chain, &key), alpn::NATIVE, node).doing("use the stored certificates")
}

/// Connects to the native door of a node: through the resident helper where there is one, else alone.
pub(crate) async fn ask(stored: &Stored, node: &str, login: &str) -> CliResult<Asked> {
    match resident::open_native(stored, node, login).await? {
        // The helper remembers it, and what it was before.
        Offered::Native(stream, ending) => return Ok(Asked::Native(Box::new(Either::Left(stream)), ending)),
        Offered::SshAlone => return Ok(Asked::SshAlone(None)),
        Offered::Nothing => {}
    }
    let channel = connect::proxy(stored).await?;
    let client = client(stored, node)?;
    let (stream, ending) = transport::open_native(channel.clone(), &Arc::new(stored.clone()), node, login);
    let mut stream = DoorStream::connect(stream, &client, OffsetDateTime::now_utc()).doing("set up TLS")?;
    match stream.handshake().instrument(info_span!(target: PHASE, "native.handshake")).await {
        Ok(()) => {
            met::natively(stored, node);
            Ok(Asked::Native(Box::new(Either::Right(stream)), ending))
        }
        // An SSH server may be gone before its greeting arrives, because it has not understood what came.
        Err(error)
            if is_ssh_alone(&error)
                || ending.is_unimplemented()
                || (ending.was_reached() && stream.is_unheard()) =>
        {
            debug!(node, "the node knows SSH alone");
            met::by_ssh(stored, node)?;
            Ok(Asked::SshAlone(Some(channel)))
        }
        // When the proxy ended the stream, its words are the cause and TLS's only the effect.
        Err(error) => Err(ending.error(node, login).unwrap_or_else(|| explain(node, &error))),
    }
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
        let of = |text: &str| Front::of(Some(OsStr::new(text)));
        assert_eq!(Front::of(None).unwrap(), Front::Auto);
        assert_eq!(of("").unwrap(), Front::Auto);
        assert_eq!(of("auto").unwrap(), Front::Auto);
        assert_eq!(of("native").unwrap(), Front::Native);
        assert_eq!(of("ssh").unwrap(), Front::Ssh);
        assert!(of("telnet").unwrap_err().to_string().contains("SALLYPORT_FRONT is \"telnet\""));
        assert!(Front::Auto.may_be_native("root") && !Front::Auto.may_be_native(JOIN_LOGIN));
        assert!(!Front::Ssh.may_be_native("root"));
    }
}
