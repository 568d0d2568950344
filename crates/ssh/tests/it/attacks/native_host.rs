//! A node that a user goes to by its native door, and that says whatever it likes: it gets nothing of the user's machine that
//! was not offered, costs it no memory, and ends no other way than a session does.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sallyport_ssh::client::{Connection, Endpoint, Exit, Output, SessionRequest, Settings, connect_native};
use sallyport_ssh::native::frame::{Farewell, Frame, Hello, Lacks, Open, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::endpoint::cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(30);

/// The node's end: frames as bytes allow them.
struct Host {
    stream: DuplexStream,
    heard: BytesMut,
}

impl Host {
    async fn say(&mut self, frame: &Frame) {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire).unwrap();
        // A client that has had enough reads no more.
        let _ = self.stream.write_all(&wire).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.heard).unwrap() {
                return Some(frame);
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.heard)).await.unwrap();
            if read.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Up to the first frame that fits.
    async fn until<T>(&mut self, fits: impl Fn(&Frame) -> Option<T>) -> T {
        loop {
            let frame = self.next().await.expect("the client has ended the connection");
            if let Some(found) = fits(&frame) {
                return found;
            }
        }
    }
}

/// A client with a session whose agent would be at that socket, and the node that it is connected to.
async fn connected(
    agent: Option<&std::path::Path>,
    forwarded: bool,
) -> (Connection, sallyport_ssh::client::Session, Host) {
    let (near, far) = duplex(1 << 20);
    let settings = Settings {
        login: "root".to_owned(),
        host: "web-1".to_owned(),
        trust: Arc::new(Cluster::new().trust),
        keepalive: None,
        agent: agent.map(std::path::Path::to_owned),
    };
    let connection = connect_native(near, settings);
    let mut request = SessionRequest::exec("true");
    request.forward_agent = forwarded;
    let session = connection.start(request).await.unwrap();
    let mut host = Host { stream: far, heard: BytesMut::new() };
    host.until(|frame| matches!(frame, Frame::Open(1, _)).then_some(())).await;
    host.say(&Frame::Welcome { version: VERSION }).await;
    host.say(&Frame::Started(1, Lacks::default())).await;
    (connection, session, host)
}

/// How the session ends.
async fn exit(mut session: sallyport_ssh::client::Session) -> Exit {
    loop {
        match timeout(PATIENCE, session.next()).await.unwrap() {
            Some(Output::Exit(exit)) => return exit,
            Some(_) => {}
            None => panic!("a session without an end"),
        }
    }
}

#[tokio::test]
async fn it_opens_nothing_that_was_not_offered() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent");
    let agent = UnixListener::bind(&socket).unwrap();
    let listening = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listening.local_addr().unwrap().port();
    let (_connection, session, mut host) = connected(Some(&socket), false).await;
    let from = || ("192.0.2.1".to_owned(), 1);
    let to = || Endpoint::Port { host: "127.0.0.1".to_owned(), port };
    let session_again = Frame::Open(1, Open::Agent);
    let unasked = [
        Open::Agent,
        Open::X11 { from: from() },
        Open::Forwarded { at: to(), from: from() },
        Open::Forwarded { at: Endpoint::Socket { path: socket.display().to_string() }, from: from() },
        Open::Direct { to: to(), from: from() },
        Open::Direct { to: Endpoint::Socket { path: socket.display().to_string() }, from: from() },
    ];
    for (number, what) in (1..).zip(unasked) {
        let id = 2 * number;
        host.say(&Frame::Open(id, what.clone())).await;
        let refused = host.until(|frame| match frame {
            Frame::Refused(of, reason) if *of == id => Some(Some(reason.clone())),
            Frame::Opened(of) if *of == id => Some(None),
            _ => None,
        });
        assert!(refused.await.is_some(), "{what:?} was let in");
        // What it says there all the same goes nowhere.
        host.say(&Frame::Data(id, Bytes::from_static(b"\0\0\0\x01\x0b"))).await;
    }
    tokio::select! {
        biased;
        _ = agent.accept() => panic!("the agent was reached"),
        _ = listening.accept() => panic!("a port of this machine was reached"),
        () = tokio::task::yield_now() => {}
    }
    // The session itself is none the worse.
    host.say(&Frame::Data(1, Bytes::from_static(b"out"))).await;
    host.say(&Frame::ExitStatus(1, 7)).await;
    host.say(&Frame::Close(1)).await;
    assert_eq!(exit(session).await, Exit::Status(7));
    // A number of the client's own is not the node's to open.
    let (_connection, session, mut host) = connected(None, false).await;
    host.say(&session_again).await;
    assert!(matches!(exit(session).await, Exit::Lost { .. }));
}

