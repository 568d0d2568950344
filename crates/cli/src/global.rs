//! What every command understands.

use tracing_subscriber::EnvFilter;

use crate::{start, ui};
use sallyport_client::profile::Profiles;

/// What every command understands.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// Where profiles, keys and certificates are kept.
    #[arg(long, global = true, env = "SALLYPORT_HOME", value_name = "DIR", help_heading = "Global options")]
    pub(crate) home: Option<std::path::PathBuf>,
    /// The cluster's address, host:port. Default: that of the last login.
    #[arg(
        long,
        global = true,
        env = "SALLYPORT_PROXY",
        value_name = "HOST:PORT",
        help_heading = "Global options"
    )]
    pub(crate) proxy: Option<String>,
    /// Log what happens, to stderr; as a filter such as "debug" or "sallyport_server=trace".
    #[arg(
        long,
        global = true,
        env = "SALLYPORT_LOG",
        value_name = "FILTER",
        help_heading = "Global options"
    )]
    pub(crate) log: Option<String>,
}

impl Global {
    /// The stored logins, and which of them is meant.
    pub(crate) fn profiles(&self) -> Profiles {
        Profiles { home: self.home.clone(), proxy: self.proxy.clone() }
    }
}

/// Logs what `--log` asks for.
pub fn log_to_stderr(global: &Global) {
    // An empty variable is one that is not set.
    if let Some(filter) = log_filter(global) {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(|| ui::Log)
            .try_init();
    }
}

/// What `--log` asks for, where that is understood.
pub(crate) fn log_filter(global: &Global) -> Option<EnvFilter> {
    let asked = global.log.as_deref().filter(|asked| !asked.is_empty())?;
    start::log_filter(asked)
        .map_err(|error| {
            ui::say(format!(
                "note: {asked:?} {error}, so nothing is logged; SALLYPORT_LOG and --log take error, warn, info, debug or \
                 trace, or a filter such as info,sallyport_ssh=debug"
            ));
        })
        .ok()
}
