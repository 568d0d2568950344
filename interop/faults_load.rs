//! Faults with many at once: a proxy that dies under two hundred sessions, ten thousand who never speak, a tunnel
//! whose packets vanish, and one large download after another.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::support::{
    Cluster, PROGRAM, Process, User, Wire, is_root, me, ok, ssh_command, stdout, target, wait_for,
};

/// One at a time: each of them is a load.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many processes run with this word among their arguments, tests aside.
fn running(word: &str) -> usize {
    let all = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    stdout(&all).lines().filter(|line| line.starts_with("sleep ") && line.contains(word)).count()
}

/// A session that has begun to run `sleep SECONDS`.
fn sleeping(alice: &User, seconds: &str) -> Child {
    let mut child = alice
        .command(&["ssh", "-n", &format!("{}@web-1", me()), &format!("echo up; exec sleep {seconds}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    let read = child.stdout.as_mut().unwrap().read_exact(&mut up);
    if read.is_err() {
        let mut said = String::new();
        let _ = child.stderr.take().unwrap().read_to_string(&mut said);
        panic!("no session: {said}");
    }
    child
}

#[test]
fn two_hundred_sessions_end_with_their_proxy_and_leave_nothing() {
    let _alone = alone();
    let (mut cluster, alice) = Cluster::with_node();
    // A time that no other process sleeps.
    let seconds = format!("{}", 100_000 + std::process::id());
    let mut sessions: Vec<Child> = Vec::new();
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let begun: Vec<_> = (0..20).map(|_| scope.spawn(|| sleeping(&alice, &seconds))).collect();
            sessions.extend(begun.into_iter().map(|one| one.join().unwrap()));
        });
    }
    assert_eq!(running(&seconds), 200);
    cluster.services.as_mut().unwrap().kill_9();
    let began = Instant::now();
    for session in &mut sessions {
        let status = wait_for("a session to end", || session.try_wait().unwrap());
        assert_eq!(status.code(), Some(255));
    }
    assert!(began.elapsed() < Duration::from_secs(20), "clients wait {:?}", began.elapsed());
    // The words of one of them: that it is the connection, and not the command.
    let mut said = String::new();
    sessions[0].stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("error: "), "{said}");
    wait_for("the node to end their programs", || (running(&seconds) == 0).then_some(()));
    cluster.start_services();
    cluster.wait_online("web-1");
    wait_for("the node to serve again", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    // Every recording has arrived, up to the cut.
    wait_for("the recordings", || {
        let output = Command::new(PROGRAM)
            .args(["recordings", "ls", "--limit", "500", "--format", "json", "--data-dir"])
            .arg(cluster.data_dir())
            .output()
            .unwrap();
        let all: Vec<serde_json::Value> = serde_json::from_slice(&ok(output).stdout).unwrap();
        let ended = all.iter().filter(|one| one["state"] == "complete" || one["state"] == "interrupted");
        (ended.filter(|one| one["command"].as_str().is_some_and(|line| line.contains(&seconds))).count()
            == 200)
            .then_some(())
    });
}

#[test]
fn ten_thousand_clients_that_never_speak_keep_no_client_out() {
    let _alone = alone();
    let (cluster, alice) = Cluster::with_node();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    let proxy = cluster.services.as_ref().unwrap().child.id();
    let before = resident(proxy);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.port));
    let from = |last: u8| {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
        connect(&socket, &address).ok().map(|()| TcpStream::from(socket))
    };
    // One place gets a thousand and no more: those past that are closed at once.
    let greedy: Vec<_> = (0..1200).filter_map(|_| from(200)).collect();
    wait_for("the limit of one address", || {
        let mut closed = 0;
        for stream in &greedy {
            stream.set_nonblocking(true).unwrap();
            if matches!((&mut &*stream).read(&mut [0; 1]), Ok(0)) {
                closed += 1;
            }
        }
        (closed >= 200).then_some(())
    });
    let mut silent = Vec::new();
    let mut most = before;
    for last in 2..12 {
        silent.extend((0..950).filter_map(|_| from(last)));
        ok(alice.run(&["ssh", "-n", &format!("{}@web-1", me()), "true"]));
        most = most.max(resident(proxy));
    }
    assert!(silent.len() >= 9_000, "{} connections were made", silent.len());
    let grown = most.saturating_sub(before);
    assert!(grown < 128 << 20, "memory grew by {} MiB", grown >> 20);
    // They are sent away when their time is over.
    wait_for("the silent to be dropped", || {
        let last = silent.last().unwrap();
        last.set_nonblocking(true).unwrap();
        matches!((&mut &*last).read(&mut [0; 1]), Ok(0)).then_some(())
    });
    ok(alice.ssh(&[&target("web-1"), "true"]));
}

