//! The front door of a node before a stock sshd: decided, recorded and limited here, run there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sallyport_access::{
    HostId, HostRole, Identity, Lock, Login, Node, NodeKind, NodeName, OpenSshServer, Policies, Role,
    ServerTrust,
};
use sallyport_audit::Event;
use sallyport_audit::event::MemorySink;
use sallyport_audit::recording::{Body, Frame, Reader, Recorders};
use sallyport_ca::Trust;
use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::hpke;
use sallyport_ssh::BoxedStream;
use sallyport_ssh::client::Credentials;
use sallyport_ssh::node::{
    AgentLogin, ConnectionInfo, Directory, HostIdentity, LoginBy, NodeConfig, NodeServer, ServerProof,
    Upstream, UpstreamError,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::openssh::rig::{Cluster, NODE, Pair, Sshd, SshdOptions, account, noise, openssh_config};
use crate::world::until;

#[derive(Debug)]
struct Known {
    trust: Arc<Trust>,
    node: Arc<Node>,
    policies: Arc<Policies>,
    locks: Mutex<Arc<[Lock]>>,
    changes: watch::Sender<u64>,
}

impl Directory for Known {
    fn trust(&self) -> Arc<Trust> {
        self.trust.clone()
    }
    fn policies(&self) -> Arc<Policies> {
        self.policies.clone()
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
}

/// The sshd behind, and what the front door logs in there with.
pub(crate) struct Behind {
    address: std::net::SocketAddr,
    pub(crate) proof: ServerProof,
    pub(crate) pair: Pair,
    /// As whom alice logs in.
    pub(crate) login: String,
    /// Who signs logins there.
    pub(crate) by: Box<dyn Fn() -> LoginBy + Send + Sync>,
    /// The logins that an agent has signed: the key's id, and whether the agent was forwarded.
    pub(crate) signed: Arc<Mutex<Vec<(String, bool)>>>,
    /// How much later than a proxy the front door may hear of a lock.
    pub(crate) late_word: Duration,
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Behind")
    }
}

#[async_trait]
impl Upstream for Behind {
    async fn dial(&self) -> Result<BoxedStream, UpstreamError> {
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| UpstreamError::Unreached(error.into()))?;
        stream.set_nodelay(true).unwrap();
        Ok(Box::new(stream))
    }
    fn proof(&self) -> ServerProof {
        self.proof.clone()
    }
    async fn credentials(
        &self,
        user: &Identity,
        shown: &str,
        login: &Login,
    ) -> Result<Credentials, UpstreamError> {
        assert_eq!(user.display_name(), "alice");
        assert!(shown.contains("-cert-v01@openssh.com "), "{shown}");
        assert_eq!(login.as_str(), self.login);
        Ok(self.pair.credentials())
    }
    fn login_by(&self) -> LoginBy {
        (self.by)()
    }
    fn signed(&self, login: &AgentLogin<'_>) {
        assert_eq!((login.identity.display_name().as_str(), login.login.as_str()), ("alice", &*self.login));
        let key_id = login.certificate.key_id().to_owned();
        self.signed.lock().push((key_id, login.forwarded));
    }
}

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    sshd: Sshd,
    pub(crate) server: NodeServer,
    known: Arc<Known>,
    pub(crate) sink: Arc<MemorySink>,
    address: std::net::SocketAddr,
    config: PathBuf,
    recipient: hpke::RecipientKeys,
}

impl World {
    pub(crate) async fn new(options: &str) -> Self {
        Self::with(options, &SshdOptions::default(), |_| {}).await
    }

    pub(crate) async fn with(options: &str, sshd: &SshdOptions, change: impl FnOnce(&mut Behind)) -> Self {
        Self::before(HostRole::OpenSsh, options, sshd, change).await
    }

