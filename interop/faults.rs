//! Processes killed in mid-session, restarts, and damaged files.

use crate::support;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{
    Cluster, PROGRAM, User, lines_of, ok, read_until, ssh_command, stderr, stdout, target, wait_for,
};

/// A session that writes a line ten times a second, and has begun to.
fn ticking(alice: &User) -> Child {
    let mut child = ssh_command(&alice.ssh_config(&[]))
        .args(["-tt", &target("web-1"), "i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.1; done"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    read_until(&mut lines, "tick 25");
    std::thread::spawn(move || {
        while std::io::BufRead::read_line(&mut lines, &mut String::new()).is_ok_and(|read| read > 0) {}
    });
    child
}

#[test]
fn a_killed_node_loses_a_second_of_its_recordings_at_the_most() {
    let (mut cluster, alice) = Cluster::with_node();
    let mut child = ticking(&alice);
    cluster.node("web-1").kill_9();
    // The client sees the end, and the proxy says that the session was lost.
    wait_for("the session to end", || child.try_wait().unwrap());
    cluster.wait_event("session.lost", |event| event["user"] == "alice");
    cluster.restart_node("web-1");
    cluster.wait_online("web-1");
    let session = cluster.wait_recording("interrupted", |recording| recording["user"] == "alice");
    let text = cluster.playback(&session, "text");
    // 25 ticks were seen; what the last second wrote may be missing.
    assert!(text.contains("tick 14\n"), "{text}");
    cluster.wait_event("recording.interrupted", |event| event["session_id"] == session.as_str());
    wait_for("the node to serve again", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    assert!(stdout(&ok(cluster.admin(&["audit", "verify"]))).contains("intact"));
}

#[test]
fn a_killed_proxy_ends_sessions_and_loses_no_recording() {
    let (mut cluster, alice) = Cluster::with_node();
    let mut child = ticking(&alice);
    cluster.services.as_mut().unwrap().kill_9();
    wait_for("the session to end", || child.try_wait().unwrap());
    cluster.start_services();
    cluster.wait_online("web-1");
    wait_for("the node to serve again", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    // The node lived on, so that the whole recording is there, end included.
    let session = cluster.wait_recording("complete", |recording| {
        recording["command"].as_str().is_some_and(|command| command.contains("tick"))
    });
    assert!(cluster.playback(&session, "text").contains("tick 25\n"));
    let verified = stdout(&ok(cluster.admin(&["audit", "verify"])));
    assert!(verified.contains("intact"), "{verified}");
    cluster.wait_event("session.end", |event| event["session_id"] == session.as_str());
}

#[test]
fn a_damaged_recording_plays_around_the_damage() {
    let (cluster, alice) = Cluster::with_node();
    // Three chunks: a chunk is written at least every second.
    let command = "echo first; sleep 1.5; echo second; sleep 1.5; echo third";
    ok(alice.ssh(&[&target("web-1"), command]));
    let session = cluster.wait_recording("complete", |_| true);
    let path = cluster.data_dir().join(format!("auth/recordings/{session}.rec"));
    let mut bytes = fs::read(&path).unwrap();
    let chunks: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, four)| four == b"\xf5CHK").map(|(at, _)| at).collect();
    assert!(chunks.len() >= 5, "{chunks:?}");
    // The middle of the third chunk, which holds the second line.
    let middle = (chunks[2] + chunks[3]) / 2 + 18;
    bytes[middle.min(chunks[3] - 1)] ^= 0x55;
    fs::write(&path, bytes).unwrap();
    let data = cluster.data_dir();
    let output = ok(Command::new(PROGRAM)
        .args(["play", &session, "--format", "text", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap());
    let (text, said) = (stdout(&output), stderr(&output));
    assert!(text.contains("first\n") && text.contains("third\n"), "{text}");
    assert!(!text.contains("second\n"), "{text}");
    assert!(said.contains("damaged and were skipped"), "{said}");
    cluster.wait_event("recording.damaged", |event| event["session_id"] == session.as_str());
}

#[test]
fn a_clean_stop_drains_and_a_restart_keeps_everything() {
    let (mut cluster, alice) = Cluster::with_node();
    ok(alice.ssh(&[&target("web-1"), "echo before"]));
    let session = cluster.wait_recording("complete", |_| true);
    let services = cluster.services.as_mut().unwrap();
    services.signal("TERM");
    let status = wait_for("the services to stop", || services.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    cluster.start_services();
    cluster.wait_online("web-1");
    wait_for("the node to serve again", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    assert!(cluster.playback(&session, "text").contains("before"));
    cluster.wait_event("auth.stopped", |_| true);
}

/// Starts the services of a stopped cluster and gives what they say when they fail.
fn failing_start(cluster: &Cluster) -> String {
    let output = Command::new(PROGRAM)
        .args(["start", "-c"])
        .arg(cluster.path("cluster.yaml"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    stderr(&output)
}

#[test]
fn damaged_state_is_told_and_not_made_worse() {
    let mut cluster = Cluster::bare();
    cluster.services.take();
    let auth = cluster.data_dir().join("auth");
    let (state, key) = (auth.join("state.db"), auth.join("seal.key"));
    let (good_state, good_key) = (fs::read(&state).unwrap(), fs::read(&key).unwrap());

    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("chmod 600") && said.contains("seal.key"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    fs::set_permissions(&state, fs::Permissions::from_mode(0o640)).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("chmod 600") && said.contains("state.db"), "{said}");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o600)).unwrap();

    fs::write(&key, &good_key[..10]).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("seal.key") || said.contains("seal key"), "{said}");
    fs::write(&key, vec![7; good_key.len()]).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("restore the seal key"), "{said}");
    fs::remove_file(&key).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("seal.key") && said.contains("missing"), "{said}");
    assert!(!key.exists(), "a new key must not be made beside an old state");
    fs::write(&key, &good_key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(auth.join(format!("state.db{suffix}")));
    }
    fs::write(&state, &good_state[..good_state.len() / 2]).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("state.db") && said.contains("damaged"), "{said}");
    assert_eq!(fs::read(&state).unwrap().len(), good_state.len() / 2);
    fs::write(&state, &good_state).unwrap();
    cluster.start_services();
}

#[test]
fn a_second_process_on_the_same_state_or_port_is_turned_away() {
    let cluster = Cluster::bare();
    let yaml = fs::read_to_string(cluster.path("cluster.yaml")).unwrap();
    let moved =
        yaml.replace(&format!("127.0.0.1:{}", cluster.port), &format!("127.0.0.1:{}", support::free_port()));
    fs::write(cluster.path("cluster.yaml"), moved).unwrap();
    let said = failing_start(&cluster);
    assert!(said.contains("is in use by another process"), "{said}");
    let other = Cluster::bare();
    drop(other.services);
    let yaml = fs::read_to_string(other.directory.path().join("cluster.yaml")).unwrap();
    let taken = yaml.replace(&format!("127.0.0.1:{}", other.port), &format!("127.0.0.1:{}", cluster.port));
    let path = other.directory.path().join("taken.yaml");
    fs::write(&path, taken).unwrap();
    let output =
        Command::new(PROGRAM).args(["start", "-c"]).arg(&path).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains(&format!("another process uses port {}", cluster.port)), "{said}");
    // A second node on the files of the first would hand over recordings that are being written.
    let (cluster, alice) = Cluster::with_node();
    let config = cluster.path("node-web-1.yaml");
    let output =
        Command::new(PROGRAM).args(["start", "-c"]).arg(&config).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("in use by another process"), "{}", stderr(&output));
    ok(alice.ssh(&[&target("web-1"), "true"]));
}

