//! `sallyport device`: this machine as a trusted device.

use std::path::{Path, PathBuf};

use sallyport_client::authority::FirstTrust;
use sallyport_client::device::{self, Devices, NewKey, PinPlace, Said, TokenName};
use sallyport_sal::custody::token::discover;
use sallyport_wire::convert;
use sallyport_wire::v1::Device;
use serde_json::json;
use zeroize::Zeroizing;

use crate::authority::{self, AuthorityArgs};
use crate::browser;
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Enroll this machine: its key is made in a TPM or another PKCS#11 token, or in a file where the cluster allows that.
    Enroll(Enroll),
    /// List your devices.
    Ls(Ls),
    /// Forget on this machine that it is a trusted device of the cluster. The cluster still knows it.
    Forget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Enroll {
    /// The token of an administrator. Without one, an administrator has to admit the device.
    #[arg(long, default_value = "")]
    token: String,
    /// The PKCS#11 module with the hardware. Default: that of tpm2-pkcs11, where it is installed.
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    module: Option<PathBuf>,
    /// Which token of the module, by its label. Default: the only one that is ready.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    label: Option<String>,
    /// Read the token's PIN from this file of mode 0600, at each login.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["file", "pin_env"])]
    pin_file: Option<PathBuf>,
    /// Read the token's PIN from this variable of the environment, at each login.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pin_env: Option<String>,
    /// Keep the key in a file of mode 0600, which can be copied to another machine.
    #[arg(long)]
    file: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Where Linux distributions have tpm2-pkcs11.
const TPM_MODULES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/libtpm2_pkcs11.so.1",
    "/usr/lib/aarch64-linux-gnu/libtpm2_pkcs11.so.1",
    "/usr/lib64/pkcs11/libtpm2_pkcs11.so",
    "/usr/lib/pkcs11/libtpm2_pkcs11.so",
    "/usr/lib/libtpm2_pkcs11.so",
];

pub(crate) async fn run(global: &Global, command: Command) -> CliResult {
    match command {
        Command::Enroll(args) => enroll(global, args).await,
        Command::Ls(args) => ls(global, args.format).await,
        Command::Forget => {
            let cluster = global.profiles().load()?.profile.cluster;
            own(global)?.forget(cluster.as_str())?;
            ui::data(format!("This machine is no trusted device of {cluster} any more, for you."))?;
            ui::say("An administrator removes it from the cluster: sallyport admin devices rm ID");
            Ok(())
        }
    }
}

/// What this machine is to clusters, for the user who calls.
pub(crate) fn own(global: &Global) -> CliResult<Devices> {
    Ok(Devices::of(&global.profiles(), ask_pin)?)
}

fn ask_pin(token: &str) -> Option<Zeroizing<String>> {
    if !ui::can_ask() {
        return None;
    }
    ui::password(&format!("PIN of the token {token} with the key of this device"), false)
        .ok()
        .map(Zeroizing::new)
}

async fn enroll(global: &Global, args: Enroll) -> CliResult {
    let new = if args.file { NewKey::File } else { in_token(&args)? };
    let stored = global.profiles().load_valid()?;
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let profile = &stored.profile;
    let first = FirstTrust::Known { trust: Box::new(stored.trust()?), cluster: profile.cluster.clone() };
    let devices = own(global)?;
    let whose = (&profile.cluster, &profile.user);
    let enrolled =
        devices.enroll(&authority, (&profile.proxy, &first), whose, new, &args.token, said()).await?;
    if args.format == Format::Json {
        return ui::json(&shown(&enrolled));
    }
    ui::data(format!("device   {}", enrolled.id))?;
    ui::data(format!("key      in {}", place(&enrolled.custody)))?;
    ui::data(format!("sha256   {}", enrolled.key))?;
    ui::data(format!("state    {}", enrolled.state))?;
    if enrolled.state == "pending" {
        ui::say(format!(
            "Next: have an administrator admit it with: sallyport admin devices assign {} --browser\nTell them the sha256 of its key, \
             which the page shows. Then log in again: sallyport login",
            enrolled.id
        ));
    } else {
        ui::say("Next: log in again, from this device: sallyport login");
    }
    Ok(())
}

