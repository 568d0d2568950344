//! `sallyport lab handshake`.

use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

use clap::ArgAction;
use sallyport_lab::handshake::{self, Transport};
use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::KexGroup;

use super::measuring::{at_least_one, budget, measure};
use super::output::Common;
use sallyport_cli::error::{CliError, CliResult};

/// In place of a list: nothing of it.
const NONE: &str = "none";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Every combination of key, group, chain, resumption and client certificate, where one thing varies at a time
    /// otherwise. Over a thousand; hours without --quick.
    #[arg(long)]
    full: bool,
    /// Types of keys; the first is held while something else varies. Default: all, RSA from 1024 to 8192 bits.
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    key: Vec<KeyAlgorithm>,
    /// Key exchange groups of TLS, likewise. Default: all.
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',')]
    group: Vec<KexGroup>,
    /// Numbers of certificates that a server of TLS sends, likewise. Default: 2,1,3.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',')]
    chain: Vec<usize>,
    /// Versions of TLS, or `none`. Default: 1.3,1.2.
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',')]
    tls: Vec<String>,
    /// Key exchanges of SSH, or `none`. Default: mlkem768x25519-sha256,curve25519-sha256,ecdh-sha2-nistp256.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    ssh: Vec<String>,
    /// Also handshakes of TLS that resume an earlier one.
    #[arg(long, value_name = "YES", default_value_t = true, action = ArgAction::Set)]
    resumed: bool,
    /// Also handshakes of TLS in which the client has a certificate, and users of SSH with other keys.
    #[arg(long, value_name = "YES", default_value_t = true, action = ArgAction::Set)]
    client_certificate: bool,
    /// How bytes travel. Default: memory,loopback.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    transport: Vec<Transport>,
    /// Samples of each. Default: 61, or 21 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    rounds: Option<usize>,
    /// After so long no more samples are taken. Default: 1200, or 26 with --quick; none when --rounds or --full is given.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let defaults = if args.common.quick { handshake::Settings::quick() } else { handshake::Settings::full() };
    let settings = handshake::Settings {
        keys: or(args.key, defaults.keys),
        groups: or(args.group, defaults.groups),
        chains: or(args.chain, defaults.chains),
        versions: named(&args.tls, defaults.versions)?,
        exchanges: named(&args.ssh, defaults.exchanges)?,
        transports: or(args.transport, defaults.transports),
        resumed: args.resumed,
        client_certificate: args.client_certificate,
        cross: args.full,
        rounds: args.rounds.unwrap_or(defaults.rounds).min(100_000),
        batch: defaults.batch,
        budget: budget(args.budget, args.rounds.or(args.full.then_some(1)), defaults.budget)?,
        csv: args.common.csv.clone(),
    };
    measure(&args.common, move |_, talk| handshake::run(&settings, talk)).await
}

fn or<T>(given: Vec<T>, default: Vec<T>) -> Vec<T> {
    if given.is_empty() { default } else { given }
}

/// What the names mean; nothing for `none`.
fn named<T: FromStr<Err: Display>>(names: &[String], default: Vec<T>) -> CliResult<Vec<T>> {
    if names.is_empty() {
        return Ok(default);
    }
    let names = names.iter().filter(|name| *name != NONE);
    names.map(|name| name.parse().map_err(|error| CliError::new(format!("{error}")))).collect()
}
