//! What signals do to services: SIGHUP ends nothing and reads again what it can, the first SIGTERM drains and says so, the
//! second ends at once, and a quickstart that is interrupted can be started again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::PROGRAM;
use crate::support::{Cluster, free_port, me, ok, read_until, stdout, under_way, wait_for};

fn log_of(cluster: &Cluster) -> String {
    fs::read_to_string(&cluster.services.as_ref().expect("services").log).expect("a log")
}

fn hang_up(cluster: &Cluster, said: &str) {
    cluster.services.as_ref().expect("services").signal("HUP");
    wait_for(said, || log_of(cluster).contains(said).then_some(()));
}

#[test]
fn a_hangup_reads_again_and_ends_nothing() {
    let mut cluster = Cluster::bare();
    let file = cluster.path("cluster.yaml");
    let before = fs::read_to_string(&file).unwrap();
    let change = |from: &str, to: &str| fs::write(&file, before.replace(from, to)).unwrap();

    change("drain_timeout: 2s", "drain_timeout: 7s");
    hang_up(&cluster, "in_force=\"drain_timeout\"");
    // What cannot be read again is named, and so are mistakes, which change nothing.
    change("second_factor: optional", "second_factor: required");
    hang_up(&cluster, "keys=\"auth\"");
    change("level: info", "level: loud");
    hang_up(&cluster, "has mistakes");
    change("level: info", "level: debug");
    hang_up(&cluster, "in_force=\"log.level\"");
    ok(cluster.admin(&["status"]));
    wait_for("the new level", || log_of(&cluster).contains("DEBUG").then_some(()));
    let services = cluster.services.as_mut().unwrap();
    assert!(services.child.try_wait().unwrap().is_none(), "SIGHUP has ended the services");
    ok(cluster.admin(&["status"]));
}

#[test]
fn a_drain_says_how_far_it_is_and_a_second_signal_ends_it() {
    let mut cluster = Cluster::bare();
    let file = cluster.path("cluster.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("drain_timeout: 2s", "drain_timeout: 1h")).unwrap();
    hang_up(&cluster, "in_force=\"drain_timeout\"");
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    let target = format!("{}@web-1", me());
    let mut session = alice.command(&["ssh", &target, "echo here; sleep 1000"]);
    let (mut client, mut lines) = under_way(&mut session);
    read_until(&mut lines, "here");

    let services = cluster.services.as_mut().unwrap();
    let log = services.log.clone();
    services.signal("TERM");
    for said in ["a second signal ends the process at once", "1 session is still open"] {
        wait_for(said, || fs::read_to_string(&log).unwrap().contains(said).then_some(()));
    }
    assert!(services.child.try_wait().unwrap().is_none(), "the drain did not wait");
    services.signal("TERM");
    wait_for("the end at once", || services.child.try_wait().unwrap());
    let _ = client.kill();
    let _ = client.wait();
}

fn quickstart(directory: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["quickstart", "--dir"]).arg(directory);
    command
}

#[test]
fn a_quickstart_that_is_interrupted_can_be_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qs");
    let listen = format!("127.0.0.1:{}", free_port());
    let mut first = quickstart(&path)
        .args(["--listen", &listen])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    // The cluster is there, and the user and the node are not.
    while !lines.next().expect("the cluster's line").unwrap().trim_start().starts_with("cluster") {}
    let pid = first.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let stopped = first.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(said.contains("stopped before the end") && said.contains("begins the tour anew"), "{said}");
    // A file of the person's own.
    fs::write(path.join("notes"), "mine").unwrap();

    let again = ok(quickstart(&path).arg("--once").output().unwrap());
    assert!(stdout(&again).contains("intact"), "{}", stdout(&again));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("the tour begins anew"), "{said}");
    assert_eq!(fs::read_to_string(path.join("notes")).unwrap(), "mine");
}
