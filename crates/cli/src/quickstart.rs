//! `sallyport quickstart`: the whole of the main job on this machine, on real parts, in one go.

mod database;
mod http;
mod provider;
mod sso;
mod state;
mod steps;
mod tour;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::CliResult;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the cluster and the client profile live.
    #[arg(long, value_name = "DIR", default_value = "./.sallyport")]
    dir: PathBuf,
    /// The cluster's one address. Default: that of the last time, else 127.0.0.1:3080.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Exit after the tour instead of keeping the cluster up.
    #[arg(long)]
    once: bool,
    /// Show databases as well, with a PostgreSQL of the tour's own, from the programs on this machine; it is gone when the
    /// tour ends.
    #[arg(long)]
    with_postgres: bool,
    /// Show single sign-on as well, with an identity provider of the tour's own: for the demonstration alone, on this machine, and gone
    /// when the tour ends.
    #[arg(long)]
    with_sso: bool,
    /// Take all cryptography from the FIPS module, in a new directory or one that was made like that. It needs a build with
    /// the module (docs/fips.md).
    #[arg(long)]
    fips: bool,
}

impl Args {
    /// Whether the cluster is one in FIPS mode: so it is asked for now, or was when the directory was made.
    pub(crate) fn wants_fips(&self) -> bool {
        self.fips || state::is_in_fips_mode(&self.dir)
    }
}

pub(crate) async fn run(args: Args) -> CliResult {
    let (directory, state) = state::open(&args.dir, args.listen)?;
    let with = steps::With { postgres: args.with_postgres, sso: args.with_sso };
    steps::run(directory, state, args.once, with).await
}
