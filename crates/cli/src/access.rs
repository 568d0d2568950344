//! `sallyport access`: questions about who may do what.

use std::process::ExitCode;

use sallyport_wire::v1::ExplainAccessRequest;
use serde_json::json;

use crate::Global;
use crate::connect::{Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Access {
    /// Whether a user may log in to a node, and which rule decides. Exit code 4 when not.
    Why(Why),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    #[arg(long, short)]
    user: String,
    /// The account on the node.
    #[arg(long, short)]
    login: String,
    /// The node's name or id.
    #[arg(long, short)]
    node: String,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) async fn run(global: &Global, command: Access) -> CliResult<ExitCode> {
    let Access::Why(why) = command;
    let authority = Authority::open(global, &why.authority).await?;
    let request = ExplainAccessRequest { user: why.user, login: why.login, node: why.node };
    let answer = authority
        .cluster()
        .explain_access(request)
        .await
        .map_err(|status| CliError::from_status("ask why", &status))?
        .into_inner();
    if why.format == Format::Json {
        ui::json(&json!({
            "allowed": answer.allowed, "summary": answer.summary, "details": answer.details,
        }))?;
    } else {
        ui::data(format!("{}: {}", if answer.allowed { "allowed" } else { "refused" }, answer.summary))?;
        for line in &answer.details {
            ui::data(format!("  {line}"))?;
        }
    }
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(Exit::Refused as u8) })
}
