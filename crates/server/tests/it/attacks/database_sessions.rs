//! A proxy that was taken over, and the databases behind an agent that dials it.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use data_encoding::BASE64;
use parking_lot::Mutex;
use prost::Message;
use sallyport_access::HostId;
use sallyport_ca::Opening;
use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::{ClientAuth, client_config, server_config};
use sallyport_sal::MemoryKey;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::{Hmac, sha256};
use sallyport_server::Running;
use sallyport_server::config::NodeSection;
use sallyport_ssh::endpoint::EndpointStream;
use sallyport_wire::preamble::encode as preamble;
use sallyport_wire::tunnel::{self, Handle, Incoming};
use sallyport_wire::v1::cluster_client::ClusterClient;
use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::{alpn, v1};
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::Code;

use super::taken_proxies::lock;
use crate::support::hostile_proxy::HostileProxy;
use crate::support::member::{Joining, Member, word};
use crate::support::{self, Cluster, PATIENCE, User, node_section, until};

/// The password of every database user.
const PASSWORD: &str = "correct horse";
/// Rounds of SCRAM, the fewest that an agent does.
const ROUNDS: u32 = 4096;

/// A database that lets in every client that knows the password, counts clients, and keeps what they send.
struct Database {
    address: String,
    logins: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<u8>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Database {
    async fn start() -> Self {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let logins = Arc::new(AtomicUsize::new(0));
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let (counted, hears) = (Arc::clone(&logins), Arc::clone(&heard));
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (counted, hears) = (Arc::clone(&counted), Arc::clone(&hears));
                tokio::spawn(async move {
                    let Ok(length) = stream.read_u32().await else { return };
                    let mut startup = vec![0; length as usize - 4];
                    // The agent looks every now and then whether the database answers.
                    if stream.read_exact(&mut startup).await.is_err()
                        || startup.starts_with(&[4, 210, 22, 47])
                    {
                        let _ = stream.write_all(b"N").await;
                        return;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    if scram(&mut stream).await.is_err() {
                        return;
                    }
                    let _ = stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await;
                    let mut buffer = [0; 1024];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        hears.lock().extend_from_slice(&buffer[..count]);
                    }
                });
            }
        });
        Self { address, logins, heard, task }
    }

    fn heard(&self, part: &[u8]) -> bool {
        contains(&self.heard.lock(), part)
    }

    fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }
}

/// A server's side of SCRAM-SHA-256 (RFC 5802 §3): the agent takes no server that does not prove that it knows the password.
async fn scram(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&sasl(10, "SCRAM-SHA-256\0\0")).await?;
    let said = password_message(stream).await?;
    let bare = said.split_once("n,,").expect("no TLS, no binding").1;
    let nonce = bare.split_once("r=").expect("a nonce").1;
    let challenge = format!("r={nonce}server,s={},i={ROUNDS}", BASE64.encode(b"salt"));
    stream.write_all(&sasl(11, &challenge)).await?;
    let said = password_message(stream).await?;
    let (without_proof, proof) = said.split_once(",p=").expect("a proof");
    let signed = format!("{bare},{challenge},{without_proof}");
    // `Hi` of §2.2.
    let mut last = tag(PASSWORD.as_bytes(), &[b"salt", &1_u32.to_be_bytes()[..]].concat());
    let mut salted = last;
    for _ in 1..ROUNDS {
        last = tag(PASSWORD.as_bytes(), &last);
        salted = xor(salted, last);
    }
    let key = tag(&salted, b"Client Key");
    let expected = xor(key, tag(&sha256(&key), signed.as_bytes()));
    assert_eq!(proof, BASE64.encode(&expected), "the agent knows the password");
    let signature = tag(&tag(&salted, b"Server Key"), signed.as_bytes());
    stream.write_all(&sasl(12, &format!("v={}", BASE64.encode(&signature)))).await
}

/// `AuthenticationSASL`, `AuthenticationSASLContinue` or `AuthenticationSASLFinal`, by its number.
fn sasl(number: u32, text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 8).unwrap();
    [b"R", &length.to_be_bytes()[..], &number.to_be_bytes(), text.as_bytes()].concat()
}

