//! The table "What a stolen thing gives away" of SECURITY.md, a file for each row: the thing is taken from a running cluster, all
//! that it should not give is tried, and then what the row says to do is done, and ends it.

mod audit_log;
mod certificate;
mod invite;
mod join_token;
mod login;
mod node;
mod password;
mod proxy;
mod recording;
mod state;
mod user_ca;
mod user_key;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sallyport_access::HostRole;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_ssh::client::{Output, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::devices_client::DevicesClient;
use sallyport_wire::v1::fleet_client::FleetClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::logins_client::LoginsClient;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::sessions_client::SessionsClient;
use sallyport_wire::v1::suites_client::SuitesClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::{self, Cluster, PATIENCE, User, authority_as, node_section, os_login, pinned};

/// What an answer to a theft must be done within, from the moment that the authority has said it is done.
const GOAL: Duration = Duration::from_secs(2);
/// One tick of the time that this process has had.
const TICK: Duration = Duration::from_millis(10);

/// A cluster with a node that has joined, and a user with a session on it.
struct Scene {
    cluster: Cluster,
    node: Running,
    alice: User,
    login: String,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let login = os_login();
        let alice = cluster.user("alice", &[&login]).await;
        let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
        let mut config = support::config(&cluster.directory.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(cluster.proxy()),
            join: support::join(&token, &pin),
            ..node_section("web-1")
        });
        let node = sallyport_server::start(config).await.unwrap();
        node.ready(PATIENCE).await.unwrap();
        Self { cluster, node, alice, login }
    }

    /// The keys and certificates that a node keeps.
    fn node_identity(&self) -> Identity {
        Identity::read(&self.cluster.directory.path().join("node/node/identity.json"))
    }

    /// A command of the user's that runs until it is cut, and has begun.
    async fn session(&self) -> LiveSession {
        let connection = self.alice.ssh("web-1", &self.login).await;
        let mut session = connection.start(SessionRequest::exec("echo ready; sleep 120")).await.unwrap();
        while session.next().await != Some(Output::Stdout("ready\n".into())) {}
        LiveSession { session, _connection: connection }
    }

    async fn end(self) {
        self.node.shutdown(false).await;
        self.cluster.running.shutdown(false).await;
    }
}

/// A session, and the connection that it is on.
struct LiveSession {
    session: sallyport_ssh::client::Session,
    _connection: sallyport_ssh::client::Connection,
}

/// A host's file of keys and certificates.
struct Identity {
    key: String,
    chain: String,
    id: String,
}

impl Identity {
    fn read(path: &Path) -> Self {
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let text = |name: &str| file[name].as_str().unwrap().to_owned();
        Self { key: text("tls_key"), chain: text("tls_chain"), id: text("id") }
    }

    /// To the authority, with what was stolen.
    async fn authority(&self, cluster: &Cluster) -> Channel {
        let trust = cluster.running.authority().unwrap().trust();
        authority_as(&cluster.proxy(), &trust, &self.chain, &self.key).await
    }
}

/// The time from the answer to what an administrator did to what came of it. It is counted in ticks of this process, in which
/// the whole cluster runs: a machine that has other things to do has fewer of them in a second.
struct Stopwatch {
    began: Instant,
    ticks: Arc<AtomicU32>,
    ticking: tokio::task::JoinHandle<()>,
}

impl Stopwatch {
    fn start() -> Self {
        let ticks: Arc<AtomicU32> = Arc::default();
        let counted = Arc::clone(&ticks);
        let ticking = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { began: Instant::now(), ticks, ticking }
    }

    /// It has come to pass now, which is soon enough.
    fn done(&self, what: &str) {
        let (passed, had) = (self.began.elapsed(), TICK * self.ticks.load(Ordering::Relaxed));
        println!("{what}: {} ms after it was answered", passed.as_millis());
        assert!(had < GOAL, "{what}: {passed:?} after it was answered, of which this process had {had:?}");
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.ticking.abort();
    }
}

/// A session comes to an end, `since` an administrator has done something about it.
async fn is_cut(mut live: LiveSession, since: &Stopwatch) {
    let ended = tokio::time::timeout(PATIENCE, async { while live.session.next().await.is_some() {} }).await;
    ended.expect("the session is cut");
    since.done("the session was cut");
}

/// Locks something, as an administrator does.
async fn lock(cluster: &Cluster, target: &str) -> Stopwatch {
    let yaml =
        format!("kind: lock\nversion: v1\nmetadata: {{name: theft}}\nspec: {{target: {{{target}}}}}\n");
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: false }).await.unwrap();
    Stopwatch::start()
}

