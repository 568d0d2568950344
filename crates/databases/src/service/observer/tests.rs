//! What is on record of random exchanges, beside a model of what the server did.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Exit, Frame};
use sallyport_audit::{Code, Event};
use time::OffsetDateTime;

use super::state::Observer;
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::{Exchange, FromClient, FromServer};
use crate::postgres::frame::{Flow, Limits};
use crate::postgres::message::encode;

mod messages;

use messages::Message;

/// A statement that was told of: its text, its tags or the code of its error, and whether it had an answer.
type Told = (String, String, bool);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    Failed,
}

/// PostgreSQL, as far as it matters here.
struct Server {
    statements: HashMap<String, String>,
    portals: HashMap<String, Portal>,
    /// The same, but for those that an error has ended; that they are gone it says with the next `ReadyForQuery`.
    bound: HashMap<String, String>,
    transaction: Transaction,
    /// What failed, after which it passes over everything up to a Sync.
    passing: Option<Over>,
    /// The text of the copy that it takes data for, and whether it is a query's.
    copying: Option<(String, bool)>,
    /// There is a savepoint: so long was the unit when it was set.
    saved: Option<usize>,
    /// Something is looked at when the transaction ends.
    deferred: bool,
    /// Its statements so far.
    told: Vec<Told>,
    /// What a script of it holds: what was done for good, and what a transaction or a pipeline has done so far.
    kept: Vec<String>,
    unit: Vec<String>,
    /// The unit's transaction was begun by the end of the one before.
    chained: bool,
    /// A copy by the extended query, whose Sync may stand among its data.
    doubted: bool,
    out: Vec<u8>,
}

/// A statement that is bound, and whether it has been run to its end.
#[derive(Debug, Clone)]
struct Portal(String, bool);

/// What is passed over, as it would have been.
#[derive(Debug, Default, Clone)]
struct Over {
    failed: Option<String>,
    parsed: HashMap<String, Option<String>>,
    bound: HashMap<String, Option<String>>,
}

impl Over {
    /// The text that a message would have run.
    fn text(&mut self, message: &Message, server: &Server) -> Option<Option<String>> {
        match message {
            Message::Query(text) => return Some(Some(text.clone())),
            Message::Parse(name, text) => drop(self.parsed.insert(name.clone(), Some(text.clone()))),
            Message::Bind(portal, name) => {
                let parsed = self.parsed.get(name).cloned();
                let parsed = parsed.unwrap_or_else(|| server.statements.get(name).cloned());
                self.bound.insert(portal.clone(), parsed);
            }
            Message::Close(true, name) => drop(self.bound.insert(name.clone(), None)),
            Message::Close(false, name) => drop(self.parsed.insert(name.clone(), None)),
            Message::Execute(portal) => {
                let bound = self.bound.get(portal).cloned();
                return Some(bound.unwrap_or_else(|| server.bound.get(portal).cloned()));
            }
            _ => {}
        }
        None
    }
}

impl Server {
    fn says(&mut self, kind: u8, content: &[u8]) {
        self.out.extend(encode(kind, content));
    }

    fn error(&mut self, code: &str) {
        self.says(b'E', format!("SERROR\0VERROR\0C{code}\0Mno\0\0").as_bytes());
        if self.saved.is_none() || self.transaction == Transaction::None {
            self.unit.clear();
        }
        self.doubted &= self.transaction != Transaction::None;
        self.deferred = false;
        match self.transaction {
            Transaction::None => self.portals.clear(),
            _ => self.transaction = Transaction::Failed,
        }
    }

    fn ready(&mut self) {
        if self.transaction == Transaction::None {
            self.portals.clear();
            self.bound.clear();
        }
        let status = match self.transaction {
            Transaction::None => b"I",
            Transaction::Open => b"T",
            Transaction::Failed => b"E",
        };
        self.says(b'Z', status);
    }

