//! What is live is what the server has run as it is recorded, and has committed.

use super::*;

/// A query and its results.
fn run(number: u64, text: &str, tags: &[&str]) -> Vec<DatabaseFrame> {
    let results = tags.iter().map(|tag| result(number, tag));
    std::iter::once(query(number, text)).chain(results).collect()
}

/// A statement by the extended query, without its `Sync`, which has the number behind these three.
fn extended(number: u64, text: &str, tag: &str) -> Vec<DatabaseFrame> {
    vec![parse(number, "", text), bind(number + 1, ""), execute(number + 2), result(number + 2, tag)]
}

fn lives_of(parts: &[Vec<DatabaseFrame>]) -> Vec<String> {
    lives(parts.concat())
}

#[test]
fn a_message_whose_results_are_others_than_its_statements_is_not_live() {
    for (text, tags) in [
        // As many as the server has answered, and not those.
        ("select 1; drop table t", &["SELECT 1", "SELECT 1"][..]),
        ("select 1; drop table t", &["DROP TABLE", "SELECT 1"]),
        // What ends a function's block here is a name at the server, and the other way round.
        (
            "create function f() returns int begin atomic select 1 as end; drop table t; end; select 1",
            &["CREATE FUNCTION", "SELECT 1", "COMMIT", "SELECT 1"],
        ),
        (
            "create function begin() returns int language sql as 'select 1'; drop table t; end",
            &["CREATE FUNCTION"],
        ),
        ("create function f() returns int begin atomic select 1; select 2; end", &["CREATE FUNCTION"]),
        // With standard_conforming_strings off the server has read one statement.
        ("select 'a\\'; drop table t; --'", &["SELECT 1"]),
        ("select 'a\\', 'b'", &["SELECT 1"]),
        ("select 1", &["SELECT 1 1"]),
        ("frobnicate", &["FROBNICATE"]),
    ] {
        assert!(lives_of(&[run(1, text, tags)]).is_empty(), "{text}");
    }
    let balanced = run(1, "select 1; drop table t", &["SELECT 1", "SELECT 1"]);
    let script = played(Look::Sql, [balanced, run(2, "show a", &["SHOW"])].concat());
    assert!(
        script.contains("\n-- not run here: what the server has completed are other statements\n"),
        "{script}"
    );
}

#[test]
fn text_that_waits_for_what_may_change_its_encoding_is_not_live() {
    let said = |number, text: &str, doubtful| {
        let statement = Statement { doubtful, ..statement(text) };
        vec![DatabaseFrame::Query { number, statement }, result(number, "SELECT 1")]
    };
    let other = "select '\u{ff83}\u{ff3c}'";
    assert_eq!(lives_of(&[said(1, other, false), said(2, other, true)]).len(), 1);
    // In a value, and in a statement that is run later.
    let extended = |doubtful: bool, value: bool| {
        let statement = Statement { doubtful, ..statement("select $1") };
        let parameters = Some(vec![Parameter::Text("\u{e9}".into())]);
        let (portal, named) = (String::new(), "s".to_owned());
        lives(vec![
            DatabaseFrame::Parse { number: 1, name: "s".into(), statement },
            DatabaseFrame::Bind {
                number: 3,
                portal,
                statement: named,
                count: 1,
                parameters,
                doubtful: value,
            },
            execute(4),
            result(4, "SELECT 1"),
            ready(5, Transaction::None),
        ])
    };
    assert_eq!(extended(false, false), ["select  E'\\u00e9';"]);
    assert!(extended(true, false).is_empty() && extended(false, true).is_empty());
    // The server has read its settings anew while it had this.
    let otherwise = vec![
        query(1, "select '\u{e9}'"),
        result(1, "SELECT 1"),
        DatabaseFrame::Encoding { name: "SJIS".into() },
        query(2, "select '\u{e9}'"),
        result(2, "SELECT 1"),
    ];
    assert_eq!(lives(otherwise), ["select E'\\u00e9';"]);
}

