//! Rotations of a live cluster: an authority with its proxy and a node, and another node that joined with a token.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support;
use crate::support::{
    Cluster, PATIENCE, admin_channel, join, log_in, node_section, os_login, pinned, token, until,
};
use sallyport_access::HostRole;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_server::config::NodeSection;
use sallyport_ssh::client::{Exit, Output, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::rotate_ca_request::Step;
use sallyport_wire::v1::rotation_client::RotationClient;
use serde_json::Value;
use tokio::sync::RwLock;
use tonic::transport::Channel;
use tonic::{Code, Status};

type Rotation = RotationClient<Channel>;

pub(crate) async fn rotation(cluster: &Cluster) -> Rotation {
    RotationClient::new(admin_channel(&cluster.data_dir()).await)
}

pub(crate) async fn step(
    rotation: &Rotation,
    kind: &str,
    step: Step,
    force: bool,
) -> Result<v1::CaDetails, Status> {
    let request = v1::RotateCaRequest { kind: kind.to_owned(), step: Some(step), force };
    rotation.clone().rotate_ca(request).await.map(tonic::Response::into_inner)
}

pub(crate) async fn details(rotation: &Rotation, kind: &str) -> v1::CaDetails {
    let cas = rotation.clone().list_cas(v1::ListCasRequest {}).await.unwrap().into_inner().cas;
    cas.into_iter().find(|details| details.ca.as_ref().unwrap().kind == kind).unwrap()
}

pub(crate) fn phase(details: &v1::CaDetails) -> String {
    details.ca.as_ref().unwrap().rotation.as_ref().unwrap().phase.clone()
}

/// Goes on as soon as every host has confirmed.
async fn advance(rotation: &Rotation, kind: &str) -> String {
    until("every host's confirmation", async || {
        let details = details(rotation, kind).await;
        details.lagging.is_empty().then_some(())
    })
    .await;
    let next = details(rotation, kind).await.next_phase;
    let details = step(rotation, kind, Step::Phase(next.clone()), false).await.unwrap();
    assert_eq!(phase(&details), next);
    next
}

async fn events(cluster: &Cluster, code: &str) -> Vec<Value> {
    let request = v1::SearchEventsRequest { code: code.to_owned(), ..Default::default() };
    let mut found = cluster.admin().await.search_events(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(record) = found.message().await.unwrap() {
        events.push(serde_json::from_str(&record.event_json).unwrap());
    }
    events
}

/// A node in services of its own.
async fn far_node(cluster: &Cluster, name: &str) -> sallyport_server::Running {
    let (token, pin) = token(&mut cluster.admin().await, "node").await;
    let mut config = support::config(&cluster.directory.path().join(name));
    config.node = Some(NodeSection {
        proxy_server: Some(cluster.proxy()),
        join: join(&token, &pin),
        ..node_section(name)
    });
    let running = sallyport_server::start(config).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    running
}

/// A node that joined, and never says a word about its trust.
async fn silent_node(cluster: &Cluster, name: &str) {
    let (token, pin) = token(&mut cluster.admin().await, "node").await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token,
        name: name.to_owned(),
        role: "node".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        public_names: Vec::new(),
        ..Default::default()
    };
    LoginClient::new(pinned(&cluster.proxy(), &pin).await).join(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_notices_that_users_and_hosts_get_other_cas() {
    let cluster = Cluster::all_in_one().await;
    let far = far_node(&cluster, "web-2").await;
    let login = os_login();
    let absent = cluster.user("absent", &[&login]).await;
    let alice = Arc::new(RwLock::new(cluster.user("alice", &[&login]).await));
    let rotation = rotation(&cluster).await;

    // A session that lives through it all.
    let long = alice.read().await.ssh("web-2", &login).await;
    let mut session = long.start(SessionRequest::exec("read line; echo $line")).await.unwrap();

    // New connections all the time, with whatever the user holds at the moment.
    let stop = Arc::new(AtomicBool::new(false));
    let made = Arc::new(AtomicUsize::new(0));
    let load = tokio::spawn({
        let (stop, made, alice, login) =
            (Arc::clone(&stop), Arc::clone(&made), Arc::clone(&alice), login.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let user = alice.read().await.clone();
                let node = if made.load(Ordering::Relaxed).is_multiple_of(2) { "web-1" } else { "web-2" };
                let (out, _, exit) = user.run(node, &login, "echo hello").await;
                assert_eq!((out.as_str(), exit), ("hello\n", Exit::Status(0)));
                made.fetch_add(1, Ordering::Relaxed);
            }
        }
    });

    for kind in ["user", "host"] {
        let before = details(&rotation, kind).await.ca.unwrap();
        step(&rotation, kind, Step::Phase("init".to_owned()), false).await.unwrap();
        let mut signed_anew = 0;
        loop {
            signed_anew += usize::from(alice.write().await.follow().await.unwrap());
            let at = made.load(Ordering::Relaxed);
            until("a few connections", async || (made.load(Ordering::Relaxed) > at + 3).then_some(())).await;
            if advance(&rotation, kind).await == "standby" {
                break;
            }
        }
        assert_eq!(signed_anew, usize::from(kind == "user"), "{kind}");
        let after = details(&rotation, kind).await;
        assert!(after.other.is_none() && after.lagging.is_empty(), "{after:?}");
        let after = after.ca.unwrap();
        assert_ne!((after.ssh_fingerprint, after.tls_pin), (before.ssh_fingerprint, before.tls_pin));
        let at = made.load(Ordering::Relaxed);
        until("a few connections", async || (made.load(Ordering::Relaxed) > at + 3).then_some(())).await;
    }

    // And back, from the last moment at which that is possible.
    for kind in ["user", "host"] {
        let before = details(&rotation, kind).await.ca.unwrap();
        step(&rotation, kind, Step::Phase("init".to_owned()), false).await.unwrap();
        while advance(&rotation, kind).await != "update_servers" {
            alice.write().await.follow().await.unwrap();
        }
        alice.write().await.follow().await.unwrap();
        step(&rotation, kind, Step::Rollback(true), false).await.unwrap();
        let at = made.load(Ordering::Relaxed);
        until("a few connections", async || (made.load(Ordering::Relaxed) > at + 3).then_some(())).await;
        alice.write().await.follow().await.unwrap();
        // A connection that had begun before holds what ends with this phase.
        let at = made.load(Ordering::Relaxed);
        until("a few connections", async || (made.load(Ordering::Relaxed) > at + 3).then_some(())).await;
        assert_eq!(advance(&rotation, kind).await, "standby");
        assert_eq!(details(&rotation, kind).await.ca.unwrap().tls_pin, before.tls_pin);
    }
    let at = made.load(Ordering::Relaxed);
    until("a few connections", async || (made.load(Ordering::Relaxed) > at + 3).then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    load.await.unwrap();

    // The long session has noticed nothing.
    session.input().data(&b"still here\n"[..]).await.unwrap();
    let mut out = Vec::new();
    while let Some(output) = session.next().await {
        match output {
            Output::Stdout(bytes) => out.extend_from_slice(&bytes),
            Output::Exit(exit) => {
                assert_eq!(exit, Exit::Status(0));
                break;
            }
            _ => {}
        }
    }
    assert_eq!(out, b"still here\n");

    // Who was away has to log in again, with the pin of today.
    assert!(absent.connect().await.is_err());
    let (_, pin) = token(&mut cluster.admin().await, "node").await;
    let back = log_in(&cluster.proxy(), &pin, "absent", None).await.unwrap();
    assert_eq!(back.run("web-2", &login, "true").await.2, Exit::Status(0));

    let steps = events(&cluster, "SP1261I").await;
    assert!(steps.iter().all(|event| event["user"] == "@local"), "{steps:?}");
    assert_eq!(steps.len(), 8, "two steps each of four rotations");
    assert_eq!(events(&cluster, "SP1260I").await.len(), 4);
    assert_eq!(events(&cluster, "SP1262I").await.len(), 4);
    assert_eq!(events(&cluster, "SP1263W").await.len(), 2);
    far.shutdown(false).await;
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_have_not_confirmed_are_named_and_hold_a_rotation_up() {
    let cluster = Cluster::without_node().await;
    silent_node(&cluster, "mute").await;
    let rotation = rotation(&cluster).await;
    let started = step(&rotation, "host", Step::Phase("init".to_owned()), false).await.unwrap();
    assert!(started.by_hand.iter().any(|line| line.contains("known_hosts")), "{started:?}");
    until("the proxy's confirmation", async || {
        (details(&rotation, "host").await.lagging.len() == 1).then_some(())
    })
    .await;
    let refused = step(&rotation, "host", Step::Phase("update_clients".to_owned()), false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for word in ["1 host has not confirmed", "node mute (never confirmed anything", "--force", "rm node/"] {
        assert!(refused.message().contains(word), "{word}: {}", refused.message());
    }
    // No phase is left out.
    let jump = step(&rotation, "host", Step::Phase("update_servers".to_owned()), true).await.unwrap_err();
    assert!(jump.message().contains("the next one is update_clients"), "{jump:?}");

    let forced = step(&rotation, "host", Step::Phase("update_clients".to_owned()), true).await.unwrap();
    assert_eq!(phase(&forced), "update_clients");
    let events = events(&cluster, "SP1261I").await;
    assert_eq!(
        (&events[0]["fields"]["forced"], &events[0]["fields"]["left_behind"]),
        (&Value::Bool(true), &Value::String("node:mute".to_owned()))
    );
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_automatic_rotation_waits_for_hosts_and_goes_on_without_those_that_were_removed() {
    let cluster = Cluster::all_in_one().await;
    silent_node(&cluster, "mute").await;
    let rotation = rotation(&cluster).await;
    let grace = prost_types::Duration { seconds: 2, nanos: 0 };
    let begun = step(&rotation, "user", Step::Automatic(grace), false).await.unwrap();
    assert_eq!((phase(&begun).as_str(), begun.mode.as_str()), ("init", "automatic"));
    let waiting =
        until("the authority to complain", async || events(&cluster, "SP1264W").await.into_iter().next())
            .await;
    assert!(waiting["message"].as_str().unwrap().contains("node mute"), "{waiting:?}");
    assert_eq!(phase(&details(&rotation, "user").await), "init");

    let gone = v1::DeleteResourceRequest { kind: "node".to_owned(), name: "mute".to_owned() };
    cluster.admin().await.delete_resource(gone).await.unwrap();
    until("the end of the rotation", async || {
        (phase(&details(&rotation, "user").await) == "standby").then_some(())
    })
    .await;
    let over = details(&rotation, "user").await;
    assert_eq!(over.ca.unwrap().rotation.unwrap().generation, 1);
    let finished = events(&cluster, "SP1262I").await;
    assert_eq!(finished[0]["user"], "auth");

    // What goes by itself can be taken over, and nothing can be when there is nothing.
    let long = prost_types::Duration { seconds: 3600, nanos: 0 };
    step(&rotation, "user", Step::Automatic(long), false).await.unwrap();
    let manual = step(&rotation, "user", Step::Manual(true), false).await.unwrap();
    assert_eq!((manual.mode.as_str(), manual.due), ("manual", None));
    step(&rotation, "user", Step::Rollback(true), false).await.unwrap();
    advance(&rotation, "user").await;
    let nothing = step(&rotation, "user", Step::Manual(true), false).await.unwrap_err();
    assert!(nothing.message().contains("no rotation"), "{nothing:?}");
    let nothing = step(&rotation, "user", Step::Rollback(true), false).await.unwrap_err();
    assert!(nothing.message().contains("nothing to roll back"), "{nothing:?}");
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_signed_anew_for_their_own_login_alone() {
    let cluster = Cluster::without_node().await;
    let mut alice = cluster.user("alice", &["alice"]).await;
    let bob = cluster.user("bob", &["bob"]).await;
    let carol = cluster.user("carol", &["carol"]).await;
    let rotation = rotation(&cluster).await;
    step(&rotation, "user", Step::Phase("init".to_owned()), false).await.unwrap();
    assert!(!alice.follow().await.unwrap(), "the new CA signs nothing yet");
    assert_eq!(advance(&rotation, "user").await, "update_clients");

    // The authority refuses another user's certificates, and a pair that is not whole.
    let ask = async |user: &support::User, request: v1::FollowRequest| {
        RotationClient::new(user.authority().await).follow(request).await
    };
    let stolen = ask(&bob, alice.certificates()).await.unwrap_err();
    assert_eq!(stolen.code(), Code::PermissionDenied, "{stolen:?}");
    assert!(stolen.message().contains("not of the login"), "{stolen:?}");
    let half =
        v1::FollowRequest { ssh_certificate: bob.certificates().ssh_certificate, ..alice.certificates() };
    assert_eq!(ask(&alice, half).await.unwrap_err().code(), Code::PermissionDenied);

    // A lock, and a user who is gone.
    let lock = "kind: lock\nversion: v1\nmetadata:\n  name: out\nspec:\n  target:\n    user: bob\n";
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml: lock.to_owned(), replace: false }).await.unwrap();
    let locked = ask(&bob, bob.certificates()).await.unwrap_err();
    assert_eq!(locked.code(), Code::PermissionDenied, "{locked:?}");
    let gone = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "carol".to_owned() };
    admin.delete_resource(gone).await.unwrap();
    let gone = ask(&carol, carol.certificates()).await.unwrap_err();
    assert!(gone.message().contains("no user carol any more"), "{gone:?}");

    let before = cluster.running.authority().unwrap().trust();
    let old = alice.certificates();
    assert!(alice.follow().await.unwrap());
    assert!(!alice.follow().await.unwrap(), "once is enough");
    let now = time::OffsetDateTime::now_utc();
    let read = |request: &v1::FollowRequest| {
        let (ssh, tls) = (&request.ssh_certificate, &request.tls_certificate_pem);
        sallyport_ca::UserPair::verify(&before, ssh, tls, now).unwrap().identity().clone()
    };
    let (old, new) = (read(&old), read(&alice.certificates()));
    assert_eq!(
        (old.login_id, old.valid_before, old.principal),
        (new.login_id, new.valid_before, new.principal)
    );
    let issued = events(&cluster, "SP1100I").await;
    let again: Vec<_> = issued.iter().filter(|event| event["fields"]["reissued"] == true).collect();
    assert_eq!(again.len(), 1, "{issued:?}");
    assert_eq!(again[0]["user"], "alice");
    assert_eq!(again[0]["fields"]["login_id"], new.login_id.to_string());
    let refused = events(&cluster, "SP3001W").await;
    let of = |user: &str| {
        refused.iter().any(|event| event["user"] == user && event["fields"]["method"] == "Rotation.Follow")
    };
    assert!(of("bob") && of("carol") && of("alice"), "{refused:?}");
    cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_get_two_pins_and_the_state_survives_a_restart() {
    let cluster = Cluster::without_node().await;
    let old_pin = token(&mut cluster.admin().await, "node").await.1;
    let rotation = rotation(&cluster).await;
    step(&rotation, "host", Step::Phase("init".to_owned()), false).await.unwrap();
    let (early, pins) = token(&mut cluster.admin().await, "node").await;
    assert!(pins.starts_with(&format!("{old_pin},sha256:")), "{pins}");
    let invite = v1::CreateUserRequest { name: "dora".to_owned(), ..Default::default() };
    let invite = cluster.admin().await.create_user(invite).await.unwrap().into_inner();
    assert!(invite.link.ends_with(&format!("#{pins}")), "{}", invite.link);
    while advance(&rotation, "host").await != "update_servers" {}

    // Stopped in the middle, and started again.
    let Cluster { directory, running } = cluster;
    let address = running.addresses().proxy.unwrap();
    running.shutdown(true).await;
    let mut config = support::config(&directory.path().join("cluster"));
    config.auth = Some(support::auth_section());
    config.proxy =
        Some(sallyport_server::config::ProxySection { listen: address, ..support::proxy_section() });
    let running = sallyport_server::start(config).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    let cluster = Cluster { directory, running };
    let rotation = self::rotation(&cluster).await;
    assert_eq!(phase(&details(&rotation, "host").await), "update_servers");

    // The token from before, with both pins, meets the new CA.
    let mut config = support::config(&cluster.directory.path().join("late"));
    config.node = Some(NodeSection {
        proxy_server: Some(cluster.proxy()),
        join: join(&early, &pins),
        ..node_section("late")
    });
    let late = sallyport_server::start(config).await.unwrap();
    late.ready(PATIENCE).await.unwrap();
    assert_eq!(advance(&rotation, "host").await, "standby");
    let pin = token(&mut cluster.admin().await, "node").await.1;
    assert_eq!(format!("{old_pin},{pin}"), pins);
    let name = sallyport_ca::server_name(HostRole::Auth, &support::cluster());
    assert!(!name.is_empty());
    late.shutdown(false).await;
    cluster.running.shutdown(false).await;
}
