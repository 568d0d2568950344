//! The same sessions through both front doors: SSH, and the native protocol; and through the one in front of the other. The
//! client is ours.

mod bounds;
mod factors;
mod pins;

use std::time::Duration;

use sallyport_access::{Identity, Login, Principal, RoleName, Traits, UserName};
use sallyport_audit::Code;
use sallyport_ssh::client::{
    ClientError, Connection, Credentials, Endpoint, Exit, Output, Program, SessionRequest, Settings,
    Terminal, WindowSize, connect, connect_native,
};
use sallyport_ssh::node::{ConnectionInfo, NativeLogin, Relay};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use uuid::Uuid;

use crate::node::limits::Agent;
use crate::world::{World, alive, role, text, until};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ssh,
    Native,
    /// SSH to a server beside the client that goes on natively.
    Relayed,
}

const ALL: [Way; 3] = [Way::Ssh, Way::Native, Way::Relayed];

/// Who alice is, for a native login.
pub(crate) fn identity(world: &World, user: &str) -> Identity {
    let now = OffsetDateTime::now_utc();
    Identity {
        principal: Principal::User {
            name: UserName::new(user).unwrap(),
            roles: vec![RoleName::new("dev").unwrap()],
            logins: vec![Login::new(world.own.name.as_str()).unwrap()],
            traits: Traits::new(),
        },
        login_id: Uuid::new_v4(),
        device: None,
        pinned_to: None,
        valid_after: now - time::Duration::minutes(1),
        valid_before: now + time::Duration::hours(1),
    }
}

pub(crate) fn settings(world: &World, login: &str) -> Settings {
    Settings {
        login: login.to_owned(),
        host: "web-1".to_owned(),
        trust: world.cluster.trust_now(),
        keepalive: None,
        agent: None,
    }
}

fn credentials(world: &World, user: &str) -> Credentials {
    let read = |name: String| std::fs::read_to_string(world.path(&name)).unwrap();
    let (key, certificate) = (read(user.to_owned()), read(format!("{user}-cert.pub")));
    Credentials::from_openssh(&key, &certificate).unwrap()
}

/// Connects as a user, with these settings.
pub(crate) async fn connected(world: &World, way: Way, user: &str, settings: Settings) -> Connection {
    match way {
        Way::Ssh => {
            let stream = TcpStream::connect(world.address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            connect(stream, &credentials(world, user), settings).await.unwrap()
        }
        Way::Relayed => {
            let onward = Settings { agent: None, ..settings.clone() };
            relayed(world, user, onward, settings).await.unwrap()
        }
        Way::Native => {
            let (near, far) = tokio::io::duplex(64 * 1024);
            serve(world, far, identity(world, user));
            connect_native(near, settings)
        }
    }
}

/// Connects as a user by SSH to a relay that goes on with settings of its own.
pub(crate) async fn relayed(
    world: &World,
    user: &str,
    onward: Settings,
    settings: Settings,
) -> Result<Connection, ClientError> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    serve(world, far, identity(world, user));
    // The SSH library does not read while it waits to write, so two of it need room between them.
    let (client, here) = tokio::io::duplex(8 << 20);
    let relay = Relay::new(&world.host(), world.cluster.trust_now()).unwrap();
    tokio::spawn(async move { relay.serve(here, near, onward).await });
    connect(client, &credentials(world, user), settings).await
}

/// Serves the far end of a stream natively.
pub(crate) fn serve(world: &World, far: tokio::io::DuplexStream, identity: Identity) {
    let server = world.server.clone();
    let info =
        ConnectionInfo { client_addr: Some(([127, 0, 0, 1], 4321).into()), ..ConnectionInfo::default() };
    let certificate = bytes::Bytes::from_static(b"as it was presented");
    let login = NativeLogin { identity, proof: "aa:bb".to_owned(), certificate };
    tokio::spawn(async move { server.serve_native(far, login, info).await });
}

/// Connects as alice to her own account.
async fn connection(world: &World, way: Way) -> Connection {
    connected(world, way, "alice", settings(world, &world.own.name)).await
}

/// What came of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: Exit,
    pub(crate) said: Vec<Output>,
}

