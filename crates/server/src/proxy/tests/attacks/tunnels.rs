//! A node that was taken over, at the proxy that its tunnels lead to.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sallyport_access::HostRole;
use sallyport_wire::alpn;
use sallyport_wire::tunnel::frame::Frame;
use sallyport_wire::tunnel::{Config, Tunnel, TunnelError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::proxy::tests::rig::{PATIENCE, Rig, open, role, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_opens_and_closes_tunnels_without_end_is_refused_and_told_why() {
    let rig = Rig::new().await;
    let (id, other) = (rig.know("web-1"), rig.know("web-2"));
    let pair = rig.host(id, "web-1", HostRole::Node);
    let mut refusals = Vec::new();
    for _ in 0..60 {
        let tls = rig.tls_to_proxy(Some(&pair), &[alpn::TUNNEL]).await.unwrap();
        let (handle, _incoming) = Tunnel::client(tls, Config::default());
        tokio::select! {
            ended = handle.closed() => refusals.push(ended),
            () = until("the tunnel", || rig.service.hub.tunnels(&id) > 0) => {}
        }
        handle.close();
        until("the end of the tunnel", || rig.service.hub.tunnels(&id) == 0).await;
    }
    assert!((1..=30).contains(&refusals.len()), "{refusals:?}");
    assert!(
        refusals.iter().any(|why| matches!(why, TunnelError::Left(text) if text.contains("one every 2 s")))
    );
    let events = rig.waiting_events();
    let told = events.iter().filter(|event| event["kind"] == "node.tunnel_refused").count();
    assert_eq!(told, 1, "{events:?}");
    // It is this host's matter alone.
    let _tunnel = rig.tunnel(other, "web-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_opens_streams_towards_the_proxy_is_cut_off() {
    let rig = Rig::new().await;
    let id = rig.know("web-1");
    let (handle, _incoming) = rig.tunnel(id, "web-1").await;
    let mut opened = Vec::new();
    while let Ok(stream) = handle.open(Bytes::from_static(b"{}")) {
        opened.push(stream);
        assert!(opened.len() < 20_000);
        tokio::task::yield_now().await;
    }
    let ended = tokio::time::timeout(PATIENCE, handle.closed()).await;
    assert!(ended.is_ok(), "the tunnel goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_byte_frames_takes_little_memory_and_others_go_on() {
    const STREAMS: usize = 2;
    const CREDIT: usize = 256 * 1024;
    let rig = Rig::new().await;
    rig.put("role", "dev", &role("dev", "[alice, deploy]", ""));
    let id = rig.know("evil");
    let _echo = rig.echo("web-1").await;
    let pair = rig.host(id, "evil", HostRole::Node);
    let mut hostile = rig.tls_to_proxy(Some(&pair), &[alpn::TUNNEL]).await.unwrap();
    until("the tunnel", || rig.service.hub.tunnels(&id) > 0).await;
    let alice = rig.user("alice");
    // A client that takes nothing: its window is smaller than any answer.
    let line = rig.tls_to_proxy(Some(&alice), &[alpn::H2]).await.unwrap();
    let channel = crate::proxy::tests::rig::channel_of(line, 1024).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..STREAMS {
        calls.push(open(channel.clone(), "evil", "deploy").await.unwrap());
    }
    let mut ids = Vec::new();
    let mut wire = BytesMut::new();
    while ids.len() < STREAMS {
        assert!(hostile.read_buf(&mut wire).await.unwrap() > 0);
        while let Some(frame) = Frame::decode(&mut wire).unwrap() {
            if let Frame::Open(id, _) = frame {
                ids.push(id);
            }
        }
    }
    let honest = rig.open(&rig.user("bob"), "web-1", "deploy").await.unwrap();
    let mut echoed = honest;
    for id in ids {
        let mut flood = BytesMut::new();
        for _ in 0..CREDIT - 1024 {
            Frame::Data(id, Bytes::from_static(b"x")).encode(&mut flood);
        }
        hostile.write_all(&flood).await.unwrap();
        echoed.send(&b"still here"[..]).await;
        let answer = tokio::time::timeout(Duration::from_secs(5), echoed.read(10)).await;
        assert!(answer.is_ok(), "another host's stream stands still");
    }
    let held = || rig.service.hub.shares().held(&id);
    until("the flood to be held", || held() > (CREDIT / 4) as u64).await;
    assert!(held() < (STREAMS * CREDIT * 2) as u64, "{} bytes", held());
    drop((calls, hostile));
    until("the memory to be given back", || held() == 0).await;
}