    /// Runs a statement: its tag, or the code of its error; none when it waits for data.
    fn run(&mut self, text: &str, query: bool) -> Option<Result<String, &'static str>> {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        if self.transaction == Transaction::Failed && !may_end(text) {
            return Some(Err("25P02"));
        }
        Some(Ok(match words.as_slice() {
            ["select", ..] => {
                self.says(b'D', b"\0\x01\0\0\0\x011");
                "SELECT 1".to_owned()
            }
            ["fail", ..] => return Some(Err("22012")),
            ["selec", ..] => return Some(Err("42601")),
            ["later", ..] if query && self.transaction == Transaction::None => return Some(Err("23505")),
            ["later", ..] => {
                self.deferred = true;
                "INSERT 0 1".to_owned()
            }
            ["begin"] => {
                self.transaction = Transaction::Open;
                "BEGIN".to_owned()
            }
            ["savepoint", "a"] if self.transaction != Transaction::Open => return Some(Err("25P01")),
            ["savepoint", "a"] => {
                self.saved = Some(self.unit.len());
                "SAVEPOINT".to_owned()
            }
            ["rollback", "to", "a"] if self.saved.is_none() => return Some(Err("3B001")),
            ["rollback", "to", "a"] => {
                self.transaction = Transaction::Open;
                self.deferred = false;
                self.portals.clear();
                "ROLLBACK".to_owned()
            }
            [_, "and", "chain"] if self.transaction == Transaction::None => return Some(Err("25P01")),
            ["commit" | "rollback" | "prepare", rest @ ..] if !matches!(rest, [_, "as", ..]) => {
                let commits = words[0] != "rollback";
                let failed = self.transaction == Transaction::Failed;
                let was_open = self.transaction != Transaction::None;
                let prepares = words[0] == "prepare";
                self.portals.clear();
                self.saved = None;
                if commits && std::mem::take(&mut self.deferred) {
                    self.transaction = Transaction::None;
                    return Some(Err("23505"));
                }
                self.deferred = false;
                let chain = rest == ["and", "chain"];
                self.transaction = if chain { Transaction::Open } else { Transaction::None };
                (match prepares {
                    _ if failed || !commits => "ROLLBACK",
                    true if was_open => "PREPARE TRANSACTION",
                    true => "ROLLBACK",
                    false => "COMMIT",
                })
                .to_owned()
            }
            ["deallocate", "all"] => {
                self.statements.retain(|name, _| name.is_empty());
                "DEALLOCATE ALL".to_owned()
            }
            ["deallocate", name] => match self.statements.remove(*name) {
                Some(_) => "DEALLOCATE".to_owned(),
                None => return Some(Err("26000")),
            },
            ["prepare", name, "as", rest @ ..] => {
                if self.statements.contains_key(*name) {
                    return Some(Err("42P05"));
                }
                self.statements.insert((*name).to_owned(), rest.join(" "));
                "PREPARE".to_owned()
            }
            ["copy", _, "from", _] => {
                self.says(b'G', &[0; 3]);
                self.copying = Some((text.to_owned(), query));
                return None;
            }
            ["copy", _, "to", _] => {
                self.says(b'H', &[0; 3]);
                self.says(b'd', b"1\n");
                self.says(b'c', b"");
                "COPY 1".to_owned()
            }
            other => panic!("{other:?}"),
        }))
    }

    /// What was done is there to stay.
    fn keep(&mut self) {
        if std::mem::take(&mut self.doubted) {
            self.unit.clear();
        }
        if std::mem::take(&mut self.chained) && !self.unit.is_empty() {
            self.kept.push("begin".to_owned());
        }
        self.kept.append(&mut self.unit);
    }

    /// A statement has come to its end.
    fn done(&mut self, text: &str, result: Result<String, &'static str>, query: bool) {
        let ends = query && self.transaction == Transaction::None && result.is_ok();
        let result = if ends && std::mem::take(&mut self.deferred) { Err("23505") } else { result };
        match result {
            Ok(tag) => {
                self.says(b'C', format!("{tag}\0").as_bytes());
                let copied = text.starts_with("copy") && text.contains("from");
                let chain = text.trim_end().ends_with("and chain");
                let to_savepoint = text.starts_with("rollback to");
                if !copied {
                    let text = if chain { "commit" } else { text.trim_end() };
                    self.unit.push(text.to_owned());
                }
                self.doubted |= tag.starts_with("COPY ") && !query && self.transaction == Transaction::None;
                match tag.as_str() {
                    "ROLLBACK" | "PREPARE TRANSACTION" if !to_savepoint => {
                        self.unit.clear();
                        self.doubted = false;
                        self.chained = chain;
                    }
                    "COMMIT" => {
                        self.keep();
                        self.chained = chain;
                    }
                    _ if query && self.transaction == Transaction::None => self.keep(),
                    _ => {}
                }
                if matches!(tag.as_str(), "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION") {
                    self.bound.clear();
                }
                self.told.push((text.to_owned(), tag, true));
                if query {
                    self.ready();
                }
            }
            Err(code) => {
                self.error(code);
                self.told.push((text.to_owned(), code.to_owned(), true));
                if query {
                    self.ready();
                } else {
                    self.passing = Some(Over { failed: Some(text.to_owned()), ..Over::default() });
                }
            }
        }
    }

    /// Refuses a message of the extended query.
    fn refuses(&mut self, message: &Message, text: Option<String>, code: &'static str) {
        self.error(code);
        if !matches!(message, Message::Close(..)) {
            self.told.push((text.clone().unwrap_or_default(), code.to_owned(), true));
        }
        let mut over = Over { failed: text, ..Over::default() };
        match message {
            Message::Parse(..) => drop(over.text(message, self)),
            Message::Bind(portal, _) => drop(over.bound.insert(portal.clone(), over.failed.clone())),
            _ => {}
        }
        self.passing = Some(over);
    }

    fn takes(&mut self, message: &Message) {
        if let Some((text, query)) = self.copying.clone() {
            match message {
                Message::Done => {
                    self.copying = None;
                    self.done(&text, Ok("COPY 1".to_owned()), query);
                }
                Message::Fail => {
                    self.copying = None;
                    self.done(&text, Err("57014"), query);
                }
                _ => {}
            }
            return;
        }
        if let Some(mut over) = self.passing.take()
            && !matches!(message, Message::Sync)
        {
            if let Some(Some(text)) = over.text(message, self)
                && over.failed.as_ref() != Some(&text)
            {
                self.told.push((text, String::new(), false));
            }
            self.passing = Some(over);
            return;
        }
        let aborted = self.transaction == Transaction::Failed;
        match message {
            Message::Query(text) => {
                self.statements.remove("");
                self.portals.remove("");
                self.bound.remove("");
                if let Some(result) = self.run(text, true) {
                    self.done(text, result, true);
                }
            }
            Message::Parse(name, text) => {
                if name.is_empty() {
                    self.statements.remove("");
                }
                let code = match () {
                    () if text.starts_with("selec ") => Some("42601"),
                    () if aborted && !may_end(text) => Some("25P02"),
                    () if self.statements.contains_key(name) => Some("42P05"),
                    () => None,
                };
                match code {
                    Some(code) => self.refuses(message, Some(text.clone()), code),
                    None => {
                        self.statements.insert(name.clone(), text.clone());
                        self.says(b'1', b"");
                    }
                }
            }
            Message::Bind(portal, name) => {
                let text = self.statements.get(name).cloned();
                let code = match &text {
                    None => Some("26000"),
                    Some(text) if aborted && !may_end(text) => Some("25P02"),
                    _ if !portal.is_empty() && self.portals.contains_key(portal) => Some("42P03"),
                    _ => None,
                };
                match (code, text) {
                    (None, Some(text)) => {
                        self.bound.insert(portal.clone(), text.clone());
                        self.portals.insert(portal.clone(), Portal(text, false));
                        self.says(b'2', b"");
                    }
                    (code, text) => self.refuses(message, text, code.unwrap_or("26000")),
                }
            }
            Message::Execute(portal) => match self.portals.get(portal).cloned() {
                None => self.refuses(message, None, "34000"),
                Some(Portal(text, true)) if text.starts_with("select") && !aborted => {
                    self.says(b'C', b"SELECT 0\0");
                    self.told.push((text, "SELECT 0".to_owned(), true));
                }
                Some(Portal(text, true)) => self.refuses(message, Some(text), "55000"),
                Some(Portal(text, false)) => {
                    self.portals.insert(portal.clone(), Portal(text.clone(), true));
                    if let Some(result) = self.run(&text, false) {
                        self.done(&text, result, false);
                    }
                }
            },
            Message::Describe(portal, name) => {
                let code = if *portal { "34000" } else { "26000" };
                let bound = self.portals.get(name).map(|Portal(text, _)| text.clone());
                match if *portal { bound } else { self.statements.get(name).cloned() } {
                    Some(text) if aborted => self.refuses(message, Some(text), "25P02"),
                    Some(_) => self.says(b'n', b""),
                    None => self.refuses(message, None, code),
                }
            }
            Message::Close(portal, name) => {
                if *portal {
                    self.bound.remove(name);
                    self.portals.remove(name);
                } else {
                    self.statements.remove(name);
                }
                self.says(b'3', b"");
            }
            Message::Sync => {
                if self.transaction == Transaction::None && std::mem::take(&mut self.deferred) {
                    self.error("23505");
                    self.told.push((String::new(), "23505".to_owned(), true));
                }
                if self.transaction == Transaction::None {
                    self.keep();
                }
                self.ready();
            }
            Message::Data | Message::Done | Message::Fail => {}
        }
    }
}

