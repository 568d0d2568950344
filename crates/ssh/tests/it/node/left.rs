//! What a session leaves when it is ended before its program: killed with it where it was cut, and told of.

use sallyport_audit::Code;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;

use crate::world::{World, alive, started, until};

const LOCK: &str =
    "{kind: lock, version: v1, metadata: {name: l}, spec: {target: {user: alice}, message: enough}}";

/// Goes on when the client hangs up, and says its number first.
const STUBBORN: &str = "sh -c \"trap '' HUP TERM; echo pid=\\$\\$; exec sleep 1000\"";

/// The next number that a client shows.
async fn number(lines: &mut BufReader<tokio::process::ChildStdout>) -> u32 {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).await.unwrap() > 0, "it ended");
        // The line that is typed is echoed as well.
        if let Some(Ok(pid)) = line.trim().rsplit_once("pid=").map(|(_, pid)| pid.parse()) {
            return pid;
        }
    }
}

fn lines(client: &mut Child) -> BufReader<tokio::process::ChildStdout> {
    BufReader::new(client.stdout.take().unwrap())
}

fn kill(pid: u32) {
    std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_children_and_jobs_that_ignore_the_hang_up() {
    let world = World::new().await;
    // A shell that dies of it, with a child in its group; and one that gives its job a group of its own.
    let mut command = started(world.ssh(&[], &[format!("{STUBBORN} & wait")]));
    let child = number(&mut lines(&mut command)).await;
    let mut shell = started(world.ssh(&["-tt"], &[] as &[&str]));
    shell.stdin.as_mut().unwrap().write_all(format!("{STUBBORN}\n").as_bytes()).await.unwrap();
    let job = number(&mut lines(&mut shell)).await;
    world.set_locks(&[LOCK]);
    for pid in [child, job] {
        until("its end", || (!alive(pid)).then_some(())).await;
    }
    until("both ends", || (world.events(&Code::SessionEnd).len() == 2).then_some(())).await;
    world.server.drain(std::time::Duration::ZERO).await;
    assert!(world.events(&Code::SessionOutlived).is_empty(), "nothing is left to be told of");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_left_a_session_that_is_cut_is_told_of() {
    let world = World::new().await;
    let line = format!("setsid {STUBBORN} & wait; exec sleep 1000");
    let mut client = started(world.ssh(&[], &[line]));
    let daemon = number(&mut lines(&mut client)).await;
    world.set_locks(&[LOCK]);
    let told = world.event(&Code::SessionOutlived).await;
    assert!(alive(daemon), "kill_orphans is off");
    kill(daemon);
    assert_eq!(told.fields["processes"][0], format!("{daemon} sleep"), "{told:?}");
    assert!(told.message.contains(&daemon.to_string()), "{}", told.message);
    assert_eq!(told.user, "alice");
    assert_eq!(told.session_id, world.event(&Code::SessionStart).await.session_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_go_on_it_is_told_how_many_more_there_are() {
    let world = World::new().await;
    let line = format!("for n in $(seq 20); do setsid {STUBBORN} & done; wait; exec sleep 1000");
    let mut client = started(world.ssh(&[], &[line]));
    let mut lines = lines(&mut client);
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(number(&mut lines).await);
    }
    world.set_locks(&[LOCK]);
    let told = world.event(&Code::SessionOutlived).await;
    for pid in all {
        kill(pid);
    }
    assert_eq!(told.fields["processes"].as_array().unwrap().len(), 16, "{told:?}");
    assert_eq!(told.fields["processes_more"], 4, "{told:?}");
    assert!(told.message.ends_with(" and 4 more"), "{}", told.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_on_without_its_client_is_told_of() {
    let world = World::new().await;
    let mut client = started(world.ssh(&[], &[STUBBORN]));
    let pid = number(&mut lines(&mut client)).await;
    client.kill().await.unwrap();
    let told = world.event(&Code::SessionOutlived).await;
    assert!(alive(pid), "no setting forbids it");
    kill(pid);
    assert_eq!(told.fields["processes"][0], format!("{pid} sleep"), "{told:?}");
    assert_eq!(world.event(&Code::SessionEnd).await.message, "the client went away");
}
