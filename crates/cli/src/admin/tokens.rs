//! `sallyport admin tokens`.

use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::{CreateTokenRequest, DeleteResourceRequest};
use serde_json::json;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::nodes::parse_labels;
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Tokens {
    /// Make a token. It is shown once and stored only as a hash.
    Add(Add),
    /// List tokens, without their secrets.
    Ls(Ls),
    /// Withdraw a token.
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// What may join with it.
    #[arg(long, alias = "type", value_enum, default_value = "node")]
    role: JoinRole,
    /// How long it can be used: at most 7d.
    #[arg(long, value_parser = ui::parse_duration, default_value = "1h")]
    ttl: Duration,
    /// How many hosts may use it.
    #[arg(long, default_value_t = 1)]
    uses: u32,
    /// Labels that every node or server which joins with it gets, key=value, and cannot change.
    #[arg(long = "label", alias = "labels", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// What a host that joins with it may be called, and reached by: a glob such as 'web-*'. Without, any name that no
    /// other host has.
    #[arg(long = "names", value_name = "GLOB", value_delimiter = ',')]
    names: Vec<String>,
    /// Labels that a node may set itself, key=glob; `none` for none. Without, any; its databases have none.
    #[arg(long = "own-labels", value_name = "KEY=GLOB", value_delimiter = ',')]
    own_labels: Vec<String>,
    /// Databases that a node may serve by its own configuration: a glob of their names. Without, none, or with
    /// --replace those that the replaced host may.
    #[arg(long = "databases", value_name = "GLOB", value_delimiter = ',')]
    databases: Vec<String>,
    /// What else a node may serve by its own configuration: globs of KIND/NAME. Without, nothing, or with --replace what
    /// the replaced host may.
    #[arg(long = "resources", value_name = "GLOB", value_delimiter = ',')]
    resources: Vec<String>,
    /// The host, by name or id, whose name and place the one that joins takes. That one is removed and locked. Without --label,
    /// --own-labels, --databases or --resources, those of its token.
    #[arg(long, value_name = "NAME")]
    replace: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum JoinRole {
    Node,
    Proxy,
    /// A stock OpenSSH server.
    Openssh,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rm {
    /// As `tokens ls` prints it.
    name: String,
}

pub(super) async fn run(authority: &Authority, command: Tokens) -> CliResult {
    match command {
        Tokens::Add(args) => add(authority, args).await,
        Tokens::Ls(args) => super::resources::list(authority, "token", args.format).await,
        Tokens::Rm(args) => {
            let request = DeleteResourceRequest { kind: "token".to_owned(), name: args.name.clone() };
            authority
                .admin()
                .delete_resource(request)
                .await
                .map_err(|status| CliError::from_status("withdraw the token", &status))?;
            ui::data(format!("Withdrew token {}.", args.name))
        }
    }
}

/// What makes a node or proxy out of a token.
fn next_step(role: &str) -> String {
    let further = if role == "proxy" { "auth_server" } else { "proxy_server" };
    format!(
        "Next, on the new {role}: sallyport configure > sallyport.yaml; enable only {role} there, with {role}.{further} \
         and {role}.join: {{token: ..., ca_pin: ...}}; then sallyport start -c sallyport.yaml"
    )
}

async fn add(authority: &Authority, args: Add) -> CliResult {
    let role = match args.role {
        JoinRole::Node => "node",
        JoinRole::Proxy => "proxy",
        JoinRole::Openssh => "openssh",
    };
    let own_labels: Vec<String> = args.own_labels.iter().filter(|label| *label != "none").cloned().collect();
    let request = CreateTokenRequest {
        role: role.to_owned(),
        ttl: Some(convert::duration_to_proto(args.ttl)),
        uses: args.uses,
        labels: parse_labels(&args.labels)?.into_iter().collect(),
        names: args.names,
        own_labels: parse_labels(&own_labels)?.into_iter().collect(),
        own_labels_bounded: !args.own_labels.is_empty(),
        databases: args.databases,
        replace: args.replace.unwrap_or_default(),
        resources: args.resources,
    };
    let token = authority
        .admin()
        .create_token(request)
        .await
        .map_err(|status| CliError::from_status("make a token", &status))?
        .into_inner();
    let expires =
        token.expires.as_ref().and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_default();
    if args.format == Format::Json {
        return ui::json(&json!({ "token": token.token, "ca_pin": token.ca_pin, "expires": expires }));
    }
    ui::data(format!("token   {}", token.token))?;
    ui::data(format!("ca_pin  {}", token.ca_pin))?;
    ui::data(format!("until   {expires}"))?;
    if matches!(args.role, JoinRole::Openssh) {
        ui::say(
            "Next, on the server: sallyport join openssh --proxy HOST:PORT --token TOKEN --ca-pin PIN --address HOST:PORT --apply",
        );
        return Ok(());
    }
    ui::say(next_step(role));
    Ok(())
}