/// Runs a session on this input to its end.
pub(crate) async fn run(connection: &Connection, request: SessionRequest, input: &[u8]) -> Ran {
    let session = connection.start(request).await.unwrap();
    let (to, mut from) = session.split();
    let input = input.to_vec();
    let feed = tokio::spawn(async move {
        let _ = to.data(input).await;
        let _ = to.eof().await;
        // The channel stays open until its output was read.
        to
    });
    let (mut out, mut err, mut said) = (Vec::new(), Vec::new(), Vec::new());
    let exit = timeout(PATIENCE, async {
        loop {
            match from.next().await.unwrap() {
                Output::Stdout(bytes) => out.extend_from_slice(&bytes),
                Output::Stderr(bytes) => err.extend_from_slice(&bytes),
                Output::Exit(exit) => break exit,
                other => said.push(other),
            }
        }
    })
    .await
    .expect("the session goes on");
    feed.abort();
    Ran { stdout: text(&out), stderr: text(&err), exit, said }
}

pub(crate) async fn exec(connection: &Connection, line: &str) -> Ran {
    run(connection, SessionRequest::exec(line), b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_have_their_outputs_and_their_ends() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let ran = exec(&connection, "echo out; echo err >&2; exit 7").await;
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"), "{way:?}");
        assert_eq!((ran.exit, ran.said), (Exit::Status(7), vec![Output::Started]), "{way:?}");
        let end = world.event(&Code::SessionEnd).await;
        assert_eq!(end.fields["exit_status"], 7);
        assert_eq!(crate::world::shown(&world.recording().await).lines().count(), 2);
        let ran = exec(&connection, "kill -TERM $$").await;
        assert!(matches!(&ran.exit, Exit::Signal { name, .. } if name == "TERM"), "{way:?}: {ran:?}");
        let mut shell = SessionRequest::new(Program::Shell);
        shell.environment = [("LC_ALL", "C.UTF-8"), ("LD_PRELOAD", "/bad")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let ran = run(&connection, shell, b"echo [$LC_ALL][$LD_PRELOAD][$SALLYPORT_USER]\n").await;
        assert_eq!(ran.stdout, "[C.UTF-8][][alice]\n", "{way:?}");
        connection.disconnect().await;
        until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_comes_back_whole_and_ends() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let input: Vec<u8> = (0..5_000_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
        let ran = run(&connection, SessionRequest::exec("cat"), &input).await;
        assert_eq!(ran.exit, Exit::Status(0), "{way:?}");
        assert!(ran.stdout.as_bytes() == input, "{way:?}: {} bytes", ran.stdout.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_its_size_and_changes_it() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let mut request = SessionRequest::exec(
            "stty -echo; stty size; echo $TERM; read x; while [ \"$(stty size)\" = '30 100' ]; do sleep 0.02; done; stty size",
        );
        let size = WindowSize { columns: 100, rows: 30, ..WindowSize::default() };
        request.terminal = Some(Terminal { term: "vt100".to_owned(), size, modes: Vec::new() });
        let mut session = connection.start(request).await.unwrap();
        let mut seen = String::new();
        let mut changed = false;
        let exit = loop {
            match timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                Output::Stdout(bytes) => seen.push_str(&text(&bytes)),
                Output::Exit(exit) => break exit,
                _ => {}
            }
            if seen.contains("vt100") && !std::mem::replace(&mut changed, true) {
                let size = WindowSize { columns: 77, rows: 11, ..size };
                session.input().resize(size).await.unwrap();
                session.input().data("\r").await.unwrap();
            }
        };
        assert_eq!(exit, Exit::Status(0), "{way:?}");
        assert_eq!(
            seen.split_whitespace().collect::<Vec<_>>(),
            ["30", "100", "vt100", "11", "77"],
            "{way:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let line = "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.1; done";
        let mut session = connection.start(SessionRequest::exec(line)).await.unwrap();
        let (mut seen, mut signalled) = (String::new(), false);
        let exit = loop {
            match timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                Output::Stdout(bytes) => seen.push_str(&text(&bytes)),
                Output::Exit(exit) => break exit,
                _ => {}
            }
            if seen == "ready\n" && !std::mem::replace(&mut signalled, true) {
                session.input().signal("USR1").await.unwrap();
            }
        };
        assert_eq!((seen.as_str(), exit), ("ready\ngot\n", Exit::Status(9)), "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_closed_is_hung_up() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let mut session = connection.start(SessionRequest::exec("echo $$; exec sleep 1000")).await.unwrap();
        let pid = loop {
            if let Output::Stdout(bytes) = timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                break text(&bytes).trim().parse().unwrap();
            }
        };
        session.input().close().await.unwrap();
        until("the end of the command", || (!alive(pid)).then_some(())).await;
        assert_eq!(world.event(&Code::SessionEnd).await.message, "the client went away");
        assert_eq!(exec(&connection, "echo on").await.stdout, "on\n", "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_served_and_told_of() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        std::fs::write(world.path("file"), vec![b'x'; 100_000]).unwrap();
        let files = sallyport_ssh::copy::Remote::open(connection.sftp().await.unwrap()).await.unwrap();
        drop(files);
        // SSH_FXP_INIT of version 3, and its answer.
        let mut stream = connection.sftp().await.unwrap();
        stream.write_all(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).await.unwrap();
        let mut head = [0; 9];
        timeout(PATIENCE, stream.read_exact(&mut head)).await.unwrap().unwrap();
        assert_eq!((head[4], head[8]), (2, 3), "{way:?}");
        drop(stream);
        until("both ends", || (world.events(&Code::SessionEnd).len() == 2).then_some(())).await;
        assert_eq!(world.event(&Code::SessionStart).await.fields["kind"], "sftp");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_copies_refuses_them_in_words() {
    for way in ALL {
        let world = World::with("ssh_file_copy: false", |_| {}).await;
        let connection = connection(&world, way).await;
        let ran = run(&connection, SessionRequest::new(Program::Subsystem("sftp".to_owned())), b"").await;
        assert_eq!(ran.exit, Exit::Status(255), "{way:?}");
        assert!(ran.stderr.contains("options.ssh_file_copy"), "{way:?}: {}", ran.stderr);
    }
}

/// An echo server, and its address.
async fn echo() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    Endpoint::Port { host: "127.0.0.1".to_owned(), port }
}

/// Sends this, ends, and reads to the end.
async fn echoed(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite, input: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut seen = Vec::new();
    let both = async {
        tokio::join!(
            async {
                write.write_all(input).await.unwrap();
                write.shutdown().await.unwrap();
            },
            async { read.read_to_end(&mut seen).await.unwrap() }
        )
    };
    timeout(PATIENCE, both).await.expect("it goes on");
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_go_out_from_the_node() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let origin = ([127, 0, 0, 1], 5).into();
        let to = echo().await;
        let input = vec![b'e'; 3_000_000];
        assert!(echoed(connection.open_to(&to, origin).await.unwrap(), &input).await == input, "{way:?}");
        let event = world.event(&Code::SessionPortForwardEnd).await;
        assert_eq!(
            (&event.fields["bytes_in"], &event.fields["bytes_out"]),
            (&3_000_000.into(), &3_000_000.into())
        );

        // Through a listener of this side.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let forward = connection.forward(listener, to, std::sync::Arc::new(|problem| panic!("{problem}")));
        assert_eq!(echoed(TcpStream::connect(at).await.unwrap(), b"through").await, b"through");
        drop(forward);

        // What does not answer is told of, and so is what no role allows.
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            Endpoint::Port { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() }
        };
        let refused = connection.open_to(&closed, origin).await.unwrap_err().to_string();
        assert!(refused.contains("cannot connect to 127.0.0.1:"), "{way:?}: {refused}");
        let (told, mut problems) = tokio::sync::mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let report = std::sync::Arc::new(move |problem: &str| told.send(problem.to_owned()).unwrap());
        let _forward = connection.forward(listener, closed, report);
        let mut end = Vec::new();
        let _ = TcpStream::connect(at).await.unwrap().read_to_end(&mut end).await;
        assert_eq!(end, b"", "{way:?}");
        let problem = timeout(PATIENCE, problems.recv()).await.unwrap().unwrap();
        assert!(problem.contains("cannot connect to 127.0.0.1:"), "{way:?}: {problem}");

        let world = World::with("port_forwarding: false", |_| {}).await;
        let connection = self::connection(&world, way).await;
        let refused = connection.open_to(&echo().await, origin).await.unwrap_err();
        assert!(
            matches!(&refused, ClientError::Refused { reason, .. } if reason.contains("options.port_forwarding")),
            "{way:?}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_of_the_node_is_reached() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let path = world.path("there.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let to = Endpoint::Socket { path: path.to_string_lossy().into_owned() };
        let stream = connection.open_to(&to, ([127, 0, 0, 1], 5).into()).await.unwrap();
        assert_eq!(echoed(stream, b"socket").await, b"socket", "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_come_in_from_the_node() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let report: sallyport_ssh::client::Report = std::sync::Arc::new(|problem| panic!("{problem}"));
        let any = Endpoint::Port { host: "localhost".to_owned(), port: 0 };
        let forward = connection.forward_remote(any, echo().await, report.clone()).await.unwrap();
        let Endpoint::Port { port, .. } = forward.at.clone() else { panic!() };
        assert_ne!(port, 0);
        let input = vec![b'r'; 1_000_000];
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(echoed(stream, &input).await == input, "{way:?}");
        let event = world.event(&Code::SessionPortForwardEnd).await;
        assert_eq!(event.fields["direction"], "remote");
        let twice = connection.forward_remote(forward.at.clone(), echo().await, report.clone()).await;
        assert!(matches!(twice, Err(ClientError::Refused { .. })), "{way:?}: {twice:?}");

        let path = world.path("here.sock");
        let socket = Endpoint::Socket { path: path.to_string_lossy().into_owned() };
        let _socket = connection.forward_remote(socket, echo().await, report).await.unwrap();
        assert_eq!(echoed(UnixStream::connect(&path).await.unwrap(), b"unix").await, b"unix", "{way:?}");

        connection.disconnect().await;
        until("the end of the listener", || std::net::TcpListener::bind(("127.0.0.1", port)).ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_reached_and_only_where_a_role_allows_it() {
    for way in ALL {
        let world = World::with("forward_agent: true", |_| {}).await;
        let agent = Agent::start(&world).await;
        let mut settings = settings(&world, &world.own.name);
        settings.agent = Some(agent.socket.clone());
        let connection = connected(&world, way, "alice", settings.clone()).await;
        let mut request = SessionRequest::exec("ssh-add -l");
        request.forward_agent = true;
        let ran = run(&connection, request.clone(), b"").await;
        assert!(ran.stdout.contains("ED25519"), "{way:?}: {ran:?}");
        world.event(&Code::SessionAgentForward).await;

        let world = World::new().await;
        settings.trust = world.cluster.trust_now();
        let connection = connected(&world, way, "alice", settings).await;
        request.program = Program::Exec(b"echo [$SSH_AUTH_SOCK]".to_vec());
        let ran = run(&connection, request, b"").await;
        assert_eq!(ran.stdout, "[]\n", "{way:?}");
        // What is handed on was taken already when the node had its say.
        assert_eq!(ran.said.contains(&Output::AgentRefused), way != Way::Relayed, "{way:?}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_enter_reads_why() {
    for way in ALL {
        let world = World::with_roles(&[role("dev", &["somebody"], "")], |_| {}).await;
        let connection = connection(&world, way).await;
        let ran = exec(&connection, "echo in").await;
        assert_eq!((ran.stdout.as_str(), &ran.exit), ("", &Exit::Status(255)), "{way:?}");
        assert!(ran.stderr.contains("may not log in as"), "{way:?}: {}", ran.stderr);
        world.event(&Code::SessionRefused).await;
        assert!(world.events(&Code::SessionStart).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_cuts_with_words_and_keeps_out() {
    for way in ALL {
        let world = World::new().await;
        let connection = connection(&world, way).await;
        let mut session = connection.start(SessionRequest::exec("echo $$; exec sleep 1000")).await.unwrap();
        let pid = loop {
            if let Output::Stdout(bytes) = timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                break text(&bytes).trim().parse().unwrap();
            }
        };
        let lock = "kind: lock\nversion: v1\nmetadata:\n  name: l\nspec:\n  target:\n    user: alice\n  message: ask carol\n";
        world.set_locks(&[lock]);
        let mut said = String::new();
        let exit = loop {
            match timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
                Output::Stderr(bytes) => said.push_str(&text(&bytes)),
                Output::Exit(exit) => break exit,
                _ => {}
            }
        };
        assert!(said.contains("ask carol"), "{way:?}: {said}");
        assert_eq!(exit, Exit::Status(255), "{way:?}");
        until("the end of the command", || (!alive(pid)).then_some(())).await;
        until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
        world.event(&Code::SessionCut).await;
        until("the news here", || connection.is_closed().then_some(())).await;
        let again = connected(&world, way, "alice", settings(&world, &world.own.name)).await;
        let ran = exec(&again, "echo in").await;
        assert!(ran.stdout.is_empty() && ran.stderr.contains("ask carol"), "{way:?}: {ran:?}");
    }
}
