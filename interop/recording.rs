//! What happens to sessions that cannot be recorded, and that recordings arrive as they were written.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use crate::support::{
    Cluster, PROGRAM, Process, User, drain, is_root, ok, read_until, ssh_command, stderr, target, under_way,
    wait_for,
};

fn begin(user: &User, command: &str) -> (Child, BufReader<ChildStdout>) {
    under_way(ssh_command(&user.ssh_config(&[])).args([&target("web-1"), command]))
}

const TICKS: &str = "i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.1; done";

#[test]
fn sessions_in_step_feel_an_authority_that_stands_still() {
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let strict = cluster.add_user_with("alice", "{session_recording: node-sync, record_session: strict}");
    let lenient = cluster.add_user_with("bob", "{session_recording: node-sync, record_session: best_effort}");
    let (mut ended, mut lines) = begin(&strict, TICKS);
    read_until(&mut lines, "tick 25");
    drain(lines);
    let (mut stays, mut lines) = begin(&lenient, TICKS);
    read_until(&mut lines, "tick 25");
    // The session began only when the authority had the beginning of its recording.
    let live = cluster.wait_recording("live", |recording| recording["user"] == "alice");
    assert!(!live.is_empty());

    let stopped = Instant::now();
    cluster.services.as_ref().unwrap().signal("STOP");
    let status = wait_for("the strict session to end", || ended.try_wait().unwrap());
    assert_eq!(status.code(), Some(255));
    let took = stopped.elapsed();
    assert!(took > Duration::from_secs(8) && took < Duration::from_secs(30), "{took:?}");
    let said = stderr(&ended.wait_with_output().unwrap());
    assert!(said.contains("has to be recorded and cannot be"), "{said}");
    // None begins, either. The other goes on.
    let refused = ssh_command(&strict.ssh_config(&[])).args([&target("web-1"), "true"]).output().unwrap();
    assert!(stderr(&refused).contains("has to be recorded and cannot be"), "{}", stderr(&refused));
    read_until(&mut lines, "tick 200");
    assert!(stays.try_wait().unwrap().is_none());
    cluster.services.as_ref().unwrap().signal("CONT");
    for name in ["alice", "bob"] {
        cluster.wait_event("recording.failed", |event| {
            event["user"] == name && event["message"].as_str().unwrap().contains("taken nothing for 10 s")
        });
    }
    cluster.wait_event("recording.resumed", |event| {
        event["user"] == "bob" && event["fields"]["lost_bytes"] == 0
    });
    ok(strict.ssh(&[&target("web-1"), "true"]));
    stays.kill().unwrap();
    stays.wait().unwrap();
    // Nothing of either is missing.
    let session = cluster.wait_recording("complete", |recording| {
        recording["user"] == "bob" && recording["command"].as_str().unwrap().contains("tick")
    });
    let text = cluster.playback(&session, "text");
    assert!(text.contains("tick 1\n") && text.contains("tick 200\n"), "{text}");
    let session = cluster.wait_recording("complete", |recording| {
        recording["user"] == "alice" && recording["command"].as_str().unwrap().contains("tick")
    });
    assert!(cluster.playback(&session, "text").contains("tick 50\n"));
}

/// Waits until a file has so much more in it.
fn grows(path: &Path, by: u64) {
    let length = || fs::metadata(path).map_or(0, |metadata| metadata.len());
    let before = length();
    wait_for("a recording to grow", || (length() >= before + by).then_some(()));
}

/// The node's copy of a recording, kept under another name: the node removes its own when the authority has it all.
fn keep(cluster: &Cluster, session: &str) -> PathBuf {
    let kept = cluster.path("kept.rec");
    let _ = fs::remove_file(&kept);
    let spool = cluster.path("node-web-1/node/recordings");
    fs::hard_link(spool.join(format!("{session}.rec")), &kept).unwrap();
    kept
}

