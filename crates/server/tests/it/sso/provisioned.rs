//! Sessions that run, of people whose SCIM client says that they have left.

use std::time::Instant;

use sallyport_access::HostId;
use sallyport_ca::tls::node::NodeClient;
use sallyport_server::config::ProxySection;
use sallyport_ssh::client::{Connection, Exit, Output, Session, SessionRequest};
use sallyport_ssh::endpoint::EndpointStream;
use sallyport_wire::preamble;
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use sallyport_wire::v1::transport_client::TransportClient;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;

use super::provider::{Browser, Provider};
use super::*;
use crate::support::{PATIENCE, events, node_section, os_login, proxy_section, until};

const SCHEMAS: &str = "urn:ietf:params:scim:schemas:core:2.0";
const PATCH: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
/// What the user's program asks for (the crate app).
const APP: &[u8] = b"sallyport-app/1";
/// From the client's word on.
const IN_TIME: std::time::Duration = std::time::Duration::from_secs(5);

/// A SCIM client at the proxy.
struct Client {
    proxy: Channel,
    token: String,
}

impl Client {
    async fn of(cluster: &Cluster, pages: &Pages<'_>) -> Self {
        let add = v1::AddScimTokenRequest { connector: "corp".to_owned(), ttl: None };
        let mut admin = ProvisioningClient::new(admin_channel(&cluster.data_dir()).await);
        let token = admin.add_scim_token(add).await.unwrap().into_inner().token;
        Self { proxy: pages.proxy.clone(), token }
    }

    async fn says(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = v1::ScimRequest {
            token: self.token.clone(),
            method: method.to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: vec![v1::ScimHeader {
                name: "Content-Type".to_owned(),
                value: "application/scim+json".to_owned(),
            }],
            body: body.to_string().into_bytes().into(),
            client_addr: "192.0.2.7:4711".to_owned(),
        };
        let answer =
            ProvisioningClient::new(self.proxy.clone()).answer_scim(request).await.unwrap().into_inner();
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    async fn user(&self, name: &str) -> String {
        let body = json!({ "schemas": [format!("{SCHEMAS}:User")], "userName": name });
        self.says("POST", "/Users", &body).await["id"].as_str().unwrap().to_owned()
    }
}

/// A user's sessions by two protocols.
struct Open {
    user: User,
    _connection: Connection,
    ssh: Session,
    app: EndpointStream<DuplexStream>,
}

impl Open {
    async fn of(user: User, agent: HostId) -> Self {
        let connection = user.ssh("web-1", &os_login()).await;
        let mut ssh = connection.start(SessionRequest::exec("echo ready; sleep 60")).await.unwrap();
        while ssh.next().await != Some(Output::Stdout("ready\n".into())) {}
        let mut app = application(&user, agent).await;
        app.write_all(b"here").await.unwrap();
        app.flush().await.unwrap();
        let mut back = [0; 4];
        app.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"here");
        Self { user, _connection: connection, ssh, app }
    }

    /// That both end within seconds of a moment, and nothing new is opened.
    async fn ends(mut self, since: Instant) {
        let name = self.user.name.clone();
        let ssh = async {
            loop {
                match self.ssh.next().await {
                    Some(Output::Exit(exit)) => return Some(exit),
                    None => return None,
                    _ => {}
                }
            }
        };
        let exit = tokio::time::timeout(PATIENCE, ssh)
            .await
            .unwrap_or_else(|_| panic!("{name}'s SSH session goes on"));
        assert!(!matches!(exit, Some(Exit::Status(0))), "{name}: {exit:?}");
        let app = async { while self.app.read_u8().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, app).await.unwrap_or_else(|_| panic!("{name}'s application goes on"));
        assert!(since.elapsed() < IN_TIME, "{name}: {:?}", since.elapsed());
        let status = self.user.open("web-1", &os_login()).await.err().unwrap();
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
    }

    /// That both are as they were.
    async fn goes_on(&mut self) {
        self.app.write_all(b"still").await.unwrap();
        self.app.flush().await.unwrap();
        let mut back = [0; 5];
        self.app.read_exact(&mut back).await.unwrap();
        assert_eq!(self.user.run("web-1", &os_login(), "echo in").await.0, "in\n");
    }
}

