//! What is on record of random exchanges, beside a model of what the server did.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Exit};
use time::OffsetDateTime;

use super::*;
use crate::postgres::exchange::{Exchange, FromClient, FromServer};
use crate::postgres::frame::{Flow, Limits};
use crate::postgres::message::encode;

/// A statement that was told of: its text, its tags or the code of its error, and whether it had an answer.
type Told = (String, String, bool);

/// A message of the client's.
#[derive(Debug, Clone)]
enum Message {
    Query(String),
    Parse(String, String),
    Bind(String, String),
    Execute(String),
    Describe(bool, String),
    Close(bool, String),
    Sync,
    Data,
    Done,
    Fail,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let texts =
            |texts: &[&str]| texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        let named = |portal: bool, name: &str| {
            [if portal { &b"P"[..] } else { b"S" }, name.as_bytes(), b"\0"].concat()
        };
        let (kind, content): (u8, Vec<u8>) = match self {
            Self::Query(text) => (b'Q', texts(&[text])),
            Self::Parse(name, text) => (b'P', [texts(&[name, text]), vec![0, 0]].concat()),
            Self::Bind(portal, name) => (b'B', [texts(&[portal, name]), vec![0; 6]].concat()),
            Self::Execute(portal) => (b'E', [texts(&[portal]), vec![0; 4]].concat()),
            Self::Describe(portal, name) => (b'D', named(*portal, name)),
            Self::Close(portal, name) => (b'C', named(*portal, name)),
            Self::Sync => (b'S', Vec::new()),
            Self::Data => (b'd', b"1\n".to_vec()),
            Self::Done => (b'c', Vec::new()),
            Self::Fail => (b'f', b"no\0".to_vec()),
        };
        encode(kind, &content)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    Failed,
}

/// PostgreSQL, as far as it matters here.
struct Server {
    statements: HashMap<String, String>,
    portals: HashMap<String, String>,
    /// The same, but for those that an error has ended; that they are gone it says with the next `ReadyForQuery`.
    bound: HashMap<String, String>,
    transaction: Transaction,
    /// What failed, after which it passes over everything up to a Sync.
    passing: Option<Over>,
    /// The text of the copy that it takes data for, and whether it is a query's.
    copying: Option<(String, bool)>,
    /// Something is looked at when the transaction ends.
    deferred: bool,
    /// What it has done.
    told: Vec<Told>,
    /// What a script of it holds: what was done for good, and what a pipeline has done so far.
    kept: Vec<String>,
    pipeline: Vec<String>,
    out: Vec<u8>,
}

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
        self.pipeline.clear();
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
        if self.transaction == Transaction::Failed && !matches!(words[0], "commit") {
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
            ["commit"] => {
                let failed = self.transaction == Transaction::Failed || self.deferred;
                self.transaction = Transaction::None;
                self.portals.clear();
                if std::mem::take(&mut self.deferred) {
                    return Some(Err("23505"));
                }
                (if failed { "ROLLBACK" } else { "COMMIT" }).to_owned()
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

    /// A statement has come to its end.
    fn done(&mut self, text: &str, result: Result<String, &'static str>, query: bool) {
        let ends = query && self.transaction == Transaction::None && result.is_ok();
        let result = if ends && std::mem::take(&mut self.deferred) { Err("23505") } else { result };
        match result {
            Ok(tag) => {
                self.says(b'C', format!("{tag}\0").as_bytes());
                let copied = text.starts_with("copy") && text.contains("from");
                if !copied {
                    let text = if tag == "ROLLBACK" { "rollback" } else { text.trim_end() };
                    self.pipeline.push(text.to_owned());
                }
                if query || matches!(tag.as_str(), "COMMIT" | "ROLLBACK") {
                    self.kept.append(&mut self.pipeline);
                }
                if matches!(tag.as_str(), "COMMIT" | "ROLLBACK") {
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
                    () if aborted && text.trim_end() != "commit" => Some("25P02"),
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
                    Some(text) if aborted && text.trim_end() != "commit" => Some("25P02"),
                    _ if !portal.is_empty() && self.portals.contains_key(portal) => Some("42P03"),
                    _ => None,
                };
                match (code, text) {
                    (None, Some(text)) => {
                        self.bound.insert(portal.clone(), text.clone());
                        self.portals.insert(portal.clone(), text);
                        self.says(b'2', b"");
                    }
                    (code, text) => self.refuses(message, text, code.unwrap_or("26000")),
                }
            }
            Message::Execute(portal) => match self.portals.get(portal).cloned() {
                None => self.refuses(message, None, "34000"),
                Some(text) => {
                    if let Some(result) = self.run(&text, false) {
                        self.done(&text, result, false);
                    }
                }
            },
            Message::Describe(portal, name) => {
                let (known, code) =
                    if *portal { (&self.portals, "34000") } else { (&self.statements, "26000") };
                match known.get(name).cloned() {
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
                self.kept.append(&mut self.pipeline);
                self.ready();
            }
            Message::Data | Message::Done | Message::Fail => {}
        }
    }
}

fn statement(kind: u16, number: usize) -> String {
    match kind {
        0 | 1 => format!("fail {number}"),
        2 => format!("selec {number}"),
        3 => format!("later {number}"),
        4 => "begin".to_owned(),
        5 | 6 => "commit".to_owned(),
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
        deferred: false,
        told: Vec::new(),
        kept: Vec::new(),
        pipeline: Vec::new(),
        out: Vec::new(),
    };
    let event = |code| Event::new(code, OffsetDateTime::UNIX_EPOCH);
    let mut tap = Tap::new(Some(Duration::ZERO), false, 4096, Encoding::Utf8, event);
    let mut exchange = Exchange::new(Encoding::Utf8);
    let limits = Limits { held_bytes: 1000 };
    let (mut up, mut down) = (Flow::new(limits), Flow::new(limits));
    let (mut sent, mut events, mut frames) = (VecDeque::new(), Vec::new(), Vec::new());
    for (number, choice) in choices.iter().enumerate() {
        // Nothing is folded.
        let now = Duration::from_secs(number as u64);
        tap.at(now);
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
            exchange.happened().into_iter().for_each(|happening| tap.happened(happening));
        } else {
            let message = message(*choice, number, server.copying.is_some());
            let bytes = message.bytes();
            let walked = up.walk(&bytes, &mut FromClient { exchange: &mut exchange, said: &mut tap });
            assert_eq!((walked.may_go, walked.failed), (bytes.len(), None), "{message:?}");
            sent.push_back(message);
        }
        let taken = tap.take(true);
        events.extend(taken.events);
        frames.extend(taken.frames);
    }
    tap.ends(exchange.oldest());
    let taken = tap.take(true);
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
    server.kept.append(&mut server.pipeline);
    assert_eq!(live, server.kept, "{script}");
}

/// Whether something that was sent may begin a copy into the database.
fn copies_somewhere(server: &Server, sent: &VecDeque<Message>) -> bool {
    let copies = |text: &String| text.contains("from stdin");
    server.statements.values().any(copies)
        || server.portals.values().any(copies)
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