#[test]
fn an_upload_survives_the_death_of_everybody_who_takes_part() {
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user_with("alice", "{record_session: strict}");
    for dies in ["authority", "proxy", "node"] {
        // What was there before may be live for a moment longer, until it has arrived.
        let before: Vec<serde_json::Value> =
            cluster.recordings().iter().map(|recording| recording["session_id"].clone()).collect();
        // Enough that something is always on its way.
        let (mut child, mut lines) =
            begin(&alice, "while true; do head -c 60000 /dev/urandom | base64; echo round; sleep 0.05; done");
        read_until(&mut lines, "round");
        drain(lines);
        // By its command: the recording of a short session from before may arrive only now, and the node keeps no copy of it.
        let session = cluster.wait_recording("live", |recording| {
            !before.contains(&recording["session_id"])
                && recording["command"].as_str().unwrap().contains("urandom")
        });
        let kept = keep(&cluster, &session);
        let stored = cluster.data_dir().join(format!("auth/recordings/{session}.rec"));
        grows(&stored, 200_000);
        match dies {
            "authority" => {
                cluster.services.as_mut().unwrap().kill_9();
                grows(&kept, 400_000);
                assert!(child.try_wait().unwrap().is_none(), "the session does not notice");
                cluster.start_services();
                grows(&stored, 200_000);
                child.kill().unwrap();
            }
            "proxy" => {
                cluster.node("proxy").kill_9();
                let config = cluster.path("proxy.yaml");
                let process = cluster.spawn_node("proxy", &config);
                *cluster.node("proxy") = process;
            }
            _ => {
                cluster.node("web-1").kill_9();
                cluster.restart_node("web-1");
            }
        }
        child.wait().unwrap();
        let state = if dies == "node" { "interrupted" } else { "complete" };
        cluster.wait_recording(state, |recording| recording["session_id"] == session.as_str());
        assert!(
            fs::read(&stored).unwrap() == fs::read(&kept).unwrap(),
            "the {dies} died, and the copies differ"
        );
        assert!(cluster.playback(&session, "text").contains("round"));
        cluster.wait_online("web-1");
        wait_for("the node to serve", || {
            alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
        });
    }
}

#[test]
fn a_full_disk_ends_strict_sessions_and_is_on_record_for_others() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::bare();
    // The node in a mount namespace of its own, with 600 KiB for recordings.
    let token = cluster.token(&[]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let spool = cluster.path("node-web-1/node/recordings");
    let script = "umask 077 && mkdir -p \"$0\" && mount -t tmpfs -o size=600k,mode=700 tmpfs \"$0\" && exec \"$1\" start -c \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&spool).arg(PROGRAM).arg(&config);
    let process = Process::spawn(&mut command, cluster.path("node-web-1.log"));
    cluster.nodes.push(("web-1".to_owned(), process));
    cluster.wait_online("web-1");
    let strict = cluster.add_user_with("alice", "{record_session: strict}");
    let lenient = cluster.add_user_with("bob", "{record_session: best_effort}");
    let off = cluster.add_user_with("carol", "{session_recording: 'off', record_session: strict}");
    // No base64 looks like the last line.
    let noise = "for i in 1 2 3 4; do head -c 400000 /dev/urandom | base64; sleep 0.5; done; echo '(over)'";
    let (ended, lines) = begin(&strict, noise);
    drain(lines);
    let ended = ended.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(255), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("has to be recorded and cannot be"), "{}", stderr(&ended));
    cluster.wait_event("recording.failed", |event| {
        event["user"] == "alice" && event["message"].as_str().unwrap().contains("No space left")
    });
    // Its part goes to the authority, and makes room.
    cluster.wait_recording("interrupted", |recording| recording["user"] == "alice");
    let (mut child, mut lines) = begin(&lenient, noise);
    read_until(&mut lines, "(over)");
    assert!(child.wait().unwrap().success());
    cluster.wait_event("recording.failed", |event| event["user"] == "bob");
    let (mut child, mut lines) = begin(&off, noise);
    read_until(&mut lines, "(over)");
    assert!(child.wait().unwrap().success());
    cluster.wait_event("session.end", |event| event["user"] == "carol");
    assert!(!cluster.recordings().iter().any(|recording| recording["user"] == "carol"));
}
