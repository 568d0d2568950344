//! How much, how long and how many, through every door.

use std::time::Duration;

use futures::future::join_all;
use sallyport_audit::Code;
use sallyport_ssh::client::{ClientError, Output, Program, SessionRequest, Terminal, WindowSize};
use tokio::time::timeout;

use super::{ALL, PATIENCE, Way, connected, connection, exec, run, settings};
use crate::world::{World, text, until};

/// Input that goes nowhere for so long goes nowhere until it is read.
const STILL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lasts_as_long_as_the_roles_allow_and_has_so_many_sessions() {
    join_all(ALL.map(|way| async move {
        let world = World::with("max_session_duration: 2s, max_sessions: 1", |_| {}).await;
        let connection = connection(&world, way).await;
        let first = connection.start(SessionRequest::exec("sleep 1000")).await.unwrap();
        until("the session", || world.events(&Code::SessionStart).pop()).await;
        match connection.start(SessionRequest::exec("echo second")).await {
            Err(ClientError::Refused { reason, .. }) => assert!(reason.contains("1 sessions"), "{reason}"),
            Err(other) => panic!("{other}"),
            Ok(mut second) => {
                let mut said = String::new();
                while let Some(output) = second.next().await {
                    if let Output::Stderr(bytes) = output {
                        said.push_str(&text(&bytes));
                    }
                }
                assert!(said.contains("1 sessions"), "{way:?}: {said}");
            }
        }
        let (_input, mut output) = first.split();
        let mut said = String::new();
        while let Some(output) = timeout(PATIENCE, output.next()).await.unwrap() {
            if let Output::Stderr(bytes) = output {
                said.push_str(&text(&bytes));
            }
        }
        assert!(said.contains("it has lasted 2 s"), "{way:?}: {said}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_up_no_other() {
    join_all(ALL.map(|way| async move {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        // One that is not read here, which with the SSH library holds up its whole connection; and one that does not read
        // there.
        let _unread = match way {
            Way::Native => Some(connection.start(SessionRequest::exec("yes")).await.unwrap()),
            Way::Ssh | Way::Relayed => None,
        };
        let deaf = connection.start(SessionRequest::exec("sleep 1000")).await.unwrap();
        let (input, _output) = deaf.split();
        let feed = tokio::spawn(async move {
            let mut sent = 0_u64;
            while timeout(STILL, input.data(vec![b'x'; 64 * 1024])).await.is_ok() {
                sent += 64 * 1024;
            }
            sent
        });
        let sent = feed.await.unwrap();
        assert!(sent < 48 << 20, "{way:?}: {sent} bytes went to a command that reads nothing");
        let began = std::time::Instant::now();
        let ran = run(&connection, SessionRequest::exec("wc -c"), &vec![b'z'; 10_000_000]).await;
        assert_eq!(ran.stdout.trim(), "10000000", "{way:?}");
        assert_eq!(exec(&connection, "echo prompt").await.stdout, "prompt\n");
        assert!(began.elapsed() < PATIENCE, "{way:?}: {:?}", began.elapsed());
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_on_one_connection_do_not_mix() {
    for way in ALL {
        let world = World::with("max_sessions: 40", |_| {}).await;
        let connection = connection(&world, way).await;
        let mut sessions = tokio::task::JoinSet::new();
        for number in 0..40 {
            let connection = connection.clone();
            sessions.spawn(async move {
                let ran = exec(&connection, &format!("echo {number}; sleep 0.2; echo {number}")).await;
                assert_eq!(ran.stdout, format!("{number}\n{number}\n"));
            });
        }
        while let Some(done) = sessions.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_says_so() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let session = connection.start(SessionRequest::exec("sleep 1000")).await.unwrap();
        until("the session", || world.events(&Code::SessionStart).pop()).await;
        let (_input, mut output) = session.split();
        world.server.drain(Duration::from_millis(100)).await;
        assert_eq!(world.server.connections_open(), 0);
        let mut said = String::new();
        while let Some(output) = timeout(PATIENCE, output.next()).await.unwrap() {
            if let Output::Stderr(bytes) = output {
                said.push_str(&text(&bytes));
            }
        }
        assert!(said.contains("this node is stopping"), "{way:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_joined_across_the_doors() {
    let own = sallyport_ssh::session::Account::own().unwrap().name;
    let role = format!(
        "kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [{own}]\n    node_labels:\n      '*': '*'\n    \
         join_sessions:\n      - roles: [dev]\n        modes: [observer, peer]\n"
    );
    for (owner, guest) in [(Way::Native, Way::Ssh), (Way::Ssh, Way::Native)] {
        let world = World::with_roles(std::slice::from_ref(&role), |_| {}).await;
        world.issue("bob", &world.card("bob"));
        let terminal =
            || Some(Terminal { term: "vt100".to_owned(), size: WindowSize::default(), modes: Vec::new() });
        let alice = connection(&world, owner).await;
        let mut request = SessionRequest::new(Program::Exec(b"echo hello there; cat".to_vec()));
        request.terminal = terminal();
        let mut session = alice.start(request).await.unwrap();
        let id = until("the session", || world.server.live().list().pop()).await.about.session_id;
        let bob = connected(&world, guest, "bob", settings(&world, sallyport_ssh::node::JOIN_LOGIN)).await;
        let mut request = SessionRequest::exec(format!("{id} peer"));
        request.terminal = terminal();
        let mut joined = bob.start(request).await.unwrap();
        let (mut shown, mut typed) = (String::new(), false);
        while !shown.contains("from bob") {
            match timeout(PATIENCE, joined.next()).await.unwrap().unwrap() {
                Output::Stdout(bytes) => shown.push_str(&text(&bytes)),
                Output::Exit(exit) => panic!("{owner:?}: {exit:?}: {shown}"),
                _ => {}
            }
            if shown.contains("hello there") && !std::mem::replace(&mut typed, true) {
                joined.input().data("from bob\r").await.unwrap();
            }
        }
        world.event(&Code::SessionJoined).await;
        let mut seen = String::new();
        while !seen.contains("from bob") {
            if let Output::Stdout(bytes) = timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                seen.push_str(&text(&bytes));
            }
        }
    }
}
