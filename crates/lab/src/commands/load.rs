//! `sallyport lab load`: requests a second and their latencies, by certificate.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sallyport_lab::load::{self, Consent, Server, Settings};
use sallyport_sal::{KeyAlgorithm, Suite};

use super::measuring::{at_least_one, measure};
use super::output::Common;
use sallyport_cli::error::{CliError, CliResult, Context, Exit};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Servers that the lab starts. Default: nginx and own, or nginx with --quick; none when a URL is named.
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    server: Vec<ServerArg>,
    /// A server that runs already: http:// or https://, on loopback. May be given several times.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// Keys of nginx's certificates: rsa-2048, rsa-3072, rsa-4096, ecdsa-p256, ecdsa-p384, ed25519. Default: these, or
    /// rsa-2048, rsa-4096, ecdsa-p256 with --quick.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    key: Vec<String>,
    /// Suites of the clusters whose proxies are measured (own). Default: legacy, balanced-v1; balanced-v1 with --quick.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    suite: Vec<String>,
    /// Whether a connection goes on after a request. Default: both; with --quick `on` for the first key only.
    #[arg(long, value_enum, value_name = "WHICH")]
    keep_alive: Option<KeepAliveArg>,
    /// Measure new connections that resume TLS as well.
    #[arg(long)]
    resume: bool,
    /// Bytes of the page that nginx serves.
    #[arg(long, value_name = "BYTES", default_value_t = 612)]
    page: usize,
    /// Requests a second for latencies by the clock. Default: half of the rate at the saturation point.
    #[arg(long, value_name = "COUNT")]
    rate: Option<f64>,
    /// Most requests at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    most: usize,
    /// Rounds at the saturation point. Default: 7, or 5 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// How long one round at the saturation point counts. Default: 1.5, or 0.8 with --quick.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Longest that one request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    timeout: f64,
    /// After so long it ends by itself, with what there is. Default: 900, or 45 with --quick.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
    /// Let generator and server share all processors, as in the published case, where all cores were busy.
    #[arg(long)]
    no_pin: bool,
    /// Processors of the generator. Default: half of them.
    #[arg(long, value_name = "COUNT", conflicts_with = "no_pin")]
    generator_cores: Option<usize>,
    /// Take any certificate of a named URL.
    #[arg(long)]
    insecure: bool,
    /// Trust the authorities in this PEM file for named URLs, instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Say that a URL which is not on loopback is yours to press; it needs --max-rate as well.
    #[arg(long)]
    i_own_this_server: bool,
    /// Most requests a second to named URLs, whatever is measured.
    #[arg(long, value_name = "COUNT")]
    max_rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ServerArg {
    /// The machine's nginx, with a configuration of the lab's own.
    Nginx,
    /// The proxy of a cluster.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KeepAliveArg {
    /// A new connection for each request.
    Off,
    /// Connections that go on.
    On,
    /// Both.
    Both,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let settings = args.settings()?;
    measure(&args.common, move |program, talk| load::run(program, &settings, talk)).await
}

impl Args {
    fn settings(&self) -> CliResult<Settings> {
        let quick = self.common.quick;
        let base = if quick { Settings::quick() } else { Settings::full() };
        let keys = if self.key.is_empty() {
            base.keys.clone()
        } else {
            self.key.iter().map(|name| key(name)).collect::<CliResult<_>>()?
        };
        let kept = match (self.keep_alive, quick) {
            (None, true) => keys.iter().take(1).copied().collect(),
            _ => keys.clone(),
        };
        let seconds = |value: f64, name: &str| {
            if value.is_finite() && (0.001..=86_400.0).contains(&value) {
                Ok(Duration::from_secs_f64(value))
            } else {
                Err(usage(format!("{name} {value}: expected seconds between 0.001 and 86400")))
            }
        };
        let rate = |value: Option<f64>, name: &str| match value {
            Some(rate) if !(rate.is_finite() && rate >= 0.01) => {
                Err(usage(format!("{name} {rate}: expected requests a second, 0.01 or more")))
            }
            other => Ok(other),
        };
        if let (Some(paced), Some(most)) = (self.rate, self.max_rate)
            && paced > most
        {
            return Err(usage(format!(
                "--rate {paced} is above --max-rate {most}: requests would wait for their turn, and the wait would look \
                 like the server's"
            )));
        }
        if !(1..=4096).contains(&self.most) {
            return Err(usage(format!("--most {}: expected a number from 1 to 4096", self.most)));
        }
        Ok(Settings {
            servers: self.servers(quick)?,
            kept,
            keys,
            kept_plain: !quick || self.keep_alive.is_some(),
            new_connections: self.keep_alive != Some(KeepAliveArg::On),
            keep_alive: self.keep_alive != Some(KeepAliveArg::Off),
            resume: self.resume,
            page_bytes: self.page.min(64 << 20),
            rounds: self.rounds.unwrap_or(base.rounds).min(10_000),
            length: self.seconds.map_or(Ok(base.length), |value| seconds(value, "--seconds"))?,
            rate: rate(self.rate, "--rate")?,
            most: self.most,
            patience: seconds(self.timeout, "--timeout")?,
            budget: self.budget.map_or(Ok(base.budget), |value| seconds(value, "--budget"))?,
            apart: !self.no_pin,
            generator: self.generator_cores,
            insecure: self.insecure,
            authority: self.ca.clone(),
            consent: Consent { owned: self.i_own_this_server, max_rate: rate(self.max_rate, "--max-rate")? },
            csv: self.common.csv.clone(),
            ..base
        })
    }

    fn servers(&self, quick: bool) -> CliResult<Vec<Server>> {
        let suites: Vec<Suite> = if self.suite.is_empty() {
            if quick { vec![Suite::BalancedV1] } else { vec![Suite::Legacy, Suite::BalancedV1] }
        } else {
            let named = self.suite.iter().map(|name| name.parse());
            named.collect::<Result<_, _>>().doing("understand the name of a suite")?
        };
        let started = match (self.server.as_slice(), self.url.is_empty(), quick) {
            ([], false, _) => &[][..],
            ([], true, true) => &[ServerArg::Nginx],
            ([], true, false) => &[ServerArg::Nginx, ServerArg::Own],
            (named, _, _) => named,
        };
        let mut servers = Vec::new();
        if started.contains(&ServerArg::Nginx) {
            servers.push(Server::Nginx);
        }
        if started.contains(&ServerArg::Own) {
            servers.extend(suites.into_iter().map(Server::Own));
        }
        servers.extend(self.url.iter().cloned().map(Server::Url));
        Ok(servers)
    }
}

/// A key that browsers and nginx take.
fn key(name: &str) -> CliResult<KeyAlgorithm> {
    let known = Settings::full().keys;
    known.iter().copied().find(|key| key.name() == name).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|key| key.name()).collect();
        usage(format!("--key {name:?}: nginx is measured with {}", names.join(", ")))
    })
}

fn usage(what: String) -> CliError {
    CliError::new(what).exit(Exit::Usage)
}
