//! Whether a session goes to an SSH server in few flights: by the pipelined client, or by the one that does everything.

use std::ffi::OsStr;

use sallyport_ssh::node::JOIN_LOGIN;

use crate::error::{CliError, CliResult, Exit};
use crate::front::Front;

/// Whether the pipelined client is used: `auto`, `on` or `off`.
const VARIABLE: &str = "SALLYPORT_PIPELINED";

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flights {
    /// Few, to servers that have no native door.
    Auto,
    /// Few, also where `SALLYPORT_FRONT=ssh` has ruled the native door out.
    Few,
    /// One thing after the other.
    OneByOne,
}

impl Flights {
    /// What the environment asks for.
    pub(super) fn wanted() -> CliResult<Self> {
        Self::of(std::env::var_os(VARIABLE).as_deref())
    }

    fn of(text: Option<&OsStr>) -> CliResult<Self> {
        match text.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("on") => Ok(Self::Few),
            Some("off") => Ok(Self::OneByOne),
            Some(other) => Err(CliError::new(format!("{VARIABLE} is {other:?}"))
                .hint(format!("{VARIABLE}=auto, on or off"))
                .exit(Exit::Usage)),
        }
    }

    /// Whether a connection for one session goes in few flights. Who comes to join others' sessions may ask for several.
    pub(super) fn are_few(self, front: Front, login: &str) -> bool {
        let is_wanted = match self {
            Self::Auto => front != Front::Ssh,
            Self::Few => true,
            Self::OneByOne => false,
        };
        is_wanted && login != JOIN_LOGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_when() {
        let of = |text: &str| Flights::of(Some(OsStr::new(text)));
        assert_eq!(Flights::of(None).unwrap(), Flights::Auto);
        assert_eq!(of("").unwrap(), Flights::Auto);
        assert_eq!(of("auto").unwrap(), Flights::Auto);
        assert_eq!(of("on").unwrap(), Flights::Few);
        assert_eq!(of("off").unwrap(), Flights::OneByOne);
        assert!(of("maybe").unwrap_err().to_string().contains("SALLYPORT_PIPELINED is \"maybe\""));
        assert!(Flights::Auto.are_few(Front::Auto, "root") && !Flights::Auto.are_few(Front::Ssh, "root"));
        assert!(Flights::Few.are_few(Front::Ssh, "root") && !Flights::Few.are_few(Front::Ssh, JOIN_LOGIN));
        assert!(!Flights::OneByOne.are_few(Front::Auto, "root"));
    }
}
