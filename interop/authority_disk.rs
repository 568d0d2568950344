//! The authority's disk: full under load, and what is removed from it by age.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{
    Cluster, PASSWORD, PROGRAM, Process, User, drain, free_port, is_root, lines_of, ok, read_until,
    ssh_command, stderr, target, under_way, wait_for,
};

fn begin(user: &User, command: &str) -> (Child, BufReader<ChildStdout>) {
    let mut ssh = ssh_command(&user.ssh_config(&[]));
    under_way(ssh.args([&target("web-1"), command]).env("SALLYPORT_CONNECT", "off"))
}

/// A session that echoes what is typed.
struct Typist {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Typist {
    fn of(user: &User) -> Self {
        let mut child = ssh_command(&user.ssh_config(&[]))
            .args([&target("web-1"), "cat"])
            .env("SALLYPORT_CONNECT", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), lines_of(&mut child));
        Self { child, input, output }
    }

    fn types(&mut self, word: &str) {
        self.input.write_all(format!("{word}\n").as_bytes()).unwrap();
        read_until(&mut self.output, word);
    }
}

/// What readiness says, with its status.
fn readyz(port: u16) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

/// Every recording on the node's disk gets another name: the node removes its own once the authority has all of it.
fn keep_all(cluster: &Cluster, kept: &Path) -> Vec<String> {
    let mut sessions = Vec::new();
    for entry in fs::read_dir(cluster.path("node-web-1/node/recordings")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rec") {
            sessions.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
            // One that was kept before is the same file.
            let _ = fs::hard_link(&path, kept.join(path.file_name().unwrap()));
        }
    }
    sessions
}

/// Fills the disk to its last byte.
fn fill(data: &Path) -> PathBuf {
    let ballast = data.join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    let block = vec![7; 64 * 1024];
    for size in [block.len(), 4096, 1] {
        while file.write_all(&block[..size]).is_ok() {}
    }
    ballast
}

