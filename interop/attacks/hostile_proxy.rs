//! A proxy that was taken over, against the real program: it has the proxy's certificate and key, and a node's, speaks the
//! program's gRPC, and asks and says what it likes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use sallyport_ca::keys::{SshKeyPair, ssh_signature};
use sallyport_ca::tls::{ClientAuth, server_config};
use sallyport_ca::{Trust, TrustBundle};
use sallyport_wire::alpn;
use sallyport_wire::v1::proxy_ssh_request::Frame as Asked;
use sallyport_wire::v1::proxy_ssh_response::Frame as Answered;
use sallyport_wire::v1::transport_server::{Transport, TransportServer};
use sallyport_wire::v1::{
    self, ProxyDatabaseRequest, ProxyDatabaseResponse, ProxyResourceRequest, ProxyResourceResponse,
    ProxySshRequest, ProxySshResponse,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::support::{Cluster, User, free_port, me, ok, refused, stderr, stdout, target};

/// Messages of the agent protocol.
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const ADD_IDENTITY: u8 = 17;
const EXTENSION: u8 = 27;

/// What the proxy does with a stream.
type Script = Arc<dyn Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync>;

/// What its clients sent.
#[derive(Default)]
struct Heard {
    targets: Vec<v1::SshTarget>,
    /// Answers of the user's agent.
    agent: Vec<Vec<u8>>,
}

#[derive(Clone)]
struct Hostile {
    /// What it asks the user's agent, by the answers so far. Empty: it asks nothing more, and keeps the stream.
    script: Script,
    heard: Arc<Mutex<Heard>>,
}

#[tonic::async_trait]
impl Transport for Hostile {
    type ProxySshStream = ReceiverStream<Result<ProxySshResponse, Status>>;
    type ProxyDatabaseStream = ReceiverStream<Result<ProxyDatabaseResponse, Status>>;
    type ProxyResourceStream = ReceiverStream<Result<ProxyResourceResponse, Status>>;

    async fn proxy_resource(
        &self,
        _: Request<Streaming<ProxyResourceRequest>>,
    ) -> Result<Response<Self::ProxyResourceStream>, Status> {
        Err(Status::unimplemented("no"))
    }

    async fn proxy_ssh(
        &self,
        request: Request<Streaming<ProxySshRequest>>,
    ) -> Result<Response<Self::ProxySshStream>, Status> {
        let mut frames = request.into_inner();
        let first = frames.message().await?.and_then(|message| message.frame);
        let Some(Asked::Target(target)) = first else { return Err(Status::invalid_argument("no target")) };
        let native = target.native;
        self.heard.lock().unwrap().targets.push(target);
        if native {
            return Err(Status::unimplemented("this server speaks SSH alone"));
        }
        let (send, receive) = mpsc::channel(16);
        let this = self.clone();
        tokio::spawn(async move {
            let answer = |frame| Ok(ProxySshResponse { frame: Some(frame) });
            let _ = send.send(answer(Answered::Connected(v1::SshConnected::default()))).await;
            let mut answers = Vec::new();
            loop {
                let question = (this.script)(&answers);
                if !question.is_empty() {
                    let _ = send.send(answer(Answered::Agent(question.into()))).await;
                }
                loop {
                    match frames.message().await {
                        Ok(Some(ProxySshRequest { frame: Some(Asked::Agent(said)) })) => {
                            this.heard.lock().unwrap().agent.push(said.to_vec());
                            answers.push(said.to_vec());
                            break;
                        }
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => return,
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn proxy_database(
        &self,
        _: Request<Streaming<ProxyDatabaseRequest>>,
    ) -> Result<Response<Self::ProxyDatabaseStream>, Status> {
        Err(Status::unimplemented("no"))
    }
}

/// A host's file of keys and certificates.
struct Identity(serde_json::Value);

impl Identity {
    fn read(path: &Path) -> Self {
        Self(serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
    }

    fn text(&self, name: &str) -> &str {
        self.0[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name} in {:?}", self.0.as_object().map(|all| all.keys())))
    }

    fn trust(&self) -> Trust {
        let bundle: TrustBundle = serde_json::from_value(self.0["trust"].clone()).unwrap();
        Trust::from_bundle(&bundle).unwrap()
    }
}

/// Everything an attacker has who is root on the proxy and on a node, and a user who comes to them.
struct Scene {
    cluster: Cluster,
    alice: User,
    proxy: Identity,
    node: Identity,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let mut cluster = Cluster::apart();
        cluster.add_node("web-1", "env: prod");
        let alice = cluster.add_user("alice", "access", &me());
        let proxy = Identity::read(&cluster.path("proxy/proxy/identity.json"));
        let node = Identity::read(&cluster.path("node-web-1/node/identity.json"));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { cluster, alice, proxy, node, runtime }
    }

    /// Takes the true proxy's place at its address.
    fn take_over(&mut self, script: Script) -> Arc<Mutex<Heard>> {
        self.cluster.node("proxy").kill_9();
        let heard = Arc::<Mutex<Heard>>::default();
        let hostile = Hostile { script, heard: Arc::clone(&heard) };
        let (chain, key) = (self.proxy.text("tls_chain"), self.proxy.text("tls_key"));
        let trust = self.proxy.trust();
        let config = server_config(&trust, chain, key, &[alpn::H2], ClientAuth::Required).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = self.cluster.proxy();
        let inner = format!("127.0.0.1:{}", free_port());
        let (plain, outer) = self.runtime.block_on(async {
            (TcpListener::bind(&inner).await.unwrap(), TcpListener::bind(&address).await.unwrap())
        });
        self.runtime.spawn(async move {
            let server = tonic::transport::Server::builder().add_service(TransportServer::new(hostile));
            server.serve_with_incoming(TcpListenerStream::new(plain)).await.unwrap();
        });
        self.runtime.spawn(async move {
            while let Ok((stream, _)) = outer.accept().await {
                let (acceptor, inner) = (acceptor.clone(), inner.clone());
                tokio::spawn(async move {
                    let Ok(mut tls) = acceptor.accept(stream).await else { return };
                    let Ok(mut far) = TcpStream::connect(&inner).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut tls, &mut far).await;
                });
            }
        });
        heard
    }

    /// Takes the true proxy's place, and says that it is the authority, by its own certificate. Gives what it read of clients who
    /// believed it.
    fn pass_for_the_authority(&mut self) -> Arc<Mutex<(usize, Vec<u8>)>> {
        self.cluster.node("proxy").kill_9();
        let heard = Arc::<Mutex<(usize, Vec<u8>)>>::default();
        let (chain, key) = (self.proxy.text("tls_chain"), self.proxy.text("tls_key"));
        let protocols = [alpn::AUTH, alpn::H2];
        let config = server_config(&self.proxy.trust(), chain, key, &protocols, ClientAuth::None).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = self.cluster.proxy();
        let listener = self.runtime.block_on(TcpListener::bind(&address)).unwrap();
        let told = Arc::clone(&heard);
        self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, told) = (acceptor.clone(), Arc::clone(&told));
                tokio::spawn(async move {
                    told.lock().unwrap().0 += 1;
                    let Ok(mut tls) = acceptor.accept(stream).await else { return };
                    let mut bytes = vec![0; 4096];
                    while let Ok(count @ 1..) = tls.read(&mut bytes).await {
                        told.lock().unwrap().1.extend_from_slice(&bytes[..count]);
                    }
                });
            }
        });
        heard
    }

    /// The user's own program, past any helper, by SSH or as it likes.
    fn ssh(&self, front: &str) -> std::process::Output {
        let mut command = self.alice.command(&["ssh", &target("web-1"), "echo taken over"]);
        command.env("SALLYPORT_CONNECT", "off").env("SALLYPORT_FRONT", front).output().unwrap()
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The certificate that the user's agent has said it has.
fn certificate(answer: &[u8]) -> Vec<u8> {
    assert_eq!(answer[0], IDENTITIES_ANSWER);
    let length = u32::from_be_bytes(answer[5..9].try_into().unwrap()) as usize;
    answer[9..9 + length].to_vec()
}

/// What a server has the user sign to log in (RFC 4252 §7).
fn login_request(session: &[u8], login: &str, certificate: &[u8]) -> Vec<u8> {
    let kind_length = u32::from_be_bytes(certificate[..4].try_into().unwrap()) as usize;
    let kind = &certificate[4..4 + kind_length];
    let mut data = Vec::new();
    put(&mut data, session);
    data.push(50);
    for text in [login.as_bytes(), b"ssh-connection", b"publickey"] {
        put(&mut data, text);
    }
    data.push(1);
    put(&mut data, kind);
    put(&mut data, certificate);
    data
}

fn sign(certificate: &[u8], data: &[u8]) -> Vec<u8> {
    let mut message = vec![SIGN_REQUEST];
    put(&mut message, certificate);
    put(&mut message, data);
    message.extend_from_slice(&0_u32.to_be_bytes());
    message
}

/// `session-bind@openssh.com`, by a node's own host key.
fn bind(node: &Identity, session: &[u8]) -> Vec<u8> {
    let key = SshKeyPair::from_openssh(node.text("ssh_key")).unwrap();
    let certificate = sallyport_ca::keys::certificate(node.text("ssh_certificate")).unwrap();
    let mut message = vec![EXTENSION];
    put(&mut message, b"session-bind@openssh.com");
    put(&mut message, &certificate.to_bytes().unwrap());
    put(&mut message, session);
    put(&mut message, &ssh_signature(&*key.signer(), session).unwrap());
    message.push(0);
    message
}

const SESSION: [u8; 32] = [7; 32];

#[test]
fn a_hostile_proxy_gets_no_signature_from_the_program() {
    let mut scene = Scene::new();
    assert_eq!(stdout(&ok(scene.ssh("ssh"))), "taken over\n", "through the true proxy");
    let named = bind(&scene.node, &SESSION);
    let which = Arc::new(Mutex::new(0));
    let turn = Arc::clone(&which);
    let script = move |answers: &[Vec<u8>]| -> Vec<u8> {
        let Some(first) = answers.first() else { return vec![REQUEST_IDENTITIES] };
        let own = certificate(first);
        let login = login_request(&SESSION, &me(), &own);
        match (*turn.lock().unwrap(), answers.len()) {
            // A session of its own on the node, which has signed it.
            (0, 1) => named.clone(),
            (0, _) | (1, 1) => sign(&own, &login),
            // Something that is no login, and what an agent does besides.
            (2, 1) => sign(&own, b"a release, a commit, or a certificate request"),
            (3, 1) => vec![ADD_IDENTITY, 0, 0, 0, 0],
            (4, 1) => {
                let mut query = vec![EXTENSION];
                put(&mut query, b"query");
                query
            }
            _ => Vec::new(),
        }
    };
    let heard = scene.take_over(Arc::new(script));
    for (number, asked) in [
        "a session of its own on the node",
        "a server that was not named",
        "something that is no login",
        "a message of kind 17",
        "a message of kind 27",
    ]
    .into_iter()
    .enumerate()
    {
        *which.lock().unwrap() = number;
        let said = refused(&scene.ssh("ssh"), 255);
        assert!(said.contains("asked your key for more than the login") && said.contains(asked), "{said}");
        assert!(said.contains("nothing was signed"), "{said}");
    }
    let heard = heard.lock().unwrap();
    assert!(!heard.agent.is_empty());
    assert!(heard.agent.iter().all(|answer| answer[0] != SIGN_RESPONSE), "a signature was given");
    // The user's word that goes along is for the server and the login that the user has named.
    for target in &heard.targets {
        let word = target.word.as_ref().unwrap();
        assert_eq!((word.server.as_str(), word.nonce.len()), (target.node.as_str(), 16));
    }
}

#[test]
fn a_hostile_proxy_does_not_turn_a_node_that_was_reached_natively_to_ssh_without_a_word() {
    let mut scene = Scene::new();
    assert_eq!(stdout(&ok(scene.ssh("auto"))), "taken over\n", "natively, through the true proxy");
    let heard = scene.take_over(Arc::new(|_: &[Vec<u8>]| Vec::new()));
    let output = scene.ssh("auto");
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("the proxy does not tell the truth"), "{said}");
    let by_ssh = || heard.lock().unwrap().targets.iter().filter(|target| !target.native).count();
    assert_eq!(by_ssh(), 0, "it went by SSH at once");
}

#[test]
fn a_hostile_proxy_does_not_pass_for_the_authority_at_logins_and_invites() {
    let mut scene = Scene::new();
    let link = scene.cluster.invite("carol", "access", &me());
    let heard = scene.pass_for_the_authority();
    // Its certificate is of the CA that is pinned; it is a proxy's, and no more.
    let login = scene.alice.login(&[]);
    assert!(!login.status.success(), "{}", stdout(&login));
    let home = scene.cluster.path("carol");
    let mut signup = std::process::Command::new(crate::PROGRAM);
    signup.arg("--home").arg(home).args(["signup", &link, "--no-second-factor", "--password-stdin"]);
    let mut signup =
        signup.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = signup.stdin.take().unwrap().write_all(b"a long new password\n");
    let signup = signup.wait_with_output().unwrap();
    assert!(!signup.status.success(), "{}", stdout(&signup));
    let listed = scene.alice.run(&["ls"]);
    assert!(!listed.status.success(), "{}", stdout(&listed));
    let heard = heard.lock().unwrap();
    assert!(heard.0 >= 3, "each has come to the proxy");
    let said = String::from_utf8_lossy(&heard.1).into_owned();
    assert!(heard.1.is_empty(), "it has read {said:?}");
}
