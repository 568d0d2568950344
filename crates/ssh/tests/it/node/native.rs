//! What only the native protocol has: its flights, and what it makes of clients that break its rules.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sallyport_access::Principal;
use sallyport_audit::Code;
use sallyport_ssh::client::{
    ClientError, Exit, Output, Program, SessionRequest, Terminal, WindowSize, connect_native,
};
use sallyport_ssh::native::frame::{FIRST_WINDOW, Farewell, Frame, Hello, Open, VERSION};
use sallyport_ssh::request;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::timeout;

use crate::node::doors::{exec, identity, run, serve, settings};
use crate::world::{World, text, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A stream that notes who spoke, whenever that changes, and how often each wrote.
struct Counted {
    stream: DuplexStream,
    flights: Arc<Mutex<Vec<(Who, usize)>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Client,
    Node,
}

impl Counted {
    fn spoke(&self, who: Who) {
        let mut flights = self.flights.lock();
        match flights.last_mut() {
            Some((last, pieces)) if *last == who => *pieces += 1,
            _ => flights.push((who, 1)),
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.spoke(Who::Node);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        if written.is_ready() {
            self.spoke(Who::Client);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_takes_one_round_trip() {
    let world = World::with("forward_agent: true", |_| {}).await;
    for with_all in [false, true] {
        // On a busy machine the end of input may miss the first flight; it does not do so every time.
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|order| *order == [Who::Client, Who::Node]) {
            assert!(seen.len() < 10, "{seen:?}");
            seen.push(flights_of_a_command(&world, with_all).await);
        }
    }
}

/// Who spoke, in turns, from the beginning of a connection to the end of its command.
async fn flights_of_a_command(world: &World, with_all: bool) -> Vec<Who> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let flights = Arc::new(Mutex::new(Vec::new()));
    serve(world, far, identity(world, "alice"));
    let connection =
        connect_native(Counted { stream: near, flights: flights.clone() }, settings(world, &world.own.name));
    let mut request = SessionRequest::exec("true");
    if with_all {
        let size = WindowSize::default();
        request.terminal = Some(Terminal { term: "vt100".to_owned(), size, modes: Vec::new() });
        request.environment = vec![("LANG".to_owned(), "C".to_owned())];
        request.forward_agent = true;
    }
    let mut session = connection.start(request).await.unwrap();
    session.input().eof().await.unwrap();
    loop {
        if let Output::Exit(exit) = timeout(PATIENCE, session.next()).await.unwrap().unwrap() {
            assert_eq!(exit, Exit::Status(0));
            break;
        }
    }
    let flights = flights.lock();
    flights.iter().map(|(who, _)| *who).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_flight_is_one_write() {
    let world = World::new().await;
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let connection = connect_native(near, settings(&world, &world.own.name));
    let session = connection.start(SessionRequest::exec("true")).await.unwrap();
    let mut first = BytesMut::with_capacity(64 * 1024);
    far.read_buf(&mut first).await.unwrap();
    assert!(matches!(Frame::decode(&mut first), Ok(Some(Frame::Hello(_)))));
    let Ok(Some(Frame::Open(1, Open::Session(asked)))) = Frame::decode(&mut first) else { panic!() };
    assert_eq!(asked.program, Program::Exec(b"true".to_vec()));
    drop((session, connection));
}

/// A client made of frames.
struct Raw {
    stream: DuplexStream,
    buffer: BytesMut,
}

impl Raw {
    fn new(world: &World) -> Self {
        let (stream, far) = tokio::io::duplex(1 << 20);
        serve(world, far, identity(world, "alice"));
        Self { stream, buffer: BytesMut::new() }
    }

    /// One that has said hello, and was welcomed.
    async fn welcomed(world: &World) -> Self {
        let mut raw = Self::new(world);
        let login = world.own.name.clone();
        raw.send(Frame::Hello(Hello { version: VERSION, least: VERSION, window: FIRST_WINDOW, login })).await;
        assert_eq!(raw.next().await, Some(Frame::Welcome { version: VERSION }));
        raw
    }

    async fn send(&mut self, frame: Frame) {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire).unwrap();
        // A node that has had enough may be gone.
        let _ = self.stream.write_all(&wire).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        timeout(PATIENCE, async {
            loop {
                if let Some(frame) = Frame::decode(&mut self.buffer).unwrap() {
                    return Some(frame);
                }
                if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        })
        .await
        .expect("the node says nothing")
    }

    /// The node's last words.
    async fn goodbye(&mut self) -> (Farewell, String) {
        loop {
            match self.next().await {
                Some(Frame::Goodbye { why, reason }) => return (why, reason),
                Some(_) => {}
                None => panic!("the node went without a word"),
            }
        }
    }
}

fn command(line: &str) -> Open {
    Open::Session(Box::new(request::SessionRequest::exec(line)))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_the_rules_is_told_and_gone() {
    let world = World::new().await;
    // More than any grant can have made of the window by then.
    let mut flood = vec![Frame::Open(1, command("sleep 9"))];
    flood.extend((0..80).map(|_| Frame::Data(1, Bytes::from(vec![b'x'; 64 * 1024]))));
    let cases = [
        (vec![Frame::Data(1, Bytes::from_static(b"x"))], "which was never opened"),
        (vec![Frame::Open(2, command("true"))], "the channel 2 was opened"),
        (
            vec![Frame::Open(3, command("sleep 9")), Frame::Open(1, command("true"))],
            "the channel 1 was opened",
        ),
        (flood, "more than its window"),
        (vec![Frame::Welcome { version: 1 }], "does not send"),
        (vec![Frame::Listening { request: 1, port: 1 }], "does not send"),
    ];
    for (frames, words) in cases {
        let mut raw = Raw::welcomed(&world).await;
        for frame in frames {
            raw.send(frame).await;
        }
        let (why, reason) = raw.goodbye().await;
        assert_eq!(why, Farewell::Protocol, "{reason}");
        assert!(reason.contains(words), "{reason}: {words}");
    }
    let mut raw = Raw::welcomed(&world).await;
    raw.stream.write_all(&[77, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    assert_eq!(raw.goodbye().await, (Farewell::Protocol, "unknown frame type 77".to_owned()));
    until("the end of all", || (world.server.connections_open() == 0).then_some(())).await;
    // A type that may be passed over is.
    let mut raw = Raw::welcomed(&world).await;
    raw.stream.write_all(&[0x99, 0, 0, 3, 0, 0, 0, 7, 1, 2, 3]).await.unwrap();
    raw.send(Frame::Ping(5)).await;
    assert_eq!(raw.next().await, Some(Frame::Pong(5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_without_reading_is_gone() {
    let world = World::new().await;
    let (stream, far) = tokio::io::duplex(4096);
    serve(&world, far, identity(&world, "alice"));
    let mut raw = Raw { stream, buffer: BytesMut::new() };
    let login = world.own.name.clone();
    raw.send(Frame::Hello(Hello { version: VERSION, least: VERSION, window: FIRST_WINDOW, login })).await;
    for number in 0..200_000 {
        let sent = timeout(PATIENCE, raw.send(Frame::Ping(number))).await;
        sent.expect("the node stopped reading");
        if world.server.connections_open() == 0 {
            return;
        }
    }
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hello_is_no_connection() {
    let world = World::with("", |config| config.login_timeout = Duration::from_secs(1)).await;
    for first in
        [&b"SSH-2.0-OpenSSH_10\r\n\0\0\0"[..], b"", &[4, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        let before = world.events(&Code::SessionRefused).len();
        let mut raw = Raw::new(&world);
        raw.stream.write_all(first).await.unwrap();
        assert_eq!(raw.next().await, None);
        until("the event", || (world.events(&Code::SessionRefused).len() > before).then_some(())).await;
        let event = world.event(&Code::SessionRefused).await;
        assert!(event.message.starts_with("the client said no hello: "), "{}", event.message);
        assert_eq!(event.fields["certificate"], "aa:bb");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_sent_to_ssh() {
    let world = World::new().await;
    let mut raw = Raw::new(&world);
    let login = world.own.name.clone();
    let hello = Hello { version: VERSION + 5, least: VERSION + 1, window: FIRST_WINDOW, login };
    raw.send(Frame::Hello(hello)).await;
    let (why, reason) = raw.goodbye().await;
    assert_eq!(why, Farewell::UseSsh);
    assert!(reason.contains("version 1"), "{reason}");

    // And what our client makes of such a node.
    let (near, mut far) = tokio::io::duplex(4096);
    let connection = connect_native(near, settings(&world, "x"));
    let mut wire = BytesMut::new();
    Frame::Goodbye { why: Farewell::UseSsh, reason: "not here".to_owned() }.encode(&mut wire).unwrap();
    far.write_all(&wire).await.unwrap();
    let refused = connection.welcomed().await.unwrap_err();
    assert!(matches!(&refused, ClientError::NotNative { reason, .. } if reason == "not here"), "{refused}");
    assert!(matches!(
        connection.start(SessionRequest::exec("true")).await,
        Err(ClientError::NotNative { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_is_checked_when_it_comes() {
    let world = World::new().await;
    let mut over = identity(&world, "alice");
    over.valid_before = OffsetDateTime::now_utc() - time::Duration::seconds(1);
    let mut other_logins = identity(&world, "alice");
    if let Principal::User { logins, .. } = &mut other_logins.principal {
        logins.clear();
    }
    for (identity, words) in [(over, "expired"), (other_logins, "your certificate is not for the login")] {
        let (near, far) = tokio::io::duplex(64 * 1024);
        serve(&world, far, identity);
        let connection = connect_native(near, settings(&world, &world.own.name));
        let ran = exec(&connection, "echo in").await;
        assert_eq!((ran.stdout.as_str(), ran.exit), ("", Exit::Status(255)));
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    assert!(world.events(&Code::SessionStart).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_stops_answering_is_given_up() {
    let world = World::new().await;
    let (near, _far) = tokio::io::duplex(64 * 1024);
    let mut settings = settings(&world, "x");
    settings.keepalive = Some(Duration::from_millis(50));
    let connection = connect_native(near, settings);
    let ran = run(&connection, SessionRequest::exec("true"), b"").await;
    assert_eq!(ran.exit, Exit::Lost { reason: "it stopped answering".to_owned() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_hangs_up() {
    let world = World::new().await;
    let mut raw = Raw::welcomed(&world).await;
    raw.send(Frame::Open(1, command("echo up; exec sleep 1000"))).await;
    while !matches!(raw.next().await, Some(Frame::Data(1, bytes)) if text(&bytes) == "up\n") {}
    drop(raw);
    assert_eq!(world.event(&Code::SessionEnd).await.message, "the client went away");
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_program_is_refused_and_the_connection_goes_on() {
    let world = World::new().await;
    let (near, far) = tokio::io::duplex(64 * 1024);
    serve(&world, far, identity(&world, "alice"));
    let connection = connect_native(near, settings(&world, &world.own.name));
    for program in [Program::Subsystem("other".to_owned()), Program::Exec(b"echo \0".to_vec())] {
        let ran = run(&connection, SessionRequest::new(program), b"").await;
        assert_eq!(ran.exit, Exit::Refused { explained: true });
        assert!(ran.stderr.starts_with("sallyport: "), "{}", ran.stderr);
    }
    let long = connection.start(SessionRequest::exec(vec![b'x'; 300_000])).await;
    assert!(
        matches!(&long, Err(ClientError::Refused { reason, .. }) if reason.contains("too long")),
        "{long:?}"
    );
    assert_eq!(exec(&connection, "echo on").await.stdout, "on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_ends_when_it_is_no_longer_wanted() {
    let world = World::new().await;
    let (near, far) = tokio::io::duplex(64 * 1024);
    serve(&world, far, identity(&world, "alice"));
    let connection = connect_native(near, settings(&world, &world.own.name));
    let any = sallyport_ssh::client::Endpoint::Port { host: "localhost".to_owned(), port: 0 };
    let forward = connection.forward_remote(any.clone(), any, Arc::new(|_| {})).await.unwrap();
    let sallyport_ssh::client::Endpoint::Port { port, .. } = forward.at.clone() else { panic!() };
    drop(forward);
    until("the end of the listener", || std::net::TcpListener::bind(("127.0.0.1", port)).ok()).await;
    world.event(&Code::SessionListenEnd).await;
    drop(connection);
    until("the end of the connection", || (world.server.connections_open() == 0).then_some(())).await;
}
