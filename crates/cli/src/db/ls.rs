//! `sallyport db ls`.

use sallyport_wire::v1::{DatabaseInfo, ListDatabasesRequest};
use serde_json::json;

use super::catalog::{Client, pages};
use super::choice;
use crate::authority::{self, AuthorityArgs};
use crate::error::CliResult;
use crate::global::Global;
use crate::nodes::parse_labels;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Addresses, agents, roles, how users are made, and what is wrong with what is not healthy.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: ListFormat,
}

/// What to list.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Wanted {
    /// Only databases with these labels (key=value; values may have globs), and with these words in name or labels.
    #[arg(value_name = "LABEL|WORD")]
    terms: Vec<String>,
    /// Only databases with these words in their name or labels.
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// Only databases for which this holds, such as 'labels["env"] == "prod"'.
    #[arg(long, value_name = "PREDICATE")]
    query: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ListFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For loops: one name a line.
    Names,
}

pub(super) async fn run(global: &Global, args: Args) -> CliResult {
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let databases = fetch(&authority.databases(), &args.wanted).await?;
    match args.format {
        ListFormat::Json => {
            return ui::json(&databases.iter().map(as_json).collect::<Vec<_>>());
        }
        ListFormat::Names => return databases.iter().try_for_each(|database| ui::data(&database.name)),
        ListFormat::Text => {}
    }
    let chosen = global.profiles().load().map(|stored| choice::all(&stored)).unwrap_or_default();
    let rows = databases
        .iter()
        .map(|database| {
            let chosen = chosen.iter().find(|choice| choice.database == database.name);
            let mut row = vec![
                database.name.clone(),
                database.health.clone(),
                any(&database.users),
                any(&database.names),
                labels(database),
                chosen.map(|choice| format!("{}@{}", choice.db_user, choice.db_name)).unwrap_or_default(),
            ];
            if args.verbose {
                row.extend([
                    format!("{} {}", database.protocol, database.address),
                    database.agents.join(","),
                    database.roles.join(","),
                    database.user_mode.clone(),
                    database.origin.clone(),
                    crate::ui::shorten(&database.problem, 80),
                ]);
            }
            row
        })
        .collect();
    let mut headings = vec!["database", "state", "users", "names", "labels", "logged in"];
    if args.verbose {
        headings.extend(["address", "agents", "roles", "users are made", "origin", "problem"]);
    }
    ui::table(&headings, rows, "No database that you may use matches.")
}

/// Every matching database, page by page, sorted by name.
async fn fetch(client: &Client, wanted: &Wanted) -> CliResult<Vec<DatabaseInfo>> {
    let (labels, mut words): (Vec<String>, Vec<String>) =
        wanted.terms.iter().cloned().partition(|term| term.contains('='));
    words.extend(wanted.search.clone());
    let request = ListDatabasesRequest {
        labels: parse_labels(&labels)?.into_iter().collect(),
        search: words.join(" "),
        query: wanted.query.clone().unwrap_or_default(),
        ..ListDatabasesRequest::default()
    };
    let mut databases = pages(client, request).await?;
    databases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(databases)
}

fn any(allowed: &[String]) -> String {
    if allowed.iter().any(|one| one == "*") { "(any)".to_owned() } else { allowed.join(",") }
}

fn labels(database: &DatabaseInfo) -> String {
    let mut labels: Vec<String> =
        database.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.sort();
    labels.join(",")
}

fn as_json(database: &DatabaseInfo) -> serde_json::Value {
    let labels: std::collections::BTreeMap<_, _> = database.labels.iter().collect();
    json!({
        "name": database.name, "labels": labels, "protocol": database.protocol, "address": database.address,
        "agents": database.agents, "health": database.health, "problem": database.problem,
        "users": database.users, "names": database.names, "roles": database.roles,
        "user_mode": database.user_mode, "origin": database.origin,
    })
}