fn denied<T>(what: &str, answer: Result<T, Status>) {
    match answer {
        Ok(_) => panic!("{what}: it was let in"),
        Err(status) => assert!(
            matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated),
            "{what}: {status:?}"
        ),
    }
}

/// Everything that neither a user without rights nor any host may ask of the authority.
async fn no_administration(channel: &Channel) {
    let mut admin = AdminClient::new(channel.clone());
    for kind in [
        "user",
        "token",
        "role",
        "lock",
        "login_rule",
        "db",
        "session_policy",
        "oidc",
        "github",
        "gitlab",
        "app",
    ] {
        let get = v1::GetResourceRequest { kind: kind.to_owned(), name: "editor".to_owned() };
        denied(&format!("reading a {kind}"), admin.get_resource(get).await);
        let list = v1::ListResourcesRequest { kind: kind.to_owned(), ..Default::default() };
        denied(&format!("listing the kind {kind}"), admin.list_resources(list).await);
        let delete = v1::DeleteResourceRequest { kind: kind.to_owned(), name: "editor".to_owned() };
        denied(&format!("deleting a {kind}"), admin.delete_resource(delete).await);
    }
    let role = "kind: role\nversion: v1\nmetadata: {name: mine}\nspec: {allow: {logins: [root], node_labels: {'*': '*'}}}\n";
    for yaml in [role, "kind: lock\nversion: v1\nmetadata: {name: out}\nspec: {target: {user: alice}}\n"] {
        let create = v1::CreateResourceRequest { yaml: yaml.to_owned(), replace: true };
        denied("writing a document", admin.create_resource(create).await);
        let update = v1::UpdateResourceRequest { yaml: yaml.to_owned(), revision: 1 };
        denied("changing a document", admin.update_resource(update).await);
    }
    let user = v1::CreateUserRequest {
        name: "eve".to_owned(),
        roles: vec!["editor".to_owned()],
        ..Default::default()
    };
    denied("making a user", admin.create_user(user).await);
    denied("resetting a user", admin.reset_user(v1::ResetUserRequest { name: "alice".to_owned() }).await);
    let link = v1::LinkUserRequest {
        name: "alice".to_owned(),
        connector: "corp".to_owned(),
        subject: "thief".to_owned(),
    };
    denied("linking a user", admin.link_user(link).await);
    denied("unlinking a user", admin.unlink_user(v1::UnlinkUserRequest { name: "alice".to_owned() }).await);
    let token = v1::CreateTokenRequest { role: "proxy".to_owned(), ..Default::default() };
    denied("making a token", admin.create_token(token).await);
    denied("reading the log", admin.search_events(v1::SearchEventsRequest::default()).await);
    denied("checking the log", admin.verify_audit(v1::VerifyAuditRequest::default()).await);

    let mut certificates = CertificatesClient::new(channel.clone());
    denied(
        "listing certificates",
        certificates.list_certificates(v1::ListCertificatesRequest::default()).await,
    );
    for kind in ["user", "host", "database_client", "svid", "jwt"] {
        let sign = v1::SignCertificateRequest {
            kind: kind.to_owned(),
            subject: "alice".to_owned(),
            ssh_public_key: ssh_line(),
            tls_public_key: spki(),
            ..Default::default()
        };
        denied(
            &format!("signing a certificate of the kind {kind}"),
            certificates.sign_certificate(sign).await,
        );
    }
    let rotate = v1::RotateCaRequest {
        kind: "user".to_owned(),
        step: Some(v1::rotate_ca_request::Step::Phase("init".to_owned())),
        force: true,
    };
    denied("rotating a CA", RotationClient::new(channel.clone()).rotate_ca(rotate).await);
    let set =
        v1::SetSuiteRequest { from: "balanced-v1".to_owned(), to: "legacy".to_owned(), accept_breaks: true };
    denied("setting the suite", SuitesClient::new(channel.clone()).set_suite(set).await);
    let mut provisioning = ProvisioningClient::new(channel.clone());
    let token = v1::AddScimTokenRequest { connector: "corp".to_owned(), ttl: None };
    let mut devices = DevicesClient::new(channel.clone());
    denied("listing devices", devices.list(v1::ListDevicesRequest {}).await);
    denied("making a token of a device", devices.add_token(v1::AddDeviceTokenRequest::default()).await);
    denied("assigning a device", devices.assign(v1::AssignDeviceRequest::default()).await);
    denied("removing a device", devices.remove(v1::RemoveDeviceRequest::default()).await);
    denied("making a token of a SCIM client", provisioning.add_scim_token(token).await);
    let mut logins = LoginsClient::new(channel.clone());
    denied("listing the logins of all", logins.list_of(v1::ListLoginsOfRequest::default()).await);
    let which = Some(v1::end_logins_of_request::Which::All(true));
    let end = v1::EndLoginsOfRequest { user: "alice".to_owned(), which, reason: String::new() };
    denied("ending the logins of a user", logins.end_of(end).await);
}