/// What is run in a failed transaction.
fn may_end(text: &str) -> bool {
    let text = text.trim_end();
    text == "commit"
        || text == "commit and chain"
        || text.starts_with("rollback")
        || text.starts_with("prepare transaction")
}

fn statement(kind: u16, number: usize) -> String {
    match kind {
        0 | 1 => format!("fail {number}"),
        2 => format!("selec {number}"),
        3 => format!("later {number}"),
        4 => "begin".to_owned(),
        5 | 6 => [
            "commit",
            "commit and chain",
            "rollback",
            "savepoint a",
            "rollback to a",
            "prepare transaction 'x'",
        ][number % 6]
            .to_owned(),
        7 => "deallocate all".to_owned(),
        8 => format!("deallocate s{}", 1 + number % 2),
        9 => format!("prepare s{} as select {number}", 1 + number % 2),
        10 => format!("copy t{number} from stdin"),
        11 => format!("copy t{number} to stdout"),
        _ => format!("select {number}"),
    }
}

/// What the client says next. Only while the server waits for data it sends some.
fn message(choice: u16, number: usize, copying: bool) -> Message {
    let part = |shift: u16, sides: u16| (choice >> shift) % sides;
    let name = |shift: u16| ["", "", "s1", "s2"][usize::from(part(shift, 4))].to_owned();
    // No two statements are the same.
    let text = |shift: u16| format!("{}{}", statement(part(shift, 16), number), " ".repeat(number));
    if copying {
        return match part(0, 4) {
            0 => Message::Fail,
            1 | 2 => Message::Data,
            _ => Message::Done,
        };
    }
    match part(0, 16) {
        0 | 1 => Message::Query(text(4)),
        2..=4 => Message::Parse(name(8), text(4)),
        5..=7 => Message::Bind(name(4), name(6)),
        8..=10 => Message::Execute(name(4)),
        11 => Message::Describe(part(4, 2) == 0, name(5)),
        12 => Message::Close(part(4, 2) == 0, name(5)),
        // What is prepared, bound and run at once is often run again.
        13 if part(4, 4) == 0 => {
            Message::Parse(String::new(), format!("select {number}{}", " ".repeat(number)))
        }
        13 if part(4, 4) == 1 => Message::Bind(String::new(), String::new()),
        13 => Message::Execute(String::new()),
        _ => Message::Sync,
    }
}

