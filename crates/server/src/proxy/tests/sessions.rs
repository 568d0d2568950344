//! Opening, carrying and ending sessions.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sallyport_wire::v1;
use sallyport_wire::v1::proxy_ssh_request::Frame as Ask;
use time::OffsetDateTime;
use tonic::Code;

use super::rig::{Rig, open, role, start, until};

#[tokio::test]
async fn bytes_go_through_in_both_directions_and_both_ends_can_finish() {
    let rig = Rig::new().await;
    let (id, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    for target in ["web-1", "WEB-1", "web-1.test.example", &id.to_string()] {
        let mut call = rig.open(&alice, target, "deploy").await.unwrap();
        assert_eq!(
            (call.connected.node_id.as_str(), call.connected.node_name.as_str()),
            (id.to_string().as_str(), "web-1")
        );
        call.send("hello").await;
        assert_eq!(call.read(5).await, b"hello");
        let mut answers = call.finish();
        assert!(answers.message().await.unwrap().is_none(), "the node's end ends the call");
    }
    until("the sessions to be gone", || rig.service.sessions.open() == 0).await;
}

#[tokio::test]
async fn bytes_may_follow_the_target_at_once() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let target = v1::SshTarget {
        node: "web-1".to_owned(),
        login: "alice".to_owned(),
        agent: false,
        timed: false,
        native: false,
        word: None,
    };
    let frames = vec![Ask::Target(target), Ask::Ssh(Bytes::from_static(b"SSH-2.0-x\r\n"))];
    let mut call = start(rig.channel(&rig.user("alice")).await, frames).await.unwrap();
    assert_eq!(call.read(11).await, b"SSH-2.0-x\r\n");
}

#[tokio::test]
async fn each_stream_that_is_opened_is_told_by_the_proxy_itself() {
    let rig = Rig::new().await;
    let (id, _tunnel) = rig.echo("web-1").await;
    let _call = rig.open(&rig.user("alice"), "web-1", "deploy").await.unwrap();
    // The authority does not answer in this test, so the event waits on disk.
    until("the event", || {
        rig.waiting_events().iter().any(|event| {
            event["code"] == "SP2012I"
                && (&event["user"], &event["node"], &event["login"])
                    == (&"alice".into(), &"web-1".into(), &"deploy".into())
                && event["fields"]["node_id"] == id.to_string()
                && event["source"].as_str().is_some_and(|source| source.starts_with("127.0.0.1:"))
        })
    })
    .await;
}

#[tokio::test]
async fn refusals_name_the_reason_and_leave_an_event() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let one = rig.know("db");
    rig.know("db");
    rig.know("away");
    let alice = rig.user("alice");
    let channel = rig.channel(&alice).await;
    for (node, login, code, text) in [
        ("nowhere", "deploy", Code::NotFound, "no node is called \"nowhere\""),
        ("", "deploy", Code::NotFound, "no node is called"),
        ("db", "deploy", Code::InvalidArgument, "is the name of 2 nodes"),
        ("db", "deploy", Code::InvalidArgument, &one.to_string()),
        ("away", "deploy", Code::Unavailable, "node away is not connected"),
        ("web-1", "root", Code::PermissionDenied, "root"),
        ("web-1", "no;login", Code::InvalidArgument, "login"),
    ] {
        let status =
            open(channel.clone(), node, login).await.err().unwrap_or_else(|| panic!("{node} {login}"));
        assert_eq!(status.code(), code, "{node} {login}: {status:?}");
        assert!(status.message().contains(text), "{node} {login}: {}", status.message());
    }
    assert_eq!(rig.service.sessions.open(), 0);
    // The authority does not answer in this test, so the events wait on disk.
    until("the events", || {
        let events = rig.waiting_events();
        ["unknown_node", "ambiguous_node", "offline", "refused"].iter().all(|reason| {
            events.iter().any(|event| {
                event["code"] == "SP2006W" && event["user"] == "alice" && event["fields"]["reason"] == *reason
            })
        })
    })
    .await;
}

