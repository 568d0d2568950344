//! What callers may choose, checked: every method of the API has a row in docs/surface.md that names each field of its
//! request, who bounds it, and tests that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = "docs/surface.md";
const PROTOS: &str = "crates/wire/proto/sallyport/v1";
/// Where tests are.
const TESTS: [&str; 2] = ["crates", "interop"];

/// What the API's definition says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Api {
    /// `Service.Method`, with the name of its request.
    methods: BTreeMap<String, String>,
    /// Fields by message, those of a `oneof` among them, with their types.
    fields: BTreeMap<String, BTreeMap<String, String>>,
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    name: String,
    /// What stands in backticks in the column of fields.
    fields: BTreeSet<String>,
    bound: String,
    tests: BTreeSet<String>,
}

pub(crate) fn run() -> Result<(), String> {
    let mut api = Api::default();
    for path in files(Path::new(PROTOS), "proto")? {
        api.add(&read(&path)?);
    }
    let rows = rows(&read(Path::new(TABLE))?)?;
    let mut sources = Vec::new();
    for directory in TESTS {
        sources.extend(files(Path::new(directory), "rs")?);
    }
    let mut tests = BTreeSet::new();
    for path in sources {
        tests.extend(functions(&read(&path)?));
    }
    let problems = problems(&api, &rows, &tests);
    if problems.is_empty() {
        println!("{TABLE}: {} rows for {} methods", rows.len(), api.methods.len());
        return Ok(());
    }
    Err(format!("{TABLE} does not say what callers may choose:\n  {}", problems.join("\n  ")))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Files of a directory and those below it.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("cannot list {}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Api {
    fn add(&mut self, proto: &str) {
        let (mut service, mut message) = (String::new(), Vec::<String>::new());
        for line in proto.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if let Some(rest) = line.strip_prefix("service ") {
                service = name(rest);
            } else if let Some(rest) = line.strip_prefix("rpc ") {
                let request = rest.split_once('(').map(|(_, rest)| name(rest.trim_start_matches("stream ")));
                self.methods.insert(format!("{service}.{}", name(rest)), request.unwrap_or_default());
            } else if let Some(rest) = line.strip_prefix("message ") {
                let (head, body) = rest.split_once('{').unwrap_or((rest, ""));
                self.fields.entry(name(head)).or_default().extend(body.split(';').filter_map(field));
                if !body.contains('}') {
                    message.push(name(head));
                }
            } else if line.starts_with("oneof ") {
                // Its fields are those of the message.
                message.extend(message.last().cloned());
            } else if line.starts_with('}') {
                message.pop();
            } else if let (Some(within), Some(field)) = (message.last(), field(line)) {
                self.fields.entry(within.clone()).or_default().extend([field]);
            }
        }
    }
}

impl Api {
    /// What callers send, by the name of its row: each method's request under the method's, and what is in requests under its own.
    fn sent(&self) -> BTreeMap<&str, &str> {
        let mut sent: BTreeMap<&str, &str> =
            self.methods.iter().map(|(method, request)| (method.as_str(), request.as_str())).collect();
        let mut left: Vec<&str> = sent.values().copied().collect();
        while let Some(message) = left.pop() {
            for of in self.fields.get(message).into_iter().flat_map(BTreeMap::values) {
                if self.fields.contains_key(of) && sent.insert(of, of).is_none() {
                    left.push(of);
                }
            }
        }
        sent
    }
}

/// The first name of a text.
fn name(text: &str) -> String {
    text.trim().chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

/// Name and type of `TYPE NAME = NUMBER`; of a map, the type of its values.
fn field(line: &str) -> Option<(String, String)> {
    let (head, number) = line.split_once('=')?;
    let is_number = number.trim().trim_end_matches([';', '}', ' ']).parse::<u32>().is_ok();
    let mut words = head.split_whitespace().rev();
    let (last, of) = (words.next()?, words.next()?);
    is_number.then(|| (last.to_owned(), of.trim_end_matches('>').to_owned()))
}

/// The rows of every table of five columns: name, who may, fields, who bounds them, tests.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(cells) = line.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else {
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        let [what, _, fields, bound, tests] = cells.as_slice() else {
            return Err(format!("{TABLE}:{}: a row has {} columns, and wants 5", at + 1, cells.len()));
        };
        if what.chars().all(|letter| "-: ".contains(letter)) || *what == "what" {
            continue;
        }
        rows.push(Row {
            line: at + 1,
            name: what.trim_matches('`').to_owned(),
            fields: quoted(fields),
            bound: (*bound).to_owned(),
            tests: quoted(tests),
        });
    }
    Ok(rows)
}

