//! Which sources of cryptography each command needs.

use sallyport_sal::selection::Mode;
use sallyport_sal::{Policy, provider};

use crate::command::Command;
use crate::crypto::{apply, configure_with};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::sal::Sal;

/// Sets the sources of this process. It must come before anything used cryptography.
pub(crate) fn configure(global: &Global, command: &Command) -> CliResult {
    match command {
        // These set up their own, or measure all there is: a bad setting must not keep an administrator from a good one.
        Command::Start(_)
        | Command::Configure(_)
        | Command::Lab(_)
        | Command::Sal(Sal::Tune(_) | Sal::Speed(_)) => {
            return Ok(());
        }
        _ => {}
    }
    // The report shows the choice of processes that stay; the quickstart is one.
    let quick_start = !matches!(command, Command::Sal(_) | Command::Quickstart(_));
    if let Command::Quickstart(args) = command
        && args.wants_fips()
    {
        if provider::module().is_none() {
            return Err(CliError::new(
                "this build has no FIPS module, which the quickstart is to take all cryptography from",
            )
            .hint("cargo build --release --features fips  (docs/fips.md says what that needs)")
            .exit(Exit::Usage));
        }
        return apply(Policy { mode: Mode::Fips, ..Policy::default() }, false);
    }
    configure_with(global, quick_start, dials(command))
}

/// Whether a command makes a TLS connection.
fn dials(command: &Command) -> bool {
    match command {
        Command::Login(_)
        | Command::Mfa(_)
        | Command::Passwd(_)
        | Command::Device(_)
        | Command::Signup(_)
        | Command::Ls(_)
        | Command::Ssh(_)
        | Command::Scp(_)
        | Command::Proxy(_)
        | Command::Connect(_)
        | Command::Db(_)
        | Command::Resource(_)
        | Command::Play(_)
        | Command::Recordings(_)
        | Command::Sessions(_)
        | Command::Logout(_)
        | Command::Access(_)
        | Command::Join(_)
        | Command::Admin(_) => true,
        Command::Status(_)
        | Command::Config(_)
        | Command::Sal(_)
        | Command::Start(_)
        | Command::Configure(_)
        | Command::Lab(_)
        | Command::Quickstart(_) => false,
    }
}
