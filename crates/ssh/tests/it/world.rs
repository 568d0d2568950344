//! A cluster in memory with one node, and stock OpenSSH as its client.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_access::{
    ClusterName, HostId, HostRole, Identity, Lock, Login, Node, NodeKind, NodeName, Policies, Principal,
    Role, RoleName, Traits, UserName,
};
use sallyport_audit::event::MemorySink;
use sallyport_audit::recording::{Body, Frame, Reader, Recorders};
use sallyport_audit::{Code, Event};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{Authority, CaKind, HostRequest, SshOptions, Trust};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::{KeyPurpose, Suite, hpke};
use sallyport_session::factor::Factors;
use sallyport_ssh::capabilities::Sighting;
use sallyport_ssh::node::{ConnectionInfo, Directory, HostIdentity, NodeConfig, NodeServer};
use sallyport_ssh::session::{Account, Helper};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use crate::proofs::Proofs;

/// Whether clients of these tests speak by the transport of FIPS mode, in any build.
pub(crate) fn clients_by_layer() -> bool {
    std::env::var("TRANSPORT").is_ok_and(|transport| transport == "layer")
}

/// How long one client may take. Far more than any should: a test that hangs says so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Cluster {
    trust: Mutex<Arc<Trust>>,
    node: Arc<Node>,
    policies: Mutex<Arc<Policies>>,
    locks: Mutex<Arc<[Lock]>>,
    changes: watch::Sender<u64>,
    pub(crate) seen: Mutex<Vec<Sighting>>,
    pub(crate) factors: Proofs,
}

impl Cluster {
    /// Roles other than those of before.
    pub(crate) fn put_roles(&self, roles: &[String]) {
        let roles: Vec<Role> = roles.iter().map(|text| Role::parse(text).unwrap()).collect();
        *self.policies.lock() = Arc::new(Policies::compile(&roles).unwrap());
        self.changes.send_modify(|change| *change += 1);
    }

    pub(crate) fn trust_now(&self) -> Arc<Trust> {
        self.trust.lock().clone()
    }
}

impl Directory for Cluster {
    fn trust(&self) -> Arc<Trust> {
        self.trust.lock().clone()
    }
    fn policies(&self) -> Arc<Policies> {
        self.policies.lock().clone()
    }
    fn locks(&self) -> Arc<[Lock]> {
        self.locks.lock().clone()
    }
    fn node(&self) -> Arc<Node> {
        self.node.clone()
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
    fn factors(&self) -> &dyn Factors {
        &self.factors
    }
    fn saw(&self, sighting: Sighting) {
        self.seen.lock().push(sighting);
    }
}

/// The same trust under another suite.
fn under(trust: &Trust, suite: Suite) -> Arc<Trust> {
    let mut bundle = trust.to_bundle();
    suite.name().clone_into(&mut bundle.suite);
    Arc::new(Trust::from_bundle(&bundle).unwrap())
}

pub(crate) struct World {
    suite: Suite,
    pub(crate) directory: TempDir,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) server: NodeServer,
    pub(crate) sink: Arc<MemorySink>,
    pub(crate) address: SocketAddr,
    pub(crate) own: Account,
    recipient: hpke::RecipientKeys,
    pub(crate) user_ca: Authority,
    host_ca: Authority,
}

/// A user's certificate as a test wants it.
pub(crate) struct Card {
    pub(crate) user: &'static str,
    pub(crate) roles: Vec<&'static str>,
    pub(crate) logins: Vec<String>,
    pub(crate) issued: OffsetDateTime,
    pub(crate) ttl: time::Duration,
    pub(crate) pinned_to: Option<std::net::IpAddr>,
}

/// A role whose options are `options`, for every node and these logins.
pub(crate) fn role(name: &str, logins: &[&str], options: &str) -> String {
    format!(
        "kind: role\nversion: v1\nmetadata:\n  name: {name}\nspec:\n  allow:\n    logins: [{}]\n    node_labels:\n      '*': '*'\n  options: {{{options}}}\n",
        logins.join(", ")
    )
}

