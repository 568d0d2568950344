//! What is on record of certain exchanges.

use std::time::Duration;

use data_encoding::BASE64;
use sallyport_audit::Event;
use sallyport_audit::recording::Frame;
use sallyport_audit::recording::transcript::{Look, Transcript};
use time::OffsetDateTime;

use super::state::Observer;
use crate::postgres::encoding::Encoding;
use crate::postgres::exchange::{Exchange, FromClient, FromServer};
use crate::postgres::frame::{Flow, Limits};
use crate::postgres::message::encode;

struct Session {
    observer: Observer,
    exchange: Exchange,
    flows: [Flow; 2],
    frames: Vec<Frame>,
    events: Vec<Event>,
}

const READY: (u8, &[u8]) = (b'Z', b"I");

impl Session {
    fn new(encoding: Encoding) -> Self {
        let event = |code| Event::new(code, OffsetDateTime::UNIX_EPOCH);
        let limits = Limits { held_bytes: 1 << 20 };
        Self {
            observer: Observer::new(Some(Duration::ZERO), true, 64 << 10, encoding, event),
            exchange: Exchange::new(encoding),
            flows: [Flow::new(limits), Flow::new(limits)],
            frames: Vec::new(),
            events: Vec::new(),
        }
    }

    fn client(&mut self, messages: &[(u8, &[u8])]) -> &mut Self {
        let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| encode(*kind, content)).collect();
        let reader = &mut FromClient { exchange: &mut self.exchange, said: &mut self.observer };
        assert_eq!(self.flows[0].walk(&bytes, reader).may_go, bytes.len());
        self
    }

    fn server(&mut self, messages: &[(u8, &[u8])]) -> &mut Self {
        let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| encode(*kind, content)).collect();
        let walked = self.flows[1].walk(&bytes, &mut FromServer { exchange: &mut self.exchange });
        assert_eq!(walked.may_go, bytes.len());
        self.exchange.happened().into_iter().for_each(|happening| self.observer.happened(happening));
        self
    }

    fn query(&mut self, text: &[u8], tags: &[&str]) -> &mut Self {
        self.client(&[(b'Q', &[text, b"\0"].concat())]);
        for tag in tags {
            self.server(&[(b'C', &[tag.as_bytes(), b"\0"].concat())]);
        }
        self.server(&[READY])
    }

    fn taken(&mut self) -> (String, &[Event]) {
        let taken = self.observer.take(true);
        self.frames.extend(taken.frames);
        self.events.extend(taken.events);
        let mut transcript = Transcript::new(Look::Sql);
        let mut script: String = self.frames.iter().map(|frame| transcript.frame(frame)).collect();
        script += &transcript.finish();
        let live = script.lines().filter(|line| !line.is_empty() && !line.starts_with("--"));
        (live.collect::<Vec<_>>().join("\n"), &self.events)
    }

    /// What the last event tells of.
    fn last(&mut self) -> Event {
        self.taken().1.last().unwrap().clone()
    }
}

const PARSE: (u8, &[u8]) = (b'P', b"\0insert into t values (1) returning 1\0\0\0");
const BIND: (u8, &[u8]) = (b'B', b"\0\0\0\0\0\0\0\0");
const EXECUTE: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
const SYNC: (u8, &[u8]) = (b'S', b"");

#[test]
fn a_portal_that_is_run_again_is_told_of_as_that() {
    let mut session = Session::new(Encoding::Utf8);
    session.client(&[PARSE, BIND, EXECUTE, EXECUTE, SYNC]);
    let done: (u8, &[u8]) = (b'C', b"INSERT 0 1\0");
    session.server(&[(b'1', b""), (b'2', b""), done, done, READY]);
    let (live, events) = session.taken();
    let again: Vec<bool> = events.iter().map(|event| event.fields.contains_key("again")).collect();
    assert_eq!((live.as_str(), again), ("insert into t values (1) returning 1;", vec![false, true]));
}

