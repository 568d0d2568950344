//! Recordings of database sessions whose client or server wants to fill the memory of the person who reads them.

use std::time::Duration;

use sallyport_audit::recording::database::{DatabaseFrame, Parameter, Statement};
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Frame};

/// Results, of which SALLYPORT_TRANSCRIPT_RESULTS takes another number, and most memory that a reader takes for them, in KiB.
const RESULTS: u64 = 500_000;
const MOST_RESULTS_KIB: u64 = 88 * 1024;
/// Messages with a long text, and most memory for those.
const MESSAGES: u64 = 600;
const MOST_MESSAGES_KIB: u64 = 32 * 1024;
const LONG: usize = 64 * 1024;

/// The memory that this process has now, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn statement(text: String) -> Statement {
    Statement { text, ..Statement::default() }
}

fn query(number: u64, text: impl Into<String>) -> DatabaseFrame {
    DatabaseFrame::Query { number, statement: statement(text.into()) }
}

fn result(of: u64, tag: &str) -> DatabaseFrame {
    DatabaseFrame::Result { of, tag: tag.to_owned(), rows: 0, bytes: 0, took_us: 0 }
}

/// Reads them all; no more is held meanwhile than may be.
fn reads(what: &str, most: u64, frames: impl Iterator<Item = DatabaseFrame>) {
    let before = memory();
    let mut transcript = Transcript::new(Look::Sql);
    for (number, frame) in frames.enumerate() {
        let _ = transcript.frame(&Frame { at: Duration::ZERO, body: Body::Database(Box::new(frame)) });
        if number % 100 == 0 {
            let taken = memory().saturating_sub(before);
            assert!(taken < most, "{what}: {} MiB after {number} frames", taken / 1024);
        }
    }
    let _ = transcript.finish();
}

/// Many results of each message, all in one transaction that does not end.
fn results(count: u64) -> impl Iterator<Item = DatabaseFrame> {
    const EACH: u64 = 9_000;
    let tag = format!("SELECT {}", "1".repeat(57));
    let begin = [query(1, "begin"), result(1, "BEGIN")].into_iter();
    begin.chain((0..count).flat_map(move |index| {
        let number = index / EACH + 2;
        let said = (index % EACH == 0).then(|| query(number, "select 1"));
        said.into_iter().chain([result(number, &tag)])
    }))
}

#[test]
fn no_stream_makes_a_reader_hold_much_of_it() {
    let count = std::env::var("SALLYPORT_TRANSCRIPT_RESULTS");
    let count = count.ok().and_then(|text| text.parse().ok()).unwrap_or(RESULTS);
    reads("results", MOST_RESULTS_KIB, results(count));
    let long = || "x".repeat(LONG);
    // Messages without answers, which the server then reads in another encoding again and again.
    let unanswered = (1..=MESSAGES).map(|number| query(number, format!("select '{}\u{e9}'", long())));
    let encodings = (0..MESSAGES).map(|_| DatabaseFrame::Encoding { name: "LATIN1".to_owned() });
    reads("messages without answers", MOST_MESSAGES_KIB, unanswered.chain(encodings));
    let named = (0..MESSAGES).flat_map(|index| {
        let (number, name) = (2 * index + 1, format!("s{index}"));
        let prepared = DatabaseFrame::Parse { number, name, statement: statement(long()) };
        [prepared, query(number + 1, "select 1"), result(number + 1, "SELECT 1")]
    });
    reads("prepared statements", MOST_MESSAGES_KIB, named);
    let bound = (0..MESSAGES).flat_map(|index| {
        let (number, portal) = (2 * index + 1, format!("p{index}"));
        let parameters = Some(vec![Parameter::Text("x".repeat(1024)); 64]);
        let statement = String::new();
        let doubtful = false;
        let bind = DatabaseFrame::Bind { number, portal, statement, count: 64, parameters, doubtful };
        [bind, query(number + 1, "select 1"), result(number + 1, "SELECT 1")]
    });
    reads("portals", MOST_MESSAGES_KIB, bound);
    let notice = || DatabaseFrame::Notice {
        severity: "WARNING".to_owned(),
        sqlstate: String::new(),
        message: "x".repeat(4096),
    };
    let notices = (0..10 * MESSAGES).map(|_| notice());
    reads("notices", MOST_MESSAGES_KIB, std::iter::once(query(1, "select 1")).chain(notices));
    let below = (0..10 * MESSAGES).map(|_| notice());
    let begun = [query(1, "begin"), result(1, "BEGIN"), query(2, "select 1"), result(2, "SELECT 1")];
    reads("notices in a transaction", MOST_MESSAGES_KIB, begun.into_iter().chain(below));
}
