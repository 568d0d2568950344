use sallyport_access::SessionId;
use time::macros::datetime;

use super::*;
use crate::recording::database::Transaction;

mod ends;
mod shown;

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
        doubtful: false,
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
        database(DatabaseFrame::Parse { number: 6, name: String::new(), statement: statement("selec") }),
        database(error(6, "syntax error\nat \"selec\"")),
        database(DatabaseFrame::Query {
            number: 8,
            statement: Statement { bytes: Some(9000), sha256: Some("ab".into()), ..statement("insert") },
        }),
        database(DatabaseFrame::Copy { of: 8, into: true, bytes: 5 << 20 }),
        result(6, "INSERT 0 1", 0),
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
         [message 6] INSERT 0 1 (2.250 ms)\n\
         cut off after 1.500 s: locked\n"
    );
    let terminal = transcript(Look::Terminal);
    assert!(terminal.contains("\r\n\u{1b}[31mERROR:  syntax"), "{terminal:?}");
    assert_eq!(terminal.matches('\n').count(), terminal.matches("\r\n").count());
}

#[test]
fn a_script_has_the_statements_that_went_well_and_the_rest_in_comments() {
    let script = transcript(Look::Sql);
    assert!(
        script.contains("\n-- at 1.500 s\nselect *\nfrom t  -- all\u{fffd}[2J\n;\n-- SELECT 3 ("),
        "{script}"
    );
    assert!(
        script.contains("-- $1 = 'it''s', $2 = NULL\n-- select $1, $2;\nselect  E'it''s' ,  NULL ;\n"),
        "{script}"
    );
    assert!(script.contains("-- the first 6 of 9000 bytes, SHA-256 ab\n-- not run here"), "{script}");
    assert!(script.contains("\n-- insert\n"), "{script}");
    let run: Vec<&str> = script.lines().filter(|line| !line.starts_with("--") && !line.is_empty()).collect();
    assert_eq!(run, ["select *", "from t  -- all\u{fffd}[2J", ";", "select  E'it''s' ,  NULL ;"]);
}

fn query(number: u64, text: &str) -> DatabaseFrame {
    DatabaseFrame::Query { number, statement: statement(text) }
}

fn parse(number: u64, name: &str, text: &str) -> DatabaseFrame {
    DatabaseFrame::Parse { number, name: name.into(), statement: statement(text) }
}

fn bind(number: u64, name: &str) -> DatabaseFrame {
    let (portal, statement) = (String::new(), name.to_owned());
    DatabaseFrame::Bind { number, portal, statement, count: 0, parameters: None, doubtful: false }
}

fn execute(number: u64) -> DatabaseFrame {
    DatabaseFrame::Execute { number, portal: String::new(), rows: 0 }
}

fn result(of: u64, tag: &str) -> DatabaseFrame {
    DatabaseFrame::Result { of, tag: tag.into(), rows: 0, bytes: 0, took_us: 0 }
}

fn error(of: u64) -> DatabaseFrame {
    let (severity, sqlstate) = ("ERROR".to_owned(), "42P05".to_owned());
    DatabaseFrame::Error { of: Some(of), severity, sqlstate, message: "no".into(), took_us: 0 }
}

fn ready(of: u64, transaction: Transaction) -> DatabaseFrame {
    DatabaseFrame::Ready { of, transaction }
}

fn played(look: Look, frames: Vec<DatabaseFrame>) -> String {
    let mut transcript = Transcript::new(look);
    let mut text: String = frames
        .into_iter()
        .map(|frame| transcript.frame(&Frame { at: Duration::ZERO, body: Body::Database(Box::new(frame)) }))
        .collect();
    text += &transcript.finish();
    text
}

