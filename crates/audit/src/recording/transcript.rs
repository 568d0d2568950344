//! Sessions with databases as people read them: what was asked and how it went, as if psql had shown it.

use std::collections::HashMap;
use std::time::Duration;

use super::database::{DatabaseFrame, Parameter, Statement};
use super::frame::{Body, Exit, Frame, SessionMetadata};

/// How a transcript looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Text, a prompt before each statement.
    Plain,
    /// The same with colours and with ends of lines as a raw terminal wants them.
    Terminal,
    /// A script: statements, and everything else in comments.
    Sql,
}

/// Most statements that are remembered by name or number. A session that has more forgets them, and what follows is shown
/// by its name alone.
const MOST_REMEMBERED: usize = 10_000;

const RED: &str = "31";
const YELLOW: &str = "33";
const DIM: &str = "2";

/// Turns the frames of one session into text, one after the other.
#[derive(Debug)]
pub struct Transcript {
    look: Look,
    /// The name of the database, for the prompt.
    name: String,
    prepared: HashMap<String, Statement>,
    bound: HashMap<String, Bound>,
    /// What was sent and is shown only when it runs, or fails before that.
    unseen: HashMap<u64, Shown>,
    /// The statement above.
    last: u64,
}

/// A portal.
#[derive(Debug, Clone, Default)]
struct Bound {
    statement: String,
    count: u16,
    parameters: Option<Vec<Parameter>>,
}

/// A statement and what was put in.
#[derive(Debug, Clone)]
struct Shown {
    statement: Statement,
    remark: Option<String>,
}

impl Transcript {
    /// A fresh one.
    #[must_use]
    pub fn new(look: Look) -> Self {
        Self {
            look,
            name: "db".to_owned(),
            prepared: HashMap::new(),
            bound: HashMap::new(),
            unseen: HashMap::new(),
            last: 0,
        }
    }

    /// Whether a recording that begins so is one of a session with a database.
    #[must_use]
    pub fn is_for(frame: &Frame) -> bool {
        matches!(&frame.body, Body::Start(metadata) if metadata.kind == "db")
    }

    /// The text of one frame; empty for what is not shown.
    pub fn frame(&mut self, frame: &Frame) -> String {
        let text = match &frame.body {
            Body::Start(metadata) => self.start(metadata),
            Body::Database(body) => self.body(body, frame.at),
            Body::Note { text } => self.remark(YELLOW, &one_line(text)),
            Body::Exit(Exit::Cut(why)) => {
                self.remark(RED, &format!("cut off after {}: {}", seconds(frame.at), one_line(why)))
            }
            Body::Exit(_) => self.remark(DIM, &format!("ended after {}", seconds(frame.at))),
            _ => String::new(),
        };
        if self.look == Look::Terminal { text.replace('\n', "\r\n") } else { text }
    }

    fn start(&mut self, metadata: &SessionMetadata) -> String {
        let name = metadata.command.as_deref().unwrap_or(&metadata.node);
        self.name = one_line(name);
        let application =
            metadata.application.as_deref().map(|by| format!(" with {}", one_line(by))).unwrap_or_default();
        let started = metadata.started.replace_nanosecond(0).unwrap_or(metadata.started);
        let line = format!(
            "{} as {} on {}, database {}{application}, {}",
            one_line(&metadata.user),
            one_line(&metadata.login),
            one_line(&metadata.node),
            self.name,
            started.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
        );
        self.remark(DIM, &line)
    }

