use super::super::frame::{Flow, Limits};
use super::super::message::{Frontend, encode};
use super::told::MOST_TEXT_BYTES;
use super::*;

#[derive(Default)]
struct Notes(Vec<String>);

impl Said for Notes {
    fn said(&mut self, number: Number, message: &Frontend<'_>) {
        let text = match message {
            Frontend::Query { text } | Frontend::Parse { text, .. } => {
                String::from_utf8_lossy(text).into_owned()
            }
            _ => return,
        };
        self.0.push(format!("{} {text}", number.of));
    }

    fn long(&mut self, number: Number, kind: u8, length: u32, at: u32, _: &[u8]) {
        if at == 0 {
            self.0.push(format!("{} {} of {length}", number.of, char::from(kind)));
        }
    }
}

struct Session {
    client: Flow,
    server: Flow,
    exchange: Exchange,
    notes: Notes,
}

impl Session {
    fn new() -> Self {
        let flow = || Flow::new(Limits { held_bytes: 1000 });
        Self { client: flow(), server: flow(), exchange: Exchange::default(), notes: Notes::default() }
    }

    /// Each word is a message: its kind, and its content.
    fn client(&mut self, messages: &[(u8, &[u8])]) -> &mut Self {
        let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| encode(*kind, content)).collect();
        let reader = &mut FromClient { exchange: &mut self.exchange, said: &mut self.notes };
        let walked = self.client.walk(&bytes, reader);
        assert_eq!((walked.may_go, walked.failed), (bytes.len(), None));
        self
    }

    fn server(&mut self, messages: &[(u8, &[u8])]) -> Vec<String> {
        let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| encode(*kind, content)).collect();
        let walked = self.server.walk(&bytes, &mut FromServer { exchange: &mut self.exchange });
        assert_eq!((walked.may_go, walked.failed), (bytes.len(), None));
        let happened = self.exchange.happened().into_iter();
        let told = happened.filter_map(|happening| {
            Some(match happening {
                Happening::Result { of, tag, rows, took, .. } => {
                    format!("{of}: {tag} ({rows}) {}", took.as_millis())
                }
                Happening::Failed { of, code, message, .. } => format!("{of:?}: {code} {message}"),
                Happening::Copied { of, into, bytes } => format!("{of}: copied {bytes} {into}"),
                Happening::Notice { severity, message, .. } => format!("{severity} {message}"),
                Happening::Notified { process, channel, payload } => {
                    format!("{process} {channel} {payload}")
                }
                Happening::Holds { .. }
                | Happening::Ended { .. }
                | Happening::Ready { .. }
                | Happening::Encoding { .. } => {
                    return None;
                }
            })
        });
        told.collect()
    }
}

const READY: (u8, &[u8]) = (b'Z', b"I");
const PARSE: (u8, &[u8]) = (b'P', b"\0select $1\0\0\0");
const BIND: (u8, &[u8]) = (b'B', b"\0\0\0\0\0\0\0\0");
const EXECUTE: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
const SYNC: (u8, &[u8]) = (b'S', b"");

#[test]
fn one_query_with_two_statements_has_two_results() {
    let mut session = Session::new();
    session.client(&[(b'Q', b"select 1; update t set a = 2\0")]);
    session.exchange.at(Duration::from_millis(7));
    let told = session.server(&[
        (b'T', b"x"),
        (b'D', b"row"),
        (b'D', b"row"),
        (b'C', b"SELECT 2\0"),
        (b'C', b"UPDATE 5\0"),
        READY,
    ]);
    assert_eq!(told, ["1: SELECT 2 (2) 7", "1: UPDATE 5 (0) 7"]);
    assert_eq!(session.notes.0, ["1 select 1; update t set a = 2"]);
    assert!(!session.exchange.is_busy());
}

#[test]
fn pipelined_statements_have_their_own_results() {
    let mut session = Session::new();
    let describe: (u8, &[u8]) = (b'D', b"P\0");
    session.client(&[PARSE, BIND, describe, EXECUTE, BIND, EXECUTE, SYNC]);
    let told = session.server(&[
        (b'1', b""),
        (b'2', b""),
        (b'T', b"x"),
        (b'D', b"row"),
        (b'C', b"SELECT 1\0"),
        (b'2', b""),
        (b's', b""),
        READY,
    ]);
    assert_eq!(told, ["4: SELECT 1 (1) 0", "6:  (0) 0"]);
    assert!(!session.exchange.is_busy());
}

