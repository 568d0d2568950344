//! `sallyport access`: questions about who may do what.

use std::process::ExitCode;

use clap::ArgGroup;
use sallyport_wire::v1::{ExplainAccessRequest, ExplainCatalogueAccessRequest, ExplainDatabaseAccessRequest};
use serde_json::json;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::resource::Named;
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Access {
    /// Whether a user may log in to a node, or use a database or another resource, and which rule decides. Exit code 4 when not.
    #[command(visible_alias = "explain")]
    Why(Why),
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("resource").args(["node", "db"].into_iter().chain(Named::switches())).required(true))]
pub(crate) struct Why {
    #[arg(long, short)]
    user: String,
    /// The account on the node.
    // A switch that needs another does not ask for it where that one may not stand; so what may not stand together is said here.
    #[arg(long, short, requires = "node", conflicts_with = "db", conflicts_with_all = Named::switches())]
    login: Option<String>,
    /// The node's name or id.
    #[arg(long, short, requires = "login")]
    node: Option<String>,
    /// Instead of a node, a database by its name in the cluster.
    #[arg(long, requires_all = ["db_user", "db_name"])]
    db: Option<String>,
    /// The user of the database server.
    #[arg(long, requires = "db", conflicts_with = "node", conflicts_with_all = Named::switches())]
    db_user: Option<String>,
    /// The database within the server.
    #[arg(long, requires = "db", conflicts_with = "node", conflicts_with_all = Named::switches())]
    db_name: Option<String>,
    #[command(flatten)]
    named: Named,
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
    if let Named(Some((kind, name))) = why.named {
        let kind = kind.row().document.to_owned();
        let request = ExplainCatalogueAccessRequest { user: why.user, kind, name };
        let answer = authority.catalogue().explain_access(request).await?.into_inner();
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sallyport_access::Kind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        why: Why,
    }

    fn parse(line: &str) -> Result<Why, clap::Error> {
        Line::try_parse_from(format!("why --user alice {line}").split_whitespace()).map(|line| line.why)
    }

    #[test]
    fn one_resource_is_asked_about_with_all_that_its_kind_needs() {
        let Named(named) = parse("--app wiki").unwrap().named;
        assert_eq!(named, Some((Kind::App, "wiki".to_owned())));
        let why = parse("--login root --node web-1").unwrap();
        assert!(why.named.0.is_none() && why.node.as_deref() == Some("web-1"));
        assert!(parse("--db prod --db-user app --db-name shop").unwrap().named.0.is_none());
        for wrong in [
            "",
            "--login root",
            "--node web-1",
            "--db prod",
            "--db-user app --db-name shop",
            "--app wiki --login root",
            "--app wiki --login root --node web-1",
            "--app wiki --db prod --db-user app --db-name shop",
            "--app wiki --db-user app",
            "--db prod --db-user app --db-name shop --login root",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    /// A kind that the catalogue keeps has a switch of its own.
    #[test]
    fn every_kind_of_the_catalogue_has_a_switch() {
        for kind in Kind::listed() {
            let Named(named) = parse(&format!("--{} one", kind.row().document)).unwrap().named;
            assert_eq!(named, Some((kind, "one".to_owned())));
        }
    }
}
