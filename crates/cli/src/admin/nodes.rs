//! `sallyport admin nodes add`.

use std::path::PathBuf;

use sallyport_wire::v1::CreateResourceRequest;
use serde_json::json;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::nodes::parse_labels;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// What people call the server.
    name: String,
    /// Where its sshd listens, as the proxy or the gateway reaches it; port 22 unless said otherwise.
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Labels, key=value: roles select by them.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// The node whose agent reaches it. Default: proxies connect to it themselves.
    #[arg(long, value_name = "NODE")]
    via: Option<String>,
    /// Its public host key, a file such as ssh_host_ed25519_key.pub: for servers without a certificate of the cluster,
    /// where sessions are recorded at the proxy.
    #[arg(long, value_name = "FILE")]
    host_key: Option<PathBuf>,
    /// Whose certificates its sshd trusts: openssh, or user where it trusts the user CA alone, so that the user's own key
    /// signs when a proxy records there. Default: openssh.
    #[arg(long, value_name = "CA", conflicts_with = "host_key")]
    trust: Option<String>,
}

pub(super) async fn add(authority: &Authority, args: Add) -> CliResult {
    let mut spec = std::collections::BTreeMap::from([("address", args.address.clone())]);
    if let Some(via) = &args.via {
        spec.insert("via", via.clone());
    }
    if let Some(trust) = &args.trust {
        spec.insert("trust", trust.clone());
    }
    if let Some(path) = &args.host_key {
        let line = std::fs::read_to_string(path)
            .map_err(|error| CliError::new(format!("cannot read {}: {error}", path.display())))?;
        spec.insert("host_key", line.trim().to_owned());
    }
    // JSON is YAML.
    let document = json!({
        "kind": "node", "sub_kind": "openssh", "version": "v1",
        "metadata": { "name": args.name, "labels": parse_labels(&args.labels)? },
        "spec": spec,
    });
    let request = CreateResourceRequest { yaml: document.to_string(), replace: false };
    authority
        .admin()
        .create_resource(request)
        .await
        .map_err(|status| CliError::from_status("register the server", &status))?;
    ui::data(format!("Registered {}.", args.name))?;
    ui::say(format!(
        "Next, so that it trusts the cluster's users: sallyport admin tokens add --role openssh, and on the server \
         sallyport join openssh --proxy HOST:PORT --token TOKEN --ca-pin PIN --name {} --apply",
        args.name
    ));
    Ok(())
}
