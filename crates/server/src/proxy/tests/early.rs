//! Early data by QUIC: what it spares a client that comes back, and what an attacker gets who sends it again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_access::HostRole;
use sallyport_ca::server_name;
use sallyport_ca::tls::ProxyClient;
use sallyport_wire::carrier::{self, Answer, Begun};
use sallyport_wire::tunnel::Handle;
use time::OffsetDateTime;
use tokio::net::UdpSocket;

use super::quic::{GRPC, Translator, socket};
use super::rig::{Call, Pair, Rig, channel, open, role, until};
use crate::config::Limits;

const LOCK: &str =
    "kind: lock\nversion: v1\nmetadata:\n  name: out\nspec:\n  target:\n    user: NAME\n  message: gone\n";

/// A node that counts the streams that were ever begun.
async fn counting(rig: &Rig, name: &str) -> (Handle, Arc<AtomicUsize>) {
    let (handle, mut incoming) = rig.tunnel(rig.know(name), name).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    tokio::spawn(async move {
        while let Some((_, stream)) = incoming.next().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(stream);
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    (handle, begun)
}

/// A session, and whether it began early.
async fn session(rig: &Rig, address: SocketAddr, client: &ProxyClient) -> (Call, Option<Answer>) {
    let (stream, answer) = rig.quic_early(address, client).await.unwrap();
    (open(channel(stream).await.unwrap(), "web-1", "alice").await.unwrap(), answer)
}

/// One who was here, and has a ticket.
async fn guest(rig: &Rig, pair: &Pair) -> ProxyClient {
    let client = rig.returning(pair);
    let (mut call, answer) = session(rig, rig.address, &client).await;
    assert!(answer.is_none(), "a client has no ticket before its first connection");
    call.send("first").await;
    assert_eq!(call.read(5).await, b"first");
    drop(call);
    until("the end", || rig.service.sessions.open() == 0).await;
    client
}

/// It goes as if nothing had been, and what was said early was said again.
async fn comes_in_full(rig: &Rig, client: &ProxyClient) {
    let (mut call, answer) = session(rig, rig.address, client).await;
    assert_eq!(answer.expect("there is a ticket").wait().await, Some(false));
    let text = vec![7; 200_000];
    call.send(text.clone()).await;
    assert!(call.read(text.len()).await == text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_begins_by_the_first_flight_alone() {
    let rig = Rig::new().await;
    let (_node, begun) = counting(&rig, "web-1").await;
    let client = guest(&rig, &rig.user("alice")).await;
    let translator = Translator::new(rig.address).await;
    // Nothing comes back until the node has a stream.
    translator.passing[1].store(false, Ordering::Relaxed);
    let (stream, mut answer) = rig.quic_early(translator.address, &client).await.unwrap();
    let channel = channel(stream).await.unwrap();
    let opening = tokio::spawn(async move { open(channel, "web-1", "alice").await.unwrap() });
    until("the node's stream", || begun.load(Ordering::SeqCst) == 2).await;
    translator.passing[1].store(true, Ordering::Relaxed);
    let mut call = opening.await.unwrap();
    assert_eq!(answer.as_mut().unwrap().wait().await, Some(true));
    let text = vec![1; 1_000_000];
    call.send(text.clone()).await;
    assert!(call.read(text.len()).await == text);
    drop(call);
    // Who came back gets tickets, too.
    let (mut call, answer) = session(&rig, rig.address, &client).await;
    call.send("third").await;
    assert_eq!(call.read(5).await, b"third");
    assert_eq!(answer.unwrap().wait().await, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_flight_with_early_data_begins_one_session_however_often_it_is_sent() {
    let limits = Limits { handshake_timeout: Duration::from_secs(2), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let (node, begun) = counting(&rig, "web-1").await;
    let client = guest(&rig, &rig.user("alice")).await;
    // An attacker holds the first flight back, and sends it from two addresses.
    let translator = Translator::new(rig.address).await;
    translator.passing[0].store(false, Ordering::Relaxed);
    let (stream, _answer) = rig.quic_early(translator.address, &client).await.unwrap();
    let channel = channel(stream).await.unwrap();
    let opening = tokio::spawn(async move { open(channel, "web-1", "alice").await.is_ok() });
    let flight = whole(&translator).await;
    let places = [socket().await, socket().await, socket().await];
    let again = async |place: &UdpSocket| {
        for datagram in &flight {
            place.send_to(datagram, rig.address).await.unwrap();
        }
    };
    again(&places[0]).await;
    until("what the first copy asks for", || begun.load(Ordering::SeqCst) == 2).await;
    // Another copy begins nothing: what is asked for after it comes first.
    let later = rig.user("alice");
    let mut known = 2;
    for round in 0..3 {
        for place in &places {
            again(place).await;
        }
        let call = asked_after(&rig, &later).await;
        known += 1;
        assert_eq!(begun.load(Ordering::SeqCst), known, "{round}");
        drop(call);
    }
    opening.abort();
    // When that is over it is no different.
    until("the end", || node.streams() == 0).await;
    again(&*socket().await).await;
    let _call = asked_after(&rig, &later).await;
    assert_eq!(begun.load(Ordering::SeqCst), known + 1);
}

/// All of a first flight: what a client says until it waits for an answer. It says it again after a while, so none that comes
/// within this is part of it.
async fn whole(translator: &Translator) -> Vec<Vec<u8>> {
    const PAUSE: Duration = Duration::from_millis(100);
    let (mut seen, mut since) = (0, tokio::time::Instant::now());
    until("the first flight", || {
        let now = translator.first_flight.lock().len();
        if std::mem::replace(&mut seen, now) != now {
            since = tokio::time::Instant::now();
        }
        now > 0 && since.elapsed() > PAUSE
    })
    .await;
    translator.first_flight.lock().clone()
}

/// A session that begins after all that was sent before, and that node and client have spoken in.
async fn asked_after(rig: &Rig, who: &Pair) -> Call {
    let stream = rig.quic(Some(who), GRPC).await.unwrap();
    let mut call = open(channel(stream).await.unwrap(), "web-1", "alice").await.unwrap();
    call.send("after").await;
    assert_eq!(call.read(5).await, b"after");
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_answers_the_handshake_is_not_served_for_long() {
    let limits = Limits { handshake_timeout: Duration::from_secs(1), ..Limits::default() };
    let rig = Rig::with(limits).await;
    let (_node, begun) = counting(&rig, "web-1").await;
    let client = guest(&rig, &rig.user("alice")).await;
    let translator = Translator::new(rig.address).await;
    translator.passing[1].store(false, Ordering::Relaxed);
    let (stream, _answer) = rig.quic_early(translator.address, &client).await.unwrap();
    let channel = channel(stream).await.unwrap();
    let opening = tokio::spawn(async move { open(channel, "web-1", "alice").await.is_ok() });
    until("the session", || begun.load(Ordering::SeqCst) == 2 && rig.service.sessions.open() == 1).await;
    until("its end", || rig.service.sessions.open() == 0).await;
    opening.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_end_with_every_lock_and_with_every_change_of_trust() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let (alice, bob) = (guest(&rig, &rig.user("alice")).await, guest(&rig, &rig.user("bob")).await);
    rig.put("lock", "out", &LOCK.replace("NAME", "bob"));
    comes_in_full(&rig, &alice).await;
    let (stream, answer) = rig.quic_early(rig.address, &bob).await.unwrap();
    let refused = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    assert_eq!(answer.unwrap().wait().await, Some(false));
    // Alice has new ones, and they end with the trust.
    let (call, answer) = session(&rig, rig.address, &alice).await;
    assert_eq!(answer.unwrap().wait().await, Some(true));
    drop(call);
    let mut bundle = rig.service.view.bundle();
    bundle.user_tls_certificates.extend(Rig::new().await.trust().to_bundle().user_tls_certificates);
    rig.service.view.trust_in(&bundle);
    comes_in_full(&rig, &alice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_ends_with_its_certificate() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    // Good for three seconds more: who takes longer to come for the first time has no ticket.
    let issued = OffsetDateTime::now_utc() - time::Duration::hours(1) + time::Duration::seconds(3);
    let client = guest(&rig, &rig.user_at("alice", issued)).await;
    // Certificates count whole seconds.
    let over = issued + time::Duration::hours(1) + time::Duration::seconds(1);
    until("the end of the certificate", || OffsetDateTime::now_utc() > over).await;
    let (stream, answer) = rig.quic_early(rig.address, &client).await.unwrap();
    let refused = open(channel(stream).await.unwrap(), "web-1", "alice").await.err().unwrap();
    assert!(refused.message().contains("expired"), "{refused}");
    assert_eq!(answer.expect("it has a ticket").wait().await, Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_login_has_no_ticket() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let alice = rig.user("alice");
    let _known = guest(&rig, &alice).await;
    for who in [&alice, &rig.user("bob")] {
        let (_call, answer) = session(&rig, rig.address, &rig.returning(who)).await;
        assert!(answer.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_forgets_the_tickets_of_a_proxy_whose_certificate_has_ended() {
    let rig = Rig::new().await;
    rig.echo("web-1").await;
    let client = guest(&rig, &rig.user("alice")).await;
    let name = server_name(HostRole::Proxy, &rig.cluster);
    // Certificates of proxies last two hours here.
    for (hours, has_ticket) in [(1, true), (3, false), (1, false)] {
        let at = OffsetDateTime::now_utc() + time::Duration::hours(hours);
        let begun = carrier::connect_early(rig.address, &name, client.config(at)).await.unwrap();
        assert_eq!(matches!(begun, Begun::Early(..)), has_ticket, "{hours}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_was_started_anew_is_told_everything_again() {
    let mut rig = Rig::new().await;
    rig.echo("web-1").await;
    let client = guest(&rig, &rig.user("alice")).await;
    rig.crash().await;
    rig.start_again().await;
    rig.put("role", "dev", &role("dev", "[alice]", ""));
    rig.echo("web-1").await;
    comes_in_full(&rig, &client).await;
    let (_call, answer) = session(&rig, rig.address, &client).await;
    assert_eq!(answer.expect("it has one now").wait().await, Some(true));
}
