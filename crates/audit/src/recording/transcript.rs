//! Sessions with databases as people read them: what was asked and how it went, as if psql had shown it.

mod following;
mod live;
mod missed;
mod unit;
pub(super) mod words;

use std::sync::Arc;
use std::time::Duration;

use super::database::{DatabaseFrame, Parameter, Statement, Transaction};
use super::frame::{Body, Exit, Frame, SessionMetadata};
use super::sql::Answers;
use following::{BEHIND, Following, Said, Shown, Went, What, key};
use missed::Missed;
use unit::{GAP, NoneWaits, Released, UNHEARD, Unit};
use words::{PASSED_OVER, lines, milliseconds, one_line, seconds, size};

/// How a transcript looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Text, a prompt before each statement.
    Plain,
    /// The same with colours and with ends of lines as a raw terminal wants them.
    Terminal,
    /// A script: statements that the server has completed, and everything else in comments.
    Sql,
}

const RED: &str = "31";
const YELLOW: &str = "33";
const DIM: &str = "2";

/// Turns the frames of one session into text, one after the other.
#[derive(Debug)]
pub struct Transcript {
    look: Look,
    /// The name of the database, for the prompt.
    name: String,
    following: Following,
    /// What was run of a transaction whose end is not known; a script waits for that.
    unit: Unit,
    /// What a script has left out since it said so.
    missed: Missed,
    /// The statement above.
    last: u64,
}

impl Transcript {
    /// A fresh one.
    #[must_use]
    pub fn new(look: Look) -> Self {
        let following = Following::default();
        let (unit, missed) = (Unit::default(), Missed::default());
        Self { look, name: "db".to_owned(), following, unit, missed, last: 0 }
    }

    /// Whether a recording that begins so is one of a session with a database.
    #[must_use]
    pub fn is_for(frame: &Frame) -> bool {
        matches!(&frame.body, Body::Start(metadata) if metadata.kind == "db")
    }

    /// The text of one frame; empty for what is not shown, or not yet.
    pub fn frame(&mut self, frame: &Frame) -> String {
        let text = match &frame.body {
            Body::Start(metadata) => self.start(metadata),
            Body::Database(body) => self.body(body, frame.at),
            Body::Note { text } => {
                self.following.gap();
                let released = self.unit.loses(GAP);
                let before = self.released(released);
                self.missed.gap();
                before + &self.below(YELLOW, one_line(text))
            }
            Body::Exit(exit) => {
                let mut text = self.rest();
                text += &match exit {
                    Exit::Cut(why) => {
                        let line = format!("cut off after {}: {}", seconds(frame.at), one_line(why));
                        self.remark(RED, &line)
                    }
                    _ => self.remark(DIM, &format!("ended after {}", seconds(frame.at))),
                };
                text
            }
            _ => String::new(),
        };
        self.ends_of_lines(text)
    }

    /// What was not shown yet, when no more frames come.
    pub fn finish(&mut self) -> String {
        let text = self.rest();
        self.ends_of_lines(text)
    }