async fn password_message(stream: &mut TcpStream) -> std::io::Result<String> {
    assert_eq!(stream.read_u8().await?, b'p');
    let mut content = vec![0; stream.read_u32().await? as usize - 4];
    stream.read_exact(&mut content).await?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn tag(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    Hmac::new(HashAlgorithm::Sha256, key).unwrap().sign(&[data], &mut out);
    out
}

fn xor(one: [u8; 32], other: [u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| one[at] ^ other[at])
}

/// A proxy's files in the wrong hands, an agent that dials it, and a user whose certificate the proxy has seen.
struct Scene {
    cluster: Cluster,
    member: Member,
    tunnel: Handle,
    _incoming: Incoming,
    _proxy: HostileProxy,
    node: Running,
    agent: String,
    database: Database,
    victim: User,
    certificate: Vec<u8>,
}

const ROLE: &str = "kind: role\nversion: v1\nmetadata: {name: victim-role}\nspec:\n  allow: {db_labels: {env: dev}, db_names: [app, \
                    other], db_users: [reader, writer]}\n";

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::without_node().await;
        let member = Joining::new("proxy", "edge.example.net").join(&cluster).await.unwrap();
        let trust = cluster.running.authority().unwrap().trust();
        let mut proxy = HostileProxy::start(&member, &trust, &cluster.proxy()).await;
        let mut admin = cluster.admin().await;
        let database = Database::start().await;
        let victim = cluster.user("victim", &[]).await;
        let document = |name: &str| {
            format!(
                "kind: db\nversion: v1\nmetadata: {{name: {name}, labels: {{env: dev}}}}\nspec: {{address: '{}', via: db-1, login: \
                 password, tls: {{danger: {{mode: disabled}}}}}}\n",
                database.address
            )
        };
        let (token, pin) = support::token(&mut admin, "node").await;
        let passwords = cluster.directory.path().join("pgpass");
        std::fs::write(&passwords, format!("*:*:*:*:{PASSWORD}\n")).unwrap();
        std::fs::set_permissions(&passwords, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut config = support::config(&cluster.directory.path().join("node"));
        config.node = Some(NodeSection {
            proxy_server: Some(proxy.address.clone()),
            join: support::join(&token, &pin),
            pgpass: Some(passwords),
            ..node_section("db-1")
        });
        let node = sallyport_server::start(config).await.unwrap();
        for yaml in [document("prod"), document("stage"), ROLE.to_owned()] {
            create(&cluster, yaml).await;
        }
        let agent = until("the agent", async || {
            let mut listing = ClusterClient::new(support::admin_channel(&cluster.data_dir()).await);
            let nodes = listing.list_nodes(v1::ListNodesRequest::default()).await.ok()?.into_inner().nodes;
            nodes.into_iter().find(|node| node.name == "db-1").map(|node| node.id)
        })
        .await;
        let (tunnel, incoming) = proxy.tunnel().await;
        let certificate = CertificateDer::from_pem_slice(victim.tls_chain.as_bytes()).unwrap().to_vec();
        let scene = Self {
            cluster,
            member,
            tunnel,
            _incoming: incoming,
            _proxy: proxy,
            node,
            agent,
            database,
            victim,
            certificate,
        };
        // Until the agent has heard of the databases.
        let heard =
            async || scene.open("prod", "reader", "app", None).await.contains("does not serve").then_some(());
        while heard().await.is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.database.logins(), 0);
        scene
    }

    /// The proxy's word for a session, which it is free to give.
    fn word(&self, database: &str, db_user: &str, db_name: &str) -> v1::DatabaseOpening {
        self.word_to(&self.agent, database, db_user, db_name)
    }

    fn word_to(&self, agent: &str, database: &str, db_user: &str, db_name: &str) -> v1::DatabaseOpening {
        let agent = agent.parse().unwrap();
        word(
            &self.member,
            &Opening { agent, database, db_user, db_name, user_certificate: &self.certificate },
        )
    }

    /// Opens a session at the agent, with the victim's certificate and what word it likes; what the agent answers: `Z`, or the
    /// error.
    async fn open(
        &self,
        database: &str,
        db_user: &str,
        db_name: &str,
        word: Option<&v1::DatabaseOpening>,
    ) -> String {
        let header = json!({
            "kind": "postgres", "client_addr": "192.0.2.7:1234", "user": "victim",
            "postgres": {
                "database": database, "proof": {"tls": BASE64.encode(&self.certificate)},
                "opened": word.map(|word| BASE64.encode(&word.encode_to_vec())), "cancel": "0000000100000001",
            },
        });
        let mut stream = self.tunnel.open(header.to_string().into()).unwrap();
        stream.write_all(&startup(db_user, db_name)).await.unwrap();
        answer(&mut stream).await
    }

    /// A stream that the agent takes for TLS of a user's program.
    fn end_to_end(&self) -> tunnel::Stream {
        let header = json!({
            "kind": "postgres", "client_addr": "192.0.2.7:1234", "user": "victim",
            "postgres": {"database": "prod", "cancel": "0000000100000001", "end_to_end": true},
        });
        self.tunnel.open(header.to_string().into()).unwrap()
    }

    /// What the user's program has, which the proxy has not.
    fn client(&self, agents: &[HostId]) -> NodeClient {
        let identity = (self.victim.tls_chain.as_str(), self.victim.tls_key.as_str());
        NodeClient::one_of(&self.victim.trust, identity, alpn::DATABASE, "prod", agents).unwrap()
    }

    /// The user's own word for a session as `reader`.
    fn own_word(&self, key: &str) -> Vec<u8> {
        let opening = Opening {
            agent: self.agent.parse().unwrap(),
            database: "prod",
            db_user: "reader",
            db_name: "app",
            user_certificate: &self.certificate,
        };
        let key = MemoryKey::from_pkcs8_pem(key).unwrap();
        let word = opening.sign_as_user(&key, OffsetDateTime::now_utc()).unwrap();
        preamble(&v1::DatabaseOpening {
            certificate: word.certificate,
            at: word.at,
            nonce: word.nonce.into(),
            signature: word.signature.into(),
        })
    }

    async fn end(self) {
        self.node.shutdown(false).await;
        self.cluster.running.shutdown(false).await;
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// A client's first packet.
fn startup(user: &str, name: &str) -> Vec<u8> {
    let body = format!("\0\x03\0\0user\0{user}\0database\0{name}\0\0");
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_be_bytes(), body.as_bytes()].concat()
}

