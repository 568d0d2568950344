//! What a taken-over proxy still has once it is locked or removed: nothing, at agents and at the authority.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_wire::tunnel::Handle;
use sallyport_wire::v1;
use sallyport_wire::v1::cluster_client::ClusterClient;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use super::people::{person, role, write};
use crate::support::hostile_proxy::{HostileProxy, greets};
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, PATIENCE, User, node_section, until};

/// What the answer must be there within; it is there at once, and a machine under load takes its time.
const SECONDS: Duration = Duration::from_secs(5);

/// A proxy's files in the wrong hands, and an agent whose only way to the cluster is that proxy.
struct Scene {
    cluster: Cluster,
    member: Member,
    proxy: HostileProxy,
    node: Running,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let member = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
        let trust = cluster.running.authority().unwrap().trust();
        let proxy = HostileProxy::start(&member, &trust, &cluster.proxy()).await;
        let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
        let mut config = support::config(&cluster.directory.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(proxy.address.clone()),
            join: support::join(&token, &pin),
            ..node_section("web-1")
        });
        let node = sallyport_server::start(config).await.unwrap();
        node.ready(PATIENCE).await.unwrap();
        Self { cluster, member, proxy, node }
    }

    async fn end(self) {
        self.node.shutdown(false).await;
        self.cluster.running.shutdown(false).await;
    }
}

pub(crate) fn lock(name: &str, host: &str) -> v1::CreateResourceRequest {
    let yaml = format!(
        "kind: lock\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{target: {{node: '{host}'}}}}\n"
    );
    v1::CreateResourceRequest { yaml, replace: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_proxy_ends_its_tunnels_and_it_gets_no_other() {
    let mut scene = Scene::new().await;
    let (tunnel, _incoming) = scene.proxy.tunnel().await;
    assert!(greets(&tunnel).await, "before the lock the node takes its streams");

    let mut admin = scene.cluster.admin().await;
    let began = Instant::now();
    admin.create_resource(lock("taken", &scene.member.id)).await.unwrap();
    tokio::time::timeout(PATIENCE, tunnel.closed()).await.expect("the tunnel is cut");
    assert!(began.elapsed() < SECONDS, "after {:?}", began.elapsed());

    // The agent dials again, sees who it is, and has nothing to do with it.
    for _ in 0..2 {
        let (again, _incoming) = scene.proxy.tunnel().await;
        tokio::time::timeout(PATIENCE, again.closed()).await.expect("no tunnel with a locked proxy");
        assert!(!greets(&again).await);
    }

    // When the lock is lifted, it is a proxy as before.
    let lifted = v1::DeleteResourceRequest { kind: "lock".to_owned(), name: "taken".to_owned() };
    admin.delete_resource(lifted).await.unwrap();
    let serves = async {
        loop {
            let (again, _incoming) = scene.proxy.tunnel().await;
            if greets(&again).await {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, serves).await.expect("a tunnel again");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_proxy_is_refused_everywhere() {
    let mut scene = Scene::new().await;
    let (tunnel, _incoming) = scene.proxy.tunnel().await;
    assert!(greets(&tunnel).await);
    let remove = v1::DeleteResourceRequest { kind: "node".to_owned(), name: scene.member.id.clone() };
    let began = Instant::now();
    scene.cluster.admin().await.delete_resource(remove).await.unwrap();
    tokio::time::timeout(PATIENCE, tunnel.closed()).await.expect("the tunnel is cut");
    assert!(began.elapsed() < SECONDS, "after {:?}", began.elapsed());
    let refused = scene.member.renew(&[]).await.unwrap_err().code();
    assert!(matches!(refused, Code::PermissionDenied | Code::Unauthenticated), "{refused:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_certificates_live_for_days_and_not_for_weeks() {
    let cluster = Cluster::without_node().await;
    let ends = |member: &Member| member.issued.valid_until.unwrap().seconds;
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let proxy = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
    assert!(ends(&proxy) - now <= 3 * 24 * 3600 + 120, "{}", ends(&proxy) - now);
    let node = Joining::new("node", "web-1").join(&cluster).await.unwrap();
    assert!(ends(&node) - now > 6 * 24 * 3600);
    cluster.running.shutdown(false).await;
}

/// A server behind a gateway: it greets, and says for itself how often it was dialled.
struct Greeter {
    address: std::net::SocketAddr,
    dialled: Arc<AtomicUsize>,
}

impl Greeter {
    async fn start() -> Self {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (address, dialled) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&dialled);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"SSH-2.0-behind\r\n").await;
            }
        });
        Self { address, dialled }
    }
}

/// What a stream to the server behind the agent gives that the proxy opens with a certificate it has seen: the greeting, or why there is none.
async fn through_the_gateway(tunnel: &Handle, server: &str, user: &User) -> Result<[u8; 4], String> {
    let header = json!({
        "kind": "openssh", "client_addr": "192.0.2.7:1234", "user": user.name,
        "server": {"node": server, "login": "deploy", "proof": {"ssh": user.ssh_certificate}},
    });
    let mut stream = tunnel.open(header.to_string().into()).map_err(|error| error.to_string())?;
    let mut greeting = [0; 4];
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut greeting)).await.expect("an answer");
    read.map(|_| greeting).map_err(|error| error.to_string())
}

/// What the proxy does not ask for, the gateway does: a certificate that the proxy has seen reaches no server.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_takes_a_proxy_to_no_server_whose_factor_is_not_proven() {
    let mut scene = Scene::new().await;
    let behind = Greeter::start().await;
    let allow = "{allow: {logins: [deploy], node_labels: {'*': '*'}}}";
    write(&scene.cluster, role("dev", allow)).await;
    let server = format!(
        "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: db-1}}\nspec: {{address: '{}', via: web-1}}\n",
        behind.address
    );
    write(&scene.cluster, server).await;
    let alice = person(&scene.cluster, "alice", &["dev"], &[]).await;
    let mut admin = ClusterClient::new(support::admin_channel(&scene.cluster.data_dir()).await);
    let nodes = admin.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    let server = nodes.iter().find(|node| node.name == "db-1").unwrap().id.clone();
    let (tunnel, _incoming) = scene.proxy.tunnel().await;
    until("the agent to hear of the server and the user", async || {
        through_the_gateway(&tunnel, &server, &alice).await.ok()
    })
    .await;

    let demanding =
        "{options: {require_session_mfa: yes}, allow: {logins: [deploy], node_labels: {'*': '*'}}}";
    write(&scene.cluster, role("dev", demanding)).await;
    let refused = until("the agent to hear of the role", async || {
        through_the_gateway(&tunnel, &server, &alice).await.err()
    })
    .await;
    assert!(refused.contains("require_session_mfa: yes"), "{refused}");
    let dialled = behind.dialled.load(Ordering::SeqCst);
    for _ in 0..3 {
        through_the_gateway(&tunnel, &server, &alice).await.unwrap_err();
    }
    assert_eq!(behind.dialled.load(Ordering::SeqCst), dialled);
    until("the event", async || {
        let refused = support::events(&mut scene.cluster.admin().await, "SP2006W").await;
        let at_the_gateway = |event: &serde_json::Value| {
            event["fields"]["at"] == "gateway" && event["fields"]["reason"] == "factor_missing"
        };
        refused.iter().any(at_the_gateway).then_some(())
    })
    .await;
    scene.end().await;
}