    fn ends_of_lines(&self, text: String) -> String {
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
                self.says(*number, at, What::Query(Arc::new(statement.clone())))
            }
            DatabaseFrame::Parse { number, name, statement } => {
                let statement = Arc::new(statement.clone());
                self.says(*number, at, What::Parse { name: key(name), statement })
            }
            DatabaseFrame::Bind { number, portal, statement, count, parameters, doubtful } => {
                let shown = Shown {
                    name: statement.clone(),
                    count: *count,
                    parameters: parameters.as_deref().map(Arc::from),
                    doubt: doubtful.then_some(BEHIND),
                    ..Shown::default()
                };
                self.says(*number, at, What::Bind { portal: key(portal), statement: key(statement), shown })
            }
            DatabaseFrame::Execute { number, portal, .. } => {
                self.says(*number, at, What::Execute { portal: key(portal) })
            }
            DatabaseFrame::Describe { number, .. } => self.says(*number, at, What::Describe),
            DatabaseFrame::Close { number, portal, name } => {
                self.says(*number, at, What::Close { portal: *portal, name: key(name) })
            }
            DatabaseFrame::FunctionCall { number, function, count, parameters } => {
                let text = format!("-- function call {function}");
                let statement = Some(Arc::new(Statement { text, ..Statement::default() }));
                let parameters = parameters.as_deref().map(Arc::from);
                let shown = Shown { statement, count: *count, parameters, calls: true, ..Shown::default() };
                self.says(*number, at, What::Function(shown))
            }
            DatabaseFrame::Result { of, tag, rows, bytes, took_us } => {
                let shown = match self.following.waiting(*of) {
                    _ if !tag.is_empty() => one_line(tag),
                    Some(What::Function(_)) => format!("(the function returned {})", size(*bytes)),
                    Some(What::Query(_)) => "(an empty query)".to_owned(),
                    _ => "(more rows follow)".to_owned(),
                };
                let rows = match rows {
                    0 => String::new(),
                    1 => format!("1 row, {}, ", size(*bytes)),
                    rows => format!("{rows} rows, {}, ", size(*bytes)),
                };
                let line = format!("{shown} ({rows}{})", milliseconds(*took_us));
                self.result(*of, tag, line)
            }
            DatabaseFrame::Copy { of, into, bytes } => {
                let way = if *into { "into the database" } else { "out of the database" };
                self.answer(*of, DIM, format!("copied {} {way}", size(*bytes)))
            }
            DatabaseFrame::Error { of, severity, sqlstate, message, took_us } => {
                let line = format!(
                    "{}:  {} [{}] ({})",
                    one_line(severity),
                    one_line(message),
                    one_line(sqlstate),
                    milliseconds(*took_us)
                );
                match of {
                    Some(of) => self.fails(*of, line),
                    None => self.below(RED, line),
                }
            }
            DatabaseFrame::Ready { of, transaction } => {
                let text = self.settles(of.saturating_add(1));
                if *transaction == Transaction::None {
                    self.following.ends_portals();
                }
                let released = self.unit.ready(*transaction);
                text + &self.released(released)
            }
            DatabaseFrame::Encoding { name } => {
                self.following.reads_otherwise();
                self.below(YELLOW, format!("from here on text is read in {}", one_line(name)))
            }
            DatabaseFrame::Notice { severity, message, .. } => {
                self.below(YELLOW, format!("{}:  {}", one_line(severity), one_line(message)))
            }
            DatabaseFrame::Notify { process, channel, payload } => {
                let payload =
                    if payload.is_empty() { String::new() } else { format!(" with {:?}", one_line(payload)) };
                let line =
                    format!("notification on {}{payload} from server process {process}", one_line(channel));
                self.below(YELLOW, line)
            }
            DatabaseFrame::CopyFail { reason } => {
                self.below(RED, format!("the client gave up the copy: {}", one_line(reason)))
            }
            DatabaseFrame::Malformed { client, problem } => {
                let who = if *client { "the client" } else { "the server" };
                self.below(RED, format!("{who} sent what is not the protocol: {}", one_line(problem)))
            }
            DatabaseFrame::Refused { sqlstate, message } => {
                self.below(RED, format!("FATAL:  {} [{}]", one_line(message), one_line(sqlstate)))
            }
        }
    }

    /// The client has said something.
    fn says(&mut self, number: u64, at: Duration, what: What) -> String {
        let unheard = self.following.says(number, at, what);
        if !unheard.is_empty() {
            return unheard.into_iter().map(|said| self.unheard(said)).collect();
        }
        if self.look == Look::Sql || !self.following.is_certain() {
            return String::new();
        }
        let shown = self.following.last_expected();
        let Some(mut said) = self.following.said.pop_back() else { return String::new() };
        said.shown = shown;
        let text = self.written(&mut said);
        self.following.said.push_back(said);
        text
    }

    /// A message of which nothing more is heard: the server passes it over, or too many wait behind it.
    fn unheard(&mut self, unheard: Said) -> String {
        let followed = unheard.went == Went::PassedOver;
        let mut text = match unheard.what.runs() {
            true if followed => self.done(unheard),
            true => self.holds(unheard, false),
            false => String::new(),
        };
        if !followed {
            self.following.gap();
            let released = self.unit.loses(UNHEARD);
            text += &self.released(released);
        }
        text
    }

    /// A line about the message that the server is at.
    fn answer(&mut self, of: u64, colour: &'static str, line: String) -> String {
        let mut text = self.settles(of);
        match self.following.answered(of) {
            Some(said) if self.look == Look::Sql => {
                said.below.push(colour, line);
                if said.below.is_full() { text + &self.overflows() } else { text }
            }
            Some(said) => {
                if !std::mem::replace(&mut said.written, true) {
                    let (number, at, shown) = (said.number, said.at, said.shown.clone());
                    text += &self.statement(number, at, &shown, Went::Open, &Answers::default());
                }
                let which = self.which(of);
                text + &self.remark(colour, &format!("{which}{line}"))
            }
            None => {
                let which = self.which(of);
                text + &self.below(colour, format!("{which}{line}"))
            }
        }
    }

    fn result(&mut self, of: u64, tag: &str, line: String) -> String {
        let mut text = self.answer(of, DIM, line);
        let Some(said) = self.following.answered(of) else {
            let released = self.unit.loses(UNHEARD);
            return text + &self.released(released);
        };
        said.answers.push(tag);
        match (tag, &said.what) {
            ("", What::Execute { .. }) => said.went = Went::Suspended,
            _ => said.went = Went::Well,
        }
        if matches!(said.what, What::Execute { .. }) {
            for said in self.following.before(of + 1) {
                text += &self.holds(said, false);
            }
            if matches!(tag, "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION") {
                self.following.ends_portals();
            }
        }
        text
    }

    fn fails(&mut self, of: u64, line: String) -> String {
        let mut text = self.settles(of);
        let Some((mut failed, over)) = self.following.fails(of) else {
            // The Sync at the end of a pipeline.
            let released = self.unit.sync_fails();
            text += &self.released(released);
            let which = self.which(of);
            return text + &self.remark(RED, &format!("{which}{line}"));
        };
        // The statement was shown when it was to be run.
        let shown = over.iter().find(|said| said.written).map(|said| said.number);
        match shown {
            Some(number) => failed.number = number,
            None if self.look != Look::Sql && !failed.written && failed.what.has_statement() => {
                text += &self.written(&mut failed);
            }
            None => {}
        }
        let statement = failed.shown.statement.clone();
        let over = not_told(over, statement.as_ref());
        if self.look == Look::Sql {
            failed.written |= !failed.what.has_statement();
            failed.below.push(RED, line);
            let released = self.unit.fails(failed, over);
            return text + &self.released(released);
        }
        let which = self.which(failed.number);
        text += &self.remark(RED, &format!("{which}{line}"));
        over.into_iter().for_each(|said| text += &self.done(said));
        text
    }

    /// What the server has answered before this message.
    fn settles(&mut self, of: u64) -> String {
        let mut text = String::new();
        for said in self.following.before(of) {
            text += &self.holds(said, true);
        }
        let group = self.following.said.front().filter(|said| said.number == of).map(|said| said.group);
        let released = group.map(|group| self.unit.reaches(group)).unwrap_or_default();
        text + &self.released(released)
    }

    /// A message that is done, unless the end of its transaction undoes it; `settled` where the server has gone on.
    fn holds(&mut self, said: Said, settled: bool) -> String {
        if self.look != Look::Sql {
            return self.done(said);
        }
        let before = self.unit.reaches(said.group);
        let mut text = self.released(before);
        let released = self.unit.done(said, settled);
        text += &self.released(released);
        text
    }

    fn released(&mut self, released: Vec<Released>) -> String {
        let mut text = String::new();
        for Released { said, begins } in released {
            if begins {
                text += "\n-- begun by the AND CHAIN before it\nbegin;\n";
            }
            said.into_iter().for_each(|said| text += &self.done(said));
        }
        text
    }

    /// Everything that waits.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        for said in self.following.rest() {
            if said.what.runs() && said.went == Went::Well {
                text += &self.holds(said, false);
            } else if said.what.runs() {
                let released = self.unit.rest();
                text += &self.released(released);
                text += &self.done(said);
            }
        }
        let released = self.unit.rest();
        text + &self.released(released)
    }

    /// Too much belongs below a statement that is not done: it is written as it stands.
    fn overflows(&mut self) -> String {
        let Some(said) = self.following.said.front_mut() else { return String::new() };
        let below = std::mem::take(&mut said.below);
        let (number, at, shown) = (said.number, said.at, said.shown.clone());
        let written = std::mem::replace(&mut said.written, true);
        let mut text = if written {
            String::new()
        } else {
            self.statement(number, at, &shown, Went::Open, &Answers::default())
        };
        below.into_lines().iter().for_each(|(colour, line)| text += &self.remark(colour, line));
        text
    }

    /// A message that nothing more comes of.
    fn done(&mut self, mut said: Said) -> String {
        let mut text = if said.written { String::new() } else { self.written(&mut said) };
        let below = std::mem::take(&mut said.below);
        below.into_lines().iter().for_each(|(colour, line)| text += &self.remark(colour, line));
        text
    }

    fn written(&mut self, said: &mut Said) -> String {
        said.written = true;
        self.statement(said.number, said.at, &said.shown, said.went, &said.answers)
    }

    fn statement(
        &mut self,
        number: u64,
        at: Duration,
        shown: &Shown,
        went: Went,
        answers: &Answers,
    ) -> String {
        self.last = number;
        let unknown = || {
            let text =
                format!("-- the statement {:?}, which was prepared out of sight", one_line(&shown.name));
            Arc::new(Statement { text, ..Statement::default() })
        };
        let statement = shown.statement.clone().unwrap_or_else(unknown);
        let text = lines(&statement.text);
        let mut remarks = Vec::new();
        if shown.count > 0 {
            remarks.push(values(shown.count, shown.parameters.as_deref()));
        }
        remarks.extend(cut(&statement));
        remarks.extend(read_from(&statement));
        let mut written = String::new();
        if self.look == Look::Sql {
            written.push_str(&format!("\n-- at {}\n", seconds(at)));
            let live = live::script(shown, went, answers);
            match &live {
                Ok(_) => remarks.extend(self.missed.take()),
                Err(_) if live::may_have_run(shown, went, answers) => self.missed.add(at),
                Err(_) => {}
            }
            remarks.extend(live.as_ref().err().map(ToString::to_string));
            remarks.iter().for_each(|remark| written.push_str(&format!("-- {remark}\n")));
            if !live.as_ref().is_ok_and(|script| !script.anew) {
                text.lines().for_each(|line| written.push_str(&format!("-- {line}\n")));
            }
            if let Ok(script) = live {
                written.push_str(&script.sql);
            }
            return written;
        }
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        written.push_str(&format!("{}=> {first}\n", self.name));
        lines.for_each(|line| written.push_str(&format!("{}-> {line}\n", self.name)));
        match went {
            Went::PassedOver => remarks.push(PASSED_OVER.to_owned()),
            _ if shown.again => remarks.push(AGAIN.to_owned()),
            _ => {}
        }
        for more in remarks {
            written.push_str(&self.remark(DIM, &format!("-- {more}")));
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

    /// A line about no message, or about the one that the server is at.
    fn below(&mut self, colour: &'static str, line: String) -> String {
        if self.look == Look::Sql {
            if let Some(said) = self.following.said.front_mut() {
                said.below.push(colour, line);
                return if said.below.is_full() { self.overflows() } else { String::new() };
            }
            return match self.unit.below(colour, line) {
                Ok(released) => self.released(released),
                Err(NoneWaits(line)) => self.remark(colour, &line),
            };
        }
        self.remark(colour, &line)
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

const AGAIN: &str = "its portal had been run before";

/// What the server did not look at; the statement that failed is not told of once more.
fn not_told(over: Vec<Said>, failed: Option<&Arc<Statement>>) -> Vec<Said> {
    let again = |said: &Said| match (failed, &said.shown.statement) {
        (Some(failed), Some(statement)) => Arc::ptr_eq(failed, statement),
        _ => false,
    };
    over.into_iter().filter(|said| said.what.runs() && !said.written && !again(said)).collect()
}

/// What of a statement is on record, where that is not all.
fn cut(statement: &Statement) -> Option<String> {
    let bytes = statement.bytes?;
    let hash = statement.sha256.as_deref().map(|hash| format!(", SHA-256 {}", one_line(hash)));
    let mut parts = Vec::new();
    if let Some(dropped) = statement.dropped {
        parts.push(format!("{dropped} of comments and blanks dropped"));
    }
    if let Some(left_out) = statement.left_out {
        parts.push(format!("{left_out} left out at the mark"));
    }
    let what = match parts.as_slice() {
        [] => format!("the first {} of {bytes} bytes", statement.text.len()),
        _ => format!("of {bytes} bytes {}", parts.join(", ")),
    };
    Some(format!("{what}{}", hash.unwrap_or_default()))
}

/// What the text was read from, where it was not UTF-8.
fn read_from(statement: &Statement) -> Option<String> {
    match &statement.encoding {
        Some(encoding) => Some(format!("sent in {}", one_line(encoding))),
        None if statement.base64.is_empty() => None,
        None => Some("sent in bytes that are no text; --format json has them".to_owned()),
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

#[cfg(test)]
mod tests;
