mod restart;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::tasks::Tasks;
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Login, NodeName, Principal, RoleName, UserName,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::{ProxyClient, client_config};
use sallyport_ca::{
    Authority, CaKind, HostRequest, SshOptions, Trust, TrustBundle, issue_host, issue_user, server_name,
};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::hpke::RecipientPublic;
use sallyport_wire::carrier::{self, Begun, CarrierError, Stream};
use sallyport_wire::convert::time_to_proto;
use sallyport_wire::tunnel::{self, Handle, Incoming, Tunnel};
use sallyport_wire::v1::proxy_ssh_request::Frame as Ask;
use sallyport_wire::v1::proxy_ssh_response::Frame as Answer;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::{alpn, v1};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use uuid::Uuid;

use crate::config::{Limits, ProxySection};
use crate::health::Health;
use crate::local_authority::LocalAuthority;
use crate::member::client_sightings::Sightings;
use crate::member::cluster_cache::{Change, Held};
use crate::proxy::{Service, Start};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The authorities of a cluster.
struct Cas {
    user: Authority,
    host: Authority,
    recording: RecipientPublic,
}

impl Cas {
    fn new(cluster: &ClusterName, directory: &std::path::Path) -> Self {
        let sealing = SealingKey::create(&directory.join("seal")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        let now = OffsetDateTime::now_utc();
        let make = |kind| Authority::generate(kind, cluster, &custody, Suite::BalancedV1, now).unwrap();
        Self {
            user: make(CaKind::User),
            host: make(CaKind::Host),
            recording: RecipientPublic::from_bytes(&[7; 32]).unwrap(),
        }
    }

    fn trust(&self) -> Trust {
        Trust::from_authorities(&[&self.user, &self.host], Some(self.recording)).unwrap()
    }

    fn bundle(&self) -> TrustBundle {
        self.trust().to_bundle()
    }
}

/// An address of our own at which no process listens. Without it, another socket may be given the port while the proxy
/// is away: even the near end of a connection to it, which so talks to itself.
fn reserve() -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket
}

/// An authority that issues and never answers: the proxy must serve without it.
fn authority(cas: &Arc<Cas>, asked: &Arc<AtomicUsize>) -> LocalAuthority {
    let (issuing, trusting, asked) = (Arc::clone(cas), Arc::clone(cas), Arc::clone(asked));
    LocalAuthority {
        sightings: Sightings::default(),
        serve: Arc::new(move |io, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                let _held = io;
                std::future::pending().await
            })
        }),
        issue: Arc::new(move |request: v1::JoinRequest| {
            let cas = Arc::clone(&issuing);
            Box::pin(async move { Ok(certify(&cas, HostId::new(), HostRole::Proxy, &request)) })
        }),
        trust: Arc::new(move || trusting.bundle()),
    }
}

/// Certificate chain and key, PEM.
#[derive(Clone)]
pub(super) struct Pair {
    chain: String,
    key: String,
    pub(super) ssh_key: String,
    pub(super) ssh_certificate: String,
    /// The id of the login, of a user.
    pub(super) login_id: Uuid,
}

impl Pair {
    /// The certificate chain and the key.
    pub(super) fn pem(&self) -> (&str, &str) {
        (&self.chain, &self.key)
    }
}

