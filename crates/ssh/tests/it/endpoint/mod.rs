//! The stream of the native endpoint: who gets in, what a ticket is worth, and what a carrier gains by sending a
//! flight again.

pub(crate) mod cluster;

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use cluster::{Cluster, Guest, Node};
use sallyport_ca::{CaError, tls};
use sallyport_ssh::endpoint::{Early, EndpointError, EndpointStream, Tickets, reason};
use time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// What a program asks, and what the node answers.
const ASKED: &[u8] = b"run true";
const ANSWERED: &[u8] = b"exit 0";

#[tokio::test]
async fn a_first_connection_takes_a_handshake_and_the_next_comes_early() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    let (first, second) = (cluster.talk(&node, &client).await, cluster.talk(&node, &client).await);
    assert!(!first.said_early && !first.resumed && first.heard == ANSWERED);
    assert!(second.said_early && second.was_early && second.resumed && second.heard == ANSWERED);
    assert_eq!((first.user.as_str(), second.user.as_str()), ("alice", "alice"));
    assert_eq!(node.asked(), [ASKED, ASKED]);
    // Flights of the client until it has its answer: hello, then certificate and question; and one for both.
    assert_eq!((first.flights, second.flights), (2, 1));
}

#[tokio::test]
async fn tickets_last_as_long_as_connections_bring_new_ones() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    for _ in 0..20 {
        assert!(cluster.talk(&node, &client).await.was_early);
    }
}

#[tokio::test]
async fn a_recorded_flight_does_nothing_twice() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let recorded = cluster.talk(&node, &client).await;
    assert!(recorded.was_early);
    assert_eq!(node.asked().len(), 2);
    // To the same node, and to one that was started anew in its place.
    for target in [&node, &node.restarted()] {
        let before = target.asked().len();
        let replayed = cluster.replay(target, &recorded.sent).await;
        assert!(!replayed.early_read, "early data was read twice");
        assert_eq!(target.asked().len(), before);
    }
    // The first alone, with nothing behind it: the ticket is used up all the same.
    let again = cluster.replay(&node, &recorded.sent).await;
    assert!(!again.early_read && !again.resumed);
}

#[tokio::test]
async fn what_was_said_early_in_vain_is_said_again() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let node = node.restarted();
    let talk = cluster.talk(&node, &client).await;
    assert!(talk.said_early && !talk.was_early && !talk.resumed);
    assert_eq!(talk.heard, ANSWERED);
    assert_eq!(node.asked(), [ASKED]);
}

#[tokio::test]
async fn a_flight_that_its_carrier_repeated_is_not_said_a_third_time() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let (near, far) = duplex(1 << 20);
    let mut stream = EndpointStream::connect(near, &client, cluster.now).unwrap();
    stream.write_all(ASKED).await.unwrap();
    stream.repeated().store(true, Ordering::Release);
    let node = node.restarted();
    let serving = tokio::spawn({
        let (node, config) = (node.clone(), cluster.server(&node));
        async move { node.serve(far, &config, Early::AtOnce).await }
    });
    let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(reason(&error), Some(EndpointError::Unknown));
    drop(stream);
    let _ = serving.await.unwrap();
    assert!(node.asked().is_empty());
}

#[tokio::test]
async fn early_data_can_be_made_to_wait_for_the_client() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let talk = cluster.talk_with(&node, &client, Early::AfterHandshake).await;
    assert!(talk.was_early && talk.resumed);
    assert_eq!(talk.heard, ANSWERED);
    // The client had to answer the handshake before it got anything.
    assert_eq!(talk.flights, 2);
    // Who only repeats what the client has said gets nothing done.
    let recorded = cluster.record(&client).await;
    let replayed = cluster.replay_with(&node, &recorded, Early::AfterHandshake).await;
    assert!(replayed.resumed && !replayed.early_read);
}

#[tokio::test]
async fn a_ticket_ends_with_the_certificate_behind_it() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::minutes(10)));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let late = cluster.at(Duration::minutes(12));
    let refused = late.try_talk(&node, &client).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    assert_eq!(node.asked().len(), 1);
    // A ticket that got past its store is judged all the same.
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let judged = late.judge(&node, &client).await;
    assert!(matches!(judged, Err(CaError::Expired { .. })), "{judged:?}");
}

