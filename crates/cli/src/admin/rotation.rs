//! `sallyport admin ca rotate`, `ls` and `status`.

use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::rotate_ca_request::Step;
use sallyport_wire::v1::{
    CaDetails, CaStatus, LaggingHost, ListCasRequest, ListCasResponse, RotateCaRequest,
};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Exit};
use crate::ui::{self, Format};

/// Every kind of CA.
const ALL: &str = "all";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A rotation goes through init, update_clients, update_servers and back to standby. No phase ends\n\
    before every host has confirmed it. docs/rotation.md tells the whole story."
)]
pub(super) struct Rotate {
    /// Whose CA: user, host, db, db_client, openssh, jwt, oidc_idp, spiffe, or all.
    #[arg(long = "type", short = 't', value_name = "CA", default_value = ALL)]
    kind: String,
    /// Go on to this phase, which must be the next one; `init` begins.
    #[arg(long, value_name = "PHASE", group = "step")]
    phase: Option<String>,
    /// Go back to the old CA.
    #[arg(long, group = "step")]
    rollback: bool,
    /// Let the authority take every step, also of a rotation that was begun by hand.
    #[arg(long, group = "step")]
    auto: bool,
    /// Take further steps by hand.
    #[arg(long, group = "step")]
    manual: bool,
    /// How long an automatic rotation takes at least: longer than logins last, or people have to log in again.
    #[arg(long, value_parser = ui::parse_duration, default_value = "30h", requires = "auto", value_name = "TIME")]
    grace: Duration,
    /// Go on although hosts have not confirmed the phase: they lose touch and have to join again.
    #[arg(long)]
    force: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// Only this CA.
    #[arg(long = "type", short = 't', value_name = "CA")]
    kind: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Every CA, as the authority tells it.
pub(super) async fn fetch(authority: &Authority) -> CliResult<ListCasResponse> {
    let answer = authority.rotation().list_cas(ListCasRequest {}).await;
    Ok(answer
        .map_err(|status| CliError::from_status("list the certificate authorities", &status))?
        .into_inner())
}

pub(super) async fn ls(authority: &Authority, args: &Ls) -> CliResult {
    let found = fetch(authority).await?;
    if args.format == Format::Json {
        return ui::json(&found.cas.iter().map(to_json).collect::<Vec<_>>());
    }
    let rows = found.cas.iter().map(|details| {
        let ca = ca(details);
        vec![
            ca.kind.clone(),
            phase(details).to_owned(),
            generation(details).to_string(),
            ca.suite.clone(),
            algorithms(&ca),
            ca.custodies.join(", "),
        ]
    });
    ui::table(
        &["CA", "PHASE", "ROTATION", "SUITE", "SSH, TLS, JWT", "KEYS"],
        rows.collect(),
        "There is no CA yet.",
    )
}

pub(super) async fn status(authority: &Authority, args: &Status) -> CliResult {
    let mut found = fetch(authority).await?;
    if let Some(kind) = &args.kind {
        found.cas.retain(|details| ca(details).kind == *kind);
        if found.cas.is_empty() {
            return Err(CliError::new(format!("there is no {kind} CA yet")).hint("sallyport admin ca ls"));
        }
    }
    if args.format == Format::Json {
        return ui::json(&found.cas.iter().map(to_json).collect::<Vec<_>>());
    }
    let resting = |details: &&CaDetails| phase(details) == "standby";
    let (quiet, busy): (Vec<&CaDetails>, Vec<&CaDetails>) = found.cas.iter().partition(resting);
    for details in &busy {
        for line in lines(details, found.hosts) {
            ui::data(line)?;
        }
    }
    if !quiet.is_empty() {
        let names: Vec<String> = quiet.iter().map(|details| ca(details).kind).collect();
        ui::data(format!("standby: {}", names.join(", ")))?;
    }
    Ok(())
}

pub(super) async fn rotate(authority: &Authority, args: &Rotate) -> CliResult {
    let found = fetch(authority).await?;
    let kinds: Vec<String> = if args.kind == ALL {
        found.cas.iter().map(|details| ca(details).kind).collect()
    } else {
        vec![args.kind.clone()]
    };
    let step = match (&args.phase, args.rollback, args.auto, args.manual) {
        (Some(phase), ..) => Step::Phase(phase.clone()),
        (None, true, ..) => Step::Rollback(true),
        (None, _, true, _) => Step::Automatic(convert::duration_to_proto(args.grace)),
        (None, _, _, true) => Step::Manual(true),
        (None, false, false, false) => return Err(which_step(&found, &kinds)),
    };
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for kind in &kinds {
        let request = RotateCaRequest { kind: kind.clone(), step: Some(step.clone()), force: args.force };
        match authority.rotation().rotate_ca(request).await {
            Ok(details) => taken.push(details.into_inner()),
            Err(status) => refused.push(CliError::from_status(&format!("rotate the {kind} CA"), &status)),
        }
    }
    if args.format == Format::Json {
        ui::json(&taken.iter().map(to_json).collect::<Vec<_>>())?;
    } else {
        for details in &taken {
            for line in lines(details, found.hosts) {
                ui::data(line)?;
            }
        }
    }
    let last = refused.pop();
    for error in refused {
        ui::say(error.to_string());
    }
    match last {
        Some(error) => Err(error),
        None => {
            if taken.iter().any(|details| phase(details) != "standby") {
                ui::say("Next: sallyport admin ca status");
            }
            Ok(())
        }
    }
}

/// Nothing is done without being asked for by name.
fn which_step(found: &ListCasResponse, kinds: &[String]) -> CliError {
    let next: Vec<String> = found
        .cas
        .iter()
        .filter(|details| kinds.contains(&ca(details).kind))
        .map(|details| {
            format!(
                "  {} is in {}: sallyport admin ca rotate --type {} --phase {}",
                ca(details).kind,
                phase(details),
                ca(details).kind,
                details.next_phase
            )
        })
        .collect();
    CliError::of_lines(format!(
        "which step? Name one of --phase, --rollback, --auto and --manual\n{}",
        next.join("\n")
    ))
    .exit(Exit::Usage)
}

/// One CA in words. Used by `admin status` as well.
pub(super) fn lines(details: &CaDetails, hosts: u32) -> Vec<String> {
    let now = OffsetDateTime::now_utc();
    let ca = ca(details);
    let mut lines = vec![format!("{} CA: {} of rotation {}", ca.kind, phase(details), generation(details))];
    let mut add = |name: &str, text: String| lines.push(format!("  {name:<13}{text}"));
    add("signs", keys(&ca));
    let Some(other) = &details.other else {
        return lines;
    };
    add("also trusted", keys(other));
    let since = at(details.phase_since.as_ref());
    if let Some(since) = since {
        add("for", ui::duration(now - since));
    }
    match at(details.due.as_ref()) {
        Some(due) if due > now => {
            add("then", format!("{} by itself in {}", details.next_phase, ui::duration(due - now)));
        }
        Some(_) if details.lagging.is_empty() => add("then", format!("{} at any moment", details.next_phase)),
        Some(_) => add("then", format!("{} by itself, when the hosts below are there", details.next_phase)),
        None => add(
            "then",
            format!("sallyport admin ca rotate --type {} --phase {}", ca.kind, details.next_phase),
        ),
    }
    add("confirmed", format!("{} of {hosts} hosts", (hosts as usize).saturating_sub(details.lagging.len())));
    for host in &details.lagging {
        add("  not yet", lagging(host, now));
    }
    for chore in &details.by_hand {
        add("by hand", chore.clone());
    }
    lines
}

fn lagging(host: &LaggingHost, now: OffsetDateTime) -> String {
    let what = match (&host.applied, host.old_certificate) {
        (_, true) => "presents its old certificate".to_owned(),
        (Some(applied), _) => format!("is at {} of rotation {}", applied.phase, applied.generation),
        (None, _) => "never confirmed anything".to_owned(),
    };
    let seen = at(host.last_seen.as_ref())
        .map_or("not heard of since the authority started".to_owned(), |seen| {
            format!("heard of {} ago", ui::duration(now - seen))
        });
    let until = at(host.valid_until.as_ref()).map_or("-".to_owned(), ui::timestamp);
    format!("{} {} {what}; {seen}; valid until {until}", host.role, host.name)
}

fn keys(ca: &CaStatus) -> String {
    let mut parts = Vec::new();
    if !ca.ssh_fingerprint.is_empty() {
        parts.push(format!("{} {}", ca.ssh_algorithm, ca.ssh_fingerprint));
    }
    if !ca.tls_pin.is_empty() {
        parts.push(format!("{} {}", ca.tls_algorithm, ca.tls_pin));
    }
    if !ca.jwt_algorithm.is_empty() {
        parts.push(format!("{} for JWTs", ca.jwt_algorithm));
    }
    format!("{} ({}, {})", parts.join(", "), ca.suite, ca.custodies.join(" and "))
}

fn algorithms(ca: &CaStatus) -> String {
    let all = [&ca.ssh_algorithm, &ca.tls_algorithm, &ca.jwt_algorithm];
    all.map(|algorithm| if algorithm.is_empty() { "-" } else { algorithm.as_str() }).join(", ")
}

fn ca(details: &CaDetails) -> CaStatus {
    details.ca.clone().unwrap_or_default()
}

fn phase(details: &CaDetails) -> &str {
    let rotation = details.ca.as_ref().and_then(|ca| ca.rotation.as_ref());
    rotation.map_or("standby", |rotation| rotation.phase.as_str())
}

fn generation(details: &CaDetails) -> u64 {
    let rotation = details.ca.as_ref().and_then(|ca| ca.rotation.as_ref());
    rotation.map_or(0, |rotation| rotation.generation)
}

fn at(time: Option<&prost_types::Timestamp>) -> Option<OffsetDateTime> {
    time.and_then(convert::time_from_proto)
}

pub(super) fn to_json(details: &CaDetails) -> serde_json::Value {
    let time = |time: Option<&prost_types::Timestamp>| at(time).map(ui::timestamp);
    let keys = |ca: &CaStatus| {
        json!({
            "ssh_fingerprint": ca.ssh_fingerprint, "tls_pin": ca.tls_pin, "ssh_algorithm": ca.ssh_algorithm,
            "tls_algorithm": ca.tls_algorithm, "jwt_algorithm": ca.jwt_algorithm, "suite": ca.suite,
            "custodies": ca.custodies,
        })
    };
    let lagging = details.lagging.iter().map(|host| {
        json!({
            "id": host.id, "name": host.name, "role": host.role,
            "phase": host.applied.as_ref().map(|applied| &applied.phase),
            "generation": host.applied.as_ref().map(|applied| applied.generation),
            "old_certificate": host.old_certificate, "last_seen": time(host.last_seen.as_ref()),
            "valid_until": time(host.valid_until.as_ref()),
        })
    });
    let grace = details.grace.as_ref().and_then(convert::duration_from_proto);
    json!({
        "kind": ca(details).kind, "phase": phase(details), "generation": generation(details),
        "signs": keys(&ca(details)), "also_trusted": details.other.as_ref().map(keys), "mode": details.mode,
        "grace_seconds": grace.map(|grace| grace.as_secs()), "started": time(details.started.as_ref()),
        "phase_since": time(details.phase_since.as_ref()), "due": time(details.due.as_ref()),
        "next_phase": details.next_phase, "not_confirmed": lagging.collect::<Vec<_>>(),
        "by_hand": details.by_hand,
    })
}
