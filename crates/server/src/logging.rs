//! The log of a process that runs services.

use std::io::IsTerminal;

use sallyport_ssh::client::PHASE;
use sallyport_telemetry::Telemetry;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{LogConfig, LogFormat};

/// Reads a log filter such as `debug` or `info,sallyport_ssh=debug`. A word alone must be a level: `infoo` would
/// otherwise name a part of a program that does not exist, and nothing at all would be logged.
///
/// # Errors
/// What is wrong with it.
pub fn filter(text: &str) -> Result<EnvFilter, &'static str> {
    for part in text.split(',') {
        if part.is_empty() {
            return Err("is no log filter: a level is missing");
        }
        // A part with = or [ says for itself what it is about.
        let alone = !part.contains(['=', '[', ']', '{', '}', '"']);
        if alone && !part.starts_with("sallyport") && part.parse::<LevelFilter>().is_err() {
            return Err("is no log level or filter");
        }
    }
    text.parse().map(without_phases).map_err(|_| "is no log filter")
}

/// Phases of connections are spans for traces, not for the log; without a collector of traces they are off.
fn without_phases(filter: EnvFilter) -> EnvFilter {
    match format!("{PHASE}=off").parse() {
        Ok(off) => filter.add_directive(off),
        Err(_) => filter,
    }
}

/// Why a log keeps its level.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LevelError {
    #[error("the variable SALLYPORT_LOG says what is logged")]
    ByEnvironment,
    #[error("{level:?} {problem}")]
    NoFilter { level: String, problem: &'static str },
    #[error("the log of this process was set up by another program")]
    NotOurs,
    #[error(transparent)]
    Reload(#[from] reload::Error),
}

/// The level of a log that can be set anew.
pub(crate) struct Level {
    set: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
    /// `SALLYPORT_LOG` says what is logged, whatever the configuration says.
    by_environment: bool,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("by_environment", &self.by_environment).finish_non_exhaustive()
    }
}

impl Level {
    /// Logs by another level from now on.
    ///
    /// # Errors
    /// [`LevelError`] when it stays as it is.
    pub(crate) fn set(&self, level: &str) -> Result<(), LevelError> {
        if self.by_environment {
            return Err(LevelError::ByEnvironment);
        }
        let filter =
            filter(level).map_err(|problem| LevelError::NoFilter { level: level.to_owned(), problem })?;
        Ok((self.set)(filter)?)
    }
}

/// Sends log lines to standard error as configured. The environment variable `SALLYPORT_LOG` wins over the file's
/// level. A process that has set up its own log keeps it, and gets no [`Level`].
pub(crate) fn init(config: &LogConfig, telemetry: Option<&Telemetry>) -> Option<Level> {
    // An empty variable is one that is not set.
    let asked = std::env::var("SALLYPORT_LOG").ok().filter(|asked| !asked.is_empty());
    let (asked, wrong) = match asked.map(|asked| filter(&asked).map_err(|error| (asked, error))) {
        Some(Ok(filter)) => (Some(filter), None),
        Some(Err(wrong)) => (None, Some(wrong)),
        None => (None, None),
    };
    let by_environment = asked.is_some();
    let filter = asked
        .or_else(|| filter(&config.level).ok())
        .unwrap_or_else(|| without_phases(EnvFilter::new("info")));
    // A log on a full disk is no reason to panic, which its complaint on standard error would be.
    let lines = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Only the first to set a log up succeeds, and that is as it should be. A filter for all is cheaper than one of a
    // layer's own.
    let level = |set| Level { set, by_environment };
    let level = match telemetry {
        None => {
            let (filter, handle) = reload::Layer::new(filter);
            let log = tracing_subscriber::registry().with(lines).with(filter);
            log.try_init().ok().map(|()| level(Box::new(move |filter| handle.reload(filter))))
        }
        Some(telemetry) => {
            let (filter, handle) = reload::Layer::new(filter);
            let layers = vec![lines.with_filter(filter).boxed(), telemetry.layer::<Registry>()];
            let log = tracing_subscriber::registry().with(layers);
            log.try_init().ok().map(|()| level(Box::new(move |filter| handle.reload(filter))))
        }
    };
    if let Some((asked, error)) = wrong {
        tracing::warn!(
            SALLYPORT_LOG = asked,
            "SALLYPORT_LOG {error}, so the configuration's level counts; write error, warn, info, debug or trace, or a \
             filter such as info,sallyport_ssh=debug"
        );
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_level_is_no_filter() {
        for good in
            ["info", "DEBUG", "off", "info,sallyport_ssh=debug", "sallyport_server", "warn,hyper=info"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["infoo", "", "info,", "info,debugg", "sallyport=infoo"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