    /// Before a host with that role.
    pub(crate) async fn before(
        role: HostRole,
        options: &str,
        sshd: &SshdOptions,
        change: impl FnOnce(&mut Behind),
    ) -> Self {
        let cluster = Cluster::new();
        let host = cluster.host(NODE, role);
        let sshd = Sshd::start(&cluster, &host, sshd);
        let kind = NodeKind::OpenSsh(OpenSshServer {
            address: sshd.address.to_string(),
            via: None,
            host_key: None,
            names: Vec::new(),
            trust: ServerTrust::default(),
        });
        let mut behind = Behind {
            address: sshd.address,
            proof: ServerProof { name: NODE.to_owned(), trust: cluster.trust.clone(), pinned: None },
            pair: cluster.user(),
            login: account(),
            by: Box::new(|| LoginBy::Itself),
            signed: Arc::default(),
            late_word: NodeConfig::default().late_word,
        };
        change(&mut behind);
        if behind.login != account() {
            behind.pair = cluster.user_from("alice", &[&behind.login], time::OffsetDateTime::now_utc());
        }
        let role = format!(
            "kind: role\nversion: v1\nmetadata:\n  name: access\nspec:\n  allow:\n    logins: [{}]\n    \
             node_labels:\n      '*': '*'\n  options: {{{options}}}\n",
            behind.login
        );
        let known = Arc::new(Known {
            trust: cluster.trust.clone(),
            node: Arc::new(Node {
                id: HostId::new(),
                name: NodeName::new(NODE).unwrap(),
                labels: [("env", "test")].into_iter().collect(),
                kind,
            }),
            policies: Arc::new(Policies::compile(&[Role::parse(&role).unwrap()]).unwrap()),
            locks: Mutex::new(Arc::from([])),
            changes: watch::channel(0).0,
        });
        let user = behind.pair.clone();
        let sink = Arc::new(MemorySink::default());
        let recipient = hpke::RecipientKeys::generate(hpke::Kem::X25519).unwrap();
        let directory = cluster.directory.path();
        let recorders = Recorders::open(&directory.join("recordings"), recipient.public()).unwrap();
        let config = NodeConfig { late_word: behind.late_word, ..NodeConfig::default() };
        let front = cluster.host(NODE, HostRole::OpenSsh);
        let front = HostIdentity::new(&SshKeyPair::from_openssh(&front.private).unwrap(), &front.certificate)
            .unwrap();
        let server = NodeServer::new(config, &front, known.clone(), sink.clone(), recorders);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(behind);
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let (server, behind) = (serving.clone(), behind.clone());
                tokio::spawn(async move {
                    server
                        .serve_for(
                            behind,
                            stream,
                            ConnectionInfo { client_addr: Some(peer), ..ConnectionInfo::default() },
                        )
                        .await;
                });
            }
        });
        let hosts = format!(
            "Host {NODE}\n HostName {}\n Port {}\n HostKeyAlias {NODE}\n",
            address.ip(),
            address.port()
        );
        let config = openssh_config(&cluster, &user, &hosts);
        Self { cluster, sshd, server, known, sink, address, config, recipient }
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg("-F").arg(&self.config).env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
        command
    }

    pub(crate) async fn run(&self, mut command: Command) -> Output {
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    pub(crate) async fn ssh(&self, arguments: &[&str]) -> Output {
        let mut command = self.program("ssh");
        command.arg(arguments[0]).args(&arguments[1..]);
        self.run(command).await
    }

    /// Locks alice out.
    pub(crate) fn lock(&self) {
        let lock =
            "kind: lock\nversion: v1\nmetadata: {name: l}\nspec: {target: {user: alice}, message: enough}\n";
        *self.known.locks.lock() = Arc::from([Lock::parse(lock).unwrap()]);
        self.known.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.cluster.directory.path().join(name)
    }

    /// What the only recording holds.
    async fn recording(&self) -> Vec<Frame> {
        self.event("session.end", |_| true).await;
        let files: Vec<_> = fs::read_dir(self.path("recordings")).unwrap().map(|one| one.unwrap()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let mut reader = Reader::open(fs::File::open(files[0].path()).unwrap(), &self.recipient).unwrap();
        let frames = std::iter::from_fn(|| reader.next_frame().unwrap()).collect();
        assert!(reader.is_complete(), "{:?}", reader.damage());
        frames
    }

    pub(crate) async fn event(&self, kind: &str, matches: impl Fn(&Event) -> bool) -> Event {
        let began = std::time::Instant::now();
        loop {
            let found = self.sink.events().into_iter().find(|event| event.kind == kind && matches(event));
            if let Some(event) = found {
                return event;
            }
            let waited = began.elapsed();
            assert!(waited < Duration::from_secs(60), "no {kind}: {:?}", self.sink.events());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn ok(output: Output) -> Output {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// OpenSSH's ssh-agent, ended when dropped.
pub(crate) struct Agent {
    child: std::process::Child,
    pub(crate) socket: PathBuf,
}

impl Agent {
    pub(crate) fn start(world: &World, name: &str) -> Self {
        let socket = world.path(name);
        let child =
            Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        let began = std::time::Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "ssh-agent did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket }
    }

    /// With the certificate beside the key.
    pub(crate) fn add(&self, key: &Path) {
        let added = Command::new("ssh-add").arg(key).env("SSH_AUTH_SOCK", &self.socket).output().unwrap();
        assert!(added.status.success(), "{}", text(&added.stderr));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_there_and_are_recorded_here() {
    let world = World::new("").await;
    let output = ok(world.ssh(&[NODE, "echo out; echo err >&2"]).await);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(world.ssh(&[NODE, "exit 42"]).await.status.code(), Some(42));
    assert_eq!(world.ssh(&[NODE, "kill -TERM $$"]).await.status.code(), Some(255));
    let output = ok(world.ssh(&["-tt", NODE, "tty; stty size"]).await);
    assert!(text(&output.stdout).contains("/dev/pts/"), "{}", text(&output.stdout));
    world.event("session.exec", |event| event.fields["command"] == "exit 42" && event.user == "alice").await;
    let end = world.event("session.end", |event| event.fields.get("exit_status") == Some(&42.into())).await;
    assert_eq!(end.node, NODE);
    let recordings = fs::read_dir(world.path("recordings")).unwrap().count();
    assert!(recordings >= 4, "{recordings}");

    // Input of any size arrives whole, and so does what comes back.
    let sample = world.path("sample");
    fs::write(&sample, noise(24 << 20)).unwrap();
    let mut command = world.program("ssh");
    command.args([NODE, "sha256sum; head -c 20000000 /dev/zero"]).stdin(fs::File::open(&sample).unwrap());
    let output = ok(world.run(command).await);
    let own = Command::new("sha256sum").arg(&sample).output().unwrap();
    assert_eq!(output.stdout[..64], own.stdout[..64]);
    let zeros = output.stdout.iter().filter(|byte| **byte == 0).count();
    assert_eq!(zeros, 20_000_000);
    let mut command = world.program("ssh");
    command.args([NODE, "cat"]).stdin(fs::File::open(&sample).unwrap());
    assert!(ok(world.run(command).await).stdout == fs::read(&sample).unwrap(), "cat gives back what it got");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_travel_and_every_operation_is_on_record() {
    let world = World::new("").await;
    let (sample, there, back) = (world.path("sample"), world.path("there"), world.path("back"));
    fs::write(&sample, noise(3 << 20)).unwrap();
    let remote = |path: &Path| format!("{NODE}:{}", path.display());
    let mut command = world.program("scp");
    command.arg(&sample).arg(remote(&there));
    ok(world.run(command).await);
    let mut command = world.program("scp");
    command.arg(remote(&there)).arg(&back);
    ok(world.run(command).await);
    assert!(fs::read(&back).unwrap() == fs::read(&sample).unwrap());
    let at = there.display().to_string();
    let closed = |event: &Event, field: &str| {
        event.fields.get("operation") == Some(&"close".into())
            && event.fields.get("path") == Some(&at.as_str().into())
            && event.fields.get(field) == Some(&(3u64 << 20).into())
    };
    world.event("session.sftp", |event| closed(event, "bytes_written")).await;
    world.event("session.sftp", |event| closed(event, "bytes_read")).await;

    let shell = format!("ssh -F {}", world.config.display());
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "-e", &shell]).arg(&sample).arg(remote(&world.path("synced"))).stdin(Stdio::null());
    ok(world.run(rsync).await);
    assert!(fs::read(world.path("synced")).unwrap() == fs::read(&sample).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_on_record_here_where_a_role_says_so() {
    const WARNING: &str = "sallyport: what you type or send in this session is recorded";
    for (options, recorded) in [("record_input: full", true), ("", false)] {
        let world = World::new(options).await;
        let given = world.path("given");
        fs::write(&given, "echo one\n#secret\n").unwrap();
        let mut command = world.program("ssh");
        command.args([NODE, "sh"]).stdin(fs::File::open(&given).unwrap());
        let output = ok(world.run(command).await);
        assert_eq!(text(&output.stdout), "one\n", "{options:?}");
        assert_eq!(text(&output.stderr).starts_with(WARNING), recorded, "{}", text(&output.stderr));
        let input = world.recording().await.into_iter().filter_map(|frame| match frame.body {
            Body::Input(bytes) => Some(text(&bytes)),
            _ => None,
        });
        let input: String = input.collect();
        assert_eq!(input, if recorded { "echo one\n#secret\n" } else { "" }, "{options:?}");
        world.event("session.end", |end| end.fields.get("input_bytes") == Some(&17.into())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_the_agent_are_forwarded_where_a_role_allows_it() {
    let world = World::new("forward_agent: true").await;
    let answering = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = answering.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = answering.accept().unwrap();
        stream.write_all(b"through\n").unwrap();
    });
    let output = ok(world.ssh(&["-W", &format!("127.0.0.1:{port}"), NODE]).await);
    assert_eq!(text(&output.stdout), "through\n");
    world
        .event("session.port_forward", |event| {
            event
                .fields
                .get("target")
                .is_some_and(|target| target.as_str() == Some(&format!("127.0.0.1:{port}")))
        })
        .await;

    // The other way round: the server listens, and what connects there comes out here.
    let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, far) = (here.local_addr().unwrap().port(), crate::openssh::rig::free_address().port());
    std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = here.accept().unwrap();
        stream.write_all(b"back\n").unwrap();
    });
    let forward = format!("{far}:127.0.0.1:{port}");
    let read = format!("exec 3<>/dev/tcp/127.0.0.1/{far}; head -1 <&3");
    let output = ok(world
        .ssh(&["-o", "ExitOnForwardFailure=yes", "-R", &forward, NODE, &format!("bash -c '{read}'")])
        .await);
    assert_eq!(text(&output.stdout), "back\n");

    let agent = Agent::start(&world, "agent");
    agent.add(&world.path("id"));
    let mut command = world.program("ssh");
    command.args(["-A", NODE, "ssh-add -l"]).env("SSH_AUTH_SOCK", &agent.socket);
    let listed = world.run(command).await;
    assert!(text(&listed.stdout).contains("SHA256:"), "{}{}", text(&listed.stdout), text(&listed.stderr));
    world.event("session.agent_forward", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_role_forbids_does_not_get_there() {
    let world = World::new("ssh_file_copy: false, port_forwarding: false").await;
    let mut command = world.program("scp");
    command.arg("/etc/hostname").arg(format!("{NODE}:{}", world.path("never").display()));
    let refused = world.run(command).await;
    assert!(text(&refused.stderr).contains("do not allow file copies"), "{}", text(&refused.stderr));
    assert!(!world.path("never").exists());
    let refused = world.ssh(&["-W", "127.0.0.1:1", NODE]).await;
    assert!(!refused.status.success());
    let refused = world.ssh(&["-l", "somebody-else", NODE, "true"]).await;
    assert!(text(&refused.stderr).contains("sallyport: "), "{}", text(&refused.stderr));
    world.event("session.refused", |event| event.login == "somebody-else").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_and_the_end_of_the_server_end_sessions_with_words() {
    let world = World::new("").await;
    let mut command = world.program("ssh");
    command.args([NODE, "sleep 60"]);
    let locked = async {
        world.event("session.exec", |_| true).await;
        world.lock();
    };
    let (output, ()) = tokio::join!(world.run(command), locked);
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("enough"), "{}", text(&output.stderr));

    let world = World::new("").await;
    let (mut command, runs) = (world.program("ssh"), world.path("runs"));
    command.args([NODE, &format!("touch {}; sleep 60", runs.display())]);
    let killed = async {
        world.event("session.exec", |_| true).await;
        until("the command", || runs.exists().then_some(())).await;
        world.sshd.kill_connections();
    };
    let (output, ()) = tokio::join!(world.run(command), killed);
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("was lost"), "{}", text(&output.stderr));
    assert_ne!(world.address.port(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_must_prove_itself() {
    let plain = SshdOptions { plain: true, ..SshdOptions::default() };
    let world = World::with("", &plain, |_| {}).await;
    let refused = world.ssh(&[NODE, "true"]).await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(text(&refused.stderr).contains("plain host key"), "{}", text(&refused.stderr));

    // A pinned key is believed; another one is not.
    let seen = text(&refused.stderr);
    let world = World::with("", &plain, |behind| {
        let scanned = Command::new("ssh-keyscan")
            .args(["-t", "ed25519", "-p", &behind.address.port().to_string(), "127.0.0.1"])
            .output()
            .unwrap();
        let line = text(&scanned.stdout);
        let line = line.lines().find(|line| line.contains("ssh-ed25519")).expect(&seen);
        behind.proof.pinned = line.split_once(' ').map(|(_, key)| key.to_owned());
    })
    .await;
    ok(world.ssh(&[NODE, "true"]).await);
    let world = World::with("", &plain, |behind| {
        let other = SshKeyPair::generate(sallyport_sal::Suite::BalancedV1, "x").unwrap();
        behind.proof.pinned = Some(other.public_line().to_owned());
    })
    .await;
    let refused = world.ssh(&[NODE, "true"]).await;
    assert!(text(&refused.stderr).contains("plain host key"), "{}", text(&refused.stderr));
    let world =
        World::with("", &SshdOptions::default(), |behind| "other".clone_into(&mut behind.proof.name)).await;
    let refused = world.ssh(&[NODE, "true"]).await;
    assert!(text(&refused.stderr).contains("did not prove"), "{}", text(&refused.stderr));
}
