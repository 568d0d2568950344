//! Taking part in another user's terminal session.

use std::process::Stdio;
use std::time::Duration;

use sallyport_access::JoinMode;
use sallyport_access::SessionId;
use sallyport_audit::Code;
use sallyport_audit::recording::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::world::{Card, World, ok, output, started, text, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Everybody has the one role of these tests: its sessions may be watched and typed in.
async fn world() -> World {
    let own = sallyport_ssh::session::Account::own().unwrap().name;
    let role = format!(
        "kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [{own}]\n    node_labels:\n      '*': '*'\n    \
         join_sessions:\n      - roles: [dev]\n        modes: [observer, peer]\n"
    );
    let world = World::with_roles(&[role], |_| {}).await;
    for name in ["bob", "carol", "dave"] {
        world.issue(name, &world.card(name));
    }
    world
}

fn join(world: &World, user: &str, session: SessionId, mode: &str) -> Command {
    let mut ssh = world.client("ssh", user);
    ssh.args(["-tt", "sallyport-join@127.0.0.1", &format!("{session} {mode}")]);
    ssh
}

/// A client with its output so far.
struct Seat {
    client: Child,
    stdout: ChildStdout,
    seen: Vec<u8>,
}

impl Seat {
    fn new(command: Command) -> Self {
        let mut client = started(command);
        let stdout = client.stdout.take().unwrap();
        Self { client, stdout, seen: Vec::new() }
    }

    async fn sees(&mut self, what: &str) {
        let read = async {
            let mut from = 0;
            while !text(&self.seen[from..]).contains(what) {
                from = self.seen.len().saturating_sub(what.len());
                let mut block = vec![0; 64 * 1024];
                let length = self.stdout.read(&mut block).await.unwrap();
                assert!(length > 0, "ended before {what:?}: {}", self.last());
                self.seen.extend_from_slice(&block[..length]);
            }
        };
        let seen = timeout(PATIENCE, read).await.is_ok();
        assert!(seen, "{what:?} never came: {}", self.last());
    }

    fn last(&self) -> String {
        text(&self.seen[self.seen.len().saturating_sub(2000)..])
    }

    async fn types(&mut self, what: &str) {
        self.client.stdin.as_mut().unwrap().write_all(what.as_bytes()).await.unwrap();
    }

    async fn ends(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.stdout.read_to_end(&mut rest)).await.expect("it goes on");
        let mut said = Vec::new();
        let _ = self.client.stderr.take().unwrap().read_to_end(&mut said).await;
        (self.client.wait().await.unwrap().code(), text(&said))
    }
}