#[test]
fn a_full_disk_at_the_authority_costs_waiting_and_nothing_else() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let diag = free_port();
    let mut cluster = Cluster::apart_on_disk(&format!("diag_addr: 127.0.0.1:{diag}\n"), "12m");
    cluster.add_node("web-1", "env: prod");
    let strict = cluster.add_user_with("alice", "{record_session: strict}");
    let lenient = cluster.add_user_with("bob", "{record_session: best_effort}");
    let in_step = cluster.add_user_with("carol", "{session_recording: node-sync, record_session: strict}");
    let loosely = cluster.add_user_with("dan", "{session_recording: node-sync, record_session: best_effort}");
    let data = cluster.data_dir();
    let stored = |session: &str| data.join(format!("auth/recordings/{session}.rec"));
    ok(strict.ssh(&[&target("web-1"), "echo before"]));
    let early = cluster.wait_recording("complete", |recording| recording["user"] == "alice");
    let early_bytes = fs::read(stored(&early)).unwrap();
    assert_eq!(readyz(diag), (200, "ready\n".to_owned()));
    let mut typist = Typist::of(&strict);
    typist.types("before");

    // Recordings fill the disk, but for what they leave.
    let noise = "while true; do head -c 400000 /dev/urandom | base64; sleep 0.1; done";
    let mut load: Vec<Child> = Vec::new();
    for user in [&strict, &lenient, &strict] {
        let (child, lines) = begin(user, noise);
        drain(lines);
        load.push(child);
    }
    let short = cluster.wait_event("auth.disk_short", |_| true);
    assert!(short["message"].as_str().unwrap().contains("MiB left"), "{short}");
    let (status, said) = readyz(diag);
    assert!(status == 200 && said.contains("degraded: auth: the authority's disk has"), "{status} {said}");
    let kept = cluster.path("kept");
    fs::create_dir(&kept).unwrap();
    keep_all(&cluster, &kept);
    // Who may wait goes on and begins, who may not does neither, and people log in.
    typist.types("short of room");
    for user in [&strict, &lenient] {
        ok(user.ssh(&[&target("web-1"), "echo while it is short"]));
        ok(user.login(&[]));
    }
    let refused = in_step.ssh(&[&target("web-1"), "true"]);
    assert!(stderr(&refused).contains("has to be recorded and cannot be"), "{}", stderr(&refused));
    ok(loosely.ssh(&[&target("web-1"), "echo unrecorded for a while"]));
    for name in ["carol", "dan"] {
        cluster.wait_event("recording.failed", |event| event["user"] == name);
    }
    wait_for("the node to say why it waits", || {
        let log = fs::read_to_string(cluster.path("node-web-1.log")).unwrap();
        log.contains("the authority's disk has").then_some(())
    });
    for child in &mut load {
        assert!(child.try_wait().unwrap().is_none(), "a session that may wait has ended");
        let _ = child.kill();
        let _ = child.wait();
    }

    // Something else fills the rest: nothing is done any more that cannot be put on record.
    let ballast = fill(&data);
    let said = wait_for("a login to be refused", || {
        // The authority cannot be asked for its pin now, and a user who has logged in before needs none.
        let again = ["login", "--user", &lenient.name, "--password-stdin", "--add-keys-to-agent", "no"];
        let output = lenient.run_with_input(&again, &format!("{PASSWORD}\n"));
        (!output.status.success()).then(|| stderr(&output))
    });
    assert!(said.contains("the authority's disk is full"), "{said}");
    wait_for("health to say it", || {
        let (status, said) = readyz(diag);
        (status == 503 && said.contains("auth: the disk of the audit log is full")).then_some(())
    });
    typist.types("no room at all");
    ok(strict.ssh(&[&target("web-1"), "echo while it is full"]));
    ok(lenient.ssh(&[&target("web-1"), "echo while it is full"]));
    let sessions = keep_all(&cluster, &kept);
    assert!(sessions.len() >= 6, "{sessions:?}");

    // It works again without a restart: first the log, then recordings.
    fs::remove_file(ballast).unwrap();
    let resumed = wait_for("the log to go on", || {
        let output = cluster.admin(&["audit", "ls", "-n", "0", "--format", "json"]);
        let all = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = all.lines().find(|line| line.contains("\"audit.resumed\""))?;
        Some(serde_json::from_str::<serde_json::Value>(line).unwrap()["event"].clone())
    });
    assert!(resumed["message"].as_str().unwrap().contains("is full"), "{resumed}");
    ok(lenient.login(&[]));
    cluster.disk.as_ref().unwrap().resize("400m");
    cluster.wait_event("auth.disk_room", |_| true);
    typist.types("room again");
    drop(typist.input);
    assert!(typist.child.wait().unwrap().success());
    ok(in_step.ssh(&[&target("web-1"), "true"]));
    wait_for("readiness", || (readyz(diag) == (200, "ready\n".to_owned())).then_some(()));
    assert!(cluster.services.as_mut().unwrap().child.try_wait().unwrap().is_none());

    // Everything that waited arrives as it was written, and what was there is what it was.
    for entry in fs::read_dir(&kept).unwrap() {
        let path = entry.unwrap().path();
        let session = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let closed = stored(&session).with_extension("closed");
        wait_for("a recording that waited", || closed.exists().then_some(()));
        assert!(fs::read(&path).unwrap() == fs::read(stored(&session)).unwrap(), "{session} differs");
        let uploaded = |event: &serde_json::Value| event["session_id"] == session.as_str();
        let kinds = ["recording.uploaded", "recording.interrupted"];
        wait_for("the event of its arrival", || {
            let events = cluster.events();
            let count = events
                .iter()
                .filter(|event| uploaded(event) && kinds.contains(&event["kind"].as_str().unwrap()))
                .count();
            (count == 1).then_some(())
        });
    }
    assert!(fs::read(stored(&early)).unwrap() == early_bytes);
    assert!(cluster.playback(&early, "text").contains("before"));
    // No event is missing: every session that began has its end, and none says that some were lost.
    for word in ["while it is short", "while it is full"] {
        for name in ["alice", "bob"] {
            let command = format!("echo {word}");
            let is = |event: &serde_json::Value| event["fields"]["command"] == command.as_str();
            let start = cluster.wait_event("session.start", |event| event["user"] == name && is(event));
            cluster.wait_event("session.end", |event| event["session_id"] == start["session_id"]);
        }
    }
    assert!(!cluster.events().iter().any(|event| event["kind"] == "audit.lost"));
    ok(cluster.admin(&["audit", "verify"]));
}

/// Makes a closed recording look as if nothing had been added for two days.
fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(2 * 86_400)).unwrap();
}