fn told(events: &[Event]) -> Vec<Told> {
    let query = events.iter().filter(|event| event.code == Code::DatabaseQuery);
    let text = |event: &Event, name: &str| {
        event.fields.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let one = |event: &Event| {
        let outcome = [text(event, "tag"), text(event, "sqlstate")].concat();
        (text(event, "statement"), outcome, !event.fields.contains_key("unanswered"))
    };
    query.map(one).collect()
}

/// Runs an exchange. Each choice is what the client says, or, where its highest bit is set, that the server takes a message.
fn exchange(choices: &[u16]) {
    let mut server = Server {
        statements: HashMap::new(),
        portals: HashMap::new(),
        bound: HashMap::new(),
        transaction: Transaction::None,
        passing: None,
        copying: None,
        saved: None,
        deferred: false,
        told: Vec::new(),
        kept: Vec::new(),
        unit: Vec::new(),
        chained: false,
        doubted: false,
        out: Vec::new(),
    };
    let event = |code| Event::new(code, OffsetDateTime::UNIX_EPOCH);
    let mut observer = Observer::new(Some(Duration::ZERO), false, 4096, Encoding::Utf8, event);
    let mut exchange = Exchange::new(Encoding::Utf8);
    let limits = Limits { held_bytes: 1000 };
    let (mut up, mut down) = (Flow::new(limits), Flow::new(limits));
    let (mut sent, mut events, mut frames) = (VecDeque::new(), Vec::new(), Vec::new());
    for (number, choice) in choices.iter().enumerate() {
        // Nothing is folded.
        let now = Duration::from_secs(number as u64);
        observer.at(now);
        exchange.at(now);
        // Data that is sent before the copy has begun, and a Sync among it, have tests of their own.
        let may_copy = |message: &Message| matches!(message, Message::Execute(_) | Message::Query(_));
        let waits = sent.iter().any(may_copy) && copies_somewhere(&server, &sent) || server.copying.is_some();
        if !sent.is_empty() && (choice & 0x8000 != 0 || waits) {
            let message = sent.pop_front().unwrap();
            server.takes(&message);
            let out = std::mem::take(&mut server.out);
            let walked = down.walk(&out, &mut FromServer { exchange: &mut exchange });
            assert_eq!((walked.may_go, walked.failed), (out.len(), None));
            exchange.happened().into_iter().for_each(|happening| observer.happened(happening));
        } else {
            let message = message(*choice, number, server.copying.is_some());
            let bytes = message.bytes();
            let walked = up.walk(&bytes, &mut FromClient { exchange: &mut exchange, said: &mut observer });
            assert_eq!((walked.may_go, walked.failed), (bytes.len(), None), "{message:?}");
            sent.push_back(message);
        }
        let taken = observer.take(true);
        events.extend(taken.events);
        frames.extend(taken.frames);
    }
    observer.ends(exchange.oldest());
    let taken = observer.take(true);
    events.extend(taken.events);
    frames.extend(taken.frames);

    // What the server had not looked at when the client was gone.
    if let Some((text, _)) = server.copying.take() {
        server.told.push((text, String::new(), false));
        sent.clear();
    }
    let mut over = Over::default();
    let mut passing = server.passing.take();
    for message in sent {
        match (&mut passing, &message) {
            (Some(_), Message::Sync) => passing = None,
            (Some(over), message) => {
                if let Some(Some(text)) = over.text(message, &server)
                    && over.failed.as_ref() != Some(&text)
                {
                    server.told.push((text, String::new(), false));
                }
            }
            (None, message) => {
                if let Some(text) = over.text(message, &server) {
                    server.told.push((text.unwrap_or_default(), String::new(), false));
                }
            }
        }
    }
    assert_eq!(told(&events), server.told);

    let mut transcript = Transcript::new(Look::Sql);
    let mut script: String = frames.iter().map(|frame| transcript.frame(frame)).collect();
    script += &transcript.frame(&Frame { at: Duration::ZERO, body: Body::Exit(Exit::Cut("gone".into())) });
    let live: Vec<&str> = script
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .map(|line| line.trim_end_matches(';'))
        .collect();
    assert_eq!(live, server.kept, "{script}");
}

/// Whether something that was sent may begin a copy into the database.
fn copies_somewhere(server: &Server, sent: &VecDeque<Message>) -> bool {
    let copies = |text: &String| text.contains("from stdin");
    server.statements.values().any(copies)
        || server.portals.values().any(|Portal(text, _)| copies(text))
        || sent
            .iter()
            .any(|message| matches!(message, Message::Query(text) | Message::Parse(_, text) if copies(text)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_statement_is_told_of_once_with_what_came_of_it(choices in prop::collection::vec(any::<u16>(), 0..120)) {
        exchange(&choices);
    }
}
