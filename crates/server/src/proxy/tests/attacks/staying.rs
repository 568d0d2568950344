//! Attacks on what the proxy passes through: a client that was let in tries to stay when it may not any more.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sallyport_access::HostRole;
use sallyport_audit::event::MemorySink;
use sallyport_ca::server_name;
use sallyport_wire::v1::proxy_database_request::Frame as AskDatabase;
use sallyport_wire::v1::proxy_ssh_request::Frame as Ask;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::{alpn, tunnel, v1};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_stream::wrappers::ReceiverStream;

use crate::proxy::tests::rig::{PATIENCE, Pair, Rig, channel_of, role, until};
use crate::proxy::watcher::{Session, Watcher};

/// How a client came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// `sallyport ssh`, `sallyport ssh` to the node's native door, and to join.
    Grpc,
    Native,
    Join,
    Quic,
    /// `ssh -J`.
    Jump,
    /// `sallyport db connect`, and a PostgreSQL client with TLS of its own.
    GrpcDatabase,
    Postgres,
}

/// The lock of a denied certificate.
const DENIED: (&str, &str) = ("login_id", "LOGIN_ID");

const WAYS: [By; 7] = [By::Grpc, By::Native, By::Join, By::Quic, By::Jump, By::GrpcDatabase, By::Postgres];

impl By {
    /// Locks that end it: key and value, with what is to be filled in for the user. That on the login is what denying a
    /// certificate by its serial number makes (`sallyport admin certs deny`).
    fn locks(self) -> Vec<(&'static str, &'static str)> {
        let mut locks = vec![("user", "USER"), DENIED, ("role", "dev")];
        match self {
            Self::Grpc | Self::Native | Self::Quic => locks.extend([("node", "web-1"), ("login", "deploy")]),
            // The login is inside the SSH that passes through.
            Self::Jump | Self::Join => locks.push(("node", "web-1")),
            Self::GrpcDatabase | Self::Postgres => locks.push(("db", "prod")),
        }
        locks
    }
}

/// What the client does when the lock comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Nothing, and nothing comes for it.
    Idle,
    /// It takes nothing that comes for it, while the connection goes on.
    StopsReading,
    /// It had no window from the beginning: its streams where they have one, else its socket.
    NoWindow,
    /// Its machine takes nothing off the wire any more.
    Deaf,
    /// It has said everything.
    HalfClosed,
}

const CLIENTS: [Client; 4] = [Client::StopsReading, Client::NoWindow, Client::Deaf, Client::HalfClosed];

/// A connection that can stop taking what comes.
struct Stalling {
    tcp: Box<dyn Io>,
    stalled: Arc<AtomicBool>,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.stalled.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, data)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

fn startup() -> Bytes {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", "reader", "database", "app", "options", "-c sallyport.database=prod", ""] {
        body.extend_from_slice(text.as_bytes());
        body.push(0);
    }
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&length[..], &body].concat().into()
}

/// A connection of a client whose socket has hardly any room, where that is asked for.
async fn dial(rig: &Rig, client: Client) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    if client == Client::NoWindow {
        socket.set_recv_buffer_size(4096).unwrap();
    }
    socket.connect(rig.address).await.unwrap()
}

/// An address at which the proxy is reached by UDP until the client's machine takes no more.
async fn through_udp(rig: &Rig, stalled: &Arc<AtomicBool>) -> std::net::SocketAddr {
    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    back.connect(rig.address).await.unwrap();
    let (address, stalled) = (front.local_addr().unwrap(), Arc::clone(stalled));
    tokio::spawn(async move {
        let (mut client, mut there, mut here) = (None, [0; 2048], [0; 2048]);
        loop {
            tokio::select! {
                Ok((length, from)) = front.recv_from(&mut there) => {
                    client = Some(from);
                    let _ = back.send(&there[..length]).await;
                }
                Ok(length) = back.recv(&mut here) => {
                    if let Some(client) = client.filter(|_| !stalled.load(Ordering::Relaxed)) {
                        let _ = front.send_to(&here[..length], client).await;
                    }
                }
            }
        }
    });
    address
}

