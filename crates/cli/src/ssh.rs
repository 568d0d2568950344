//! `sallyport ssh`: what `ssh` does, with the cluster's certificates and through its one address.

mod alone;
mod background;
mod escape;
mod link;
mod login;
mod options;
mod pipelining;
mod plan;
mod session;
mod several;
pub(crate) mod target;
mod terminal;

use std::process::ExitCode;

use tracing::{Instrument, info_span};

use crate::error::{CliResult, Exit};
use crate::factor;
use crate::global::Global;
use crate::trace;
use alone::alone;
pub(crate) use link::Link;
pub(crate) use login::default_login;
use login::login;
pub(crate) use plan::Args;
use plan::Plan;
use sallyport_client::session_factor::Asking;
use sallyport_client::trace::PHASE;
use sallyport_client::trace::recorder;
pub(crate) use several::targets;

pub(crate) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    let (format, destination) = (args.trace, args.destination().to_owned());
    let outcome = go(global, args).await;
    if let Some(format) = format {
        trace::tell(format, &destination, outcome.as_ref().err()).await;
    }
    // As ssh does: 255 for whatever kept the command from running.
    outcome.map_err(|error| error.exit(Exit::Connection))
}

async fn go(global: &Global, args: Args) -> CliResult<ExitCode> {
    if args.background && !background::is_here() {
        // Understood first, so that a mistake is told once and here.
        Plan::make(&args)?;
        return background::start().await;
    }
    let (plan, target) = Plan::make(&args)?;
    plan.log(global, args.log_file.as_deref())?;
    async {
        let stored = global.profiles().load_valid_of(args.cluster.as_deref())?;
        if target.is_selector() {
            return several::selected(global, &stored, &plan, &target).await;
        }
        let login = login(&stored, &plan, &target)?;
        factor::proven(&stored, &Asking::default(), &[], async || {
            let link = Link::open(&stored, &target.host, &login, &plan).await?;
            let outcome = alone(&link, &plan).await;
            link.connection.disconnect().await;
            outcome
        })
        .await
    }
    .instrument(info_span!(target: PHASE, "ssh", trace.id = recorder::id(), otel.kind = "client"))
    .await
}
