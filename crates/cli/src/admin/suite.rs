//! `sallyport admin suite`: which algorithms the cluster uses, and who could follow a change.

use std::process::ExitCode;

use sallyport_wire::convert;
use sallyport_wire::v1::{
    ListClientsRequest, ListSuitesRequest, ListSuitesResponse, PreflightSuiteRequest, PreflightSuiteResponse,
    SeenClient, SetSuiteRequest, SuiteObstacle,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

/// Of `preflight`: some client that was seen could not follow.
const WOULD_BREAK: u8 = 5;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Suite {
    /// The suites there are, and the one in force.
    Ls(Plain),
    /// Which algorithm a suite uses for what, and why.
    Show(Show),
    /// The clients that were seen, and what they can do.
    Clients(Clients),
    /// What a change would change, when, and for whom it would not work. Changes nothing. The exit code is 5 when a
    /// client that was seen could not follow.
    Preflight(Preflight),
    /// Put a suite in force.
    Set(Set),
}

#[derive(Debug, clap::Args)]
pub(super) struct Plain {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Which; the one in force when it is left away.
    name: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Clients {
    /// Only of this kind: ssh, tls, sallyport or http.
    #[arg(long)]
    kind: Vec<String>,
    /// With everything that they offered.
    #[arg(long, short)]
    verbose: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Preflight {
    /// The suite to change to.
    #[arg(long)]
    to: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Set {
    /// The suite to change to.
    name: String,
    /// Do not ask, even when some could not follow.
    #[arg(long)]
    yes: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, command: Suite) -> CliResult<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Suite::Ls(args) => ls(authority, &args).await.map(done),
        Suite::Show(args) => show(authority, &args).await.map(done),
        Suite::Clients(args) => clients(authority, &args).await.map(done),
        Suite::Preflight(args) => {
            let preflight = fetch(authority, &args.to).await?;
            print(&preflight, args.format)?;
            let breaks = !preflight.breaks.is_empty();
            Ok(if breaks { ExitCode::from(WOULD_BREAK) } else { ExitCode::SUCCESS })
        }
        Suite::Set(args) => set(authority, &args).await.map(done),
    }
}

async fn list(authority: &Authority) -> CliResult<ListSuitesResponse> {
    let answer = authority.suites().list_suites(ListSuitesRequest {}).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| CliError::from_status("list the suites", &status))
}

async fn ls(authority: &Authority, args: &Plain) -> CliResult {
    let known = list(authority).await?;
    if args.format == Format::Json {
        let suites: Vec<Value> = known
            .suites
            .iter()
            .map(|suite| {
                json!({
                    "name": suite.name, "summary": suite.summary, "current": suite.name == known.current,
                    "hybrid_key_exchange": suite.hybrid_key_exchange, "unavailable": suite.unavailable,
                })
            })
            .collect();
        return ui::json(&suites);
    }
    let rows = known.suites.iter().map(|suite| {
        let current = if suite.name == known.current { "in force" } else { "-" };
        let unavailable = if suite.unavailable.is_empty() {
            String::new()
        } else {
            format!(" (cannot be set here: {})", suite.unavailable)
        };
        vec![suite.name.clone(), current.to_owned(), format!("{}{unavailable}", suite.summary)]
    });
    ui::table(&["suite", "now", "what for"], rows.collect(), "The authority knows no suites.")
}

async fn show(authority: &Authority, args: &Show) -> CliResult {
    let known = list(authority).await?;
    let name = args.name.as_ref().unwrap_or(&known.current);
    let suite = known.suites.iter().find(|suite| suite.name == *name).ok_or_else(|| {
        let names: Vec<&str> = known.suites.iter().map(|suite| suite.name.as_str()).collect();
        CliError::new(format!("there is no suite {name:?}; the authority knows {}", names.join(", ")))
            .hint("sallyport admin suite ls")
    })?;
    if args.format == Format::Json {
        let keys: Vec<Value> = suite
            .keys
            .iter()
            .map(|key| {
                json!({
                    "purpose": key.purpose, "what": key.what, "algorithm": key.algorithm, "why": key.why,
                    "dictated_by": key.dictated_by,
                })
            })
            .collect();
        return ui::json(&json!({
            "name": suite.name, "summary": suite.summary, "current": suite.name == known.current,
            "hybrid_key_exchange": suite.hybrid_key_exchange, "keys": keys,
        }));
    }
    let current = if suite.name == known.current { ", in force" } else { "" };
    ui::data(format!("{}{current}: {}", suite.name, suite.summary))?;
    ui::data(format!("hybrid ML-KEM key exchange within the cluster: {}", suite.hybrid_key_exchange))?;
    let rows = suite.keys.iter().map(|key| vec![key.purpose.clone(), key.algorithm.clone(), key.why.clone()]);
    ui::table(&["purpose", "algorithm", "why"], rows.collect(), "This suite has no keys.")
}

async fn clients(authority: &Authority, args: &Clients) -> CliResult {
    let request = ListClientsRequest { kinds: args.kind.clone() };
    let seen = authority
        .suites()
        .list_clients(request)
        .await
        .map_err(|status| CliError::from_status("list the clients", &status))?
        .into_inner();
    if args.format == Format::Json {
        let clients: Vec<Value> = seen.clients.iter().map(client_json).collect();
        return ui::json(&json!({ "clients": clients, "forgotten": seen.forgotten }));
    }
    if seen.forgotten {
        ui::say("More clients were seen than are remembered; the oldest are missing.");
    }
    if args.verbose {
        for client in &seen.clients {
            ui::data(format!("{}; {}", title(client), traces(client)))?;
            for (what, names) in [
                ("key exchange", &client.key_exchange),
                ("signatures", &client.signatures),
                ("ciphers", &client.ciphers),
                ("MACs", &client.macs),
                ("protocols", &client.protocols),
                ("versions", &client.versions),
            ] {
                if !names.is_empty() {
                    ui::data(format!("  {what}: {}", names.join(", ")))?;
                }
            }
            if !client.refused.is_empty() {
                ui::data(format!("  sent away: {}", client.refused))?;
            }
        }
        return Ok(());
    }
    let rows = seen.clients.iter().map(|client| {
        vec![
            client.kind.clone(),
            name(client).to_owned(),
            ago(client),
            whose(client),
            client.seen_by.join(", "),
            client.refused.clone(),
        ]
    });
    let headings = ["kind", "software", "last seen", "by", "on", "sent away because"];
    ui::table(&headings, rows.collect(), "No client was seen yet.")
}

async fn fetch(authority: &Authority, to: &str) -> CliResult<PreflightSuiteResponse> {
    let answer = authority.suites().preflight_suite(PreflightSuiteRequest { to: to.to_owned() }).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| CliError::from_status("look ahead", &status).hint("sallyport admin suite ls"))
}

