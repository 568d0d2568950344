//! The proxy by QUIC: what TCP does, done by the other carrier, and what only UDP has to fear.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_access::{HostId, HostRole};
use sallyport_wire::alpn;
use sallyport_wire::carrier::Stream;
use sallyport_wire::tunnel::{self, Tunnel};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::rig::{Call, PATIENCE, Pair, Rig, channel, open, rest, until};
use crate::config::Limits;

pub(super) const GRPC: &[&[u8]] = &[alpn::H2_BY_QUIC];

/// A UDP port in front of the proxy, as an address translator is.
pub(super) struct Translator {
    pub(super) address: SocketAddr,
    /// What came from the client until its first answer.
    pub(super) first_flight: Arc<Mutex<Vec<Vec<u8>>>>,
    /// What may go to the proxy, and back.
    pub(super) passing: Arc<[AtomicBool; 2]>,
    /// The first byte of the proxy's first answer.
    first_answer: Arc<AtomicU8>,
    outside: watch::Sender<Arc<UdpSocket>>,
    task: JoinHandle<()>,
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn socket() -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap())
}

impl Translator {
    pub(super) async fn new(proxy: SocketAddr) -> Self {
        let (inside, first) = (socket().await, socket().await);
        let address = inside.local_addr().unwrap();
        let first_flight: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let (outside, mut current) = watch::channel(first);
        let first_answer = Arc::new(AtomicU8::new(0));
        let (kept, kind) = (Arc::clone(&first_flight), Arc::clone(&first_answer));
        let passing = Arc::new([true, true].map(AtomicBool::new));
        let open = Arc::clone(&passing);
        let task = tokio::spawn(async move {
            let (mut client, mut answered) = (None, false);
            let (mut out, mut back) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                let far = Arc::clone(&current.borrow_and_update());
                tokio::select! {
                    Ok((length, from)) = inside.recv_from(&mut out) => {
                        client = Some(from);
                        if !answered {
                            kept.lock().push(out[..length].to_vec());
                        }
                        if open[0].load(Ordering::Relaxed) {
                            let _ = far.send_to(&out[..length], proxy).await;
                        }
                    }
                    Ok((length, _)) = far.recv_from(&mut back) => {
                        if !open[1].load(Ordering::Relaxed) {
                            continue;
                        }
                        if !answered {
                            kind.store(back[0], Ordering::Relaxed);
                        }
                        answered = true;
                        if let Some(client) = client {
                            let _ = inside.send_to(&back[..length], client).await;
                        }
                    }
                    _ = current.changed() => {}
                }
            }
        });
        Self { address, first_flight, passing, first_answer, outside, task }
    }

    /// From now on the proxy sees another address.
    async fn moves(&self) {
        self.outside.send(socket().await).unwrap();
    }
}

async fn session(rig: &Rig, address: SocketAddr, who: &Pair, node: &str) -> Call {
    let stream = rig.quic_at(address, Some(who), GRPC).await.unwrap();
    open(channel(stream).await.unwrap(), node, "alice").await.unwrap()
}

