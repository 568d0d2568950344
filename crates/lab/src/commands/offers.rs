//! `sallyport lab offers`.

use std::process::ExitCode;
use std::sync::Arc;

use sallyport_bench::Talk;
use sallyport_cli::error::{CliError, CliResult, Context};
use sallyport_cli::ui::{self, Format};
use sallyport_lab::offers;

use super::measuring::measured_program;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Servers to ask. Default: a cluster started for it, its proxy and its node.
    #[arg(value_name = "HOST:PORT")]
    servers: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let program = measured_program()?;
    let asking = tokio::task::spawn_blocking(move || {
        if args.servers.is_empty() {
            let talk = Talk::new(|line| ui::say(line), Arc::default());
            return offers::ours(&program, &talk);
        }
        let mut findings = Vec::new();
        for server in &args.servers {
            findings.extend(offers::judge(server, &offers::ask_address(server)?));
        }
        Ok(findings)
    });
    let findings = asking.await.doing("ask")?.map_err(|error| CliError::new(error.to_string()))?;
    let bad = findings.iter().filter(|finding| finding.level > offers::Level::Info).count();
    if args.format == Format::Json {
        ui::json(&findings)?;
    } else {
        let row = |finding: &offers::Finding| {
            vec![
                finding.face.clone(),
                finding.list.to_owned(),
                finding.item.clone(),
                finding.level.name().to_owned(),
                finding.reason.to_owned(),
            ]
        };
        let headings = ["server", "list", "item", "verdict", "why"];
        ui::table(&headings, findings.iter().map(row).collect(), "nothing is offered")?;
        ui::say(format!("{} items, {bad} findings above informational", findings.len()));
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