#[tokio::test]
async fn deny_wins_and_an_empty_login_means_any_that_is_allowed() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    assert!(rig.open(&alice, "web-1", "").await.is_ok());
    rig.put(
        "role",
        "dev",
        &role(
            "dev",
            "[alice, deploy]",
            "  deny:\n    logins: [alice, deploy]\n    node_labels:\n      '*': '*'\n",
        ),
    );
    let status = rig.open(&alice, "web-1", "").await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let status = rig.open(&alice, "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    rig.delete("role", "dev");
    assert!(rig.open(&alice, "web-1", "deploy").await.is_err(), "no role, no entry");
}

#[tokio::test]
async fn a_role_that_cannot_be_read_changes_nothing() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    rig.put("role", "dev", "kind: role\nversion: v9\n");
    assert!(rig.open(&alice, "web-1", "deploy").await.is_ok(), "the last good roles stay in force");
    assert!(rig.open(&alice, "web-1", "root").await.is_err());
}

#[tokio::test]
async fn locks_refuse_new_sessions_and_cut_open_ones() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let (alice, bob) = (rig.user("alice"), rig.user("bob"));
    let mut call = rig.open(&alice, "web-1", "deploy").await.unwrap();
    let mut other = rig.open(&bob, "web-1", "deploy").await.unwrap();
    call.send("x").await;
    call.read(1).await;
    rig.put(
        "lock",
        "stolen",
        "kind: lock\nversion: v1\nmetadata:\n  name: stolen\nspec:\n  target:\n    user: alice\n  message: laptop stolen\n",
    );
    let status = call.failure().await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().starts_with("session ended:"), "{}", status.message());
    until("the event", || rig.waiting_events().iter().any(|event| event["code"] == "SP2008W")).await;
    let status = rig.open(&alice, "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied);
    other.send("still here").await;
    assert_eq!(other.read(10).await, b"still here");
    rig.delete("lock", "stolen");
    assert!(rig.open(&alice, "web-1", "deploy").await.is_ok());
}