/// The proxy says nothing to it: the connection ends, or none comes to be.
async fn refused(connecting: impl Future<Output = Result<Stream, sallyport_wire::carrier::CarrierError>>) {
    let connecting = tokio::time::timeout(PATIENCE, connecting).await.expect("an answer in time");
    if let Ok(mut stream) = connecting {
        // TLS 1.3: a client is done before the server has looked at its certificate.
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert_eq!(rest(&mut stream).await, b"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_by_quic_and_much_goes_both_ways() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let mut call = session(&rig, rig.address, &rig.user("alice"), "web-1").await;
    assert_eq!(call.connected.node_name, "web-1");
    let (chunk, chunks) = (vec![7; 64 * 1024], 128);
    let sender = call.sender();
    let sending = tokio::spawn({
        let chunk = chunk.clone();
        async move {
            for _ in 0..chunks {
                let frame = Some(sallyport_wire::v1::proxy_ssh_request::Frame::Ssh(chunk.clone().into()));
                sender.send(sallyport_wire::v1::ProxySshRequest { frame }).await.unwrap();
            }
        }
    });
    let all = call.read(chunk.len() * chunks).await;
    sending.await.unwrap();
    assert!(all.len() == chunk.len() * chunks && all.iter().all(|byte| *byte == 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_prove_itself_gets_nothing() {
    let (rig, other) = (Rig::new().await, Rig::new().await);
    rig.echo("web-1").await;
    let long_ago = OffsetDateTime::now_utc() - time::Duration::hours(3);
    refused(rig.quic(Some(&rig.user_at("alice", long_ago)), GRPC)).await;
    refused(rig.quic(None, GRPC)).await;
    refused(rig.quic(Some(&other.user("alice")), GRPC)).await;
    // What TLS on TCP speaks is not spoken here.
    for protocol in [alpn::H2, alpn::AUTH, alpn::POSTGRESQL] {
        assert!(rig.quic(Some(&rig.user("alice")), &[protocol]).await.is_err());
    }
    // A client believes none but its cluster's proxy.
    assert!(other.quic_at(rig.address, Some(&other.user("alice")), GRPC).await.is_err());
    let node = rig.host(HostId::new(), "web-2", HostRole::Node);
    let stream = rig.quic(Some(&node), GRPC).await.unwrap();
    let denied = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert_eq!(denied.code(), tonic::Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_what_goes_by_quic() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let alice = rig.user("alice");
    let mut call = session(&rig, rig.address, &alice, "web-1").await;
    call.send("hello").await;
    assert_eq!(call.read(5).await, b"hello");
    let lock = "kind: lock\nversion: v1\nmetadata:\n  name: out\nspec:\n  target:\n    user: alice\n  message: gone\n";
    rig.put("lock", "out", lock);
    assert_eq!(call.failure().await.code(), tonic::Code::PermissionDenied);
    let stream = rig.quic(Some(&alice), GRPC).await.unwrap();
    let denied = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert_eq!(denied.code(), tonic::Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_carriers_count_against_one_limit() {
    let limits = Limits { connections_per_address: 3, connections_per_user: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let (_node, alice, bob) = (rig.echo("web-1").await, rig.user("alice"), rig.user("bob"));
    let first = rig.quic(Some(&alice), GRPC).await.unwrap();
    let mut first = channel(first).await.map(|channel| open_echo(channel, "web-1")).unwrap().await;
    let _second = rig.channel(&alice).await;
    let third = async || {
        let stream = rig.quic(Some(&alice), GRPC).await.unwrap();
        open(channel(stream).await.unwrap(), "web-1", "alice").await
    };
    let refused = third().await.err().unwrap();
    assert_eq!(
        refused.code(),
        tonic::Code::ResourceExhausted,
        "one by QUIC and one by TCP are two: {refused:?}"
    );
    first.send("still here").await;
    assert_eq!(first.read(10).await, b"still here");
    drop(first);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while third().await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "a place comes free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Strangers count for the address: those by TCP are in the way of those by QUIC.
    let mut strangers = Vec::new();
    while rig.quic(Some(&bob), GRPC).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "the address has no bound");
        strangers.push(tokio::net::TcpStream::connect(rig.address).await.unwrap());
    }
    drop(strangers);
    while rig.quic(Some(&bob), GRPC).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "a place comes free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn open_echo(channel: tonic::transport::Channel, node: &str) -> Call {
    open(channel, node, "alice").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_on_when_its_client_moves() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let translator = Translator::new(rig.address).await;
    let mut call = session(&rig, translator.address, &rig.user("alice"), "web-1").await;
    for round in 0..4_u8 {
        let text = vec![round; 100_000];
        call.send(text.clone()).await;
        assert!(call.read(text.len()).await == text, "after {round} moves");
        translator.moves().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_flight_that_is_sent_again_begins_nothing() {
    let rig = Rig::new().await;
    let (id, node) = rig.echo("web-1").await;
    let translator = Translator::new(rig.address).await;
    let alice = rig.user("alice");
    let mut call = session(&rig, translator.address, &alice, "web-1").await;
    let flight = translator.first_flight.lock().clone();
    assert!(!flight.is_empty());
    let again = async |sender: &UdpSocket| {
        for datagram in &flight {
            sender.send_to(datagram, rig.address).await.unwrap();
        }
    };
    // While the connection is there, it is known to have had these packets.
    let sender = socket().await;
    again(&sender).await;
    call.send("old").await;
    assert_eq!(call.read(3).await, b"old");
    assert_eq!((rig.service.sessions.open(), node.streams()), (1, 1), "{id}");
    drop(call);
    until("the end", || rig.service.sessions.open() == 0).await;
    // Later it is a handshake like any other, which an attacker who replays it cannot finish.
    let (mut answer, deadline) = ([0; 2048], tokio::time::Instant::now() + PATIENCE);
    loop {
        again(&sender).await;
        let answered = tokio::time::timeout(Duration::from_millis(50), sender.recv(&mut answer)).await;
        if answered.is_ok() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the proxy answers");
    }
    assert_eq!((rig.service.sessions.open(), node.streams()), (0, 0), "{id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_many_half_open_a_client_proves_its_address_first() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let alice = rig.user("alice");
    // Clients that hear no answer.
    let (inside, outside) = (socket().await, socket().await);
    let deaf = inside.local_addr().unwrap();
    let proxy = rig.address;
    let forwarding = tokio::spawn(async move {
        let mut datagram = vec![0; 65_536];
        while let Ok((length, _)) = inside.recv_from(&mut datagram).await {
            let _ = outside.send_to(&datagram[..length], proxy).await;
        }
    });
    let waiting: Vec<_> = (0..80).map(|_| rig.quic_at(deaf, Some(&alice), GRPC)).collect();
    let waiting = futures::future::join_all(waiting);
    let served = async {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let translator = Translator::new(rig.address).await;
            let mut call = session(&rig, translator.address, &alice, "web-1").await;
            call.send("new").await;
            assert_eq!(call.read(3).await, b"new");
            // A long header of the type Retry (RFC 9000 §17.2.5).
            if translator.first_answer.load(Ordering::Relaxed) & 0xf0 == 0xf0 {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "no client is asked to prove its address");
        }
    };
    tokio::select! {
        _ = waiting => panic!("they hear no answer"),
        () = served => {}
    }
    forwarding.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_does_no_harm() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let sender = socket().await;
    let mut state: u32 = 1;
    for length in (0..1_400).step_by(7).chain([20_000, 60_000]) {
        let mut datagram: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        // Long headers, of QUIC's first version and of others.
        if length > 5 && length % 2 == 0 {
            datagram[..5].copy_from_slice(&[0xc3, 0, 0, 0, u8::from(length % 4 == 0)]);
        }
        sender.send_to(&datagram, rig.address).await.unwrap();
    }
    let mut call = session(&rig, rig.address, &rig.user("alice"), "web-1").await;
    call.send("fine").await;
    assert_eq!(call.read(4).await, b"fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_goes_by_quic_and_lives_on_when_its_node_moves() {
    let rig = Rig::new().await;
    let id = rig.know("web-1");
    let pair = rig.host(id, "web-1", HostRole::Node);
    let translator = Translator::new(rig.address).await;
    let stream = rig.quic_at(translator.address, Some(&pair), &[alpn::TUNNEL]).await.unwrap();
    let (_handle, mut incoming) = Tunnel::client(stream, tunnel::Config::default());
    until("the tunnel", || rig.service.hub.tunnels(&id) == 1).await;
    tokio::spawn(async move {
        while let Some((_, stream)) = incoming.next().await {
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
        }
    });
    let mut call = session(&rig, rig.address, &rig.user("alice"), "web-1").await;
    call.send("through").await;
    assert_eq!(call.read(7).await, b"through");
    // It lives on when the node's machine moves, which the proxy sees by the next packet from there.
    translator.moves().await;
    let text = vec![1; 100_000];
    call.send(text.clone()).await;
    assert!(call.read(text.len()).await == text);
    // Users have no tunnels.
    let user = rig.user("alice");
    refused(rig.quic(Some(&user), &[alpn::TUNNEL])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_stops_says_so() {
    let rig = Rig::new().await;
    let mut stream = rig.quic(Some(&rig.user("alice")), GRPC).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    rig.drain.cancel();
    rig.stop.cancel();
    rest(&mut stream).await;
}
