//! Clients that have gone: those that have left by themselves, and those that a lock has cut off.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sallyport_audit::Code;
use sallyport_ssh::session::{
    self, Account, Channel, Ends, Exit, Gone, Happening, Helper, Incoming, Input, Kind, Observer, Output,
    Ready, Request, Stop,
};
use tokio::process::Child;

use crate::world::{PATIENCE, World, alive, started, until};

const LOCK: &str =
    "{kind: lock, version: v1, metadata: {name: l}, spec: {target: {user: alice}, message: enough}}";

/// A client that types nothing and takes nothing, since a lock has cut it off; or one that has gone, of which it is known only when a
/// file is there why.
#[derive(Default)]
struct CutOff {
    known_by: Option<std::path::PathBuf>,
}

#[async_trait]
impl Input for CutOff {
    async fn next(&mut self) -> Option<Incoming> {
        std::future::pending().await
    }
}

#[async_trait]
impl Output for CutOff {
    async fn data(&self, _: Channel, _: Bytes) -> Result<(), Gone> {
        Err(Gone)
    }
    fn consumed(&self, _: usize) {}
    async fn exited(&self, _: &Exit) -> Result<(), Gone> {
        Err(Gone)
    }
    async fn finished(&self) -> Result<(), Gone> {
        Err(Gone)
    }
    async fn cut_off(&self) -> Option<String> {
        let Some(file) = &self.known_by else { return Some("enough".to_owned()) };
        until("the end of what writes", || file.exists().then_some(())).await;
        None
    }
}

#[async_trait]
impl Observer for CutOff {
    async fn happened(&self, _: Happening) -> Result<(), Stop> {
        Ok(())
    }
}

/// The number of a process that says it in a file.
async fn number(file: &Path) -> u32 {
    until("the command", || std::fs::read_to_string(file).ok()?.trim().parse().ok()).await
}

/// Runs until it is killed or the test is over, whichever end hangs up. Says its number in `file` first.
fn stubborn(file: &Path) -> String {
    let file = file.display();
    format!(
        "trap '' HUP; echo $$ > {file}.new; mv {file}.new {file}; while [ -e {file} ]; do sleep 0.1; done"
    )
}

async fn running(world: &World, file: &Path) -> (Child, u32) {
    let client = started(world.ssh(&[], &[stubborn(file)]));
    (client, number(file).await)
}

/// Ends a client without a word, and waits until the node has noticed.
async fn vanish(world: &World, mut client: Child) {
    client.kill().await.unwrap();
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

fn helper() -> Helper {
    Helper {
        program: env!("CARGO_BIN_EXE_sallyport-session-helper").into(),
        arguments: vec![sallyport_ssh::helper::ARGUMENT.into()],
    }
}

fn exec(line: String) -> Request {
    Request {
        account: Account::own().unwrap(),
        kind: Kind::Exec(line.into_bytes()),
        terminal: None,
        environment: Vec::new(),
        hash_files: false,
        kill_orphans: false,
        pam_session: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_a_lock_has_cut_off_ends_what_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("number");
    let request = exec(format!("(sleep 0.2; echo said) & {}", stubborn(&file)));
    let running = session::start(&request, &Ready::new(helper())).unwrap();
    let ends = Ends::default();
    let ended = session::run(
        running,
        CutOff::default(),
        Arc::new(CutOff::default()),
        Arc::new(CutOff::default()),
        &ends,
    )
    .await;
    assert_eq!(ended.cut.as_deref(), Some("enough"));
    let number = number(&file).await;
    ends.over().await;
    assert!(!alive(number));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_writes_on_finds_no_reader_while_it_is_asked_why_the_client_has_gone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("unread");
    // A full pipe would hold it.
    let line = format!("trap '' HUP PIPE; cat /dev/zero 2>/dev/null; echo > {}", file.display());
    let running = session::start(&exec(line), &Ready::new(helper())).unwrap();
    let ends = Ends::default();
    let ended = session::run(
        running,
        CutOff::default(),
        Arc::new(CutOff { known_by: Some(file) }),
        Arc::new(CutOff::default()),
        &ends,
    )
    .await;
    assert_eq!((ended.exit, ended.cut), (None, None));
    ends.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_heard_of_late_ends_what_runs() {
    let world = World::with("", |config| config.late_word = PATIENCE).await;
    let (client, number) = running(&world, &world.path("number")).await;
    vanish(&world, client).await;
    world.set_locks(&[LOCK]);
    let ended = world.event(&Code::SessionEnd).await;
    assert!(ended.message.starts_with("cut off: ") && ended.message.contains("enough"), "{}", ended.message);
    until("the end of the command", || (!alive(number)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_leaves_behind_may_go_on() {
    let world = World::with("", |config| config.late_word = Duration::ZERO).await;
    let (client, number) = running(&world, &world.path("number")).await;
    vanish(&world, client).await;
    assert_eq!(world.event(&Code::SessionEnd).await.message, "the client went away");
    world.server.drain(Duration::ZERO).await;
    assert!(alive(number));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_waits_for_the_end_of_what_it_cuts() {
    let world = World::new().await;
    let (client, number) = running(&world, &world.path("number")).await;
    world.server.drain(Duration::ZERO).await;
    assert!(!alive(number), "it outlives the node");
    drop(client);
}
