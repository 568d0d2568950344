//! Stock clients whose SSH ends in the helper daemon, which goes on to the node natively: what they do, what they read
//! when something is refused, and that nothing is lost where SSH has to go end to end.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{
    Cluster, Helped, free_port, me, ok, ssh, ssh_command, stderr, stdout, target, wait_for,
};

impl Helped {
    fn config(&self) -> PathBuf {
        self.0.ssh_config(&[])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.home.join(self.0.proxy.replace(':', "_")).join(name)
    }
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs to its end with this input.
fn fed(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    port
}

/// Sends this and reads as much; then ends.
fn echoed(mut stream: TcpStream, input: &[u8]) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(input).unwrap();
    let mut heard = vec![0; input.len()];
    stream.read_exact(&mut heard).unwrap();
    assert!(heard == input);
}

fn front(cluster: &Cluster, front: &str) {
    cluster.wait_event("session.start", |event| event["fields"]["front"] == front);
}

#[test]
fn commands_and_terminals_and_what_they_end_with() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let config = alice.config();
    let output = ssh(&config, &[&web, "echo out; echo err >&2; exit 7"]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"));
    assert_eq!(output.status.code(), Some(7));
    front(&cluster, "native");
    // The end of the input arrives, and all of it before.
    let input: Vec<u8> = (0..6_000_000_u32).map(|number| (number % 251) as u8).collect();
    let output = ok(fed(alice.spawn(&[&web, "cat; echo >&2 done"]), &input));
    assert!(output.stdout == input && stderr(&output) == "done\n");
    assert_eq!(stdout(&ok(fed(alice.spawn(&[&web]), b"echo $((6*7))\n"))), "42\n");
    let killed = ssh(&config, &[&web, "kill -TERM $$"]);
    assert_eq!(killed.status.code(), Some(255), "{killed:?}");
    let output = ssh(&config, &["-tt", "-o", "SetEnv=LC_ALL=C.UTF-8", &web, "tty; echo [$LC_ALL]; exit 3"]);
    assert!(stdout(&output).contains("/dev/pts/") && stdout(&output).contains("[C.UTF-8]"), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
    let subsystem = ssh(&config, &["-s", &web, "nothing"]);
    assert!(!subsystem.status.success());
    assert!(alice.natives().0 >= 6);
}

#[test]
fn a_recording_plays_back() {
    let (cluster, alice) = Helped::with_node();
    ok(ssh(&alice.config(), &["-tt", &target("web-1"), "echo played back"]));
    let session = cluster.wait_recording("complete", |recording| recording["user"] == "alice");
    assert!(cluster.playback(&session, "text").contains("played back"));
    front(&cluster, "native");
}

#[test]
fn who_goes_away_hangs_up() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let marks = ["term", "helper"].map(|name| cluster.path(name));
    let gone = |mark: &Path| {
        wait_for("the end of the command", || {
            let pid = fs::read_to_string(mark).unwrap();
            (!Path::new(&format!("/proc/{}", pid.trim())).exists()).then_some(())
        });
    };
    let begin = |mark: &Path| {
        let child =
            alice.spawn(&[&web, &format!("echo $$ > {}; echo ready; exec sleep 1000", mark.display())]);
        wait_for("the command", || fs::read_to_string(mark).ok().filter(|text| text.ends_with('\n')));
        child
    };
    let mut child = begin(&marks[0]);
    // Not an interrupt, which tests in the background may have been started to ignore.
    ok(Command::new("kill").args(["-TERM", &child.id().to_string()]).output().unwrap());
    child.wait().unwrap();
    gone(&marks[0]);
    let child = begin(&marks[1]);
    let helper = alice.status()["pid"].as_u64().unwrap();
    ok(Command::new("kill").args(["-KILL", &helper.to_string()]).output().unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(stderr(&output).contains("the connection was lost"), "{}", stderr(&output));
    gone(&marks[1]);
    ok(ssh(&alice.config(), &[&web, "true"]));
}

#[test]
fn forwards_and_many_sessions_share_a_connection() {
    let (cluster, alice) = Helped::with_node();
    let (config, web) = (alice.config(), target("web-1"));
    let there = echo_server();
    let (local, remote, socks) = (free_port(), free_port(), free_port());
    let control = cluster.path("control");
    let control = format!("ControlPath={}", control.display());
    let master = spawn(ssh_command(&config).args(["-N", "-M", "-o", &control]).args([
        "-L",
        &format!("127.0.0.1:{local}:127.0.0.1:{there}"),
        "-R",
        &format!("127.0.0.1:{remote}:127.0.0.1:{there}"),
        "-D",
        &format!("127.0.0.1:{socks}"),
        &web,
    ]));
    for port in [local, remote] {
        let stream = wait_for("the forward", || TcpStream::connect(("127.0.0.1", port)).ok());
        echoed(stream, &vec![b'f'; 200_000]);
    }
    let mut stream = TcpStream::connect(("127.0.0.1", socks)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    let port = there.to_be_bytes();
    stream.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]]).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [5, 0]);
    echoed(stream, b"by socks");
    let before = alice.natives().0;
    let sessions: Vec<Child> = (0..8)
        .map(|number| {
            spawn(ssh_command(&config).args(["-o", &control, &web, &format!("cat; echo {number}")]))
        })
        .collect();
    for (number, child) in sessions.into_iter().enumerate() {
        let output = ok(fed(child, &vec![b'm'; 300_000]));
        assert!(output.stdout.len() == 300_002 && output.stdout.ends_with(format!("{number}\n").as_bytes()));
    }
    assert_eq!(alice.natives().0, before, "all went by the master");
    ok(ssh(&config, &["-o", &control, "-O", "exit", &web]));
    assert!(master.wait_with_output().unwrap().status.code().is_some());
    // What does not answer is told of.
    let closed = free_port();
    let output = ssh(&config, &["-W", &format!("127.0.0.1:{closed}"), &web]);
    assert!(
        stderr(&output).contains(&format!("cannot connect to 127.0.0.1:{closed}")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_agent_is_forwarded() {
    let (cluster, _) = Helped::with_node();
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: lent}\nspec:\n  allow: {logins: ['{{internal.logins}}'], node_labels: \
         {'*': '*'}}\n  options: {forward_agent: true}\n",
    ));
    let bob = Helped(cluster.add_user("bob", "lent", &me()));
    let socket = cluster.path("agent");
    let mut agent =
        Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the agent", || socket.exists().then_some(()));
    let with = |command: &mut Command| command.env("SSH_AUTH_SOCK", &socket).output().unwrap();
    ok(with(Command::new("ssh-add").arg("-q").arg(bob.file("ssh_key"))));
    let output = with(
        ssh_command(&bob.config()).args(["-A", &target("web-1"), "ssh-add -l"]).env("SSH_AUTH_SOCK", &socket),
    );
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(stdout(&ok(output)).contains("256"));
    assert_eq!(bob.natives().0, 1);
}