fn print(preflight: &PreflightSuiteResponse, format: Format) -> CliResult {
    if format == Format::Json {
        return ui::json(&preflight_json(preflight));
    }
    ui::data(format!("{} to {}", preflight.from, preflight.to))?;
    if !preflight.unavailable.is_empty() {
        ui::data(format!("cannot be set on this cluster: {}", preflight.unavailable))?;
    }
    if preflight.changes.is_empty() {
        ui::data("nothing changes")?;
    }
    for (takes_effect, title) in [
        ("now", "at once"),
        ("next login", "with the next login"),
        ("renewal", "with the next certificate"),
        ("rotation", "after the rotation of its CA"),
    ] {
        let changes: Vec<_> =
            preflight.changes.iter().filter(|change| change.takes_effect == takes_effect).collect();
        if changes.is_empty() {
            continue;
        }
        ui::data(format!("\n{title}:"))?;
        for change in &changes {
            ui::data(format!("  {}: {} to {} ({})", change.purpose, change.from, change.to, change.what))?;
        }
        let mut commands: Vec<&str> = changes.iter().map(|change| change.command.as_str()).collect();
        commands.retain(|command| !command.is_empty());
        commands.dedup();
        for command in commands {
            ui::data(format!("    {command}"))?;
        }
    }
    obstacles("would break", &preflight.breaks)?;
    obstacles("might break", &preflight.unsure)?;
    obstacles("would break, and no user ever logged in with it", &preflight.strangers)?;
    if !preflight.notes.is_empty() {
        ui::data("\nknown in general:")?;
        for note in &preflight.notes {
            ui::data(format!("  {note}"))?;
        }
    }
    let verdict = match preflight.breaks.len() {
        0 => "no client that was seen would break".to_owned(),
        1 => "1 client would break".to_owned(),
        several => format!("{several} clients would break"),
    };
    ui::data(format!("\n{} clients were seen; {verdict}", preflight.seen))
}

fn obstacles(title: &str, obstacles: &[SuiteObstacle]) -> CliResult {
    if obstacles.is_empty() {
        return Ok(());
    }
    ui::data(format!("\n{title}:"))?;
    for obstacle in obstacles {
        ui::data(format!("  {}", line(obstacle)))?;
    }
    Ok(())
}

/// `ssh client OpenSSH_9.2p1: offers no mlkem768x25519-sha256, at once; last seen 3m ago by alice on node:web-1`.
fn line(obstacle: &SuiteObstacle) -> String {
    let client = obstacle.client.clone().unwrap_or_default();
    format!("{}: {}, {}; {}", title(&client), obstacle.reason, obstacle.felt, traces(&client))
}

fn title(client: &SeenClient) -> String {
    format!("{} client {}", client.kind, name(client))
}

