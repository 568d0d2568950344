//! `crypto.require_fips`: what a cluster demands of hosts and clients, and a host of its cluster. What a program says of its
//! cryptography is not proven, so a build without the module can say it here.

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, Suite};
use sallyport_server::config::{AuthSection, HostPort, NodeSection, ProxySection};
use sallyport_ssh::client::{Output, SessionRequest};
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::{fips, v1};
use tonic::Code;
use tonic::transport::Channel;

use crate::support::member::Joining;
use crate::support::{self, Cluster, PASSWORD, node_section, pinned};

fn keys() -> (SshKeyPair, TlsKey) {
    let suite = Suite::FipsV1;
    (SshKeyPair::generate(suite, "x").unwrap(), TlsKey::generate(suite).unwrap())
}

fn is_refusal(status: &tonic::Status) -> bool {
    status.code() == Code::FailedPrecondition
        && status.message().contains("requires FIPS mode")
        && status.message().contains("SALLYPORT_CRYPTO=fips")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_requires_fips_takes_no_host_that_does_not_say_it() {
    let cluster = Cluster::start(|config| config.crypto.require_fips = true).await;
    let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
    let (ssh, tls) = keys();
    let request = v1::JoinRequest {
        token,
        name: "web-9".to_owned(),
        role: "node".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let refused = login.join(fips::saying(request.clone(), false)).await.unwrap_err();
    assert!(is_refusal(&refused), "{refused}");
    // The token is not spent by it.
    let issued = login.join(fips::saying(request, true)).await.unwrap().into_inner();

    let trust = cluster.running.authority().unwrap().trust();
    let key = tls.pkcs8_pem();
    let channel = support::authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &key).await;
    let mut fleet = v1::fleet_client::FleetClient::new(channel);
    let renew = v1::RenewHostRequest {
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        public_names: Vec::new(),
    };
    // A host that has left FIPS mode since.
    let refused = fleet.renew_host(renew.clone()).await.unwrap_err();
    assert!(is_refusal(&refused), "{refused}");
    fleet.renew_host(fips::saying(renew, true)).await.unwrap();
    let refused = fleet.heartbeat(v1::HeartbeatRequest::default()).await.unwrap_err();
    assert!(is_refusal(&refused), "{refused}");
    fleet.heartbeat(fips::saying(v1::HeartbeatRequest::default(), true)).await.unwrap();

    let mut found =
        cluster.admin().await.search_events(v1::SearchEventsRequest::default()).await.unwrap().into_inner();
    let mut refusals = Vec::new();
    while let Some(record) = found.message().await.unwrap() {
        if record.event_json.contains("requires FIPS mode") {
            refusals.push(record.event_json);
        }
    }
    for method in ["Login.Join", "Fleet.RenewHost", "Fleet.Heartbeat"] {
        assert!(refusals.iter().any(|event| event.contains(method)), "{method}: {refusals:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_requires_fips_takes_no_login_that_does_not_say_it() {
    let cluster = Cluster::start(|config| config.crypto.require_fips = true).await;
    let mut admin = cluster.admin().await;
    let token = invited(&mut admin).await;
    let pin = support::pin(&mut admin).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    login.begin_invite(v1::BeginInviteRequest { token: token.clone() }).await.unwrap();
    let finish = v1::FinishInviteRequest { token, password: PASSWORD.to_owned(), otp: String::new() };
    login.finish_invite(finish).await.unwrap();

    let (ssh, tls) = keys();
    let attempt = v1::LoginRequest {
        user: "alice".to_owned(),
        password: PASSWORD.to_owned(),
        otp: String::new(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let refused = login.login_with_password(attempt.clone()).await.unwrap_err();
    assert!(is_refusal(&refused), "{refused}");
    login.login_with_password(fips::saying(attempt, true)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_requires_fips_joins_no_cluster_that_does_not_say_it() {
    // No build of the tests is in FIPS mode.
    let cluster = Cluster::without_node().await;
    let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
    let directory = support::place();
    let mut config = support::config(&directory.path().join("node"));
    config.crypto.require_fips = true;
    config.node = Some(NodeSection {
        proxy_server: Some(cluster.proxy()),
        join: support::join(&token, &pin),
        ..node_section("web-9")
    });
    let refused = |refused: sallyport_server::ServerError| {
        let text = sallyport_server::ServerError::chain(&refused);
        assert!(text.contains("does not run in FIPS mode") && text.contains("crypto.require_fips"), "{text}");
    };
    refused(sallyport_server::start(config.clone()).await.unwrap_err());
    let identity = directory.path().join("node/node/identity.json");
    assert!(!identity.exists(), "it is no member");

    // The token was not spent by it.
    let relaxed = |require_fips| {
        let mut config = config.clone();
        config.crypto.require_fips = require_fips;
        config
    };
    let node = sallyport_server::start(relaxed(false)).await.unwrap();
    node.shutdown(false).await;
    assert!(identity.exists());
    // A member that demands it from now on is told at its start, and not when it renews.
    refused(sallyport_server::start(relaxed(true)).await.unwrap_err());
}

fn watching() -> v1::WatchRequest {
    v1::WatchRequest { kinds: vec!["lock".to_owned()] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_say_it_follows_no_policy_and_gets_no_certificate_for_others() {
    let cluster = Cluster::start(|config| config.crypto.require_fips = true).await;
    let gate = Joining::new("proxy", "gate").in_fips_mode().join(&cluster).await.unwrap();
    let web = Joining::new("node", "web-9").in_fips_mode().join(&cluster).await.unwrap();
    let mut database = v1::databases_client::DatabasesClient::new(web.channel.clone());
    let reports = || tokio_stream::once(v1::ReportSessionsRequest::default());
    let refusals = [
        ("Fleet.Watch", gate.fleet().watch(watching()).await.unwrap_err()),
        ("Fleet.ReportSessions", gate.fleet().report_sessions(reports()).await.unwrap_err()),
        (
            "Fleet.CertifyTarget",
            gate.fleet().certify_target(v1::CertifyTargetRequest::default()).await.unwrap_err(),
        ),
        (
            "Fleet.CertifyForTarget",
            gate.fleet().certify_for_target(v1::CertifyForTargetRequest::default()).await.unwrap_err(),
        ),
        (
            "Databases.CertifyDatabaseUser",
            database.certify_database_user(v1::CertifyDatabaseUserRequest::default()).await.unwrap_err(),
        ),
        (
            "Databases.PermitDatabaseSession",
            database.permit_database_session(v1::PermitDatabaseSessionRequest::default()).await.unwrap_err(),
        ),
    ];
    let refused = support::events(&mut cluster.admin().await, "api.refused").await;
    for (method, status) in refusals {
        assert!(is_refusal(&status) && fips::is_refusal(&status), "{method}: {status}");
        assert!(refused.iter().any(|event| event["fields"]["method"] == method), "{method}: {refused:?}");
    }
    // The same calls of a host that says it are judged by what they ask for.
    gate.fleet().watch(fips::saying(watching(), true)).await.unwrap();
    gate.fleet().report_sessions(fips::saying(reports(), true)).await.unwrap();
    let asked = fips::saying(v1::CertifyTargetRequest::default(), true);
    assert!(!fips::is_refusal(&gate.fleet().certify_target(asked).await.unwrap_err()));
    // What has happened is heard from every host.
    gate.fleet().emit_events(v1::EmitEventsRequest::default()).await.unwrap();
}

/// No build of the tests is in FIPS mode, so that this proxy is one whose setting was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_has_left_fips_mode_is_told_when_it_starts() {
    let cluster = Cluster::without_node().await;
    let (token, pin) = support::token(&mut cluster.admin().await, "proxy").await;
    let place = support::place();
    let gate = async |cluster: &Cluster| {
        let mut config = support::config(&place.path().join("gate"));
        config.proxy = Some(ProxySection {
            auth_server: Some(cluster.proxy()),
            join: support::join(&token, &pin),
            ..support::proxy_section()
        });
        sallyport_server::start(config).await.unwrap()
    };
    let running = gate(&cluster).await;
    running.ready(support::PATIENCE).await.unwrap();
    running.shutdown(true).await;

    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let mut config = support::config(&directory.path().join("cluster"));
    (config.auth, config.proxy) = (Some(support::auth_section()), Some(support::proxy_section()));
    config.crypto.require_fips = true;
    let running = sallyport_server::start(config).await.unwrap();
    // What runs in the authority's own process is held to its configuration.
    running.ready(support::PATIENCE).await.unwrap();
    let cluster = Cluster { directory, running };

    let told = gate(&cluster).await;
    support::until("the word of the authority", || {
        let waiting = told.readiness().waiting;
        async move { waiting.iter().any(|why| why.contains("requires FIPS mode")).then_some(()) }
    })
    .await;
    let refused = support::events(&mut cluster.admin().await, "api.refused").await;
    assert!(refused.iter().any(|event| event["fields"]["method"] == "Fleet.Watch"), "{refused:?}");
}

/// Whether a host has roles on its disk, by which it would permit sessions at its next start.
fn keeps_roles(directory: &std::path::Path) -> bool {
    let text = std::fs::read_to_string(directory.join("policy.json")).unwrap();
    let cache: serde_json::Value = serde_json::from_str(&text).unwrap();
    cache["held"].as_array().unwrap().iter().any(|held| held["kind"] == "role")
}

/// It hears of no locks any more. The node is behind a proxy of its own, whose tunnel outlives the authority's restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_authority_refuses_ends_its_sessions_and_keeps_no_roles() {
    let auth = |listen| AuthSection { listen: Some(listen), ..support::auth_section() };
    let cluster = Cluster::start(|config| config.auth = Some(auth(support::loopback()))).await;
    cluster.running.ready(support::PATIENCE).await.unwrap();
    let listen = cluster.running.addresses().auth.unwrap();
    let place = support::place();
    let (token, pin) = support::token(&mut cluster.admin().await, "proxy").await;
    let mut config = support::config(&place.path().join("gate"));
    config.proxy = Some(ProxySection {
        auth_server: Some(HostPort::from(listen)),
        join: support::join(&token, &pin),
        ..support::proxy_section()
    });
    let gate = sallyport_server::start(config).await.unwrap();
    gate.ready(support::PATIENCE).await.unwrap();
    let address = HostPort::from(gate.addresses().proxy.unwrap());
    let (token, _) = support::token(&mut cluster.admin().await, "node").await;
    let node = async || {
        let mut config = support::config(&place.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(address.clone()),
            join: support::join(&token, &pin),
            ..node_section("web-1")
        });
        sallyport_server::start(config).await.unwrap()
    };
    let running = node().await;
    running.ready(support::PATIENCE).await.unwrap();
    let login = support::os_login();
    cluster.user("alice", &[&login]).await;
    let alice = support::log_in(&address, &pin, "alice", None).await.unwrap();
    support::until("the node at its proxy", || async { alice.open("web-1", &login).await.ok() }).await;
    let live = alice.ssh("web-1", &login).await;
    let mut session = live.start(SessionRequest::exec("echo ready; sleep 120")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    let disk = place.path().join("node/node");
    support::until("the roles on the node's disk", || async { keeps_roles(&disk).then_some(()) }).await;

    let Cluster { directory, running: authority } = cluster;
    authority.shutdown(true).await;
    let mut config = support::config(&directory.path().join("cluster"));
    (config.auth, config.proxy) = (Some(auth(listen)), Some(support::proxy_section()));
    config.crypto.require_fips = true;
    let authority = sallyport_server::start(config).await.unwrap();
    let ended = tokio::time::timeout(support::PATIENCE, async {
        let mut told = Vec::new();
        while let Some(output) = session.next().await {
            if let Output::Stderr(bytes) = output {
                told.extend_from_slice(&bytes);
            }
        }
        String::from_utf8(told).unwrap()
    });
    let told = ended.await.expect("the session is ended");
    assert!(told.contains("requires FIPS mode"), "{told:?}");
    assert!(!keeps_roles(&disk));
    // Nor does it serve by what it knew before, while the authority is away.
    running.shutdown(true).await;
    authority.shutdown(true).await;
    let again = node().await;
    let waiting = again.readiness().waiting;
    assert!(waiting.iter().any(|why| why.contains("has not heard from the authority")), "{waiting:?}");
    again.shutdown(true).await;
    gate.shutdown(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_hosts_are_held_to_the_suite_when_they_join_and_when_they_renew() {
    let cluster = with_fips_v1().await;
    let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let (good_ssh, good_tls) = keys();
    let (bad_ssh, bad_tls) = ed25519();
    let joining = |ssh: &SshKeyPair, tls: &[u8]| v1::JoinRequest {
        token: token.clone(),
        name: "web-9".to_owned(),
        role: "node".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.to_vec().into(),
        ..Default::default()
    };
    let refused = |status: tonic::Status, what: &str| {
        assert!(
            support::is(&status, Code::InvalidArgument, "fips-v1 does not accept ed25519"),
            "{what}: {status}"
        );
    };
    refused(login.join(joining(&bad_ssh, good_tls.spki_der())).await.unwrap_err(), "a join's SSH key");
    refused(login.join(joining(&good_ssh, &bad_tls)).await.unwrap_err(), "a join's TLS key");
    // The token is not spent by them.
    let issued = login.join(joining(&good_ssh, good_tls.spki_der())).await.unwrap().into_inner();

    let trust = cluster.running.authority().unwrap().trust();
    let key = good_tls.pkcs8_pem();
    let channel = support::authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &key).await;
    let mut fleet = v1::fleet_client::FleetClient::new(channel);
    let renewing = |ssh: &SshKeyPair, tls: &[u8]| v1::RenewHostRequest {
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.to_vec().into(),
        public_names: Vec::new(),
    };
    refused(
        fleet.renew_host(renewing(&bad_ssh, good_tls.spki_der())).await.unwrap_err(),
        "a renewal's SSH key",
    );
    refused(fleet.renew_host(renewing(&good_ssh, &bad_tls)).await.unwrap_err(), "a renewal's TLS key");
    fleet.renew_host(renewing(&good_ssh, good_tls.spki_der())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_users_are_held_to_the_suite_when_they_log_in() {
    let cluster = with_fips_v1().await;
    let mut admin = cluster.admin().await;
    let token = invited(&mut admin).await;
    let pin = support::pin(&mut admin).await;
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    login.begin_invite(v1::BeginInviteRequest { token: token.clone() }).await.unwrap();
    let finish = v1::FinishInviteRequest { token, password: PASSWORD.to_owned(), otp: String::new() };
    login.finish_invite(finish).await.unwrap();
    let (good_ssh, good_tls) = keys();
    let (bad_ssh, bad_tls) = ed25519();
    let attempt = |ssh: &SshKeyPair, tls: &[u8]| v1::LoginRequest {
        user: "alice".to_owned(),
        password: PASSWORD.to_owned(),
        otp: String::new(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.to_vec().into(),
        ..Default::default()
    };
    for (ssh, tls) in [(&bad_ssh, good_tls.spki_der()), (&good_ssh, bad_tls.as_slice())] {
        let status = login.login_with_password(attempt(ssh, tls)).await.unwrap_err();
        assert!(support::is(&status, Code::InvalidArgument, "fips-v1 does not accept ed25519"), "{status}");
    }
    login.login_with_password(attempt(&good_ssh, good_tls.spki_der())).await.unwrap();
}

/// Keys that no suite of FIPS mode takes.
fn ed25519() -> (SshKeyPair, Vec<u8>) {
    let tls = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap().public_key().spki_der();
    (SshKeyPair::generate(Suite::BalancedV1, "x").unwrap(), tls)
}

/// The token of the invited user alice, who has a role.
async fn invited(admin: &mut AdminClient<Channel>) -> String {
    let yaml = support::role("any", &["root"]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    let (name, roles) = ("alice".to_owned(), vec!["any".to_owned()]);
    let request = v1::CreateUserRequest { name, roles, ..Default::default() };
    admin.create_user(request).await.unwrap().into_inner().token
}

async fn with_fips_v1() -> Cluster {
    Cluster::start(|config| config.auth.as_mut().unwrap().suite = Some(Suite::FipsV1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_by_hand_is_held_to_the_suite() {
    let cluster = with_fips_v1().await;
    let mut admin = cluster.admin().await;
    invited(&mut admin).await;
    let mut signing = CertificatesClient::new(support::admin_channel(&cluster.data_dir()).await);
    let (good_ssh, good_tls) = keys();
    let (bad_ssh, bad_tls) = ed25519();
    for (kind, subject, names, bad_parts) in [
        ("user", "alice", &[][..], &["SSH", "TLS"][..]),
        ("openssh_user", "alice", &[], &["SSH"]),
        ("openssh_host", "", &["git.example.net"], &["SSH"]),
        ("database_server", "", &["db.example.net"], &["TLS"]),
        ("agent_to_database", "reporting", &[], &["TLS"]),
        ("svid", "/ns/prod/web", &[], &["TLS"]),
    ] {
        let asked = |bad: &str| v1::SignCertificateRequest {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ssh_public_key: if bad == "SSH" { &bad_ssh } else { &good_ssh }.public_line().to_owned(),
            tls_public_key: if bad == "TLS" { bad_tls.clone() } else { good_tls.spki_der().to_vec() }.into(),
            ..Default::default()
        };
        for bad in bad_parts {
            let refused = signing.sign_certificate(asked(bad)).await.unwrap_err();
            let says = format!("the {bad} public key");
            assert!(
                support::is(&refused, Code::InvalidArgument, "fips-v1 does not accept ed25519"),
                "{refused}"
            );
            assert!(refused.message().contains(&says), "{kind}: {refused}");
        }
        signing.sign_certificate(asked("")).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_host_key_is_held_to_the_suite() {
    let cluster = with_fips_v1().await;
    let mut admin = cluster.admin().await;
    let written = |suite: Suite| {
        let key = SshKeyPair::generate(suite, "x").unwrap();
        let yaml = format!(
            "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: db-1}}\nspec:\n  address: 127.0.0.1:22\n  \
             host_key: {}\n",
            key.public_line()
        );
        v1::CreateResourceRequest { yaml, replace: true }
    };
    let refused = admin.create_resource(written(Suite::BalancedV1)).await.unwrap_err();
    assert!(support::is(&refused, Code::InvalidArgument, "does not accept ed25519"), "{refused}");
    assert!(refused.message().contains("/etc/ssh/ssh_host_ecdsa_key.pub"), "{refused}");
    admin.create_resource(written(Suite::FipsV1)).await.unwrap();
}