#[test]
fn who_may_not_reads_why() {
    let (cluster, alice) = Helped::with_node();
    let (config, web) = (alice.config(), target("web-1"));
    ok(ssh(&config, &[&web, "true"]));
    for setting in ["on", "off"] {
        let unknown = web.replace(&me(), "no-such-login");
        let output =
            ssh_command(&config).args([&unknown, "true"]).env("SALLYPORT_CONNECT", setting).output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{setting}");
        assert!(stderr(&output).contains("no-such-login"), "{setting}: {}", stderr(&output));
    }
    // With a session, and with none.
    let mut with = alice.spawn(&[&web, "echo ready; exec sleep 1000"]);
    let forwarded = free_port();
    let without = alice.spawn(&["-N", "-L", &format!("127.0.0.1:{forwarded}:127.0.0.1:9"), &web]);
    wait_for("both", || (alice.status()["streams"] == 2).then_some(()));
    with.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    wait_for("the forward", || TcpStream::connect(("127.0.0.1", forwarded)).ok());
    ok(cluster.admin(&["lock", "--user", "alice", "--message", "ask carol"]));
    for child in [with, without] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{output:?}");
        assert!(stderr(&output).contains("ask carol"), "{}", stderr(&output));
    }
    let output = wait_for("the lock", || {
        let output = ssh(&config, &[&web, "echo in"]);
        (!output.status.success()).then_some(output)
    });
    assert!(output.stdout.is_empty() && stderr(&output).contains("ask carol"), "{}", stderr(&output));
}

