//! `sallyport lab wan`: ping takes as long as the regions are apart, round trips are counted as integers, and nothing is left
//! behind, whatever happens. It makes network namespaces, which needs root.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::LAB;
use crate::support::{PROGRAM, is_root, json, ok, stderr, stdout, wait_for};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sallyport_lab::wan::{Host, Journey, Plan, Settings, Wan, sites};
use sallyport_testing::{Extras, Testbed};

/// Says that a test was left out.
fn may_not() -> bool {
    if !is_root() {
        eprintln!("left out: only root can make network namespaces");
    }
    !is_root()
}

/// Who looks at times has the processors for itself, as far as these tests go; the others share them.
static PROCESSORS: RwLock<()> = RwLock::new(());

fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSORS.write()
}

fn shared() -> RwLockReadGuard<'static, ()> {
    PROCESSORS.read()
}

fn wan(arguments: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.arg("wan").args(arguments).env_remove("SSH_AUTH_SOCK");
    command
}

fn run(arguments: &[&str]) -> Output {
    wan(arguments).output().unwrap()
}

fn is_there(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists() || Path::new("/etc/netns").join(namespace).exists()
}

/// The least and the packets that came back, of what `ping -q` says.
fn pinged(said: &str) -> (f64, u32) {
    let word = |line: &str, at: usize| line.split_whitespace().nth(at).unwrap().to_owned();
    let line = |what: &str| said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{said}"));
    let times = word(line("min/avg/max"), 3);
    let came = word(line("packets transmitted"), 3);
    (times.split('/').next().unwrap().parse().unwrap(), came.parse().unwrap())
}

#[test]
fn ping_takes_as_long_as_the_regions_are_apart_and_nothing_is_left() {
    if may_not() {
        return;
    }
    let _processors = alone();
    let script = "ip netns identify $$; ping -q -c 40 -i 0.05 b; ping -q -c 40 -i 0.05 {c}; ping -6 -q -c 40 -i 0.05 c";
    let output = ok(run(&["run", "--rtt", "a-b=100", "--rtt", "b-c=20", "--", "sh", "-c", script]));
    let said = stdout(&output);
    let parts: Vec<&str> = said.split("PING").collect();
    let namespace = parts[0].trim();
    assert!(namespace.starts_with("wan") && namespace.ends_with("-a"), "{said}");
    for (part, expected) in parts[1..].iter().zip([100.0, 120.0, 120.0]) {
        let (least, came) = pinged(part);
        assert!(came >= 3 && (expected - 0.1..expected + 1.0).contains(&least), "{expected} ms: {part}");
    }
    assert!(!is_there(namespace), "{namespace}");
}

#[test]
fn losses_are_the_same_every_time() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let ping = |seed: &str| {
        let arguments = ["run", "--rtt", "a-b=4", "--loss", "20", "--seed", seed, "--", "sh", "-c"];
        let script = "ping -4 -q -c 60 -i 0.01 -W 1 b || true";
        let output = ok(run(&[&arguments[..], &[script]].concat()));
        pinged(&stdout(&output)).1
    };
    let came = ping("7");
    // A packet and its answer: 64 % of both come through.
    assert!((25..=50).contains(&came), "{came} of 60");
    assert_eq!(ping("7"), came);
}

