//! `sallyport ls`.

use sallyport_access::labels::HOST_PREFIX;
use sallyport_access::query::Query;
use sallyport_wire::convert;
use sallyport_wire::v1::{ListNodesRequest, NodeInfo};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult};
use crate::global::Global;
use crate::nodes::parse_labels;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Ids, versions, the agents' accounts, when each was last seen, and what the host's labels say.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: NodeFormat,
}

/// What to list.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Wanted {
    /// Only nodes with these labels (key=value; values may have globs), and with these words in name, id or labels.
    #[arg(value_name = "LABEL|WORD")]
    pub(crate) terms: Vec<String>,
    /// Only nodes with these words in their name, id or labels.
    #[arg(long, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// Only nodes for which this holds, such as 'labels["env"] == "prod" && name.startsWith("web")'.
    #[arg(long, value_name = "PREDICATE")]
    pub(crate) query: Option<String>,
    /// Hosts of every role, for administrators.
    #[arg(skip)]
    pub(crate) hosts: bool,
}

/// How nodes are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For loops: one name a line, or the id where several nodes in the list have the name.
    Names,
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let nodes = fetch(&authority, &args.wanted).await?;
    print(&nodes, args.verbose, args.format, "No node that you may reach matches.")
}

/// Every matching node, page by page.
pub(crate) async fn fetch(authority: &Authority, wanted: &Wanted) -> CliResult<Vec<NodeInfo>> {
    // Terms with a = are labels, the others words.
    let (labels, mut words): (Vec<String>, Vec<String>) =
        wanted.terms.iter().cloned().partition(|term| term.contains('='));
    words.extend(wanted.search.clone());
    let labels = parse_labels(&labels)?;
    if let Some(query) = &wanted.query {
        // The authority reads it, too. Read here, its mistake is told in this program's own lines.
        Query::parse(query).map_err(|error| CliError::of_lines(error.to_string()))?;
    }
    let mut client = authority.cluster();
    let mut nodes = Vec::new();
    let mut after = String::new();
    loop {
        let request = ListNodesRequest {
            labels: labels.clone().into_iter().collect(),
            search: words.join(" "),
            query: wanted.query.clone().unwrap_or_default(),
            after,
            limit: 0,
            hosts: wanted.hosts,
        };
        let page = client
            .list_nodes(request)
            .await
            .map_err(|status| CliError::from_status("list the nodes", &status))?
            .into_inner();
        nodes.extend(page.nodes);
        if page.next.is_empty() {
            return Ok(nodes);
        }
        after = page.next;
    }
}

/// Prints nodes, sorted by name.
pub(crate) fn print(nodes: &[NodeInfo], verbose: bool, format: NodeFormat, none: &str) -> CliResult {
    let mut nodes: Vec<&NodeInfo> = nodes.iter().collect();
    nodes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    match format {
        NodeFormat::Json => {
            let nodes: Vec<_> = nodes.iter().map(|node| node_json(node)).collect();
            return ui::json(&nodes);
        }
        NodeFormat::Names => return print_names(&nodes),
        NodeFormat::Text => {}
    }
    let now = OffsetDateTime::now_utc();
    let rows = nodes
        .into_iter()
        .map(|node| {
            // What every node has is noise in a short list.
            let shown = node.labels.iter().filter(|(key, _)| verbose || !key.starts_with(HOST_PREFIX));
            let mut labels: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
            labels.sort();
            // No service asks a registered server whether it is there before a user goes there.
            let state = match (node.kind.as_str(), node.online) {
                ("openssh", _) => "registered",
                (_, true) => "online",
                (_, false) => "offline",
            };
            let mut row = vec![node.name.clone(), state.to_owned(), node.logins.join(","), labels.join(",")];
            if verbose {
                let seen = node.last_seen.as_ref().and_then(convert::time_from_proto);
                let seen =
                    seen.map_or("never".to_owned(), |seen| format!("{} ago", ui::duration(now - seen)));
                let way = match (node.address.as_str(), node.via.as_str()) {
                    ("", _) => String::new(),
                    (address, "") => address.to_owned(),
                    (address, via) => format!("{address} via {via}"),
                };
                let (id, version, account) = (node.id.clone(), node.version.clone(), node.os_user.clone());
                row.extend([id, version, account, seen, node.kind.clone(), way]);
            }
            row
        })
        .collect();
    let mut headings = vec!["node", "state", "logins", "labels"];
    if verbose {
        headings.extend(["id", "version", "runs as", "last seen", "kind", "address"]);
    }
    ui::table(&headings, rows, none)
}

/// `nodes` are sorted by name.
fn print_names(nodes: &[&NodeInfo]) -> CliResult {
    for several in nodes.chunk_by(|a, b| a.name == b.name) {
        for node in several {
            ui::data(if several.len() == 1 { &node.name } else { &node.id })?;
        }
    }
    Ok(())
}

fn node_json(node: &NodeInfo) -> serde_json::Value {
    let labels: std::collections::BTreeMap<_, _> = node.labels.iter().collect();
    json!({
        "id": node.id, "name": node.name, "labels": labels, "online": node.online,
        "last_seen": node.last_seen.as_ref().and_then(convert::time_from_proto).map(ui::timestamp),
        "version": node.version, "os_user": node.os_user, "logins": node.logins,
        "kind": node.kind, "address": node.address, "via": node.via, "trust": node.trust,
    })
}
