//! `sallyport KIND ls`.

use std::collections::{BTreeMap, HashMap};

use sallyport_access::Kind;
use sallyport_wire::v1::{CatalogueItem, ListCatalogueRequest};
use serde_json::json;

use super::catalog;
use crate::authority::{self, AuthorityArgs};
use crate::error::CliResult;
use crate::global::Global;
use crate::nodes::parse_labels;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those with these labels (key=value; values may have globs), and with these words in name or labels.
    #[arg(value_name = "LABEL|WORD")]
    terms: Vec<String>,
    /// Only those for which this holds, such as 'labels["env"] == "prod"'.
    #[arg(long, value_name = "PREDICATE")]
    query: Option<String>,
    /// What is specified of them, their agents, and what is wrong with what is not healthy.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: ListFormat,
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

pub(super) async fn run(global: &Global, kind: Kind, args: Args) -> CliResult {
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let (labels, words): (Vec<String>, Vec<String>) =
        args.terms.iter().cloned().partition(|term| term.contains('='));
    let request = ListCatalogueRequest {
        kind: kind.row().document.to_owned(),
        labels: parse_labels(&labels)?.into_iter().collect(),
        search: words.join(" "),
        query: args.query.clone().unwrap_or_default(),
        ..ListCatalogueRequest::default()
    };
    let listed = catalog::pages(&authority.catalogue(), kind, request).await?;
    if let Ok(stored) = global.profiles().load() {
        sallyport_client::agents::remember_listed(&stored, &listed);
    }
    match args.format {
        ListFormat::Json => return ui::json(&listed.iter().map(as_json).collect::<Vec<_>>()),
        ListFormat::Names => return listed.iter().try_for_each(|one| ui::data(&one.name)),
        ListFormat::Text => {}
    }
    let row = kind.row();
    let rows = listed.iter().map(|one| {
        let mut cells =
            vec![one.name.clone(), one.health.clone(), pairs(&one.labels), one.description.clone()];
        if args.verbose {
            let problem = ui::shorten(&one.problem, 80);
            cells.extend([pairs(&one.shown), one.agents.join(","), one.origin.clone(), problem]);
        }
        cells
    });
    let mut headings = vec![row.word, "state", "labels", "description"];
    if args.verbose {
        headings.extend(["specified", "agents", "origin", "problem"]);
    }
    ui::table(&headings, rows.collect(), &format!("No {} that you may use matches.", row.word))
}

fn pairs(pairs: &HashMap<String, String>) -> String {
    let sorted: BTreeMap<_, _> = pairs.iter().collect();
    sorted.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn as_json(listed: &CatalogueItem) -> serde_json::Value {
    let labels: BTreeMap<_, _> = listed.labels.iter().collect();
    let shown: BTreeMap<_, _> = listed.shown.iter().collect();
    json!({
        "kind": listed.kind, "name": listed.name, "description": listed.description, "labels": labels,
        "agents": listed.agents, "health": listed.health, "problem": listed.problem, "origin": listed.origin,
        "shown": shown,
    })
}
