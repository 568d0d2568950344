//! Forwarded ports and Unix sockets, in both directions: carried, noted, refused, and gone at the end.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sallyport_audit::Code;
use sallyport_audit::recording::{Body, Direction, ForwardEnd};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::process::Child;

use crate::world::{World, is_root, ok, output, role, stands_still, started, text, until};

const NO_COMMAND: &[&str] = &[];

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_ports_carry_both_ways_with_half_close() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Answers only after the client's end: the end has to get through by itself.
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
        all.len()
    });
    let mut client = started(world.ssh(&[&format!("-W127.0.0.1:{port}")], &[] as &[&str]));
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 256) as u8).collect();
    let mut expected = sent.clone();
    expected.reverse();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(&sent).await.unwrap();
    drop(stdin);
    let outcome = client.wait_with_output().await.unwrap();
    assert!(outcome.status.success(), "{}", text(&outcome.stderr));
    assert!(outcome.stdout == expected, "{} bytes came back", outcome.stdout.len());
    assert_eq!(server.await.unwrap(), sent.len());
    let event = world.event(&Code::SessionPortForward).await;
    assert_eq!(event.fields["target"], format!("127.0.0.1:{port}"));
    assert_eq!((event.user.as_str(), &event.fields["direction"]), ("alice", &"local".into()));
    assert_eq!(event.fields["peer"], event.fields["target"]);
    let end = world.event(&Code::SessionPortForwardEnd).await;
    assert_eq!(end.fields["forward"], event.fields["forward"]);
    assert_eq!((&end.fields["bytes_in"], &end.fields["bytes_out"]), (&3_000_000.into(), &3_000_000.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_port_is_noted_in_the_session_beside_it() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local = free.local_addr().unwrap();
    drop(free);
    let mut client = started(world.ssh(&[&format!("-L{local}:{target}")], &["echo up; cat"]));
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let mut through = tokio::net::TcpStream::connect(local).await.unwrap();
    let (mut served, _) = listener.accept().await.unwrap();
    served.write_all(b"hello").await.unwrap();
    drop(served);
    let mut got = String::new();
    through.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "hello");
    drop(through);
    world.event(&Code::SessionPortForwardEnd).await;
    drop(client.stdin.take());
    assert!(client.wait().await.unwrap().success());
    let frames = world.recording().await;
    let forward = |end| Body::PortForward { target: target.to_string(), direction: Direction::Local, end };
    let ended = ForwardEnd { bytes_in: 0, bytes_out: 5 };
    for wanted in [forward(None), forward(Some(ended))] {
        assert!(frames.iter().any(|frame| frame.body == wanted), "{frames:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_where_no_program_listens_is_told() {
    let world = World::new().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let outcome = output(world.ssh(&["-v", &format!("-W127.0.0.1:{port}")], &[] as &[&str])).await;
    assert!(!outcome.status.success());
    assert!(text(&outcome.stderr).contains("refused"), "{}", text(&outcome.stderr));
    assert_eq!(world.event(&Code::SessionPortForward).await.fields["success"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_failed_take_no_room() {
    let world = World::with("", |config| config.max_forwards = 4).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local = free.local_addr().unwrap().port();
    drop((closed, free));
    let socket = world.path("mux");
    let (path, forward) = (format!("-S{}", socket.display()), format!("-L{local}:127.0.0.1:{port}"));
    let master = started(world.ssh(&["-M", &path, "-N", &forward], NO_COMMAND));
    until("the master", || socket.exists().then_some(())).await;
    for _ in 0..40 {
        let mut refused = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
        let _ = refused.read(&mut [0]).await;
    }
    let inside = output(world.ssh(&[&path, "-oProxyCommand=false"], &["echo in"])).await;
    assert_eq!(ok(&inside), "in\n");
    stopped(master).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_nothing_does_not_keep_the_connection_of_a_client_that_has_gone() {
    let world = World::new().await;
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("-W127.0.0.1:{}", target.local_addr().unwrap().port());
    let mut client = started(world.ssh(&[&to], NO_COMMAND));
    let _deaf = target.accept().await.unwrap();
    let mut input = client.stdin.take().unwrap();
    let block = vec![7; 64 * 1024];
    let fill = async { while input.write_all(&block).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(3), fill).await.unwrap_err();
    client.kill().await.unwrap();
    until("the end", || (world.events(&Code::SessionPortForwardEnd).len() == 1).then_some(())).await;
}

/// A server that answers each connection with what it was sent, backwards, when that has ended.
async fn mirror() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(reverse(stream));
        }
    });
    port
}

async fn reverse(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    all.reverse();
    stream.write_all(&all).await.unwrap();
}

async fn turned_round(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, size: u32) {
    let sent: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    back.reverse();
    assert!(back == sent, "{} bytes came back", back.len());
}

/// Where the node says that it listens.
async fn bound(world: &World) -> String {
    let event = world.event(&Code::SessionListen).await;
    assert_eq!((&event.fields["success"], event.user.as_str()), (&true.into(), "alice"), "{event:?}");
    event.fields["target"].as_str().unwrap().to_owned()
}

/// The port in it.
fn port_of(name: &str) -> u16 {
    name.rsplit(':').next().unwrap().parse().unwrap()
}

async fn stopped(mut client: Child) {
    client.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_port_carries_both_ways_and_ends_with_the_connection() {
    let world = World::new().await;
    let target = mirror().await;
    let mut client = started(world.ssh(&[&format!("-R0:127.0.0.1:{target}")], &["echo up; cat"]));
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let name = bound(&world).await;
    let port = port_of(&name);
    turned_round(TcpStream::connect(("127.0.0.1", port)).await.unwrap(), 3_000_000).await;
    turned_round(TcpStream::connect(("::1", port)).await.unwrap(), 10).await;
    let ends = until("both ends", || {
        let ends = world.events(&Code::SessionPortForwardEnd);
        (ends.len() == 2).then_some(ends)
    })
    .await;
    assert_eq!(ends[0].fields["bytes_in"], 3_000_000);
    assert_eq!(ends[0].fields["bytes_out"], 3_000_000);
    assert_eq!(ends[0].fields["direction"], "remote");
    assert!(ends[0].fields["from"].as_str().unwrap().starts_with("127.0.0.1:"));
    drop(client.stdin.take());
    assert!(client.wait().await.unwrap().success());
    until("the end of the listener", || std::net::TcpListener::bind(("127.0.0.1", port)).ok()).await;
    let event = world.event(&Code::SessionListenEnd).await;
    assert_eq!((&event.fields["target"], &event.fields["connections"]), (&name.as_str().into(), &2.into()));
    let frames = world.recording().await;
    let ended = Some(ForwardEnd { bytes_in: 10, bytes_out: 10 });
    for end in [None, ended] {
        let wanted = Body::PortForward { target: name.clone(), direction: Direction::Remote, end };
        assert!(frames.iter().any(|frame| frame.body == wanted), "{frames:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_ports_are_on_loopback_unless_the_operator_says_otherwise() {
    let world = World::new().await;
    let client = started(world.ssh(&["-N", "-R*:0:127.0.0.1:9"], NO_COMMAND));
    let port = port_of(&bound(&world).await);
    assert_eq!(listeners(port), ["00000000000000000000000001000000", "0100007F"]);
    stopped(client).await;
    let open = World::with("", |config| config.gateway_ports = true).await;
    let client = started(open.ssh(&["-N", "-R*:0:127.0.0.1:9"], NO_COMMAND));
    let port = port_of(&bound(&open).await);
    assert_eq!(listeners(port), ["00000000000000000000000000000000"]);
    stopped(client).await;
}

/// The addresses on which something listens on a port, as the kernel writes them.
fn listeners(port: u16) -> Vec<String> {
    let ending = format!(":{port:04X}");
    let mut found: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|file| {
            std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next()?.to_owned();
            (fields.nth(1)? == "0A").then_some(local)
        })
        .filter_map(|local| local.strip_suffix(&ending).map(str::to_owned))
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_port_can_be_given_back() {
    let world = World::new().await;
    let target = mirror().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let socket = world.path("mux");
    let path = format!("-S{}", socket.display());
    let forward = format!("-R{free}:127.0.0.1:{target}");
    let master = started(world.ssh(&["-M", &path, "-N", &forward], NO_COMMAND));
    bound(&world).await;
    turned_round(TcpStream::connect(("127.0.0.1", free)).await.unwrap(), 100).await;
    until("the master", || socket.exists().then_some(())).await;
    ok(&output(world.ssh(&[&path, "-Ocancel", &forward], NO_COMMAND)).await);
    world.event(&Code::SessionListenEnd).await;
    assert!(TcpStream::connect(("127.0.0.1", free)).await.is_err());
    // And asked for again, on the same connection.
    ok(&output(world.ssh(&[&path, "-Oforward", &forward], NO_COMMAND)).await);
    turned_round(TcpStream::connect(("127.0.0.1", free)).await.unwrap(), 100).await;
    stopped(master).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_forwarding_can_be_forbidden_by_itself() {
    let world = World::with("port_forwarding: local, stream_local_forwarding: local", |_| {}).await;
    let target = mirror().await;
    for forward in ["-R0:127.0.0.1:9".to_owned(), format!("-R{}:127.0.0.1:9", world.path("s").display())] {
        let strict = ["-v", "-oExitOnForwardFailure=yes", &forward];
        let refused = output(world.ssh(&strict, &["echo in"])).await;
        assert_eq!(text(&refused.stdout), "");
        assert!(text(&refused.stderr).contains("from the node to you (-R)"), "{}", text(&refused.stderr));
    }
    let refused = world.events(&Code::SessionRefused);
    assert!(refused[0].message.contains("options.port_forwarding"), "{refused:?}");
    assert!(refused[1].message.contains("options.stream_local_forwarding"), "{refused:?}");
    let mut through = started(world.ssh(&[&format!("-W127.0.0.1:{target}")], NO_COMMAND));
    drop(through.stdin.take());
    assert!(through.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_and_too_many_are_refused() {
    let world = World::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let also = TcpListener::bind(("::1", taken.local_addr().unwrap().port())).await;
    let forward = format!("-R{}:127.0.0.1:9", taken.local_addr().unwrap().port());
    let refused = output(world.ssh(&["-oExitOnForwardFailure=yes", &forward], &["echo in"])).await;
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(255), String::new()));
    assert_eq!(world.event(&Code::SessionListen).await.fields["success"], false);
    drop((taken, also));
    let mut words = vec!["-oExitOnForwardFailure=yes".to_owned()];
    words.extend((0..33).map(|n| format!("-R0:127.0.0.1:{}", n + 1)));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let refused = output(world.ssh(&words, &["echo in"])).await;
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(255), String::new()));
    let listening = |event: &&sallyport_audit::Event| event.fields["success"] == true;
    assert_eq!(world.events(&Code::SessionListen).iter().filter(listening).count(), 32);
    until("the end of all", || (world.events(&Code::SessionListenEnd).len() == 32).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_client_does_not_read_does_not_hold_up_the_others() {
    let world = World::new().await;
    // Each client gets as much as it reads.
    let source = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = source.local_addr().unwrap().port();
    let counting = Arc::new(AtomicU64::new(0));
    let count = counting.clone();
    tokio::spawn(async move {
        let (mut stream, _) = source.accept().await.unwrap();
        let block = vec![7; 64 << 10];
        while stream.write_all(&block).await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let socket = world.path("mux");
    let path = format!("-S{}", socket.display());
    let master = started(world.ssh(&["-M", &path, "-N", &format!("-R0:127.0.0.1:{target}")], NO_COMMAND));
    let port = port_of(&bound(&world).await);
    let _silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stands_still("the source to stand still", || counting.load(Ordering::Relaxed)).await;
    until("the master", || socket.exists().then_some(())).await;
    assert_eq!(
        ok(&output(world.ssh(&[&path, "-oProxyCommand=false"], &["echo through"])).await),
        "through\n"
    );
    stopped(master).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_the_node_are_reached() {
    let world = World::new().await;
    let there = world.path("there.sock");
    let listener = UnixListener::bind(&there).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        reverse(stream).await;
    });
    let here = world.path("here.sock");
    let client =
        started(world.ssh(&["-N", &format!("-L{}:{}", here.display(), there.display())], NO_COMMAND));
    until("the client's socket", || here.exists().then_some(())).await;
    turned_round(UnixStream::connect(&here).await.unwrap(), 300_000).await;
    let event = world.event(&Code::SessionPortForward).await;
    assert_eq!(event.fields["target"], there.to_str().unwrap());
    assert_eq!(world.event(&Code::SessionPortForwardEnd).await.fields["bytes_in"], 300_000);
    stopped(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_on_the_node_leads_to_the_client_and_goes_with_it() {
    let world = World::new().await;
    let target = mirror().await;
    let there = world.path("there.sock");
    let forward = format!("-R{}:127.0.0.1:{target}", there.display());
    let client = started(world.ssh(&["-N", &forward], NO_COMMAND));
    assert_eq!(bound(&world).await, there.to_str().unwrap());
    let about = std::fs::metadata(&there).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    turned_round(UnixStream::connect(&there).await.unwrap(), 300_000).await;
    // A file that is in the way stays.
    let refused = output(world.ssh(&["-oExitOnForwardFailure=yes", &forward], &["echo in"])).await;
    assert_eq!(text(&refused.stdout), "");
    turned_round(UnixStream::connect(&there).await.unwrap(), 10).await;
    stopped(client).await;
    until("the end of the socket", || (!there.exists()).then_some(())).await;
    world.event(&Code::SessionListenEnd).await;
    // What was put there instead is not ours to remove.
    let client = started(world.ssh(&["-N", &forward], NO_COMMAND));
    until("the socket", || there.exists().then_some(())).await;
    std::fs::remove_file(&there).unwrap();
    std::fs::write(&there, "mine").unwrap();
    stopped(client).await;
    until("the end", || (world.events(&Code::SessionListenEnd).len() == 2).then_some(())).await;
    // Whatever a connection leaves to be done is done when the next one is over.
    ok(&output(world.ssh(&[], &["true"])).await);
    until("the end of both", || (world.server.connections_open() == 0).then_some(())).await;
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_reached_with_the_rights_of_the_account() {
    if !is_root() {
        eprintln!("left out: needs root, to become another account");
        return;
    }
    // The program has to be in a place that the account nobody can read.
    let bench = tempfile::tempdir().unwrap();
    std::fs::set_permissions(bench.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let helper = bench.path().join("helper");
    std::fs::copy(env!("CARGO_BIN_EXE_sallyport-session-helper"), &helper).unwrap();
    let world =
        World::with_roles(&[role("dev", &["nobody"], "")], |config| config.helper.program = helper).await;
    let mut card = world.card("alice");
    card.logins = vec!["nobody".to_owned()];
    world.issue("alice", &card);
    let ssh = |words: &[&str]| {
        let mut ssh = world.client("ssh", "alice");
        ssh.args(words).arg("nobody@127.0.0.1");
        ssh
    };
    let strict = "-oExitOnForwardFailure=yes";
    // A socket of root's, behind a door of root's; and one behind a link that the account nobody may follow, but not
    // enter.
    let secret = world.path("secret.sock");
    let _listener = UnixListener::bind(&secret).unwrap();
    let link = bench.path().join("link.sock");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    for path in [&secret, &link] {
        let here = world.path("here.sock");
        let _ = std::fs::remove_file(&here);
        let client = started(ssh(&["-N", &format!("-L{}:{}", here.display(), path.display())]));
        until("the client's socket", || here.exists().then_some(())).await;
        let mut through = UnixStream::connect(&here).await.unwrap();
        let mut got = Vec::new();
        let _ = through.read_to_end(&mut got).await;
        assert_eq!(got, b"");
        let event = world.event(&Code::SessionPortForward).await;
        assert_eq!(event.fields["success"], false, "{event:?}");
        assert!(event.message.contains("ermission denied"), "{event:?}");
        stopped(client).await;
    }
    // The node does not listen where the account nobody may not write.
    let refused =
        output(ssh(&[strict, "-N", &format!("-R{}:127.0.0.1:9", world.path("x.sock").display())])).await;
    assert_eq!(refused.status.code(), Some(255));
    // Nor on a port of the system.
    let refused = output(ssh(&[strict, "-N", "-R1023:127.0.0.1:9"])).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(world.events(&Code::SessionListen).iter().all(|event| event.fields["success"] == false));
    assert!(world.event(&Code::SessionListen).await.message.contains("port of the system"));
    // It listens where the account nobody may write, and the socket is that account's.
    let open = bench.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::os::unix::fs::chown(&open, Some(65534), Some(65534)).unwrap();
    let there = open.join("there.sock");
    let client = started(ssh(&[strict, "-N", &format!("-R{}:127.0.0.1:9", there.display())]));
    until("the socket", || there.exists().then_some(())).await;
    assert_eq!(owner(&there), 65534);
    stopped(client).await;
    until("the end of the socket", || (!there.exists()).then_some(())).await;
}

fn owner(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().uid()
}