/// What a session begins with: `Z` when it is ready, else the error, or nothing.
async fn answer(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let reading = async {
        loop {
            let mut head = [0; 5];
            if stream.read_exact(&mut head).await.is_err() {
                return String::new();
            }
            let [kind, a, b, c, d] = head;
            let mut body = vec![0; u32::from_be_bytes([a, b, c, d]) as usize - 4];
            stream.read_exact(&mut body).await.unwrap();
            match kind {
                b'Z' => return "Z".to_owned(),
                b'E' => return String::from_utf8_lossy(&body).into_owned(),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer")
}

pub(super) async fn create(cluster: &Cluster, yaml: String) {
    let request = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_over_proxy_begins_no_session_that_the_authority_does_not_permit_now() {
    let scene = Scene::new().await;
    let refused = async |database: &str, user: &str, name: &str, word: &v1::DatabaseOpening, part: &str| {
        let before = scene.database.logins();
        let said = scene.open(database, user, name, Some(word)).await;
        assert!(said.contains("28000") && said.contains(part), "{part}: {said}");
        assert_eq!(scene.database.logins(), before, "the database saw nothing of it");
    };
    // The certificate is not enough, though the agent asks the authority for no certificate of its own here.
    let said = scene.open("prod", "reader", "app", None).await;
    assert!(said.contains("neither the user nor a proxy says"), "{said}");
    assert_eq!(scene.database.logins(), 0);

    // What is left to it while it is in the cluster: its word, for each session anew, which the authority has on record.
    let given = scene.word("prod", "reader", "app");
    assert_eq!(scene.open("prod", "reader", "app", Some(&given)).await, "Z");
    let on_record = support::events(&mut scene.cluster.admin().await, "SP2205I").await;
    assert!(
        on_record.iter().any(|event| event["user"] == "victim"
            && event["login"] == "reader"
            && event["node"] == "prod"
            && event["fields"]["opened_by"] == "proxy:edge.example.net"),
        "{on_record:?}"
    );
    // Once, and for nothing else.
    refused("prod", "reader", "app", &given, "was begun already").await;
    let given = scene.word("prod", "reader", "app");
    refused("prod", "writer", "app", &given, "signature").await;
    refused("prod", "reader", "other", &given, "signature").await;
    refused("stage", "reader", "app", &given, "signature").await;
    let elsewhere = scene.word_to(&scene.member.id, "prod", "reader", "app");
    refused("prod", "reader", "app", &elsewhere, "signature").await;
    let mut old = given.clone();
    old.at -= 3600;
    refused("prod", "reader", "app", &old, "not opened just now").await;
    assert_eq!(scene.open("prod", "reader", "app", Some(&given)).await, "Z");

    // A role that wants sessions end to end is not for a proxy to open sessions by, whatever the agent may have heard of it.
    create(&scene.cluster, format!("{ROLE}  options: {{db_end_to_end: required}}\n")).await;
    refused("prod", "reader", "app", &scene.word("prod", "reader", "app"), "end to end").await;
    create(&scene.cluster, ROLE.to_owned()).await;
    // The agent hears of it, too.
    until("the agent to hear of the role", async || {
        let word = scene.word("prod", "reader", "app");
        (scene.open("prod", "reader", "app", Some(&word)).await == "Z").then_some(())
    })
    .await;

    // Users who are gone, and proxies that are locked, at once.
    let remove = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "victim".to_owned() };
    scene.cluster.admin().await.delete_resource(remove).await.unwrap();
    refused("prod", "reader", "app", &scene.word("prod", "reader", "app"), "victim").await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_for_a_database_session_is_for_the_agent_that_serves_it() {
    let scene = Scene::new().await;
    let thief = Joining::new("node", "thief").join(&scene.cluster).await.unwrap();
    let ask = |agent: &str| v1::PermitDatabaseSessionRequest {
        database: "prod".to_owned(),
        db_user: "reader".to_owned(),
        db_name: "app".to_owned(),
        user_certificate: scene.certificate.clone().into(),
        opened: Some(scene.word_to(agent, "prod", "reader", "app")),
    };
    let denied = async |channel, request, part: &str| {
        let status = DatabasesClient::new(channel).permit_database_session(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        assert!(status.message().contains(part), "{part}: {status:?}");
    };
    denied(thief.channel.clone(), ask(&thief.id), "does not serve").await;
    denied(thief.channel.clone(), ask(&scene.agent), "does not serve").await;
    denied(scene.victim.authority().await, ask(&scene.agent), "this is for hosts").await;
    // A locked proxy opens nothing, whichever tunnel the word comes by.
    scene.cluster.admin().await.create_resource(lock("taken", &scene.member.id)).await.unwrap();
    let refused = async {
        let Ok(mut stream) = scene.tunnel.open("{}".into()) else { return true };
        stream.read_to_end(&mut Vec::new()).await.is_err()
    };
    assert!(tokio::time::timeout(PATIENCE, refused).await.unwrap());
    let gate = Joining::new("node", "db-2").join(&scene.cluster).await.unwrap();
    create(
        &scene.cluster,
        "kind: db\nversion: v1\nmetadata: {name: late, labels: {env: dev}}\nspec: {address: 'db:5432', via: db-2}\n".to_owned(),
    )
    .await;
    gate.beat(v1::HeartbeatRequest::default()).await.unwrap();
    let late = v1::PermitDatabaseSessionRequest {
        database: "late".to_owned(),
        opened: Some(scene.word_to(&gate.id, "late", "reader", "app")),
        ..ask(&gate.id)
    };
    denied(gate.channel.clone(), late.clone(), "taken").await;
    let lifted = v1::DeleteResourceRequest { kind: "lock".to_owned(), name: "taken".to_owned() };
    scene.cluster.admin().await.delete_resource(lifted).await.unwrap();
    // The authority does not leave it to agents whether a role wants sessions end to end, neither here nor for certificates.
    create(&scene.cluster, format!("{ROLE}  options: {{db_end_to_end: required}}\n")).await;
    denied(gate.channel.clone(), late.clone(), "end to end").await;
    let certificate = v1::CertifyDatabaseUserRequest {
        database: "late".to_owned(),
        db_user: "reader".to_owned(),
        db_name: "app".to_owned(),
        user_certificate: scene.certificate.clone().into(),
        opened: late.opened.clone(),
        ..Default::default()
    };
    let mut databases = DatabasesClient::new(gate.channel.clone());
    let refused = databases.certify_database_user(certificate).await.unwrap_err();
    assert!(refused.message().contains("end to end"), "{refused:?}");
    create(&scene.cluster, ROLE.to_owned()).await;
    let mut databases = DatabasesClient::new(gate.channel.clone());
    databases.permit_database_session(late.clone()).await.unwrap();
    denied(gate.channel.clone(), late, "was begun already").await;
    scene.end().await;
}

/// Copies both ways until both have ended, and keeps all that has passed: what a proxy sees.
async fn carry(
    mut near: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut far: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    seen: Arc<Mutex<Vec<u8>>>,
) {
    let (mut here, mut there) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            read = near.read(&mut here) => match read {
                Ok(count @ 1..) => {
                    seen.lock().extend_from_slice(&here[..count]);
                    if far.write_all(&here[..count]).await.is_err() || far.flush().await.is_err() { return }
                }
                _ => return,
            },
            read = far.read(&mut there) => match read {
                Ok(count @ 1..) => {
                    seen.lock().extend_from_slice(&there[..count]);
                    if near.write_all(&there[..count]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_end_to_end_a_proxy_neither_reads_nor_begins() {
    let scene = Scene::new().await;
    create(&scene.cluster, format!("{ROLE}  options: {{db_end_to_end: required}}\n")).await;
    let agent: HostId = scene.agent.parse().unwrap();

    // The user's program, by way of the proxy.
    let (near, far) = tokio::io::duplex(64 * 1024);
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let carrying = tokio::spawn(carry(far, scene.end_to_end(), Arc::clone(&seen)));
    let mut program =
        EndpointStream::connect(near, &scene.client(&[agent]), OffsetDateTime::now_utc()).unwrap();
    program.handshake().await.unwrap();
    program.write_all(&scene.own_word(&scene.victim.tls_key)).await.unwrap();
    program.write_all(&startup("reader", "app")).await.unwrap();
    program.flush().await.unwrap();
    assert_eq!(answer(&mut program).await, "Z");
    program.write_all(b"Q\0\0\0\x14select treasure\0").await.unwrap();
    program.flush().await.unwrap();
    until("the statement", async || scene.database.heard(b"select treasure").then_some(())).await;
    let started = support::events(&mut scene.cluster.admin().await, "SP2200I").await;
    assert!(started.iter().any(|event| event["fields"]["came"] == "end_to_end"), "{started:?}");
    drop(program);
    carrying.await.unwrap();
    let seen = seen.lock().clone();
    assert!(seen.len() > 1000 && seen[0] == 22, "a handshake of TLS: {} bytes", seen.len());
    for part in [&b"treasure"[..], b"reader", b"SFATAL", &scene.certificate[100..164]] {
        assert!(!contains(&seen, part), "{:?} passed in the clear", String::from_utf8_lossy(part));
    }

    // The proxy tries without a certificate, with its own, and with the user's without the key.
    let logins = scene.database.logins();
    let trust = &scene.victim.trust;
    let own = (scene.member.issued.tls_certificate_pem.as_str(), scene.member.key.as_str());
    let without = client_config(trust, None, &[alpn::DATABASE]).unwrap();
    let with_own = client_config(trust, Some(own), &[alpn::DATABASE]).unwrap();
    let mut with_theirs = with_own.clone();
    with_theirs.client_auth_cert_resolver = Arc::new(Borrowed(with_own.clone(), scene.certificate.clone()));
    let mut other_protocol = scene.victim.tls(alpn::NATIVE);
    other_protocol.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    for (what, config) in [
        ("no certificate", without),
        ("its own", with_own),
        ("the user's without the key", with_theirs),
        ("a connection of the user's to something else", other_protocol),
    ] {
        let name = format!("node.{}", support::CLUSTER).try_into().unwrap();
        let name = tokio_rustls::rustls::pki_types::ServerName::to_owned(&name);
        let begun = async {
            let mut tls = TlsConnector::from(Arc::new(config)).connect(name, scene.end_to_end()).await?;
            tls.write_all(&scene.own_word(&scene.member.key)).await?;
            tls.write_all(&startup("reader", "app")).await?;
            tls.flush().await?;
            tls.read_u8().await
        };
        let begun = tokio::time::timeout(PATIENCE, begun).await.unwrap();
        assert!(begun.is_err(), "{what}: {begun:?}");
    }
    assert_eq!(scene.database.logins(), logins);

    // And in the agent's place, as itself or as another node.
    let other = Joining::new("node", "web-9").join(&scene.cluster).await.unwrap();
    for member in [&scene.member, &other] {
        let chain = &member.issued.tls_certificate_pem;
        let config =
            server_config(trust, chain, &member.key, &[alpn::DATABASE], ClientAuth::Required).unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let taking =
            tokio::spawn(async move { TlsAcceptor::from(Arc::new(config)).accept(far).await.is_ok() });
        let mut program =
            EndpointStream::connect(near, &scene.client(&[agent]), OffsetDateTime::now_utc()).unwrap();
        let shaken = program.handshake().await.unwrap_err();
        assert!(sallyport_ca::tls::refusal(&shaken).is_some(), "{shaken:?}");
        assert!(!taking.await.unwrap());
    }
    scene.end().await;
}

/// A user's certificate, signed for with a key that is not the user's.
#[derive(Debug)]
pub(super) struct Borrowed(pub(super) ClientConfig, pub(super) Vec<u8>);

impl ResolvesClientCert for Borrowed {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let own = self.0.client_auth_cert_resolver.resolve(hints, schemes)?;
        let theirs = vec![CertificateDer::from(self.1.clone())];
        Some(Arc::new(CertifiedKey::new(theirs, Arc::clone(&own.key))))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
