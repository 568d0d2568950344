//! The record beside what the server itself has logged, and beside what a script of it does.

use std::fmt::Write as _;
use std::time::Duration;

use sallyport_audit::recording::Frame;
use sallyport_audit::recording::transcript::{Look, Transcript};
use sallyport_audit::{Code, Event};
use sallyport_databases::postgres::startup::CancelKey;

use crate::client::{Client, words};
use crate::sessions::{Dice, SLEEPS};
use crate::world::World;

/// Statements that are sent, and of the comparison that is made by hand.
const STATEMENTS: usize = 1500;
const MANY_STATEMENTS: usize = 100_000;
/// Exchanges of a session, each of which ends with a `Sync`; of a session among many.
const ROUNDS: usize = 60;
const ROUNDS_OF_MANY: usize = 300;
/// Sessions with one server, whose log is read as a whole.
const SESSIONS: usize = 8;

/// What is said at random.
struct Speaker {
    dice: Dice,
    /// Statements have a number each.
    number: usize,
    rounds: usize,
}

fn bytes(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect()
}

/// A statement by the extended query.
fn extended(text: &str) -> Vec<(u8, Vec<u8>)> {
    vec![(b'P', [bytes(&["", text]), vec![0, 0]].concat()), (b'B', vec![0; 8]), (b'E', vec![0; 5])]
}

/// The same under a name of its own, by which nothing else is run: what waits for data, or sleeps.
fn named(text: &str) -> Vec<(u8, Vec<u8>)> {
    vec![
        (b'C', bytes(&["Sown"])),
        (b'P', [bytes(&["own", text]), vec![0, 0]].concat()),
        (b'B', [bytes(&["own", "own"]), vec![0; 6]].concat()),
        (b'E', [bytes(&["own"]), vec![0; 4]].concat()),
    ]
}

impl Speaker {
    fn statement(&mut self) -> String {
        self.number += 1;
        let number = self.number;
        match self.dice.roll(36) {
            0 | 1 => format!("select 1/(1 - 1) as n{number}"),
            2 => format!("selec {number}"),
            3 => format!("insert into later values (1) returning {number}"),
            4 | 5 => format!("begin /* {number} */"),
            6 | 7 => format!("commit /* {number} */"),
            8 => format!("rollback /* {number} */"),
            9 => format!("commit and chain /* {number} */"),
            10 => format!("rollback and chain /* {number} */"),
            11 => format!("savepoint a /* {number} */"),
            12 => format!("rollback to a /* {number} */"),
            13 => format!("release a /* {number} */"),
            14 => format!("deallocate all /* {number} */"),
            15 => format!("deallocate s1 /* {number} */"),
            16 => format!("prepare s1 as select {number}"),
            17 => format!("copy (select {number}) to stdout"),
            18 => format!("select {number}; select {number} + 1"),
            19 => format!("insert into ran values ('{number}'); insert into ran values ('{number}b')"),
            20 => format!("insert into ran values ('{number}'); select 1/(1 - 1)"),
            21 => format!(
                "begin; insert into ran values ('{number}'); commit; insert into ran values ('{number}b')"
            ),
            22 => {
                format!("insert into ran values ('{number}'); rollback; insert into ran values ('{number}b')")
            }
            23 => format!("declare p1 cursor for select {number}"),
            24 => format!("do $$ begin raise notice '{number}'; end $$"),
            25 => format!("insert into ran values ('{number}'), ('{number}b') returning what"),
            26..=32 => format!("insert into ran values ('{number}')"),
            _ => format!("select {number}"),
        }
    }

    /// A message of the extended or the simple query.
    fn message(&mut self) -> (u8, Vec<u8>) {
        let name = ["", "", "s1", "s2"][self.dice.roll(4)];
        let portal = ["", "", "p1"][self.dice.roll(3)];
        match self.dice.roll(13) {
            0..=2 => (b'Q', bytes(&[&self.statement()])),
            3..=5 => (b'P', [bytes(&[name, &self.statement()]), vec![0, 0]].concat()),
            6..=7 => (b'B', [bytes(&[portal, name]), vec![0; 6]].concat()),
            8..=10 => {
                let rows = u8::from(self.dice.roll(4) == 0);
                (b'E', [bytes(&[portal]), vec![0, 0, 0, rows]].concat())
            }
            11 => (b'D', [&b"P"[..], &bytes(&[portal])].concat()),
            _ if self.dice.roll(2) == 0 => (b'C', [&b"S"[..], &bytes(&[name])].concat()),
            _ => (b'S', Vec::new()),
        }
    }

