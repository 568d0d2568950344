//! A proxy that was taken over, and the applications behind an agent that dials it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sallyport_access::HostId;
use sallyport_ca::tls::client_config;
use sallyport_ca::tls::node::NodeClient;
use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_ssh::endpoint::EndpointStream;
use sallyport_wire::tunnel::{Handle, Incoming, Stream};
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::{alpn, preamble, v1};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};

use super::database_sessions::{Borrowed, create};
use crate::support::hostile_proxy::HostileProxy;
use crate::support::member::{Joining, Member};
use crate::support::{self, Cluster, PATIENCE, User, node_section, until};

/// What the user's program asks for (the crate app).
const ALPN: &[u8] = b"sallyport-app/1";
const ROLE: &str =
    "kind: role\nversion: v1\nmetadata: {name: victim-role}\nspec: {allow: {app_labels: {env: dev}}}\n";

/// A proxy's files in the wrong hands, an agent that dials it, and a user whose certificate the proxy has seen.
struct Scene {
    cluster: Cluster,
    member: Member,
    tunnel: Handle,
    _incoming: Incoming,
    _proxy: HostileProxy,
    node: Running,
    agent: HostId,
    victim: User,
    /// Connections that applications have taken.
    taken: Arc<AtomicUsize>,
}

impl Scene {
    /// The agent `app-1` serves `wiki` and `other`; `elsewhere` is another agent's.
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let member = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
        let trust = cluster.running.authority().unwrap().trust();
        let mut proxy = HostileProxy::start(&member, &trust, &cluster.proxy()).await;
        let mut admin = cluster.admin().await;
        let victim = cluster.user("victim", &[]).await;
        let (address, taken) = echo().await;
        let (token, pin) = support::token(&mut admin, "node").await;
        let mut config = support::config(&cluster.directory.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(proxy.address.clone()),
            join: support::join(&token, &pin),
            ..node_section("app-1")
        });
        let node = sallyport_server::start(config).await.unwrap();
        create(&cluster, ROLE.to_owned()).await;
        for (name, via) in [("wiki", "app-1"), ("other", "app-1"), ("elsewhere", "app-2")] {
            create(&cluster, document(name, &address, via)).await;
        }
        let agent = until("the agent", async || {
            let mut listing = ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
            let nodes = listing.list_nodes(v1::ListNodesRequest::default()).await.ok()?.into_inner().nodes;
            nodes.into_iter().find(|node| node.name == "app-1").and_then(|node| node.id.parse().ok())
        })
        .await;
        let (tunnel, incoming) = proxy.tunnel().await;
        let scene =
            Self { cluster, member, tunnel, _incoming: incoming, _proxy: proxy, node, agent, victim, taken };
        until("the agent to hear of its applications", async || {
            scene.open("wiki", "wiki").await.refused.is_empty().then_some(())
        })
        .await;
        scene
    }

    /// A stream that the proxy opens for what it likes.
    fn stream(&self, kind: &str, name: &str) -> Stream {
        let header = json!({
            "kind": "resource", "client_addr": "192.0.2.7:1234", "user": "victim",
            "resource": {"kind": kind, "name": name},
        });
        self.tunnel.open(header.to_string().into()).unwrap()
    }

    /// What the agent answers the user's own program, where the proxy asks for one application and the program for another.
    async fn open(&self, by_proxy: &str, by_program: &str) -> v1::ResourceOpened {
        self.session(by_proxy, by_program).await.1
    }

    /// The same, with the user's program at the end of it.
    async fn session(
        &self,
        by_proxy: &str,
        by_program: &str,
    ) -> (EndpointStream<Stream>, v1::ResourceOpened) {
        let identity = (self.victim.tls_chain.as_str(), self.victim.tls_key.as_str());
        let client = NodeClient::one_of(&self.victim.trust, identity, ALPN, "app", &[self.agent]).unwrap();
        let mut program =
            EndpointStream::connect(self.stream("app", by_proxy), &client, OffsetDateTime::now_utc())
                .unwrap();
        program.handshake().await.unwrap();
        program.write_all(&asked(by_program)).await.unwrap();
        program.flush().await.unwrap();
        let opened = preamble::read_message(&mut program).await.unwrap();
        (program, opened)
    }

    /// Tries what is refused. The agent asks now and then how its applications are, and dials them for that: of a few rounds one is
    /// without.
    async fn dials_nothing(&self, tries: impl AsyncFn()) {
        for _ in 0..5 {
            let taken = self.taken();
            tries().await;
            if self.taken() == taken {
                return;
            }
        }
        panic!("what was refused was dialled in every round");
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

fn document(name: &str, address: &str, via: &str) -> String {
    format!(
        "kind: app\nversion: v1\nmetadata: {{name: {name}, labels: {{env: dev}}}}\nspec: {{uri: 'tcp://{address}', via: {via}}}\n"
    )
}

/// What a program says first.
fn asked(name: &str) -> Vec<u8> {
    preamble::encode(&v1::ResourceOpening { kind: "app".to_owned(), name: name.to_owned() })
}

async fn echo() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap().to_string(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (address, taken)
}

/// A taken-over proxy tries what it may not.
async fn tries_what_is_refused(scene: &Scene) {
    // The proxy tries without a certificate, with its own, and with the user's without the key.
    let certificate = CertificateDer::from_pem_slice(scene.victim.tls_chain.as_bytes()).unwrap().to_vec();
    let trust = &scene.victim.trust;
    let own = (scene.member.issued.tls_certificate_pem.as_str(), scene.member.key.as_str());
    let with_own = client_config(trust, Some(own), &[ALPN]).unwrap();
    let mut with_theirs = with_own.clone();
    with_theirs.client_auth_cert_resolver = Arc::new(Borrowed(with_own.clone(), certificate));
    for (what, config) in [
        ("no certificate", client_config(trust, None, &[ALPN]).unwrap()),
        ("its own", with_own),
        ("the user's without the key", with_theirs),
        ("a connection of the user's to a database", scene.victim.tls(alpn::DATABASE)),
    ] {
        let name = ServerName::try_from(format!("node.{}", support::CLUSTER)).unwrap();
        let begun = async {
            let connector = TlsConnector::from(Arc::new(config));
            let mut tls = connector.connect(name, scene.stream("app", "wiki")).await?;
            tls.write_all(&asked("wiki")).await?;
            tls.flush().await?;
            tls.read_u8().await
        };
        let begun = tokio::time::timeout(PATIENCE, begun).await.unwrap();
        assert!(begun.is_err(), "{what}: {begun:?}");
    }

    // With the user there, who wants another one than the proxy asks for; one that the agent does not serve; one that there is not.
    let led = scene.open("other", "wiki").await;
    assert!(led.denied && led.refused.contains("the proxy asked for something else"), "{led:?}");
    for name in ["elsewhere", "nowhere"] {
        let refused = scene.open(name, name).await;
        assert!(refused.denied && refused.refused.contains("serves no application called"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_over_proxy_neither_opens_an_application_nor_leads_to_another() {
    let scene = Scene::new().await;
    scene.dials_nothing(async || tries_what_is_refused(&scene).await).await;
    for (reason, times) in [("unproven", 4), ("contradicted", 1), ("not_served", 2)] {
        until(reason, async || {
            let refused = support::events(&mut scene.cluster.admin().await, "SP2302W").await;
            (refused.iter().filter(|event| event["fields"]["reason"] == reason).count() >= times)
                .then_some(())
        })
        .await;
    }

    // A kind that this agent does not know.
    let mut stream = scene.stream("telnet", "wiki");
    let told = stream.read_u8().await.unwrap_err().to_string();
    assert!(told.contains("\"telnet\"; update the agent"), "{told}");

    // The user's own program is let in, all the while.
    assert_eq!(scene.open("wiki", "wiki").await, v1::ResourceOpened::default());
    scene.node.shutdown(false).await;
    scene.cluster.running.shutdown(false).await;
}

/// What the proxy does not ask for, the agent does: the certificate and the key alone open nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_taken_over_proxy_opens_no_session_whose_factor_is_not_proven() {
    let scene = Scene::new().await;
    let options = "spec: {options: {require_session_mfa: yes}, allow";
    create(&scene.cluster, ROLE.replace("spec: {allow", options)).await;
    let refused = until("the agent to hear of the role", async || {
        let opened = scene.open("wiki", "wiki").await;
        (!opened.refused.is_empty()).then_some(opened)
    })
    .await;
    assert!(refused.denied && refused.refused.contains("require_session_mfa: yes"), "{refused:?}");
    scene.dials_nothing(async || assert!(!scene.open("wiki", "wiki").await.refused.is_empty())).await;
    until("the event", async || {
        let refused = support::events(&mut scene.cluster.admin().await, "SP2302W").await;
        refused.iter().any(|event| event["fields"]["reason"] == "factor_missing").then_some(())
    })
    .await;
    scene.node.shutdown(false).await;
    scene.cluster.running.shutdown(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_the_application_is_registered_elsewhere() {
    let scene = Scene::new().await;
    let (mut program, opened) = scene.session("wiki", "wiki").await;
    assert_eq!(opened, v1::ResourceOpened::default());
    program.write_all(b"hello").await.unwrap();
    program.flush().await.unwrap();
    let mut heard = [0; 5];
    program.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    let (elsewhere, _) = echo().await;
    create(&scene.cluster, document("wiki", &elsewhere, "app-1")).await;
    let ended = tokio::time::timeout(PATIENCE, program.read_u8()).await;
    assert!(ended.expect("the session goes on with what is not registered any more").is_err());
    until("the event", async || {
        let cut = support::events(&mut scene.cluster.admin().await, "SP2303W").await;
        let said = |event: &serde_json::Value| {
            event["message"].as_str().is_some_and(|message| message.contains("another address"))
        };
        cut.iter().any(said).then_some(())
    })
    .await;
    scene.node.shutdown(false).await;
    scene.cluster.running.shutdown(false).await;
}