#[test]
fn recordings_go_by_age_and_a_crash_meanwhile_keeps_what_must_stay() {
    const OLD: usize = 150;
    let (mut cluster, alice) = Cluster::with_node();
    let directory = cluster.data_dir().join("auth/recordings");
    let path = |session: &str, suffix: &str| directory.join(format!("{session}.{suffix}"));
    let recorded = |word: &str| {
        let command = format!("echo {word}");
        ok(alice.ssh(&[&target("web-1"), &command]));
        cluster.wait_recording("complete", |recording| recording["command"] == command.as_str())
    };
    let (old, held, young) = (recorded("old"), recorded("held"), recorded("young"));
    let hold =
        ["recordings", "hold", &held, "--data-dir", cluster.data_dir().to_str().unwrap()].map(str::to_owned);
    ok(Command::new(PROGRAM).args(hold).output().unwrap());
    // Idle for days, and alive.
    let mut typist = Typist::of(&alice);
    typist.types("still here");
    let live = cluster.wait_recording("live", |recording| recording["command"] == "cat");
    wait_for("what was typed", || (fs::metadata(path(&live, "rec")).ok()?.len() > 200).then_some(()));
    // By itself, at the next look.
    for session in [&old, &held, &live] {
        age(&path(session, "rec"));
    }
    ok(cluster
        .create("kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec:\n  retention: 1h\n"));
    let removed = cluster.wait_event("recording.removed", |event| event["session_id"] == old.as_str());
    assert_eq!(
        (removed["user"].as_str(), removed["fields"]["owner"].as_str()),
        (Some("auth"), Some("alice"))
    );
    assert!(removed["message"].as_str().unwrap().contains("older than the session policy"), "{removed}");
    wait_for("the old one to go", || {
        (!path(&old, "rec").exists() && !path(&old, "aside").exists()).then_some(())
    });
    let stays = |cluster: &Cluster| {
        for session in [&held, &young, &live] {
            assert!(path(session, "rec").exists(), "{session} has gone");
            let removed = |event: &serde_json::Value| {
                event["kind"] == "recording.removed" && event["session_id"] == session.as_str()
            };
            assert!(!cluster.events().iter().any(removed), "{session} is said to have gone");
        }
    };
    stays(&cluster);
    // It goes on growing: nothing was touched.
    typist.types("and still");
    drop(typist.input);
    assert!(typist.child.wait().unwrap().success());
    cluster.wait_recording("complete", |recording| recording["session_id"] == live.as_str());
    assert!(cluster.playback(&live, "text").contains("and still"));

    // Many go at once, and the authority is killed while they do.
    cluster.services.as_mut().unwrap().kill_9();
    let mut many = Vec::new();
    for number in 0..OLD {
        // Ids are UUIDs of version 7.
        let session = format!("01900000-0000-7000-8000-{number:012x}");
        for suffix in ["rec", "owner", "closed"] {
            fs::copy(path(&young, suffix), path(&session, suffix)).unwrap();
        }
        age(&path(&session, "rec"));
        many.push(session);
    }
    age(&path(&held, "rec"));
    let left = || many.iter().filter(|session| path(session, "rec").exists()).count();
    let mut process = Process::spawn(
        Command::new(PROGRAM).args(["start", "-c"]).arg(cluster.path("cluster.yaml")),
        cluster.path("services.log"),
    );
    wait_for("the removal to begin", || (left() < OLD).then_some(()));
    process.kill_9();
    let gone_before = OLD - left();
    eprintln!("killed after {gone_before} of {OLD}");
    // The moment between the decision and the removal, which a kill seldom hits.
    if let Some(session) = many.iter().find(|session| path(session, "rec").exists()) {
        fs::rename(path(session, "rec"), path(session, "aside")).unwrap();
    }
    cluster.start_services();
    wait_for("all of the old to go", || {
        let gone = |session: &&String| ["rec", "aside"].iter().any(|suffix| path(session, suffix).exists());
        (!many.iter().any(|session| gone(&session))).then_some(())
    });
    let events = cluster.events();
    for session in &many {
        let said = events
            .iter()
            .filter(|event| event["kind"] == "recording.removed" && event["session_id"] == session.as_str())
            .count();
        // Twice for the one that the crash came upon between the event and the removal.
        assert!(said == 1 || said == 2, "{session} is gone with {said} events");
    }
    stays(&cluster);
    assert!(cluster.playback(&held, "text").contains("held"));
    assert!(cluster.playback(&young, "text").contains("young"));
    ok(cluster.admin(&["audit", "verify"]));
}
