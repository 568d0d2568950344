//! Many sessions in one node, by our own client: nothing of them is left behind. A process of its own, so that what is
//! counted is this test's.

use std::collections::BTreeMap;
use std::time::Duration;

use sallyport_ssh::client::{
    Connection, Credentials, Exit, Output, Program, Session, SessionRequest, Settings, Terminal, WindowSize,
    connect,
};
use sallyport_ssh::node::Directory;
use tokio::net::TcpStream;

use crate::world::{World, settled, until, waits_for_session};

/// Sessions that come and go, and those that are there at once. SALLYPORT_MANY_SESSIONS and SALLYPORT_MANY_AT_ONCE take
/// other numbers.
const SESSIONS: usize = 180;
const AT_ONCE: usize = 200;
const CONNECTIONS: usize = 4;

fn asked(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn own_client(world: &World) -> Connection {
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    let credentials = Credentials::from_openssh(&read("alice"), &read("alice-cert.pub")).unwrap();
    let settings = Settings {
        login: world.own.name.clone(),
        host: "web-1".to_owned(),
        trust: world.cluster.trust(),
        keepalive: None,
        agent: None,
    };
    let stream = TcpStream::connect(world.address).await.unwrap();
    connect(stream, &credentials, settings).await.unwrap()
}

fn request(command: &str, terminal: bool) -> SessionRequest {
    let terminal = terminal.then(|| Terminal {
        term: "xterm".to_owned(),
        size: WindowSize::default(),
        modes: Vec::new(),
    });
    SessionRequest { terminal, ..SessionRequest::new(Program::Exec(command.into())) }
}

async fn first_output(session: &mut Session) {
    loop {
        match session.next().await {
            Some(Output::Stdout(_)) => return,
            Some(Output::Exit(exit)) => panic!("{exit:?}"),
            Some(_) => {}
            None => panic!("the session ended"),
        }
    }
}

async fn exit(session: &mut Session) -> Exit {
    loop {
        if let Some(Output::Exit(exit)) = session.next().await {
            return exit;
        }
    }
}

/// The children of this process, by their state; those that wait for a session apart, as `waiting`.
fn children() -> BTreeMap<String, usize> {
    let own = std::process::id().to_string();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
        let (state, parent) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if parent == own {
            let state = if waits_for_session(&entry.path()) { WAITING } else { state };
            *found.entry(state.to_owned()).or_default() += 1;
        }
    }
    found
}

const WAITING: &str = "waiting";

/// Whether all that is left is the one process that waits for the next session.
fn one_waits() -> bool {
    children() == BTreeMap::from([(WAITING.to_owned(), 1)])
}

/// The descriptors of this process, by their kind.
fn descriptors() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let name = target.display().to_string();
        let kind = name.split(['[', '(']).next().unwrap_or_default().to_owned();
        // The directory that is being read, and what the runtime opens once.
        if !kind.starts_with("/proc") {
            *found.entry(kind).or_default() += 1;
        }
    }
    found
}

/// Processes of this test: no other has its marker in its arguments.
fn processes_of(marker: &str) -> usize {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    lines
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(marker))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_many_sessions_however_they_end() {
    let world = World::with("max_sessions: 5000, permit_x11_forwarding: true", |_| {}).await;
    // What the runtime opens once for children and terminals.
    let warm = own_client(&world).await;
    assert_eq!(exit(&mut warm.start(request("true", true)).await.unwrap()).await, Exit::Status(0));
    warm.disconnect().await;
    drop(warm);
    until("an empty node", || (world.server.connections_open() == 0).then_some(())).await;
    until("no children but the one that waits", || one_waits().then_some(())).await;
    // One that has just begun to wait still costs more or fewer descriptors than when it has been waiting for a while.
    let before = settled("descriptors that stay as they are", || one_waits().then(descriptors)).await;

    // A number that sleep takes, and that no other test gives it.
    let marker = format!("97{0}.00{0}", std::process::id());
    let sessions = asked("SALLYPORT_MANY_SESSIONS", SESSIONS);
    for round in 0..sessions / (CONNECTIONS * 15) {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(own_client(&world).await);
        }
        let runs = connections.iter().flat_map(|connection| (0..15).map(move |number| (connection, number)));
        let runs = runs.map(|(connection, number)| {
            let marker = &marker;
            async move {
                let terminal = number % 2 == 1;
                match number % 3 {
                    0 => {
                        let mut session =
                            connection.start(request("echo up; exit 7", terminal)).await.unwrap();
                        assert_eq!(exit(&mut session).await, Exit::Status(7));
                    }
                    1 => {
                        let command = format!("echo up; sleep {marker}");
                        let mut session = connection.start(request(&command, terminal)).await.unwrap();
                        first_output(&mut session).await;
                        session.input().close().await.unwrap();
                    }
                    // Left to the end of the connection.
                    _ => {
                        let command = format!("echo up; cat; sleep {marker}");
                        let mut session = connection.start(request(&command, terminal)).await.unwrap();
                        first_output(&mut session).await;
                        return Some(session);
                    }
                }
                None
            }
        });
        let left = futures::future::join_all(runs).await;
        for connection in connections {
            if round % 2 == 0 {
                connection.disconnect().await;
            }
            // Else it goes with its last session.
            drop(connection);
        }
        drop(left);
    }
    world.server.drain(Duration::from_millis(500)).await;
    until("an empty node", || (world.server.connections_open() == 0).then_some(())).await;
    until("the end of the commands", || (processes_of(&marker) == 0).then_some(())).await;
    until("no children but the one that waits, and no zombies", || one_waits().then_some(())).await;
    until("the descriptors of before", || {
        let after = descriptors();
        after.iter().all(|(kind, count)| count <= before.get(kind).unwrap_or(&0)).then_some(())
    })
    .await;

    // And many at once: each is a process of the user's own, and none of ours beside it.
    let at_once = asked("SALLYPORT_MANY_AT_ONCE", AT_ONCE);
    let mut connections = Vec::new();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = own_client(&world).await;
        let starting = (0..at_once / CONNECTIONS).map(|_| async {
            let command = format!("echo up; exec sleep {marker}");
            let mut session = connection.start(request(&command, false)).await.unwrap();
            first_output(&mut session).await;
            session
        });
        held.extend(futures::future::join_all(starting).await);
        connections.push(connection);
    }
    assert_eq!(world.server.sessions_running(), held.len());
    until("a process for each session, and the one that waits", || {
        let mut children = children();
        (children.remove(WAITING) == Some(1) && children.values().sum::<usize>() == held.len()).then_some(())
    })
    .await;
    drop(held);
    for connection in connections {
        connection.disconnect().await;
    }
    until("the end of all", || (processes_of(&marker) == 0 && one_waits()).then_some(())).await;
}