pub(super) struct Rig {
    directory: tempfile::TempDir,
    cas: Arc<Cas>,
    pub(super) cluster: ClusterName,
    pub(super) address: SocketAddr,
    pub(super) service: Service,
    pub(super) drain: CancellationToken,
    pub(super) stop: CancellationToken,
    limits: Limits,
    tasks: Tasks,
    /// How often the proxy has connected to its authority.
    pub(super) asked: Arc<AtomicUsize>,
    /// Keeps the address from others while no proxy listens there.
    _reserved: socket2::Socket,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.drain.cancel();
        self.stop.cancel();
    }
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cluster = ClusterName::new("test.example").unwrap();
        let cas = Arc::new(Cas::new(&cluster, directory.path()));
        let reserved = reserve();
        let address = reserved.local_addr().unwrap().as_socket().unwrap();
        let listener = crate::listener::bind("the proxy", address).unwrap();
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
        let (tasks, asked) = (Tasks::new(), Arc::new(AtomicUsize::new(0)));
        let service = crate::proxy::start(Start {
            cluster: cluster.clone(),
            section: ProxySection { limits: limits.clone(), ..ProxySection::default() },
            directory: directory.path().join("proxy"),
            listener,
            udp: crate::listener::bind_udp(address).ok(),
            public_addr: vec![crate::config::HostPort::from(address)],
            authority: Some(authority(&cas, &asked)),
            require_fips: false,
            health: Health::new(),
            drain: drain.clone(),
            stop: stop.clone(),
            tasks: tasks.clone(),
        })
        .await
        .unwrap();
        let rig = Self {
            directory,
            cas,
            cluster,
            address,
            service,
            drain,
            stop,
            limits,
            tasks,
            asked,
            _reserved: reserved,
        };
        rig.put("role", "dev", &role("dev", "[alice, deploy]", ""));
        rig
    }

    /// What a watch would have brought.
    pub(super) fn put(&self, kind: &str, name: &str, yaml: &str) {
        let held = Held { kind: kind.to_owned(), name: name.to_owned(), yaml: yaml.to_owned() };
        self.service.view.apply(Change::Put(held));
    }

    pub(super) fn delete(&self, kind: &str, name: &str) {
        self.service.view.apply(Change::Delete { kind: kind.to_owned(), name: name.to_owned() });
    }

    /// Makes the node known, without a tunnel.
    pub(super) fn know(&self, name: &str) -> HostId {
        let id = HostId::new();
        self.put(
            "node",
            &id.to_string(),
            &format!(
                "kind: node\nversion: v1\nmetadata:\n  id: {id}\n  name: {name}\n  labels:\n    env: test\n"
            ),
        );
        id
    }

    pub(super) fn host(&self, id: HostId, name: &str, role: HostRole) -> Pair {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = v1::JoinRequest {
            name: name.to_owned(),
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls.spki_der().to_vec().into(),
            ..v1::JoinRequest::default()
        };
        let issued = certify(&self.cas, id, role, &request);
        Pair {
            chain: issued.tls_certificate_pem,
            key: tls.pkcs8_pem().to_string(),
            ssh_key: ssh.private_openssh().to_string(),
            ssh_certificate: issued.ssh_certificate,
            login_id: Uuid::nil(),
        }
    }

    /// A user with the role `dev`, certified at `now` for an hour.
    pub(super) fn user_at(&self, name: &str, now: OffsetDateTime) -> Pair {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new(name).unwrap(),
                roles: vec![RoleName::new("dev").unwrap()],
                logins: vec![Login::new("alice").unwrap(), Login::new("deploy").unwrap()],
                traits: BTreeMap::new(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: None,
            valid_after: now,
            valid_before: now,
        };
        let options = SshOptions::default();
        let issued = issue_user(
            &self.cas.user,
            &identity,
            ssh.public_line(),
            tls.spki_der(),
            now,
            time::Duration::hours(1),
            &options,
        )
        .unwrap();
        Pair {
            chain: issued.tls_pem,
            key: tls.pkcs8_pem().to_string(),
            ssh_key: ssh.private_openssh().to_string(),
            ssh_certificate: issued.ssh,
            login_id: identity.login_id,
        }
    }

    pub(super) fn user(&self, name: &str) -> Pair {
        self.user_at(name, OffsetDateTime::now_utc())
    }

    /// Audit events that wait for the authority.
    pub(super) fn waiting_events(&self) -> Vec<serde_json::Value> {
        let directory = self.directory.path().join("proxy").join("events");
        let mut events = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            events.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        events
    }

    pub(super) fn trust(&self) -> Trust {
        self.cas.trust()
    }

    pub(super) fn tls(&self, pair: Option<&Pair>, alpn: &[&[u8]]) -> ClientConfig {
        let pair = pair.map(|pair| (pair.chain.as_str(), pair.key.as_str()));
        client_config(&self.cas.trust(), pair, alpn).unwrap()
    }

    pub(super) async fn tls_to_proxy(
        &self,
        pair: Option<&Pair>,
        alpn: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(server_name(HostRole::Proxy, &self.cluster)).unwrap();
        TlsConnector::from(Arc::new(self.tls(pair, alpn))).connect(name, tcp).await
    }

    /// A connection by QUIC.
    pub(super) async fn quic(&self, pair: Option<&Pair>, alpn: &[&[u8]]) -> Result<Stream, CarrierError> {
        self.quic_at(self.address, pair, alpn).await
    }

    /// The same, to whatever stands before the proxy.
    pub(super) async fn quic_at(
        &self,
        address: SocketAddr,
        pair: Option<&Pair>,
        alpn: &[&[u8]],
    ) -> Result<Stream, CarrierError> {
        let name = server_name(HostRole::Proxy, &self.cluster);
        carrier::connect(address, &name, self.tls(pair, alpn)).await
    }

    /// A client that comes back by QUIC.
    pub(super) fn returning(&self, pair: &Pair) -> ProxyClient {
        ProxyClient::new(&self.cas.trust(), (&pair.chain, &pair.key), alpn::H2_BY_QUIC).unwrap()
    }

    /// A connection of one, with a ticket if there is one.
    pub(super) async fn quic_early(
        &self,
        address: SocketAddr,
        client: &ProxyClient,
    ) -> Result<(Stream, Option<carrier::Answer>), CarrierError> {
        let name = server_name(HostRole::Proxy, &self.cluster);
        match carrier::connect_early(address, &name, client.config(OffsetDateTime::now_utc())).await? {
            Begun::Early(stream, answer) => Ok((stream, Some(answer))),
            Begun::Full(handshake) => Ok((handshake.finish().await?, None)),
        }
    }

    /// A tunnel that is in the hub.
    pub(super) async fn tunnel(&self, id: HostId, name: &str) -> (Handle, Incoming) {
        let pair = self.host(id, name, HostRole::Node);
        let before = self.service.hub.tunnels(&id);
        let tls = self.tls_to_proxy(Some(&pair), &[alpn::TUNNEL]).await.unwrap();
        let tunnel = Tunnel::client(tls, tunnel::Config::default());
        until("the tunnel", || self.service.hub.tunnels(&id) > before).await;
        tunnel
    }

    /// A node whose streams give back what they get.
    pub(super) async fn echo(&self, name: &str) -> (HostId, Handle) {
        let id = self.know(name);
        let handle = self.echo_again(id, name).await;
        (id, handle)
    }

    pub(super) async fn echo_again(&self, id: HostId, name: &str) -> Handle {
        let (handle, mut incoming) = self.tunnel(id, name).await;
        tokio::spawn(async move {
            while let Some((_, stream)) = incoming.next().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                });
            }
        });
        handle
    }

    pub(super) async fn channel(&self, pair: &Pair) -> Channel {
        let stream = self.tls_to_proxy(Some(pair), &[alpn::H2]).await.unwrap();
        channel(stream).await.unwrap()
    }

    pub(super) async fn open(&self, pair: &Pair, node: &str, login: &str) -> Result<Call, Status> {
        open(self.channel(pair).await, node, login).await
    }
}

