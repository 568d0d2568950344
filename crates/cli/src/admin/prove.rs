//! `sallyport admin prove`: an administrator proves a factor, for what is dangerous.

use serde_json::json;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Exit};
use crate::proving::{self, ByFactor, Own};
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    proving: ByFactor,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, args: &Args) -> CliResult {
    if authority.proxy().is_none() {
        return Err(CliError::new(
            "the authority's socket asks for no factor, so that there is nothing to prove with --data-dir",
        )
        .exit(Exit::Usage));
    }
    let until = ui::timestamp(proving::administer(&mut Own::at(authority), &args.proving).await?);
    if args.format == Format::Json {
        return ui::json(&json!({ "until": until }));
    }
    ui::data(format!("Proven: until {until} this login may do what is dangerous, from this address."))
}
