//! A disk that fills at a node, or at a proxy, in the midst of sessions and recordings. The authority's is in
//! `authority_disk` and `attacks::disk`.

use std::io::Write;
use std::path::Path;

use super::{Typist, count, runs};
use crate::support::{Cluster, Disk, Process, is_root, ok, stderr, wait_for};

/// How often a service has said in its log that events are being lost.
fn losses(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().matches("audit events are being lost").count()
}

#[test]
fn a_full_disk_at_a_node_costs_recordings_and_what_is_lost_is_said() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::bare();
    let disk = cluster.add_node_on_disk("web-1", "12m");
    let strict = cluster.add_user_with("alice", "{record_session: strict}");
    let lenient = cluster.add_user_with("bob", "{record_session: best_effort}");
    let mut must = Typist::of(&strict, &[]);
    let mut may = Typist::of(&lenient, &[]);
    ok(runs(&strict, "echo before"));
    let before = cluster.wait_recording("complete", |recording| recording["user"] == "alice");

    disk.fill();
    // Who has to be recorded ends with the record; who may go on unrecorded does.
    wait_for("the session that must be recorded to end", || {
        // Who has been cut off reads nothing more.
        let _ = must.input.write_all(b"no room\n");
        must.is_over()
    });
    may.types("no room");
    let said = wait_for("a new one to be refused", || {
        let output = runs(&strict, "true");
        (!output.status.success()).then(|| stderr(&output))
    });
    assert!(said.contains("record"), "{said}");
    ok(runs(&lenient, "echo unrecorded"));
    // A node that is killed and starts without a byte keeps its place, its roles and its locks.
    cluster.node("web-1").kill_9();
    disk.fill();
    let (config, log) = (cluster.path("node-web-1.yaml"), cluster.path("node-web-1.log"));
    let said_before = losses(&log);
    cluster.nodes.clear();
    cluster.nodes.push(("web-1".to_owned(), disk.start(&config, log.clone())));
    wait_for("the node to serve again", || runs(&lenient, "true").status.success().then_some(()));
    ok(cluster.admin(&["lock", "--user", "bob", "--message", "out"]));
    wait_for("the lock to reach the node", || stderr(&runs(&lenient, "true")).contains("out").then_some(()));
    // Events wait in memory for a moment: room that comes before would cost none. What waited on the disk when the service was killed
    // is sent and leaves its room, which is taken again.
    wait_for("an event to find no room", || {
        disk.fill();
        runs(&strict, "true");
        (losses(&log) > said_before).then_some(())
    });

    disk.clear();
    wait_for("what must be recorded to be let in again", || {
        runs(&strict, "echo after").status.success().then_some(())
    });
    cluster.wait_recording("complete", |recording| recording["command"] == "echo after");
    // What could not be kept is said, with how much.
    let lost = cluster.wait_event("audit.lost", |event| event["origin"] == "node:web-1");
    assert!(lost["fields"]["lost"].as_u64().unwrap() > 0, "{lost}");
    cluster.wait_event("audit.unclosed", |event| event["origin"] == "node:web-1");
    assert!(cluster.playback(&before, "text").contains("before"));
    ok(cluster.admin(&["audit", "verify"]));
}

#[test]
fn a_full_disk_at_a_proxy_costs_its_events_and_no_session() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::apart();
    let port = cluster.port;
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
    // The proxy's data moves to a small disk, once it has joined.
    wait_for("the proxy to listen", listens);
    cluster.nodes.clear();
    let disk = Disk::mount(cluster.directory.path(), ("small", "small-disk"), "4m");
    let (config, log) = (cluster.path("proxy.yaml"), cluster.path("proxy.log"));
    let yaml = std::fs::read_to_string(&config).unwrap();
    let data = format!("data_dir: {}", cluster.path("proxy").display());
    let small = format!("data_dir: {}", cluster.path("small").display());
    assert!(yaml.contains(&data));
    std::fs::write(&config, yaml.replace(&data, &small)).unwrap();
    ok(std::process::Command::new("cp")
        .arg("-a")
        .arg(cluster.path("proxy/."))
        .arg(disk.path("."))
        .output()
        .unwrap());
    let start = |cluster: &mut Cluster, disk: &Disk| {
        let process: Process = disk.start(&config, log.clone());
        cluster.nodes.retain(|(name, _)| name != "proxy");
        cluster.nodes.push(("proxy".to_owned(), process));
    };
    start(&mut cluster, &disk);
    wait_for("the proxy to listen", listens);
    cluster.add_node("web-1", "env: prod");
    let [alice, mallory] = super::with_users(&cluster, ["alice", "mallory"]);
    let mut typist = Typist::of(&alice, &[]);
    let refuse = || alice.run(&["ssh", "-n", "no-such-login@web-1", "true"]);

    disk.fill();
    // Sessions go on and begin; who is refused is refused.
    typist.types("no room");
    ok(runs(&alice, "echo no room"));
    for _ in 0..3 {
        assert!(!refuse().status.success());
    }
    ok(cluster.admin(&["lock", "--user", "mallory", "--message", "out"]));
    wait_for("the lock to reach the proxy", || stderr(&runs(&mallory, "true")).contains("out").then_some(()));
    // A proxy that is killed starts without a byte, and knows whom to refuse.
    cluster.node("proxy").kill_9();
    let said_before = losses(&log);
    disk.fill();
    start(&mut cluster, &disk);
    wait_for("the proxy to serve again", || runs(&alice, "true").status.success().then_some(()));
    assert!(stderr(&runs(&mallory, "true")).contains("out"));
    // Events wait in memory for a moment: room that comes before would cost none. What waited on the disk when the service was killed
    // is sent and leaves its room, which is taken again.
    wait_for("an event to find no room", || {
        disk.fill();
        assert!(!refuse().status.success());
        (losses(&log) > said_before).then_some(())
    });

    disk.clear();
    let of_proxy =
        |event: &serde_json::Value| event["origin"].as_str().is_some_and(|by| by.starts_with("proxy:"));
    let lost = cluster.wait_event("audit.lost", of_proxy);
    assert!(lost["fields"]["lost"].as_u64().unwrap() > 0, "{lost}");
    cluster.wait_event("audit.unclosed", of_proxy);
    assert!(!refuse().status.success());
    cluster.wait_event("session.refused", |event| event["login"] == "no-such-login");
    // No session's own events are missing: they are the node's.
    let whole = |events: &[serde_json::Value]| count(events, "session.start") >= 3;
    wait_for("the sessions' events", || whole(&cluster.events()).then_some(()));
    cluster.wait_recording("complete", |recording| recording["command"] == "echo no room");
    ok(cluster.admin(&["audit", "verify"]));
}
