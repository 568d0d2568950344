//! What a proxy says at the head of a stream, and what becomes of it at a node.

use std::time::Duration;

use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_wire::tunnel::{Handle, Incoming, Stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::hostile_proxy::HostileProxy;
use crate::support::member::Joining;
use crate::support::{self, Cluster, PATIENCE, exec, node_section, os_login};

/// A node behind a proxy that says what it likes.
struct Scene {
    cluster: Cluster,
    node: Running,
    tunnel: (Handle, Incoming),
    _proxy: HostileProxy,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let member = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
        let trust = cluster.running.authority().unwrap().trust();
        let mut proxy = HostileProxy::start(&member, &trust, &cluster.proxy()).await;
        let (token, pin) = support::token(&mut cluster.admin().await, "node").await;
        let mut config = support::config(&cluster.directory.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(proxy.address.clone()),
            join: support::join(&token, &pin),
            ..node_section("web-1")
        });
        let node = sallyport_server::start(config).await.unwrap();
        node.ready(PATIENCE).await.unwrap();
        let tunnel = proxy.tunnel().await;
        Self { cluster, node, tunnel, _proxy: proxy }
    }

    /// A stream whose head is what the proxy says.
    fn open(&self, said: &Value) -> Stream {
        self.tunnel.0.open(said.to_string().into()).unwrap()
    }

    async fn end(self) {
        self.node.shutdown(false).await;
        self.cluster.running.shutdown(false).await;
    }
}

fn said(client: &str, ssh_alone: bool) -> Value {
    json!({"kind": "ssh", "client_addr": client, "user": "mallory", "ssh_alone": ssh_alone})
}

/// Whether SSH greets on the stream.
async fn greeting(stream: &mut Stream) -> bool {
    let mut first = [0; 4];
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut first)).await;
    matches!(read, Ok(Ok(_))) && &first == b"SSH-"
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_client_is_stands_in_events_as_the_proxys_word_and_who_it_is_does_not() {
    let scene = Scene::new().await;
    let login = os_login();
    let alice = scene.cluster.user("alice", &[&login]).await;
    // The proxy says mallory, from an address that it made up; the node believes the certificate.
    let stream = scene.open(&said("203.0.113.9:4711", true));
    let connection =
        sallyport_ssh::client::connect(stream, &alice.credentials(), alice.settings("web-1", &login)).await;
    let connection = connection.unwrap();
    exec(&connection, "true").await;
    connection.disconnect().await;
    let mut admin = scene.cluster.admin().await;
    let events = support::events(&mut admin, "SP2002I").await;
    let event = events.last().unwrap();
    assert_eq!(event["user"], "alice", "{event}");
    let source = event["source"].as_str().unwrap_or_default();
    assert!(source.starts_with("203.0.113.9"), "{event}");
    assert_eq!(event["fields"]["source_by"], "proxy", "{event}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_no_client_has_is_refused() {
    let scene = Scene::new().await;
    for nobodys in
        ["0.0.0.0:1", "[::]:1", "224.0.0.1:1", "255.255.255.255:1", "[ff02::1]:1", "[::ffff:0.0.0.0]:1"]
    {
        let mut stream = scene.open(&said(nobodys, true));
        assert!(!greeting(&mut stream).await, "{nobodys}");
    }
    assert!(greeting(&mut scene.open(&said("203.0.113.9:1", true))).await);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_proxy_says_of_the_protocol_lets_no_user_in() {
    let scene = Scene::new().await;
    // SSH alone is greeted at once, and nothing else is spoken there.
    let mut alone = scene.open(&said("203.0.113.9:1", true));
    assert!(greeting(&mut alone).await);
    // Otherwise the node looks at the first byte, and believes it rather than the proxy.
    let mut waits = scene.open(&said("203.0.113.9:1", false));
    waits.write_all(b"SSH-2.0-mallory\r\n").await.unwrap();
    assert!(greeting(&mut waits).await);
    // Neither lets in who proves nothing: TLS ends without a certificate of a user's, and SSH too.
    for ssh_alone in [true, false] {
        let mut tls = scene.open(&said("203.0.113.9:1", ssh_alone));
        tls.write_all(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]).await.unwrap();
        tls.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), tls.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "the node keeps a stream that proves nothing");
    }
    scene.end().await;
}
