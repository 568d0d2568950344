//! `sallyport ssh` by the native protocol: the same sessions as by SSH, with tickets and without, and SSH where a node
//! has nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::support::{Cluster, Helped, free_port, ok, stderr, stdout, target, wait_for};

impl Helped {
    fn ssh_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut all = vec!["ssh"];
        all.extend(arguments);
        self.command(&all).envs(variables.iter().copied()).output().unwrap()
    }
}

/// Another process of the node takes over.
fn restart(cluster: &mut Cluster, alice: &Helped) {
    cluster.node("web-1").kill_9();
    cluster.restart_node("web-1");
    let by_ssh = [("SALLYPORT_FRONT", "ssh"), ("SALLYPORT_CONNECT", "off")];
    wait_for("the node to be back", || {
        alice.ssh_with(&[&target("web-1"), "true"], &by_ssh).status.success().then_some(())
    });
}

/// With the helper and without it, to the native listener and nowhere else.
const WAYS: [[(&str, &str); 2]; 2] = [
    [("SALLYPORT_CONNECT", "off"), ("SALLYPORT_FRONT", "native")],
    [("SALLYPORT_CONNECT", "on"), ("SALLYPORT_FRONT", "native")],
];

#[test]
fn commands_run_and_say_how_they_ended() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    for way in &WAYS {
        let output = alice.ssh_with(&[&web, "echo out; echo err >&2; exit 7"], way);
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"));
        assert_eq!(output.status.code(), Some(7));
        // What is read, all of it and to its end.
        let mut command = alice.0.command(&["ssh", &web, "wc -c"]);
        let mut child = command
            .envs(way.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
        assert_eq!(stdout(&ok(child.wait_with_output().unwrap())).trim(), "3000000");
        // And what is written.
        let output = ok(alice.ssh_with(&[&web, "head -c 5000000 /dev/zero"], way));
        assert_eq!(output.stdout.len(), 5_000_000);
        let killed = alice.ssh_with(&[&web, "kill -9 $$"], way);
        assert!(!killed.status.success());
        let refused = alice.ssh_with(&[&format!("no-such-login@{}", "web-1"), "true"], way);
        assert_eq!(refused.status.code(), Some(255), "{}", stderr(&refused));
    }
    // What is on record is what was said, and by which protocol it came.
    let event = cluster.wait_event("session.start", |event| event["fields"]["front"] == "native");
    assert_eq!(event["user"], "alice");
}

#[test]
fn later_ones_come_early_and_each_runs_once() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let on = &WAYS[1];
    let log = cluster.path("ran");
    let append = format!("echo ran >> {}", log.display());
    // The first follows the cluster, which makes another login of it.
    for _ in 0..12 {
        ok(alice.ssh_with(&[&web, &append], on));
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 12);
    let (native, early) = alice.natives();
    assert_eq!(native, 12);
    assert!(early >= 10, "{early} of {native} came with a ticket");
}

#[test]
fn a_node_that_was_started_anew_knows_no_tickets_and_runs_all_the_same() {
    let (mut cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let on = &WAYS[1];
    ok(alice.ssh_with(&[&web, "true"], on));
    restart(&mut cluster, &alice);
    let log = cluster.path("ran");
    let append = format!("echo ran >> {}", log.display());
    for _ in 0..3 {
        ok(alice.ssh_with(&[&web, &append], on));
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 3);
}

#[test]
fn terminals_and_forwards_and_files_go_the_same_way() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    for way in &WAYS {
        let mut command = alice.0.command(&["ssh", "-tt", &web, "tty; stty size; exit 3"]);
        let output = command.envs(way.iter().copied()).output().unwrap();
        assert!(stdout(&output).contains("/dev/pts/"), "{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(3));

        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = echo.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = echo.accept().unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(&heard).unwrap();
        });
        let from = free_port();
        let spec = format!("127.0.0.1:{from}:127.0.0.1:{to}");
        let mut command = alice.0.command(&["ssh", "-N", "-L", &spec, &web]);
        let mut forwarding = command.envs(way.iter().copied()).spawn().unwrap();
        let mut stream = wait_for("the forward", || TcpStream::connect(("127.0.0.1", from)).ok());
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        forwarding.kill().unwrap();
        forwarding.wait().unwrap();

        let (here, there) = (cluster.path("here"), cluster.path("there"));
        std::fs::write(&here, vec![7; 300_000]).unwrap();
        let to = format!("{web}:{}", there.display());
        let mut command = alice.0.command(&["scp", &here.display().to_string(), &to]);
        ok(command.envs(way.iter().copied()).output().unwrap());
        assert_eq!(std::fs::read(&there).unwrap(), vec![7; 300_000]);
        std::fs::remove_file(&there).unwrap();
    }
}

#[test]
fn a_node_with_ssh_alone_is_gone_to_by_ssh_with_nothing_lost() {
    let (mut cluster, alice) = Helped::with_node();
    let web = target("web-1");
    // The agent is replaced by one without a native listener, and later by one that has it again.
    let config = cluster.path("node-web-1.yaml");
    let with_listener = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{with_listener}  native_door: false\n")).unwrap();
    restart(&mut cluster, &alice);
    for way in ["off", "on", "on"] {
        let mut command = alice.0.command(&["ssh", &web, "cat; exit 4"]);
        let mut child = command
            .env("SALLYPORT_CONNECT", way)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"all of it").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("all of it", ""));
        assert_eq!(output.status.code(), Some(4));
    }
    assert_eq!(alice.natives().0, 0);
    let output = alice.ssh_with(&[&web, "true"], &WAYS[0]);
    assert_eq!(output.status.code(), Some(255));
    assert!(stderr(&output).contains("speaks SSH alone"), "{}", stderr(&output));
}

#[test]
fn a_recording_of_a_native_session_plays_back() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let mut command = alice.0.command(&["ssh", "-tt", &web, "echo played back"]);
    ok(command.env("SALLYPORT_FRONT", "native").output().unwrap());
    let session = cluster.wait_recording("complete", |recording| recording["user"] == "alice");
    assert!(cluster.playback(&session, "text").contains("played back"));
}

#[test]
fn the_protocol_can_be_chosen_and_locks_count_at_once() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    ok(alice.ssh_with(&[&web, "true"], &[("SALLYPORT_FRONT", "ssh")]));
    assert_eq!(alice.natives().0, 0);
    ok(alice.ssh_with(&[&web, "true"], &[]));
    assert_eq!(alice.natives().0, 1);
    let output = alice.ssh_with(&[&web, "true"], &[("SALLYPORT_FRONT", "telnet")]);
    assert!(stderr(&output).contains("SALLYPORT_FRONT is \"telnet\""), "{}", stderr(&output));
    // A ticket is at hand, and a lock comes.
    ok(alice.ssh_with(&[&web, "true"], &WAYS[1]));
    ok(cluster.admin(&["lock", "--user", "alice", "--message", "leave"]));
    let output = wait_for("the lock", || {
        let output = alice.ssh_with(&[&web, "true"], &WAYS[1]);
        (!output.status.success()).then_some(output)
    });
    assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
}