    /// A copy into the database, with its data, before anything is known of its beginning.
    fn copy(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.number += 1;
        let text = format!("copy ran from stdin /* {} */", self.number);
        let mut said = match self.dice.roll(2) {
            0 => vec![(b'Q', bytes(&[&text]))],
            _ => named(&text),
        };
        said.push((b'd', format!("copied {}\n", self.number).into_bytes()));
        said.push(match self.dice.roll(3) {
            0 => (b'f', b"enough\0".to_vec()),
            _ => (b'c', Vec::new()),
        });
        said
    }

    fn flight(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut said: Vec<_> = (0..=self.dice.roll(9)).map(|_| self.message()).collect();
        if self.dice.roll(12) == 0 {
            said.extend(self.copy());
        }
        said
    }
}

async fn say(client: &mut Client, messages: &[(u8, Vec<u8>)]) {
    let messages: Vec<(u8, &[u8])> =
        messages.iter().map(|(kind, content)| (*kind, content.as_slice())).collect();
    client.say(&messages).await;
}

/// One session; its last message may have no answer.
async fn session(world: &World, speaker: &mut Speaker) -> Vec<Frame> {
    let asked = world.asked(Duration::from_secs(3600));
    let (id, key) = (asked.session, asked.cancel.clone());
    let mut client = Client::hello_for(world, asked, &[("user", "app"), ("database", "postgres")]).await;
    client.answers().await;
    for round in 0..speaker.rounds {
        if speaker.dice.roll(60) == 0 {
            cancelled(world, &mut client, speaker, &key).await;
        }
        say(&mut client, &speaker.flight()).await;
        let end = format!("rollback; select 'end {round}'\0");
        client.say(&[(b'S', b""), (b'Q', end.as_bytes())]).await;
        loop {
            let (kind, content) = client.message().await.expect("the session goes on");
            if kind == b'D' && String::from_utf8_lossy(&content).ends_with(&format!("end {round}")) {
                break;
            }
        }
        client.answers().await;
    }
    match speaker.dice.roll(4) {
        // In order, with what is open or not synchronised.
        0 => {
            say(&mut client, &speaker.flight()).await;
            client.say(&[(b'X', b"")]).await;
            while client.message().await.is_some() {}
        }
        // Gone, with answers under way.
        1 => {
            say(&mut client, &speaker.flight()).await;
            drop(client);
        }
        // Gone in the middle of a statement.
        2 => {
            say(&mut client, &extended("insert into ran values ('before it')")).await;
            client.say(&[(b'H', b"")]).await;
            speaker.number += 1;
            let sleeps = format!("select {}, pg_sleep(60)", speaker.number);
            say(&mut client, &named(&sleeps)).await;
            client.say(&[(b'S', b"")]).await;
            world.postgres.until(SLEEPS, "1");
            drop(client);
        }
        _ => {
            client.say(&[(b'X', b"")]).await;
            assert_eq!(client.message().await, None);
        }
    }
    world.quiet().await;
    world.recording(&id)
}

/// A pipeline that is cancelled half way.
async fn cancelled(world: &World, client: &mut Client, speaker: &mut Speaker, key: &CancelKey) {
    speaker.number += 1;
    let (before, sleeps) = (
        format!("insert into ran values ('{}')", speaker.number),
        format!("select {}, pg_sleep(60)", speaker.number),
    );
    let mut said = extended(&before);
    said.extend(named(&sleeps));
    said.extend(extended(&before));
    said.push((b'S', Vec::new()));
    say(client, &said).await;
    world.postgres.until(SLEEPS, "1");
    world.service.cancel(key, "192.0.2.7:1").await;
    assert!(words(&client.answers().await).contains("57014"));
}

/// What the server has begun to run, by its log.
fn logged(log: &str) -> Vec<String> {
    // Lines of a statement's own begin with a tab.
    let log = log.replace("\n\t", "\n");
    let mut logged: Vec<String> = Vec::new();
    for line in log.lines() {
        let Some(said) = line.strip_prefix("app|LOG:  ") else { continue };
        let text = match said.strip_prefix("statement: ") {
            Some(text) => Some(text),
            None => {
                said.strip_prefix("execute ").and_then(|rest| rest.split_once(": ")).map(|(_, text)| text)
            }
        };
        // A cursor that SQL has made is known by its name alone.
        if said.starts_with("execute ") && said.contains("<unnamed>/p1: declare p1") {
            logged.push("p1".to_owned());
            continue;
        }
        logged.extend(text.map(prepared));
    }
    logged
}

/// A statement that SQL has prepared the server logs with the words that prepared it.
fn prepared(text: &str) -> String {
    text.strip_prefix("prepare s1 as ").unwrap_or(text).to_owned()
}

/// A statement that was told of.
struct Told {
    text: String,
    well: bool,
    /// It is known to have been run, or to have been tried when the session ended.
    begun: bool,
}

