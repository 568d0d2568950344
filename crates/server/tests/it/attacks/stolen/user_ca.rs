//! The key of one CA, the one for users.

use sallyport_access::{Login, Principal, RoleName, Traits, UserName};
use sallyport_ca::rotation::CaState;
use sallyport_ca::{Authority, SshOptions, issue_user};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_store::{Backend, SqliteBackend};
use time::OffsetDateTime;
use uuid::Uuid;

use super::*;

/// The user CA, from the authority's files.
async fn take(cluster: &Cluster) -> Authority {
    let files = authority_files(cluster);
    let place = support::place();
    let copy = place.path().join("state.db");
    std::fs::copy(files.join("state.db"), &copy).unwrap();
    for more in ["state.db-wal", "state.db-shm"] {
        if files.join(more).exists() {
            std::fs::copy(files.join(more), place.path().join(more)).unwrap();
        }
    }
    let state = SqliteBackend::open(&copy).unwrap();
    let item = state.get("ca/user", OffsetDateTime::now_utc()).await.unwrap().unwrap();
    let state: CaState = serde_json::from_slice(&item.value).unwrap();
    let sealing = SealingKey::open(&files.join("seal.key")).unwrap();
    Authority::load(state.signer(), &SealedCustody::new(Arc::new(sealing))).unwrap()
}

/// Somebody who was never there, with every role, signed by the stolen key.
fn forge(ca: &Authority, scene: &Scene) -> User {
    let now = OffsetDateTime::now_utc();
    let principal = Principal::User {
        name: UserName::new("mallory").unwrap(),
        roles: ["editor", "alice-role"].map(|role| RoleName::new(role).unwrap()).into(),
        logins: vec![Login::new(&*scene.login).unwrap()],
        traits: Traits::new(),
    };
    let identity = sallyport_access::Identity {
        principal,
        login_id: Uuid::new_v4(),
        valid_after: now,
        valid_before: now + time::Duration::HOUR,
    };
    let (ssh, tls) =
        (SshKeyPair::generate(Suite::BalancedV1, "x").unwrap(), TlsKey::generate(Suite::BalancedV1).unwrap());
    let (line, spki) = (ssh.public_line(), tls.spki_der());
    let options = SshOptions::default();
    let issued = issue_user(ca, &identity, line, spki, now, time::Duration::HOUR, &options).unwrap();
    scene.alice.with_keys("mallory", &ssh.private_openssh(), &issued.ssh, &tls.pkcs8_pem(), &issued.tls_pem)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_signs_for_users_alone_and_a_rotation_ends_it() {
    let scene = Scene::new().await;
    let ca = take(&scene.cluster).await;
    let mallory = forge(&ca, &scene);

    // The authority knows its users: what it holds about them bounds what a certificate says.
    no_administration(&mallory.authority().await, &[]).await;
    // It is not the host CA's: nothing that it signs passes for a host.
    let trust = scene.cluster.running.authority().unwrap().trust();
    let channel = authority_as(&scene.cluster.proxy(), &trust, &mallory.tls_chain, &mallory.tls_key).await;
    let watch = v1::WatchRequest { kinds: vec!["role".to_owned()] };
    denied("a host's call", FleetClient::new(channel).watch(watch).await);

    let mut rotation = RotationClient::new(support::admin_channel(&scene.cluster.data_dir()).await);
    for phase in ["init", "update_clients", "update_servers", "standby"] {
        let step = Some(v1::rotate_ca_request::Step::Phase(phase.to_owned()));
        let rotate = v1::RotateCaRequest { kind: "user".to_owned(), step, force: true };
        rotation.rotate_ca(rotate).await.unwrap();
    }
    let since = Stopwatch::start();
    support::until("the proxy to forget the stolen key", async || {
        let refused = match mallory.connect().await {
            Ok(channel) => support::open(channel, "web-1", &scene.login).await.is_err(),
            Err(_) => true,
        };
        refused.then_some(())
    })
    .await;
    since.done("the proxy refused the stolen key");
    scene.end().await;
}