#[test]
fn services_take_more_connections_than_they_were_started_with_files_for() {
    let _alone = alone();
    let (mut cluster, alice) = Cluster::with_node();
    cluster.services.take();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -Sn 128; exec \"$@\"", "sh", PROGRAM, "start", "-c"])
        .arg(cluster.path("cluster.yaml"));
    cluster.services = Some(Process::spawn(&mut shell, cluster.path("services.log")));
    cluster.wait_online("web-1");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.port));
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Programs of a session have no more than they can use with select(2).
    let files = ok(alice.ssh(&[&target("web-1"), "ulimit -Sn"]));
    assert!(stdout(&files).trim().parse::<u32>().unwrap() <= 1024, "{}", stdout(&files));
    drop(silent);
    let log = fs::read_to_string(cluster.path("services.log")).unwrap();
    assert!(!log.contains("cannot accept"), "{log}");
}

#[test]
fn one_large_recorded_download_after_another_closes_cleanly() {
    let _alone = alone();
    let (cluster, alice) = Cluster::with_node();
    const BYTES: usize = 8 << 20;
    let data = cluster.path("data.bin");
    // Bytes that no compression makes smaller.
    let mut noise = vec![0; BYTES];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    fs::write(&data, &noise).unwrap();
    let config = alice.ssh_config(&[]);
    for number in 0..22 {
        let mut child = ssh_command(&config)
            .args([&target("web-1"), &format!("cat {}", data.display())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut got = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
        let status = wait_for(&format!("download {number} to close"), || child.try_wait().unwrap());
        assert!(status.success() && got == noise, "download {number}: {status}, {} bytes", got.len());
    }
    wait_for("22 complete recordings", || {
        let complete = cluster.recordings().iter().filter(|one| one["state"] == "complete").count();
        (complete >= 22).then_some(())
    });
}

#[test]
fn a_tunnel_whose_packets_vanish_is_noticed_within_a_minute() {
    let _alone = alone();
    if !is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let Some(wire) = Wire::new() else { return };
    let mut cluster = Cluster::bare();
    // The proxy listens on the wire, too.
    let yaml = fs::read_to_string(cluster.path("cluster.yaml")).unwrap();
    let yaml = yaml.replace(
        &format!("listen: 127.0.0.1:{}", cluster.port),
        &format!("listen: 0.0.0.0:{}", cluster.port),
    );
    fs::write(cluster.path("cluster.yaml"), yaml).unwrap();
    cluster.services.take();
    cluster.start_services();
    let token = cluster.token(&[]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let node = fs::read_to_string(&config).unwrap();
    let address = format!("proxy_server: {}:{}", wire.here(), cluster.port);
    fs::write(&config, node.replace(&format!("proxy_server: 127.0.0.1:{}", cluster.port), &address)).unwrap();
    let _node = Process::spawn(
        wire.inside(PROGRAM).args(["start", "-c"]).arg(&config),
        cluster.path("node-web-1.log"),
    );
    cluster.wait_online("web-1");
    let alice = cluster.add_user("alice", "access", &me());
    let seconds = format!("{}", 300_000 + std::process::id());
    let mut session = sleeping(&alice, &seconds);

    wire.pull();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = session.try_wait().unwrap() {
            break status;
        }
        // A tunnel is taken for dead after 45 s of silence.
        assert!(began.elapsed() < Duration::from_secs(75), "no process has noticed");
        std::thread::sleep(Duration::from_millis(100));
    };
    let noticed = began.elapsed();
    let mut said = String::new();
    session.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(255));
    assert!(said.contains("the connection to node web-1 was lost"), "{said}");
    assert!(
        noticed > Duration::from_secs(10),
        "a wire that is pulled for a moment is no reason: {noticed:?}"
    );
    cluster.wait_event("session.lost", |event| event["user"] == "alice");
    // The node's side has noticed by itself: no peer could tell it.
    wait_for("the node to end the program", || (running(&seconds) == 0).then_some(()));

    wire.plug_in();
    wait_for("the node to serve again", || {
        alice.run(&["ssh", "-n", &format!("{}@web-1", me()), "true"]).status.success().then_some(())
    });
}