/// The token of a module in which the key is to be made.
fn in_token(args: &Enroll) -> CliResult<NewKey> {
    let found = TPM_MODULES.iter().map(Path::new).find(|path| path.exists());
    let Some(module) = args.module.as_deref().or(found) else {
        return Err(CliError::new(
            "this machine has no PKCS#11 module for a TPM, so the key of the device cannot be made in hardware",
        )
        .hint(
            "install it (Debian: apt-get install libtpm2-pkcs11-1 libtpm2-pkcs11-tools; docs/devices.md), name another with --module, or \
             where the cluster allows keys in files: sallyport device enroll --file",
        )
        .exit(Exit::Usage));
    };
    let shown = module.display();
    let tokens = discover(module).map_err(|error| {
        CliError::new(format!("the tokens of {shown} cannot be listed: {error}"))
            .hint("is there a TPM, and may you use it (group tss for /dev/tpmrm0)? docs/devices.md")
            .exit(Exit::Usage)
    })?;
    let ready: Vec<_> = tokens.iter().filter(|token| token.ready).collect();
    let label = match (&args.label, ready.as_slice()) {
        (Some(label), _) => label.clone(),
        (None, [one]) => one.label.clone(),
        (None, []) => {
            return Err(CliError::new(format!("{shown} has no token that is ready for keys"))
                .hint("make one: tpm2_ptool init, then tpm2_ptool addtoken (docs/devices.md)")
                .exit(Exit::Usage));
        }
        (None, several) => {
            let labels: Vec<&str> = several.iter().map(|token| token.label.as_str()).collect();
            return Err(CliError::new(format!("{shown} has several tokens: {}", labels.join(", ")))
                .hint("say which: --label NAME")
                .exit(Exit::Usage));
        }
    };
    let pin = match (&args.pin_file, &args.pin_env) {
        (Some(path), _) => PinPlace::File(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        (None, Some(name)) => PinPlace::Env(name.clone()),
        (None, None) => PinPlace::Asked,
    };
    Ok(NewKey::Token { module: module.to_owned(), token: TokenName::Label(label), pin })
}

/// What this machine says of itself.
fn said() -> Said {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = line("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let os = pretty.map_or_else(
        || rustix::system::uname().sysname().to_string_lossy().into_owned(),
        |name| name.trim_matches('"').to_owned(),
    );
    // Root alone may read it on most machines.
    Said { name: browser::host_name(), os, serial: line("/sys/class/dmi/id/product_serial") }
}

async fn ls(global: &Global, format: Format) -> CliResult {
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let listed = device::list(&authority).await?;
    if format == Format::Json {
        let devices: Vec<_> = listed.devices.iter().map(shown).collect();
        return ui::json(&json!({ "devices": devices, "current": listed.current }));
    }
    table(&listed.devices, &listed.current, "You have no trusted device: sallyport device enroll")
}

/// A table of devices, with a mark at the one that this login came from.
pub(crate) fn table(devices: &[Device], current: &str, empty: &str) -> CliResult {
    let rows = devices.iter().map(|device| {
        let mark = if device.id == current { "*" } else { "" };
        vec![
            format!("{}{mark}", device.id),
            device.name.clone(),
            device.custody.clone(),
            device.state.clone(),
            device.users.join(","),
            device.os.clone(),
            device.serial.clone(),
            device.last_seen.as_ref().map_or_else(|| "never".to_owned(), when),
        ]
    });
    let columns = ["ID", "SAID NAME", "KEY", "STATE", "USERS", "SAID OS", "SAID SERIAL", "LAST LOGIN"];
    ui::table(&columns, rows.collect(), empty)
}

pub(crate) fn shown(device: &Device) -> serde_json::Value {
    json!({
        "id": device.id, "custody": device.custody, "state": device.state, "users": device.users,
        "said": { "name": device.name, "os": device.os, "serial": device.serial },
        "enrolled": device.enrolled.as_ref().map(when), "enrolled_by": device.enrolled_by,
        "last_seen": device.last_seen.as_ref().map(when), "last_user": device.last_user, "key_sha256": device.key,
    })
}

fn when(at: &prost_types::Timestamp) -> String {
    convert::time_from_proto(at).map(ui::timestamp).unwrap_or_default()
}

pub(crate) fn place(custody: &str) -> &str {
    if custody == "file" { "a file" } else { "hardware" }
}