async fn running(world: &World) -> SessionId {
    until("the session", || world.server.live().list().first().map(|one| one.about.session_id)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_watched_joined_and_ended_by_those_who_may() {
    let world = world().await;
    let mut alice = Seat::new(world.ssh(&["-tt"], &["echo the first screen; cat"]));
    alice.sees("the first screen").await;
    let id = running(&world).await;

    // Who comes later sees what was there.
    let mut bob = Seat::new(join(&world, "bob", id, ""));
    bob.sees("you watch the session of alice").await;
    bob.sees("the first screen").await;
    alice.sees("[sallyport: bob joined as observer]").await;
    bob.types("from bob\n").await;
    alice.types("from alice\n").await;
    bob.sees("from alice").await;

    let mut carol = Seat::new(join(&world, "carol", id, "peer"));
    carol.sees("from alice").await;
    bob.sees("[sallyport: carol joined as peer]").await;
    carol.types("from carol\n").await;
    for seat in [&mut alice, &mut bob, &mut carol] {
        seat.sees("from carol").await;
    }
    assert!(!text(&alice.seen).contains("from bob"), "watching is not typing");
    let listed = world.server.live().list().remove(0).participants;
    let listed: Vec<_> = listed.iter().map(|one| (one.user.as_str(), one.mode)).collect();
    assert_eq!(listed, [("bob", JoinMode::Observer), ("carol", JoinMode::Peer)]);

    // No role lets a user other than the owner moderate; and the login is for nothing else.
    let refused = output(join(&world, "dave", id, "moderator")).await;
    assert_eq!(refused.status.code(), Some(255));
    let said = text(&refused.stderr);
    assert!(said.contains("dave may not join a session of alice on web-1 as moderator"), "{said}");
    let unknown = output(join(&world, "dave", SessionId::new(), "")).await;
    assert!(text(&unknown.stderr).contains("sallyport sessions ls"), "{}", text(&unknown.stderr));
    let mut forward = world.client("ssh", "dave");
    forward.args(["-W", "127.0.0.1:1", "sallyport-join@127.0.0.1"]);
    let said = text(&output(forward).await.stderr);
    assert!(said.contains("stdio forwarding failed"), "{said}");
    let mut shell = world.client("ssh", "dave");
    shell.arg("sallyport-join@127.0.0.1");
    assert!(text(&output(shell).await.stderr).contains("say which session"));

    bob.types("q").await;
    let (code, _) = bob.ends().await;
    assert_eq!(code, Some(0));
    alice.sees("[sallyport: bob left]").await;
    // A lock takes away the user who joined, and no other.
    world.set_locks(&[
        "kind: lock\nversion: v1\nmetadata:\n  name: gone\nspec:\n  target:\n    user: carol\n  message: left\n",
    ]);
    let (code, _) = carol.ends().await;
    assert_eq!(code, Some(255));
    alice.sees("[sallyport: carol left]").await;
    let left = world.events(&Code::SessionLeft);
    assert_eq!(left.iter().map(|event| event.user.as_str()).collect::<Vec<_>>(), ["bob", "carol"]);
    assert_eq!(left[1].fields["bytes_typed"], 11);

    let mut own = Seat::new(join(&world, "alice", id, "moderator"));
    own.sees("t ends the session").await;
    own.sees("from carol").await;
    own.types("t").await;
    own.sees("press t again").await;
    own.types("t").await;
    own.sees("the session has ended").await;
    let (code, said) = alice.ends().await;
    assert_eq!(code, Some(255));
    assert!(said.contains("ended by alice"), "{said}");
    world.event(&Code::SessionTerminated).await;
    let joined = world.events(&Code::SessionJoined);
    assert_eq!(joined.len(), 3);
    assert!(
        joined.iter().all(|event| event.fields["owner"] == "alice" && event.session_id == id.to_string())
    );

    let notes: Vec<String> = world
        .recording()
        .await
        .into_iter()
        .filter_map(|frame| match frame.body {
            Body::Note { text } => Some(text),
            _ => None,
        })
        .collect();
    let expected = [
        "bob joined as observer",
        "carol joined as peer",
        "carol types",
        "bob left",
        "carol left",
        "alice joined as moderator",
    ];
    for note in expected {
        assert!(notes.iter().any(|have| have == note), "{note}: {notes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_slows_no_other_and_is_told_what_was_skipped() {
    let world = world().await;
    let command = "echo begin; read go; head -c 8000000 /dev/zero | tr '\\0' x; echo; echo the end; cat";
    let mut alice = Seat::new(world.ssh(&["-tt"], &[command]));
    alice.sees("begin").await;
    let id = running(&world).await;
    let mut bob = Seat::new(join(&world, "bob", id, "observer"));
    bob.sees("begin").await;
    // Bob's client is not read from here on.
    alice.types("go\n").await;
    alice.sees("the end").await;
    bob.sees("bytes skipped: you read too slowly").await;
    bob.sees("the end").await;
    assert!(bob.seen.len() < 7_000_000, "{}", bob.seen.len());
    alice.types("\x04").await;
    bob.sees("the session has ended").await;
    assert_eq!(bob.ends().await.0, Some(0));
}

/// A host that records for several nodes lists the sessions of all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_on_a_node_that_is_denied_is_not_joined_through_another_node() {
    let own = sallyport_ssh::session::Account::own().unwrap().name;
    let role = |name: &str, spec: &str| {
        format!("kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    };
    let allow = format!(
        "{{allow: {{logins: [{own}], node_labels: {{'*': '*'}}, join_sessions: [{{roles: [dev], modes: [observer]}}]}}}}"
    );
    let roles = [role("dev", &allow), role("outside", "{deny: {node_labels: {env: test}}}")];
    let world = World::with_roles(&roles, |_| {}).await;
    world.issue("bob", &Card { roles: vec!["dev", "outside"], ..world.card("bob") });
    let beside = world.beside("web-2", ("env", "other")).await;
    let mut alice = Seat::new(world.ssh(&["-tt"], &["echo secret; cat"]));
    alice.sees("secret").await;
    let id = running(&world).await;
    let said = |ended: std::process::Output| text(&ended.stdout) + &text(&ended.stderr);
    let denied = said(output(join(&world, "bob", id, "observer")).await);
    assert!(denied.contains("bob may join no session on web-1"), "{denied}");
    let line = format!("{id} observer");
    let mut through = Command::new("ssh");
    through.args(world.options("bob").iter().map(|option| option.replace("web-1", "web-2")));
    through.args(["-tt", "-p", &beside.port().to_string(), "sallyport-join@127.0.0.1", &line]);
    through.kill_on_drop(true).stdin(Stdio::null());
    let ended = said(timeout(PATIENCE, output(through)).await.expect("it watches"));
    assert!(ended.contains(&format!("no session {id} runs on this node")), "{ended}");
    assert!(world.events(&Code::SessionJoined).is_empty());
}

/// tmux with servers of their own, which end with the test.
struct Tmux(std::path::PathBuf);

impl Tmux {
    fn run(&self, arguments: &[&str]) -> String {
        let output = std::process::Command::new("tmux")
            .arg("-S")
            .arg(&self.0)
            .args(["-f", "/dev/null"])
            .args(arguments)
            .stderr(Stdio::null())
            .output()
            .unwrap();
        text(&output.stdout)
    }

    fn open(&self, columns: &str, rows: &str, command: &Command) {
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let line: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
        self.run(&["new-session", "-d", "-x", columns, "-y", rows, &line.join(" ")]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_fits_the_owner_and_peers_but_not_who_watches() {
    let world = world().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Tmux(world.path(&format!("tmux-{name}"))));
    let script = "while sleep 0.2; do echo \"[$(stty size)]\"; done";
    alice.open("100", "31", &world.ssh(&["-tt"], &[script]));
    let screen = |tmux: &Tmux| tmux.run(&["capture-pane", "-p"]);
    until("the owner's size", || screen(&alice).contains("[31 100]").then_some(())).await;
    let id = running(&world).await;
    bob.open("60", "11", &join(&world, "bob", id, "observer"));
    until("bob", || screen(&bob).contains("[31 100]").then_some(())).await;
    carol.open("80", "41", &join(&world, "carol", id, "peer"));
    until("the size for both", || screen(&alice).contains("[31 80]").then_some(())).await;
    carol.run(&["resize-window", "-x", "90", "-y", "21"]);
    until("the new size", || screen(&alice).contains(" 90]").then_some(())).await;
    carol.run(&["kill-server"]);
    let last = |tmux: &Tmux| screen(tmux).lines().rfind(|line| line.starts_with('[')).map(str::to_owned);
    until("the owner's size again", || (last(&alice)? == "[31 100]").then_some(())).await;
    drop(alice);
    ok(&output(world.ssh(&[], &["true"])).await);
}
