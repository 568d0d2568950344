//! A whole cluster in the test's process, and users who log in to it.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "support of tests"
)]

pub(crate) mod hostile_proxy;
pub(crate) mod member;
mod streams;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper_util::rt::TokioIo;
use sallyport_access::{ClusterName, HostRole, NodeName};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{Trust, TrustBundle};
use sallyport_sal::Suite;
use sallyport_server::config::{
    AdminFactor, AuthSection, AuthenticationSection, HostPort, JoinConfig, NodeSection, ProxySection,
    SecondFactor, Secret,
};
use sallyport_server::{Config, Running};
use sallyport_ssh::client::{Connection, Credentials, Output, SessionRequest, Settings};
use sallyport_wire::v1::admin_client::AdminClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::proxy_ssh_request::Frame as Ask;
use sallyport_wire::v1::proxy_ssh_response::Frame as Answer;
use sallyport_wire::v1::rotation_client::RotationClient;
use sallyport_wire::v1::transport_client::TransportClient;
use sallyport_wire::{alpn, v1};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

pub(crate) use self::streams::{NodeStream, exec, open};

pub(crate) const CLUSTER: &str = "test.example";
pub(crate) const PASSWORD: &str = "correct horse battery staple";
/// Generous: the machine that runs the tests may have other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn cluster() -> ClusterName {
    ClusterName::new(CLUSTER).unwrap()
}

/// The account that sessions run as: root when the tests run as root, else the one account there is.
pub(crate) fn os_login() -> String {
    if rustix::process::geteuid().is_root() {
        return "root".to_owned();
    }
    std::env::var("USER").unwrap_or_else(|_| "root".to_owned())
}

/// The program for `__session`: a target of this package, built next to this one.
fn helper() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let found = std::fs::read_dir(here.parent().unwrap()).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().ok()?;
        let plain = name.starts_with("session_helper-") && !name.contains('.');
        plain.then(|| (entry.metadata().unwrap().modified().unwrap(), entry.path()))
    });
    found
        .max()
        .map(|(_, path)| path)
        .expect("run `cargo test -p sallyport-server`: it builds the session helper")
}

/// A place for a cluster's state: in memory where the machine has such a place, for every write is flushed to the disk, and no
/// test here is about a machine that loses its power.
pub(crate) fn place() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub(crate) fn loopback() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn auth_section() -> AuthSection {
    // A whole run of the tests may be made under another suite.
    let suite = std::env::var("SALLYPORT_TEST_SUITE").ok().map(|name| name.parse().unwrap());
    // Administrators have a password alone, except where the test is about their factors.
    let authentication =
        AuthenticationSection { admin_factor: AdminFactor::Enrolled, ..AuthenticationSection::default() };
    AuthSection { second_factor: SecondFactor::Optional, suite, authentication, ..AuthSection::default() }
}

pub(crate) fn proxy_section() -> ProxySection {
    ProxySection { listen: loopback(), ..ProxySection::default() }
}

pub(crate) fn node_section(name: &str) -> NodeSection {
    NodeSection {
        name: Some(NodeName::new(name).unwrap()),
        labels: [("env", "test")].into_iter().collect(),
        helper: Some(helper()),
        ..NodeSection::default()
    }
}

pub(crate) fn config(directory: &Path) -> Config {
    Config { drain_timeout: Duration::from_secs(2), ..Config::new(cluster(), directory) }
}

fn private(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(directory).unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// Authority and proxy in one set of services, the node beside them or not.
pub(crate) struct Cluster {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) running: Running,
}

impl Cluster {
    /// Everything in one `run::start`.
    pub(crate) async fn all_in_one() -> Self {
        let cluster = Self::start(|config| config.node = Some(node_section("web-1"))).await;
        cluster.running.ready(PATIENCE).await.unwrap();
        cluster
    }

    /// Authority and proxy.
    pub(crate) async fn without_node() -> Self {
        let cluster = Self::start(|_| {}).await;
        cluster.running.ready(PATIENCE).await.unwrap();
        cluster
    }

    pub(crate) async fn start(adjust: impl FnOnce(&mut Config)) -> Self {
        // Users only have to be there; what a hash costs is for the tests of passwords.
        sallyport_sal::password::danger::hash_cheaply(true);
        let directory = place();
        private(directory.path());
        let mut config = config(&directory.path().join("cluster"));
        config.auth = Some(auth_section());
        config.proxy = Some(proxy_section());
        adjust(&mut config);
        let running = sallyport_server::start(config).await.unwrap();
        Self { directory, running }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.directory.path().join("cluster")
    }

