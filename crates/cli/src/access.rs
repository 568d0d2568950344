//! `sallyport access`: questions about who may do what.

use std::process::ExitCode;

use sallyport_wire::v1::{ExplainAccessRequest, ExplainDatabaseAccessRequest};
use serde_json::json;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Access {
    /// Whether a user may log in to a node or use a database, and which rule decides. Exit code 4 when not.
    #[command(visible_alias = "explain")]
    Why(Why),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    #[arg(long, short)]
    user: String,
    /// The account on the node.
    #[arg(long, short, required_unless_present = "db", requires = "node")]
    login: Option<String>,
    /// The node's name or id.
    #[arg(long, short, required_unless_present = "db", requires = "login")]
    node: Option<String>,
    /// Instead of a node, a database by its name in the cluster.
    #[arg(long, conflicts_with_all = ["login", "node"], requires_all = ["db_user", "db_name"])]
    db: Option<String>,
    /// The user of the database server.
    #[arg(long, requires = "db")]
    db_user: Option<String>,
    /// The database within the server.
    #[arg(long, requires = "db")]
    db_name: Option<String>,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

struct Answer {
    allowed: bool,
    summary: String,
    details: Vec<String>,
}

async fn ask(authority: &Authority, why: Why) -> Result<Answer, tonic::Status> {
    let said = Option::unwrap_or_default;
    if let Some(database) = why.db {
        let (db_user, db_name) = (said(why.db_user), said(why.db_name));
        let request = ExplainDatabaseAccessRequest { user: why.user, database, db_user, db_name };
        let answer = authority.databases().explain_database_access(request).await?.into_inner();
        return Ok(Answer { allowed: answer.allowed, summary: answer.summary, details: answer.details });
    }
    let request = ExplainAccessRequest { user: why.user, login: said(why.login), node: said(why.node) };
    let answer = authority.cluster().explain_access(request).await?.into_inner();
    Ok(Answer { allowed: answer.allowed, summary: answer.summary, details: answer.details })
}

pub(crate) async fn run(global: &Global, command: Access) -> CliResult<ExitCode> {
    let Access::Why(why) = command;
    let authority = authority::open(global, &why.authority).await?;
    let format = why.format;
    let answer = ask(&authority, why).await.map_err(|status| CliError::from_status("ask why", &status))?;
    if format == Format::Json {
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
