//! Which carrier a connection to the proxy takes: QUIC where it is asked for, TCP where UDP is not to be had, and what a
//! process leaves behind that goes while it has one.

use crate::support;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    Cluster, Helped, PROGRAM, free_port, is_root, lines_of, ok, read_until, ssh_command, stderr, stdout,
    target, wait_for,
};
use parking_lot::{Mutex, MutexGuard};
use sallyport_ca::CaKind;
use sallyport_lab::wan::{Settings, Wan, sites};
use sallyport_testing::{Extras, Testbed};

impl Helped {
    fn ssh(&self, carrier: &str, helper: &str, arguments: &[&str]) -> Output {
        let mut all = vec!["ssh"];
        all.extend(arguments);
        let mut command = self.0.command(&all);
        command.env("SALLYPORT_CARRIER", carrier).env("SALLYPORT_CONNECT", helper).output().unwrap()
    }
}

#[test]
fn sessions_go_by_quic_with_the_helper_and_without() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    for helper in ["off", "on"] {
        for front in ["native", "ssh"] {
            let command = |arguments: &[&str]| {
                let mut command = alice.0.command(arguments);
                command.env("SALLYPORT_CARRIER", "quic").env("SALLYPORT_CONNECT", helper);
                command.env("SALLYPORT_FRONT", front);
                command
            };
            let output = command(&["ssh", &web, "echo out; echo err >&2; exit 7"]).output().unwrap();
            assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"));
            assert_eq!(output.status.code(), Some(7));
            let mut counting = command(&["ssh", &web, "wc -c"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            counting.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
            assert_eq!(stdout(&ok(counting.wait_with_output().unwrap())).trim(), "3000000");
            let output = ok(command(&["ssh", &web, "head -c 5000000 /dev/zero"]).output().unwrap());
            assert_eq!(output.stdout.len(), 5_000_000);
        }
    }
    // Stock ssh, through a program of its own.
    let config = alice.0.ssh_config(&[]);
    let mut stock = ssh_command(&config);
    stock.env("SALLYPORT_CARRIER", "quic").env("SALLYPORT_CONNECT", "off");
    let output = ok(stock.args([&web, "head -c 1000000 /dev/zero"]).output().unwrap());
    assert_eq!(output.stdout.len(), 1_000_000);
    // Its trace tells of one handshake, and of none of TCP and TLS.
    let said = stderr(&ok(alice.ssh("quic", "off", &["--trace=json", &web, "true"])));
    assert!(said.contains("\"quic\"") && !said.contains("\"dial\"") && !said.contains("\"tls\""), "{said}");
    drop(cluster);
}

#[test]
fn without_udp_everything_goes_by_tcp() {
    let cluster = {
        let mut cluster = Cluster::with_proxy_settings("  quic: false\n");
        cluster.add_node("web-1", "env: prod");
        cluster
    };
    let alice = Helped(cluster.add_user("alice", "access", support::me().as_str()));
    let web = target("web-1");
    ok(alice.ssh("auto", "off", &[&web, "true"]));
    ok(alice.ssh("auto", "on", &[&web, "true"]));
    ok(alice.ssh("tcp", "off", &[&web, "true"]));
    let said = stderr(&alice.ssh("quic", "off", &[&web, "true"]));
    assert!(said.contains("no answer by UDP") && said.contains("SALLYPORT_CARRIER=auto"), "{said}");
    let said = stderr(&alice.ssh("pigeon", "off", &[&web, "true"]));
    assert!(said.contains("SALLYPORT_CARRIER=auto, tcp or quic"), "{said}");
}

#[test]
fn a_udp_port_in_use_is_no_obstacle() {
    let mut cluster = Cluster::bare();
    cluster.services.take();
    let taken = UdpSocket::bind(cluster.proxy()).unwrap();
    cluster.start_services();
    cluster.add_node("web-1", "env: prod");
    let alice = Helped(cluster.add_user("alice", "access", support::me().as_str()));
    ok(alice.ssh("auto", "off", &[&target("web-1"), "true"]));
    let log = std::fs::read_to_string(cluster.path("services.log")).unwrap();
    assert!(log.contains("cannot bind the UDP port: no QUIC"), "{log}");
    drop(taken);
}

/// Processes of this command line.
fn processes(what: &str) -> usize {
    let all = stdout(&Command::new("ps").args(["-eo", "args"]).output().unwrap());
    all.lines().filter(|line| *line == what).count()
}

#[test]
fn a_program_that_is_ended_takes_its_session_with_it() {
    let (_cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let by_quic = |arguments: &[&str]| {
        let mut command = alice.0.command(arguments);
        command.env("SALLYPORT_CARRIER", "quic").env("SALLYPORT_CONNECT", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let end = |mut child: Child, signal: &str| {
        let status = Command::new("kill").args(["-s", signal]).arg(child.id().to_string()).status();
        assert!(status.unwrap().success());
        child.wait().unwrap();
    };
    // A killed one cannot say that it goes. It is missed once nothing was heard of it for 30 s.
    for (number, (signal, bound)) in [("TERM", 20), ("KILL", 55)].into_iter().enumerate() {
        let lasting = format!("sleep {}{:05}", 71 + number, std::process::id() % 100_000);
        // Whatever signals the services were started to ignore, it does not.
        let script = format!("echo ready; exec env --default-signal=HUP {lasting}");
        let mut child = by_quic(&["ssh", &web, &script]);
        read_until(&mut lines_of(&mut child), "ready");
        wait_for("the command", || (processes(&lasting) == 1).then_some(()));
        let began = Instant::now();
        end(child, signal);
        wait_for("the session to end", || (processes(&lasting) == 0).then_some(()));
        assert!(began.elapsed() < Duration::from_secs(bound), "{signal}: {:?}", began.elapsed());
    }
    // Where there is no session, and no other process looks out for signals: a port on the node.
    let port = free_port();
    let child = by_quic(&["ssh", "-N", "-R", &format!("{port}:127.0.0.1:9"), &web]);
    let is_open = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_for("the port", || is_open().then_some(()));
    let began = Instant::now();
    end(child, "INT");
    wait_for("the port to be closed", || (!is_open()).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_proxy_that_was_started_anew_is_found_by_the_helper() {
    let (mut cluster, alice) = Helped::with_node();
    let web = target("web-1");
    ok(alice.ssh("quic", "on", &[&web, "true"]));
    let back = |cluster: &mut Cluster| {
        cluster.start_services();
        wait_for("the node to be back", || {
            alice.ssh("tcp", "off", &[&web, "true"]).status.success().then_some(())
        });
    };
    // One that stops says so.
    let mut services = cluster.services.take().unwrap();
    services.signal("TERM");
    assert!(services.child.wait().unwrap().success());
    back(&mut cluster);
    ok(alice.ssh("quic", "on", &[&web, "echo again"]));
    // One that is killed does not. While there is none, that is said soon.
    let lasting = format!("sleep 73{:05}", std::process::id() % 100_000);
    let mut alone = alice.0.command(&["ssh", &web, &lasting]);
    alone.env("SALLYPORT_CARRIER", "quic").env("SALLYPORT_CONNECT", "off").stdin(Stdio::null());
    let alone = alone.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the command", || (processes(&lasting) == 1).then_some(()));
    cluster.services.as_mut().unwrap().kill_9();
    let began = Instant::now();
    let output = alice.ssh("auto", "on", &[&web, "true"]);
    assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}: {}", began.elapsed(), stderr(&output));
    // The one that comes after it tells that it knows nothing of the connection.
    cluster.start_services();
    let began = Instant::now();
    let output = alone.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
    assert!(!stderr(&output).trim().is_empty(), "it says why");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}: {}", began.elapsed(), stderr(&output));
    wait_for("the node to be back", || {
        alice.ssh("tcp", "off", &[&web, "true"]).status.success().then_some(())
    });
    let began = Instant::now();
    ok(alice.ssh("quic", "on", &[&web, "true"]));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn what_was_said_early_is_said_again_to_a_new_proxy_and_a_new_login_says_nothing_early() {
    let (mut cluster, alice) = Helped::with_node();
    let web = target("web-1");
    let helper = || -> (u64, u64) {
        let said = stdout(&ok(alice.0.run(&["connect", "--status", "--format", "json"])));
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        (status["transports_made"].as_u64().unwrap(), status["transports_early"].as_u64().unwrap())
    };
    ok(alice.ssh("quic", "on", &[&web, "true"]));
    assert_eq!(helper(), (1, 0));
    let mut services = cluster.services.take().unwrap();
    services.signal("TERM");
    assert!(services.child.wait().unwrap().success());
    cluster.start_services();
    wait_for("the node to be back", || {
        alice.ssh("tcp", "off", &[&web, "true"]).status.success().then_some(())
    });
    // The new proxy does not know the ticket, and no client notices.
    let mut counting = alice.0.command(&["ssh", &web, "wc -c"]);
    counting.env("SALLYPORT_CARRIER", "quic").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut counting = counting.spawn().unwrap();
    counting.stdin.take().unwrap().write_all(&vec![b'x'; 300_000]).unwrap();
    assert_eq!(stdout(&ok(counting.wait_with_output().unwrap())).trim(), "300000");
    assert_eq!(helper(), (2, 1));
    // Tickets are those of a login.
    ok(alice.0.login(&[]));
    ok(alice.ssh("quic", "on", &[&web, "true"]));
    assert_eq!(helper(), (3, 1));
}

#[test]
fn an_agent_comes_by_quic_where_it_is_told_to() {
    let mut cluster = Cluster::bare();
    let token = cluster.token(&[]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let yaml = std::fs::read_to_string(&config).unwrap();
    // By QUIC or not at all.
    std::fs::write(&config, yaml.replace("node:\n", "node:\n  carrier: quic\n")).unwrap();
    let node = cluster.spawn_node("web-1", &config);
    cluster.nodes.push(("web-1".to_owned(), node));
    cluster.wait_online("web-1");
    let alice = Helped(cluster.add_user("alice", "access", &support::me()));
    let web = target("web-1");
    let output = ok(alice.ssh("auto", "off", &[&web, "head -c 5000000 /dev/zero"]));
    assert_eq!(output.stdout.len(), 5_000_000);
    // It comes back when the proxy does, which was not given the time to say that it goes.
    cluster.services.as_mut().unwrap().kill_9();
    cluster.start_services();
    let began = Instant::now();
    wait_for("the node to be back", || {
        alice.ssh("auto", "off", &[&web, "true"]).status.success().then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(28), "{:?}", began.elapsed());
}

/// A long round trip.
const FAR_MS: f64 = 300.0;
/// Round trips to the proxy until a stream can begin. TLS waits 8 ms for QUIC.
const QUIC: f64 = 1.0;
const TCP_AND_TLS: f64 = 2.0;
/// Who looks at times over a distance does not share the processors with others who do.
static FAR: Mutex<()> = Mutex::new(());

/// Of five.
fn third(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[2]
}

/// A cluster whose client, proxy and node are 50 ms apart.
struct Far {
    // In the order in which they end.
    testbed: Testbed,
    wan: Wan,
    _alone: MutexGuard<'static, ()>,
}

impl Far {
    fn new() -> Self {
        let alone = FAR.lock();
        let (wan, sites) = sites::up(&Settings::default(), 1).unwrap();
        let testbed = Testbed::start_at(Path::new(PROGRAM), &sites, Extras::default(), &|_| ()).unwrap();
        Self { testbed, wan, _alone: alone }
    }

    fn ssh(&self, carrier: &str, helper: &str, remote: &str) -> Command {
        let own = self.testbed.own_ssh(false);
        let mut command = self.testbed.cluster.client(&[
            "ssh",
            "--trace=json",
            own.get_args().last().unwrap().to_str().unwrap(),
        ]);
        command.arg(remote).env("SALLYPORT_CARRIER", carrier).env("SALLYPORT_CONNECT", helper);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// How long it takes, and what it says.
    fn run(&self, mut command: Command) -> (Duration, Output) {
        let began = Instant::now();
        let output = self.testbed.cluster.sites().client.inside(|| command.output()).unwrap().unwrap();
        (began.elapsed(), output)
    }

    fn once(&self, carrier: &str) -> Duration {
        let (took, output) = self.run(self.ssh(carrier, "off", "true"));
        ok(output);
        took
    }

    /// The third of five.
    fn cold(&self, carrier: &str) -> Duration {
        third((0..5).map(|_| self.once(carrier)).collect())
    }

    /// Whether it was done with the proxy within so many round trips, and half of one for a busy machine.
    fn done_within(&self, round_trips: f64, helper: &str) -> bool {
        let (_, output) = self.run(self.ssh("auto", helper, "true"));
        let trace: serde_json::Value = serde_json::from_str(stderr(&ok(output)).trim()).unwrap();
        let phases = trace["phases"].as_array().unwrap();
        let stream = phases.iter().find(|phase| phase["name"] == "stream").unwrap();
        stream["start_ms"].as_f64().unwrap() < (round_trips + 0.5) * FAR_MS
    }

    /// From now on the proxy is [`FAR_MS`] away from the client.
    fn apart(&mut self) {
        let round_trips = vec![format!("a-b={FAR_MS}").parse().unwrap()];
        let settings = Settings { round_trips, ..Settings::default() };
        self.wan.change(sites::matrix(&settings).unwrap());
    }

    /// From now on the proxy's network drops what comes by UDP, without a word.
    fn drop_udp(&self) {
        // The rule for what is local comes first, and must not.
        self.ip(&[
            "rule add pref 1 lookup local",
            "rule del pref 0",
            "rule add pref 0 ipproto udp blackhole",
        ]);
    }

    /// And from now on no longer.
    fn let_udp_through(&self) {
        self.ip(&["rule add pref 0 lookup local", "rule del pref 0 ipproto udp", "rule del pref 1"]);
    }

    fn ip(&self, lines: &[&str]) {
        let name = self.wan.host("proxy").unwrap().namespace.name();
        for line in lines {
            let status = Command::new("ip").args(["-n", name]).args(line.split(' ')).status();
            assert!(status.unwrap().success(), "{line}");
        }
    }

    /// Has the helper and its login come to rest: a new cluster makes the authorities that were not needed yet, each of which is
    /// another trust, and the next connection brings that, which is another login. The node gives tickets, too.
    fn settle(&self, carrier: &str) {
        wait_for("every authority", || {
            let said = self.testbed.cluster.admin(&["status", "--format", "json"]).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
            (status["cas"].as_array()?.len() == CaKind::ALL.len()).then_some(())
        });
        for _ in 0..3 {
            ok(self.run(self.ssh(carrier, "on", "true")).1);
            std::thread::sleep(Duration::from_secs(3));
        }
    }

    /// Goes by the helper. How many ways there and back the client and the proxy had to wait for, and whether the helper began
    /// with a ticket.
    fn round_trips(&self, carrier: &str) -> (usize, bool) {
        let recording = self.wan.record();
        let (took, output) = self.run(self.ssh(carrier, "on", "true"));
        let ended = recording.elapsed();
        let capture = self.wan.recorded();
        let (client, proxy) = (capture.host("client").unwrap(), capture.host("proxy").unwrap());
        let journey = capture.among(&[client, proxy]).journey(client, ended).unwrap();
        let early = stderr(&ok(output)).contains("\"early\":true");
        eprintln!("{} round trips in {took:?}, early: {early}", journey.between(client, proxy));
        (journey.between(client, proxy), early)
    }
}

/// QUIC's connections are over when nothing was heard on them for 30 s, which begin anew with the question that comes every 8 s.
const SLEEP: Duration = Duration::from_secs(40);

#[test]
fn a_helper_that_slept_comes_back_a_round_trip_sooner() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    far.apart();
    far.settle("quic");
    // There and back. What is said early is refused where a busy machine is late with it, and then it is said again.
    let with_ticket = 2;
    let mut slept = (0..3).map(|_| {
        far.drop_udp();
        std::thread::sleep(SLEEP);
        far.let_udp_through();
        let (round_trips, early) = far.round_trips("quic");
        assert!(early, "the helper has a ticket");
        round_trips
    });
    assert!(slept.any(|round_trips| round_trips == with_ticket), "never in {with_ticket} one-way trips");
    // Where QUIC has failed it does not say anything early, and comes in full; a ticket of the node's went with what failed.
    far.drop_udp();
    assert_eq!(far.run(far.ssh("quic", "on", "true")).1.status.code(), Some(255));
    far.let_udp_through();
    let (in_full, early) = far.round_trips("quic");
    assert!(!early);
    // There and back once more for the handshake with the proxy, and for the node's where no ticket was left.
    assert!(in_full >= with_ticket + 2, "{in_full}");
}

#[test]
fn where_udp_was_dropped_meanwhile_what_was_said_early_is_said_by_tcp() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    far.apart();
    far.settle("auto");
    far.drop_udp();
    std::thread::sleep(SLEEP);
    let tcp = far.cold("tcp");
    let (took, output) = far.run(far.ssh("auto", "on", "echo out"));
    assert_eq!(stdout(&output), "out\n", "{}", stderr(&output));
    // It looked as if it were as before.
    assert!(stderr(&output).contains("\"early\":true"), "{}", stderr(&output));
    // TCP is dialled at once, not after QUIC was given up, and a node that knows a ticket is a round trip nearer.
    assert!(took < 2 * tcp, "{took:?}, by TCP {tcp:?}");
}

#[test]
fn far_away_quic_wins_and_where_udp_is_dropped_nothing_waits_for_it() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let mut far = Far::new();
    // So far that a round trip is longer than what a busy machine takes for a handshake; and one may lose all the same.
    far.apart();
    assert!((0..5).any(|_| far.done_within(QUIC, "off")), "QUIC never wins");
    // The helper's connection goes by QUIC too, and carries a session when the network begins to drop UDP.
    ok(far.run(far.ssh("quic", "on", "true")).1);
    let mut lasting = far.ssh("quic", "on", "sleep 300");
    let mut lasting = far.testbed.cluster.sites().client.inside(|| lasting.spawn()).unwrap().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    far.drop_udp();
    let began = Instant::now();
    assert!((0..5).any(|_| far.done_within(TCP_AND_TLS, "off")), "TCP waits for QUIC");
    assert!(lasting.try_wait().unwrap().is_none(), "what is short is lived through");
    let output = lasting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}: {}", began.elapsed(), stderr(&output));
}

#[test]
fn a_helper_whose_network_begins_to_drop_udp_goes_on_by_tcp() {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
        return;
    }
    let far = Far::new();
    ok(far.run(far.ssh("auto", "on", "true")).1);
    far.drop_udp();
    // It is asked, is silent for 3 s, and gives way to a connection that answers.
    let (took, output) = far.run(far.ssh("auto", "on", "true"));
    ok(output);
    assert!(took < Duration::from_secs(15), "{took:?}");
    // From now on there is nothing to wait for, but for a processor.
    let mut again = (0..3).map(|_| {
        let (took, output) = far.run(far.ssh("auto", "on", "true"));
        ok(output);
        took
    });
    assert!(again.any(|took| took < Duration::from_secs(3)), "it waits for UDP each time");
}
