//! Whole clusters in this process: real certificates, real tunnels, real SSH sessions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod seen;

use std::time::Duration;

use crate::support;
use crate::support::{
    Cluster, PATIENCE, admin, auth_section, config, events, exec, is, join, log_in, loopback, node_section,
    os_login, pin, proxy_section, role, token, until, user,
};
use sallyport_server::config::HostPort;
use sallyport_server::{Running, ServerError};
use sallyport_ssh::client::{Exit, Output, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_one_process_runs_a_session_and_keeps_its_record() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let (out, err, exit) = alice.run("web-1", &login, "echo out; echo err >&2; exit 3").await;
    assert_eq!((out.as_str(), err.as_str(), exit), ("out\n", "err\n", Exit::Status(3)));

    let mut admin = cluster.admin().await;
    let start = events(&mut admin, "SP2000I").await;
    assert_eq!((start[0]["user"].as_str(), start[0]["node"].as_str()), (Some("alice"), Some("web-1")));
    let end = events(&mut admin, "SP2001I").await;
    assert_eq!(end[0]["session_id"], start[0]["session_id"]);
    events(&mut admin, "SP1301I").await;

    // The node's recording is on the authority soon after the session.
    let mut cluster_client = ClusterClient::new(admin_channel(&cluster).await);
    let recording = until("the recording", || {
        let mut client = cluster_client.clone();
        async move {
            let listed =
                client.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner();
            listed.recordings.into_iter().find(|recording| recording.state == "complete")
        }
    })
    .await;
    assert_eq!(Some(recording.session_id.as_str()), start[0]["session_id"].as_str());
    let request = v1::PlayRecordingRequest { session_id: recording.session_id, from: None };
    let mut frames = cluster_client.play_recording(request).await.unwrap().into_inner();
    let mut played = String::new();
    while let Some(message) = frames.message().await.unwrap() {
        played.extend(message.frames_json);
    }
    assert!(played.contains("exit") || played.contains("status"), "{played}");
    let verified = admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner();
    assert!(verified.intact, "{verified:?}");
    cluster.running.shutdown(true).await;
}

async fn admin_channel(cluster: &Cluster) -> tonic::transport::Channel {
    support::admin_channel(&cluster.data_dir()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_reach_the_person_and_the_audit_log() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let status = alice.open("nowhere", &login).await.err().unwrap();
    assert!(is(&status, Code::NotFound, "no node is called \"nowhere\""), "{status:?}");
    let status = alice.open("web-1", "somebody").await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied);
    let mut admin = cluster.admin().await;
    let refused = events(&mut admin, "SP2006W").await;
    assert!(refused.iter().all(|event| event["user"] == "alice"), "{refused:?}");

    // A lock ends what is open and refuses what is new.
    let connection = alice.ssh("web-1", &login).await;
    let mut session = connection.start(SessionRequest::exec("echo ready; sleep 60")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    let lock = "kind: lock\nversion: v1\nmetadata:\n  name: gone\nspec:\n  target:\n    user: alice\n  message: left\n";
    admin.create_resource(v1::CreateResourceRequest { yaml: lock.to_owned(), replace: false }).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(output) = session.next().await {
            if let Output::Exit(exit) = output {
                return Some(exit);
            }
        }
        None
    });
    assert!(!matches!(ended.await.expect("the lock cuts the session"), Some(Exit::Status(0))));
    let status = alice.open("web-1", &login).await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    events(&mut admin, "SP2008W").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_cuts_an_identity_whose_chain_is_remembered() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let list = async || {
        let mut client = ClusterClient::new(alice.authority().await);
        client.list_nodes(v1::ListNodesRequest::default()).await.map(|_| ())
    };
    let remembered = || cluster.running.authority().unwrap().trust().chain_counts().remembered;
    for _ in 0..2 {
        list().await.unwrap();
        alice.open("web-1", &login).await.unwrap();
    }
    let before = remembered();
    list().await.unwrap();
    assert!(remembered() >= before + 2, "the handshake and the identity after it verify nothing");

    let lock = "kind: lock\nversion: v1\nmetadata:\n  name: gone\nspec:\n  target:\n    user: alice\n";
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml: lock.to_owned(), replace: false }).await.unwrap();
    let before = remembered();
    assert_eq!(list().await.unwrap_err().code(), Code::PermissionDenied);
    assert!(remembered() >= before + 2, "the lock was met, not a chain that was forgotten");
    until("the proxy's refusal", async || {
        alice.open("web-1", &login).await.err().filter(|status| status.code() == Code::PermissionDenied)
    })
    .await;
}