pub(super) async fn channel<S>(stream: S) -> Result<Channel, tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    channel_of(stream, 8 << 20).await
}

/// With a window for each stream.
pub(super) async fn channel_of<S>(stream: S, window: u32) -> Result<Channel, tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = parking_lot::Mutex::new(Some(stream));
    let connect = tower::service_fn(move |_| {
        let taken = stream.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("lost")) }
    });
    Endpoint::from_static("http://proxy.invalid")
        .initial_stream_window_size(window)
        .initial_connection_window_size(16 << 20)
        .connect_with_connector(connect)
        .await
}

fn certify(cas: &Cas, id: HostId, role: HostRole, request: &v1::JoinRequest) -> v1::HostCertificates {
    let name = NodeName::new(request.name.clone()).unwrap();
    let now = OffsetDateTime::now_utc();
    let asked = HostRequest {
        id,
        name: &name,
        role,
        join_id: Uuid::new_v4(),
        public_names: &request.public_names,
        ssh_public_key: &request.ssh_public_key,
        tls_spki: &request.tls_public_key,
    };
    let issued = issue_host(&cas.host, &asked, now, time::Duration::hours(2)).unwrap();
    let bundle = cas.bundle();
    v1::HostCertificates {
        cluster: bundle.cluster,
        host_id: id.to_string(),
        name: name.to_string(),
        ssh_certificate: issued.ssh,
        tls_certificate_pem: issued.tls_pem,
        trust: Some(v1::TrustBundle {
            user_ssh_keys: bundle.user_ssh_keys,
            host_ssh_keys: bundle.host_ssh_keys,
            user_tls_certificates: bundle.user_tls_certificates,
            host_tls_certificates: bundle.host_tls_certificates,
            recording_key: bundle.recording_key.into(),
            ..v1::TrustBundle::default()
        }),
        valid_until: Some(time_to_proto(issued.valid_before)),
        refused_names: Vec::new(),
    }
}