#[tokio::test]
async fn other_tickets_are_other_trust() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    // A lock, a suite: the node forgets its tickets, and the client proves itself anew.
    let forgot = node.with_tickets(Tickets::default());
    let talk = cluster.talk(&forgot, &client).await;
    assert!(talk.said_early && !talk.was_early && !talk.resumed && talk.heard == ANSWERED);
    // The user CA was replaced: the chain is good no more.
    let rotated = cluster.with_other_user_ca();
    let error = rotated.try_talk(&node.with_tickets(Tickets::default()), &client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let client = cluster.client(&alice, "web-1");
    cluster.talk(&node, &client).await;
    let judged = rotated.judge(&node, &client).await;
    assert!(judged.is_err(), "a ticket stood for a CA that is trusted no more");
}

#[tokio::test]
async fn a_node_is_the_one_that_was_asked_for() {
    let cluster = Cluster::new();
    let (web, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    for name in ["web-1", "WEB-1", "web-1.", "web-1.prod", &web.id(), &format!("{}.prod", web.id())] {
        cluster.talk(&web, &cluster.client(&alice, name)).await;
    }
    for (name, target) in [("web-2", &web), ("web-1", &cluster.proxy("web-1")), ("node", &web)] {
        let error = cluster.try_talk(target, &cluster.client(&alice, name)).await.unwrap_err();
        assert!(tls::refusal(&error).is_some(), "{name}: {error}");
        assert!(target.asked().iter().all(|asked| asked == ASKED));
    }
    let other = Cluster::new();
    let error = cluster.try_talk(&other.node("web-1"), &cluster.client(&alice, "web-1")).await.unwrap_err();
    assert!(tls::refusal(&error).is_some(), "{error}");
}

#[tokio::test]
async fn a_node_that_knows_ssh_alone_is_told_apart() {
    let cluster = Cluster::new();
    let alice = cluster.user("alice", Duration::HOUR);
    let (near, mut far) = duplex(1 << 16);
    far.write_all(b"SSH-2.0-Sallyport_0.1\r\n").await.unwrap();
    let mut stream = EndpointStream::connect(near, &cluster.client(&alice, "web-1"), cluster.now).unwrap();
    let error = stream.handshake().await.unwrap_err();
    assert_eq!(reason(&error), Some(EndpointError::NotSpoken));
}

#[tokio::test]
async fn many_bytes_go_both_ways_whatever_is_early() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    // More than early data may have, before anything is read: the first without a ticket, the others with one, which the last
    // bring to a node that has forgotten it.
    for (round, piece) in [300_000, 300_000, 5_000, 300_000, 1_000, 7].into_iter().enumerate() {
        let node = if round < 3 { node.clone() } else { node.with_tickets(Tickets::default()) };
        let sent: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        let (near, far) = duplex(5000);
        let echo = tokio::spawn({
            let (node, config) = (node.clone(), cluster.server(&node));
            async move { node.echo(far, &config).await }
        });
        let stream = EndpointStream::connect(near, &client, cluster.now).unwrap();
        let (mut reading, mut writing) = tokio::io::split(stream);
        let write = async {
            for piece in sent.chunks(piece) {
                writing.write_all(piece).await.unwrap();
            }
            writing.shutdown().await.unwrap();
        };
        let read = async {
            let mut heard = Vec::new();
            reading.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let ((), heard) = tokio::join!(write, read);
        assert!(heard == sent, "round {round}: {} bytes", heard.len());
        echo.await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_takes_its_leave_and_leaves_tickets() {
    let cluster = Cluster::new();
    let (node, alice) = (cluster.node("web-1"), cluster.user("alice", Duration::HOUR));
    let client = cluster.client(&alice, "web-1");
    // More often than the first handshake has tickets.
    for round in 0..8 {
        let (near, far) = duplex(1 << 16);
        let serving = tokio::spawn({
            let (node, config) = (node.clone(), cluster.server(&node));
            async move { node.serve_and_drop(far, &config).await }
        });
        let mut stream = EndpointStream::connect(near, &client, cluster.now).unwrap();
        assert_eq!(stream.is_early(), round > 0, "round {round}");
        stream.write_all(ASKED).await.unwrap();
        let mut heard = Vec::new();
        // To the end that TLS tells, and not to one that breaks off.
        stream.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, ANSWERED);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn strangers_and_hosts_stay_out() {
    let cluster = Cluster::new();
    let node = cluster.node("web-1");
    // Of another cluster with the same name.
    let mallory = Cluster::new().user("alice", Duration::HOUR);
    assert!(cluster.try_talk(&node, &cluster.client(&mallory, "web-1")).await.is_err());
    // A proxy has a certificate of the cluster, and is no user's.
    let proxy = Guest::from(&cluster.proxy("edge"));
    let talk = cluster.talk(&node, &cluster.client(&proxy, "web-1")).await;
    assert_eq!(talk.user, "proxy:edge");
}

#[tokio::test]
async fn garbage_and_silence_end_the_connection() {
    let cluster = Cluster::new();
    let node: Node = cluster.node("web-1");
    for garbage in [&b"SSH-2.0-x\r\n"[..], &[0x16, 3, 1, 0, 2, 1, 0], &[0x16; 100], b""] {
        let (mut near, far) = duplex(1 << 16);
        near.write_all(garbage).await.unwrap();
        near.shutdown().await.unwrap();
        assert!(node.serve(far, &cluster.server(&node), Early::AtOnce).await.is_err());
    }
    assert!(node.asked().is_empty());
}

/// What a carrier can do that has used up a flight: nothing of it may read as if nothing had happened.
mod attacks {
    use super::*;

    /// A client that has said something early, and the end of its carrier.
    async fn spoken(
        cluster: &Cluster,
        node: &Node,
    ) -> (EndpointStream<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let alice = cluster.user("alice", Duration::HOUR);
        let client = cluster.client(&alice, "web-1");
        cluster.talk(node, &client).await;
        let (near, far) = duplex(1 << 20);
        let mut stream = EndpointStream::connect(near, &client, cluster.now).unwrap();
        stream.write_all(ASKED).await.unwrap();
        stream.flush().await.unwrap();
        (stream, far)
    }

    /// The flight as it left the client.
    async fn flight(far: &mut tokio::io::DuplexStream) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let count = far.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    }

    #[tokio::test]
    async fn a_carrier_that_used_a_flight_and_breaks_off_leaves_it_unknown() {
        let cluster = Cluster::new();
        let node = cluster.node("web-1");
        let (mut stream, mut far) = spoken(&cluster, &node).await;
        let before = node.asked().len();
        let flight = flight(&mut far).await;
        assert!(cluster.replay(&node, &flight).await.early_read);
        drop(far);
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(reason(&error), Some(EndpointError::Unknown), "{error}");
        assert_eq!(node.asked().len(), before, "the replay of the test reads by itself");
    }

    #[tokio::test]
    async fn a_flight_that_a_carrier_used_is_not_said_again_to_the_same_node() {
        let cluster = Cluster::new();
        let node = cluster.node("web-1");
        let (mut stream, mut far) = spoken(&cluster, &node).await;
        let before = node.asked().len();
        let flight = flight(&mut far).await;
        assert!(cluster.replay(&node, &flight).await.early_read, "it is done once");
        // And now the client's own connection, whole: the node has given this ticket, and knows that it was taken.
        let (mut onward, end) = duplex(1 << 20);
        let serving = tokio::spawn({
            let (node, config) = (node.clone(), cluster.server(&node));
            async move { node.serve(end, &config, Early::AtOnce).await }
        });
        onward.write_all(&flight).await.unwrap();
        let carrying =
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut far, &mut onward).await });
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(reason(&error), Some(EndpointError::Unknown), "{error}");
        drop(stream);
        let _ = carrying.await.unwrap();
        assert!(serving.await.unwrap().is_err());
        assert_eq!(node.asked().len(), before, "it was done twice");
    }

    #[tokio::test]
    async fn a_carrier_that_greets_as_ssh_does_leaves_it_open_whether_it_was_done() {
        let cluster = Cluster::new();
        let node = cluster.node("web-1");
        let (mut stream, mut far) = spoken(&cluster, &node).await;
        flight(&mut far).await;
        far.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(reason(&error), Some(EndpointError::NotSpoken), "{error}");
        assert!(stream.unanswered().load(Ordering::Acquire));
    }
}
