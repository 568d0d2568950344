//! What is made of recordings, fed to the programs that people feed it to.

use std::fs;
use std::time::Duration;

use sallyport_audit::recording::database::{DatabaseFrame, Statement};
use sallyport_audit::recording::sql;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::recording::{Body, Frame};

use crate::client::{Client, words};
use crate::sessions::Dice;
use crate::world::World;

fn script(frames: &[Frame]) -> String {
    let mut transcript = Transcript::new(Look::Sql);
    let text: String = frames.iter().map(|frame| transcript.frame(frame)).collect();
    text + &transcript.finish()
}

/// How those who feed a script to psql have set it up: none of it is the script's to know.
const READERS: [&[(&str, &str)]; 4] = [
    &[],
    &[("PGCLIENTENCODING", "SJIS")],
    &[("PGCLIENTENCODING", "GB18030")],
    &[("PGOPTIONS", "-c standard_conforming_strings=off -c client_min_messages=error")],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_of_a_hostile_session_runs_its_statements_and_nothing_on_the_readers_machine() {
    let world = World::new("");
    world
        .postgres
        .sql("create role app login superuser; create table t (a int); create table ran (what text)");
    let outside = tempfile::tempdir().unwrap();
    let marker = outside.path().join("marker");
    let shell = format!("\\! touch {}", marker.display());
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    let hostile = [
        // What the server does not take, and psql would.
        format!("select 1 \n{shell}\n"),
        format!("select 1 {shell}"),
        "select 1 /* from here on".to_owned(),
        "select 'from here on".to_owned(),
        "select (".to_owned(),
        // What the server takes, and psql would take apart otherwise.
        format!("select 1 -- x\r, 2\n -- {shell}"),
        format!("select E'a'\n'b\\'\n{shell}\nc'"),
        "set standard_conforming_strings = off".to_owned(),
        format!("select 'a\\'\n{shell}\n'"),
        "set standard_conforming_strings = on".to_owned(),
        format!("select $x$'\n{shell}\n$x$, \"'\n{shell}\n\"\"\" from (select 1 as \"'\n{shell}\n\"\"\") s"),
        format!("select '\u{3042}', '\n{shell}\n', '\u{30bd}', '\u{30bd}'"),
        format!("/* /* */ '\n{shell} */ select 1"),
        "select (array[1, 2, 3])[1:2]".to_owned(),
        "create function two() returns int language sql as $$ select 1; select 2 $$".to_owned(),
        // Versions of psql end it in different places.
        "create function three() returns int begin atomic select 1; select 3; end".to_owned(),
        format!("do $$ begin raise notice E'\\n{}'; end $$", shell.replace('\\', "\\\\")),
    ];
    for (number, text) in hostile.iter().enumerate() {
        client.query(text).await;
        let ran = client.query(&format!("insert into ran values ('{number}')")).await;
        assert_eq!(ran, "INSERT 0 1|Z", "{text}");
    }
    // Data of a copy is not on record, and what follows is none.
    client.say(&[(b'Q', b"copy t from stdin\0")]).await;
    assert_eq!(client.message().await.unwrap().0, b'G');
    client.say(&[(b'd', b"1\n2\n"), (b'c', b"")]).await;
    assert_eq!(words(&client.answers().await), "COPY 2|Z");
    assert_eq!(client.query("insert into ran values ('after the copy')").await, "INSERT 0 1|Z");
    client.query("copy ran to stdout").await;
    client.query("set client_encoding = 'SJIS'").await;
    let text = [&b"select '\x83\x5c', E'\x83\x5c', '\n"[..], shell.as_bytes(), b"\n'\0"].concat();
    client.say(&[(b'Q', &text)]).await;
    client.answers().await;
    assert_eq!(client.query("insert into ran values ('the last')").await, "INSERT 0 1|Z");
    client.say(&[(b'X', b"")]).await;
    assert_eq!(client.message().await, None);
    world.quiet().await;

    let script = script(&world.recording(&session));
    let file = outside.path().join("script.sql");
    fs::write(&file, &script).unwrap();
    let all = world.postgres.sql("select string_agg(what, ',' order by what) from ran");
    for reader in READERS {
        world.postgres.sql("truncate ran; drop function two; drop function if exists three");
        let said = world.postgres.feed(&file, reader);
        assert!(!marker.exists(), "{reader:?}\n{script}");
        let problems = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!problems.contains("ERROR"), "{reader:?}: {problems}\n{script}");
        let again = world.postgres.sql("select string_agg(what, ',' order by what) from ran");
        assert_eq!(again, all, "{reader:?}\n{script}");
    }
    assert_eq!(world.postgres.sql("select two()"), "2");
    assert_eq!(world.postgres.sql("select count(*) from pg_proc where proname = 'three'"), "0");
}

