//! What is on record of what comes from the client (`options.record_input`).

use std::process::Stdio;

use sallyport_audit::Code;
use sallyport_audit::recording::{Body, Frame};
use sallyport_ssh::client::SessionRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::doors::{Way, connected, run, settings};
use crate::world::{PATIENCE, World, ok, output_of, role, shown, started, text, until};

/// What a person reads before.
const WARNING: &str = "sallyport: what you type or send in this session is recorded, passwords among it";

/// The input that a recording holds.
fn typed(frames: &[Frame]) -> Vec<u8> {
    let input = frames.iter().filter_map(|frame| match &frame.body {
        Body::Input(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    input.collect::<Vec<_>>().concat()
}

/// Waits until a client shows this.
async fn sees(from: &mut (impl AsyncRead + Unpin), what: &str) {
    let read = async {
        let mut seen = Vec::new();
        while !text(&seen).contains(what) {
            let read = from.read_buf(&mut seen).await.unwrap();
            assert!(read > 0, "{what:?} did not come: {}", text(&seen));
        }
    };
    timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{what:?} did not come"));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_on_record_where_a_role_says_so() {
    let commands = format!("echo one\n#{}\n", "x".repeat(300_000)).into_bytes();
    for way in [Way::Ssh, Way::Native, Way::Relayed] {
        let world = World::with("record_input: full", |_| {}).await;
        let connection = connected(&world, way, "alice", settings(&world, &world.own.name)).await;
        let ran = run(&connection, SessionRequest::exec("bash"), &commands).await;
        assert_eq!(ran.stdout, "one\n", "{way:?}");
        assert!(ran.stderr.starts_with(WARNING), "{way:?}: {}", ran.stderr);
        let frames = world.recording().await;
        assert!(typed(&frames) == commands, "{way:?}: {} bytes", typed(&frames).len());
        assert_eq!(shown(&frames), "one\n", "{way:?}: what the node says itself is not the session's output");
        assert_eq!(world.event(&Code::SessionStart).await.fields["record_input"], "full");
        // The hash is there as well, for those who have the bytes.
        assert_eq!(world.event(&Code::SessionEnd).await.fields["input_bytes"], commands.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_at_a_prompt_is_on_record_and_was_warned_of() {
    let world = World::with("record_input: full", |_| {}).await;
    let mut ssh = started(world.ssh(&["-tt"], &["stty -echo; echo ask:; head -n 1 >/dev/null"]));
    sees(ssh.stderr.as_mut().unwrap(), WARNING).await;
    sees(ssh.stdout.as_mut().unwrap(), "ask:").await;
    ssh.stdin.as_mut().unwrap().write_all(b"secret\n").await.unwrap();
    assert!(ssh.wait().await.unwrap().success());
    let frames = world.recording().await;
    assert_eq!(text(&typed(&frames)), "secret\n");
    assert!(!shown(&frames).contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_counted_alone_where_no_role_says_more() {
    for options in ["", "record_input: hash"] {
        let world = World::with(options, |_| {}).await;
        let ran = output_of(world.ssh(&[], &["cat"]), b"hello\n".to_vec()).await;
        assert_eq!((ok(&ran).as_str(), text(&ran.stderr).as_str()), ("hello\n", ""), "{options:?}");
        assert!(typed(&world.recording().await).is_empty(), "{options:?}");
        assert_eq!(world.event(&Code::SessionEnd).await.fields["input_bytes"], 6);
        assert!(!world.event(&Code::SessionStart).await.fields.contains_key("record_input"));
    }
    // Where nothing is recorded, nothing is said to be.
    let world = World::with("record_input: full, session_recording: off", |_| {}).await;
    let ran = output_of(world.ssh(&[], &["cat"]), b"hello\n".to_vec()).await;
    assert_eq!((ok(&ran).as_str(), text(&ran.stderr).as_str()), ("hello\n", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_roles_the_one_counts_that_records_more() {
    let own = sallyport_ssh::session::Account::own().unwrap().name;
    let roles = [role("dev", &[&own], "record_input: full"), role("ops", &[&own], "record_input: hash")];
    let world = World::with_roles(&roles, |_| {}).await;
    let mut card = world.card("alice");
    card.roles = vec!["ops", "dev"];
    world.issue("alice", &card);
    let ran = output_of(world.ssh(&[], &["cat"]), b"hello\n".to_vec()).await;
    assert!(ok(&ran) == "hello\n" && text(&ran.stderr).starts_with(WARNING), "{ran:?}");
    assert_eq!(text(&typed(&world.recording().await)), "hello\n");
}

/// Of files there are the operations, whatever is asked for: what they contain is not a recording's.
#[tokio::test(flavor = "multi_thread")]
async fn of_files_the_operations_are_on_record() {
    let world = World::with("record_input: full", |_| {}).await;
    let mut sftp = world.client("sftp", "alice");
    sftp.args(["-b", "-", &world.destination()]).stderr(Stdio::piped());
    let ran = output_of(sftp, b"pwd\n".to_vec()).await;
    ok(&ran);
    assert!(!text(&ran.stderr).contains(WARNING), "{}", text(&ran.stderr));
    assert!(typed(&world.recording().await).is_empty());
}

/// A peer types into what is recorded, and is told so.
#[tokio::test(flavor = "multi_thread")]
async fn who_types_into_anothers_session_is_warned_as_well() {
    let own = sallyport_ssh::session::Account::own().unwrap().name;
    let role = format!(
        "kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [{own}]\n    node_labels:\n      '*': '*'\n    \
         join_sessions:\n      - roles: [dev]\n        modes: [peer]\n  options: {{record_input: full}}\n"
    );
    let world = World::with_roles(&[role], |_| {}).await;
    world.issue("bob", &world.card("bob"));
    let mut alice = started(world.ssh(&["-tt"], &["head -n 1"]));
    let id =
        until("the session", || world.server.live().list().first().map(|one| one.about.session_id)).await;
    let mut join = world.client("ssh", "bob");
    join.args(["-tt", "sallyport-join@127.0.0.1", &format!("{id} peer")]);
    let mut bob = started(join);
    sees(bob.stdout.as_mut().unwrap(), WARNING).await;
    bob.stdin.as_mut().unwrap().write_all(b"from bob\n").await.unwrap();
    // Waiting would close it, and the end of the owner's input is that of the session's.
    let _input = alice.stdin.take();
    assert!(alice.wait().await.unwrap().success());
    bob.wait().await.unwrap();
    assert_eq!(text(&typed(&world.recording().await)), "from bob\n");
}
