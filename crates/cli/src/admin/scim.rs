//! `sallyport admin scim`.

use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::{AddScimTokenRequest, ListScimTokensRequest, RemoveScimTokenRequest};
use serde_json::json;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Scim {
    /// Bearer tokens of SCIM clients.
    #[command(subcommand)]
    Token(Token),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Token {
    /// Make a token for the SCIM client of a connector. It is shown once and stored only as a hash.
    Add(Add),
    /// List the tokens, without their secrets.
    Ls(Ls),
    /// End a token at once.
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// The connector of single sign-on whose users the client provisions.
    connector: String,
    /// How long it is good: 1m to 366d.
    #[arg(long, value_parser = ui::parse_duration, default_value = "180d")]
    ttl: Duration,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rm {
    /// The connector.
    connector: String,
    /// As `scim token ls` prints it.
    name: String,
}

pub(super) async fn run(authority: &Authority, command: Scim) -> CliResult {
    match command {
        Scim::Token(Token::Add(args)) => add(authority, args).await,
        Scim::Token(Token::Ls(args)) => ls(authority, args.format).await,
        Scim::Token(Token::Rm(args)) => {
            let Rm { connector, name } = args;
            let request = RemoveScimTokenRequest { connector: connector.clone(), name: name.clone() };
            let removed = authority.provisioning().remove_scim_token(request).await;
            removed.map_err(|status| CliError::from_status("end the token", &status))?;
            ui::data(format!("Ended token {name} of the connector {connector}."))
        }
    }
}

async fn add(authority: &Authority, args: Add) -> CliResult {
    let ttl = Some(convert::duration_to_proto(args.ttl));
    let request = AddScimTokenRequest { connector: args.connector.clone(), ttl };
    let made = authority.provisioning().add_scim_token(request).await;
    let made = made.map_err(|status| CliError::from_status("make a token", &status))?.into_inner();
    let expires = shown(made.expires.as_ref());
    if args.format == Format::Json {
        return ui::json(
            &json!({ "token": made.token, "name": made.name, "expires": expires, "url": made.url }),
        );
    }
    ui::data(format!("url    {}", made.url))?;
    ui::data(format!("token  {}", made.token))?;
    ui::data(format!("until  {expires}"))?;
    ui::say(format!(
        "Next, at the provider: set url and token of its SCIM provisioning. From now on only users that it has made, and that are active, \
         log in by the connector {}.",
        args.connector
    ));
    Ok(())
}

async fn ls(authority: &Authority, format: Format) -> CliResult {
    let listed = authority.provisioning().list_scim_tokens(ListScimTokensRequest {}).await;
    let listed = listed.map_err(|status| CliError::from_status("list the tokens", &status))?.into_inner();
    if format == Format::Json {
        let tokens = listed.tokens.iter().map(|token| {
            json!({
                "connector": token.connector,
                "name": token.name,
                "created": shown(token.created.as_ref()),
                "expires": shown(token.expires.as_ref()),
            })
        });
        return ui::json(&json!(tokens.collect::<Vec<_>>()));
    }
    let rows = listed.tokens.into_iter().map(|token| {
        let (created, expires) = (shown(token.created.as_ref()), shown(token.expires.as_ref()));
        vec![token.connector, token.name, created, expires]
    });
    ui::table(
        &["CONNECTOR", "NAME", "CREATED", "EXPIRES"],
        rows.collect(),
        "No SCIM client has a token: sallyport admin scim token add CONNECTOR",
    )
}

fn shown(at: Option<&prost_types::Timestamp>) -> String {
    at.and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_default()
}