/// An application's bytes, by the user's own program through the proxy.
async fn application(user: &User, agent: HostId) -> EndpointStream<DuplexStream> {
    use v1::proxy_resource_request::Frame as Ask;
    use v1::proxy_resource_response::Frame as Answer;
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (send, receive) = tokio::sync::mpsc::channel(16);
    let target = v1::ResourceTarget {
        kind: "app".to_owned(),
        name: "wiki".to_owned(),
        agents: vec![agent.to_string()],
    };
    send.send(v1::ProxyResourceRequest { frame: Some(Ask::Target(target)) }).await.unwrap();
    let mut transport = TransportClient::new(user.connect().await.unwrap());
    let asking = tokio_stream::wrappers::ReceiverStream::new(receive);
    let mut answers = transport.proxy_resource(asking).await.unwrap().into_inner();
    let (mut from, mut to) = tokio::io::split(far);
    tokio::spawn(async move {
        while let Ok(Some(answer)) = answers.message().await {
            if let Some(Answer::Data(bytes)) = answer.frame
                && to.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    tokio::spawn(async move {
        let mut piece = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            let frame = Some(Ask::Data(piece[..read].to_vec().into()));
            if send.send(v1::ProxyResourceRequest { frame }).await.is_err() {
                return;
            }
        }
    });
    let identity = (user.tls_chain.as_str(), user.tls_key.as_str());
    let client = NodeClient::one_of(&user.trust, identity, APP, "app", &[agent]).unwrap();
    let mut program = EndpointStream::connect(near, &client, OffsetDateTime::now_utc()).unwrap();
    program.handshake().await.unwrap();
    let opening = v1::ResourceOpening { kind: "app".to_owned(), name: "wiki".to_owned() };
    program.write_all(&preamble::encode(&opening)).await.unwrap();
    program.flush().await.unwrap();
    let opened: v1::ResourceOpened = preamble::read_message(&mut program).await.unwrap();
    assert!(opened.refused.is_empty(), "{opened:?}");
    program
}

async fn echo() -> String {
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_cut_within_seconds_of_the_clients_word() {
    let cluster = Cluster::start(|config| {
        let public = "proxy.example.net:443".parse().unwrap();
        config.proxy = Some(ProxySection { public_addr: vec![public], ..proxy_section() });
        config.node = Some(node_section("web-1"));
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    let provider = Provider::start(|settings| {
        settings["people"] = json!({
            "1": { "name": "alice", "groups": [] }, "2": { "name": "bob", "groups": [] }, "3": { "name": "carol", "groups": [] },
        });
    })
    .await;
    let role = format!(
        "kind: role\nversion: v1\nmetadata: {{name: ops}}\nspec:\n  allow:\n    logins: [{}]\n    node_labels: {{'*': '*'}}\n    \
         app_labels: {{env: dev}}\n",
        os_login()
    );
    connect(&cluster, role).await;
    let app = format!(
        "kind: app\nversion: v1\nmetadata: {{name: wiki, labels: {{env: dev}}}}\nspec: {{uri: 'tcp://{}', via: web-1}}\n",
        echo().await
    );
    connect(&cluster, app).await;
    let document = document("corp", &provider, "");
    connect(
        &cluster,
        document.replace(
            "{claim: groups, value: 'ops-*', roles: [access]}",
            "{claim: scim.groups, value: Ops, roles: [ops]}",
        ),
    )
    .await;
    let pages = Pages::of(&cluster).await;
    let client = Client::of(&cluster, &pages).await;
    let (alice, bob, carol) =
        (client.user("alice").await, client.user("bob").await, client.user("carol").await);
    let members: Vec<Value> = [&alice, &bob, &carol].iter().map(|id| json!({ "value": id })).collect();
    let group = json!({ "schemas": [format!("{SCHEMAS}:Group")], "displayName": "Ops", "members": members });
    let group = client.says("POST", "/Groups", &group).await["id"].as_str().unwrap().to_owned();
    let agent = until("the agent with its application", async || {
        let mut listing = ClusterClient::new(admin_channel(&cluster.data_dir()).await);
        let nodes = listing.list_nodes(v1::ListNodesRequest::default()).await.ok()?.into_inner().nodes;
        nodes.into_iter().find(|node| node.name == "web-1").and_then(|node| node.id.parse::<HostId>().ok())
    })
    .await;
    let mut open = Vec::new();
    for person in ["1", "2", "3"] {
        let (user, login) = pages.log_in(&mut Browser::default(), person).await.unwrap();
        assert_eq!(login.roles, ["ops"]);
        open.push(Open::of(user, agent).await);
    }
    let mut open = open.into_iter();
    let (of_alice, of_bob, mut of_carol) = (open.next().unwrap(), open.next().unwrap(), open.next().unwrap());

    // Deactivated.
    let began = Instant::now();
    let inactive =
        json!({ "schemas": [PATCH], "Operations": [{ "op": "replace", "path": "active", "value": false }] });
    client.says("PATCH", &format!("/Users/{alice}"), &inactive).await;
    of_alice.ends(began).await;
    // Removed.
    let began = Instant::now();
    client.says("DELETE", &format!("/Users/{bob}"), &Value::Null).await;
    of_bob.ends(began).await;
    // Taken out of the group that gives the role.
    of_carol.goes_on().await;
    let began = Instant::now();
    let path = format!("members[value eq \"{carol}\"]");
    let out = json!({ "schemas": [PATCH], "Operations": [{ "op": "remove", "path": path }] });
    client.says("PATCH", &format!("/Groups/{group}"), &out).await;
    of_carol.ends(began).await;
    let mut admin = cluster.admin().await;
    assert_eq!(events(&mut admin, "SP1063I").await.len(), 2);
    let taken = events(&mut admin, "SP1065I").await;
    assert_eq!((&taken[0]["fields"]["name"], &taken[0]["fields"]["lost"]), (&json!("carol"), &json!("ops")));
}