/// Goes in; gives what has to be kept for the client to be there.
async fn enter(
    rig: &Rig,
    by: By,
    client: Client,
    who: &Pair,
    stalled: &Arc<AtomicBool>,
) -> Box<dyn Any + Send> {
    let stalling = |tcp: Box<dyn Io>| Stalling { tcp, stalled: Arc::clone(stalled) };
    let window = if client == Client::NoWindow { 0 } else { 64 * 1024 };
    let grpc = async |quic: bool| {
        let line: Box<dyn Io> = match quic {
            true => {
                let address = through_udp(rig, stalled).await;
                Box::new(rig.quic_at(address, Some(who), &[alpn::H2_BY_QUIC]).await.unwrap())
            }
            false => Box::new(rig.tls_to_proxy(Some(who), &[alpn::H2]).await.unwrap()),
        };
        TransportClient::new(channel_of(stalling(line), window).await.unwrap())
    };
    match by {
        By::Grpc | By::Native | By::Join | By::Quic => {
            let mut transport = grpc(by == By::Quic).await;
            let (send, receive) = mpsc::channel(16);
            let login = if by == By::Join { "sallyport-join" } else { "deploy" };
            let target = v1::SshTarget {
                node: "web-1".to_owned(),
                login: login.to_owned(),
                agent: false,
                timed: false,
                native: by == By::Native,
                word: None,
            };
            for frame in [Ask::Target(target), Ask::Ssh(Bytes::from_static(b"hello"))] {
                send.send(v1::ProxySshRequest { frame: Some(frame) }).await.unwrap();
            }
            let answers = transport.proxy_ssh(ReceiverStream::new(receive)).await.unwrap().into_inner();
            let send = (client != Client::HalfClosed).then_some(send);
            Box::new((transport, answers, send))
        }
        By::GrpcDatabase => {
            let mut transport = grpc(false).await;
            let (send, receive) = mpsc::channel(16);
            let target = v1::DatabaseTarget { database: "prod".to_owned(), ..Default::default() };
            for frame in [AskDatabase::Target(target), AskDatabase::Data(startup())] {
                send.send(v1::ProxyDatabaseRequest { frame: Some(frame) }).await.unwrap();
            }
            let answers = transport.proxy_database(ReceiverStream::new(receive)).await.unwrap().into_inner();
            let send = (client != Client::HalfClosed).then_some(send);
            Box::new((transport, answers, send))
        }
        By::Postgres => {
            let name = ServerName::try_from(server_name(HostRole::Proxy, &rig.cluster)).unwrap();
            let config = Arc::new(rig.tls(Some(who), &[alpn::POSTGRESQL]));
            let line = stalling(Box::new(dial(rig, client).await));
            let mut line = TlsConnector::from(config).connect(name, line).await.unwrap();
            line.write_all(&startup()).await.unwrap();
            line.flush().await.unwrap();
            if client == Client::HalfClosed {
                line.shutdown().await.unwrap();
            }
            Box::new(line)
        }
        By::Jump => {
            use sallyport_ssh::client::{Credentials, Settings, connect_to_proxy};
            let tcp = dial(rig, client).await;
            let credentials = Credentials::from_openssh(&who.ssh_key, &who.ssh_certificate).unwrap();
            let settings = Settings {
                login: "alice".to_owned(),
                host: "127.0.0.1".to_owned(),
                trust: Arc::new(rig.trust()),
                keepalive: None,
                agent: None,
            };
            let connection = connect_to_proxy(stalling(Box::new(tcp)), &credentials, settings).await.unwrap();
            let origin = "127.0.0.1:1".parse().unwrap();
            let mut stream = connection.open_direct("web-1", 22, origin).await.unwrap();
            if client == Client::HalfClosed {
                stream.shutdown().await.unwrap();
            }
            Box::new((connection, stream))
        }
    }
}

/// The node's end of a session, with all that it has to say.
struct Inside {
    /// Ends with the session.
    over: tokio::task::JoinHandle<()>,
    written: Arc<std::sync::atomic::AtomicU64>,
}