#[test]
fn a_wrong_configuration_is_told_in_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sallyport.yaml");
    fs::write(&path, "version: v1\ncluster: Bad_Name\ndata_dir: relative\nauth:\n  enabled: yes\nproxy:\n  enabled: true\n  lisen: x\n").unwrap();
    let output = Command::new(PROGRAM).args(["start", "--check", "-c"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    for part in [":2:", "cluster", ":3:", "data_dir", ":8:", "did you mean listen"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let example = ok(Command::new(PROGRAM).arg("configure").output().unwrap());
    fs::write(&path, &example.stdout).unwrap();
    ok(Command::new(PROGRAM).args(["start", "--check", "-c"]).arg(&path).output().unwrap());
}

#[test]
fn what_is_not_a_protocol_is_dropped_and_no_other_client_notices() {
    use std::io::{Read, Write};
    let (cluster, alice) = Cluster::with_node();
    let connect = || {
        let stream = std::net::TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    let mut silent: Vec<_> = (0..50).map(|_| connect()).collect();
    let mut garbage = connect();
    garbage.write_all(&[0xff; 4096]).unwrap();
    let mut answer = Vec::new();
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.is_empty());
    let mut http = connect();
    http.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let _ = http.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("400"), "{answer:?}");
    // One byte at a time is slow but right.
    let mut slow = connect();
    for byte in b"SSH-2.0-slow\r\n" {
        slow.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut banner = [0; 8];
    slow.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-");
    ok(alice.ssh(&[&target("web-1"), "true"]));
    silent.clear();
}
