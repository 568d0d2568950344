//! Whether a session goes to an SSH server in few round trips: by the pipelined client, or by the one that does everything.

use std::ffi::OsStr;

use sallyport_ssh::node::JOIN_LOGIN;

use crate::error::{CliError, CliResult, Exit};
use sallyport_client::native::Protocol;

/// Whether the pipelined client is used: `auto`, `on` or `off`.
const VARIABLE: &str = "SALLYPORT_PIPELINED";

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pipelining {
    /// For servers that do not speak the native protocol.
    Auto,
    /// Also where `SALLYPORT_FRONT=ssh` has ruled the native protocol out.
    On,
    /// One request after the other.
    Off,
}

impl Pipelining {
    /// What the environment asks for.
    pub(super) fn wanted() -> CliResult<Self> {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> CliResult<Self> {
        match text.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("on") => Ok(Self::On),
            Some("off") => Ok(Self::Off),
            Some(other) => Err(CliError::new(format!("{VARIABLE} is {other:?}"))
                .hint(format!("{VARIABLE}=auto, on or off"))
                .exit(Exit::Usage)),
        }
    }

    /// Whether a connection for one session is pipelined. A user who joins others' sessions may ask for several.
    pub(super) fn is_for(self, protocol: Protocol, login: &str) -> bool {
        let is_wanted = match self {
            Self::Auto => protocol != Protocol::Ssh,
            Self::On => true,
            Self::Off => false,
        };
        is_wanted && login != JOIN_LOGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_when() {
        let of = |text: &str| Pipelining::of(Some(OsStr::new(text)));
        assert_eq!(Pipelining::of(None).unwrap(), Pipelining::Auto);
        assert_eq!(of("").unwrap(), Pipelining::Auto);
        assert_eq!(of("auto").unwrap(), Pipelining::Auto);
        assert_eq!(of("on").unwrap(), Pipelining::On);
        assert_eq!(of("off").unwrap(), Pipelining::Off);
        assert!(of("maybe").unwrap_err().to_string().contains("SALLYPORT_PIPELINED is \"maybe\""));
        assert!(
            Pipelining::Auto.is_for(Protocol::Auto, "root")
                && !Pipelining::Auto.is_for(Protocol::Ssh, "root")
        );
        assert!(
            Pipelining::On.is_for(Protocol::Ssh, "root") && !Pipelining::On.is_for(Protocol::Ssh, JOIN_LOGIN)
        );
        assert!(!Pipelining::Off.is_for(Protocol::Auto, "root"));
    }
}
