//! `sallyport ls`.

use sallyport_wire::convert;
use sallyport_wire::v1::{ListNodesRequest, NodeInfo};
use serde_json::json;
use time::OffsetDateTime;

use crate::Global;
use crate::connect::{Authority, AuthorityArgs};
use crate::error::{CliError, CliResult};
use crate::nodes::parse_labels;
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only nodes with these labels: key=value, values may have globs.
    labels: Vec<String>,
    /// Only nodes with this in their name.
    #[arg(long)]
    search: Option<String>,
    /// Ids, versions and when each was last seen.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let authority = Authority::open(global, &AuthorityArgs::default()).await?;
    let nodes = fetch(&authority, &args.labels, args.search.as_deref()).await?;
    print(&nodes, args.verbose, args.format, "No node that you may reach matches.")
}

/// Every matching node, page by page.
pub(crate) async fn fetch(
    authority: &Authority,
    labels: &[String],
    search: Option<&str>,
) -> CliResult<Vec<NodeInfo>> {
    let labels = parse_labels(labels)?;
    let mut client = authority.cluster();
    let mut nodes = Vec::new();
    let mut after = String::new();
    loop {
        let request = ListNodesRequest {
            labels: labels.clone().into_iter().collect(),
            search: search.unwrap_or_default().to_owned(),
            after,
            limit: 0,
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
pub(crate) fn print(nodes: &[NodeInfo], verbose: bool, format: Format, none: &str) -> CliResult {
    let mut nodes: Vec<&NodeInfo> = nodes.iter().collect();
    nodes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    if format == Format::Json {
        let nodes: Vec<_> = nodes.iter().map(|node| node_json(node)).collect();
        return ui::json(&nodes);
    }
    let now = OffsetDateTime::now_utc();
    let rows = nodes
        .into_iter()
        .map(|node| {
            let mut labels: Vec<String> =
                node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            labels.sort();
            // Nobody asks a registered server whether it is there before somebody goes there.
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
                row.extend([node.id.clone(), node.version.clone(), seen, node.kind.clone(), way]);
            }
            row
        })
        .collect();
    let mut headings = vec!["node", "state", "logins", "labels"];
    if verbose {
        headings.extend(["id", "version", "last seen", "kind", "address"]);
    }
    ui::table(&headings, rows, none)
}

fn node_json(node: &NodeInfo) -> serde_json::Value {
    let labels: std::collections::BTreeMap<_, _> = node.labels.iter().collect();
    json!({
        "id": node.id, "name": node.name, "labels": labels, "online": node.online,
        "last_seen": node.last_seen.as_ref().and_then(convert::time_from_proto).map(ui::timestamp),
        "version": node.version, "os_user": node.os_user, "logins": node.logins,
        "kind": node.kind, "address": node.address, "via": node.via,
    })
}
