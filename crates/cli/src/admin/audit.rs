//! `sallyport admin audit`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sallyport_access::text::Foreign;
use sallyport_audit::log::Head;
use sallyport_wire::convert;
use sallyport_wire::v1::{AuditRecord, SearchEventsRequest, VerifyAuditRequest};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Audit {
    /// Print events, the oldest first.
    Ls(Filter),
    /// Print events as they happen, until interrupted.
    Follow(Filter),
    /// Check the hash chain and every signed checkpoint. Exit code 1 when it is broken.
    Verify(Verify),
    /// Set a log aside that the authority does not start with, keeping every byte; the next start begins a new one behind it. On the
    /// authority's machine, while it is stopped.
    Repair,
}

#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Only events of so long ago, such as 24h.
    #[arg(long, value_parser = ui::parse_duration)]
    since: Option<Duration>,
    /// Only this event code, such as SP1000I.
    #[arg(long)]
    code: Option<String>,
    #[arg(long)]
    user: Option<String>,
    /// Only events of this session.
    #[arg(long)]
    session: Option<String>,
    /// Only events about a statement of a database with these words.
    #[arg(long, value_name = "WORDS")]
    statement: Option<String>,
    /// The newest so many; 0 for all.
    #[arg(long, short = 'n', default_value_t = 100)]
    limit: u32,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// A checkpoint that was kept elsewhere, which the log must hold: "NUMBER HASH", a line of the file checkpoints, or a file that
    /// ends in one.
    #[arg(long, value_name = "CHECKPOINT")]
    against: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, command: Audit) -> CliResult<ExitCode> {
    match command {
        Audit::Ls(filter) => print(authority, filter, false).await.map(|()| ExitCode::SUCCESS),
        Audit::Follow(filter) => print(authority, filter, true).await.map(|()| ExitCode::SUCCESS),
        Audit::Verify(args) => verify(authority, &args).await,
        Audit::Repair => Err(CliError::new("the authority does not repair its own log while it runs")
            .hint("on the authority's machine, with the authority stopped: sallyport admin audit repair --data-dir DIR")
            .exit(Exit::Usage)),
    }
}

/// `audit repair`, for which there is no authority to talk to.
pub(super) fn repair(data_dir: Option<&Path>) -> CliResult<ExitCode> {
    let Some(data_dir) = data_dir else {
        return Err(CliError::new("audit repair needs the directory of the log")
            .hint("on the authority's machine: sallyport admin audit repair --data-dir DIR")
            .exit(Exit::Usage));
    };
    let directory = data_dir.join("auth");
    let lock = directory.join("state.db.lock");
    let lock = File::options().write(true).open(&lock).doing(format!("open {}", lock.display()))?;
    if lock.try_lock().is_err() {
        return Err(CliError::new(format!(
            "the authority of {} runs and has its log open",
            data_dir.display()
        ))
        .hint("stop the authority, then run this again"));
    }
    let log = directory.join("audit");
    let set = sallyport_audit::log::repair(&log, OffsetDateTime::now_utc())
        .doing(format!("set {} aside", log.display()))?;
    match &set.line {
        Some((file, line, bytes)) => ui::data(format!(
            "{file} line {line} ({bytes} bytes) is no record; the last one before it is record {}.",
            set.last
        ))?,
        None => ui::data(format!("Every whole line is a record; the last one is record {}.", set.last))?,
    }
    ui::data(format!("The whole log is in {}; nothing of it was changed.", set.aside.display()))?;
    ui::data("The next start of the authority begins a new log behind it, and says so.")?;
    Ok(ExitCode::SUCCESS)
}

/// The checkpoint that is meant: the text itself, or the last line of the file of that name.
fn checkpoint(given: &str) -> CliResult<String> {
    let is_head = |text: &str| text.parse::<Head>().is_ok();
    if is_head(given) {
        return Ok(given.trim().to_owned());
    }
    let text = std::fs::read_to_string(given).doing(format!("read a checkpoint from {given:?}"))?;
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !is_head(last) {
        return Err(CliError::new(format!("the last line of {given} is not a checkpoint"))
            .hint("sallyport admin audit verify --against 'NUMBER HASH'"));
    }
    Ok(last.trim().to_owned())
}