#[test]
fn a_schedule_is_kept() {
    if may_not() {
        return;
    }
    let _processors = shared();
    // Near at first, then far, then cut off. The script waits for each change, since a busy machine may be late with either.
    let changes = ["--then", "4:rtt:a-b=60", "--then", "9:loss:100"];
    let script = "ping -q -c 3 -i 0.1 b
        until ping -q -c 1 -W 1 b | grep -q '= 6[0-9]\\.'; do sleep 0.1; done
        echo far
        while ping -q -c 1 -W 1 b >/dev/null; do sleep 0.1; done
        echo gone";
    let output = run(&[&["run", "--rtt", "a-b=2"][..], &changes, &["--", "sh", "-c", script]].concat());
    let said = stdout(&ok(output));
    // The kernel's timers may be early by less than a tick.
    assert!((1.9..10.0).contains(&pinged(&said).0), "{said}");
    assert!(said.ends_with("far\ngone\n"), "{said}");
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let output = run(&["run", "--rtt", "a-b=1", "--on", "b", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let output = run(&["run", "--rtt", "a-b=1", "--on", "x", "--", "true"]);
    assert!(!output.status.success() && stderr(&output).contains("there is no host x; there are a, b"));
    let output = run(&["run", "--", "true"]);
    assert!(!output.status.success() && stderr(&output).contains("--rtt a-b=100"), "{}", stderr(&output));
}

/// One that is up until a signal ends it.
struct Up {
    child: Child,
    namespaces: Vec<String>,
}

impl Up {
    fn new() -> Self {
        let mut command = wan(&["up", "--rtt", "a-b=10", "--format", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut said = Vec::new();
        let mut byte = [0];
        let hosts: serde_json::Value = loop {
            assert_eq!(lines.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
            if let Ok(whole) = serde_json::from_slice(&said) {
                break whole;
            }
        };
        let hosts = hosts.as_array().unwrap();
        let namespaces = hosts.iter().map(|host| host["namespace"].as_str().unwrap().to_owned()).collect();
        Self { child, namespaces }
    }

    fn signal(&mut self, name: &str) -> bool {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_do_not_meet_and_each_takes_its_own_away() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let (mut one, mut other) = (Up::new(), Up::new());
    assert!(one.namespaces.iter().all(|name| !other.namespaces.contains(name) && is_there(name)));
    assert!(one.signal("INT"));
    assert!(!one.namespaces.iter().any(|name| is_there(name)));
    let ping = Command::new("ip")
        .args(["netns", "exec", &other.namespaces[0], "ping", "-q", "-c", "2", "-i", "0.2", "b"])
        .output();
    assert!((9.9..20.0).contains(&pinged(&stdout(&ping.unwrap())).0), "the other one goes on");
    assert!(other.signal("TERM"));
    assert!(!other.namespaces.iter().any(|name| is_there(name)));
}

#[test]
fn what_a_killed_one_leaves_is_removed() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let mut up = Up::new();
    assert!(!up.signal("KILL"));
    ok(run(&["clean"]));
    // Another test may have done it before.
    wait_for("them to be gone", || (!up.namespaces.iter().any(|name| is_there(name))).then_some(()));
}

#[test]
fn who_is_not_root_is_told_so() {
    let _processors = shared();
    let mut command = wan(&["run", "--rtt", "a-b=1", "--", "true"]);
    if is_root() {
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Ok(output) => {
            assert!(!output.status.success());
            assert!(
                stderr(&output).contains("needs root; try: sudo sallyport lab wan"),
                "{}",
                stderr(&output)
            );
        }
        Err(error) => eprintln!("left out: no other account may run {LAB}: {error}"),
    }
}

/// One WAN with hosts a, b and c; a-b takes 40 ms, and b-c 20.
fn three() -> Wan {
    let round_trips = ["a-b=40", "b-c=20"].iter().map(|text| text.parse().unwrap()).collect();
    Wan::up(&Plan::of(Vec::new(), &Settings { round_trips, ..Settings::default() }, 1).unwrap()).unwrap()
}

/// Answers each byte of every connection with another one, until the other end closes.
fn echo(host: &Host) -> u16 {
    let listener = host.namespace.inside(|| TcpListener::bind(("0.0.0.0", 0)).unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut byte = [0];
            while matches!(stream.read(&mut byte), Ok(1)) {
                stream.write_all(&byte).unwrap();
            }
        }
    });
    port
}

#[test]
fn round_trips_of_a_small_protocol_are_counted_exactly() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let wan = three();
    let (a, b) = (wan.host("a").unwrap(), wan.host("b").unwrap());
    let port = echo(b);
    let talk = |questions: u8, together: bool| {
        let _ = wan.record();
        let connected = a.namespace.inside(|| TcpStream::connect((b.v4, port)).unwrap());
        let mut stream = connected.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        for question in 0..questions {
            stream.write_all(&[question]).unwrap();
            if !together {
                stream.read_exact(&mut byte).unwrap();
            }
        }
        for _ in 0..if together { questions } else { 0 } {
            stream.read_exact(&mut byte).unwrap();
        }
        let flows = wan.recorded().flows();
        // That the one before is closed is seen, too.
        let mine = stream.local_addr().unwrap();
        let flow = flows.iter().find(|flow| flow.client == mine).unwrap().clone();
        assert!(flow.whole && flow.hosts == (0, 1), "{flow:?}");
        assert_eq!((flow.up.bytes, flow.down.bytes), (usize::from(questions), usize::from(questions)));
        flow.round_trips()
    };
    // One to open the connection, and one for each question that waits for the answer to the one before.
    assert_eq!([1, 3, 9].map(|questions| talk(questions, false)), [2, 4, 10]);
    assert_eq!(talk(9, true), 2, "together they are one flight");
}

#[test]
fn a_way_over_a_proxy_is_counted_on_each_link() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let wan = three();
    let (a, b, c) = (wan.host("a").unwrap(), wan.host("b").unwrap(), wan.host("c").unwrap());
    let port = echo(c);
    let relay = b.namespace.inside(|| TcpListener::bind(("0.0.0.0", 0)).unwrap()).unwrap();
    let relay_port = relay.local_addr().unwrap().port();
    let (relay_space, server) = (b.namespace.clone(), c.v4);
    std::thread::spawn(move || {
        let (mut near, _) = relay.accept().unwrap();
        let mut far = relay_space.inside(|| TcpStream::connect((server, port)).unwrap()).unwrap();
        let mut byte = [0];
        while matches!(near.read(&mut byte), Ok(1)) {
            far.write_all(&byte).unwrap();
            far.read_exact(&mut byte).unwrap();
            near.write_all(&byte).unwrap();
        }
    });
    let _ = wan.record();
    let mut stream = a.namespace.inside(|| TcpStream::connect((b.v4, relay_port)).unwrap()).unwrap();
    let mut byte = [0];
    for question in 0..3 {
        stream.write_all(&[question]).unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
    let capture = wan.recorded();
    let journey = capture.journey(0, Duration::MAX).unwrap();
    let round_trips = |one, other| journey.between(one, other) / 2;
    // On each link: to open, and three questions.
    assert_eq!((round_trips(0, 1), round_trips(1, 2), round_trips(0, 2)), (4, 4, 0), "{journey:?}");
}

/// The way of a warm command on the node's tunnel. What proxy, node and client say to each other on other connections meanwhile is left
/// out: on a busy machine it would count, or hide what counts.
fn journey(testbed: &Testbed, wan: &Wan) -> Journey {
    let log = std::fs::read_to_string(testbed.directory().join("proxy.log")).unwrap();
    let connected = log.lines().find(|line| line.contains(": node connected id=")).unwrap();
    let peer = connected.split_once("connection{peer=").unwrap().1.split_once('}').unwrap().0;
    let tunnel: SocketAddr = peer.parse().unwrap();
    let began = wan.record();
    let mut command = testbed.own_ssh(true);
    command.args(["echo", "here"]);
    let output = testbed.cluster.sites().client.inside(|| command.output()).unwrap().unwrap();
    let took = began.elapsed();
    assert_eq!(stdout(&ok(output)), "here\n");
    let mut capture = wan.recorded();
    let is_tunnel = |ends: (SocketAddr, SocketAddr)| ends.0 == tunnel || ends.1 == tunnel;
    capture.packets.retain(|captured| captured.packet.ends().is_some_and(is_tunnel));
    capture.journey(1, took).unwrap()
}

/// Round trips between proxy and host.
fn round_trips(journey: &Journey) -> usize {
    journey.between(1, 2).div_ceil(2)
}

/// Round trips between proxy and host that a warm command took.
fn warm(testbed: &Testbed, wan: &Wan) -> usize {
    round_trips(&journey(testbed, wan))
}

#[test]
fn a_policy_that_wants_the_client_to_answer_first_costs_a_flight_and_counts_at_once() {
    if may_not() {
        return;
    }
    let _processors = shared();
    // A long way: on a busy machine the node takes a while until it answers, and by then the client's next word has come by a short one.
    let figures = ["a-b=10", "b-c=500", "a-c=510"].map(|text| text.parse().unwrap());
    let settings = Settings { round_trips: figures.to_vec(), ..Settings::default() };
    let (wan, sites) = sites::up(&settings, 1).unwrap();
    let testbed = Testbed::start_at(Path::new(PROGRAM), &sites, Extras::default(), &|_| ()).unwrap();
    let admin = |arguments: &[&str]| ok(testbed.cluster.admin(arguments).output().unwrap());
    // The first commands bring no tickets.
    wait_for("tickets", || (warm(&testbed, &wan) == 1).then_some(()));
    let policy = testbed.directory().join("policy.yaml");
    let text = "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {early_data: false}\n";
    std::fs::write(&policy, text).unwrap();
    admin(&["create", "--force", "-f", policy.to_str().unwrap()]);
    // Tickets that were given before are no way around it.
    wait_for("the policy at the node", || (warm(&testbed, &wan) == 2).then_some(()));
    for _ in 0..5 {
        let journey = journey(&testbed, &wan);
        assert!(round_trips(&journey) >= 2, "{journey:#?}");
    }
    admin(&["rm", "session_policy/default"]);
    wait_for("the default at the node", || (warm(&testbed, &wan) == 1).then_some(()));
}

#[test]
fn datagrams_are_counted_too() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let wan = three();
    let (a, c) = (wan.host("a").unwrap(), wan.host("c").unwrap());
    let server = c.namespace.inside(|| UdpSocket::bind(("::", 0)).unwrap()).unwrap();
    let to = (c.v6, server.local_addr().unwrap().port());
    std::thread::spawn(move || {
        let mut bytes = [0; 100];
        while let Ok((length, from)) = server.recv_from(&mut bytes) {
            server.send_to(&bytes[..length], from).unwrap();
        }
    });
    let client = a.namespace.inside(|| UdpSocket::bind(("::", 0)).unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = wan.record();
    for length in [1, 2] {
        client.send_to(&[7; 100][..length], to).unwrap();
        assert_eq!(client.recv(&mut [0; 100]).unwrap(), length);
    }
    let flows = wan.recorded().flows();
    assert_eq!((flows.len(), flows[0].protocol, flows[0].round_trips()), (1, "udp", 2), "{flows:?}");
    let least = Duration::from_millis(120);
    assert!(flows[0].took >= least && flows[0].took < least * 2, "{flows:?}");
}

#[test]
fn the_table_counts_every_way() {
    if may_not() {
        return;
    }
    let _processors = alone();
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("samples.csv");
    let svg = directory.path().join("svg");
    let scratch = directory.path().join("tmp");
    std::fs::create_dir(&scratch).unwrap();
    let output = wan(&["table", "--rounds", "3", "--placement", "a/b/c", "--format", "json", "--waterfalls"])
        .arg("--csv")
        .arg(&csv)
        .arg("--svg")
        .arg(&svg)
        .env("TMPDIR", &scratch)
        .output()
        .unwrap();
    let output = ok(output);
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |way: &str, name: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["what"] == format!("a/b/c {way}").as_str());
        let figures = row.unwrap_or_else(|| panic!("{way}: {report:#}"))["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).and_then(|figure| figure["value"].as_f64())
    };
    let direct = figure("ssh direct", "round trips").unwrap();
    assert!((9.0..=18.0).contains(&direct) && direct.fract() == 0.0, "{direct}");
    assert_eq!(figure("ssh direct", "client-host"), Some(direct));
    for way in [
        "ssh -J, stock bastion",
        "ssh -J, through the proxy",
        "sallyport ssh, cold",
        "sallyport ssh, cold, QUIC",
        "sallyport ssh, warm",
    ] {
        for link in ["client-proxy", "proxy-host"] {
            let counted = figure(way, link).unwrap();
            assert!(counted >= 1.0 && counted.fract() == 0.0, "{way}, {link}: {counted}");
        }
        assert_eq!(figure(way, "client-host"), None, "nothing goes around the proxy");
    }
    assert!(figure("ssh -J, stock bastion", "round trips").unwrap() > direct);
    assert!(figure("sallyport ssh, warm", "round trips").unwrap() < direct);
    // A TCP and a TLS handshake with the proxy, half as far as the node, and one handshake with the node; and with a
    // ticket of the node none, but where the helper has just followed its cluster.
    let (cold, warm) =
        (figure("sallyport ssh, cold", "round trips"), figure("sallyport ssh, warm", "round trips"));
    assert!(cold.unwrap() <= 4.0 && warm.unwrap() <= 3.0, "{cold:?}, {warm:?}");
    // A server that has nothing of ours: few round trips of SSH, behind the way to the proxy, which the helper has already.
    let stock = ["cold", "warm"]
        .map(|how| figure(&format!("sallyport ssh to stock sshd, {how}"), "round trips").unwrap());
    assert!(stock[0] < direct && stock[1] <= stock[0], "{stock:?}, directly {direct}");
    // TCP, the question for TLS, TLS and the login; to the proxy, half as far, two of them.
    let psql = ["psql direct", "psql, cold", "psql, warm"].map(|way| figure(way, "round trips").unwrap());
    assert!(psql[0] >= 4.0 && psql[1] <= 3.5 && psql[2] <= 2.0, "{psql:?}");
    // SSH ends beside the client, and the helper goes on with a ticket.
    let helped = figure("ssh, helper", "round trips").unwrap();
    assert!(helped <= 2.0, "{helped}");
    // With a factor that is proven, the node or agent asks the authority, which is beside the proxy: one round trip of that half.
    for way in ["sallyport ssh, cold", "sallyport ssh, warm", "psql, warm"] {
        let asked = figure(&format!("{way}, factor proven before"), "round trips").unwrap();
        let without = figure(way, "round trips").unwrap();
        assert!(asked <= without + 1.5, "{way}: {asked} with a factor, {without} without");
    }
    // One that is proven now: refused, a connection to the authority, the question and the proof, and then the session.
    let proves = figure("sallyport ssh, warm, factor proven now", "round trips").unwrap();
    let proven = figure("sallyport ssh, warm, factor proven before", "round trips").unwrap();
    assert!(proven < proves && proves <= 9.0, "{proves}, proven before {proven}");
    // By QUIC the handshake with the proxy is one.
    let quic = figure("sallyport ssh, cold, QUIC", "round trips").unwrap();
    assert!(quic <= 3.5, "{quic}");
    // What is counted took place.
    for way in [
        "ssh direct",
        "sallyport ssh, cold",
        "sallyport ssh, cold, QUIC",
        "ssh, helper",
        "psql direct",
        "psql, warm",
    ] {
        assert!(figure(way, "round trips").unwrap() <= figure(way, "ms / RTT").unwrap(), "{way}");
    }
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 52, "{lines}");
    let pictures = std::fs::read_dir(&svg).unwrap().count();
    assert_eq!(pictures, 18, "the round trips, and a waterfall for each way");
    let notes = report["notes"].as_array().unwrap();
    assert!(
        notes[0].as_str().unwrap().contains("client -> proxy") || notes[0].as_str().unwrap().contains("SYN")
    );
}

