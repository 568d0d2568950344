//! `sallyport admin audit`.

use std::process::ExitCode;
use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::{AuditRecord, SearchEventsRequest, VerifyAuditRequest};
use serde_json::json;
use time::OffsetDateTime;

use crate::connect::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Audit {
    /// Print events, the oldest first.
    Ls(Filter),
    /// Print events as they happen, until interrupted.
    Follow(Filter),
    /// Check the hash chain and every signed checkpoint. Exit code 1 when it is broken.
    Verify(Verify),
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
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, command: Audit) -> CliResult<ExitCode> {
    match command {
        Audit::Ls(filter) => print(authority, filter, false).await.map(|()| ExitCode::SUCCESS),
        Audit::Follow(filter) => print(authority, filter, true).await.map(|()| ExitCode::SUCCESS),
        Audit::Verify(args) => verify(authority, &args).await,
    }
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
    while let Some(record) = records.message().await.map_err(read)? {
        match filter.format {
            // One JSON document a line: what log shippers and jq take.
            Format::Json => ui::data(json_line(&record)?)?,
            Format::Text => ui::data(text_line(&record))?,
        }
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
    let mut line = format!("{} {} {}", seconds(&text("time")), text("code"), text("kind"));
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
    crate::recordings::shorten(&line, 400)
}

/// RFC 3339 cut to seconds.
fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

async fn verify(authority: &Authority, args: &Verify) -> CliResult<ExitCode> {
    let report = authority
        .admin()
        .verify_audit(VerifyAuditRequest {})
        .await
        .map_err(|status| CliError::from_status("verify the audit log", &status))?
        .into_inner();
    if args.format == Format::Json {
        ui::json(&json!({
            "intact": report.intact, "records": report.records, "checkpoints": report.checkpoints,
            "head": report.head, "problem": report.problem,
        }))?;
    } else if report.intact {
        ui::data(format!(
            "The audit log is intact: {} records, {} signed checkpoints, head {}.",
            report.records, report.checkpoints, report.head
        ))?;
    } else {
        ui::data(format!("The audit log is BROKEN: {}", report.problem))?;
        ui::data(format!(
            "Intact up to there: {} records, {} checkpoints.",
            report.records, report.checkpoints
        ))?;
    }
    Ok(if report.intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
