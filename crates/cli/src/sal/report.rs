//! `sallyport sal report`.

use std::path::PathBuf;

use sallyport_sal::algorithm::{KexGroup, KeyAlgorithm};
use sallyport_sal::custody::token;
use sallyport_sal::measure::handshake::{self, Phases, Retry, Shape};
use sallyport_sal::measure::table::{self, Scope};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::report::{Report, is_timed};
use sallyport_sal::{provider, selection, tls};
use serde_json::json;

use super::shown::{bar, microseconds, show};
use crate::error::{CliError, CliResult, Context};
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure as well: each algorithm by its source, and the phases of a handshake. About ten seconds.
    #[arg(long)]
    time: bool,
    /// Type of the certificate whose handshake is taken apart.
    #[arg(long, value_name = "KEY", default_value = "ecdsa-p256")]
    key: KeyAlgorithm,
    /// Key exchange group of that handshake. Default: the first one offered.
    #[arg(long, value_name = "GROUP")]
    group: Option<KexGroup>,
    /// Also list the tokens of a PKCS#11 module.
    #[arg(long, value_name = "MODULE")]
    token: Option<PathBuf>,
    /// List who serves every primitive, and who would take over.
    #[arg(long)]
    all: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(args: &Args) -> CliResult {
    let selection = selection::global();
    let groups = tls::groups();
    let (mut measured, mut phases, mut retry) = (Vec::new(), None, None);
    if args.time {
        let bar = bar();
        measured = table::measure(
            selection,
            Scope::Selection,
            Effort::REPORT,
            |primitive| is_timed(selection, primitive),
            |progress| show(&bar, progress),
        );
        bar.set_message("handshake");
        let group = args.group.or_else(|| groups.first().copied()).unwrap_or(KexGroup::X25519);
        let shape = Shape::new(args.key, group);
        phases = Some(
            handshake::phases(selection, shape, Effort::REPORT)
                .map_err(|error| CliError::new(error.to_string()))?,
        );
        // The first group that is no half of the one sent first.
        let first = groups.first().copied().unwrap_or(group);
        let other = groups.iter().copied().find(|one| one.dh() != first.dh());
        retry = other
            .and_then(|other| handshake::retry(selection, args.key, (first, other), Effort::REPORT).ok());
        bar.finish_and_clear();
    }
    let report = Report::of(selection, groups, &measured);
    let tokens = args.token.as_deref().map(token::discover).transpose().doing("list tokens")?;
    match args.format {
        Format::Json => ui::json(&json!({
            "credits": report.credits(),
            "report": report,
            "ssh": ssh(),
            "tokens": tokens.map(|tokens| tokens.iter().map(|token| format!("{token:?}")).collect::<Vec<_>>()),
            "handshake": phases.as_ref().map(phases_json),
            "hello_retry_request": retry.as_ref().map(retry_json),
        })),
        Format::Text => {
            text(args, &report, tokens.as_deref(), phases.as_ref())?;
            retry.map_or(Ok(()), |retry| ui::data(retry_text(&retry)))
        }
    }
}

fn text(
    args: &Args,
    report: &Report,
    tokens: Option<&[token::TokenInfo]>,
    phases: Option<&Phases>,
) -> CliResult {
    ui::data(report.credits())?;
    ui::data("")?;
    ui::data(format!("CPU        {}", report.cpu))?;
    ui::data(format!("selection  {}", report.selection))?;
    if let Some(module) = &report.module {
        let proven = match provider::prove_module() {
            Ok(_) => "self-tests passed".to_owned(),
            Err(fault) => format!("{fault}: nothing that it computes can be relied on"),
        };
        ui::data(format!("module     {module}, {proven}"))?;
    }
    for incident in &report.incidents {
        ui::data(format!("incident   {incident}"))?;
    }

    section("Sources")?;
    let rows = report.sources.iter().map(|source| {
        vec![
            source.name.to_owned(),
            source.library.to_owned(),
            format!("{} of {}", source.serves, source.offers),
            source.out.clone().unwrap_or_default(),
        ]
    });
    ui::table(&["name", "library", "serves", ""], rows.collect(), "none")?;

    section("Key exchange in TLS")?;
    let rows = report.groups.iter().map(|group| {
        let sent = if group.sent_first { "sent first" } else { "" };
        vec![
            group.name.to_owned(),
            sent.to_owned(),
            group.sources.clone(),
            time(group.share),
            time(group.client_secret),
            time(group.server),
        ]
    });
    columns(
        args,
        &["group", "", "source", "client share us", "client secret us", "server us"],
        &[3, 4, 5],
        rows.collect(),
    )?;

    section("Cipher suites of TLS 1.3")?;
    let rows = report.suites.iter().map(|suite| {
        let rate = suite.megabytes_per_second.map_or_else(String::new, |rate| format!("{rate:.0}"));
        vec![
            suite.name.to_owned(),
            suite.cipher.to_owned(),
            suite.hash.to_owned(),
            suite.derivation.to_owned(),
            rate,
        ]
    });
    columns(args, &["suite", "cipher", "hash", "hkdf", "mb/s at 16 kib"], &[4], rows.collect())?;

    section("Signatures")?;
    let rows = report.signatures.iter().map(|one| {
        vec![
            one.key.to_owned(),
            one.signs.unwrap_or("only verified").to_owned(),
            time(one.sign),
            one.verifies.to_owned(),
            time(one.verify),
            one.tls.join(" "),
            one.certificates.to_owned(),
            one.ssh.unwrap_or("-").to_owned(),
        ]
    });
    let headings = ["key", "signs", "us", "verifies", "us", "in tls", "in certificates", "in ssh"];
    columns(args, &headings, &[2, 4], rows.collect())?;

    section("SSH")?;
    for (what, by) in ssh() {
        ui::data(format!("{what:<28} {by}"))?;
    }
    if args.all {
        section("Every primitive")?;
        let rows = report.choices.iter().map(|choice| {
            vec![
                choice.primitive.to_string(),
                choice.source.unwrap_or("none").to_owned(),
                time(choice.time),
                choice.why.to_owned(),
                choice.runner_up.unwrap_or("none").to_owned(),
                time(choice.runner_up_time),
                choice.others.join("; "),
            ]
        });
        let headings = ["primitive", "source", "us", "why", "runner-up", "us", "not eligible"];
        columns(args, &headings, &[2, 5], rows.collect())?;
    }
    if let Some(tokens) = tokens {
        section("Tokens")?;
        for token in tokens {
            ui::data(format!(
                "slot {}  {:?}  {} {}  serial {}",
                token.slot, token.label, token.manufacturer, token.model, token.serial
            ))?;
            for ability in &token.abilities {
                let can = match (ability.generates, ability.signs) {
                    (true, true) => "generates and signs",
                    (true, false) => "generates only",
                    (false, true) => "signs only",
                    (false, false) => continue,
                };
                ui::data(format!("  {:<12} {can}", ability.algorithm))?;
            }
        }
    }
    if let Some(phases) = phases {
        section(&format!(
            "A TLS 1.3 handshake with a {} certificate and {} (microseconds)",
            phases.shape.key, phases.shape.group
        ))?;
        let rows = phases
            .rows
            .iter()
            .map(|phase| {
                vec![
                    phase.name.to_owned(),
                    microseconds(phase.client / 1e3),
                    microseconds(phase.server / 1e3),
                ]
            })
            .collect();
        ui::table(&["phase", "client", "server"], rows, "none")?;
        ui::data(format!(
            "{} bytes from the client, {} from the server",
            phases.sides.client_bytes, phases.sides.server_bytes
        ))?;
    }
    Ok(())
}