/// A host key of the suite's type for the node, with its certificate.
/// Serves connections on a port of this machine, until the test ends.
async fn listen(server: NodeServer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let serving = server.clone();
            tokio::spawn(async move {
                let info = ConnectionInfo { client_addr: Some(peer), ..ConnectionInfo::default() };
                serving.serve(stream, info).await;
            });
        }
    });
    address
}

fn identity(suite: Suite, host_ca: &Authority, node: &Node) -> HostIdentity {
    let key = SshKeyPair::generate_for(suite, KeyPurpose::HostSsh, "host").unwrap();
    let tls = TlsKey::generate_for(suite, KeyPurpose::HostTls).unwrap();
    let request = HostRequest {
        id: node.id,
        name: &node.name,
        role: HostRole::Node,
        join_id: Uuid::new_v4(),
        public_names: &[],
        ssh_public_key: key.public_line(),
        tls_spki: tls.spki_der(),
    };
    let now = OffsetDateTime::now_utc();
    let issued = sallyport_ca::issue_host(host_ca, &request, now, time::Duration::hours(1)).unwrap();
    HostIdentity::new(&key, &issued.ssh).unwrap()
}

impl World {
    /// A node where alice, who has the role `dev`, may log in as this process's own account.
    pub(crate) async fn new() -> Self {
        Self::with("", |_| {}).await
    }

    /// The same, with other options in the role and the node's settings changed.
    pub(crate) async fn with(options: &str, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let own = Account::own().unwrap();
        Self::with_roles(&[role("dev", &[&own.name], options)], change).await
    }

    /// As [`World::new`], in a cluster of this suite.
    pub(crate) async fn with_suite(suite: Suite) -> Self {
        let own = Account::own().unwrap();
        Self::of(suite, &[role("dev", &[&own.name], "")], |_| {}).await
    }

    /// The same with the node's settings changed.
    pub(crate) async fn by(suite: Suite, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let own = Account::own().unwrap();
        Self::of(suite, &[role("dev", &[&own.name], "")], change).await
    }

    pub(crate) async fn with_roles(roles: &[String], change: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::of(Suite::BalancedV1, roles, change).await
    }