#[tokio::test]
async fn only_users_with_valid_certificates_open_sessions() {
    let rig = Rig::new().await;
    let (id, _tunnel) = rig.echo("web-1").await;
    // Without any certificate the TLS connection stands, for the pages, but this service does not.
    let stream = rig.tls_to_proxy(None, &[sallyport_wire::alpn::H2]).await.unwrap();
    let status = open(super::rig::channel(stream).await.unwrap(), "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("sallyport login"), "{}", status.message());
    let node = rig.host(id, "web-1", sallyport_access::HostRole::Node);
    let status = rig.open(&node, "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    // An expired certificate does not get through the handshake.
    let expired = rig.user_at("alice", OffsetDateTime::now_utc() - time::Duration::hours(3));
    let stream = rig.tls_to_proxy(Some(&expired), &[sallyport_wire::alpn::H2]).await;
    let failed = match stream {
        Err(_) => true,
        // In TLS 1.3 the client learns of the refusal with its first read.
        Ok(stream) => match super::rig::channel(stream).await {
            Err(_) => true,
            Ok(channel) => open(channel, "web-1", "deploy").await.is_err(),
        },
    };
    assert!(failed);
    // And neither does one of another cluster.
    let elsewhere = Rig::new().await;
    let foreign = elsewhere.user("alice");
    let stream = rig.tls_to_proxy(Some(&foreign), &[sallyport_wire::alpn::H2]).await;
    if let Ok(stream) = stream
        && let Ok(channel) = super::rig::channel(stream).await
    {
        assert!(open(channel, "web-1", "deploy").await.is_err());
    }
}

#[tokio::test]
async fn clock_skew_within_the_allowance_is_no_reason_to_refuse() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let ahead = rig.user_at("alice", OffsetDateTime::now_utc() + time::Duration::seconds(45));
    assert!(rig.open(&ahead, "web-1", "deploy").await.is_ok());
}

#[tokio::test]
async fn a_node_lost_in_mid_session_ends_the_call_with_words() {
    let rig = Rig::new().await;
    let (id, tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let mut call = rig.open(&alice, "web-1", "deploy").await.unwrap();
    call.send("x").await;
    call.read(1).await;
    tunnel.close();
    let status = call.failure().await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("the connection to node web-1 was lost"), "{}", status.message());
    until("the event", || {
        rig.waiting_events().iter().any(|event| event["code"] == "SP2007W" && event["node"] == "web-1")
    })
    .await;
    until("the hub to forget the tunnel", || rig.service.hub.tunnels(&id) == 0).await;
    assert_eq!(rig.open(&alice, "web-1", "deploy").await.err().unwrap().code(), Code::Unavailable);
    let _again = rig.echo_again(id, "web-1").await;
    assert!(rig.open(&alice, "web-1", "deploy").await.is_ok(), "the node is back");
}

#[tokio::test]
async fn a_second_tunnel_takes_over_and_the_first_keeps_its_sessions() {
    let rig = Rig::new().await;
    let (id, first) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let mut old = rig.open(&alice, "web-1", "deploy").await.unwrap();
    let second = rig.echo_again(id, "web-1").await;
    let _new = rig.open(&alice, "web-1", "deploy").await.unwrap();
    assert_eq!((first.streams(), second.streams()), (1, 1));
    // An agent that drains its newest tunnel is still reached over the other.
    second.drain("going away");
    until("the proxy to know", || !second.is_open()).await;
    old.send("x").await;
    assert_eq!(old.read(1).await, b"x");
}

#[tokio::test]
async fn agent_frames_and_a_second_target_are_refused_in_words() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let mut call = rig.open(&alice, "web-1", "deploy").await.unwrap();
    call.frame(Ask::Agent(Bytes::from_static(b"x"))).await;
    let status = call.failure().await;
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("the node has not asked for"), "{}", status.message());
    // Nor does an agent that is there speak first.
    let target = v1::SshTarget {
        node: "web-1".to_owned(),
        login: "deploy".to_owned(),
        agent: true,
        timed: false,
        native: false,
        word: None,
    };
    let frames = vec![Ask::Target(target), Ask::Agent(Bytes::from_static(b"\x0b"))];
    let mut call = start(rig.channel(&alice).await, frames).await.unwrap();
    assert_eq!(call.failure().await.code(), Code::FailedPrecondition);
    let mut call = rig.open(&alice, "web-1", "deploy").await.unwrap();
    let target = v1::SshTarget {
        node: "web-1".to_owned(),
        login: "deploy".to_owned(),
        agent: false,
        timed: false,
        native: false,
        word: None,
    };
    call.frame(Ask::Target(target)).await;
    assert_eq!(call.failure().await.code(), Code::InvalidArgument);
    let (send, receive) = tokio::sync::mpsc::channel(1);
    send.send(v1::ProxySshRequest { frame: Some(Ask::Ssh(Bytes::new())) }).await.unwrap();
    let mut client = v1::transport_client::TransportClient::new(rig.channel(&alice).await);
    let status = client.proxy_ssh(tokio_stream::wrappers::ReceiverStream::new(receive)).await.err().unwrap();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}