#[test]
fn a_transaction_is_live_once_it_is_committed() {
    let begun =
        || [run(1, "begin", &["BEGIN"]), run(2, "insert into t values (1)", &["INSERT 0 1"])].concat();
    let whole = ["begin;", "insert into t values (1);", "commit;"];
    assert_eq!(lives_of(&[begun(), run(3, "commit", &["COMMIT"])]), whole);
    assert!(lives(begun()).is_empty());
    for (text, tag) in [
        ("rollback", "ROLLBACK"),
        ("commit", "ROLLBACK"),
        ("prepare transaction 'x'", "ROLLBACK"),
        ("prepare transaction 'x'", "PREPARE TRANSACTION"),
        ("rollback and chain", "ROLLBACK"),
    ] {
        let script = played(Look::Sql, [begun(), run(3, text, &[tag])].concat());
        assert!(!script.lines().any(|line| line.starts_with("insert")), "{text}: {script}");
        let after = lives_of(&[begun(), run(3, text, &[tag]), run(4, "select 1", &["SELECT 1"])]);
        assert_eq!(after.is_empty(), text.ends_with("chain"), "{text}");
    }
    // By a message with other statements.
    assert!(lives_of(&[begun(), run(3, "select 1; commit", &["SELECT 1", "ROLLBACK"])]).is_empty());
    let one = "begin; insert into t values (1); commit";
    assert_eq!(lives_of(&[run(1, one, &["BEGIN", "INSERT 0 1", "COMMIT"])]), [one.to_owned() + ";"]);
    assert!(lives_of(&[run(1, one, &["BEGIN", "INSERT 0 1", "ROLLBACK"])]).is_empty());
    assert!(lives_of(&[run(1, "begin; insert into t values (1)", &["BEGIN", "INSERT 0 1"])]).is_empty());
    // An error in it that it was rolled back from.
    let failed = vec![query(4, "selec"), error(4), ready(4, Transaction::Failed)];
    let saved = [begun(), run(3, "savepoint a", &["SAVEPOINT"]), failed].concat();
    let back = run(5, "rollback to a", &["ROLLBACK"]);
    let live = lives_of(&[saved.clone(), back, run(6, "end", &["COMMIT"])]);
    assert_eq!(live, ["begin;", "insert into t values (1);", "savepoint a;", "rollback to a;", "end;"]);
    assert!(lives_of(&[saved, run(6, "end", &["ROLLBACK"])]).is_empty());
    // What of it was run in part may have set the savepoint that is gone back to.
    let part = vec![query(3, "savepoint a; selec"), result(3, "SAVEPOINT"), error(3)];
    let back = run(5, "rollback to a", &["ROLLBACK"]);
    assert!(lives_of(&[begun(), part, back, run(6, "end", &["COMMIT"])]).is_empty());
}

#[test]
fn a_transaction_behind_another_is_live_by_itself() {
    let chained = || {
        let first = [run(1, "begin", &["BEGIN"]), run(2, "select 1", &["SELECT 1"])].concat();
        [first, run(3, "commit and chain", &["COMMIT"]), run(4, "select 2", &["SELECT 1"])].concat()
    };
    let first = ["begin;", "select 1;", "commit;"];
    assert_eq!(lives(chained()), first);
    assert_eq!(
        lives_of(&[chained(), run(5, "rollback", &["ROLLBACK"]), run(6, "show a", &["SHOW"])])[..3],
        first
    );
    let live = lives_of(&[chained(), run(5, "commit", &["COMMIT"]), run(6, "show a", &["SHOW"])]);
    assert_eq!(live[..3], first);
    assert_eq!(live[3..], ["begin;", "select 2;", "commit;", "show a;"]);
}