#[test]
fn an_error_passes_over_what_waits_up_to_the_sync() {
    let mut session = Session::new();
    session.client(&[PARSE, BIND, EXECUTE, SYNC, PARSE, BIND, EXECUTE]);
    let error: (u8, &[u8]) = (b'E', b"SERROR\0C42601\0Msyntax error\0\0");
    assert_eq!(session.server(&[error, READY]), ["Some(1): 42601 syntax error"]);
    assert_eq!(session.server(&[(b'1', b""), (b'2', b""), (b'C', b"SELECT 0\0")]), ["7: SELECT 0 (0) 0"]);
    // The rest of a pipeline may come after the error has been sent.
    session.client(&[PARSE]);
    assert_eq!(session.server(&[error]).len(), 1);
    session.client(&[BIND, EXECUTE, SYNC, (b'Q', b"select\0")]);
    assert_eq!(session.server(&[READY, (b'C', b"SELECT 1\0"), READY]), ["12: SELECT 1 (0) 0"]);
    assert!(!session.exchange.is_busy());
    // A server that is being stopped says so in answer to no message.
    assert_eq!(session.server(&[(b'E', b"C57P01\0Mstopping\0\0")]), ["None: 57P01 stopping"]);
}

#[test]
fn copies_are_counted_both_ways() {
    let mut session = Session::new();
    session.client(&[(b'Q', b"copy t from stdin\0")]);
    assert!(session.server(&[(b'G', b"\0\0\0")]).is_empty());
    session.client(&[(b'd', b"12345"), (b'd', b"678"), (b'c', b"")]);
    assert_eq!(session.server(&[(b'C', b"COPY 2\0"), READY]), ["1: copied 8 true", "1: COPY 2 (0) 0"]);
    session.client(&[(b'Q', b"copy t to stdout\0")]);
    let told = session.server(&[(b'H', b"\0\0\0"), (b'd', b"1234"), (b'c', b""), (b'C', b"COPY 1\0"), READY]);
    assert_eq!(told, ["2: copied 4 false", "2: COPY 1 (0) 0"]);
    // As libpq does it in the extended query: a Sync with the statement, and one after the data.
    session.client(&[PARSE, BIND, EXECUTE, SYNC]);
    session.server(&[(b'1', b""), (b'2', b""), (b'G', b"\0\0\0")]);
    session.client(&[(b'd', b"1"), SYNC, (b'c', b""), SYNC]);
    assert_eq!(session.server(&[(b'C', b"COPY 1\0"), READY]), ["5: copied 1 true", "5: COPY 1 (0) 0"]);
    assert!(!session.exchange.is_busy());
}

#[test]
fn a_sync_among_data_is_answered_or_not() {
    let error: (u8, &[u8]) = (b'E', b"SERROR\0C22P02\0Mbad\0\0");
    let query: (u8, &[u8]) = (b'Q', b"select\0");
    let copy: (u8, &[u8]) = (b'Q', b"copy t from stdin\0");
    // The server has failed before it reads the Sync, or after; the next query has its own answer in both cases.
    for answers in [&[error, READY][..], &[error, READY, READY]] {
        let mut session = Session::new();
        session.client(&[copy]);
        session.server(&[(b'G', b"\0\0\0")]);
        session.client(&[SYNC, (b'd', b"x\n"), SYNC]);
        assert_eq!(session.server(answers), ["1: copied 2 true", "Some(1): 22P02 bad"]);
        session.client(&[query, query]);
        let told = session.server(&[(b'C', b"SELECT 1\0"), READY, error, READY]);
        assert_eq!(told, ["4: SELECT 1 (0) 0", "Some(5): 22P02 bad"]);
        assert!(!session.exchange.is_busy());
    }
    let mut session = Session::new();
    session.client(&[PARSE, BIND, EXECUTE]);
    session.server(&[(b'1', b""), (b'2', b""), (b'G', b"\0\0\0")]);
    session.client(&[(b'd', b"x\n"), SYNC]);
    assert_eq!(session.server(&[error, READY]).len(), 2);
    session.client(&[query]);
    assert_eq!(session.server(&[error, READY]), ["Some(5): 22P02 bad"]);
    // A good end: only what comes after the data has an answer.
    session.client(&[copy, (b'd', b"x\n"), SYNC, (b'c', b""), SYNC, query]);
    let told = session.server(&[(b'G', b"\0\0\0"), (b'C', b"COPY 1\0"), READY, READY]);
    assert_eq!(told[1..], ["6: COPY 1 (0) 0"]);
    assert_eq!(session.server(&[error, READY]), ["Some(9): 22P02 bad"]);
    assert!(!session.exchange.is_busy());
    // Whether the server passes over this cannot be told.
    session.client(&[PARSE, BIND, EXECUTE]);
    session.server(&[(b'1', b""), (b'2', b""), (b'G', b"\0\0\0")]);
    session.client(&[(b'd', b"x"), SYNC, (b'd', b"\n")]);
    assert_eq!(session.server(&[error]).len(), 2);
    let bytes = encode(PARSE.0, PARSE.1);
    let reader = &mut FromClient { exchange: &mut session.exchange, said: &mut session.notes };
    let walked = session.client.walk(&bytes, reader);
    assert!(walked.failed.unwrap().to_string().contains("whose copy has failed"));
}

