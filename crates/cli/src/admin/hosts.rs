//! `sallyport admin hosts`: every host that has joined, whatever its role.

use sallyport_wire::convert;
use sallyport_wire::v1::{DeleteResourceRequest, NodeInfo};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::ls::Wanted;
use crate::ui;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Hosts {
    /// List them, with their ids and when they were last seen.
    Ls {
        #[arg(long, value_enum, default_value = "text")]
        format: ui::Format,
    },
    /// Remove one: its certificates are refused everywhere from then on, and it joins again only with a new token.
    Rm {
        /// Its id, or its name where no other host has it.
        host: String,
    },
}

pub(super) async fn run(authority: &Authority, command: Hosts) -> CliResult {
    match command {
        Hosts::Ls { format } => {
            let wanted = Wanted { hosts: true, ..Wanted::default() };
            let mut hosts = crate::ls::fetch(authority, &wanted).await?;
            hosts.sort_by(|a, b| (role(a), &a.name, &a.id).cmp(&(role(b), &b.name, &b.id)));
            ls(&hosts, format)
        }
        Hosts::Rm { host } => {
            let request = DeleteResourceRequest { kind: "node".to_owned(), name: host.clone() };
            let removed = authority.admin().delete_resource(request).await;
            removed.map_err(|status| CliError::from_status("remove the host", &status))?;
            ui::data(format!(
                "Removed {host}. What it still has is locked until its last certificate has ended."
            ))
        }
    }
}

/// What people call a host's role.
fn role(host: &NodeInfo) -> &str {
    match host.kind.as_str() {
        "sallyport" => "node",
        other => other,
    }
}

fn ls(hosts: &[NodeInfo], format: ui::Format) -> CliResult {
    let now = OffsetDateTime::now_utc();
    let seen = |host: &NodeInfo| host.last_seen.as_ref().and_then(convert::time_from_proto);
    if format == ui::Format::Json {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|host| {
                json!({
                    "id": host.id, "role": role(host), "name": host.name, "online": host.online,
                    "last_seen": seen(host).map(ui::timestamp), "address": host.address, "via": host.via,
                })
            })
            .collect();
        return ui::json(&hosts);
    }
    let rows = hosts
        .iter()
        .map(|host| {
            let last =
                seen(host).map_or("never".to_owned(), |seen| format!("{} ago", ui::duration(now - seen)));
            let state = match (host.kind.as_str(), host.online) {
                ("openssh", _) => "registered",
                (_, true) => "online",
                (_, false) => "offline",
            };
            let words = [host.id.as_str(), role(host), &host.name, state, &last, &host.address];
            words.map(str::to_owned).to_vec()
        })
        .collect();
    ui::table(&["id", "role", "name", "state", "last seen", "address"], rows, "No host has joined yet.")
}
