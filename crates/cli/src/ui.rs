//! Output: data on stdout, talk on stderr, tables for people and JSON for programs.
//!
//! Here text leaves for a terminal, and here it loses whatever steers one ([`sallyport_access::text`]): servers, proxies, nodes
//! and other users have a word in most of it. What is written by [`raw`] is meant to steer: it is what a program on a node says.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use sallyport_access::text::{self, Foreign};
use serde::Serialize;

use crate::error::{CliError, CliResult, Context};

pub use sallyport_client::times::{duration, parse_duration, timestamp};

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
    write_stdout(text::lines(line.as_ref()).as_bytes(), true)
}

/// Writes a document, whose every character counts: as it is to a file or a program, and as [`data`] to a terminal.
pub fn document(text: impl AsRef<str>) -> CliResult {
    if io::stdout().is_terminal() { data(text) } else { write_stdout(text.as_ref().as_bytes(), true) }
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
    let line = text::lines(&format!("{}\n", line.as_ref()));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Where the log goes when it goes to standard error: it tells what peers say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(text::lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> CliResult {
    json_text(&serde_json::to_string_pretty(value).doing("encode JSON")?)
}

/// Prints JSON that is encoded already. Of what steers a terminal, JSON itself escapes no more than the oldest control
/// characters (RFC 8259 §7); the others are escaped here, which changes no value.
pub fn json_text(encoded: &str) -> CliResult {
    data(escaped(encoded))
}

fn escaped(encoded: &str) -> String {
    let mut text = String::with_capacity(encoded.len());
    for c in encoded.chars() {
        if text::steers(c) && c != '\n' {
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
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
        table.add_row(row.into_iter().map(|cell| String::from(Foreign::new(cell))));
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
    rpassword::prompt_password(format!("{}: ", Foreign::new(prompt))).doing("read the password")
}

/// One line of standard input, without its end.
pub fn line_from_stdin(what: &str) -> CliResult<String> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).doing("read standard input")?;
    if read == 0 {
        return Err(CliError::new(format!("standard input ended before {what} was read")));
    }
    // In place: a password leaves no copy.
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok(line)
}

/// Asks on the terminal and returns the answer.
pub fn ask(question: &str) -> CliResult<String> {
    {
        let mut err = io::stderr().lock();
        let _ = err.write_all(text::lines(question).as_bytes());
        let _ = err.flush();
    }
    line_from_stdin("an answer")
}

/// Whether a person can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The first characters, on one line, free of control characters that could act on the terminal.
pub fn shorten(text: &str, limit: usize) -> String {
    let mut line: String = text.chars().take(limit).collect();
    line = Foreign::new(line).into();
    if text.chars().nth(limit).is_some() {
        line.push('…');
    }
    line
}

/// `1 record`, `2 records`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The time of an event, RFC 3339, cut to seconds.
pub fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

/// `12.3 MiB`.
pub fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_values_in_json_are_what_they_were_and_steer_nothing() {
        let value = serde_json::json!({ "name": "a\u{9b}31m\u{202e}\u{e0041}\n\u{1b}[2J" });
        let shown = escaped(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!shown.chars().any(|c| text::steers(c) && c != '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
