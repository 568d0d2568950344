//! Plain TCP applications through the cluster, with real programs at both ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Cluster, PATIENCE, User, free_port, me, ok, stderr, stdout, wait_for};

const ROLE: &str =
    "kind: role\nversion: v1\nmetadata: {name: dev}\nspec:\n  allow:\n    app_labels: {env: test}\n";
/// Another label, so that nothing of it fits.
const ROLE_WITHOUT: &str =
    "kind: role\nversion: v1\nmetadata: {name: dev}\nspec:\n  allow:\n    app_labels: {env: other}\n";
/// How soon a session has ended that may not go on.
const SOON: Duration = Duration::from_secs(5);
/// Clients at once.
const MANY: usize = 200;

/// An application that answers with all that it was told when it has been told everything; or, where it is greedy, says a word and its
/// end first, and then listens.
struct Application {
    address: SocketAddr,
    /// Bytes that it has heard.
    heard: Arc<AtomicUsize>,
}

impl Application {
    fn start(greedy: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(AtomicUsize::new(0));
        let hears = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, hears) = (stream.unwrap(), Arc::clone(&hears));
                thread::spawn(move || {
                    if greedy {
                        let _ = stream.write_all(b"mine");
                        let _ = stream.shutdown(Shutdown::Write);
                    }
                    let (mut said, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
                    while let Ok(count) = stream.read(&mut buffer) {
                        if count == 0 {
                            if !greedy {
                                let _ = stream.write_all(&said);
                            }
                            break;
                        }
                        said.extend_from_slice(&buffer[..count]);
                        hears.fetch_add(count, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, heard }
    }
}

struct Rig {
    cluster: Cluster,
    alice: User,
    echo: Application,
}

/// An address of this machine that leads to an application.
struct Tunnel {
    address: SocketAddr,
    child: Child,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tunnel {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Rig {
    /// A cluster whose node `web-1` serves an application that echoes, and alice, who may use it.
    fn new() -> Self {
        let mut cluster = Cluster::bare();
        let echo = Application::start(false);
        cluster.add_node("web-1", "env: prod");
        ok(cluster.create(ROLE));
        let rig = Self { alice: cluster.add_user("alice", "dev", &me()), cluster, echo };
        rig.register("echo", rig.echo.address);
        rig.wait_for("echo");
        rig
    }

    fn register(&self, name: &str, address: SocketAddr) {
        ok(self.cluster.create(&format!(
            "kind: app\nversion: v1\nmetadata: {{name: {name}, labels: {{env: test}}}}\nspec: {{uri: 'tcp://{address}', via: web-1}}\n"
        )));
    }

    /// Until proxy and agent have heard of it.
    fn wait_for(&self, name: &str) {
        wait_for(&format!("the application {name}"), || {
            let output = self.alice.run_with_input(&["proxy", "app", name], "");
            output.status.success().then_some(())
        });
    }

    fn tunnel(&self, name: &str) -> Tunnel {
        let mut command = self.alice.command(&["app", "connect", name]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Tunnel { address: line.trim().parse().unwrap(), child }
    }

    /// A connection through which the echoing application has heard something, so that the session has begun.
    fn session(&self, tunnel: &Tunnel) -> TcpStream {
        let before = self.echo.heard.load(Ordering::SeqCst);
        let mut stream = tunnel.connect();
        stream.write_all(b"hello").unwrap();
        wait_for("the application to hear", || {
            (self.echo.heard.load(Ordering::SeqCst) == before + 5).then_some(())
        });
        stream
    }

    /// Does something, and expects the connection to end at once and an event that says why, in the words of the agent or of the proxy:
    /// the proxy cuts what a late agent leaves open.
    fn ends(&self, mut stream: TcpStream, why: &[&str], act: impl FnOnce()) {
        act();
        let began = Instant::now();
        let _ = stream.read(&mut [0; 16]);
        assert!(began.elapsed() < SOON, "{why:?}: {:?}", began.elapsed());
        self.cluster.wait_event("app.session.cut", |event| {
            event["message"].as_str().is_some_and(|message| why.iter().any(|why| message.contains(why)))
        });
    }
}

#[test]
fn bytes_pass_as_they_are_and_each_direction_ends_for_itself() {
    let rig = Rig::new();
    let tunnel = rig.tunnel("echo");
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut stream = tunnel.connect();
    let mut reading = stream.try_clone().unwrap();
    let read = thread::spawn(move || {
        let mut all = Vec::new();
        reading.read_to_end(&mut all).unwrap();
        all
    });
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(read.join().unwrap() == bytes, "what came back is what went there");
    let ended = rig.cluster.wait_event("app.session.end", |event| event["fields"]["bytes_in"] == bytes.len());
    assert_eq!(
        (&ended["fields"]["bytes_out"], &ended["user"], &ended["node"]),
        (&bytes.len().into(), &"alice".into(), &"echo".into())
    );

    // The application has said everything, and still hears.
    let greedy = Application::start(true);
    rig.register("greedy", greedy.address);
    rig.wait_for("greedy");
    let before = greedy.heard.load(Ordering::SeqCst);
    let tunnel = rig.tunnel("greedy");
    let mut stream = tunnel.connect();
    let mut word = String::new();
    stream.read_to_string(&mut word).unwrap();
    assert_eq!(word, "mine");
    stream.write_all(&bytes).unwrap();
    drop(stream);
    wait_for("what came after the end", || {
        (greedy.heard.load(Ordering::SeqCst) == before + bytes.len()).then_some(())
    });

    // Standard input and output, and a program that is started for it.
    let output = rig.alice.run_with_input(&["proxy", "app", "echo"], "as a pipe");
    assert_eq!(stdout(&ok(output)), "as a pipe");
    let script = "import os, socket\ns = socket.create_connection((os.environ['SALLYPORT_HOST'], int(os.environ['SALLYPORT_PORT'])))\n\
                  s.sendall(b'by a program'); s.shutdown(socket.SHUT_WR); print(s.makefile().read()); raise SystemExit(7)";
    let output = rig.alice.run(&["app", "connect", "echo", "--", "/usr/bin/python3", "-c", script]);
    assert_eq!(
        (output.status.code(), stdout(&output).trim()),
        (Some(7), "by a program"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_that_stops_reading_ends_the_session_though_its_input_stays_open() {
    let rig = Rig::new();
    // Answers the first word with lines, until nothing takes them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                if matches!(stream.read(&mut [0]), Ok(1)) {
                    while stream.write_all(b"line\n").is_ok() {}
                }
            });
        }
    });
    rig.register("lines", address);
    rig.wait_for("lines");
    // A pipe, which can be waited for, and a device, which cannot.
    let device = Stdio::from(std::fs::File::open("/dev/zero").unwrap());
    for input in [Stdio::piped(), device] {
        let mut command = rig.alice.command(&["proxy", "app", "lines"]);
        let child = command.stdin(input).stdout(Stdio::piped()).spawn().unwrap();
        let mut running = Tunnel { address, child };
        let mut input = running.child.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(b"go").unwrap();
        }
        let mut output = running.child.stdout.take().unwrap();
        output.read_exact(&mut [0; 5]).unwrap();
        drop(output);
        wait_for("the program to end", || running.child.try_wait().unwrap());
        drop(input);
    }
}

#[test]
fn who_may_not_and_what_is_not_there_is_said_at_the_terminal() {
    let rig = Rig::new();
    ok(rig.cluster.create("kind: role\nversion: v1\nmetadata: {name: idle}\nspec: {allow: {}}\n"));
    let bob = rig.cluster.add_user("bob", "idle", &me());
    for arguments in [&["app", "connect", "echo"][..], &["proxy", "app", "echo"]] {
        let refused = bob.run(arguments);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains("echo") && said.contains("sallyport app ls"), "{said}");
    }
    let listed = stdout(&ok(rig.alice.run(&["app", "ls", "--verbose"])));
    assert!(listed.contains("echo") && listed.contains(&rig.echo.address.to_string()), "{listed}");
    assert!(!stdout(&ok(bob.run(&["app", "ls"]))).contains("echo"));

    rig.register("dead", SocketAddr::from(([127, 0, 0, 1], free_port())));
    let said = wait_for("the agent to have heard of it", || {
        let failed = rig.alice.run(&["proxy", "app", "dead"]);
        assert!(!failed.status.success());
        Some(stderr(&failed)).filter(|said| said.contains("refused the connection"))
    });
    assert!(said.contains("application dead cannot be reached from web-1"), "{said}");
    assert!(said.contains("sallyport admin edit app/dead"), "{said}");
    rig.cluster.wait_event("app.session.refused", |event| event["fields"]["reason"] == "not_reached");
    for bind in ["0.0.0.0", "::"] {
        let refused = rig.alice.run(&["app", "connect", "echo", "--bind", bind]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
}

#[test]
fn a_session_ends_with_what_let_its_user_in() {
    let rig = Rig::new();
    let tunnel = rig.tunnel("echo");
    let lock =
        "kind: lock\nversion: v1\nmetadata: {name: stop}\nspec: {target: {app: echo}, message: not now}\n";
    rig.ends(rig.session(&tunnel), &["not now"], || {
        ok(rig.cluster.create(lock));
    });
    ok(rig.cluster.admin(&["rm", "lock/stop"]));
    rig.wait_for("echo");

    let session = rig.session(&tunnel);
    // The agent reports it beside serving it.
    wait_for("the session to be listed", || {
        let listed = stdout(&ok(rig.alice.run(&["sessions", "ls"])));
        (listed.contains("alice") && listed.contains("echo")).then_some(())
    });
    rig.ends(session, &["no role allows it"], || {
        ok(rig.cluster.create(ROLE_WITHOUT));
    });
    ok(rig.cluster.create(ROLE));
    rig.wait_for("echo");

    rig.ends(rig.session(&tunnel), &["does not serve this application any more", "was removed"], || {
        ok(rig.cluster.admin(&["rm", "app/echo"]));
    });
    rig.register("echo", rig.echo.address);
    rig.wait_for("echo");

    // A drain of the agent.
    let session = rig.session(&tunnel);
    let mut rig = rig;
    let node = rig.cluster.node("web-1");
    node.signal("TERM");
    let status = wait_for("the agent to stop", || node.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    rig.ends(session, &["shutting down"], || {});
}

#[test]
fn a_session_is_cut_although_neither_end_reads() {
    let rig = Rig::new();
    // Says all that is taken of it, hears no more than the first word, and tells when it is over.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (hears, heard) = std::sync::mpsc::channel();
    let (over, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, hears, over) = (stream.unwrap(), hears.clone(), over.clone());
            thread::spawn(move || {
                if matches!(stream.read(&mut [0]), Ok(1)) {
                    let _ = hears.send(());
                    while stream.write_all(&[b'x'; 4096]).is_ok() {}
                    let _ = over.send(());
                }
            });
        }
    });
    rig.register("deaf", address);
    rig.wait_for("deaf");
    let tunnel = rig.tunnel("deaf");
    let mut stream = tunnel.connect();
    stream.write_all(b"hello").unwrap();
    heard.recv_timeout(PATIENCE).unwrap();
    // Until nothing is taken of the client either.
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while stream.write(&[0; 64 * 1024]).is_ok() {}
    assert!(ended.try_recv().is_err(), "the session goes on");
    let lock =
        "kind: lock\nversion: v1\nmetadata: {name: stop}\nspec: {target: {user: alice}, message: not now}\n";
    ok(rig.cluster.create(lock));
    let began = Instant::now();
    ended.recv_timeout(SOON).expect("the application is still written to");
    // The client comes to the end as soon as it reads: what is on its way is bounded, and nothing follows.
    let mut buffer = vec![0; 64 * 1024];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
    assert!(began.elapsed() < SOON, "the client comes to no end: {:?}", began.elapsed());
    rig.cluster.wait_event("app.session.cut", |event| {
        event["message"].as_str().is_some_and(|message| message.contains("not now"))
    });
}

#[test]
fn a_connection_finds_the_agent_that_serves_it_now() {
    let mut rig = Rig::new();
    rig.cluster.add_node("web-2", "env: prod");
    let address = rig.echo.address;
    ok(rig.cluster.create(&format!(
        "kind: app\nversion: v1\nmetadata: {{name: echo, labels: {{env: test}}}}\nspec: {{uri: 'tcp://{address}', via: web-2}}\n"
    )));
    // The old agent is remembered for longer than this waits.
    rig.wait_for("echo");
    rig.cluster.wait_event("app.session.start", |event| event["fields"]["agent"] == "web-2");
}

#[test]
fn many_connections_go_at_once() {
    let rig = Rig::new();
    let tunnel = Arc::new(rig.tunnel("echo"));
    let clients: Vec<_> = (0..MANY).map(|_| tunnel.connect()).collect();
    let talking = clients.into_iter().enumerate().map(|(number, mut stream)| {
        thread::spawn(move || {
            let said = format!("client {number} ").repeat(1000);
            stream.write_all(said.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).unwrap();
            assert!(heard == said, "client {number}");
        })
    });
    let talking: Vec<_> = talking.collect();
    talking.into_iter().for_each(|one| one.join().unwrap());
}