    pub(crate) fn proxy(&self) -> HostPort {
        HostPort::from(self.running.addresses().proxy.unwrap())
    }

    pub(crate) async fn admin(&self) -> AdminClient<Channel> {
        admin(&self.data_dir()).await
    }

    pub(crate) async fn user(&self, name: &str, logins: &[&str]) -> User {
        user(&mut self.admin().await, &self.proxy(), name, logins).await
    }
}

/// Administration through the socket of a data directory.
pub(crate) async fn admin(data_dir: &Path) -> AdminClient<Channel> {
    AdminClient::new(admin_channel(data_dir).await)
}

pub(crate) async fn admin_channel(data_dir: &Path) -> Channel {
    let socket = data_dir.join("admin.sock");
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://admin.invalid");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match endpoint.connect_with_connector(connect.clone()).await {
            Ok(channel) => return channel,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("no admin socket: {error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// A role that allows the logins everywhere, as YAML.
pub(crate) fn role(name: &str, logins: &[&str]) -> String {
    let logins = logins.join(", ");
    format!(
        "kind: role\nversion: v1\nmetadata:\n  name: {name}\nspec:\n  allow:\n    logins: [{logins}]\n    \
         node_labels:\n      '*': '*'\n    rules:\n      - resources: [node]\n        verbs: [list, read]\n"
    )
}

/// Makes a role and a user, accepts the invite and logs in.
pub(crate) async fn user(
    admin: &mut AdminClient<Channel>,
    proxy: &HostPort,
    name: &str,
    logins: &[&str],
) -> User {
    let role_name = format!("{name}-role");
    let yaml = role(&role_name, logins);
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
    let request = v1::CreateUserRequest {
        name: name.to_owned(),
        roles: vec![role_name],
        traits: std::collections::HashMap::new(),
    };
    let invite = admin.create_user(request).await.unwrap().into_inner();
    let pin = pin(admin).await;
    let mut login = LoginClient::new(pinned(proxy, &pin).await);
    login.begin_invite(v1::BeginInviteRequest { token: invite.token.clone() }).await.unwrap();
    let finish =
        v1::FinishInviteRequest { token: invite.token, password: PASSWORD.to_owned(), otp: String::new() };
    login.finish_invite(finish).await.unwrap();
    log_in(proxy, &pin, name, None).await.unwrap()
}

/// The cluster's pin, from a token made for the purpose.
pub(crate) async fn pin(admin: &mut AdminClient<Channel>) -> String {
    token(admin, "node").await.1
}

/// A join token and the pin.
pub(crate) async fn token(admin: &mut AdminClient<Channel>, role: &str) -> (String, String) {
    let request = v1::CreateTokenRequest { role: role.to_owned(), ..v1::CreateTokenRequest::default() };
    let made = admin.create_token(request).await.unwrap().into_inner();
    (made.token, made.ca_pin)
}

/// A node that joined by the API alone: its way to the authority.
pub(crate) async fn joined_node(cluster: &Cluster, name: &str) -> Channel {
    let (token, pin) = token(&mut cluster.admin().await, "node").await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token,
        name: name.to_owned(),
        role: "node".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let issued = login.join(request).await.unwrap().into_inner();
    let trust = cluster.running.authority().unwrap().trust();
    authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &tls.pkcs8_pem()).await
}

pub(crate) fn join(token: &str, pin: &str) -> JoinConfig {
    JoinConfig { token: Some(Secret::new(token)), token_file: None, ca_pin: Some(pin.to_owned()) }
}

pub(crate) async fn tls(
    address: &HostPort,
    config: ClientConfig,
    server: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_from(None, address, config, server).await
}

/// The same from this address of the machine.
async fn tls_from(
    from: Option<std::net::Ipv4Addr>,
    address: &HostPort,
    config: ClientConfig,
    server: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let to = (address.host.as_str(), address.port);
    let tcp = match from {
        None => TcpStream::connect(to).await?,
        Some(from) => {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind((from, 0).into())?;
            let mut found = tokio::net::lookup_host(to).await?;
            socket.connect(found.find(std::net::SocketAddr::is_ipv4).unwrap()).await?
        }
    };
    tcp.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(server.to_owned()).unwrap(), tcp).await
}

async fn channel(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Channel {
    channel_of(stream, 8 << 20).await
}

/// With a window for each stream.
async fn channel_of(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, window: u32) -> Channel {
    let stream = parking_lot::Mutex::new(Some(stream));
    let connect = tower::service_fn(move |_| {
        let taken = stream.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("lost")) }
    });
    Endpoint::from_static("http://cluster.invalid")
        .initial_stream_window_size(window)
        .initial_connection_window_size(16 << 20)
        .connect_with_connector(connect)
        .await
        .unwrap()
}

