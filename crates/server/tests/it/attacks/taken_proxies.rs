//! What a taken-over proxy still has once it is locked or removed: nothing, at agents and at the authority.

use std::time::{Duration, Instant};

use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_wire::v1;
use tonic::Code;

use crate::support::hostile_proxy::{HostileProxy, greets};
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, PATIENCE, node_section};

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