#[tokio::test]
async fn a_forwarded_agent_is_told_so_before_the_node_has_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent");
    let agent = UnixListener::bind(&socket).unwrap();
    let (_connection, _session, mut host) = connected(Some(&socket), true).await;
    host.say(&Frame::Open(2, Open::Agent)).await;
    host.say(&Frame::Data(2, Bytes::from_static(b"\0\0\0\x01\x0b"))).await;
    let (mut stream, _) = timeout(PATIENCE, agent.accept()).await.unwrap().unwrap();
    let mut head = [0; 5];
    timeout(PATIENCE, stream.read_exact(&mut head)).await.unwrap().unwrap();
    // SSH_AGENTC_EXTENSION, with session-bind@openssh.com: the agent keeps from this connection what is bound to other hosts.
    assert_eq!(head[4], 27);
    let mut rest = vec![0; u32::from_be_bytes(head[..4].try_into().unwrap()) as usize - 1];
    timeout(PATIENCE, stream.read_exact(&mut rest)).await.unwrap().unwrap();
    let name = b"session-bind@openssh.com";
    assert_eq!(&rest[4..4 + name.len()], name);
    assert_eq!(rest.last(), Some(&1), "is_forwarding");
}

#[tokio::test]
async fn what_breaks_the_rules_ends_the_connection_and_is_said() {
    let frames: [(&str, Vec<Frame>); 9] = [
        ("another version", vec![Frame::Welcome { version: VERSION + 1 }]),
        ("an answer to no question", vec![Frame::Listening { request: 9, port: 22 }]),
        ("a refusal of no question", vec![Frame::NotListening { request: 9, reason: String::new() }]),
        (
            "a client's words",
            vec![Frame::Hello(Hello { version: 1, least: 1, window: 1 << 20, login: "root".to_owned() })],
        ),
        (
            "a client's question",
            vec![Frame::Listen { request: 1, at: Endpoint::Port { host: String::new(), port: 0 } }],
        ),
        ("a channel that never was", vec![Frame::Data(77, Bytes::from_static(b"x"))]),
        ("one twice", vec![Frame::Open(2, Open::Agent), Frame::Open(2, Open::Agent)]),
        ("one of before", vec![Frame::Open(4, Open::Agent), Frame::Open(2, Open::Agent)]),
        ("more than the window", (0..100).map(|_| Frame::Data(1, Bytes::from(vec![0; 64 * 1024]))).collect()),
    ];
    for (what, frames) in frames {
        // The session's output is not read: the window stays as it is.
        let (_connection, session, mut host) = connected(None, false).await;
        for frame in &frames {
            host.say(frame).await;
        }
        let farewell = host.until(|frame| match frame {
            Frame::Goodbye { why, reason } => Some((*why, reason.clone())),
            _ => None,
        });
        let (why, reason) = farewell.await;
        assert_eq!(why, Farewell::Protocol, "{what}: {reason}");
        assert!(!reason.is_empty(), "{what}");
        let exit = exit(session).await;
        assert!(matches!(exit, Exit::Lost { .. }), "{what}: {exit:?}");
    }
}

#[tokio::test]
async fn one_that_asks_and_does_not_read_is_not_answered_without_end() {
    let (_connection, session, mut host) = connected(None, false).await;
    let mut ping = BytesMut::new();
    for number in 0..4096 {
        Frame::Ping(number).encode(&mut ping).unwrap();
    }
    // 64 times what the client keeps of answers, of which none is read.
    for _ in 0..256 {
        if host.stream.write_all(&ping).await.is_err() {
            break;
        }
    }
    let exit = exit(session).await;
    let Exit::Lost { reason } = &exit else { panic!("{exit:?}") };
    assert!(reason.contains("more was asked for than answers are read"), "{reason}");
}