fn name(client: &SeenClient) -> &str {
    if client.software.is_empty() { "without a name" } else { &client.software }
}

fn traces(client: &SeenClient) -> String {
    let mut text = format!("last seen {}", ago(client));
    for (word, names) in [("by", whose(client)), ("on", client.seen_by.join(", "))] {
        if !names.is_empty() {
            text.push_str(&format!(" {word} {names}"));
        }
    }
    text
}

fn ago(client: &SeenClient) -> String {
    let last = client.last_seen.as_ref().and_then(convert::time_from_proto);
    last.map_or("-".to_owned(), |last| format!("{} ago", ui::duration(OffsetDateTime::now_utc() - last)))
}

fn whose(client: &SeenClient) -> String {
    let names = if client.users.is_empty() { &client.addresses } else { &client.users };
    names.join(", ")
}

fn client_json(client: &SeenClient) -> Value {
    let time = |time: &Option<prost_types::Timestamp>| {
        time.as_ref().and_then(convert::time_from_proto).map(ui::timestamp)
    };
    json!({
        "kind": client.kind, "software": client.software, "key_exchange": client.key_exchange,
        "signatures": client.signatures, "ciphers": client.ciphers, "macs": client.macs,
        "protocols": client.protocols, "versions": client.versions, "first_seen": time(&client.first_seen),
        "last_seen": time(&client.last_seen), "count": client.count, "users": client.users,
        "addresses": client.addresses, "seen_by": client.seen_by, "refused": client.refused,
    })
}

fn preflight_json(preflight: &PreflightSuiteResponse) -> Value {
    let obstacles = |obstacles: &[SuiteObstacle]| -> Vec<Value> {
        let told = |obstacle: &SuiteObstacle| {
            json!({
                "client": obstacle.client.as_ref().map(client_json), "reason": obstacle.reason,
                "felt": obstacle.felt,
            })
        };
        obstacles.iter().map(told).collect()
    };
    let changes: Vec<Value> = preflight
        .changes
        .iter()
        .map(|change| {
            json!({
                "purpose": change.purpose, "what": change.what, "from": change.from, "to": change.to,
                "takes_effect": change.takes_effect, "command": change.command, "why": change.why,
            })
        })
        .collect();
    json!({
        "from": preflight.from, "to": preflight.to, "changes": changes, "seen": preflight.seen,
        "breaks": obstacles(&preflight.breaks), "unsure": obstacles(&preflight.unsure),
        "strangers": obstacles(&preflight.strangers), "notes": preflight.notes,
        "unavailable": preflight.unavailable,
    })
}

async fn set(authority: &Authority, args: &Set) -> CliResult {
    let preflight = fetch(authority, &args.name).await?;
    if preflight.from == preflight.to {
        ui::say(format!("The suite is {} already.", preflight.to));
        return Ok(());
    }
    if !preflight.unavailable.is_empty() {
        return Err(CliError::new(format!(
            "the suite {} cannot be set on this cluster: {}",
            preflight.to, preflight.unavailable
        ))
        .hint("sallyport admin suite ls"));
    }
    if !preflight.breaks.is_empty() && !args.yes {
        for obstacle in &preflight.breaks {
            ui::say(format!("would break: {}", line(obstacle)));
        }
        if !ui::can_ask() {
            return Err(CliError::new(format!(
                "{} of the clients that were seen cannot follow to {}",
                preflight.breaks.len(),
                preflight.to
            ))
            .hint(format!(
                "sallyport admin suite preflight --to {0}; to set it all the same: sallyport admin suite set {0} --yes",
                preflight.to
            )));
        }
        let answer = ui::ask(&format!("Change the suite to {} all the same? [y/N] ", preflight.to))?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(CliError::new(format!("the suite was not changed to {}", preflight.to)).hint(
                format!(
                    "see which clients cannot follow: sallyport admin suite preflight --to {}",
                    preflight.to
                ),
            ));
        }
    }
    let request = SetSuiteRequest {
        from: preflight.from.clone(),
        to: preflight.to.clone(),
        accept_breaks: !preflight.breaks.is_empty(),
    };
    let answer = authority
        .suites()
        .set_suite(request)
        .await
        .map_err(|status| CliError::from_status("set the suite", &status))?
        .into_inner();
    let mut commands: Vec<&str> = preflight.changes.iter().map(|change| change.command.as_str()).collect();
    commands.retain(|command| !command.is_empty());
    commands.dedup();
    if args.format == Format::Json {
        return ui::json(&json!({ "from": answer.from, "to": answer.to, "rotations": commands }));
    }
    ui::data(format!("The suite is {} now, instead of {}.", answer.to, answer.from))?;
    if !commands.is_empty() {
        ui::say("Keys of CAs follow with a rotation:");
        for command in commands {
            ui::say(format!("  {command}"));
        }
    }
    Ok(())
}
