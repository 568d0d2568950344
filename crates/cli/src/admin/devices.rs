//! `sallyport admin devices`.

use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::remove_device_request::What;
use sallyport_wire::v1::{
    AddDeviceTokenRequest, AssignDeviceRequest, ListDevicesRequest, RemoveDeviceRequest,
};
use serde_json::json;

use crate::authority::Authority;
use crate::devices::{shown, table};
use crate::error::{CliError, CliResult, Exit};
use crate::proving::{self, Own};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Devices {
    /// List every device, with what their machines say of themselves.
    Ls(Ls),
    /// Say whose a device is, and admit one that waits.
    Assign(Assign),
    /// Remove a device, and end the logins and sessions that came from it.
    Rm(Rm),
    /// Keep a device out, and end the logins and sessions that came from it, until the lock is removed.
    Lock(LockArgs),
    /// One-time tokens with which devices are enrolled.
    #[command(subcommand)]
    Token(Token),
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Assign {
    /// As devices ls prints it.
    id: String,
    /// Who may log in from it. Default: as it is.
    users: Vec<String>,
    /// Look at the device at a page, and admit it there with a factor of yours, which serves for this device alone.
    #[arg(long, conflicts_with = "users")]
    browser: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rm {
    /// As devices ls prints it.
    id: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct LockArgs {
    /// As devices ls prints it.
    id: String,
    /// What its users read.
    #[arg(long, default_value = "")]
    message: String,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Token {
    /// Make a token with which one device is enrolled. It is shown once and stored only as a hash.
    Add(TokenAdd),
    /// List the tokens that no device was enrolled with, without their secrets.
    Ls(Ls),
    /// End a token at once.
    Rm(TokenRm),
}

#[derive(Debug, clap::Args)]
pub(super) struct TokenAdd {
    /// Who may use it, and log in from the device afterwards; repeat it for several. Default: the user who uses it.
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<String>,
    /// Take a device with its key in hardware alone, by the word of the program that enrolls it: no token attests to it.
    #[arg(long)]
    hardware: bool,
    /// How long it is good: 1m to 30d.
    #[arg(long, value_parser = ui::parse_duration, default_value = "24h")]
    ttl: Duration,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct TokenRm {
    /// As token ls prints it.
    name: String,
}

pub(super) async fn run(authority: &Authority, command: Devices) -> CliResult {
    match command {
        Devices::Ls(args) => {
            let listed = list(authority).await?;
            if args.format == Format::Json {
                return ui::json(&json!(listed.devices.iter().map(shown).collect::<Vec<_>>()));
            }
            table(&listed.devices, "", "No device is enrolled: sallyport admin devices token add")
        }
        Devices::Assign(Assign { id, users, browser }) => {
            let challenge = if browser { approved(authority, &id).await? } else { String::new() };
            let request = AssignDeviceRequest { id, users, challenge };
            let assigned = authority.devices().assign(request).await;
            let assigned = assigned.map_err(|status| CliError::from_status("assign the device", &status))?;
            let device = assigned.into_inner().device.unwrap_or_default();
            ui::data(format!("Device {} is enrolled for {}.", device.id, device.users.join(", ")))
        }
        Devices::Rm(Rm { id }) => {
            let request = RemoveDeviceRequest { what: Some(What::Device(id.clone())) };
            let removed = authority.devices().remove(request).await;
            let lock = removed.map_err(|status| CliError::from_status("remove the device", &status))?;
            let lock = lock.into_inner().lock;
            ui::data(format!("Removed device {id}; lock/{lock} ends the logins that came from it."))
        }
        Devices::Lock(LockArgs { id, message }) => {
            super::resources::lock(authority, &super::resources::Lock::on("device", id, message)).await
        }
        Devices::Token(Token::Add(args)) => add_token(authority, args).await,
        Devices::Token(Token::Ls(args)) => tokens(authority, args.format).await,
        Devices::Token(Token::Rm(TokenRm { name })) => {
            let request = RemoveDeviceRequest { what: Some(What::Token(name.clone())) };
            let removed = authority.devices().remove(request).await;
            removed.map_err(|status| CliError::from_status("end the token", &status))?;
            ui::data(format!("Ended token {name}."))
        }
    }
}

/// The approval that an administrator has given at a page which shows the device.
async fn approved(authority: &Authority, id: &str) -> CliResult<String> {
    if authority.proxy().is_none() {
        return Err(CliError::new(
            "the authority's socket asks for no factor, so that no page admits a device with --data-dir",
        )
        .hint("leave out --browser")
        .exit(Exit::Usage));
    }
    let purpose = Purpose::AdmitDevice(id.to_owned());
    match proving::at_page(&mut Own::at(authority), purpose, "look at the device, and admit it").await? {
        Proof::Challenge(challenge) => Ok(challenge),
        _ => Err(CliError::new("the page has given no approval")),
    }
}

async fn list(authority: &Authority) -> CliResult<sallyport_wire::v1::ListDevicesResponse> {
    let listed = authority.devices().list(ListDevicesRequest {}).await;
    Ok(listed.map_err(|status| CliError::from_status("list the devices", &status))?.into_inner())
}

async fn add_token(authority: &Authority, args: TokenAdd) -> CliResult {
    let request = AddDeviceTokenRequest {
        users: args.users,
        hardware: args.hardware,
        ttl: Some(convert::duration_to_proto(args.ttl)),
    };
    let made = authority.devices().add_token(request).await;
    let made = made.map_err(|status| CliError::from_status("make a token", &status))?.into_inner();
    let expires = when(made.expires.as_ref());
    if args.format == Format::Json {
        return ui::json(&json!({ "token": made.token, "name": made.name, "expires": expires }));
    }
    ui::data(format!("token  {}", made.token))?;
    ui::data(format!("until  {expires}"))?;
    ui::say(format!("On the device, logged in as its user: sallyport device enroll --token {}", made.token));
    Ok(())
}

async fn tokens(authority: &Authority, format: Format) -> CliResult {
    let listed = list(authority).await?.tokens;
    if format == Format::Json {
        let tokens = listed.iter().map(|token| {
            json!({
                "name": token.name, "users": token.users, "hardware": token.hardware,
                "created": when(token.created.as_ref()), "expires": when(token.expires.as_ref()),
            })
        });
        return ui::json(&json!(tokens.collect::<Vec<_>>()));
    }
    let rows = listed.into_iter().map(|token| {
        let users = if token.users.is_empty() { "any user".to_owned() } else { token.users.join(",") };
        let key = if token.hardware { "hardware" } else { "any" };
        let (created, expires) = (when(token.created.as_ref()), when(token.expires.as_ref()));
        vec![token.name, users, key.to_owned(), created, expires]
    });
    ui::table(
        &["NAME", "USERS", "KEY", "CREATED", "EXPIRES"],
        rows.collect(),
        "No token for a device waits to be used: sallyport admin devices token add",
    )
}

fn when(at: Option<&prost_types::Timestamp>) -> String {
    at.and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_default()
}