/// Takes a source out of service for a primitive that nothing here needs. The selection is that of the process, so
/// every service of every test hears of it.
fn quarantine(primitive: &str, reason: &str) -> (String, &'static str) {
    use sallyport_sal::{Primitive, selection};
    let primitive: Primitive = primitive.parse().unwrap();
    let source = selection::global().source(primitive).unwrap();
    selection::global().quarantine(primitive, source, reason);
    (primitive.to_string(), source.name())
}

async fn diagnostics(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_is_on_record_counted_and_replaced() {
    let cluster = Cluster::start(|config| config.diag_addr = Some(loopback())).await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let (primitive, provider) = quarantine("sign/ml-dsa-44", "made to fail by a test");
    let mut admin = cluster.admin().await;
    let event = until("the event", async || {
        let events = events(&mut admin.clone(), "SP3300E").await;
        events.into_iter().find(|event| event["fields"]["primitive"] == primitive.as_str())
    })
    .await;
    assert_eq!((&event["user"], &event["origin"]), (&"auth".into(), &"auth".into()));
    assert_eq!(event["fields"]["provider"], provider);
    assert!(event["message"].as_str().unwrap().contains("made to fail by a test"), "{event}");
    let address = cluster.running.addresses().diag.unwrap();
    let metrics = diagnostics(address, "/metrics").await;
    let row = format!("sallyport_crypto_quarantined{{primitive=\"{primitive}\",provider=\"{provider}\"}} 1");
    assert!(metrics.contains(&row), "{metrics}");
    assert!(metrics.contains("sallyport_tls_chains_total{result=\"verified\"}"), "{metrics}");
    assert!(diagnostics(address, "/readyz").await.contains("200 OK"));
    // Once for the process, though proxy and authority run in it.
    let events = events(&mut admin, "SP3300E").await;
    assert_eq!(
        events.iter().filter(|event| event["fields"]["primitive"] == primitive.as_str()).count(),
        1,
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_and_nodes_hand_incidents_to_the_authority() {
    let spread = Spread::start().await;
    let (primitive, _) = quarantine("sign/ml-dsa-65", "made to fail by another test");
    let admin = spread.admin().await;
    until("the events of all three", async || {
        let events = events(&mut admin.clone(), "SP3300E").await;
        let mut origins: Vec<_> = events
            .iter()
            .filter(|event| event["fields"]["primitive"] == primitive.as_str())
            .filter_map(|event| Some(event["origin"].as_str()?.split(':').next()?.to_owned()))
            .collect();
        origins.sort();
        (origins == ["auth", "node", "proxy"]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_only_the_node_learns_of_is_refused_there() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    // The proxy is not told the login, as with `ssh -J`; the node decides alone.
    let stream = alice.open("web-1", "").await.unwrap();
    let connected =
        sallyport_ssh::client::connect(stream, &alice.credentials(), alice.settings("web-1", "daemon")).await;
    let refused = match connected {
        Err(_) => true,
        Ok(connection) => {
            let (_, err, exit) = exec(&connection, "true").await;
            assert!(err.contains("sallyport:") && err.contains("daemon"), "{err}");
            exit == Exit::Status(255)
        }
    };
    assert!(refused);
}

/// Authority, proxy and node as three sets of services that know each other by address only.
struct Spread {
    directory: tempfile::TempDir,
    auth: Running,
    proxy: Option<Running>,
    node: Option<Running>,
}

impl Spread {
    async fn start() -> Self {
        let directory = support::place();
        let mut auth = config(&directory.path().join("auth"));
        auth.auth =
            Some(sallyport_server::config::AuthSection { listen: Some(loopback()), ..auth_section() });
        let auth = sallyport_server::start(auth).await.unwrap();
        let mut spread = Self { directory, auth, proxy: None, node: None };
        let (token, pin) = token(&mut spread.admin().await, "proxy").await;
        spread.proxy = Some(spread.start_proxy(loopback(), join(&token, &pin)).await.unwrap());
        spread.proxy().ready(PATIENCE).await.unwrap();
        let (token, pin) = support::token(&mut spread.admin().await, "node").await;
        spread.node = Some(spread.start_node(join(&token, &pin)).await.unwrap());
        spread.node().ready(PATIENCE).await.unwrap();
        spread
    }

    async fn admin(&self) -> v1::admin_client::AdminClient<tonic::transport::Channel> {
        admin(&self.directory.path().join("auth")).await
    }

    fn proxy(&self) -> &Running {
        self.proxy.as_ref().unwrap()
    }

    fn node(&self) -> &Running {
        self.node.as_ref().unwrap()
    }

    fn proxy_address(&self) -> HostPort {
        HostPort::from(self.proxy().addresses().proxy.unwrap())
    }

    async fn start_proxy(
        &self,
        listen: std::net::SocketAddr,
        join: sallyport_server::config::JoinConfig,
    ) -> Result<Running, ServerError> {
        let mut proxy = config(&self.directory.path().join("proxy"));
        let auth_server = Some(HostPort::from(self.auth.addresses().auth.unwrap()));
        proxy.proxy =
            Some(sallyport_server::config::ProxySection { listen, auth_server, join, ..proxy_section() });
        sallyport_server::start(proxy).await
    }

    async fn start_node(&self, join: sallyport_server::config::JoinConfig) -> Result<Running, ServerError> {
        let mut node = config(&self.directory.path().join("node"));
        let proxy_server = Some(self.proxy_address());
        node.node =
            Some(sallyport_server::config::NodeSection { proxy_server, join, ..node_section("web-1") });
        sallyport_server::start(node).await
    }
}

async fn works(user: &support::User, login: &str) -> bool {
    let Ok(channel) = user.connect().await else { return false };
    let Ok(stream) = support::open(channel, "web-1", login).await else { return false };
    let connected =
        sallyport_ssh::client::connect(stream, &user.credentials(), user.settings("web-1", login)).await;
    let Ok(connection) = connected else { return false };
    exec(&connection, "echo works").await.0 == "works\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_work_together_and_apart() {
    let mut spread = Spread::start().await;
    let login = os_login();
    let alice = user(&mut spread.admin().await, &spread.proxy_address(), "alice", &[&login]).await;
    assert!(works(&alice, &login).await);
    events(&mut spread.admin().await, "SP2001I").await;

    // The client's own address reaches the authority through the relay, not the proxy's.
    let logins = events(&mut spread.admin().await, "SP1000I").await;
    assert!(logins[0]["source"].as_str().unwrap().starts_with("127.0.0.1"), "{logins:?}");

    // The proxy goes and comes back on its port: the agent dials again by itself, and no token is needed.
    let address = spread.proxy().addresses().proxy.unwrap();
    spread.proxy.take().unwrap().shutdown(false).await;
    spread.proxy =
        Some(spread.start_proxy(address, sallyport_server::config::JoinConfig::default()).await.unwrap());
    until("a session after the proxy's restart", || async { works(&alice, &login).await.then_some(()) })
        .await;

    // The authority goes: proxy and node carry on, also after a restart of the node, and nothing they say is lost.
    let auth_address = spread.auth.addresses().auth.unwrap();
    let data_dir = spread.directory.path().join("auth");
    let Spread { directory, auth, proxy, node } = spread;
    auth.shutdown(true).await;
    assert!(works(&alice, &login).await, "without the authority");
    node.unwrap().shutdown(true).await;
    let mut again = config(&directory.path().join("node"));
    let proxy_server = Some(HostPort::from(address));
    again.node = Some(sallyport_server::config::NodeSection { proxy_server, ..node_section("web-1") });
    let node = sallyport_server::start(again).await.unwrap();
    node.ready(PATIENCE).await.unwrap();
    until("a session on the restarted node", || async { works(&alice, &login).await.then_some(()) }).await;

    let mut auth = config(&data_dir);
    auth.auth = Some(sallyport_server::config::AuthSection { listen: Some(auth_address), ..auth_section() });
    let auth = sallyport_server::start(auth).await.unwrap();
    let mut admin = admin(&data_dir).await;
    until("the events of the time without authority", || {
        let mut admin = admin.clone();
        async move { (events(&mut admin, "SP2001I").await.len() >= 4).then_some(()) }
    })
    .await;
    assert!(admin.verify_audit(v1::VerifyAuditRequest::default()).await.unwrap().into_inner().intact);
    drop((auth, proxy, node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_lost_in_mid_session_is_told_and_recorded() {
    let mut spread = Spread::start().await;
    let login = os_login();
    let alice = user(&mut spread.admin().await, &spread.proxy_address(), "alice", &[&login]).await;
    let mut watched = alice.open("web-1", &login).await.unwrap();
    let connection = alice.ssh("web-1", &login).await;
    let mut session = connection.start(SessionRequest::exec("echo ready; sleep 60")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    spread.node.take().unwrap().shutdown(false).await;
    let status = tokio::time::timeout(PATIENCE, watched.ended()).await.expect("an end").expect("an error");
    assert!(is(&status, Code::Unavailable, "web-1"), "{status:?}");
    events(&mut spread.admin().await, "SP2007W").await;
    let status = alice.open("web-1", &login).await.err().unwrap();
    assert!(is(&status, Code::Unavailable, "is not connected"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_a_node_gives_sessions_time_and_keeps_their_records() {
    let mut spread = Spread::start().await;
    let login = os_login();
    let alice = user(&mut spread.admin().await, &spread.proxy_address(), "alice", &[&login]).await;
    let connection = alice.ssh("web-1", &login).await;
    let mut session =
        connection.start(SessionRequest::exec("echo ready; sleep 0.7; echo done")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    let node = spread.node.take().unwrap();
    let stopping = tokio::spawn(node.shutdown(true));
    let mut said = Vec::new();
    let exit = loop {
        match session.next().await {
            Some(Output::Stdout(bytes)) => said.extend_from_slice(&bytes),
            Some(Output::Exit(exit)) => break exit,
            Some(_) => {}
            None => panic!("no exit"),
        }
    };
    assert_eq!(
        (said.as_slice(), exit),
        (&b"done\n"[..], Exit::Status(0)),
        "a session that ends in time ends well"
    );
    connection.disconnect().await;
    tokio::time::timeout(PATIENCE, stopping).await.unwrap().unwrap();
    let leftovers = std::fs::read_dir(spread.directory.path().join("node/node/recordings")).unwrap().count();
    assert_eq!(leftovers, 0, "the recording was handed over before the end");
    events(&mut spread.admin().await, "SP2001I").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_join_once_and_only_with_the_right_pin() {
    let spread = Spread::start().await;
    let mut admin = spread.admin().await;
    let (token, pin) = support::token(&mut admin, "node").await;
    let node = |name: &str, join| {
        let mut node = config(&spread.directory.path().join(name));
        let proxy_server = Some(spread.proxy_address());
        node.node = Some(sallyport_server::config::NodeSection { proxy_server, join, ..node_section(name) });
        sallyport_server::start(node)
    };
    let wrong = format!("sha256:{}", "0".repeat(64));
    let error = node("web-2", join(&token, &wrong)).await.unwrap_err().to_string();
    assert!(error.contains("did not prove to be the pinned cluster"), "{error}");
    assert!(error.ends_with("the CA pin is the one printed with the token"), "{error}");
    let error = node("web-2", join("nonsense", &pin)).await.unwrap_err().to_string();
    assert!(error.contains("the authority refused") && error.contains("tokens add --role node"), "{error}");
    let error = node("web-2", sallyport_server::config::JoinConfig::default()).await.unwrap_err().to_string();
    assert!(error.contains("no join token is configured"), "{error}");
    let error = node("localhost", join(&token, &pin)).await.unwrap_err().to_string();
    assert!(error.contains("may not be called localhost"), "a name that means something else: {error}");
    assert!(!error.contains("tokens add"), "another token does not mend a name: {error}");
    node("web-2", join(&token, &pin)).await.unwrap().ready(PATIENCE).await.unwrap();
    let error = node("web-3", join(&token, &pin)).await.unwrap_err().to_string();
    assert!(error.contains("the authority refused"), "a replayed token: {error}");
    let (proxy_token, pin) = support::token(&mut admin, "proxy").await;
    let error = node("web-4", join(&proxy_token, &pin)).await.unwrap_err().to_string();
    assert!(error.contains("the authority refused"), "a token of another role: {error}");
    assert_eq!(error.matches("tokens add").count(), 1, "advice comes once: {error}");
    events(&mut admin, "SP1300W").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_another_clusters_configuration_spends_no_token() {
    let cluster = Cluster::without_node().await;
    let (token, pin) = token(&mut cluster.admin().await, "node").await;
    let node = |of: &str| {
        let mut node = config(&cluster.directory.path().join(of));
        node.cluster = sallyport_access::ClusterName::new(of).unwrap();
        let proxy_server = Some(cluster.proxy());
        let join = join(&token, &pin);
        node.node =
            Some(sallyport_server::config::NodeSection { proxy_server, join, ..node_section("web-1") });
        sallyport_server::start(node)
    };
    let error = node("tset").await.unwrap_err();
    let error = ServerError::chain(&error);
    let own = support::cluster();
    let told = [format!("cluster {own},"), "cluster tset;".to_owned(), format!("put cluster: {own} into")];
    assert!(told.iter().all(|part| error.contains(part)), "{error}");
    assert!(!error.contains("tokens add"), "no other token is needed: {error}");
    let hosts = v1::ListNodesRequest { hosts: true, ..Default::default() };
    let mut client = ClusterClient::new(admin_channel(&cluster).await);
    let hosts = client.list_nodes(hosts).await.unwrap().into_inner();
    assert!(!format!("{hosts:?}").contains("web-1"), "nothing is registered: {hosts:?}");
    let refused = events(&mut cluster.admin().await, "SP1300W").await;
    assert_eq!(refused[0]["fields"]["reason"], "another cluster", "{refused:?}");

    node(own.as_str()).await.expect("the token is still good").ready(PATIENCE).await.unwrap();
    // What a program of an earlier release sends.
    let older = support::member::Joining::new("node", "web-2");
    assert_eq!(older.request.cluster, "");
    older.join(&cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cannot_take_the_name_of_a_proxy() {
    let cluster = Cluster::start(|config| {
        let public = "proxy.example.net:443".parse().unwrap();
        config.proxy =
            Some(sallyport_server::config::ProxySection { public_addr: vec![public], ..proxy_section() });
    })
    .await;
    let (token, pin) = token(&mut cluster.admin().await, "node").await;
    let node = |name: &str| {
        let mut node = config(&cluster.directory.path().join(name));
        node.node = Some(sallyport_server::config::NodeSection {
            proxy_server: Some(cluster.proxy()),
            join: join(&token, &pin),
            ..node_section(name)
        });
        sallyport_server::start(node)
    };
    let error = node("proxy.example.net").await.unwrap_err().to_string();
    assert!(error.contains("a proxy is reached by the name proxy.example.net"), "{error}");
    node("web-1").await.expect("the token is still good").ready(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_goes_under_a_session_loses_no_record() {
    let mut spread = Spread::start().await;
    let login = os_login();
    let alice = user(&mut spread.admin().await, &spread.proxy_address(), "alice", &[&login]).await;
    let connection = alice.ssh("web-1", &login).await;
    let mut session = connection.start(SessionRequest::exec("echo ready; sleep 60")).await.unwrap();
    while session.next().await != Some(Output::Stdout("ready\n".into())) {}
    let address = spread.proxy().addresses().proxy.unwrap();
    spread.proxy.take().unwrap().shutdown(false).await;
    let exit = tokio::time::timeout(PATIENCE, async {
        loop {
            match session.next().await {
                Some(Output::Exit(exit)) => return exit,
                Some(_) => {}
                None => panic!("no end"),
            }
        }
    });
    assert!(matches!(exit.await.expect("an end"), Exit::Lost { .. }));
    let join = sallyport_server::config::JoinConfig::default();
    spread.proxy = Some(spread.start_proxy(address, join).await.unwrap());
    until("a session after the proxy's restart", || async { works(&alice, &login).await.then_some(()) })
        .await;
    let mut client = ClusterClient::new(support::admin_channel(&spread.directory.path().join("auth")).await);
    until("the recording of the session that was cut", || {
        let mut client = client.clone();
        async move {
            let listed =
                client.list_recordings(v1::ListRecordingsRequest::default()).await.unwrap().into_inner();
            listed.recordings.into_iter().find(|r| r.command.contains("sleep 60") && r.state == "complete")
        }
    })
    .await;
    client.get_status(v1::GetStatusRequest {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn start_up_errors_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut busy = config(&directory.path().join("busy"));
    busy.auth = Some(auth_section());
    busy.proxy = Some(sallyport_server::config::ProxySection {
        listen: taken.local_addr().unwrap(),
        ..proxy_section()
    });
    let error = sallyport_server::start(busy).await.unwrap_err();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(
        error.to_string().contains(&port) && error.to_string().contains("choose another port"),
        "{error}"
    );
    assert!(!directory.path().join("busy").exists(), "nothing is made when the port is taken");

    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut blocked = config(&file.join("state"));
    blocked.auth = Some(auth_section());
    blocked.proxy = Some(proxy_section());
    let error = sallyport_server::start(blocked).await.unwrap_err().to_string();
    let told = format!("{}: this is a file, and {0}/state has to be a directory", file.display());
    assert!(error.starts_with(&told) && error.contains("data_dir"), "{error}");
    let mut blocked = config(&file);
    blocked.auth = Some(auth_section());
    blocked.proxy = Some(proxy_section());
    let error = sallyport_server::start(blocked).await.unwrap_err().to_string();
    assert!(error.contains("this is a file") && error.contains("data_dir"), "{error}");

    // A second start of the same configuration.
    let cluster = Cluster::without_node().await;
    let mut second = config(&cluster.data_dir());
    second.auth = Some(auth_section());
    second.proxy = Some(sallyport_server::config::ProxySection {
        listen: cluster.running.addresses().proxy.unwrap(),
        ..proxy_section()
    });
    let error = sallyport_server::start(second).await.unwrap_err().to_string();
    assert!(error.contains("in use by another process") && !error.contains("port"), "{error}");
    cluster.running.shutdown(false).await;

    // A host identity that was cut short.
    let cluster = Cluster::all_in_one().await;
    let data_dir = cluster.data_dir();
    let Cluster { directory: kept, running } = cluster;
    running.shutdown(true).await;
    let identity = data_dir.join("proxy/identity.json");
    let whole = std::fs::read(&identity).unwrap();
    std::fs::write(&identity, &whole[..whole.len() / 2]).unwrap();
    let mut again = config(&data_dir);
    again.auth = Some(auth_section());
    again.proxy = Some(proxy_section());
    let error = sallyport_server::start(again).await.unwrap_err().to_string();
    assert!(error.contains("identity.json") && error.contains("damaged"), "{error}");
    drop(kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_stops_and_starts_again_is_the_same_cluster() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let address = cluster.running.addresses().proxy.unwrap();
    let id = cluster.running.node_id();
    let data_dir = cluster.data_dir();
    let Cluster { directory, running } = cluster;
    running.shutdown(true).await;
    let mut again = config(&data_dir);
    again.auth = Some(auth_section());
    again.proxy = Some(sallyport_server::config::ProxySection { listen: address, ..proxy_section() });
    again.node = Some(node_section("web-1"));
    let running = sallyport_server::start(again).await.unwrap();
    running.ready(PATIENCE).await.unwrap();
    assert_eq!(running.node_id(), id);
    assert!(works(&alice, &login).await, "certificates from before still work");
    let mut admin = admin(&data_dir).await;
    let pin = pin(&mut admin).await;
    assert!(log_in(&HostPort::from(address), &pin, "alice", Some(Duration::from_secs(60))).await.is_ok());
    let yaml = role("alice-role", &["nobody-at-all"]);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    until("the role to be taken away", || async { (!works(&alice, &login).await).then_some(()) }).await;
    drop(directory);
}
