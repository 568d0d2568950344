//! `sallyport admin status`.

use sallyport_wire::convert;
use sallyport_wire::v1::GetStatusRequest;
use serde_json::json;

use crate::connect::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, args: &Args) -> CliResult {
    let status = authority
        .cluster()
        .get_status(GetStatusRequest {})
        .await
        .map_err(|status| CliError::from_status("get the status", &status))?
        .into_inner();
    let valid = |until: &Option<prost_types::Timestamp>| {
        until.as_ref().and_then(convert::time_from_proto).map_or("-".to_owned(), ui::timestamp)
    };
    if args.format == Format::Json {
        let cas: Vec<_> = status
            .cas
            .iter()
            .map(|ca| {
                json!({
                    "kind": ca.kind, "ssh_fingerprint": ca.ssh_fingerprint, "tls_pin": ca.tls_pin,
                    "ssh_algorithm": ca.ssh_algorithm, "tls_algorithm": ca.tls_algorithm,
                    "valid_until": valid(&ca.valid_until),
                })
            })
            .collect();
        return ui::json(&json!({
            "cluster": status.cluster, "version": status.version, "nodes": status.nodes,
            "nodes_online": status.nodes_online, "users": status.users, "roles": status.roles,
            "locks": status.locks, "recordings": status.recordings, "audit_events": status.audit_events,
            "audit_head": status.audit_head, "cas": cas, "time": valid(&status.time),
        }));
    }
    ui::data(format!("cluster     {} (version {})", status.cluster, status.version))?;
    ui::data(format!("nodes       {} online of {}", status.nodes_online, status.nodes))?;
    ui::data(format!("users       {}", status.users))?;
    ui::data(format!("roles       {}", status.roles))?;
    ui::data(format!("locks       {}", status.locks))?;
    ui::data(format!("recordings  {}", status.recordings))?;
    ui::data(format!("audit log   {} events, head {}", status.audit_events, status.audit_head))?;
    for ca in &status.cas {
        ui::data(format!("{} CA", ca.kind))?;
        ui::data(format!("  ssh       {} {}", ca.ssh_algorithm, ca.ssh_fingerprint))?;
        ui::data(format!(
            "  tls       {} {}, until {}",
            ca.tls_algorithm,
            ca.tls_pin,
            valid(&ca.valid_until)
        ))?;
    }
    Ok(())
}