/// A role that allows `logins` on nodes of the test environment.
pub(super) fn role(name: &str, logins: &str, extra: &str) -> String {
    format!(
        "kind: role\nversion: v1\nmetadata:\n  name: {name}\nspec:\n  allow:\n    logins: {logins}\n    node_labels:\n      env: test\n{extra}"
    )
}

/// What a real TLS client sends first.
pub(super) async fn client_hello(alpn: &[&[u8]]) -> Vec<u8> {
    let pin = format!("sha256:{}", "0".repeat(64));
    let config = Arc::new(sallyport_ca::tls::pinned_client_config(&pin, alpn).unwrap());
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("test.internal").unwrap();
    let client = tokio::spawn(TlsConnector::from(config).connect(name, near));
    let mut head = [0; 5];
    far.read_exact(&mut head).await.unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    far.read_exact(&mut body).await.unwrap();
    client.abort();
    [&head[..], &body].concat()
}

/// One `ProxySsh` call.
pub(super) struct Call {
    pub(super) connected: v1::SshConnected,
    send: mpsc::Sender<v1::ProxySshRequest>,
    answers: Streaming<v1::ProxySshResponse>,
}

pub(super) async fn open(channel: Channel, node: &str, login: &str) -> Result<Call, Status> {
    let target = v1::SshTarget {
        node: node.to_owned(),
        login: login.to_owned(),
        agent: false,
        timed: false,
        native: false,
        word: None,
    };
    start(channel, vec![Ask::Target(target)]).await
}

pub(super) async fn start(channel: Channel, first: Vec<Ask>) -> Result<Call, Status> {
    let (send, receive) = mpsc::channel(16);
    for frame in first {
        send.send(v1::ProxySshRequest { frame: Some(frame) }).await.unwrap();
    }
    let mut client = TransportClient::new(channel);
    let mut answers = client.proxy_ssh(ReceiverStream::new(receive)).await?.into_inner();
    match answers.message().await?.and_then(|message| message.frame) {
        Some(Answer::Connected(connected)) => Ok(Call { connected, send, answers }),
        other => panic!("not connected: {other:?}"),
    }
}

impl Call {
    pub(super) async fn send(&self, bytes: impl Into<Bytes>) {
        self.frame(Ask::Ssh(bytes.into())).await;
    }

    pub(super) async fn frame(&self, frame: Ask) {
        let _ = self.send.send(v1::ProxySshRequest { frame: Some(frame) }).await;
    }

    pub(super) fn sender(&self) -> mpsc::Sender<v1::ProxySshRequest> {
        self.send.clone()
    }

    /// No more from the client.
    pub(super) fn finish(self) -> Streaming<v1::ProxySshResponse> {
        self.answers
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let answer =
            tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer in time")?;
        Ok(answer.map(|message| match message.frame {
            Some(Answer::Ssh(bytes)) => bytes,
            other => panic!("unexpected {other:?}"),
        }))
    }

    pub(super) async fn read(&mut self, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            all.extend_from_slice(&self.next().await.unwrap().expect("more bytes"));
        }
        all
    }

    /// The status that ends the call.
    pub(super) async fn failure(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("ended without a failure"),
                Err(status) => return status,
            }
        }
    }
}

pub(super) async fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !ask() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Everything that the peer sends until it closes.
pub(super) async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let _ =
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the peer closes in time");
    all
}
