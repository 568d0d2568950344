//! Output: data on stdout, talk on stderr, tables for people and JSON for programs.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::{CliError, CliResult, Context};

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes one line of data. A reader that has gone away (`| head`) ends the program quietly.
pub fn data(line: impl AsRef<str>) -> CliResult {
    write_stdout(line.as_ref().as_bytes(), true)
}

/// Writes data as it is.
pub fn raw(bytes: &[u8]) -> CliResult {
    write_stdout(bytes, false)
}

fn write_stdout(bytes: &[u8], newline: bool) -> CliResult {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(bytes)
        .and_then(|()| if newline { out.write_all(b"\n") } else { Ok(()) })
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.doing("write to standard output"),
    }
}

/// Writes one line of talk. Failing to talk is never an error.
pub fn say(line: impl AsRef<str>) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(line.as_ref().as_bytes()).and_then(|()| err.write_all(b"\n"));
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> CliResult {
    data(serde_json::to_string_pretty(value).doing("encode JSON")?)
}

/// Prints rows under headings; nothing but a note on stderr when there are none.
pub fn table(headings: &[&str], rows: Vec<Vec<String>>, none: &str) -> CliResult {
    if rows.is_empty() {
        say(none);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for line in table.lines() {
        // Every cell has a blank before it; more of them are those of an empty first cell, and keep the columns.
        data(line.strip_prefix(' ').unwrap_or(&line).trim_end())?;
    }
    Ok(())
}

/// A password from the terminal, not echoed, or the first line of standard input.
pub fn password(prompt: &str, from_stdin: bool) -> CliResult<String> {
    if from_stdin {
        return line_from_stdin("a password");
    }
    if !io::stdin().is_terminal() {
        return Err(CliError::new("no terminal to ask for a password on")
            .hint("pass --password-stdin and write the password to standard input"));
    }
    rpassword::prompt_password(format!("{prompt}: ")).doing("read the password")
}

/// One line of standard input, without its end.
pub fn line_from_stdin(what: &str) -> CliResult<String> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).doing("read standard input")?;
    if read == 0 {
        return Err(CliError::new(format!("standard input ended before {what} was read")));
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Asks on the terminal and returns the answer.
pub fn ask(question: &str) -> CliResult<String> {
    {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question}");
        let _ = err.flush();
    }
    line_from_stdin("an answer")
}

/// Whether a person can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// `2026-03-01T12:00:00Z`.
pub fn timestamp(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

/// `1h 20m`, `45s`, `12d 3h`: the two largest units.
pub fn duration(span: time::Duration) -> String {
    let seconds = span.whole_seconds().max(0);
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let text: Vec<String> = parts
        .iter()
        .skip_while(|(amount, _)| *amount == 0)
        .take(2)
        .filter(|(amount, _)| *amount > 0)
        .map(|(amount, unit)| format!("{amount}{unit}"))
        .collect();
    if text.is_empty() { "0s".to_owned() } else { text.join(" ") }
}

/// `12.3 MiB`.
pub fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

/// Parses `90s`, `15m`, `8h`, `7d`, and sums such as `1h30m`.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let bad = || format!("{text:?} is not a duration; examples: 90s, 15m, 8h, 1h30m, 7d");
    let mut total: u64 = 0;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit: u64 = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        let amount: u64 = number.parse().map_err(|_| bad())?;
        number.clear();
        total = amount.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
    }
    if !number.is_empty() || text.is_empty() {
        return Err(bad());
    }
    Ok(std::time::Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        assert_eq!(parse_duration("1h30m").unwrap().as_secs(), 5400);
        assert_eq!(parse_duration("90s").unwrap().as_secs(), 90);
        for bad in ["", "5", "h", "1w", "1.5h", "-1h", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration(time::Duration::seconds(5400)), "1h 30m");
        assert_eq!(duration(time::Duration::seconds(0)), "0s");
        assert_eq!(duration(time::Duration::days(12) + time::Duration::minutes(5)), "12d");
    }
}