    async fn of(suite: Suite, roles: &[String], change: impl FnOnce(&mut NodeConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let name = ClusterName::new("test").unwrap();
        let sealing = Arc::new(SealingKey::create(&directory.path().join("sealing.key")).unwrap());
        let custody = SealedCustody::new(sealing);
        let user_ca = Authority::generate(CaKind::User, &name, &custody, suite, now).unwrap();
        let host_ca = Authority::generate(CaKind::Host, &name, &custody, suite, now).unwrap();
        let recipient = hpke::RecipientKeys::generate(hpke::Kem::X25519).unwrap();
        let trust = Trust::from_authorities(&[&user_ca, &host_ca], Some(recipient.public())).unwrap();
        let trust = under(&trust, suite);
        let node = Arc::new(Node {
            id: HostId::new(),
            name: NodeName::new("web-1").unwrap(),
            labels: [("env", "test")].into_iter().collect(),
            kind: NodeKind::Sallyport,
        });
        let roles: Vec<Role> = roles.iter().map(|text| Role::parse(text).unwrap()).collect();
        let cluster = Arc::new(Cluster {
            trust: Mutex::new(trust),
            node: node.clone(),
            policies: Mutex::new(Arc::new(Policies::compile(&roles).unwrap())),
            locks: Mutex::new(Arc::from([])),
            changes: watch::channel(0).0,
            seen: Mutex::default(),
            factors: Proofs::default(),
        });
        let host = identity(suite, &host_ca, &node);
        let mut config = NodeConfig {
            helper: Helper {
                program: env!("CARGO_BIN_EXE_sallyport-session-helper").into(),
                arguments: vec![sallyport_ssh::helper::ARGUMENT.into()],
            },
            // Tests leave nothing in the machine's own.
            login_records: None,
            ..NodeConfig::default()
        };
        change(&mut config);
        let sink = Arc::new(MemorySink::default());
        let recorders = Recorders::open(&directory.path().join("recordings"), recipient.public()).unwrap();
        let server = NodeServer::new(config, &host, cluster.clone(), sink.clone(), recorders);
        let address = listen(server.clone()).await;
        let own = Account::own().unwrap();
        let world =
            Self { suite, directory, cluster, server, sink, address, own, recipient, user_ca, host_ca };
        std::fs::write(
            world.path("known_hosts"),
            sallyport_ca::known_hosts_lines(&world.cluster.trust(), &["*".to_owned()]),
        )
        .unwrap();
        world.issue("alice", &world.card("alice"));
        world
    }

    /// A server for another node with this label, whose sessions the same host lists, as a proxy that records has them.
    pub(crate) async fn beside(&self, name: &str, label: (&str, &str)) -> SocketAddr {
        let node = Arc::new(Node {
            id: HostId::new(),
            name: NodeName::new(name).unwrap(),
            labels: [label].into_iter().collect(),
            kind: NodeKind::Sallyport,
        });
        let host = identity(self.suite, &self.host_ca, &node);
        let cluster = Arc::new(Cluster {
            trust: Mutex::new(self.cluster.trust()),
            node,
            policies: Mutex::new(self.cluster.policies()),
            locks: Mutex::new(self.cluster.locks()),
            changes: watch::channel(0).0,
            seen: Mutex::default(),
            factors: Proofs::default(),
        });
        let recorders = Recorders::open(&self.path("beside"), self.recipient.public()).unwrap();
        let config = NodeConfig { login_records: None, ..NodeConfig::default() };
        let (sink, live) = (self.sink.clone(), self.server.live());
        listen(NodeServer::among(config, &host, cluster, sink, recorders, live)).await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn card(&self, user: &'static str) -> Card {
        Card {
            user,
            roles: vec!["dev"],
            logins: vec![self.own.name.clone()],
            issued: OffsetDateTime::now_utc(),
            ttl: time::Duration::hours(1),
            pinned_to: None,
        }
    }

    /// Writes a key `name` and its certificate.
    pub(crate) fn issue(&self, name: &str, card: &Card) {
        self.issue_by(&self.user_ca, name, card);
    }

    pub(crate) fn issue_by(&self, authority: &Authority, name: &str, card: &Card) {
        let key = SshKeyPair::generate(self.suite, card.user).unwrap();
        let certificate = Self::certify_by(authority, card, key.public_line());
        self.write_key(name, &key.private_openssh(), &certificate);
    }

    /// Writes this key as `name`, and a certificate over it.
    pub(crate) fn issue_key(&self, name: &str, card: &Card, key: &SshKeyPair) {
        let certificate = Self::certify_by(&self.user_ca, card, key.public_line());
        self.write_key(name, &key.private_openssh(), &certificate);
    }

    /// A fresh key that proves itself as the node's.
    pub(crate) fn host(&self) -> HostIdentity {
        identity(self.suite, &self.host_ca, &self.cluster.node)
    }

    /// The node proves itself by a fresh key from the next connection on.
    pub(crate) fn renew_host(&self) {
        self.server.set_host(&self.host());
    }

    /// A certificate over a public key.
    pub(crate) fn certify(&self, card: &Card, public_line: &str) -> String {
        Self::certify_by(&self.user_ca, card, public_line)
    }

    fn certify_by(authority: &Authority, card: &Card, public_line: &str) -> String {
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new(card.user).unwrap(),
                roles: card.roles.iter().map(|role| RoleName::new(*role).unwrap()).collect(),
                logins: card.logins.iter().map(|login| Login::new(login.as_str()).unwrap()).collect(),
                traits: Traits::new(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: card.pinned_to,
            valid_after: card.issued,
            valid_before: card.issued + card.ttl,
        };
        let options = SshOptions { agent_forwarding: true, ..SshOptions::default() };
        let certificates = sallyport_ca::issue_user(
            authority,
            &identity,
            public_line,
            tls.spki_der(),
            card.issued,
            card.ttl,
            &options,
        )
        .unwrap();
        certificates.ssh
    }

    fn write_key(&self, name: &str, private: &str, certificate: &str) {
        let path = self.path(name);
        std::fs::write(&path, private).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(self.path(&format!("{name}-cert.pub")), certificate).unwrap();
    }

    /// Writes a key whose certificate is a host's.
    pub(crate) fn issue_host_key(&self, name: &str) {
        let key = SshKeyPair::generate(Suite::BalancedV1, "host").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = HostRequest {
            id: HostId::new(),
            name: &NodeName::new("web-2").unwrap(),
            role: HostRole::Node,
            join_id: Uuid::new_v4(),
            public_names: &[],
            ssh_public_key: key.public_line(),
            tls_spki: tls.spki_der(),
        };
        let now = OffsetDateTime::now_utc();
        let issued =
            sallyport_ca::issue_host(&self.host_ca, &request, now, time::Duration::hours(1)).unwrap();
        self.write_key(name, &key.private_openssh(), &issued.ssh);
    }

    /// Another cluster's user authority.
    pub(crate) fn stranger(&self) -> Authority {
        let sealing = Arc::new(SealingKey::create(&self.path("other.key")).unwrap());
        let custody = SealedCustody::new(sealing);
        let name = ClusterName::new("test").unwrap();
        Authority::generate(CaKind::User, &name, &custody, Suite::BalancedV1, OffsetDateTime::now_utc())
            .unwrap()
    }

    pub(crate) fn set_suite(&self, suite: Suite) {
        let mut trust = self.cluster.trust.lock();
        *trust = under(&trust, suite);
    }

    pub(crate) fn set_locks(&self, locks: &[&str]) {
        let locks: Vec<Lock> = locks.iter().map(|text| Lock::parse(text).unwrap()).collect();
        *self.cluster.locks.lock() = Arc::from(locks);
        self.cluster.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn options(&self, identity: &str) -> Vec<String> {
        [
            "-F/dev/null".to_owned(),
            "-oBatchMode=yes".to_owned(),
            "-oIdentitiesOnly=yes".to_owned(),
            "-oLogLevel=ERROR".to_owned(),
            "-oHostKeyAlias=web-1".to_owned(),
            "-oStrictHostKeyChecking=yes".to_owned(),
            format!("-oUserKnownHostsFile={}", self.path("known_hosts").display()),
            "-oGlobalKnownHostsFile=/dev/null".to_owned(),
            format!("-oIdentityFile={}", self.path(identity).display()),
        ]
        .into()
    }

    /// `ssh` as a user towards the node, the destination still to come.
    pub(crate) fn client(&self, program: &str, identity: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options(identity));
        let port = if program == "ssh" { "-p" } else { "-P" };
        command.arg(port).arg(self.address.port().to_string());
        command.env_remove("SSH_AUTH_SOCK").kill_on_drop(true).stdin(Stdio::null());
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    pub(crate) fn destination(&self) -> String {
        format!("{}@127.0.0.1", self.own.name)
    }

    /// `ssh` with these arguments after the destination.
    pub(crate) fn ssh<S: AsRef<OsStr>>(&self, before: &[&str], command: &[S]) -> Command {
        let mut ssh = self.client("ssh", "alice");
        ssh.args(before).arg(self.destination()).args(command);
        ssh
    }

    /// What rsync and friends call instead of ssh.
    pub(crate) fn remote_shell(&self) -> String {
        format!("ssh {} -p {}", self.options("alice").join(" "), self.address.port())
    }

    pub(crate) fn events(&self, code: &Code) -> Vec<Event> {
        self.sink.events().into_iter().filter(|event| event.code == *code).collect()
    }

    /// Waits for the next event of a kind; they come a moment after the client has gone.
    pub(crate) async fn event(&self, code: &Code) -> Event {
        until(&format!("an event {}", code.kind()), || self.events(code).pop()).await
    }

    /// What the only recording holds; it must be whole.
    pub(crate) async fn recording(&self) -> Vec<Frame> {
        self.event(&Code::SessionEnd).await;
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.path("recordings"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rec"))
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let mut reader = Reader::open(File::open(files.remove(0)).unwrap(), &self.recipient).unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            frames.push(frame);
        }
        assert!(reader.is_complete(), "{:?}", reader.damage());
        frames
    }
}

/// The output that a recording holds.
pub(crate) fn shown(frames: &[Frame]) -> String {
    let mut all = Vec::new();
    for frame in frames {
        if let Body::Output(bytes) = &frame.body {
            all.extend_from_slice(bytes);
        }
    }
    text(&all)
}

/// Runs a client to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    timeout(PATIENCE, running.wait_with_output()).await.expect("the client hangs").unwrap()
}

/// Runs a client on this input.
pub(crate) async fn output_of(mut command: Command, input: Vec<u8>) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut stdin = running.stdin.take().unwrap();
    let feed = tokio::spawn(async move {
        let _ = stdin.write_all(&input).await;
    });
    let output = timeout(PATIENCE, running.wait_with_output()).await.expect("the client hangs").unwrap();
    feed.await.unwrap();
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that a client succeeded, and gives its output.
#[track_caller]
pub(crate) fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stderr), text(&output.stdout));
    text(&output.stdout)
}

