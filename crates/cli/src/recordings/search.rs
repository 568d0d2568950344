//! `sallyport recordings search`: who ran what in databases, from the audit log, with the sessions to play.

use std::time::Duration;

use sallyport_wire::convert;
use sallyport_wire::v1::SearchEventsRequest;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::ui::{self, Format, shorten};

/// The event that one statement leaves.
const KIND: &str = "db.query";

#[derive(Debug, clap::Args)]
pub(crate) struct Search {
    /// Words that are all in the statement, whatever their case.
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Only statements of this user of the cluster.
    #[arg(long)]
    user: Option<String>,
    /// Only statements in this session.
    #[arg(long)]
    session: Option<String>,
    /// Only statements of so long ago, such as 24h.
    #[arg(long, value_parser = ui::parse_duration)]
    since: Option<Duration>,
    /// The newest so many; 0 for all.
    #[arg(long, short = 'n', default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    authority: AuthorityArgs,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(global: &Global, args: Search) -> CliResult {
    let words = args.words.join(" ");
    if words.trim().is_empty() {
        return Err(CliError::new("there is no word to search for")
            .hint("sallyport recordings search WORD ...")
            .exit(Exit::Usage));
    }
    let authority = authority::open(global, &args.authority).await?;
    let request = SearchEventsRequest {
        since: args.since.map(|ago| convert::time_to_proto(OffsetDateTime::now_utc() - ago)),
        code: KIND.to_owned(),
        user: args.user.unwrap_or_default(),
        session_id: args.session.unwrap_or_default(),
        limit: args.limit,
        tail: true,
        statement: words.clone(),
        ..SearchEventsRequest::default()
    };
    let read = |status: tonic::Status| CliError::from_status("search the audit log", &status);
    let mut records = authority.admin().search_events(request).await.map_err(read)?.into_inner();
    let mut found = Vec::new();
    while let Some(record) = records.message().await.map_err(read)? {
        let event: Value = serde_json::from_str(&record.event_json)
            .map_err(|error| CliError::new(format!("record {} is not JSON: {error}", record.sequence)))?;
        found.push(Found::of(&event));
    }
    if args.format == Format::Json {
        return ui::json(&found.iter().map(Found::as_json).collect::<Vec<_>>());
    }
    let rows = found.iter().map(|one| one.row(&words)).collect();
    ui::table(
        &["session", "time", "user", "target", "outcome", "statement"],
        rows,
        "No statement that you may see has these words.",
    )
}

/// One statement.
struct Found {
    session: String,
    time: String,
    user: String,
    login: String,
    database: String,
    statement: String,
    fields: Value,
}

impl Found {
    fn of(event: &Value) -> Self {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let fields = event.get("fields").cloned().unwrap_or_default();
        let statement = fields.get("statement").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            session: text("session_id"),
            time: text("time"),
            user: text("user"),
            login: text("login"),
            database: text("node"),
            statement,
            fields,
        }
    }

    /// The tag that the server gave, or why it did not.
    fn outcome(&self) -> String {
        if let Some(count) = self.fields.get("count").and_then(Value::as_u64) {
            return format!("{count} statements");
        }
        let text = |key: &str| {
            let value = self.fields.get(key).and_then(Value::as_str).unwrap_or_default();
            shorten(value, 40)
        };
        match text("sqlstate") {
            none if none.is_empty() => text("tag"),
            sqlstate => format!("error {sqlstate}"),
        }
    }

    /// For the table.
    fn row(&self, words: &str) -> Vec<String> {
        vec![
            self.session.clone(),
            ui::seconds(&self.time),
            self.user.clone(),
            format!("{}@{}", self.login, self.database),
            self.outcome(),
            shorten(&self.shown(words), 80),
        ]
    }

    /// On one line. Of several statements that share an event, those in whose text the words are.
    fn shown(&self, words: &str) -> String {
        let words = words.to_lowercase();
        let has_them = |line: &&str| {
            let line = line.to_lowercase();
            words.split_whitespace().all(|word| line.contains(word))
        };
        let several = self.fields.get("count").and_then(Value::as_u64).is_some_and(|count| count > 1);
        let lines: Vec<&str> = match several {
            true => self.statement.lines().filter(has_them).collect(),
            false => Vec::new(),
        };
        let text = if lines.is_empty() { self.statement.clone() } else { lines.join("; ") };
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> =
            text.split(['\n', '\r']).map(words).filter(|line| !line.is_empty()).collect();
        // On one line, what follows a comment would read as part of it.
        let commented = lines.iter().any(|line| line.contains("--"));
        lines.join(if commented { " \u{23ce} " } else { " " })
    }

    fn as_json(&self) -> Value {
        json!({
            "session_id": self.session, "time": self.time, "user": self.user, "login": self.login,
            "database": self.database, "statement": self.statement, "fields": self.fields,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_statements_those_are_shown_that_were_searched_for() {
        let event = |count: Value| json!({"node": "prod", "fields": {"statement": "select 1\nDelete  from orders\nselect 2", "count": count}});
        assert_eq!(Found::of(&event(json!(3))).shown("orders delete"), "Delete from orders");
        assert_eq!(Found::of(&event(json!(3))).outcome(), "3 statements");
        assert_eq!(Found::of(&event(Value::Null)).shown("orders"), "select 1 Delete from orders select 2");
        let timed = json!({"time": "2026-03-01T12:00:00.123456789Z"});
        assert_eq!(Found::of(&timed).row("")[1], "2026-03-01T12:00:00Z");
        let hidden = json!({"fields": {"statement": "select 1 -- it\rdrop table t\n\nwhere"}});
        assert_eq!(Found::of(&hidden).shown("drop"), "select 1 -- it \u{23ce} drop table t \u{23ce} where");
        let failed = json!({"fields": {"statement": "x", "sqlstate": "42601", "tag": ""}});
        assert_eq!(Found::of(&failed).outcome(), "error 42601");
    }
}