    fn body(&mut self, body: &DatabaseFrame, at: Duration) -> String {
        match body {
            DatabaseFrame::Query { number, statement } => {
                self.statement(*number, &Shown { statement: statement.clone(), remark: None }, at)
            }
            DatabaseFrame::Parse { number, name, statement } => {
                make_room(&mut self.prepared);
                self.prepared.insert(name.clone(), statement.clone());
                self.sent(*number, Shown { statement: statement.clone(), remark: None });
                String::new()
            }
            DatabaseFrame::Bind { number, portal, statement, count, parameters } => {
                make_room(&mut self.bound);
                let bound =
                    Bound { statement: statement.clone(), count: *count, parameters: parameters.clone() };
                self.bound.insert(portal.clone(), bound);
                let shown = self.shown(portal);
                self.sent(*number, shown);
                String::new()
            }
            DatabaseFrame::Execute { number, portal, .. } => {
                let shown = self.shown(portal);
                self.unseen.clear();
                self.statement(*number, &shown, at)
            }
            DatabaseFrame::FunctionCall { number, function, count, parameters } => {
                let remark = Some(values(*count, parameters.as_deref()));
                let text = format!("-- function call {function}");
                let statement = Statement { text, ..Statement::default() };
                self.statement(*number, &Shown { statement, remark }, at)
            }
            DatabaseFrame::Result { of, tag, rows, bytes, took_us } => {
                let tag = if tag.is_empty() { "(more rows follow)".to_owned() } else { one_line(tag) };
                let rows = match rows {
                    0 => String::new(),
                    1 => format!("1 row, {}, ", size(*bytes)),
                    rows => format!("{rows} rows, {}, ", size(*bytes)),
                };
                let line = format!("{}{tag} ({rows}{})", self.which(*of), milliseconds(*took_us));
                self.remark(DIM, &line)
            }
            DatabaseFrame::Copy { of, into, bytes } => {
                let way = if *into { "into the database" } else { "out of the database" };
                let line = format!("{}copied {} {way}", self.which(*of), size(*bytes));
                self.remark(DIM, &line)
            }
            DatabaseFrame::Error { of, severity, sqlstate, message, took_us } => {
                let shown = of.and_then(|of| self.unseen.remove(&of).map(|shown| (of, shown)));
                let above = shown.map(|(of, shown)| self.statement(of, &shown, at)).unwrap_or_default();
                let which = of.map(|of| self.which(of)).unwrap_or_default();
                let line = format!(
                    "{which}{}:  {} [{}] ({})",
                    one_line(severity),
                    one_line(message),
                    one_line(sqlstate),
                    milliseconds(*took_us)
                );
                above + &self.remark(RED, &line)
            }
            DatabaseFrame::Notice { severity, message, .. } => {
                self.remark(YELLOW, &format!("{}:  {}", one_line(severity), one_line(message)))
            }
            DatabaseFrame::Notify { process, channel, payload } => {
                let payload =
                    if payload.is_empty() { String::new() } else { format!(" with {:?}", one_line(payload)) };
                let line =
                    format!("notification on {}{payload} from server process {process}", one_line(channel));
                self.remark(YELLOW, &line)
            }
            DatabaseFrame::CopyFail { reason } => {
                self.remark(RED, &format!("the client gave up the copy: {}", one_line(reason)))
            }
            DatabaseFrame::Malformed { client, problem } => {
                let who = if *client { "the client" } else { "the server" };
                self.remark(RED, &format!("{who} sent what is not the protocol: {}", one_line(problem)))
            }
            DatabaseFrame::Refused { sqlstate, message } => {
                self.remark(RED, &format!("FATAL:  {} [{}]", one_line(message), one_line(sqlstate)))
            }
            DatabaseFrame::Describe { .. } => String::new(),
            DatabaseFrame::Close { portal, name, .. } => {
                if *portal {
                    self.bound.remove(name);
                } else {
                    self.prepared.remove(name);
                }
                String::new()
            }
        }
    }

    fn sent(&mut self, number: u64, shown: Shown) {
        make_room(&mut self.unseen);
        self.unseen.insert(number, shown);
    }

    /// What a portal runs.
    fn shown(&self, portal: &str) -> Shown {
        let bound = self.bound.get(portal).cloned().unwrap_or_default();
        let statement = self.prepared.get(&bound.statement).cloned().unwrap_or_else(|| Statement {
            text: format!(
                "-- the statement {:?}, which was prepared out of sight",
                one_line(&bound.statement)
            ),
            ..Statement::default()
        });
        let remark = (bound.count > 0).then(|| values(bound.count, bound.parameters.as_deref()));
        Shown { statement, remark }
    }