#[test]
fn what_a_client_may_not_send_is_found_at_its_header() {
    for (bytes, error) in [
        (&b"p\0\0\0\x08abcd"[..], "out of place"),
        (b"Z\0\0\0\x05I", "no message of kind 'Z'"),
        (b"S\0\0\0\x05x", "too long"),
        (b"E\0\x01\0\0", "too long"),
    ] {
        let mut session = Session::new();
        let reader = &mut FromClient { exchange: &mut session.exchange, said: &mut session.notes };
        let walked = session.client.walk(bytes, reader);
        assert_eq!(walked.may_go, 0);
        assert!(walked.failed.unwrap().to_string().contains(error));
    }
}

#[test]
fn a_long_query_goes_on_in_parts_and_never_becomes_whole_when_it_is_malformed() {
    let mut session = Session::new();
    let mut text = vec![b'x'; 5000];
    text.push(0);
    session.client(&[(b'Q', &text)]);
    assert_eq!(session.notes.0, ["1 Q of 5001"]);
    assert_eq!(session.server(&[(b'C', b"X\0"), READY]), ["1: X (0) 0"]);
    text[4000] = 0;
    let bytes = encode(b'Q', &text);
    let reader = &mut FromClient { exchange: &mut session.exchange, said: &mut session.notes };
    let walked = session.client.walk(&bytes, reader);
    assert!(walked.failed.is_some() && walked.may_go < bytes.len());
}

#[test]
fn an_error_of_any_length_says_what_it_is() {
    for length in [10, 900, 5_000, 20_000, 200_000] {
        let mut session = Session::new();
        session.client(&[(b'Q', b"select\0")]);
        let error = [b"SERROR\0C22012\0M".to_vec(), vec![b'x'; length], b"\0Hhint\0\0".to_vec()].concat();
        let told = session.server(&[(b'E', &error), READY]);
        assert!(told[0].starts_with("Some(1): 22012 xxxxxxxxxx"), "{length}");
        assert_eq!(told[0].ends_with(" ... (cut)"), length > MOST_TEXT_BYTES, "{length}");
        assert!(told[0].len() < MOST_TEXT_BYTES + 100 && !session.exchange.is_busy());
    }
}

#[test]
fn the_encoding_is_the_one_that_the_server_has_reported_last() {
    let mut session = Session::new();
    session.client(&[(b'Q', b"a\0"), (b'Q', b"b\0")]);
    let error: (u8, &[u8]) = (b'E', b"SERROR\0C1\0Mcaf\xe9\0\0");
    assert_eq!(session.server(&[error, READY]), ["Some(1): 1 caf\u{fffd}"]);
    let told = session.server(&[(b'S', b"client_encoding\0LATIN1\0"), error, READY]);
    assert_eq!(told, ["Some(2): 1 caf\u{e9}"]);
}

#[test]
fn what_a_sync_fails_with_is_its_own() {
    let mut session = Session::new();
    session.client(&[PARSE, BIND, EXECUTE, SYNC, (b'Q', b"select\0")]);
    let error: (u8, &[u8]) = (b'E', b"SERROR\0C23505\0Mtwice\0\0");
    let told = session.server(&[(b'1', b""), (b'2', b""), (b'C', b"INSERT 0 1\0"), error, READY]);
    assert_eq!(told, ["3: INSERT 0 1 (0) 0", "Some(4): 23505 twice"]);
    assert_eq!(session.server(&[(b'C', b"SELECT 1\0"), READY]), ["5: SELECT 1 (0) 0"]);
    assert!(!session.exchange.is_busy());
}

#[test]
fn a_server_asks_for_no_password_once_the_session_is_ready() {
    // AuthenticationCleartextPassword, another key to cancel with, another version, and kinds that no server sends.
    for (kind, content) in [(b'R', &b"\0\0\0\x03"[..]), (b'K', b"\0\0\0\x01key1"), (b'v', &[0; 8])] {
        let mut session = Session::new();
        let before = encode(b'N', b"SNOTICE\0\0");
        let bytes = [before.as_slice(), &encode(kind, content)].concat();
        let walked = session.server.walk(&bytes, &mut FromServer { exchange: &mut session.exchange });
        let place = "after the authentication";
        assert_eq!((walked.may_go, walked.failed), (before.len(), Some(Malformed::Place { kind, place })));
    }
    for kind in [b'p', b'X', b'Q', b'!', 0] {
        let mut session = Session::new();
        let walked =
            session.server.walk(&encode(kind, b""), &mut FromServer { exchange: &mut session.exchange });
        assert_eq!((walked.may_go, walked.failed), (0, Some(Malformed::Kind(kind))));
    }
}