/// What is said in a session: messages that go together, and what is waited for.
type Said = &'static [(u8, &'static [u8])];

const PARSE: (u8, &[u8]) = (b'P', b"\0insert into ran values (2) returning a\0\0\0");
const BIND: (u8, &[u8]) = (b'B', b"\0\0\0\0\0\0\0\0");
const EXECUTE: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
const BEGIN: (u8, &[u8]) = (b'Q', b"begin; insert into ran values (1)\0");
const INSERT: (u8, &[u8]) = (b'Q', b"insert into ran values (2)\0");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_runs_nothing_that_the_server_has_read_otherwise_or_rolled_back() {
    let world = World::new("");
    world.postgres.sql(
        "create role app login superuser; create table ran (a int); create table other (a int); \
         create function f() returns void language sql as ''",
    );
    // Each with the rows that its script leaves.
    let sessions: [(&[Said], &str); 12] = [
        (&[&[BEGIN], &[(b'Q', b"commit\0")]], "1"),
        (&[&[BEGIN], &[(b'Q', b"commit and chain\0")], &[INSERT]], "1"),
        (&[&[BEGIN], &[(b'Q', b"commit and chain\0")], &[INSERT], &[(b'Q', b"commit\0")]], "1,2"),
        (&[&[BEGIN], &[(b'Q', b"prepare transaction 'x'\0")], &[(b'Q', b"rollback prepared 'x'\0")]], ""),
        (&[&[BEGIN], &[(b'Q', b"selec\0")], &[(b'Q', b"prepare transaction 'x'\0")]], ""),
        (&[&[BEGIN], &[(b'Q', b"selec\0")], &[(b'Q', b"commit; select 1\0")], &[INSERT]], "2"),
        (&[&[BEGIN], &[(b'Q', b"savepoint a\0")], &[(b'Q', b"selec\0")], &[(b'Q', b"rollback to a\0")], &[(b'Q', b"end\0")]], "1"),
        // Without a Sync, and run once more behind its end.
        (&[&[PARSE, BIND, EXECUTE, (b'H', b"")]], ""),
        (&[&[PARSE, BIND, EXECUTE, EXECUTE, (b'S', b"")]], "2"),
        // As many statements here as results, and of the same kinds: a name ends the function, or the text has other characters.
        (&[&[(b'Q', b"create or replace function f() returns void begin atomic select 1 as end; insert into ran values (3); end\0")], &[INSERT]], "2"),
        (
            &[
                &[
                    (b'Q', b"set client_encoding = 'SJIS'\0"),
                    (
                        b'Q',
                        b"select E'\xc3\x81\\\\'; insert into ran values (3); select 1 --'; insert into other values (1); select 2\0",
                    ),
                    (b'Q', b"set client_encoding = 'UTF8'\0"),
                ],
                &[INSERT],
            ],
            "2",
        ),
        (
            &[
                &[(b'Q', b"set standard_conforming_strings = off\0")],
                &[(b'Q', b"select 'a\\'; insert into ran values (3); select 1 --'; insert into other values (1); select 2\0")],
                &[INSERT],
            ],
            "2",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (number, (session, left)) in sessions.into_iter().enumerate() {
        world.postgres.sql("truncate ran, other");
        let asked = world.asked(Duration::from_secs(3600));
        let id = asked.session;
        let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
        client.answers().await;
        for messages in session {
            client.say(messages).await;
            for (kind, _) in *messages {
                match kind {
                    b'Q' | b'S' => drop(client.answers().await),
                    b'H' => while client.message().await.unwrap().0 != b'C' {},
                    _ => {}
                }
            }
        }
        client.say(&[(b'X', b"")]).await;
        assert_eq!(client.message().await, None);
        world.quiet().await;
        let rows = "select coalesce(string_agg(a::text, ',' order by a), '') from ran";
        assert_eq!(world.postgres.sql(rows), left, "the session {number}");
        world.postgres.sql("truncate ran, other");
        let script = script(&world.recording(&id));
        let file = directory.path().join("script.sql");
        fs::write(&file, &script).unwrap();
        for reader in [READERS[0], READERS[3]] {
            world.postgres.sql("truncate ran, other");
            world.postgres.feed(&file, reader);
            assert_eq!(world.postgres.sql(rows), left, "the script of {number}:\n{script}");
        }
        // What is hidden from the record is in no script.
        assert_eq!(world.postgres.sql("select count(*) from other"), "0", "{script}");
    }
}

/// What a server may say of what is put together here.
const TAGS: [&str; 9] =
    ["SELECT 1", "DO", "CREATE FUNCTION", "COPY 1", "BEGIN", "COMMIT", "ROLLBACK", "SET", "INSERT 0 1"];

/// Texts that are put together at random.
const ROUNDS: usize = 1500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_recording_leads_psql_out_of_its_script() {
    let world = World::new("");
    let outside = tempfile::tempdir().unwrap();
    let marker = outside.path().join("marker");
    let shell = format!("\n\\! touch {}\n", marker.display());
    let parts = [
        "'",
        "''",
        "\\'",
        "\\\\",
        "E'",
        "e'x'\n'",
        "n'",
        "b'",
        "U&'",
        "u&\"",
        "\"",
        "\"\"",
        "$$",
        "$a$",
        "$",
        "$1",
        "/*",
        "*/",
        "--",
        "\n",
        "\r",
        "\u{b}",
        ";",
        "(",
        ")",
        ":x",
        ":'HOME'",
        ":\"x\"",
        ":{?x}",
        ":",
        "::",
        "\u{30bd}",
        "\u{e9}",
        "\u{3042}",
        "\u{2028}",
        "\u{85}",
        "copy pg_class from",
        " stdin ",
        "begin ",
        "create function f() ",
        "begin atomic ",
        "end",
        "case ",
        "\\.",
        "\\",
        "`",
        "select ",
        "1",
        "1e",
        "0x",
        ",",
        " ",
        "\t",
        "\\gexec",
        "+",
        "set client_encoding = 'SJIS'",
        "set standard_conforming_strings = off",
        "\\q\n",
        &shell,
        &shell,
    ];
    let mut dice = Dice(7);
    let mut frames = Vec::new();
    let mut number = 0;
    let mut query = |text: String, frames: &mut Vec<Frame>| {
        number += 1;
        // A server that lies says that all of it went well.
        let tag = |statement: &Vec<sql::Token<'_>>| {
            TAGS.into_iter().find(|tag| sql::fits(statement, tag)).unwrap_or("X")
        };
        let tags: Vec<&str> = sql::statements(&text).map_or(vec!["X"], |all| all.iter().map(tag).collect());
        let of = number;
        let said = DatabaseFrame::Query { number, statement: Statement { text, ..Statement::default() } };
        let result =
            |tag: &str| DatabaseFrame::Result { of, tag: tag.to_owned(), rows: 0, bytes: 0, took_us: 0 };
        for frame in std::iter::once(said).chain(tags.into_iter().map(result)) {
            frames.push(Frame { at: Duration::ZERO, body: Body::Database(Box::new(frame)) });
        }
    };
    for round in 0..ROUNDS {
        // What begins as no statement does is never live.
        let begin = ["select ", "select ", "do ", ""][dice.roll(4)];
        let text: String = (0..=dice.roll(12)).map(|_| parts[dice.roll(parts.len())]).collect();
        let text = format!("{begin}{text}");
        query(text, &mut frames);
        query("rollback".to_owned(), &mut frames);
        query(format!("select 'sentinel {round}'"), &mut frames);
    }
    let script = script(&frames);
    let file = outside.path().join("script.sql");
    fs::write(&file, &script).unwrap();
    let live = script.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).count();
    assert!(live > ROUNDS + ROUNDS / 10, "{live}");
    for reader in READERS {
        let said = world.postgres.feed(&file, reader);
        assert!(!marker.exists(), "{reader:?}");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let sentinels: Vec<&str> = said.lines().filter(|line| line.starts_with("sentinel")).collect();
        for (round, sentinel) in sentinels.iter().enumerate() {
            assert_eq!(*sentinel, format!("sentinel {round}"), "{reader:?}");
        }
        assert_eq!(sentinels.len(), ROUNDS, "{reader:?}");
    }
}
