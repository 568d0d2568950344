//! Ways that fail under a session: what is short is lived through with nothing lost, what lasts ends the session on both
//! sides and says so, and then everything works again. The cluster stands on a WAN of namespaces, which needs root.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PROGRAM, is_root, stderr, stdout, wait_for, with_usual_signals};
use sallyport_lab::wan::{Matrix, Settings, Wan, sites};
use sallyport_testing::{Extras, SshRoute, Testbed};

/// Three regions, 20 ms apart, with a cluster.
struct Far {
    // In the order in which they end.
    testbed: Testbed,
    wan: Wan,
}

fn between(loss: &str) -> Settings {
    let figures = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let round_trips = figures(&["a-b=20", "b-c=20", "a-c=40"]);
    Settings { round_trips, loss: figures(&[loss]), ..Settings::default() }
}

impl Far {
    fn new() -> Self {
        let (wan, sites) = sites::up(&between("0"), 1).unwrap();
        let testbed = Testbed::start_at(Path::new(PROGRAM), &sites, Extras::default(), &|_| ()).unwrap();
        Self { testbed, wan }
    }

    /// Every way there is, with a name.
    fn routes(&self, remote: &str) -> Vec<(&'static str, Command)> {
        // Stock ssh looks whether the server is still there only when it is told to.
        let stock = |route| {
            let mut command = self.testbed.openssh("ssh", route);
            command
                .args(["-o", "ServerAliveInterval=10", "-o", "LogLevel=INFO"])
                .arg(self.testbed.destination(route));
            command
        };
        let mut routes = vec![
            ("sallyport ssh, helper", self.testbed.own_ssh(true)),
            ("sallyport ssh, alone", self.testbed.own_ssh(false)),
            ("ssh, helper", stock(SshRoute::Helper)),
            ("ssh -J", stock(SshRoute::Jump)),
        ];
        for (_, command) in &mut routes {
            command.arg(remote);
            *command = with_usual_signals(command);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        routes
    }

    /// A command that goes on, every way.
    fn lasting(&self, remote: &str) -> Vec<(&'static str, Child)> {
        let children: Vec<_> =
            self.routes(remote).into_iter().map(|(name, command)| (name, self.start(command))).collect();
        wait_for("the commands", || (processes(remote) == children.len()).then_some(()));
        children
    }

    fn start(&self, mut command: Command) -> Child {
        self.testbed.cluster.sites().client.inside(|| command.spawn()).unwrap().unwrap()
    }

    /// What lies between the regions, from now on.
    fn now(&mut self, loss: &str) {
        let matrix: Matrix = sites::matrix(&between(loss)).unwrap();
        self.wan.change(matrix);
    }
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Says so many numbers, for twelve seconds, and ends with 3.
const COUNTS: &str = "for i in $(seq 60); do echo $i; sleep 0.2; done; exit 3";

/// It has counted to its end.
fn counted(name: &str, child: Child) {
    let output = ended(child);
    assert_eq!(output.status.code(), Some(3), "{name}: {}", stderr(&output));
    let expected: String = (1..=60).map(|number| format!("{number}\n")).collect();
    assert_eq!(stdout(&output), expected, "{name}: {}", stderr(&output));
}

/// Processes whose command line has this in it.
fn processes(what: &str) -> usize {
    let all = stdout(&Command::new("ps").args(["-eo", "args"]).output().unwrap());
    all.lines().filter(|line| line.contains(what) && line.starts_with("sleep")).count()
}

/// Sessions whose way is dead since then end on both sides.
fn all_end(children: Vec<(&str, Child)>, remote: &str, since: Instant) {
    for (name, child) in children {
        let output = ended(child);
        assert_eq!(output.status.code(), Some(255), "{name}: {}", stderr(&output));
        assert!(!stderr(&output).trim().is_empty(), "{name} says why");
        assert!(since.elapsed() < Duration::from_secs(100), "{name}: {:?}", since.elapsed());
    }
    // No process told the node: it finds out as well.
    while processes(remote) > 0 {
        assert!(since.elapsed() < Duration::from_secs(150), "the node's sessions go on");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_gap_is_lived_through_and_a_dead_way_ends_the_session() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    // A tunnel under a hill: six seconds without a packet, in the middle of what a command says.
    let children: Vec<_> =
        far.routes(COUNTS).into_iter().map(|(name, command)| (name, far.start(command))).collect();
    std::thread::sleep(Duration::from_secs(4));
    far.now("100");
    std::thread::sleep(Duration::from_secs(6));
    far.now("0");
    for (name, child) in children {
        counted(name, child);
    }

    // A laptop that is closed: the other side is not heard of any more.
    let lasting = format!("sleep 6{:05}", std::process::id() % 100_000);
    let children = far.lasting(&lasting);
    far.now("100");
    let began = Instant::now();
    all_end(children, &lasting, began);

    // It is opened again: the node comes back by itself, and everything goes as before.
    far.now("0");
    wait_for("the node to be back", || {
        let (_, command) = far.routes("echo back").swap_remove(0);
        let output = ended(far.start(command));
        (stdout(&output) == "back\n").then_some(())
    });
    for (name, command) in far.routes("echo back") {
        let output = ended(far.start(command));
        assert_eq!(stdout(&output), "back\n", "{name}: {}", stderr(&output));
    }
}

#[test]
fn with_another_address_old_sessions_end_and_new_ones_begin_at_once() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    let lasting = format!("sleep 7{:05}", std::process::id() % 100_000);
    let children = far.lasting(&lasting);
    far.wan.readdress("client").unwrap();
    let moved = Instant::now();
    // The helper daemon has a connection that looks as if it were good.
    for (name, command) in far.routes("echo back") {
        let began = Instant::now();
        let output = ended(far.start(command));
        assert_eq!(stdout(&output), "back\n", "{name}: {}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(15), "{name}: {:?}", began.elapsed());
    }
    all_end(children, &lasting, moved);
}

#[test]
fn by_quic_a_session_goes_on_with_another_address() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    let mut command = far.testbed.own_ssh(false);
    command
        .env("SALLYPORT_CARRIER", "quic")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.arg(COUNTS);
    let child = far.start(command);
    // Twice: to another network and back.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(4));
        far.wan.readdress("client").unwrap();
    }
    counted("by QUIC", child);
}