async fn print(authority: &Authority, filter: Filter, follow: bool) -> CliResult {
    let since = filter.since.map(|ago| convert::time_to_proto(OffsetDateTime::now_utc() - ago));
    let request = SearchEventsRequest {
        since,
        until: None,
        code: filter.code.unwrap_or_default(),
        user: filter.user.unwrap_or_default(),
        session_id: filter.session.unwrap_or_default(),
        limit: filter.limit,
        follow,
        tail: true,
        statement: filter.statement.unwrap_or_default(),
    };
    let read = |status: tonic::Status| CliError::from_status("read the audit log", &status);
    let mut records = authority.admin().search_events(request).await.map_err(read)?.into_inner();
    let mut none = true;
    while let Some(record) = records.message().await.map_err(read)? {
        none = false;
        match filter.format {
            // One JSON document a line: what log shippers and jq take.
            Format::Json => ui::json_text(&json_line(&record)?)?,
            Format::Text => ui::data(Foreign::new(text_line(&record)).as_str())?,
        }
    }
    if none && !follow && filter.format == Format::Text {
        ui::say("There is no such event.");
    }
    Ok(())
}

fn json_line(record: &AuditRecord) -> CliResult<String> {
    let event: serde_json::Value = serde_json::from_str(&record.event_json)
        .map_err(|error| CliError::new(format!("record {} is not JSON: {error}", record.sequence)))?;
    Ok(json!({ "sequence": record.sequence, "hash": record.hash, "event": event }).to_string())
}

/// `TIME CODE KIND who -> where: message`, one line whatever the event holds.
fn text_line(record: &AuditRecord) -> String {
    let Ok(event) = serde_json::from_str::<serde_json::Value>(&record.event_json) else {
        return format!("{} (not JSON)", record.sequence);
    };
    let text = |key: &str| event.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let mut line = format!("{} {} {}", ui::seconds(&text("time")), text("code"), text("kind"));
    let who = text("user");
    if !who.is_empty() {
        line.push_str(&format!(" {who}"));
    }
    let (login, node) = (text("login"), text("node"));
    match (login.is_empty(), node.is_empty()) {
        (false, false) => line.push_str(&format!(" -> {login}@{node}")),
        (true, false) => line.push_str(&format!(" on {node}")),
        (false, true) => line.push_str(&format!(" as {login}")),
        (true, true) => {}
    }
    let method = event.pointer("/fields/method").and_then(serde_json::Value::as_str);
    if let Some(method) = method {
        line.push_str(&format!(" {method}"));
    }
    let message = text("message");
    if !message.is_empty() {
        line.push_str(&format!(": {message}"));
    }
    let session = text("session_id");
    if !session.is_empty() {
        line.push_str(&format!(" [{session}]"));
    }
    crate::ui::shorten(&line, 400)
}

async fn verify(authority: &Authority, args: &Verify) -> CliResult<ExitCode> {
    let against = args.against.as_deref().map(checkpoint).transpose()?.unwrap_or_default();
    let held = (!against.is_empty()).then(|| against.clone());
    let report = authority
        .admin()
        .verify_audit(VerifyAuditRequest { against })
        .await
        .map_err(|status| CliError::from_status("verify the audit log", &status))?
        .into_inner();
    if args.format == Format::Json {
        ui::json(&json!({
            "intact": report.intact, "records": report.records, "checkpoints": report.checkpoints,
            "head": report.head, "problem": report.problem, "begins_behind": report.begins_behind,
        }))?;
    } else if report.intact {
        ui::data(format!(
            "The audit log is intact: {}, {}, head {}.",
            ui::counted(report.records, "record"),
            ui::counted(report.checkpoints, "signed checkpoint"),
            report.head
        ))?;
        if let Some(held) = held {
            ui::data(format!("It holds the checkpoint {held}."))?;
        }
    } else {
        ui::data(format!("The audit log is BROKEN: {}", report.problem))?;
        ui::data(format!(
            "Intact up to there: {}, {}.",
            ui::counted(report.records, "record"),
            ui::counted(report.checkpoints, "checkpoint")
        ))?;
    }
    if report.begins_behind > 0 && args.format == Format::Text {
        ui::data(format!(
            "NOTE: this log begins behind record {}; what was before was set aside: sallyport admin audit ls --code audit.begun_anew",
            report.begins_behind
        ))?;
    }
    Ok(if report.intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
