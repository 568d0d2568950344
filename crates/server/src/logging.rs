//! The log of a process that runs services.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Sends log lines to standard error as configured. The environment variable `SALLYPORT_LOG` wins over the file's
/// level. A process that has set up its own log keeps it.
pub(crate) fn init(config: &LogConfig) {
    let filter = std::env::var("SALLYPORT_LOG")
        .ok()
        .and_then(|filter| filter.parse::<EnvFilter>().ok())
        .or_else(|| config.level.parse::<EnvFilter>().ok())
        .unwrap_or_else(|| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only the first to set a log up succeeds, and that is as it should be.
    let _ = match config.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