#[test]
fn names_and_scripts_take_no_text_whose_encoding_is_not_certain() {
    // The same bytes are one text or another: in Shift-JIS the backslash is the second half of a character.
    let text = b"prepare p as select '\x83\x5c'";
    let execute = |session: &mut Session| {
        session.client(&[(b'B', b"\0p\0\0\0\0\0\0\0"), EXECUTE, SYNC]);
        session.server(&[(b'2', b""), (b'C', b"SELECT 1\0"), READY]);
        session.last()
    };
    let sjis: (u8, &[u8]) = (b'S', b"client_encoding\0SJIS\0");
    let mut session = Session::new(Encoding::of("SJIS"));
    session.query(text, &["PREPARE"]);
    assert_eq!(execute(&mut session).fields["statement"], "select '\u{30bd}'");
    assert_eq!(session.taken().0.lines().count(), 2);
    // Behind what may change it, in one that has no table here, and in one that a reload of settings brought.
    let mut behind = Session::new(Encoding::of("SJIS"));
    behind.client(&[(b'Q', b"select 1\0"), (b'Q', &[&text[..], b"\0"].concat())]);
    behind.server(&[(b'C', b"SELECT 1\0"), READY, (b'C', b"PREPARE\0"), READY]);
    assert_eq!(behind.last().fields["doubtful"], true);
    let mut none = Session::new(Encoding::of("SHIFT_JIS_2004"));
    none.query(text, &["PREPARE"]);
    let mut utf = Session::new(Encoding::of("JOHAB"));
    utf.query("prepare p as select '\u{e9}'".as_bytes(), &["PREPARE"]);
    let bytes = BASE64.encode("prepare p as select '\u{e9}'".as_bytes());
    assert_eq!(utf.last().fields["base64"], bytes);
    let mut reloaded = Session::new(Encoding::Utf8);
    reloaded.client(&[(b'Q', "prepare p as select '\u{e9}'\0".as_bytes())]);
    reloaded.server(&[(b'C', b"PREPARE\0"), sjis, READY]);
    // Changed and changed back in one pipeline, of which the server tells nothing.
    let mut flushed = Session::new(Encoding::of("SJIS"));
    flushed.client(&[(b'P', b"\0set client_encoding = 'UTF8'\0\0\0"), BIND, EXECUTE, (b'H', b"")]);
    flushed.server(&[(b'1', b""), (b'2', b""), (b'C', b"SET\0")]);
    flushed.client(&[(b'P', &[b"\0", &text[..], b"\0\0\0"].concat()), BIND, EXECUTE, SYNC]);
    flushed.server(&[(b'1', b""), (b'2', b""), (b'C', b"PREPARE\0"), READY]);
    assert_eq!(flushed.last().fields["doubtful"], true);
    for (mut session, live) in [
        (flushed, "set client_encoding = 'UTF8';"),
        (behind, "select 1;"),
        (none, ""),
        (utf, ""),
        (reloaded, ""),
    ] {
        assert_eq!(session.taken().0, live);
        assert_eq!(execute(&mut session).fields["name"], "p");
    }
    // Values, too.
    let value = [&b"\0\0\0\0\0\x01\0\0\0\x02"[..], "\u{e9}".as_bytes(), b"\0\0"].concat();
    for (before, live) in [(false, 1), (true, 1)] {
        let mut session = Session::new(Encoding::Utf8);
        if before {
            session.client(&[(b'Q', b"select 1\0")]);
        }
        session.client(&[(b'P', b"\0select $1\0\0\0"), (b'B', &value), EXECUTE, SYNC]);
        if before {
            session.server(&[(b'C', b"SELECT 1\0"), READY]);
        }
        session.server(&[(b'1', b""), (b'2', b""), (b'C', b"SELECT 1\0"), READY]);
        assert_eq!(session.taken().0.lines().count(), live);
    }
}

#[test]
fn what_is_folded_says_what_an_event_of_its_own_would() {
    let mut session = Session::new(Encoding::of("LATIN1"));
    for number in 0..30 {
        session.query(format!("select {number}").as_bytes(), &["SELECT 1"]);
    }
    session.query(b"select 'caf\xe9' /*\n", &["SELECT 1"]);
    let long = format!("select '{}'\nfrom t", "x".repeat(70 << 10));
    session.query(long.as_bytes(), &["SELECT 1"]);
    let event = session.last();
    assert_eq!(event.fields["count"], 12);
    let otherwise = event.fields["otherwise"].as_array().unwrap();
    assert_eq!((&otherwise[0]["index"], &otherwise[1]["index"]), (&10.into(), &11.into()));
    assert_eq!(otherwise[0]["encoding"], "LATIN1");
    assert_eq!(otherwise[0]["base64"], BASE64.encode(b"select 'caf\xe9' /*\n"));
    assert_eq!(otherwise[1]["bytes"], long.len());
    assert!(otherwise[1]["left_out"].as_u64().unwrap() > 4 << 10);
    // Each text is there by itself, whatever is open at its end.
    let (mut rest, mut texts) = (event.fields["statement"].as_str().unwrap(), Vec::new());
    for length in event.fields["lengths"].as_array().unwrap() {
        let (text, more) = rest.split_at(usize::try_from(length.as_u64().unwrap()).unwrap());
        texts.push(text);
        rest = more.strip_prefix('\n').unwrap_or(more);
    }
    assert_eq!((texts.len(), rest, texts[9], texts[10]), (12, "", "select 29", "select 'caf\u{e9}' /*\n"));
}

#[test]
fn what_is_passed_over_takes_no_more_memory_than_it_may() {
    let mut session = Session::new(Encoding::Utf8);
    session.client(&[(b'P', b"\0selec\0\0\0")]).server(&[(b'E', b"SERROR\0VERROR\0C42601\0Mno\0\0")]);
    let text = "x".repeat(60_000);
    for number in 0..500 {
        let parse = format!("n{number}\0select {number} '{text}'\0\0\0");
        let bind = format!("n{number}\0n{number}\0\0\0\0\0\0\0");
        session.client(&[(b'P', parse.as_bytes()), (b'B', bind.as_bytes())]);
        let over = &session.observer.over;
        assert!(over.parsed.bytes() + over.bound.bytes() <= 2 << 20);
    }
    // What had no room is not taken for what was there before.
    session.client(&[(b'E', b"n0\0\0\0\0\0"), (b'E', b"n499\0\0\0\0\0")]);
    let (_, events) = session.taken();
    assert_eq!(events.len(), 2, "{events:#?}");
    assert!(events[1].fields["statement"].as_str().unwrap().starts_with("select 0 '"));
}
