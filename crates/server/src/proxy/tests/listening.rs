//! What the one port does with strangers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sallyport_access::{HostId, HostRole};
use sallyport_wire::alpn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, rest, until};
use crate::config::Limits;

async fn https(rig: &Rig, request: &str) -> String {
    let mut stream = rig.tls_to_proxy(None, &[alpn::HTTP11]).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(rest(&mut stream).await).unwrap()
}

async fn get(rig: &Rig, path: &str) -> String {
    https(rig, &format!("GET {path} HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn pages_are_served_to_strangers() {
    let rig = Rig::new().await;
    let front = get(&rig, "/").await;
    assert!(front.starts_with("HTTP/1.1 200"), "{front}");
    assert!(
        front.contains("test.example") && front.to_lowercase().contains("content-security-policy"),
        "{front}"
    );
    assert!(get(&rig, "/healthz").await.ends_with("ok\n"));
    let ready = get(&rig, "/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("has not heard from the authority"),
        "{ready}"
    );
    let keys = get(&rig, "/ca/user/openssh").await;
    assert!(keys.contains("ssh-ed25519 "), "{keys}");
    assert!(get(&rig, "/ca/host/tls").await.contains("BEGIN CERTIFICATE"));
    assert!(get(&rig, "/ca/host/known_hosts").await.contains("@cert-authority *.test.example"));
    assert!(get(&rig, "/ca/host/private").await.starts_with("HTTP/1.1 404"));
    assert!(get(&rig, "/nothing").await.starts_with("HTTP/1.1 404"));
    let invite = get(&rig, "/invite/abc123").await;
    assert!(invite.contains("sallyport signup") && invite.contains("no-referrer"), "{invite}");
    let nasty = get(&rig, "/invite/%3Cscript%3E").await;
    assert!(nasty.starts_with("HTTP/1.1 404") && !nasty.contains("<script>"), "{nasty}");
    assert!(
        get(&rig, "/metrics").await.starts_with("HTTP/1.1 404"),
        "metrics are for the diagnostics address"
    );
}

#[tokio::test]
async fn plain_http_is_told_to_use_https() {
    let rig = Rig::new().await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = String::from_utf8(rest(&mut stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
}

#[tokio::test]
async fn garbage_is_closed_without_an_answer() {
    let rig = Rig::new().await;
    for garbage in [&b"\x00\x01\x02\x03\x04\x05\x06\x07\x08"[..], b"EHLO mail\r\n", b"\xff\xfe"] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        assert!(rest(&mut stream).await.is_empty(), "{garbage:?}");
    }
    assert!(get(&rig, "/healthz").await.ends_with("ok\n"));
}

#[tokio::test]
async fn slow_clients_are_dropped_in_time() {
    let limits = Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() };
    let rig = Rig::with(limits).await;
    // Nothing at all; the beginning of a ClientHello and then nothing; one byte at a time for ever.
    for first in [&b""[..], &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        let began = Instant::now();
        rest(&mut stream).await;
        assert!(began.elapsed() < super::rig::PATIENCE / 2, "{first:?}: {:?}", began.elapsed());
    }
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let began = Instant::now();
    let hello = [22u8, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    for byte in hello.iter().chain([0u8; 400].iter()) {
        if stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        // The slow client itself.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(began.elapsed() < super::rig::PATIENCE, "a slow loris is kept");
    }
    // Headers that never end, inside a finished handshake.
    let mut stream = rig.tls_to_proxy(None, &[alpn::HTTP11]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let began = Instant::now();
    rest(&mut stream).await;
    assert!(began.elapsed() < super::rig::PATIENCE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn connections_are_bounded_and_come_back() {
    let limits = Limits { connections: 10, connections_per_address: 3, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(rig.tls_to_proxy(None, &[alpn::H2]).await.unwrap());
    }
    let mut fourth = TcpStream::connect(rig.address).await.unwrap();
    assert!(rest(&mut fourth).await.is_empty());
    held.pop();
    let deadline = Instant::now() + super::rig::PATIENCE;
    while rig.tls_to_proxy(None, &[alpn::H2]).await.is_err() {
        assert!(Instant::now() < deadline, "no room after one left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn connections_to_the_authority_count_as_well() {
    let limits = Limits { connections_per_address: 2, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let hello = super::rig::client_hello(&[alpn::AUTH]).await;
    let before = rig.asked.load(Ordering::Relaxed);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        held.push(stream);
    }
    until("both to be with the authority", || rig.asked.load(Ordering::Relaxed) >= before + 2).await;
    let mut third = TcpStream::connect(rig.address).await.unwrap();
    assert!(rest(&mut third).await.is_empty());
    drop(held);
}

#[tokio::test]
async fn only_nodes_open_tunnels_and_no_client_relays_through_a_proxy() {
    let rig = Rig::new().await;
    let alice = rig.user("alice");
    let proxy = rig.host(HostId::new(), "other-proxy", HostRole::Proxy);
    for (pair, alpn) in [
        (Some(&alice), alpn::TUNNEL),
        (Some(&proxy), alpn::TUNNEL),
        (None, alpn::TUNNEL),
        (Some(&proxy), alpn::RELAY),
    ] {
        if let Ok(mut stream) = rig.tls_to_proxy(pair, &[alpn]).await {
            assert!(rest(&mut stream).await.is_empty());
        }
    }
    let id = HostId::new();
    let _tunnel = rig.tunnel(id, "web-9").await;
    assert_eq!(rig.service.hub.tunnels(&id), 1);
}

#[tokio::test]
async fn plain_ssh_is_answered_with_a_banner() {
    let rig = Rig::new().await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(b"SSH-2.0-test\r\n").await.unwrap();
    let mut banner = [0; 8];
    tokio::time::timeout(super::rig::PATIENCE, stream.read_exact(&mut banner)).await.unwrap().unwrap();
    assert_eq!(&banner, b"SSH-2.0-");
}

#[tokio::test]
async fn the_jump_host_reaches_nodes_by_the_same_decision() {
    use sallyport_ssh::client::{Credentials, Settings, connect_to_proxy};
    let rig = Rig::new().await;
    let (_, _tunnel) = rig.echo("web-1").await;
    let alice = rig.user("alice");
    let tcp = TcpStream::connect(rig.address).await.unwrap();
    let credentials = Credentials::from_openssh(&alice.ssh_key, &alice.ssh_certificate).unwrap();
    let settings = Settings {
        login: "alice".to_owned(),
        host: "127.0.0.1".to_owned(),
        trust: std::sync::Arc::new(rig.trust()),
        keepalive: None,
        agent: None,
    };
    let connection = connect_to_proxy(tcp, &credentials, settings).await.unwrap();
    let mut stream = connection.open_direct("web-1", 22, "127.0.0.1:1".parse().unwrap()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");
    let refused =
        connection.open_direct("nowhere", 22, "127.0.0.1:1".parse().unwrap()).await.expect_err("a refusal");
    assert!(refused.to_string().contains("no node is called"), "{refused}");
    drop(stream);
    connection.disconnect().await;
    until("the session to be gone", || rig.service.sessions.open() == 0).await;
}