#[test]
fn what_began_a_transaction_is_certain_or_nothing_of_it_is_live() {
    let rest =
        || [run(3, "insert into t values (1)", &["INSERT 0 1"]), run(4, "commit", &["COMMIT"])].concat();
    let cut = Statement { bytes: Some(9000), ..statement("begin") };
    let cut = vec![DatabaseFrame::Query { number: 1, statement: cut }, result(1, "BEGIN")];
    let after = run(5, "select 1", &["SELECT 1"]);
    assert_eq!(lives_of(&[cut, vec![ready(1, Transaction::Open)], rest(), after.clone()]), ["select 1;"]);
    let quoted = run(1, "begin; select 'a\\'", &["BEGIN", "SELECT 1"]);
    assert_eq!(lives_of(&[quoted, rest(), after.clone()]), ["select 1;"]);
    // The server says that one is open of which the record has no beginning.
    assert_eq!(lives_of(&[vec![ready(1, Transaction::Open)], rest(), after.clone()]), ["select 1;"]);
    // So much belongs below it that it is written before it is done.
    let notice =
        DatabaseFrame::Notice { severity: "NOTICE".into(), sqlstate: "0".into(), message: "m".into() };
    let noisy =
        [vec![query(1, "begin; do ''"), result(1, "BEGIN")], vec![notice; 10_001], vec![result(1, "DO")]];
    assert_eq!(lives_of(&[noisy.concat(), rest(), after.clone()]), ["select 1;"]);
    // A commit that fails has ended it, or has not.
    let begun = run(1, "begin", &["BEGIN"]);
    let commit = vec![query(2, "commit"), error(2), ready(2, Transaction::None)];
    assert_eq!(lives_of(&[begun, commit, after]), ["select 1;"]);
}

#[test]
fn a_pipeline_is_live_when_its_sync_is_answered() {
    assert!(lives(extended(1, "insert into t values (1)", "INSERT 0 1")).is_empty());
    let synced = [extended(1, "select 1", "SELECT 1"), vec![ready(4, Transaction::None)]].concat();
    assert_eq!(lives(synced), ["select 1;"]);
    // As recordings of earlier releases have it: what follows was answered.
    let followed = [extended(1, "select 1", "SELECT 1"), extended(5, "select 2", "SELECT 1")].concat();
    assert_eq!(lives(followed), ["select 1;"]);
}

#[test]
fn what_is_too_long_to_be_held_is_not_live() {
    let mut frames = run(1, "begin", &["BEGIN"]);
    (2..=10_010).for_each(|number| frames.extend(run(number, "select 1", &["SELECT 1"])));
    frames.extend(run(10_011, "rollback", &["ROLLBACK"]));
    frames.extend(run(10_012, "select 2", &["SELECT 1"]));
    assert_eq!(lives(frames), ["select 2;"]);
    let mut frames: Vec<DatabaseFrame> =
        (0..10_010).flat_map(|one| extended(1 + 3 * one, "select 1", "SELECT 1")).collect();
    frames.push(error(30_031));
    frames.extend(run(30_032, "select 2", &["SELECT 1"]));
    assert_eq!(lives(frames), ["select 2;"]);
}

#[test]
fn a_portal_that_is_run_again_is_live_once() {
    let insert = "insert into t values (1) returning 1";
    let frames = || {
        let first = extended(1, insert, "INSERT 0 1");
        let again = vec![execute(4), result(4, "INSERT 0 1"), ready(5, Transaction::None)];
        [first, again].concat()
    };
    assert_eq!(lives(frames()), [insert.to_owned() + ";"]);
    assert!(played(Look::Plain, frames()).contains("\n-- its portal had been run before\n"));
    let part =
        [extended(1, insert, ""), vec![execute(4), result(4, "INSERT 0 1"), ready(5, Transaction::None)]];
    // In part it has done all of it, at another time.
    assert!(lives(part.concat()).is_empty());
}