/// Recordings and sessions of other people.
async fn nothing_of_others(channel: &Channel, recording: &str) {
    let mut cluster = ClusterClient::new(channel.clone());
    let play = v1::PlayRecordingRequest { session_id: recording.to_owned(), from: None };
    match cluster.play_recording(play).await {
        Ok(answer) => denied("playing a recording", answer.into_inner().message().await),
        refused => denied("playing a recording", refused),
    }
    let mut sessions = SessionsClient::new(channel.clone());
    let id = || recording.to_owned();
    let remove = v1::RemoveRecordingRequest { session_id: id() };
    denied("removing a recording", sessions.remove_recording(remove).await);
    let hold = v1::HoldRecordingRequest { session_id: id(), hold: false };
    denied("releasing a recording", sessions.hold_recording(hold).await);
    let end = v1::EndSessionRequest { session_id: id(), reason: "theft".to_owned() };
    denied("ending a session", sessions.end_session(end).await);
}

/// The id of a whole recording of another user's session.
async fn recording_of_another(scene: &Scene) -> String {
    let bob = scene.cluster.user("bob", &[&scene.login]).await;
    assert_eq!(bob.run("web-1", &scene.login, "echo of-bob").await.0, "of-bob\n");
    let channel = support::admin_channel(&scene.cluster.data_dir()).await;
    support::until("the recording", async || {
        let mut client = ClusterClient::new(channel.clone());
        let asked = v1::ListRecordingsRequest { user: "bob".to_owned(), ..Default::default() };
        let all = client.list_recordings(asked).await.unwrap().into_inner().recordings;
        all.into_iter().find(|one| one.state == "complete").map(|one| one.session_id)
    })
    .await
}

/// Joins as a host by the API alone, with names that it asks for.
async fn join(
    cluster: &Cluster,
    token: &str,
    pin: &str,
    role: &str,
    name: &str,
) -> Result<(v1::HostCertificates, TlsKey), Status> {
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token: token.to_owned(),
        name: name.to_owned(),
        role: role.to_owned(),
        ssh_public_key: ssh_line(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), pin).await);
    Ok((login.join(request).await?.into_inner(), tls))
}

fn ssh_line() -> String {
    SshKeyPair::generate(Suite::BalancedV1, "thief").unwrap().public_line().to_owned()
}

fn spki() -> bytes::Bytes {
    TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec().into()
}

/// What a host may not have from the authority either: certificates for what it is not, and other hosts' words.
async fn no_other_host(channel: &Channel) {
    let mut fleet = FleetClient::new(channel.clone());
    for names in [vec!["db-1"], vec!["db-1.test.example"], vec!["auth.sallyport.internal"], vec!["*"]] {
        let renew = v1::RenewHostRequest {
            ssh_public_key: ssh_line(),
            tls_public_key: spki(),
            public_names: names.iter().map(ToString::to_string).collect(),
        };
        if let Ok(issued) = fleet.renew_host(renew).await {
            let issued = issued.into_inner();
            let certificate = sallyport_ca::keys::certificate(&issued.ssh_certificate).unwrap();
            for name in &names {
                assert!(
                    !certificate.valid_principals().iter().any(|principal| principal == name),
                    "a certificate for {name}: {:?}",
                    certificate.valid_principals()
                );
            }
        }
    }
    let event =
        sallyport_audit::Event::new(sallyport_audit::Code::UserLogin, time::OffsetDateTime::now_utc());
    let forged = v1::EmitEventsRequest { events_json: vec![event.user("alice").to_json()] };
    denied("telling of a login", fleet.emit_events(forged).await);
}

/// The authority's own files.
fn authority_files(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("auth")
}

/// The role of a certificate that a host has.
fn is_role(trust: &sallyport_ca::Trust, chain: &str, expected: HostRole) -> bool {
    use sallyport_sal::tls::rustls::pki_types::CertificateDer;
    use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
    let leaf = CertificateDer::pem_slice_iter(chain.as_bytes()).next().unwrap().unwrap();
    let identity = trust.identify_tls(&leaf, time::OffsetDateTime::now_utc()).unwrap();
    matches!(identity.principal, sallyport_access::Principal::Host { role, .. } if role == expected)
}
