//! `sallyport connect`: the helper daemon by hand, and what becomes one.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;
use tracing::warn;

use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::ui::{self, Format};
use sallyport_client::profile::Stored;
use sallyport_helper::endpoint::Endpoint;
use sallyport_helper::{control, log, serve};

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
    /// How long it stays when no program needs it.
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

/// Leaves the terminal, the session and the descriptors of the program that started this process. Nothing may be open yet.
pub(crate) fn detach() {
    crate::inherited::close();
    // A session of its own has no terminal, and so no Ctrl-C.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let stored = match &args.cluster {
        Some(cluster) => global.profiles().load_valid_of(Some(cluster))?,
        None => global.profiles().load()?,
    };
    let directory = &stored.directory;
    if args.status || args.stop {
        let told = if args.stop { control::stop(directory) } else { control::status(directory) };
        return match told {
            Ok(status) => report(&status, args.format, if args.stop { "leaving" } else { "running" }),
            Err(_) if args.format == Format::Json => ui::json(&Value::Null),
            Err(_) => {
                ui::say("No helper daemon is running; the next ssh starts one.");
                Ok(())
            }
        };
    }
    if args.serve || args.foreground {
        return become_helper(global, &stored, &args).await;
    }
    let valid = global.profiles().at(&stored.profile.proxy).load_valid()?;
    let endpoint = Endpoint { directory: &valid.directory, proxy: &valid.profile.proxy, idle: args.idle };
    if !endpoint.is_up() {
        return Err(CliError::new("the helper daemon did not start")
            .hint(format!("cat {}; or: sallyport connect --foreground", log::path(directory).display())));
    }
    let status = control::status(directory).doing("ask the helper daemon")?;
    report(&status, args.format, "running")
}

async fn become_helper(global: &Global, stored: &Stored, args: &Args) -> CliResult {
    if args.serve {
        log::start(&stored.directory)?;
    }
    let foreground = args.foreground;
    let started = Box::new(move || {
        if foreground {
            ui::say("The helper daemon takes connections. Ctrl-C ends it.");
        } else {
            let mut said = std::io::stdout();
            let _ = said.write_all(b".").and_then(|()| said.flush());
            leave_stdout();
        }
    });
    let profiles = global.profiles().at(&stored.profile.proxy);
    let (directory, proxy) = (stored.directory.clone(), stored.profile.proxy.clone());
    let outcome = serve::run(&profiles, directory, proxy, args.idle, started).await;
    outcome.map_err(CliError::from).inspect_err(|error| warn!("{error}"))
}

/// The program that waits for this process's output shall see its end.
fn leave_stdout() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

fn report(status: &str, format: Format, state: &str) -> CliResult {
    let status: Value = serde_json::from_str(status).doing("understand the helper daemon")?;
    if format == Format::Json {
        return ui::json(&status);
    }
    let text = |key: &str| status.get(key).map(ToString::to_string).unwrap_or_default();
    let idle = status.get("idle_seconds").and_then(Value::as_i64).unwrap_or_default();
    ui::data(format!("The helper daemon for {} is {state}.", text("proxy").trim_matches('"')))?;
    ui::data(format!("  process      {} (version {})", text("pid"), text("version").trim_matches('"')))?;
    ui::data(format!("  since        {}", text("since").trim_matches('"')))?;
    ui::data(format!("  connections  {} open, {} so far", text("streams"), text("served")))?;
    ui::data(format!("  to the proxy {} open, {} so far", text("transports"), text("transports_made")))?;
    ui::data(format!("  leaves after {} without use", ui::duration(time::Duration::seconds(idle))))
}
