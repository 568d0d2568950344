//! What is put on record of sessions that go well.

use sallyport_audit::Code;
use sallyport_databases::postgres::startup::{self, CancelKey};
use sallyport_databases::service::Asked;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, kinds, words};
use crate::sessions::SLEEPS;
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_are_run_and_put_on_record() {
    let world = World::new("record_db_parameters: true, db_statement_bytes: 64");
    world.postgres.sql("create role app login; create table t (a int, b text); grant all on t to app");
    let asked = world.asked(Duration::from_secs(3600));
    let session = asked.session;
    let key = asked.cancel.clone();
    let parameters = [
        ("user", "app"),
        ("database", "postgres"),
        ("application_name", "tests"),
        ("options", "-c sallyport.database=prod -c work_mem=5MB"),
    ];
    let mut client = Client::hello_for(&world, asked, &parameters).await;
    let greeting = client.answers().await;
    let given = greeting.iter().find(|(kind, _)| *kind == b'K').unwrap();
    assert_eq!(given.1[..4], key.process.to_be_bytes(), "the key is the proxy's");
    assert_eq!(given.1[4..], key.secret);

    assert_eq!(client.query("show work_mem").await, "T|D 5MB|SHOW|Z");
    assert_eq!(client.query("select 1; select 2").await, "T|D 1|SELECT 1|T|D 2|SELECT 1|Z");
    assert!(client.query("selec").await.starts_with("E 42601 syntax error"));
    assert_eq!(client.query("do $$ begin raise notice 'hi'; end $$").await, "N|DO|Z");
    let long = format!("select '{}'", "x".repeat(100_000));
    assert!(client.query(&long).await.ends_with("SELECT 1|Z"));

    // The extended query, with a statement that the server does not take in between.
    let parse = |name: &str, sql: &str| [name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat();
    let bind = b"\0s1\0\0\0\0\x01\0\0\0\x02\x34\x32\0\0";
    client.say(&[(b'P', &parse("s1", "insert into t values ($1, 'x')")), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "1|Z");
    client.say(&[(b'P', &parse("s1", "select 'not this'")), (b'S', b"")]).await;
    assert!(words(&client.answers().await).contains("already exists"));
    client.say(&[(b'B', bind), (b'D', b"P\0"), (b'E', b"\0\0\0\0\0"), (b'C', b"Ss1\0"), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "2|n|INSERT 0 1|3|Z");

    // Copies, both ways.
    client.say(&[(b'Q', b"copy t from stdin\0")]).await;
    assert_eq!(client.message().await.unwrap().0, b'G');
    client.say(&[(b'd', b"1\ta\n2\tb\n"), (b'c', b"")]).await;
    assert_eq!(words(&client.answers().await), "COPY 2|Z");
    client.say(&[(b'Q', b"copy t to stdout\0")]).await;
    assert_eq!(kinds(&client.answers().await), "HdddcCZ");
    // A function call: sqrt(2.25).
    let call = [&[0, 0, 5, 0x40, 0, 0, 0, 1, 0, 0, 0, 4][..], b"2.25", &[0, 0]].concat();
    client.say(&[(b'F', &call)]).await;
    assert_eq!(kinds(&client.answers().await), "VZ");
    client.say(&[(b'Q', b"listen c; notify c, 'p'\0")]).await;
    assert_eq!(kinds(&client.answers().await), "CCAZ");
    // What the server passes over after an error was not run.
    let nothing: [(u8, &[u8]); 3] = [(b'B', b"\0gone\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
    client.say(&nothing).await;
    assert!(words(&client.answers().await).starts_with("E 26000"));
    client.say(&[(b'X', b"")]).await;
    assert_eq!(client.message().await, None);
    world.quiet().await;

    let start = world.event(Code::DatabaseSessionStart).await;
    assert_eq!((start.user.as_str(), start.login.as_str(), start.node.as_str()), ("alice", "app", "prod"));
    assert_eq!((start.source.as_str(), &start.fields["application"]), ("192.0.2.7:40000", &"tests".into()));
    let queries = world.of(&Code::DatabaseQuery);
    let told: Vec<(String, String, String)> = queries
        .iter()
        .map(|event| {
            let text = |name: &str| event.fields.get(name).and_then(|v| v.as_str()).unwrap_or("").to_owned();
            (text("statement"), text("tag"), text("sqlstate"))
        })
        .collect();
    let kept = format!("{} [... 99945 bytes left out ...] {}", &long[..43], &long[long.len() - 21..]);
    let expected = [
        ("show work_mem", "SHOW", ""),
        ("select 1; select 2", "SELECT 1; SELECT 1", ""),
        ("selec", "", "42601"),
        ("do $$ begin raise notice 'hi'; end $$", "DO", ""),
        (&kept, "SELECT 1", ""),
        ("select 'not this'", "", "42P05"),
        ("insert into t values ($1, 'x')", "INSERT 0 1", ""),
        ("copy t from stdin", "COPY 2", ""),
        ("copy t to stdout", "COPY 3", ""),
        ("listen c; notify c, 'p'", "LISTEN; NOTIFY", ""),
        ("", "", "26000"),
    ];
    let expected: Vec<_> = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())).to_vec();
    assert_eq!(told, expected);
    assert_eq!(queries[4].fields["bytes"], long.len());
    let whole = data_encoding::HEXLOWER.encode(&sallyport_sal::hash::sha256(long.as_bytes()));
    assert_eq!(queries[4].fields["sha256"], whole);
    assert_eq!(world.of(&Code::DatabaseCopy).len(), 2);
    assert_eq!(world.event(Code::DatabaseFunctionCall).await.fields["function"], 1344);
    let end = world.event(Code::DatabaseSessionEnd).await;
    assert_eq!((&end.fields["statements"], &end.fields["errors"]), (&11.into(), &3.into()));

    let recorded = world.recorded(&session);
    let all = recorded.join("\n");
    for part in [
        "Query { number: 1, statement: Statement { text: \"show work_mem\"",
        "Result { of: 2, tag: \"SELECT 1\", rows: 1",
        "Error { of: Some(3), severity: \"ERROR\", sqlstate: \"42601\"",
        "Notice { severity: \"NOTICE\", sqlstate: \"00000\", message: \"hi\"",
        "parameters: Some([Text(\"42\")])",
        "Copy { of: 15, into: true, bytes: 8 }",
        "FunctionCall { number: 17, function: 1344, count: 1, parameters: Some([Text(\"2.25\")])",
        // 1.5
        "Result { of: 17, tag: \"\", rows: 0, bytes: 3",
        "channel: \"c\", payload: \"p\"",
        &format!("bytes: Some({}), sha256: Some(\"{whole}\")", long.len()),
    ] {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
    assert_eq!(world.of(&Code::DatabaseSessionStart)[0].session_id, session.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_is_cancelled() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let asked = world.asked(Duration::from_secs(3600));
    let key = asked.cancel.clone();
    let mut client =
        Client::hello_for(&world, asked.clone(), &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    client.say(&[(b'Q', b"select pg_sleep(60)\0")]).await;
    world.postgres.until(SLEEPS, "1");
    let stranger = CancelKey { process: key.process, secret: vec![0; 4] };
    world.service.cancel(&stranger, "192.0.2.9:1").await;
    // As it comes from a client: a connection of its own.
    let mut other = Client::dial(&world, Asked { client: "192.0.2.8:40001".to_owned(), ..asked });
    other.io.write_all(&startup::cancel(&key)).await.unwrap();
    assert!(words(&client.answers().await).contains("57014"));
    assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
    let cancelled = world.event(Code::DatabaseCancel).await;
    assert_eq!(cancelled.source, "192.0.2.8:40001");
    assert_eq!(cancelled.fields["session_source"], "192.0.2.7:40000");
    // The key of no session did nothing.
    assert_eq!(world.of(&Code::DatabaseCancel).len(), 1);
    drop(client);
    world.quiet().await;
    assert!(world.event(Code::DatabaseSessionEnd).await.message.contains("went away"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_among_data_does_not_lose_what_follows() {
    let world = World::new("");
    world.postgres.sql("create role app login; create table t (a int); grant all on t to app");
    let mut client = Client::ready(&world, "app").await;
    let data: [(u8, &[u8]); 2] = [(b'd', b"bad\n"), (b'S', b"")];
    let parse = b"\0copy t from stdin\0\0\0";
    let extended: [(u8, &[u8]); 4] =
        [(b'P', parse), (b'B', b"\0\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'H', b"")];
    for messages in [&extended[..], &[(b'Q', b"copy t from stdin\0")]] {
        client.say(messages).await;
        while client.message().await.unwrap().0 != b'G' {}
        client.say(&data).await;
        assert!(words(&client.answers().await).starts_with("E 22P02"));
        if messages.len() == 1 {
            // Of the Sync, which the server reads after it has failed.
            assert_eq!(words(&client.answers().await), "Z");
        }
        assert_eq!(client.query("select 1").await, "T|D 1|SELECT 1|Z");
        assert!(client.query("selec").await.starts_with("E 42601"));
        // Here it reads the Sync among the data.
        client.say(messages).await;
        while client.message().await.unwrap().0 != b'G' {}
        client.say(&[(b'd', b"1"), (b'S', b""), (b'd', b"2\n"), (b'c', b""), (b'S', b"")]).await;
        assert_eq!(words(&client.answers().await), "COPY 1|Z");
        if messages.len() == 1 {
            assert_eq!(words(&client.answers().await), "Z");
        }
        assert_eq!(client.query("select 2").await, "T|D 2|SELECT 1|Z");
    }
    drop(client);
    world.quiet().await;
    let text = |event: &sallyport_audit::Event, name: &str| {
        event.fields.get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned()
    };
    let told = world.of(&Code::DatabaseQuery);
    let told: Vec<_> = told.iter().map(|event| (text(event, "statement"), text(event, "tag"))).collect();
    let one = [
        ("copy t from stdin", ""),
        ("select 1", "SELECT 1"),
        ("selec", ""),
        ("copy t from stdin", "COPY 1"),
        ("select 2", "SELECT 1"),
    ];
    let expected: Vec<_> =
        one.iter().chain(&one).map(|(sql, tag)| ((*sql).to_owned(), (*tag).to_owned())).collect();
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_the_server_takes_for_one_are_one() {
    let world = World::new("");
    world.postgres.sql("create role app login");
    let mut client = Client::ready(&world, "app").await;
    let name = |end: &str| format!("{}{end}", "n".repeat(63)).into_bytes();
    let parse = |end: &str, sql: &str| [&name(end), &b"\0"[..], sql.as_bytes(), b"\0\0\0"].concat();
    let bind = |portal: &str, statement: &str| {
        [&name(portal), &b"\0"[..], &name(statement), b"\0\0\0\0\0\0\0"].concat()
    };
    let execute = |portal: &str| [&name(portal), &b"\0\0\0\0\0"[..]].concat();
    let close = |end: &str| [&b"S"[..], &name(end), b"\0"].concat();
    client.say(&[(b'P', &parse("a", "select 1")), (b'C', &close("b")), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "1|3|Z");
    client.say(&[(b'P', &parse("b", "select 'secret'")), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "1|Z");
    client.say(&[(b'B', &bind("x", "a")), (b'E', &execute("y")), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "2|D secret|SELECT 1|Z");
    // In a message that comes in parts, too.
    let long = format!("select '{}'", "x".repeat(200_000));
    client.say(&[(b'C', &close("c")), (b'P', &parse("d", &long)), (b'S', b"")]).await;
    assert_eq!(words(&client.answers().await), "3|1|Z");
    client.say(&[(b'B', &bind("x", "e")), (b'E', &execute("z")), (b'S', b"")]).await;
    assert!(words(&client.answers().await).ends_with("|SELECT 1|Z"));
    drop(client);
    world.quiet().await;
    let told = world.of(&Code::DatabaseQuery);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].fields["statement"], "select 'secret'");
    assert_eq!(told[1].fields["bytes"], long.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_quote_no_values_that_are_not_on_record() {
    for (options, quotes) in [("", false), ("record_db_parameters: true", true)] {
        let world = World::new(options);
        world.postgres.sql("create role app login");
        let asked = world.asked(Duration::from_secs(3600));
        let session = asked.session;
        let mut client = Client::hello_for(&world, asked, &[("user", "app"), ("database", "postgres")]).await;
        client.answers().await;
        let execute: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
        let bind = b"\0\0\0\0\0\x01\0\0\0\x06secret\0\0";
        // Where the value is bound, and where it is used.
        for sql in ["select $1::int4", "select ($1::text)::int4"] {
            let parse = [&b"\0"[..], sql.as_bytes(), b"\0\0\0"].concat();
            client.say(&[(b'P', &parse), (b'B', bind), execute, (b'S', b"")]).await;
            assert!(words(&client.answers().await).contains("22P02 invalid input syntax"));
        }
        assert!(client.query("select 'shown'::int4").await.contains("22P02"));
        drop(client);
        world.quiet().await;
        let told = world.of(&Code::DatabaseQuery);
        assert_eq!(told.len(), 3);
        assert!(told.iter().all(|event| event.fields["sqlstate"] == "22P02"));
        assert!(told[2].fields["error"].as_str().unwrap().contains("\"shown\""));
        assert_eq!(format!("{:?}", world.sink.events()).contains("secret"), quotes);
        let recorded = world.recorded(&session).join("\n");
        assert_eq!(recorded.contains("\"secret"), quotes, "{recorded}");
        assert!(recorded.contains("severity: \"ERROR\", sqlstate: \"22P02\""));
    }
}