#[test]
fn what_runs_by_a_name_is_not_live() {
    for (text, tag) in [
        ("execute p", "DELETE 0"),
        ("explain analyze execute p", "EXPLAIN"),
        ("create table t as execute p", "SELECT 1"),
        ("delete from t where current of c", "DELETE 1"),
    ] {
        assert!(lives_of(&[run(1, text, &[tag])]).is_empty(), "{text}");
    }
    let trigger = "create trigger a before insert on t for each row execute function f()";
    assert_eq!(lives_of(&[run(1, trigger, &["CREATE TRIGGER"])]).len(), 1);
    // A portal ends with its transaction.
    let bound = [parse(1, "", "select 1"), bind(2, ""), ready(3, Transaction::None)].to_vec();
    assert!(
        lives_of(&[bound, vec![execute(4), result(4, "SELECT 1"), ready(5, Transaction::None)]]).is_empty()
    );
}

#[test]
fn what_may_have_ended_a_pipeline_leaves_nothing_of_it_live() {
    for (text, tag) in
        [("do 'begin rollback; end'", "DO"), ("call p()", "CALL"), ("copy t from stdin", "COPY 1")]
    {
        let pipeline =
            [extended(1, "insert into t values (1)", "INSERT 0 1"), extended(4, text, tag)].concat();
        let after = run(8, "select 1", &["SELECT 1"]);
        assert_eq!(lives_of(&[pipeline, vec![ready(7, Transaction::None)], after]), ["select 1;"], "{text}");
    }
    assert_eq!(lives_of(&[run(1, "do ''", &["DO"])]).len(), 1);
}

#[test]
fn what_another_flight_says_of_a_name_is_waited_for() {
    let frames = vec![
        parse(1, "s", "select 'old'"),
        query(3, "deallocate s; prepare s as drop table t"),
        bind(4, "s"),
        execute(5),
        result(3, "DEALLOCATE"),
        result(3, "PREPARE"),
        result(5, "DROP TABLE"),
    ];
    let plain = played(Look::Plain, frames);
    assert!(plain.contains("=> drop table t\n") && !plain.contains("old"), "{plain}");
}

#[test]
fn what_more_messages_wait_than_are_followed_may_have_ended_is_not_live() {
    let said = |number, text: &str| vec![query(number, text)];
    let begun = [run(1, "begin", &["BEGIN"]), run(2, "insert into t values (1)", &["INSERT 0 1"])].concat();
    // The first of these is no longer known when it is answered.
    let many: Vec<DatabaseFrame> =
        [said(3, "rollback"), (4..=10_003).map(|number| query(number, "select 2")).collect()].concat();
    let answers: Vec<DatabaseFrame> = (4..=10_003).map(|number| result(number, "SELECT 1")).collect();
    let rest = run(10_004, "commit", &["COMMIT"]);
    let frames = || [begun.clone(), many.clone(), vec![result(3, "ROLLBACK")]].concat();
    assert!(lives_of(&[frames(), answers.clone(), rest]).is_empty());
    let known = vec![ready(3, Transaction::None)];
    assert_eq!(lives_of(&[frames(), known, answers]).len(), 10_000);
    // A result of what is not known.
    let begun = [run(1, "begin", &["BEGIN"]), vec![result(1000, "ROLLBACK")]].concat();
    assert!(lives_of(&[begun, run(1001, "insert into t values (1)", &["INSERT 0 1"])]).is_empty());
}

#[test]
fn a_gap_in_the_record_leaves_nothing_live_that_it_may_have_changed() {
    let mut transcript = Transcript::new(Look::Sql);
    let mut text = String::new();
    let mut play = |body| text += &transcript.frame(&Frame { at: Duration::ZERO, body });
    let database = |frame| Body::Database(Box::new(frame));
    [parse(1, "s", "select 'old'"), query(3, "begin"), result(3, "BEGIN")]
        .map(database)
        .into_iter()
        .for_each(&mut play);
    play(Body::Note { text: "a part is missing".into() });
    let rest = [bind(9, "s"), execute(10), result(10, "SELECT 1"), query(12, "commit"), result(12, "COMMIT")];
    rest.map(database).into_iter().for_each(&mut play);
    text += &transcript.finish();
    assert!(!text.lines().any(|line| !line.is_empty() && !line.starts_with("--")), "{text}");
}

