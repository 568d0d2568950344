//! What a flood of one-byte frames by a taken-over node costs the proxy's process, and others' connections through it meanwhile.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hyper_util::rt::TokioIo;
use sallyport_access::{ClusterName, HostRole};
use sallyport_ca::tls::client_config;
use sallyport_ca::{Trust, TrustBundle};
use sallyport_sal::tls::rustls::pki_types::ServerName;
use sallyport_wire::alpn;
use sallyport_wire::tunnel::frame::Frame;
use sallyport_wire::v1::proxy_ssh_request::Frame as Asked;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::v1::{ProxySshRequest, SshTarget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::support::{CLUSTER, Cluster, User, me, ok, target};

/// Streams that a user who works with the node has open and does not read.
const STREAMS: usize = 64;
/// What a stream lets the node send before it is read, in bytes of payload.
const CREDIT: usize = 256 * 1024;
/// What one host's tunnels may hold (SECURITY.md), and what the process takes for the rest meanwhile.
const MOST_BYTES: u64 = (96 + 64) << 20;

/// To the proxy, or the authority behind it, with a user's certificate.
pub(super) async fn tls(
    cluster: &Cluster,
    trust: &Trust,
    pair: (&str, &str),
    (protocol, role): (&[u8], HostRole),
) -> TlsStream<TcpStream> {
    let config = client_config(trust, Some(pair), &[protocol]).unwrap();
    let name = sallyport_ca::server_name(role, &ClusterName::new(CLUSTER).unwrap());
    let tcp = TcpStream::connect(cluster.proxy()).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::try_from(name).unwrap(), tcp).await.unwrap()
}

/// gRPC on a connection, with a window for each stream.
pub(super) async fn channel(stream: TlsStream<TcpStream>, window: u32) -> Channel {
    let stream = Mutex::new(Some(stream));
    let connect = tower::service_fn(move |_| {
        let taken = stream.lock().unwrap().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("lost")) }
    });
    let endpoint = Endpoint::from_static("http://proxy.invalid").initial_stream_window_size(window);
    endpoint.connect_with_connector(connect).await.unwrap()
}

fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t']).split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// Commands of another user through the proxy, until told to stop; how long each took.
fn others(bob: &User, stop: &AtomicBool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) || took.len() < 5 {
        let began = Instant::now();
        let mut command = bob.command(&["ssh", &target("web-1"), "true"]);
        ok(command.env("SALLYPORT_CONNECT", "off").output().unwrap());
        took.push(began.elapsed());
    }
    took.sort();
    took
}

fn told(took: &[Duration]) -> String {
    let median = took[took.len() / 2];
    format!("{} commands, median {median:?}, longest {:?}", took.len(), took[took.len() - 1])
}

#[test]
fn a_flood_of_one_byte_frames_costs_the_process_its_bound_and_others_little() {
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    cluster.add_node("evil", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    let bob = cluster.add_user("bob", "access", &me());
    let identity = fs::read(cluster.path("node-evil/node/identity.json")).unwrap();
    let identity: serde_json::Value = serde_json::from_slice(&identity).unwrap();
    let bundle: TrustBundle = serde_json::from_value(identity["trust"].clone()).unwrap();
    let trust = Trust::from_bundle(&bundle).unwrap();
    let text = |name: &str| identity[name].as_str().unwrap().to_owned();
    let pair = (text("tls_chain"), text("tls_key"));
    cluster.node("evil").kill_9();
    let proxy = cluster.node("proxy").child.id();
    let quiet = others(&bob, &AtomicBool::new(true));
    let before = status(proxy, "VmRSS");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut hostile =
        runtime.block_on(tls(&cluster, &trust, (&pair.0, &pair.1), (alpn::TUNNEL, HostRole::Proxy)));
    let (chain, key) = alice.tls_files();
    let (chain, key) = (fs::read_to_string(chain).unwrap(), fs::read_to_string(key).unwrap());
    let (calls, ids) = runtime.block_on(async {
        // It takes nothing: the window is smaller than any answer.
        let to_proxy = (alpn::H2, HostRole::Proxy);
        let channel = channel(tls(&cluster, &trust, (&chain, &key), to_proxy).await, 1024).await;
        let mut calls = Vec::new();
        while calls.len() < STREAMS {
            let (send, receive) = mpsc::channel(4);
            let asked = SshTarget { node: "evil".to_owned(), login: me(), ..SshTarget::default() };
            send.send(ProxySshRequest { frame: Some(Asked::Target(asked)) }).await.unwrap();
            let mut client = TransportClient::new(channel.clone());
            match client.proxy_ssh(ReceiverStream::new(receive)).await {
                Ok(answers) => calls.push((send, answers)),
                // The proxy may not know yet that the node's own tunnel has gone.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        let mut ids = Vec::new();
        let mut wire = BytesMut::new();
        while ids.len() < STREAMS {
            while let Some(frame) = Frame::decode(&mut wire).unwrap() {
                if let Frame::Open(id, _) = frame {
                    ids.push(id);
                }
            }
            if ids.len() < STREAMS {
                assert!(hostile.read_buf(&mut wire).await.unwrap() > 0);
            }
        }
        (calls, ids)
    });
    let stop = Arc::new(AtomicBool::new(false));
    let flooding = Arc::clone(&stop);
    let began = Instant::now();
    let flood = runtime.spawn(async move {
        let mut sent = 0;
        for id in ids {
            let mut frames = BytesMut::with_capacity(CREDIT * 10);
            for _ in 0..CREDIT - 1024 {
                Frame::Data(id, Bytes::from_static(b"x")).encode(&mut frames);
            }
            sent += frames.len();
            // The tunnel may be ended for it; that is an answer, too.
            if hostile.write_all(&frames).await.is_err() {
                break;
            }
        }
        flooding.store(true, Ordering::Relaxed);
        (sent, hostile)
    });
    let took = others(&bob, &stop);
    let (sent, hostile) = runtime.block_on(flood).unwrap();
    let peak = status(proxy, "VmHWM");
    println!(
        "a flood of {} MiB in {:?}: the proxy's memory grew from {} MiB to {} MiB at the most",
        sent >> 20,
        began.elapsed(),
        before >> 20,
        peak >> 20,
    );
    println!("others before: {}; meanwhile: {}", told(&quiet), told(&took));
    assert!(peak - before < MOST_BYTES, "from {before} to {peak} bytes");
    drop((calls, hostile));
}