/// To the authority, by pin.
pub(crate) async fn pinned(proxy: &HostPort, pin: &str) -> Channel {
    let config = sallyport_ca::tls::pinned_client_config(pin, &[alpn::AUTH]).unwrap();
    channel(tls(proxy, config, "auth.sallyport.internal").await.unwrap()).await
}

/// To the authority with a user's certificate, from another address of this machine.
pub(crate) async fn authority_from(user: &User, address: std::net::Ipv4Addr) -> Channel {
    User { from: Some(address), ..user.clone() }.authority().await
}

/// To the authority, by pin, from another address of this machine.
pub(crate) async fn pinned_from(proxy: &HostPort, pin: &str, address: std::net::Ipv4Addr) -> Channel {
    let config = sallyport_ca::tls::pinned_client_config(pin, &[alpn::AUTH]).unwrap();
    channel(tls_from(Some(address), proxy, config, "auth.sallyport.internal").await.unwrap()).await
}

/// To the authority with any certificate.
pub(crate) async fn authority_as(proxy: &HostPort, trust: &Trust, chain: &str, key: &str) -> Channel {
    let config = sallyport_ca::tls::client_config(trust, Some((chain, key)), &[alpn::AUTH]).unwrap();
    let server = sallyport_ca::server_name(HostRole::Auth, &cluster());
    channel(tls(proxy, config, &server).await.unwrap()).await
}

/// A user who is logged in.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) proxy: HostPort,
    pub(crate) trust: Trust,
    pub(crate) ssh_key: String,
    pub(crate) ssh_certificate: String,
    pub(crate) tls_key: String,
    pub(crate) tls_chain: String,
    /// The address of this machine that it connects from, where it does not matter to the system.
    pub(crate) from: Option<std::net::Ipv4Addr>,
}

pub(crate) async fn log_in(
    proxy: &HostPort,
    pin: &str,
    name: &str,
    ttl: Option<Duration>,
) -> Result<User, Status> {
    let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
    let tls_key = TlsKey::generate(Suite::BalancedV1).unwrap();
    let mut login = LoginClient::new(pinned(proxy, pin).await);
    let answer = login
        .login_with_password(v1::LoginRequest {
            user: name.to_owned(),
            password: PASSWORD.to_owned(),
            otp: String::new(),
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls_key.spki_der().to_vec().into(),
            ttl: ttl.map(sallyport_wire::convert::duration_to_proto),
            ..Default::default()
        })
        .await?
        .into_inner();
    Ok(User {
        name: name.to_owned(),
        proxy: proxy.clone(),
        trust: trust(answer.trust.unwrap()),
        ssh_key: ssh.private_openssh().to_string(),
        ssh_certificate: answer.ssh_certificate,
        tls_key: tls_key.pkcs8_pem().to_string(),
        tls_chain: answer.tls_certificate_pem,
        from: None,
    })
}

/// The wire's trust of the test cluster.
fn trust(wire: v1::TrustBundle) -> Trust {
    let bundle = TrustBundle {
        cluster: CLUSTER.to_owned(),
        user_ssh_keys: wire.user_ssh_keys,
        host_ssh_keys: wire.host_ssh_keys,
        user_tls_certificates: wire.user_tls_certificates,
        host_tls_certificates: wire.host_tls_certificates,
        recording_key: wire.recording_key.to_vec(),
        ..TrustBundle::default()
    };
    Trust::from_bundle(&bundle).unwrap()
}

impl User {
    /// Another holder of certificates, at the same cluster.
    pub(crate) fn with_keys(&self, name: &str, ssh_key: &str, ssh: &str, tls_key: &str, chain: &str) -> Self {
        Self {
            name: name.to_owned(),
            proxy: self.proxy.clone(),
            trust: self.trust.clone(),
            ssh_key: ssh_key.to_owned(),
            ssh_certificate: ssh.to_owned(),
            tls_key: tls_key.to_owned(),
            tls_chain: chain.to_owned(),
            from: self.from,
        }
    }

    /// TLS settings with this user's certificate.
    pub(crate) fn tls(&self, alpn: &[u8]) -> ClientConfig {
        let pair = Some((self.tls_chain.as_str(), self.tls_key.as_str()));
        sallyport_ca::tls::client_config(&self.trust, pair, &[alpn]).unwrap()
    }

    pub(crate) async fn connect(&self) -> std::io::Result<Channel> {
        self.connect_by(self.tls(alpn::H2)).await
    }