#[test]
fn what_follows_a_statement_that_is_a_comment_says_so() {
    const MARK: &str = "-- what follows may depend on what is not run here: ";
    let marks = |parts: &[Vec<DatabaseFrame>]| {
        let script = played(Look::Sql, parts.concat());
        let marks: Vec<String> =
            script.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::to_owned).collect();
        marks
    };
    let lives = || run(9, "insert into t values (1)", &["INSERT 0 1"]);
    let one = ["the statement at 0.000 s"];
    for (what, said) in [
        // Its text is read otherwise by the server, perhaps.
        ("doubtful", run(1, "create table t (a text default 'a\\')", &["CREATE TABLE"])),
        ("other statements", run(1, "select 1", &["CREATE TABLE"])),
        ("by name", run(1, "execute makes", &["CREATE TABLE"])),
        ("a copy", run(1, "copy t from stdin", &["COPY 3"])),
        (
            "a function",
            vec![
                DatabaseFrame::FunctionCall { number: 1, function: 1598, count: 0, parameters: None },
                result(1, ""),
                ready(1, Transaction::None),
            ],
        ),
        (
            "a part of a message that has committed",
            [
                run(1, "begin; create table t (); commit; selec", &["BEGIN", "CREATE TABLE", "COMMIT"]),
                vec![error(1), ready(1, Transaction::None)],
            ]
            .concat(),
        ),
        ("a procedure that has failed", vec![query(1, "call makes()"), error(1)]),
        (
            "prepared for two phases",
            [
                run(1, "begin", &["BEGIN"]),
                run(2, "create table t ()", &["CREATE TABLE"]),
                run(3, "prepare transaction 'x'", &["PREPARE TRANSACTION"]),
                vec![ready(3, Transaction::None)],
            ]
            .concat(),
        ),
    ] {
        let found = marks(&[said.clone(), lives()]);
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        if what != "prepared for two phases" {
            assert_eq!(found, one, "{what}");
        }
        // It is said once, before the first that follows, and only where one follows.
        assert_eq!(marks(&[said.clone(), lives(), run(10, "select 2", &["SELECT 1"])]).len(), 1, "{what}");
        assert!(marks(&[said]).is_empty(), "{what}");
    }
    let two = [run(1, "copy t from stdin", &["COPY 3"]), run(2, "copy t from stdin", &["COPY 3"]), lives()];
    assert_eq!(marks(&two), ["2 statements, from the one at 0.000 s to the one at 0.000 s"]);
    // Nothing has come of these.
    for said in [
        vec![query(1, "create table t ()"), error(1)],
        run(1, "", &[""]),
        [
            run(1, "begin", &["BEGIN"]),
            run(2, "create table t ()", &["CREATE TABLE"]),
            run(3, "rollback", &["ROLLBACK"]),
        ]
        .concat(),
        [extended(1, "create table t ()", "CREATE TABLE"), vec![parse(4, "", "selec"), error(4)]].concat(),
        run(1, "create table t ()", &["CREATE TABLE"]),
    ] {
        let found = marks(&[said.clone(), lives()]);
        assert!(found.is_empty(), "{said:?}: {found:?}");
    }
    // What the record has lost.
    let mut transcript = Transcript::new(Look::Sql);
    let at = Duration::ZERO;
    let gap = Frame { at, body: Body::Note { text: "12 frames are missing".into() } };
    let mut script = transcript.frame(&gap);
    for frame in [vec![ready(8, Transaction::None)], lives()].concat() {
        script += &transcript.frame(&Frame { at, body: Body::Database(Box::new(frame)) });
    }
    script += &transcript.frame(&Frame { at, body: Body::Database(Box::new(ready(9, Transaction::None))) });
    assert!(script.contains(&format!("{MARK}what is missing in the record\n")), "{script}");
}