/// The lines of a script that are no comments.
fn lives(frames: Vec<DatabaseFrame>) -> Vec<String> {
    let script = played(Look::Sql, frames);
    let lines = script.lines().filter(|line| !line.starts_with("--") && !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn a_parse_that_fails_leaves_the_name_to_the_statement_that_has_it() {
    let frames = || {
        vec![
            parse(1, "s", "select 'it'"),
            // One flight: the Syncs have the numbers 2, 4 and 7.
            parse(3, "s", "select 'not it'"),
            bind(5, "s"),
            execute(6),
            error(3),
            result(6, "SELECT 1"),
            ready(7, Transaction::None),
        ]
    };
    assert_eq!(lives(frames()), ["select 'it';"]);
    let plain = played(Look::Plain, frames());
    assert_eq!(
        plain,
        "db=> select 'not it'\nERROR:  no [42P05] (0.000 ms)\ndb=> select 'it'\nSELECT 1 (0.000 ms)\n"
    );
}

#[test]
fn what_follows_an_error_up_to_the_sync_was_not_run() {
    let frames = || {
        vec![
            parse(1, "", "select 1"),
            bind(2, ""),
            execute(3),
            parse(4, "", "select 2"),
            bind(5, ""),
            execute(6),
            parse(7, "", "select 3"),
            bind(8, ""),
            execute(9),
            // The Sync is 10.
            query(11, "select 4"),
            result(3, "SELECT 1"),
            error(6),
            result(11, "SELECT 1"),
        ]
    };
    // An error undoes what stands before it in the same pipeline.
    assert_eq!(lives(frames()), ["select 4;"]);
    let script = played(Look::Sql, frames());
    let order =
        ["undone", "-- select 1", "not run here", "-- select 2", "-- ERROR", "passed it over", "-- select 3"];
    let places: Vec<usize> = order.iter().map(|part| script.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{script}");
    // The rest of the pipeline may come after the error.
    let late = vec![
        parse(1, "", "selec"),
        error(1),
        bind(2, ""),
        execute(3),
        query(5, "select 4"),
        result(5, "SELECT 1"),
    ];
    assert_eq!(lives(late), ["select 4;"]);
    // An error at the Sync, as of a deferred constraint.
    let late = vec![
        parse(1, "", "select 1"),
        bind(2, ""),
        execute(3),
        result(3, "SELECT 1"),
        error(4),
        query(5, "show a"),
        result(5, "SHOW"),
    ];
    assert_eq!(lives(late), ["show a;"]);
    let kept = vec![
        parse(1, "", "commit"),
        bind(2, ""),
        execute(3),
        parse(4, "", "select 2"),
        bind(5, ""),
        execute(6),
        result(3, "COMMIT"),
        error(6),
    ];
    assert_eq!(lives(kept), ["commit;"]);
}

#[test]
fn names_follow_what_sql_says_of_them() {
    let frames = |sql: &str, tag: &str| {
        vec![
            parse(1, "s", "select 'first'"),
            query(3, sql),
            result(3, tag),
            bind(4, "s"),
            execute(5),
            result(5, "SELECT 1"),
            ready(6, Transaction::None),
        ]
    };
    let live = |sql, tag| lives(frames(sql, tag)).pop().unwrap_or_default();
    assert_eq!(live("deallocate t", "DEALLOCATE"), "select 'first';");
    assert_eq!(live("prepare s as select 'second'", "PREPARE"), "select 'second';");
    // What is not known is not live.
    assert_eq!(live("deallocate \"s\"", "DEALLOCATE"), "deallocate \"s\";");
    assert_eq!(live("discard all", "DISCARD ALL"), "discard all;");
}

#[test]
fn nothing_is_live_that_psql_would_take_otherwise() {
    for text in
        ["select 1 \\! touch x", "select 1 /*", "select 'x", "copy t from stdin", "select 1; select 2"]
    {
        assert!(lives(vec![query(1, text), result(1, "SELECT 1")]).is_empty(), "{text}");
    }
    // The record ends before its answer, or has none of it.
    assert!(lives(vec![query(1, "select 1")]).is_empty());
    assert!(lives(vec![query(1, "select 1"), query(2, "select 2"), error(1)]).is_empty());
}

#[test]
fn a_lone_cr_hides_nothing_and_nothing_steers() {
    let text = "select 1 -- it\rdrop table t\u{202e}\u{2028}\u{c}x\u{1b}]52;c;eA==\u{7}";
    let plain = played(Look::Plain, vec![query(1, text)]);
    assert_eq!(
        plain,
        "db=> select 1 -- it\ndb-> drop table t\u{fffd}\u{fffd}\u{fffd}x\u{fffd}]52;c;eA==\u{fffd}\n"
    );
    let script = played(Look::Sql, vec![query(1, text)]);
    assert!(script.contains("\n-- select 1 -- it\n-- drop table t\u{fffd}"), "{script}");
}

#[test]
fn only_sessions_with_databases_are_shown_so() {
    let start = frames().into_iter().next().unwrap();
    assert!(Transcript::is_for(&Frame { at: Duration::ZERO, body: start }));
    let note = Body::Note { text: "gap".into() };
    assert!(!Transcript::is_for(&Frame { at: Duration::ZERO, body: note }));
}

#[test]
fn what_a_statement_lacks_is_said() {
    let lacking = |statement: Statement| {
        let text =
            played(Look::Plain, vec![DatabaseFrame::Query { number: 1, statement: statement.clone() }]);
        let live = lives(vec![DatabaseFrame::Query { number: 1, statement }, result(1, "SELECT 1")]);
        (text, live.len())
    };
    let part = Statement {
        bytes: Some(9000),
        sha256: Some("ab".into()),
        dropped: Some(40),
        left_out: Some(7000),
        ..statement("select 1 [... 7000 bytes left out ...] from t")
    };
    let (text, live) = lacking(part);
    assert!(
        text.contains(
            "\n-- of 9000 bytes 40 of comments and blanks dropped, 7000 left out at the mark, SHA-256 ab\n"
        ),
        "{text}"
    );
    assert_eq!(live, 0);
    let read = Statement {
        encoding: Some("LATIN1".into()),
        base64: vec!["c2VsZWN0ICfpJw==".into()],
        ..statement("select '\u{e9}'")
    };
    let (text, live) = lacking(read.clone());
    assert!(text.contains("\n-- sent in LATIN1\n"), "{text}");
    assert_eq!(live, 1);
    let (text, live) = lacking(Statement { encoding: None, ..read });
    assert!(text.contains("bytes that are no text"), "{text}");
    assert_eq!(live, 0);
}
