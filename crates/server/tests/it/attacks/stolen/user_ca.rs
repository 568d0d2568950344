//! The key of one CA, the one for users; and that of hosts, where what it signs says of itself that it is of the other kind.

use sallyport_access::{Login, NodeName, Principal, RoleName, Traits, UserName};
use sallyport_ca::rotation::CaState;
use sallyport_ca::{Authority, CaKind, HostRequest, SshOptions, issue_host, issue_user};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_store::{Backend, SqliteBackend};
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use uuid::Uuid;

use super::*;

/// The keys of a CA, from the authority's files, to sign with as the CA of this kind does.
async fn take(cluster: &Cluster, stolen: CaKind, as_if: CaKind) -> Authority {
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
    let item = state.get(&format!("ca/{stolen}"), OffsetDateTime::now_utc()).await.unwrap().unwrap();
    let state: CaState = serde_json::from_slice(&item.value).unwrap();
    let mut record = state.signer().clone();
    record.kind = as_if;
    let sealing = SealingKey::open(&files.join("seal.key")).unwrap();
    Authority::load(&record, &SealedCustody::new(Arc::new(sealing))).unwrap()
}

/// A user of this name with every role, signed by the stolen key.
fn forge(ca: &Authority, scene: &Scene, name: &str) -> User {
    let now = OffsetDateTime::now_utc();
    let principal = Principal::User {
        name: UserName::new(name).unwrap(),
        roles: ["editor", "alice-role"].map(|role| RoleName::new(role).unwrap()).into(),
        logins: vec![Login::new(&*scene.login).unwrap()],
        traits: Traits::new(),
    };
    let identity = sallyport_access::Identity {
        principal,
        login_id: Uuid::new_v4(),
        device: None,
        pinned_to: None,
        valid_after: now,
        valid_before: now + time::Duration::HOUR,
    };
    let (ssh, tls) =
        (SshKeyPair::generate(Suite::BalancedV1, "x").unwrap(), TlsKey::generate(Suite::BalancedV1).unwrap());
    let (line, spki) = (ssh.public_line(), tls.spki_der());
    let options = SshOptions::default();
    let issued = issue_user(ca, &identity, line, spki, now, time::Duration::HOUR, &options).unwrap();
    scene.alice.with_keys(name, &ssh.private_openssh(), &issued.ssh, &tls.pkcs8_pem(), &issued.tls_pem)
}

/// A certificate of the node itself, by its id and its join, signed by the stolen key.
async fn forge_node(ca: &Authority, scene: &Scene) -> Identity {
    let real = scene.node_identity();
    let trust = scene.cluster.running.authority().unwrap().trust();
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(real.chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let now = OffsetDateTime::now_utc();
    let join_id = trust.identify_peer(&chain, now).unwrap().login_id;
    let (ssh, tls) =
        (SshKeyPair::generate(Suite::BalancedV1, "x").unwrap(), TlsKey::generate(Suite::BalancedV1).unwrap());
    let request = HostRequest {
        id: real.id.parse().unwrap(),
        name: &NodeName::new("web-1").unwrap(),
        role: HostRole::Node,
        join_id,
        public_names: &[],
        ssh_public_key: ssh.public_line(),
        tls_spki: tls.spki_der(),
    };
    let issued = issue_host(ca, &request, now, time::Duration::HOUR).unwrap();
    Identity { key: tls.pkcs8_pem().to_string(), chain: issued.tls_pem, id: real.id }
}

async fn beats(node: &Identity, cluster: &Cluster) -> Result<(), Status> {
    let mut fleet = FleetClient::new(node.authority(cluster).await);
    fleet.heartbeat(v1::HeartbeatRequest::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_says_another_kind_than_its_signers_is_no_users() {
    let scene = Scene::new().await;
    let cluster = &scene.cluster;
    // The user CA's keys sign the node, which the authority knows.
    beats(&scene.node_identity(), cluster).await.unwrap();
    let as_host = take(cluster, CaKind::User, CaKind::Host).await;
    let forged = forge_node(&as_host, &scene).await;
    beats(&forged, cluster).await.expect_err("the user CA's keys made a host");

    // The host CA's keys sign alice, whom the authority and the proxy know.
    let as_user = take(cluster, CaKind::Host, CaKind::User).await;
    let forged = forge(&as_user, &scene, "alice");
    for (user, is_let_in) in [(&scene.alice, true), (&forged, false)] {
        let mut asking = ClusterClient::new(user.authority().await);
        let listed = asking.list_nodes(v1::ListNodesRequest::default()).await;
        assert_eq!(listed.is_ok(), is_let_in, "the authority: {listed:?}");
        let opened = match user.connect().await {
            Ok(channel) => support::open(channel, "web-1", &scene.login).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(opened, is_let_in, "the proxy");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_signs_for_users_alone_and_a_rotation_ends_it() {
    let scene = Scene::new().await;
    let ca = take(&scene.cluster, CaKind::User, CaKind::User).await;
    let mallory = forge(&ca, &scene, "mallory");

    // The authority knows its users: what it holds about them bounds what a certificate says.
    no_administration(&mallory.authority().await).await;
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
