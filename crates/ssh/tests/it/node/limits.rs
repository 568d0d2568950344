//! What roles and the node limit, forwarding, and the end of the node.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use sallyport_audit::Code;
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use crate::world::{World, alive, listens, ok, output, started, text, until};

/// An ssh-agent that holds alice's key.
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    _agent: Child,
}

impl Agent {
    pub(crate) async fn start(world: &World) -> Self {
        let socket = world.path("agent.sock");
        let agent = tokio::process::Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        listens(&socket).await;
        let mut add = tokio::process::Command::new("ssh-add");
        add.env("SSH_AUTH_SOCK", &socket).arg(world.path("alice"));
        let added = add.output().await.unwrap();
        assert!(added.status.success(), "{}", text(&added.stderr));
        Self { socket, _agent: agent }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_agent_can_be_asked_and_then_is_gone() {
    let world = World::with("forward_agent: true", |_| {}).await;
    let agent = Agent::start(&world).await;
    let mut command = world.client("ssh", "alice");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    command.args(["-A", &world.destination()]);
    command.arg("ssh-add -l; echo $SSH_AUTH_SOCK; stat -c '%a %U' $SSH_AUTH_SOCK; stat -c '%a %U' $(dirname $SSH_AUTH_SOCK)");
    let shown = ok(&output(command).await);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.iter().any(|line| line.contains("ED25519")), "{shown}");
    let [.., socket, file, directory] = lines.as_slice() else { panic!("{shown}") };
    assert_eq!(*file, format!("600 {}", world.own.name));
    assert_eq!(*directory, format!("700 {}", world.own.name));
    world.event(&Code::SessionAgentForward).await;
    world.event(&Code::SessionEnd).await;
    assert!(!std::path::Path::new(socket).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_the_agent_that_is_open_does_not_keep_the_client() {
    let world = World::with("forward_agent: true", |_| {}).await;
    let agent = Agent::start(&world).await;
    let mut command = world.client("ssh", "alice");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    command.args(["-A", &world.destination()]);
    // What is left behind holds the connection, until that is cut.
    let cut = world.path("cut");
    let script = format!(
        "import os, socket\n\
         agent = socket.socket(socket.AF_UNIX)\n\
         agent.connect(os.environ['SSH_AUTH_SOCK'])\n\
         agent.sendall(bytes([0, 0, 0, 1, 11]))\n\
         print(agent.recv(5)[4], flush=True)\n\
         if os.fork() == 0:\n\
         \x20   for one in range(3): os.close(one)\n\
         \x20   while agent.recv(4096): pass\n\
         \x20   open('{}', 'w')\n",
        cut.display()
    );
    command.arg(format!("python3 -c \"{script}\""));
    // Its identities (draft-ietf-sshm-ssh-agent, 3.5).
    assert_eq!(ok(&output(command).await), "12\n");
    until("the connection's end", || cut.exists().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_has_so_many_sessions() {
    let world = World::with("max_sessions: 2", |_| {}).await;
    let socket = world.path("mux");
    let path = format!("-S{}", socket.display());
    let _master = started(world.ssh(&["-M", &path, "-N"], &[] as &[&str]));
    until("the master", || socket.exists().then_some(())).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = started(world.ssh(&[&path], &["echo up; cat"]));
        let mut line = String::new();
        BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        assert_eq!(line, "up\n");
        held.push(client);
    }
    // Refused there, ssh would make a connection of its own, which has a count of its own.
    let refused = output(world.ssh(&[&path, "-oProxyCommand=false"], &["echo third"])).await;
    assert!(!refused.status.success());
    assert!(world.event(&Code::SessionRefused).await.message.contains("2 sessions"));
    // A place is free again once one has ended.
    drop(held.pop().unwrap().stdin.take());
    until("the end of one", || world.events(&Code::SessionEnd).pop()).await;
    assert_eq!(ok(&output(world.ssh(&[&path, "-oProxyCommand=false"], &["echo third"])).await), "third\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_terminal_is_disconnected_and_a_busy_one_is_not() {
    let world = World::with("client_idle_timeout: 2s", |_| {}).await;
    let mut idle = started(world.ssh(&["-tt"], &["echo $$; while :; do echo tick; sleep 0.3; done"]));
    let outcome = timeout(Duration::from_secs(60), async {
        let mut said = String::new();
        idle.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        (idle.wait().await.unwrap(), said)
    });
    let mut busy = started(world.ssh(&["-tt"], &["cat"]));
    let mut stdin = busy.stdin.take().unwrap();
    let typing = async {
        // A person who types now and then, for longer than nothing may be typed.
        for _ in 0..10 {
            stdin.write_all(b"x\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let (outcome, ()) = tokio::join!(outcome, typing);
    let (status, said) = outcome.expect("the idle client stays");
    assert_eq!(status.code(), Some(255));
    assert!(said.contains("nothing was typed or sent for 2 s"), "{said}");
    assert!(busy.try_wait().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_when_it_has_lasted_as_long_as_the_roles_allow() {
    let world = World::with("max_session_duration: 2s", |_| {}).await;
    let busy = started(world.ssh(&["-tt"], &["while :; do echo tick; sleep 0.2; done"]));
    let ended = timeout(Duration::from_secs(60), busy.wait_with_output()).await.expect("it goes on").unwrap();
    assert_eq!(ended.status.code(), Some(255));
    assert!(text(&ended.stderr).contains("it has lasted 2 s"), "{}", text(&ended.stderr));
    let cut = world.event(&Code::SessionCut).await;
    assert!(cut.message.contains("2 s, the longest"), "{}", cut.message);
    assert_eq!(ok(&output(world.ssh(&[], &["echo again"])).await), "again\n");
}

/// A certificate with a few seconds left, and whether a session over it outlives it: it ends itself a second after that.
async fn outlives_its_certificate(options: &str) -> (World, Output) {
    let world = World::with(options, |_| {}).await;
    let mut card = world.card("bob");
    card.issued -= time::Duration::seconds(56);
    card.ttl = time::Duration::seconds(60);
    let (over, go) = (card.issued + card.ttl + time::Duration::seconds(1), world.path("go"));
    world.issue("short", &card);
    let mut session = world.client("ssh", "short");
    session.arg(world.destination());
    session.arg(format!("until [ -e {} ]; do sleep 0.05; done; echo over", go.display()));
    let past = async {
        until("the end of the certificate", || (OffsetDateTime::now_utc() > over).then_some(())).await;
        std::fs::write(&go, "").unwrap();
    };
    let ended = async { timeout(Duration::from_secs(60), output(session)).await.expect("it goes on") };
    let (ended, ()) = tokio::join!(ended, past);
    (world, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_certificate_only_where_the_roles_say_so() {
    let (cut, finished) = tokio::join!(
        outlives_its_certificate("disconnect_expired_cert: true"),
        outlives_its_certificate("disconnect_expired_cert: false"),
    );
    let (world, ended) = cut;
    assert_eq!(ended.status.code(), Some(255));
    assert!(text(&ended.stderr).contains("your certificate has expired"), "{}", text(&ended.stderr));
    world.event(&Code::SessionCut).await;
    let (_world, ended) = finished;
    assert_eq!(ok(&ended), "over\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_after_its_certificate_has_ended_is_not_cut() {
    let world = World::with("disconnect_expired_cert: false", |_| {}).await;
    let mut card = world.card("bob");
    card.issued -= time::Duration::seconds(56);
    card.ttl = time::Duration::seconds(60);
    let over = card.issued + card.ttl + time::Duration::seconds(1);
    world.issue("short", &card);
    let mut session = world.client("ssh", "short");
    session.arg(world.destination()).arg("echo in; sleep 600");
    let mut session = session.stdout(std::process::Stdio::piped()).spawn().unwrap();
    world.event(&Code::SessionStart).await;
    until("the end of the certificate", || (OffsetDateTime::now_utc() > over).then_some(())).await;
    session.kill().await.unwrap();
    let ended = world.event(&Code::SessionEnd).await;
    assert_eq!(ended.message, "the client went away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_session_without_a_recording_does_not_begin() {
    let world = World::with("record_session: strict", |config| config.out_of_reach = true).await;
    std::fs::remove_dir_all(world.path("recordings")).unwrap();
    let refused = output(world.ssh(&[], &["echo in"])).await;
    assert_eq!(refused.status.code(), Some(255));
    assert_eq!(text(&refused.stdout), "");
    assert!(text(&refused.stderr).contains("has to be recorded"), "{}", text(&refused.stderr));
    world.event(&Code::RecordingFailed).await;
    world.event(&Code::SessionRefused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_best_effort_session_without_a_recording_goes_on_and_is_told_of() {
    let world = World::new().await;
    std::fs::remove_dir_all(world.path("recordings")).unwrap();
    assert_eq!(ok(&output(world.ssh(&[], &["echo in"])).await), "in\n");
    assert_eq!(world.event(&Code::RecordingFailed).await.fields["policy"], "best_effort");
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_waits_and_then_cuts() {
    let world = World::new().await;
    let quick = started(world.ssh(&[], &["echo up; sleep 1; echo done"]));
    until("the session", || world.events(&Code::SessionStart).pop()).await;
    world.server.drain(Duration::from_secs(20)).await;
    assert_eq!(world.server.connections_open(), 0);
    assert_eq!(ok(&quick.wait_with_output().await.unwrap()), "up\ndone\n");

    let mut long = started(world.ssh(&[], &["echo $$; exec sleep 1000"]));
    let mut line = String::new();
    BufReader::new(long.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    world.server.drain(Duration::from_millis(100)).await;
    assert_eq!(world.server.connections_open(), 0);
    let outcome = long.wait_with_output().await.unwrap();
    assert!(text(&outcome.stderr).contains("this node is stopping"), "{}", text(&outcome.stderr));
    let pid: u32 = line.trim().parse().unwrap();
    until("the end of the command", || (!alive(pid)).then_some(())).await;
}
