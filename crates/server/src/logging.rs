//! The log of a process that runs services.

use std::io::IsTerminal;

use sallyport_ssh::client::PHASE;
use sallyport_telemetry::Telemetry;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt};

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

/// Phases of connections are spans for traces and no matter of the log; where nobody traces, they are off.
fn without_phases(filter: EnvFilter) -> EnvFilter {
    match format!("{PHASE}=off").parse() {
        Ok(off) => filter.add_directive(off),
        Err(_) => filter,
    }
}

/// Sends log lines to standard error as configured. The environment variable `SALLYPORT_LOG` wins over the file's
/// level. A process that has set up its own log keeps it.
pub(crate) fn init(config: &LogConfig, telemetry: Option<&Telemetry>) {
    // An empty variable is one that is not set.
    let asked = std::env::var("SALLYPORT_LOG").ok().filter(|asked| !asked.is_empty());
    let (asked, wrong) = match asked.map(|asked| filter(&asked).map_err(|error| (asked, error))) {
        Some(Ok(filter)) => (Some(filter), None),
        Some(Err(wrong)) => (None, Some(wrong)),
        None => (None, None),
    };
    let filter = asked
        .or_else(|| filter(&config.level).ok())
        .unwrap_or_else(|| without_phases(EnvFilter::new("info")));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Only the first to set a log up succeeds, and that is as it should be. A filter for all is cheaper than one of a
    // layer's own.
    let _ = match telemetry {
        None => tracing_subscriber::registry().with(lines).with(filter).try_init(),
        Some(telemetry) => {
            let layers = vec![lines.with_filter(filter).boxed(), telemetry.layer::<Registry>()];
            tracing_subscriber::registry().with(layers).try_init()
        }
    };
    if let Some((asked, error)) = wrong {
        tracing::warn!(
            SALLYPORT_LOG = asked,
            "SALLYPORT_LOG {error}, so the configuration's level counts; write error, warn, info, debug or trace, or a \
             filter such as info,sallyport_ssh=debug"
        );
    }
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
