//! The resident helper: one process for each login that holds a warm connection to the proxy for many `ssh`.
//!
//! `sallyport proxy ssh` hands its standard input and output over a socket that only this user can reach, and waits.
//! The helper is started by the first that needs it and leaves when nobody has for a while. It is never needed: whoever
//! cannot use it connects alone, and says the same. It holds the login's keys in memory only, takes up what a new login
//! or a rotation has put in their place, and ends with the login.

mod databases;
mod door;
mod end_to_end;
mod log;
mod native;
mod quick;
mod relay;
mod request;
mod serve;
mod socket;
mod splice;
mod stream;
mod transports;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tracing::warn;
use tracing_subscriber::EnvFilter;

pub(crate) use self::databases::Databases;
pub(crate) use self::quick::proxy_ssh;
pub(crate) use self::socket::is_me;
pub(crate) use self::stream::{HelperStream, Offered, open, open_native};

use self::door::Door;
use self::request::Request;
use self::socket::Place;
use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::profile::{self, Stored};
use crate::proxy_ssh;
use crate::ui::{self, Format};

/// Whether to use a helper, and for how long one stays: `off`, or a duration such as `30m`.
const VARIABLE: &str = "SALLYPORT_CONNECT";
/// A person who is at work comes back within this.
const DEFAULT_IDLE: Duration = Duration::from_secs(10 * 60);

/// What [`VARIABLE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    Off,
    On { idle: Duration },
}

impl Setting {
    fn of(text: Option<&OsStr>) -> Self {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Self::On { idle: DEFAULT_IDLE } };
        match text.to_str() {
            Some("on") => Self::On { idle: DEFAULT_IDLE },
            // Something that is not understood asks for something special; the plain way is always right.
            Some(text) => ui::parse_duration(text).map_or(Self::Off, |idle| Self::On { idle }),
            None => Self::Off,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say whether one runs, and what it does.
    #[arg(long, conflicts_with_all = ["stop", "foreground"])]
    status: bool,
    /// Let it take no more connections, and leave when those it has are over.
    #[arg(long, conflicts_with = "foreground")]
    stop: bool,
    /// Stay in this terminal and log to it, instead of starting in the background.
    #[arg(long)]
    foreground: bool,
    /// How long it stays when nobody needs it.
    #[arg(long, value_parser = ui::parse_duration, default_value = "10m")]
    idle: Duration,
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Started by another sallyport.
    #[arg(long, hide = true)]
    serve: bool,
}

impl Args {
    /// Whether this process is to become the helper.
    pub(crate) fn becomes_helper(&self) -> bool {
        self.serve
    }
}

/// Leaves the terminal, the session and the descriptors of whoever started this process. Nothing may be open yet.
pub(crate) fn detach() {
    crate::inherited::close();
    // A session of its own has no terminal, and so no Ctrl-C.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let stored = match &args.cluster {
        Some(cluster) => proxy_ssh::stored(global, Some(cluster))?,
        None => profile::load(global)?,
    };
    let place = Place::of(&stored.directory);
    if args.status || args.stop {
        let request = if args.stop { Request::Stop } else { Request::Status };
        return match socket::ask(&place, &request) {
            Ok(status) => report(&status, args.format, if args.stop { "leaving" } else { "running" }),
            Err(_) if args.format == Format::Json => ui::json(&Value::Null),
            Err(_) => {
                ui::say("No resident helper is running; the next ssh starts one.");
                Ok(())
            }
        };
    }
    let chosen = Global { proxy: Some(stored.profile.proxy.clone()), ..global.clone() };
    if args.serve || args.foreground {
        return become_helper(&chosen, &stored, &place, &args).await;
    }
    let valid = profile::load_valid(&chosen)?;
    let door = Door { directory: &valid.directory, proxy: &valid.profile.proxy, idle: args.idle };
    if place.connect().is_err() && door.start(&place).is_none() {
        return Err(CliError::new("the resident helper did not start")
            .hint(format!("cat {}; or: sallyport connect --foreground", place.log().display())));
    }
    let status = socket::ask(&place, &Request::Status).doing("ask the resident helper")?;
    report(&status, args.format, "running")
}

async fn become_helper(global: &Global, stored: &Stored, place: &Place, args: &Args) -> CliResult {
    if args.serve {
        write_log(place)?;
    }
    let started = || {
        if args.foreground {
            ui::say("The resident helper takes connections. Ctrl-C ends it.");
        } else {
            let mut said = std::io::stdout();
            let _ = said.write_all(b".").and_then(|()| said.flush());
            leave_stdout();
        }
    };
    let directory = stored.directory.clone();
    let outcome = serve::run(global, directory, stored.profile.proxy.clone(), args.idle, started).await;
    if let Err(error) = &outcome {
        warn!("{error}");
    }
    outcome
}

/// Whoever waits for this process's output shall see its end.
fn leave_stdout() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

/// Logs to the bounded file. Names of nodes and logins are in it, and never a key.
fn write_log(place: &Place) -> CliResult {
    place.create().doing("make the helper's directory")?;
    let log = log::Bounded::open(&place.log()).doing(format!("write {}", place.log().display()))?;
    let filter = std::env::var("SALLYPORT_LOG").unwrap_or_else(|_| "warn,sallyport=info".to_owned());
    let log: &'static log::Bounded = Box::leak(Box::new(log));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(move || log)
        .try_init();
    Ok(())
}

fn report(status: &str, format: Format, state: &str) -> CliResult {
    let status: Value = serde_json::from_str(status).doing("understand the resident helper")?;
    if format == Format::Json {
        return ui::json(&status);
    }
    let text = |key: &str| status.get(key).map(ToString::to_string).unwrap_or_default();
    let idle = status.get("idle_seconds").and_then(Value::as_i64).unwrap_or_default();
    ui::data(format!("The resident helper for {} is {state}.", text("proxy").trim_matches('"')))?;
    ui::data(format!("  process      {} (version {})", text("pid"), text("version").trim_matches('"')))?;
    ui::data(format!("  since        {}", text("since").trim_matches('"')))?;
    ui::data(format!("  connections  {} open, {} so far", text("streams"), text("served")))?;
    ui::data(format!("  to the proxy {} open, {} so far", text("transports"), text("transports_made")))?;
    ui::data(format!("  leaves after {} without use", ui::duration(time::Duration::seconds(idle))))
}

/// How the helper of a profile stands, where one runs.
pub(crate) fn standing(profile: &Path) -> Option<Value> {
    let said = socket::ask(&Place::of(profile), &Request::Status).ok()?;
    serde_json::from_str(&said).ok()
}

/// Tells the helper of a profile that its login is forgotten.
pub(crate) fn forget(profile: &Path) {
    let _ = socket::ask(&Place::of(profile), &Request::Stop);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_switches_and_sets_the_time() {
        let of = |text: &str| Setting::of(Some(OsStr::new(text)));
        assert_eq!(Setting::of(None), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of(""), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of("on"), Setting::On { idle: DEFAULT_IDLE });
        assert_eq!(of("30m"), Setting::On { idle: Duration::from_secs(1800) });
        for off in ["off", "no", "0"] {
            assert_eq!(of(off), Setting::Off, "{off}");
        }
    }
}