/// A table without the columns of times, unless times were measured.
fn columns(args: &Args, headings: &[&str], times: &[usize], rows: Vec<Vec<String>>) -> CliResult {
    let shown = |at: &usize| args.time || !times.contains(at);
    let keep =
        |row: Vec<String>| row.into_iter().enumerate().filter(|(at, _)| shown(at)).map(|(_, cell)| cell);
    let headings: Vec<&str> =
        headings.iter().enumerate().filter(|(at, _)| shown(at)).map(|(_, heading)| *heading).collect();
    ui::table(&headings, rows.into_iter().map(|row| keep(row).collect()).collect(), "none")
}

fn section(title: &str) -> CliResult {
    ui::data(format!("\n{title}"))
}

fn time(value: Option<f64>) -> String {
    value.map(microseconds).unwrap_or_default()
}

/// What stands behind SSH, as servers of ours speak it.
fn ssh() -> Vec<(&'static str, String)> {
    let transport = sallyport_ssh::transport_algorithms();
    let by_layer = |list: Vec<String>| format!("{} (by the layer)", list.join(" "));
    vec![
        ("certificates signed", "by the layer, with a key in any custody".to_owned()),
        ("certificates verified", "by the layer".to_owned()),
        ("user keys made", "by the layer".to_owned()),
        ("user keys signing", "by the layer, with a key in any custody".to_owned()),
        ("host keys made", "by the layer".to_owned()),
        ("host keys signing", "by the layer, from memory".to_owned()),
        ("key exchange", by_layer(transport.key_exchange)),
        ("ciphers", by_layer(transport.ciphers)),
    ]
}

/// What each side pays more, in microseconds, and the bytes that both send more.
fn retry_costs(retry: &Retry) -> (f64, f64, usize) {
    let more = |slow: std::time::Duration, quick| slow.saturating_sub(quick).as_secs_f64() * 1e6;
    let bytes = |sides: &handshake::Sides| sides.client_bytes + sides.server_bytes;
    (
        more(retry.retried.client, retry.straight.client),
        more(retry.retried.server, retry.straight.server),
        bytes(&retry.retried).saturating_sub(bytes(&retry.straight)),
    )
}

fn retry_text(retry: &Retry) -> String {
    let (client, server, bytes) = retry_costs(retry);
    format!(
        "A HelloRetryRequest, for a server that has {} and not {}: one round trip more, {} microseconds of the client, {} of the server, {bytes} bytes",
        retry.common,
        retry.sent,
        microseconds(client),
        microseconds(server),
    )
}

fn retry_json(retry: &Retry) -> serde_json::Value {
    let (client, server, bytes) = retry_costs(retry);
    json!({
        "sent": retry.sent,
        "common": retry.common,
        "client_microseconds": client,
        "server_microseconds": server,
        "bytes": bytes,
        "round_trips": 1,
    })
}

fn phases_json(phases: &Phases) -> serde_json::Value {
    json!({
        "key": phases.shape.key,
        "group": phases.shape.group,
        "client_bytes": phases.sides.client_bytes,
        "server_bytes": phases.sides.server_bytes,
        "phases": phases.rows.iter().map(|phase| json!({
            "name": phase.name,
            "client_microseconds": phase.client / 1e3,
            "server_microseconds": phase.server / 1e3,
        })).collect::<Vec<_>>(),
    })
}