/// What stands in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Names of the functions in a source.
fn functions(source: &str) -> impl Iterator<Item = String> + '_ {
    source.split("fn ").skip(1).map(name).filter(|name| !name.is_empty())
}

fn problems(api: &Api, rows: &[Row], tests: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let named: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let sent = api.sent();
    let missing = sent.keys().filter(|name| !named.contains(*name));
    problems.extend(missing.map(|name| format!("{name} has no row")));
    for row in rows {
        let place = format!("line {}, {}", row.line, row.name);
        if let Some(message) = sent.get(row.name.as_str()) {
            let fields = api.fields.get(*message).into_iter().flat_map(BTreeMap::keys);
            let known: BTreeSet<String> = fields.cloned().collect();
            for field in known.difference(&row.fields) {
                problems.push(format!("{place}: nothing is said of `{field}`"));
            }
            for field in row.fields.difference(&known) {
                problems.push(format!("{place}: it has no `{field}`"));
            }
        } else if row.name.split_once('.').is_some_and(|(service, _)| {
            api.methods
                .keys()
                .any(|method| method.strip_prefix(service).is_some_and(|rest| rest.starts_with('.')))
        }) {
            problems.push(format!("{place}: there is no such method"));
        }
        if row.bound.is_empty() {
            problems.push(format!("{place}: who bounds what it chooses?"));
        }
        if row.tests.is_empty() {
            problems.push(format!("{place}: no test is named"));
        }
        for test in row.tests.iter().filter(|test| !tests.contains(*test)) {
            problems.push(format!("{place}: there is no test `{test}`"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO: &str = "
        service Login { // people
          // says hello
          rpc Ping(PingRequest) returns (PingResponse);
          rpc Say(stream SayRequest) returns (SayResponse);
        }
        message PingRequest { string token = 1; }
        message SayRequest {
          // Words = 3.
          repeated string words = 1;
          oneof frame {
            bytes data = 2;
          }
          map<string, Word> more = 4;
        }
        message Word { string text = 1; }";

    fn api() -> Api {
        let mut api = Api::default();
        api.add(PROTO);
        api
    }

    fn found(table: &str) -> Vec<String> {
        problems(&api(), &rows(table).unwrap(), &BTreeSet::from(["steals".to_owned()]))
    }

    #[test]
    fn methods_and_fields_are_read() {
        let api = api();
        assert_eq!(api.methods["Login.Say"], "SayRequest");
        assert_eq!(api.methods.len(), 2);
        let fields =
            |message: &str| api.fields[message].keys().map(String::as_str).collect::<Vec<_>>().join(" ");
        assert_eq!(fields("PingRequest"), "token");
        assert_eq!(fields("SayRequest"), "data more words");
        assert_eq!(api.sent().into_keys().collect::<Vec<_>>(), ["Login.Ping", "Login.Say", "Word"]);
    }

    #[test]
    fn a_table_that_leaves_something_out_is_refused() {
        let whole = "| what | who | chooses | bounds | tests |\n|---|---|---|---|---|\n\
             | `Login.Ping` | all | `token` | its hash | `steals` |\n\
             | `Login.Say` | all | `words`, `data`, `more` | nothing is kept | `steals` |\n\
             | `Word` | all | `text` | its length | `steals` |\n";
        assert_eq!(found(whole), Vec::<String>::new());
        let changed = |from: &str, to: &str| found(&whole.replace(from, to)).join("\n");
        assert!(
            changed("`Login.Ping` | all | `token` | its hash | `steals` |\n| ", "")
                .contains("Login.Ping has no row")
        );
        assert!(changed("`words`, ", "").contains("nothing is said of `words`"));
        assert!(changed("`words`", "`words`, `other`").contains("it has no `other`"));
        assert!(changed("its hash", "").contains("who bounds"));
        assert!(changed("its hash | `steals`", "its hash | none").contains("no test is named"));
        assert!(changed("its hash | `steals`", "its hash | `gone`").contains("no test `gone`"));
        assert!(changed("Login.Say", "Login.Sing").contains("no such method"));
        assert!(rows("| a | b |\n").is_err());
    }
}
