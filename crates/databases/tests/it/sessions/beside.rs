//! The record beside what the server itself has logged.

use std::fmt::Write as _;

use sallyport_audit::Code;

use crate::client::Client;
use crate::sessions::Dice;
use crate::world::World;

/// Exchanges, each of which ends with a `Sync`.
const ROUNDS: usize = 400;

/// A message of the extended or the simple query, at random; statements have a number each.
fn message(dice: &mut Dice, number: &mut usize) -> (u8, Vec<u8>) {
    *number += 1;
    let number = *number;
    let name = ["", "", "s1", "s2"][dice.roll(4)];
    let portal = ["", "", "p1"][dice.roll(3)];
    let text = match dice.roll(20) {
        0 | 1 => format!("select 1/(1 - 1) as n{number}"),
        2 => format!("selec {number}"),
        3 => format!("insert into later values (1) returning {number}"),
        4 => format!("begin /* {number} */"),
        5..=7 => format!("commit /* {number} */"),
        8 => format!("deallocate all /* {number} */"),
        9 => format!("deallocate s1 /* {number} */"),
        10 => format!("prepare s1 as select {number}"),
        11 => format!("copy (select {number}) to stdout"),
        12 => format!("select {number}; select {number} + 1"),
        13 => format!("declare p1 cursor for select {number}"),
        14 => format!("do $$ begin raise notice '{number}'; end $$"),
        _ => format!("select {number}"),
    };
    let bytes =
        |texts: &[&str]| texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>();
    match dice.roll(12) {
        0 | 1 => (b'Q', bytes(&[&text])),
        2..=4 => (b'P', [bytes(&[name, &text]), vec![0, 0]].concat()),
        5..=7 => (b'B', [bytes(&[portal, name]), vec![0; 6]].concat()),
        8..=9 => (b'E', [bytes(&[portal]), vec![0; 4]].concat()),
        10 => (b'D', [&b"P"[..], &bytes(&[portal])].concat()),
        _ if dice.roll(2) == 0 => (b'C', [&b"S"[..], &bytes(&[name])].concat()),
        _ => (b'S', Vec::new()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_of_is_what_the_server_has_logged() {
    let world = World::new("");
    world.postgres.sql(
        "create role app login; create table later (a int unique deferrable initially deferred); \
         insert into later values (1); grant all on later to app",
    );
    world.postgres.sql("alter system set log_statement = 'all'");
    world.postgres.sql("alter system set log_line_prefix = '%u|'");
    world.postgres.sql("select pg_reload_conf()");
    world.postgres.until("show log_statement", "all");
    let mut client = Client::ready(&world, "app").await;
    let (mut dice, mut number) = (Dice(11), 0);
    for round in 0..ROUNDS {
        let messages: Vec<(u8, Vec<u8>)> =
            (0..=dice.roll(9)).map(|_| message(&mut dice, &mut number)).collect();
        let messages: Vec<(u8, &[u8])> =
            messages.iter().map(|(kind, content)| (*kind, content.as_slice())).collect();
        client.say(&messages).await;
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
    client.say(&[(b'X', b"")]).await;
    assert_eq!(client.message().await, None);
    world.quiet().await;

    // Lines of a statement's own begin with a tab.
    let log = world.postgres.log().replace("\n\t", "\n");
    let mut logged: Vec<String> = Vec::new();
    for line in log.lines() {
        let Some(said) = line.strip_prefix("app|LOG:  ") else { continue };
        let text = match said.strip_prefix("statement: ") {
            Some(text) => Some(text),
            None => {
                said.strip_prefix("execute ").and_then(|rest| rest.split_once(": ")).map(|(_, text)| text)
            }
        };
        // A statement that SQL has prepared the server logs with the words that prepared it.
        let run = |text: &str| match said.starts_with("execute ") {
            true => text.strip_prefix("prepare s1 as ").unwrap_or(text).to_owned(),
            false => text.to_owned(),
        };
        logged.extend(text.map(run));
    }
    let mut told: Vec<(String, bool, bool)> = Vec::new();
    for event in world.of(&Code::DatabaseQuery) {
        let text = |name: &str| event.fields.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let answered = !event.fields.contains_key("unanswered") && !event.fields.contains_key("undone");
        let went_well = text("sqlstate").is_none() && answered;
        // Those that go well are folded where they come fast.
        let texts = match event.fields.get("count") {
            Some(_) => text("statement").unwrap_or_default().lines().map(str::to_owned).collect(),
            None => vec![text("statement").unwrap_or_default()],
        };
        told.extend(texts.into_iter().map(|text| (text, went_well, answered)));
    }
    // What the server logs it has begun to run: each is told of, in that order, and what is told of as run is logged.
    let mut at = 0;
    let mut missing = String::new();
    for text in &logged {
        match told[at..].iter().position(|(told, _, answered)| *answered && told == text) {
            Some(further) => {
                let passed = &told[at..at + further];
                for (text, _, _) in passed.iter().filter(|(_, went_well, _)| *went_well) {
                    writeln!(missing, "not logged: {text}").unwrap();
                }
                at += further + 1;
            }
            None => writeln!(missing, "not told of: {text}").unwrap(),
        }
    }
    assert_eq!(missing, "");
    assert!(told[at..].iter().all(|(_, went_well, _)| !went_well));
    assert!(logged.len() > ROUNDS + ROUNDS / 4, "{}", logged.len());
    let end = world.event(Code::DatabaseSessionEnd).await;
    assert!(end.fields["statements"].as_u64().unwrap() >= logged.len() as u64);
}