    fn statement(&mut self, number: u64, shown: &Shown, at: Duration) -> String {
        self.last = number;
        let Shown { statement, remark } = shown;
        let text = lines(&statement.text);
        let cut = statement.bytes.map(|bytes| {
            let hash = statement.sha256.as_deref().map(|hash| format!(", SHA-256 {}", one_line(hash)));
            format!("the first {} of {bytes} bytes{}", statement.text.len(), hash.unwrap_or_default())
        });
        let mut written = String::new();
        match self.look {
            Look::Sql => {
                written.push_str(&format!("\n-- at {}\n", seconds(at)));
                for remark in remark.iter().chain(&cut) {
                    written.push_str(&format!("-- {remark}\n"));
                }
                if cut.is_some() {
                    // Half a statement is not to be run.
                    text.lines().for_each(|line| written.push_str(&format!("-- {line}\n")));
                } else {
                    written.push_str(&ended(&text));
                }
            }
            Look::Plain | Look::Terminal => {
                let mut lines = text.lines();
                let first = lines.next().unwrap_or_default();
                written.push_str(&format!("{}=> {first}\n", self.name));
                lines.for_each(|line| written.push_str(&format!("{}-> {line}\n", self.name)));
                for more in remark.iter().chain(&cut) {
                    written.push_str(&self.remark(DIM, &format!("-- {more}")));
                }
            }
        }
        written
    }

    /// Names the statement of an answer that does not follow it, as when several are sent at once.
    fn which(&mut self, of: u64) -> String {
        if of == self.last {
            return String::new();
        }
        format!("[message {of}] ")
    }

    /// One line that is no statement.
    fn remark(&self, colour: &str, line: &str) -> String {
        match self.look {
            Look::Plain => format!("{line}\n"),
            Look::Terminal => format!("\u{1b}[{colour}m{line}\u{1b}[0m\n"),
            Look::Sql => format!("-- {line}\n"),
        }
    }
}

fn make_room<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= MOST_REMEMBERED {
        map.clear();
    }
}

/// `$1 = 'a', $2 = NULL`; or how many there are, where their values are not on record.
fn values(count: u16, parameters: Option<&[Parameter]>) -> String {
    let Some(parameters) = parameters else {
        return match count {
            1 => "1 parameter, not recorded".to_owned(),
            count => format!("{count} parameters, not recorded"),
        };
    };
    let value = |parameter: &Parameter| match parameter {
        Parameter::Null => "NULL".to_owned(),
        Parameter::Text(text) => format!("'{}'", one_line(text).replace('\'', "''")),
        Parameter::Binary(hex) => format!("\\x{}", one_line(hex)),
    };
    let all = parameters.iter().enumerate().map(|(index, one)| format!("${} = {}", index + 1, value(one)));
    all.collect::<Vec<_>>().join(", ")
}

/// A statement as part of a script.
fn ended(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(';') {
        return format!("{text}\n");
    }
    // Behind a comment, the end of the statement would belong to it.
    let commented = text.lines().next_back().is_some_and(|last| last.contains("--"));
    if commented { format!("{text}\n;\n") } else { format!("{text};\n") }
}

/// Without control characters: what comes from a session must not act on the terminal of whoever reads about it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same, but lines stay lines.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn seconds(at: Duration) -> String {
    format!("{:.3} s", at.as_secs_f64())
}

