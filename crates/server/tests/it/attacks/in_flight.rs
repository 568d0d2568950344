//! Calls that never end, on as many connections as their caller likes, and in as many pieces.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::Frame;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::unread::resident;
use crate::support::{self, Cluster, PATIENCE, until};

/// Calls that one caller may have in flight.
const MOST: usize = 512;
/// Fewer than a connection may have.
const ON_ONE_CONNECTION: usize = 200;
const CALLS: usize = 800;

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_calls_in_flight_are_bounded_on_all_of_its_connections() {
    let cluster = Cluster::without_node().await;
    let web = support::member::Joining::new("node", "web-1").join(&cluster).await.unwrap();
    let trust = cluster.running.authority().unwrap().trust();
    let proxy = cluster.proxy();
    let connect = || support::authority_as(&proxy, &trust, &web.issued.tls_certificate_pem, &web.key);
    let mut calls = JoinSet::new();
    let mut connections = Vec::new();
    for number in 0..CALLS {
        if number % ON_ONE_CONNECTION == 0 {
            connections.push(connect().await);
        }
        let mut fleet = FleetClient::new(connections.last().unwrap().clone());
        // An upload that does not begin: the authority waits for its first message.
        calls.spawn(async move { fleet.upload_recording(tokio_stream::pending()).await.map(drop) });
    }
    let refused = async {
        for _ in 0..CALLS - MOST {
            let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("calls beyond the bound are refused");
    // It is this host's bound, and no other's.
    let other = support::member::Joining::new("node", "web-2").join(&cluster).await.unwrap();
    other.beat(v1::HeartbeatRequest::default()).await.unwrap();
    assert!(web.beat(v1::HeartbeatRequest::default()).await.is_err());
    // None of those that were let in has ended, and with them goes what keeps the host out.
    assert!(tokio::time::timeout(Duration::from_millis(50), calls.join_next()).await.is_err());
    calls.shutdown().await;
    until("the host to be served again", || async { web.beat(v1::HeartbeatRequest::default()).await.ok() })
        .await;
}

/// A call of a method, whose message comes in these pieces, each a DATA frame of its own; gives the gRPC status of the answer.
async fn ask(
    channel: Channel,
    method: &str,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Code, tonic::transport::Error> {
    let body = StreamBody::new(pieces.map(|piece| Ok::<_, Status>(Frame::data(piece))));
    let request = http::Request::post(format!("/sallyport.v1.{}", method.replace('.', "/")))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .unwrap();
    let mut channel = channel;
    poll_fn(|context| tower::Service::poll_ready(&mut channel, context)).await?;
    let answer = tower::Service::call(&mut channel, request).await?;
    let status = answer.headers().get("grpc-status").expect("a refusal is headers alone");
    Ok(Code::from_bytes(status.as_bytes()))
}

/// The beginning of a message that says how long it is (gRPC over HTTP/2, "Length-Prefixed-Message").
fn beginning(bytes: usize) -> Bytes {
    let length = u32::try_from(bytes).unwrap().to_be_bytes();
    [&[0][..], &length[..]].concat().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_do_not_end_are_bounded_for_their_caller() {
    const LONG: usize = 3 << 20;
    const CALLS: usize = 32;
    // What is kept of one caller's.
    const MOST: usize = 64 << 20;
    let cluster = Cluster::without_node().await;
    let (mallory, alice) = (cluster.user("mallory", &[]).await, cluster.user("alice", &[]).await);
    let mut calls = JoinSet::new();
    for _ in 0..4 {
        let channel = mallory.authority().await;
        for _ in 0..CALLS / 4 {
            let pieces = vec![beginning(LONG), vec![b'x'; LONG - 1].into()];
            let pieces = futures::stream::iter(pieces).chain(futures::stream::pending());
            let channel = channel.clone();
            calls.spawn(async move { ask(channel, "Admin.CreateResource", pieces).await });
        }
    }
    let refused = async {
        for _ in 0..CALLS - MOST / LONG {
            let refused = calls.join_next().await.unwrap().unwrap();
            assert_eq!(refused.unwrap(), Code::ResourceExhausted);
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("messages beyond the bound are refused");
    let mut asking = ClusterClient::new(alice.authority().await);
    // Served like at any other time, which for alice is a refusal.
    let served = asking.get_status(v1::GetStatusRequest::default()).await.unwrap_err();
    assert_eq!(served.code(), Code::PermissionDenied, "{served:?}");
    calls.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_frames_of_one_byte_takes_no_more_memory_than_its_bytes() {
    const CALLS: usize = 4;
    const FRAMES: usize = 30_000;
    let cluster = Cluster::without_node().await;
    let (mallory, alice) = (cluster.user("mallory", &[]).await, cluster.user("alice", &[]).await);
    let channel = mallory.authority().await;
    let byte = || Bytes::from_static(b"x");
    // A whole message that comes like this is answered.
    let prefix: Vec<Bytes> = beginning(1000).iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
    let pieces = futures::stream::iter(prefix.into_iter().chain((0..1000).map(move |_| byte())));
    let answer = ask(channel.clone(), "Admin.CreateResource", pieces).await.unwrap();
    assert!(matches!(answer, Code::PermissionDenied | Code::Internal), "{answer:?}");

    let before = resident();
    let sent = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (channel, sent) = (channel.clone(), Arc::clone(&sent));
        let flood = (0..FRAMES).map(move |_| {
            sent.fetch_add(1, Ordering::Relaxed);
            Bytes::from_static(b"x")
        });
        let pieces = futures::stream::iter(std::iter::once(beginning(FRAMES + 1)).chain(flood));
        let pieces = pieces.chain(futures::stream::pending());
        calls.spawn(async move { ask(channel, "Admin.CreateResource", pieces).await });
    }
    // They all go out, or the connection ends.
    until("the flood", || {
        let over = sent.load(Ordering::Relaxed) >= CALLS * FRAMES || calls.try_join_next().is_some();
        async move { over.then_some(()) }
    })
    .await;
    let mut asking = ClusterClient::new(alice.authority().await);
    // Served like at any other time, which for alice is a refusal.
    let served = asking.get_status(v1::GetStatusRequest::default()).await.unwrap_err();
    assert_eq!(served.code(), Code::PermissionDenied, "{served:?}");
    let grown = resident().saturating_sub(before);
    println!("{grown} KiB more for {} frames of one byte", CALLS * FRAMES);
    assert!(grown < 64 << 10, "{grown} KiB for {} bytes", CALLS * FRAMES);
    calls.shutdown().await;
}