fn inside(stream: tunnel::Stream, floods: bool, until_eof: bool) -> Inside {
    let written: Arc<std::sync::atomic::AtomicU64> = Arc::default();
    let count = Arc::clone(&written);
    let (mut from, mut to) = tokio::io::split(stream);
    let over = tokio::spawn(async move {
        let reading = async {
            let mut buffer = [0; 4096];
            loop {
                match from.read(&mut buffer).await {
                    Ok(0) if until_eof => std::future::pending().await,
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        let block = if floods { vec![0; 64 * 1024] } else { vec![0; 1] };
        let writing = async {
            while let Ok(wrote) = to.write(&block).await {
                count.fetch_add(wrote as u64, Ordering::Relaxed);
                if !floods {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::select! {
            () = reading => {}
            () = writing, if floods || until_eof => {}
        }
    });
    Inside { over, written }
}

/// Whether nothing has gone on for a moment.
async fn stands_still(inside: &Inside) {
    let mut before = u64::MAX;
    loop {
        let now = inside.written.load(Ordering::Relaxed);
        if now == before && now > 0 {
            return;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_every_way_in_whatever_its_client_does() {
    let mut ways: tokio::task::JoinSet<usize> = WAYS.into_iter().map(a_lock_ends).collect();
    let mut cases = 0;
    while let Some(way) = ways.join_next().await {
        cases += way.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    }
    assert!(cases > 110, "{cases} cases");
}

/// Every client of one way, and every lock on it; gives how many cases that were.
async fn a_lock_ends(by: By) -> usize {
    let rig = Rig::new().await;
    let databases = "    db_labels:\n      env: test\n    db_names: [app]\n    db_users: [reader]\n    \
                     join_sessions:\n      - roles: ['*']\n        modes: [observer]\n";
    rig.put("role", "dev", &role("dev", "[alice, deploy]", databases));
    rig.put(
        "db",
        "prod",
        "kind: db\nversion: v1\nmetadata: {name: prod, labels: {env: test}}\nspec: {address: 'db.internal:5432', via: [web-1]}\n",
    );
    let id = rig.know("web-1");
    let (mut _tunnel, mut incoming) = rig.tunnel(id, "web-1").await;
    let mut number = 0;
    let locks = by.locks();
    let idle = locks.iter().map(|lock| (Client::Idle, *lock));
    let last = *locks.last().unwrap();
    let others = CLIENTS.iter().flat_map(|client| [locks[0], DENIED, last].map(|lock| (*client, lock)));
    for (client, (key, value)) in idle.chain(others) {
        number += 1;
        let name = format!("user-{number}");
        let case = format!("{by:?}, {client:?}, a lock on {key}");
        let who = rig.user(&name);
        let stalled = Arc::new(AtomicBool::new(false));
        let held = tokio::time::timeout(PATIENCE, enter(&rig, by, client, &who, &stalled))
            .await
            .unwrap_or_else(|_| panic!("no way in: {case}"));
        let (_, stream) = tokio::time::timeout(PATIENCE, incoming.next()).await.unwrap().unwrap();
        assert!(rig.service.sessions.open() > 0, "{case}");
        // A client whose socket has no room is one that does not empty it.
        let deaf =
            client == Client::Deaf || (client == Client::NoWindow && matches!(by, By::Jump | By::Postgres));
        stalled.store(deaf, Ordering::Relaxed);
        let floods = !matches!(client, Client::Idle | Client::HalfClosed);
        let inside = inside(stream, floods, client == Client::HalfClosed);
        if floods {
            tokio::time::timeout(PATIENCE, stands_still(&inside)).await.unwrap();
        }
        let value = value.replace("USER", &name).replace("LOGIN_ID", &who.login_id.to_string());
        let yaml = format!(
            "kind: lock\nversion: v1\nmetadata:\n  name: away\nspec:\n  target:\n    {key}: {value}\n"
        );
        let began = Instant::now();
        rig.put("lock", "away", &yaml);
        assert!(
            tokio::time::timeout(Duration::from_secs(5), inside.over).await.is_ok(),
            "the session goes on: {case}"
        );
        until(&format!("the session to count no more: {case}"), || rig.service.sessions.open() == 0).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{case}");
        if key == "node" {
            // It takes the tunnel along.
            until("the end of the tunnel", || rig.service.hub.tunnels(&id) == 0).await;
        }
        rig.delete("lock", "away");
        drop(held);
        if key == "node" {
            (_tunnel, incoming) = rig.tunnel(id, "web-1").await;
        }
    }
    number
}

#[tokio::test]
async fn a_lock_between_the_decision_and_the_watch_is_seen() {
    let rig = Rig::new().await;
    let id = rig.know("web-1");
    let who = rig.user("alice");
    let trust = rig.trust();
    let certificate = sallyport_ca::keys::certificate(&who.ssh_certificate).unwrap();
    let identity = trust.verify_user_ssh(&certificate, OffsetDateTime::now_utc()).unwrap();
    // It was let in a moment ago. Nothing changes after the lock.
    rig.put(
        "lock",
        "away",
        "kind: lock\nversion: v1\nmetadata:\n  name: away\nspec:\n  target:\n    user: alice\n",
    );
    let (view, node) = (Arc::clone(&rig.service.view), rig.service.view.node(&id).unwrap());
    let sink = Arc::new(MemorySink::default());
    let session = Session::with_node(view, Arc::new(identity), node, None, sink);
    let (ended, is_ended) = tokio::sync::oneshot::channel();
    let mut watcher = Watcher::new(session, None, move |reason| drop(ended.send(reason.to_owned())));
    let reason = tokio::time::timeout(PATIENCE, is_ended).await.unwrap().unwrap();
    assert!(reason.starts_with("session ended:"), "{reason}");
    assert!(std::future::poll_fn(|context| Poll::Ready(watcher.poll_cut(context))).await.is_some());
}