fn milliseconds(micros: u64) -> String {
    let took = Duration::from_micros(micros);
    format!("{:.3} ms", took.as_secs_f64() * 1000.0)
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut amount = Duration::from_secs(bytes).as_secs_f64();
    let mut unit = "";
    for larger in UNITS {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = larger;
    }
    format!("{amount:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use sallyport_access::SessionId;
    use time::macros::datetime;

    use super::*;

    fn statement(text: &str) -> Statement {
        Statement { text: text.to_owned(), ..Statement::default() }
    }

    fn frames() -> Vec<Body> {
        let metadata = SessionMetadata {
            session_id: SessionId::new(),
            cluster: "demo.test".into(),
            user: "alice".into(),
            login: "app".into(),
            node: "prod".into(),
            node_id: String::new(),
            source: String::new(),
            started: datetime!(2026-03-01 12:00:00.25 UTC),
            kind: "db".into(),
            command: Some("shop".into()),
            term: None,
            size: None,
            application: Some("psql".into()),
        };
        let database = |frame| Body::Database(Box::new(frame));
        let bind = DatabaseFrame::Bind {
            number: 3,
            portal: String::new(),
            statement: "s1".into(),
            count: 2,
            parameters: Some(vec![Parameter::Text("it's".into()), Parameter::Null]),
        };
        let error = |of, message: &str| DatabaseFrame::Error {
            of: Some(of),
            severity: "ERROR".into(),
            sqlstate: "42601".into(),
            message: message.into(),
            took_us: 1500,
        };
        let result = |of, tag: &str, rows| {
            database(DatabaseFrame::Result { of, tag: tag.into(), rows, bytes: rows * 1000, took_us: 2250 })
        };
        vec![
            Body::Start(Box::new(metadata)),
            database(DatabaseFrame::Query {
                number: 1,
                statement: statement("select *\nfrom t -- all\u{1b}[2J"),
            }),
            result(1, "SELECT 3", 3),
            database(DatabaseFrame::Parse {
                number: 2,
                name: "s1".into(),
                statement: statement("select $1, $2;"),
            }),
            database(bind),
            database(DatabaseFrame::Execute { number: 4, portal: String::new(), rows: 0 }),
            result(4, "SELECT 1", 1),
            database(DatabaseFrame::Parse { number: 5, name: String::new(), statement: statement("selec") }),
            database(error(5, "syntax error\nat \"selec\"")),
            database(DatabaseFrame::Query {
                number: 6,
                statement: Statement { text: "insert".into(), bytes: Some(9000), sha256: Some("ab".into()) },
            }),
            database(DatabaseFrame::Copy { of: 6, into: true, bytes: 5 << 20 }),
            result(5, "INSERT 0 1", 0),
            Body::Exit(Exit::Cut("locked".into())),
        ]
    }

    fn transcript(look: Look) -> String {
        let mut transcript = Transcript::new(look);
        let at = Duration::from_millis(1500);
        frames().into_iter().map(|body| transcript.frame(&Frame { at, body })).collect()
    }

    #[test]
    fn it_reads_like_a_terminal() {
        assert_eq!(
            transcript(Look::Plain),
            "alice as app on prod, database shop with psql, 2026-03-01T12:00:00Z\n\
             shop=> select *\n\
             shop-> from t -- all\u{fffd}[2J\n\
             SELECT 3 (3 rows, 2.9 KiB, 2.250 ms)\n\
             shop=> select $1, $2;\n\
             -- $1 = 'it''s', $2 = NULL\n\
             SELECT 1 (1 row, 1000 bytes, 2.250 ms)\n\
             shop=> selec\n\
             ERROR:  syntax error\u{fffd}at \"selec\" [42601] (1.500 ms)\n\
             shop=> insert\n\
             -- the first 6 of 9000 bytes, SHA-256 ab\n\
             copied 5.0 MiB into the database\n\
             [message 5] INSERT 0 1 (2.250 ms)\n\
             cut off after 1.500 s: locked\n"
        );
        let terminal = transcript(Look::Terminal);
        assert!(terminal.contains("\r\n\u{1b}[31mERROR:  syntax"), "{terminal:?}");
        assert_eq!(terminal.matches('\n').count(), terminal.matches("\r\n").count());
    }

    #[test]
    fn a_script_has_the_statements_and_the_rest_in_comments() {
        let script = transcript(Look::Sql);
        assert!(
            script.contains("\n-- at 1.500 s\nselect *\nfrom t -- all\u{fffd}[2J\n;\n-- SELECT 3 ("),
            "{script}"
        );
        assert!(script.contains("-- $1 = 'it''s', $2 = NULL\nselect $1, $2;\n"), "{script}");
        assert!(script.contains("-- the first 6 of 9000 bytes, SHA-256 ab\n-- insert\n"), "{script}");
        let run: Vec<&str> =
            script.lines().filter(|line| !line.starts_with("--") && !line.is_empty()).collect();
        assert_eq!(run, ["select *", "from t -- all\u{fffd}[2J", ";", "select $1, $2;", "selec;"]);
    }

    #[test]
    fn only_sessions_with_databases_are_shown_so() {
        let start = frames().into_iter().next().unwrap();
        assert!(Transcript::is_for(&Frame { at: Duration::ZERO, body: start }));
        let note = Body::Note { text: "gap".into() };
        assert!(!Transcript::is_for(&Frame { at: Duration::ZERO, body: note }));
    }
}