#[test]
fn a_node_that_is_away_is_told_of() {
    let (mut cluster, alice) = Helped::with_node();
    let (config, web) = (alice.config(), target("web-1"));
    for _ in 0..2 {
        ok(ssh(&config, &[&web, "true"]));
    }
    cluster.node("web-1").kill_9();
    // There are tickets for it; the proxy knows that it is gone.
    let output = wait_for("the proxy to notice", || {
        let output = ssh(&config, &[&web, "true"]);
        (!output.status.success()).then_some(output)
    });
    assert_eq!(output.status.code(), Some(255));
    assert!(stderr(&output).contains("web-1"), "{}", stderr(&output));
    cluster.restart_node("web-1");
    let log = cluster.path("ran");
    let append = format!("echo ran >> {}", log.display());
    wait_for("the node to be back", || ssh(&config, &[&web, "true"]).status.success().then_some(()));
    for _ in 0..3 {
        ok(ssh(&config, &[&web, &append]));
    }
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 3);
}

#[test]
fn ssh_goes_end_to_end_where_it_has_to() {
    let (mut cluster, alice) = Helped::with_node();
    let (config, web) = (alice.config(), target("web-1"));
    // What an earlier release wrote, with the known_hosts of its time.
    let known_hosts = alice.file("known_hosts");
    let new = fs::read_to_string(&known_hosts).unwrap();
    let old: String =
        new.lines().filter(|line| line.starts_with("@cert")).map(|line| format!("{line}\n")).collect();
    assert_ne!(old, new);
    let written = fs::read_to_string(&config).unwrap();
    assert!(written.contains("proxy ssh --native -- '%r@%h:%p'"));
    let before = config.with_extension("old");
    fs::write(&before, written.replace(" --native", "")).unwrap();
    fs::write(&known_hosts, &old).unwrap();
    ok(ssh(&before, &[&web, "true"]));
    front(&cluster, "ssh");
    assert_eq!(alice.natives().0, 0);
    // The helper knows what is missing and puts it there before it greets.
    ok(alice.0.run(&["connect", "--stop"]));
    fs::write(&known_hosts, &old).unwrap();
    ok(ssh(&config, &[&web, "true"]));
    assert_eq!((alice.natives().0, fs::read_to_string(&known_hosts).unwrap()), (1, new));
    ok(ssh_command(&config).args([&web, "true"]).env("SALLYPORT_FRONT", "ssh").output().unwrap());
    ok(ssh_command(&config).args([&web, "true"]).env("SALLYPORT_CONNECT", "off").output().unwrap());
    assert_eq!(alice.natives().0, 1);

    // The agent is replaced by one without a native listener: the helper has tickets of the one before.
    let node = cluster.path("node-web-1.yaml");
    let with_listener = fs::read_to_string(&node).unwrap();
    fs::write(&node, format!("{with_listener}  native_door: false\n")).unwrap();
    cluster.node("web-1").kill_9();
    cluster.restart_node("web-1");
    wait_for("the node to be back", || ssh(&before, &[&web, "true"]).status.success().then_some(()));
    let output = ssh(&config, &[&web, "true"]);
    // Its greeting may not arrive before it has hung up on what it does not understand.
    let said = stderr(&output);
    let told =
        ["does not speak the native protocol any more", "was lost"].iter().any(|words| said.contains(words));
    assert!(output.status.success() || (output.status.code() == Some(255) && told), "{output:?}");
    ok(alice.0.run(&["connect", "--stop"]));
    // Where that ssh was not told, the next one is: a node that was reached natively is not reached otherwise without a word.
    let output = ssh(&config, &[&web, "true"]);
    assert!(
        output.status.success() || stderr(&output).contains("does not speak the native protocol any more"),
        "{output:?}"
    );
    for _ in 0..2 {
        let output = fed(alice.spawn(&[&web, "cat; exit 4"]), b"all of it");
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("all of it", ""));
        assert_eq!(output.status.code(), Some(4));
    }
    assert_eq!(alice.natives().0, 0);
}