#[tokio::test]
async fn a_user_has_a_bounded_number_of_sessions() {
    let limits = crate::config::Limits { sessions_per_user: 2, ..crate::config::Limits::default() };
    let rig = Rig::with(limits).await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let one = rig.open(&alice, "web-1", "deploy").await.unwrap();
    let _two = rig.open(&alice, "web-1", "deploy").await.unwrap();
    let status = rig.open(&alice, "web-1", "deploy").await.err().unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(rig.open(&rig.user("bob"), "web-1", "deploy").await.is_ok());
    drop(one);
    until("room for another", || rig.service.sessions.open() < 3).await;
    assert!(rig.open(&alice, "web-1", "deploy").await.is_ok());
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_stream_with_it() {
    let rig = Rig::new().await;
    let (_, tunnel) = rig.echo("web-1").await;
    let call = rig.open(&rig.user("alice"), "web-1", "deploy").await.unwrap();
    assert_eq!(tunnel.streams(), 1);
    drop(call);
    until("the stream to be gone", || tunnel.streams() == 0).await;
    until("the session to be gone", || rig.service.sessions.open() == 0).await;
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_sender_and_memory_stays_bounded() {
    let rig = Rig::new().await;
    let id = rig.know("web-1");
    let (handle, mut incoming) = rig.tunnel(id, "web-1").await;
    // A node that takes nothing.
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Some(stream) = incoming.next().await {
            kept.push(stream);
        }
    });
    let call = rig.open(&rig.user("alice"), "web-1", "deploy").await.unwrap();
    let sender = call.sender();
    let chunk = Bytes::from(vec![0u8; 64 * 1024]);
    let mut sent = 0usize;
    loop {
        let message = v1::ProxySshRequest { frame: Some(Ask::Ssh(chunk.clone())) };
        match tokio::time::timeout(Duration::from_secs(1), sender.send(message)).await {
            Ok(sent_it) => sent_it.unwrap(),
            Err(_) => break,
        }
        sent += chunk.len();
        assert!(sent < 512 << 20, "nothing holds the sender back");
    }
    assert!(sent < 32 << 20, "{} MiB were taken for a reader that reads nothing", sent >> 20);
    assert!(handle.buffered() < 32 << 20);
}

#[tokio::test]
async fn draining_refuses_new_sessions_and_leaves_the_open_ones() {
    let rig = Rig::new().await;
    let (_, tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let channel = rig.channel(&alice).await;
    let mut call = open(channel.clone(), "web-1", "deploy").await.unwrap();
    rig.drain.cancel();
    rig.service.drain();
    until("the agent to be told", || !tunnel.is_open()).await;
    // The connection has said goodbye: depending on who is faster, the client's own library refuses the call.
    let status = open(channel, "web-1", "deploy").await.err().unwrap();
    assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status:?}");
    call.send("going on").await;
    assert_eq!(call.read(8).await, b"going on");
    assert_eq!(rig.service.sessions.drained(Duration::from_millis(50)).await, 1);
    drop(call);
    assert_eq!(rig.service.sessions.drained(super::rig::PATIENCE).await, 0);
    until("the port to be closed", || std::net::TcpStream::connect(rig.address).is_err()).await;
}

#[tokio::test]
async fn opening_is_quick_and_bulk_is_fast_enough_to_notice_a_regression() {
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let channel = rig.channel(&rig.user("alice")).await;
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        let mut call = open(channel.clone(), "web-1", "deploy").await.unwrap();
        call.send("x").await;
        call.read(1).await;
        times.push(began.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2];
    let mut call = open(channel, "web-1", "deploy").await.unwrap();
    let total = 64usize << 20;
    let sender = call.sender();
    let began = Instant::now();
    let sending = tokio::spawn(async move {
        let chunk = Bytes::from(vec![7u8; 64 * 1024]);
        for _ in 0..total / chunk.len() {
            let message = v1::ProxySshRequest { frame: Some(Ask::Ssh(chunk.clone())) };
            sender.send(message).await.unwrap();
        }
    });
    let mut received = 0;
    while received < total {
        received += call.next().await.unwrap().unwrap().len();
    }
    sending.await.unwrap();
    let rate = (total as f64 / 1e6) / began.elapsed().as_secs_f64();
    println!("ProxySsh: open and first echo {median:?} (median of 50), echo of 64 MiB at {rate:.0} MB/s");
    assert!(median < Duration::from_millis(250), "{median:?}");
    assert!(rate > 2.0, "{rate} MB/s");
}