    /// The same with other TLS settings.
    pub(crate) async fn connect_by(&self, config: ClientConfig) -> std::io::Result<Channel> {
        let server = sallyport_ca::server_name(HostRole::Proxy, &cluster());
        Ok(channel(tls_from(self.from, &self.proxy, config, &server).await?).await)
    }

    /// To the proxy, by QUIC.
    pub(crate) async fn connect_by_quic(&self) -> Channel {
        let server = sallyport_ca::server_name(HostRole::Proxy, &cluster());
        let proxy = format!("{}:{}", self.proxy.host, self.proxy.port).parse().unwrap();
        let stream = sallyport_wire::carrier::connect(proxy, &server, self.tls(alpn::H2_BY_QUIC)).await;
        channel(stream.unwrap()).await
    }

    /// To the authority, as this user.
    pub(crate) async fn authority(&self) -> Channel {
        let server = sallyport_ca::server_name(HostRole::Auth, &cluster());
        channel(tls_from(self.from, &self.proxy, self.tls(alpn::AUTH), &server).await.unwrap()).await
    }

    /// To the authority, as this user, with no window for any answer.
    pub(crate) async fn authority_unread(&self) -> Channel {
        let server = sallyport_ca::server_name(HostRole::Auth, &cluster());
        channel_of(tls(&self.proxy, self.tls(alpn::AUTH), &server).await.unwrap(), 0).await
    }

    /// What a user's program does when it learns that another trust is in force; whether the certificates are new.
    pub(crate) async fn follow(&mut self) -> Result<bool, Status> {
        let asked = v1::FollowRequest {
            ssh_certificate: self.ssh_certificate.clone(),
            tls_certificate_pem: self.tls_chain.clone(),
            ..Default::default()
        };
        let answer = RotationClient::new(self.authority().await).follow(asked).await?.into_inner();
        self.trust = trust(answer.trust.unwrap());
        if answer.ssh_certificate.is_empty() {
            return Ok(false);
        }
        self.ssh_certificate = answer.ssh_certificate;
        self.tls_chain = answer.tls_certificate_pem;
        Ok(true)
    }

    /// The certificates, as the authority takes them to sign them anew.
    pub(crate) fn certificates(&self) -> v1::FollowRequest {
        v1::FollowRequest {
            ssh_certificate: self.ssh_certificate.clone(),
            tls_certificate_pem: self.tls_chain.clone(),
            ..Default::default()
        }
    }

    pub(crate) async fn open(&self, node: &str, login: &str) -> Result<NodeStream, Status> {
        open(self.connect().await.unwrap(), node, login).await
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::from_openssh(&self.ssh_key, &self.ssh_certificate).unwrap()
    }

    pub(crate) fn settings(&self, node: &str, login: &str) -> Settings {
        Settings {
            login: login.to_owned(),
            host: node.to_owned(),
            trust: Arc::new(self.trust.clone()),
            keepalive: None,
            agent: None,
        }
    }

    pub(crate) async fn ssh(&self, node: &str, login: &str) -> Connection {
        let stream = self.open(node, login).await.unwrap();
        sallyport_ssh::client::connect(stream, &self.credentials(), self.settings(node, login)).await.unwrap()
    }

    /// Runs a command; gives output, error output and exit.
    pub(crate) async fn run(
        &self,
        node: &str,
        login: &str,
        command: &str,
    ) -> (String, String, sallyport_ssh::client::Exit) {
        let connection = self.ssh(node, login).await;
        let done = exec(&connection, command).await;
        connection.disconnect().await;
        done
    }

    /// Writes key and certificate where stock OpenSSH finds them; gives the key's path.
    pub(crate) fn write_keys(&self, directory: &Path) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let key = directory.join("id");
        std::fs::write(&key, &self.ssh_key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(directory.join("id-cert.pub"), &self.ssh_certificate).unwrap();
        key
    }
}

/// Asks until the answer is there.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The audit events of a code, newest last, once there is at least one.
pub(crate) async fn events(admin: &mut AdminClient<Channel>, code: &str) -> Vec<serde_json::Value> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let request = v1::SearchEventsRequest { code: code.to_owned(), ..v1::SearchEventsRequest::default() };
        let mut found = admin.search_events(request).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(record) = found.message().await.unwrap() {
            events.push(serde_json::from_str(&record.event_json).unwrap());
        }
        if !events.is_empty() {
            return events;
        }
        assert!(tokio::time::Instant::now() < deadline, "no event {code}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Two ends of a pipe, for streams without a server.
pub(crate) fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(64 * 1024)
}

pub(crate) fn is(status: &Status, code: Code, text: &str) -> bool {
    status.code() == code && status.message().contains(text)
}