#[test]
fn copies_far_away_arrive_whole_every_way() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let output =
        wan(&["bulk", "--quick", "--size", "1", "--rtt", "a-b=10", "--rtt", "b-c=10", "--rtt", "a-c=20"])
            .args(["--loss", "a-c=0.1", "--format", "json"])
            .output()
            .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&ok(output).stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    let ways = ["direct", "sallyport", "ssh, helper"];
    let expected = ["scp down", "scp up"].map(|what| ways.map(|way| format!("{what}, {way}"))).concat();
    assert_eq!(names, expected);
    for row in rows {
        let rate =
            row["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == "MiB/s").unwrap();
        assert!(rate["value"].as_f64().unwrap() > 0.0, "{row:#}");
    }
    let conditions = report["conditions"].to_string();
    assert!(conditions.contains("a-c 20 ms losing 0.1 % at 1000 Mbit/s"), "{conditions}");
}

#[test]
fn what_lies_between_changes_by_the_schedule() {
    if may_not() {
        return;
    }
    let _processors = shared();
    // Reached, cut off, and reached again.
    let script = "ping -qc1 -W1 {b} && sleep 2 && ! ping -qc1 -W1 {b} && sleep 2 && ping -qc1 -W1 {b}";
    let schedule = ["--then", "1:loss:a-b=100", "--then", "4:loss:a-b=0"];
    let output =
        wan(&["run", "--rtt", "a-b=10"]).args(schedule).args(["--", "sh", "-c", script]).output().unwrap();
    let said = stdout(&ok(output));
    let received: Vec<&str> = said.lines().filter(|line| line.contains("received")).collect();
    assert_eq!(received.len(), 3, "{said}");
    for (line, count) in received.iter().zip(["1 received", "0 received", "1 received"]) {
        assert!(line.contains(count), "{said}");
    }
    for (change, why) in
        [("1:mtu:5", "names no figure"), ("soon:rtt:5", "says no time"), ("5", "is no change")]
    {
        let output = wan(&["run", "--rtt", "a-b=1", "--then", change, "--", "true"]).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(why), "{}", stderr(&output));
    }
}

#[test]
fn every_congestion_controller_carries_all_of_it_alone_and_beside_tcp() {
    if may_not() {
        return;
    }
    let _processors = shared();
    let arguments =
        ["congestion", "--quick", "--size", "1", "--rtt", "a-b=10", "--rate", "100", "--format", "json"];
    let report = json(&ok(run(&arguments)));
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["as given: rate-based", "as given: bbr", "as given: cubic", "as given: new-reno"]);
    for row in rows {
        for figure in row["figures"].as_array().unwrap() {
            let value = figure["value"].as_f64().unwrap();
            match figure["name"].as_str().unwrap() {
                // What lay in the queue when the trickle ended comes with its end.
                name if name.starts_with("after") => assert!(value > 0.05, "{name}: {row}"),
                // A line of 100 Mbit/s carries no more than 11.9 MiB/s, and what its queue held when the count began.
                name if name.ends_with("MiB/s") => assert!(value > 0.0 && value < 24.0, "{name}: {row}"),
                // And nothing is there and back sooner than the line is long.
                name => assert!(name.ends_with("ms") && value > 9.9, "{name}: {row}"),
            }
        }
    }
}