fn told(events: &[Event]) -> Vec<Told> {
    let mut told = Vec::new();
    for event in events.iter().filter(|event| event.code == Code::DatabaseQuery) {
        let text = |name: &str| event.fields.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let answered = !event.fields.contains_key("unanswered") && !event.fields.contains_key("undone");
        let well = text("sqlstate").is_none() && answered;
        // Those that go well are folded where they come fast.
        let texts: Vec<String> = match event.fields.get("count") {
            Some(_) => text("statement").unwrap_or_default().lines().map(str::to_owned).collect(),
            None => vec![text("statement").or_else(|| text("name")).unwrap_or_default()],
        };
        told.extend(texts.iter().map(|text| Told { text: prepared(text), well, begun: answered }));
    }
    told
}

/// What the server logs it has begun to run: each is told of, in that order, and what is told of as run is logged.
fn differences(logged: &[String], told: &[Told]) -> String {
    let mut at = 0;
    let mut missing = String::new();
    for text in logged {
        let rest = &told[at..];
        // What the client sent before it went the server may have run, and the agent has not heard of it.
        let found = rest.iter().position(|told| told.begun && told.text == *text);
        match found.or_else(|| rest.iter().position(|told| told.text == *text)) {
            Some(further) => {
                let passed = &told[at..at + further];
                passed
                    .iter()
                    .filter(|told| told.well)
                    .for_each(|told| writeln!(missing, "not logged: {}", told.text).unwrap());
                at += further + 1;
            }
            None => writeln!(missing, "not told of: {text}").unwrap(),
        }
    }
    told[at..]
        .iter()
        .filter(|told| told.well)
        .for_each(|told| writeln!(missing, "not logged: {}", told.text).unwrap());
    missing
}

/// Runs sessions beside one server: how many statements it has logged, and how many rows the sessions and their scripts have left.
async fn beside(speaker: &mut Speaker) -> (usize, usize, usize) {
    let world = World::new("");
    world.postgres.sql(
        "create role app login; create table later (a int unique deferrable initially deferred); \
         insert into later values (1); create table ran (what text); grant all on later, ran to app",
    );
    world.postgres.sql("alter system set log_statement = 'all'");
    world.postgres.sql("alter system set log_line_prefix = '%u|'");
    world.postgres.sql("select pg_reload_conf()");
    world.postgres.until("show log_statement", "all");
    let (directory, mut left, mut again) = (tempfile::tempdir().unwrap(), 0, 0);
    let rows = || -> Vec<String> {
        let all = world.postgres.sql("select what from ran order by what");
        all.lines().map(str::to_owned).collect()
    };
    for _ in 0..SESSIONS {
        let frames = session(&world, speaker).await;
        let before = rows();
        world.postgres.sql("truncate ran");
        let mut transcript = Transcript::new(Look::Sql);
        let mut script: String = frames.iter().map(|frame| transcript.frame(frame)).collect();
        script += &transcript.finish();
        let file = directory.path().join("script.sql");
        std::fs::write(&file, &script).unwrap();
        world.postgres.feed(&file, &[]);
        let after = rows();
        world.postgres.sql("truncate ran");
        // Each as often as the session has left it at most.
        let mut rest = before.iter().peekable();
        for row in &after {
            while rest.next_if(|other| *other < row).is_some() {}
            assert!(rest.next_if_eq(&row).is_some(), "{row} is left by the script alone:\n{script}");
        }
        left += before.len();
        again += after.len();
    }
    let logged = logged(&world.postgres.log());
    let told = told(&world.sink.events());
    assert_eq!(differences(&logged, &told), "");
    let ends = world.of(&Code::DatabaseSessionEnd);
    let counted: u64 = ends.iter().map(|end| end.fields["statements"].as_u64().unwrap()).sum();
    assert!(counted >= logged.len() as u64, "{counted}");
    (logged.len(), left, again)
}

async fn compare(statements: usize, rounds: usize) {
    let mut speaker = Speaker { dice: Dice(11), number: 0, rounds };
    let (mut logged, mut left, mut again) = (0, 0, 0);
    while speaker.number < statements {
        let (more, rows, rows_again) = beside(&mut speaker).await;
        (logged, left, again) = (logged + more, left + rows, again + rows_again);
    }
    println!("{} statements, {logged} logged, {left} rows, {again} by the scripts", speaker.number);
    assert!(logged > statements / 2 && left > statements / 20 && again > left / 2, "{logged} {left} {again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_of_is_what_the_server_has_logged_and_a_script_does_no_more() {
    compare(STATEMENTS, ROUNDS).await;
}

/// The same with so many that it takes minutes; run by hand with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn a_hundred_thousand_statements_are_told_of_and_a_script_does_no_more() {
    compare(MANY_STATEMENTS, ROUNDS_OF_MANY).await;
}