/// Waits until something is there.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until something is there and has not changed for a while: what still moves moves many times in it.
pub(crate) async fn settled<T: PartialEq + Clone>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    const STILL: Duration = Duration::from_millis(500);
    let (mut last, mut since) = (None, Instant::now());
    until(what, || {
        let now = look();
        if now != last {
            since = Instant::now();
            last.clone_from(&now);
        }
        now.filter(|_| since.elapsed() > STILL)
    })
    .await
}

/// Waits until something is counted, and no more comes; gives how much.
pub(crate) async fn stands_still(what: &str, count: impl Fn() -> u64) -> u64 {
    settled(what, || Some(count()).filter(|count| *count > 0)).await
}

/// Runs one of the machine's programs for accounts. Another test may be changing them at the same time, which they say in words:
/// then it is tried again.
pub(crate) fn accounts(program: &str, arguments: &[&str]) -> Output {
    let began = Instant::now();
    loop {
        let output = std::process::Command::new(program).args(arguments).output().unwrap();
        if output.status.success() || !text(&output.stderr).contains("lock") || began.elapsed() > PATIENCE {
            return output;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a program listens at a socket: its file is there a moment before.
pub(crate) async fn listens(socket: &Path) {
    until("a listener at the socket", || std::os::unix::net::UnixStream::connect(socket).ok()).await;
}

/// Whether a process of this number runs.
pub(crate) fn alive(pid: u32) -> bool {
    // A zombie does not run any more.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

pub(crate) fn is_root() -> bool {
    nix_uid() == 0
}

fn nix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

pub(crate) fn started(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn file_sum(path: &Path) -> [u8; 32] {
    sallyport_sal::hash::sha256(&std::fs::read(path).unwrap())
}

/// Whether a process, by its directory in `/proc`, is one that a node has started for a session that is still to come.
/// A process that has become a session has another environment, or other standard output.
pub(crate) fn waits_for_session(process: &Path) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    let output = std::fs::read_link(process.join("fd/1")).unwrap_or_default();
    environment.starts_with(b"SALLYPORT_SESSION_SPEC=wait\0") && output.as_os_str() == "/dev/null"
}
