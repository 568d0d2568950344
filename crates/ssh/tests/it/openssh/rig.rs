//! A cluster's authorities, and a real sshd that trusts them.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_access::{HostRole, Identity, Login, Principal, Traits, UserName};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{
    Authority, CaKind, HostRequest, SshOptions, Trust, issue_host, issue_user, known_hosts_lines,
    trusted_user_ca_lines,
};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::{KeyPurpose, Suite};
use sallyport_ssh::client::{
    ClientError, Connection, Credentials, Exit, Limits, Output, Program, Session, SessionRequest, Settings,
    connect, connect_by_layer,
};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::world::{clients_by_layer, stands_still};

/// The name that nodes of these tests have.
pub(crate) const NODE: &str = "web-1";

/// A cluster: two CAs and what follows from them.
pub(crate) struct Cluster {
    suite: Suite,
    pub(crate) directory: TempDir,
    pub(crate) trust: Arc<Trust>,
    user_ca: Authority,
    host_ca: Authority,
}

/// A key and a certificate, as texts.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) private: String,
    pub(crate) certificate: String,
}

impl Pair {
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::from_openssh(&self.private, &self.certificate).unwrap()
    }
}

pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The account that runs these tests: sshd lets it log in without a password database.
pub(crate) fn account() -> String {
    nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with_suite(Suite::BalancedV1)
    }

    pub(crate) fn with_suite(suite: Suite) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sealing = SealingKey::create(&directory.path().join("sealing.key")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        let name = "example.com".parse().unwrap();
        let make = |kind| Authority::generate(kind, &name, &custody, suite, now()).unwrap();
        let (user_ca, host_ca) = (make(CaKind::User), make(CaKind::Host));
        let mut bundle = Trust::from_authorities(&[&user_ca, &host_ca], None).unwrap().to_bundle();
        suite.name().clone_into(&mut bundle.suite);
        let trust = Arc::new(Trust::from_bundle(&bundle).unwrap());
        Self { suite, directory, trust, user_ca, host_ca }
    }

    /// A user's key and certificate, valid for an hour from `from`.
    pub(crate) fn user_from(&self, name: &str, logins: &[&str], from: OffsetDateTime) -> Pair {
        let key = SshKeyPair::generate(self.suite, name).unwrap();
        let certificate = self.certify(name, logins, from, key.public_line());
        Pair { private: key.private_openssh().to_string(), certificate }
    }

    /// A user's key and certificate, which count from one address.
    pub(crate) fn pinned(&self, address: IpAddr) -> Pair {
        let key = SshKeyPair::generate(self.suite, "alice").unwrap();
        let certificate = self.certify_at("alice", &[&account()], now(), key.public_line(), Some(address));
        Pair { private: key.private_openssh().to_string(), certificate }
    }

    /// A user's certificate over a key, valid for an hour from `from`.
    pub(crate) fn certify(
        &self,
        name: &str,
        logins: &[&str],
        from: OffsetDateTime,
        public_line: &str,
    ) -> String {
        self.certify_at(name, logins, from, public_line, None)
    }

    fn certify_at(
        &self,
        name: &str,
        logins: &[&str],
        from: OffsetDateTime,
        public_line: &str,
        pinned_to: Option<IpAddr>,
    ) -> String {
        let identity = Identity {
            principal: Principal::User {
                name: UserName::new(name).unwrap(),
                roles: vec!["access".parse().unwrap()],
                logins: logins.iter().map(|login| Login::new(*login).unwrap()).collect(),
                traits: Traits::new(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to,
            valid_after: from,
            valid_before: from,
        };
        let options = SshOptions { agent_forwarding: true, x11_forwarding: true, ..SshOptions::default() };
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let issued = issue_user(
            &self.user_ca,
            &identity,
            public_line,
            tls.spki_der(),
            from,
            time::Duration::hours(1),
            &options,
        )
        .unwrap();
        issued.ssh
    }

    pub(crate) fn user(&self) -> Pair {
        self.user_from("alice", &[&account()], now())
    }

    /// A host's key and certificate, valid for an hour from `from`.
    pub(crate) fn host_from(&self, name: &str, role: HostRole, from: OffsetDateTime) -> Pair {
        let key = SshKeyPair::generate_for(self.suite, KeyPurpose::HostSsh, name).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let issued = issue_host(
            &self.host_ca,
            &HostRequest {
                id: Uuid::new_v4().to_string().parse().unwrap(),
                name: &name.parse().unwrap(),
                role,
                join_id: Uuid::new_v4(),
                public_names: &[],
                ssh_public_key: key.public_line(),
                tls_spki: tls.spki_der(),
            },
            from,
            time::Duration::hours(1),
        )
        .unwrap();
        Pair { private: key.private_openssh().to_string(), certificate: issued.ssh }
    }

    pub(crate) fn host(&self, name: &str, role: HostRole) -> Pair {
        self.host_from(name, role, now())
    }

    /// A file in the cluster's directory, private to its owner.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn known_hosts(&self, patterns: &[&str]) -> String {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        known_hosts_lines(&self.trust, &patterns)
    }
}

/// A running sshd, stopped when dropped.
pub(crate) struct Sshd {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: TempDir,
}

/// What is out of the ordinary about an sshd.
#[derive(Default)]
pub(crate) struct SshdOptions {
    /// No host certificate, only a key.
    pub(crate) plain: bool,
    /// It serves no files.
    pub(crate) no_files: bool,
    /// Lines for its configuration.
    pub(crate) extra: &'static str,
}

fn executable(name: &str, package: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    places
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is not installed; install it: apt-get install -y {package}"))
}

pub(crate) fn ssh_program(name: &str) -> PathBuf {
    executable(name, "openssh-client")
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Sshd {
    /// Starts one that trusts `cluster` for users and shows `host`.
    pub(crate) fn start(cluster: &Cluster, host: &Pair, options: &SshdOptions) -> Self {
        let sshd = executable("sshd", "openssh-server");
        if nix::unistd::getuid().is_root() {
            // sshd confines itself to this directory; its package makes it when the service starts.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path.display().to_string()
        };
        let key = file("host_key", &host.private);
        let certificate = file("host_key-cert.pub", &host.certificate);
        let users = file("user_ca", &trusted_user_ca_lines(&cluster.trust));
        let shown = if options.plain { String::new() } else { format!("HostCertificate {certificate}\n") };
        let files = if options.no_files { "" } else { "Subsystem sftp internal-sftp\n" };
        let started = Instant::now();
        loop {
            let address = free_address();
            let text = format!(
                "ListenAddress {}\nPort {}\nHostKey {key}\n{shown}TrustedUserCAKeys {users}\nAuthorizedKeysFile none\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\n\
                 PermitRootLogin yes\nAcceptEnv GREETING\n{files}{}\nMaxSessions 64\n",
                address.ip(),
                address.port(),
                options.extra,
            );
            let config = file("sshd_config", &text);
            let log = directory.path().join("log");
            let mut child = Command::new(&sshd)
                .args(["-D", "-e", "-f", &config])
                .stdin(Stdio::null())
                .stderr(fs::File::create(&log).unwrap())
                .spawn()
                .unwrap();
            let listening = format!("Server listening on {} port {}.", address.ip(), address.port());
            // Another sshd may answer at the port: what was free may have been taken since.
            let said = loop {
                let said = fs::read_to_string(&log).unwrap();
                if said.contains(&listening) {
                    return Self { child, address, directory };
                }
                assert!(started.elapsed() < Duration::from_secs(60), "sshd did not start: {said}");
                if child.try_wait().unwrap().is_some() {
                    break fs::read_to_string(&log).unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            assert!(said.contains("in use"), "sshd did not start: {said}");
        }
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends the processes that serve connections, as a crash of the machine would.
    pub(crate) fn kill_connections(&self) {
        let parent = self.child.id().to_string();
        let killed = Command::new("pkill").args(["-KILL", "-P", &parent]).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn settings(cluster: &Cluster) -> Settings {
    Settings {
        login: account(),
        host: NODE.to_owned(),
        trust: Arc::clone(&cluster.trust),
        keepalive: Some(Duration::from_secs(15)),
        agent: None,
    }
}

/// An authenticated connection to an sshd.
pub(crate) async fn connected(
    sshd: &Sshd,
    user: &Pair,
    settings: Settings,
) -> Result<Connection, ClientError> {
    let stream = TcpStream::connect(sshd.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    if clients_by_layer() {
        return connect_by_layer(stream, &user.credentials(), settings, Limits::default()).await;
    }
    connect(stream, &user.credentials(), settings).await
}

/// A cluster, its user, a node that runs sshd, and a connection to it.
pub(crate) async fn ready() -> (Cluster, Sshd, Connection) {
    let cluster = Cluster::new();
    let sshd = Sshd::start(&cluster, &cluster.host(NODE, HostRole::Node), &SshdOptions::default());
    let connection = connected(&sshd, &cluster.user(), settings(&cluster)).await.unwrap();
    (cluster, sshd, connection)
}

/// Everything that comes out of a session.
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit: Exit,
}

pub(crate) async fn run(connection: &Connection, request: SessionRequest) -> Ran {
    let mut session = connection.start(request).await.unwrap();
    session.input().eof().await.unwrap();
    let mut ran = Ran { stdout: Vec::new(), stderr: Vec::new(), exit: Exit::Unknown };
    while let Some(output) = session.next().await {
        match output {
            Output::Stdout(data) => ran.stdout.extend_from_slice(&data),
            Output::Stderr(data) => ran.stderr.extend_from_slice(&data),
            Output::Exit(exit) => ran.exit = exit,
            _ => {}
        }
    }
    ran
}

/// A shell reads its commands from standard input.
pub(crate) async fn talk_to_a_shell(connection: &Connection) {
    let session = connection.start(SessionRequest::new(Program::Shell)).await.unwrap();
    let (input, mut output) = session.split();
    input.data(&b"echo from the shell; exit 5\n"[..]).await.unwrap();
    let mut out = Vec::new();
    let exit = loop {
        match output.next().await.unwrap() {
            Output::Stdout(data) => out.extend_from_slice(&data),
            Output::Exit(exit) => break exit,
            _ => {}
        }
    };
    assert!(String::from_utf8_lossy(&out).contains("from the shell"));
    assert_eq!(exit, Exit::Status(5));
}

/// A session that writes 256 MiB to a client that reads none, and how many bytes it got rid of before it stood
/// still; with the file where it counts.
pub(crate) async fn written_to_nobody(connection: &Connection) -> (Session, u64, tempfile::NamedTempFile) {
    // The host counts what it could write, into a file that another session reads.
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let command =
        format!("i=0; while [ $i -lt 4096 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > {path}; done");
    let session = connection.start(SessionRequest::exec(command)).await.unwrap();
    let written = || std::fs::read_to_string(&path).unwrap().trim().parse::<u64>().unwrap_or(0) * 65536;
    let last = stands_still("the host to stand still", written).await;
    (session, last, file)
}

/// Bytes that do not compress and differ everywhere.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Configuration of stock OpenSSH with a user's certificate. `hosts` are its blocks for hosts.
pub(crate) fn openssh_config(cluster: &Cluster, user: &Pair, hosts: &str) -> PathBuf {
    let key = cluster.file("id", &user.private);
    let certificate = cluster.file("id-cert.pub", &user.certificate);
    let known_hosts = cluster.file("known_hosts", &cluster.known_hosts(&["*"]));
    let text = format!(
        "{hosts}Host *\n IdentityFile {}\n CertificateFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
         GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n BatchMode yes\n \
         PasswordAuthentication no\n User {}\n",
        key.display(),
        certificate.display(),
        known_hosts.display(),
        account(),
    );
    cluster.file("ssh_config", &text)
}

/// Sends `sent` through `cat`.
pub(crate) async fn there_and_back(connection: &Connection, sent: Vec<u8>) {
    let (input, mut output) = connection.start(SessionRequest::exec("cat")).await.unwrap().split();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        for chunk in sent.chunks(100_000) {
            input.data(chunk.to_vec()).await.unwrap();
        }
        input.eof().await.unwrap();
    });
    let mut received = Vec::new();
    while let Some(out) = output.next().await {
        match out {
            Output::Stdout(data) => received.extend_from_slice(&data),
            Output::Exit(exit) => assert_eq!(exit, Exit::Status(0)),
            _ => {}
        }
    }
    writer.await.unwrap();
    assert!(received == expected, "{} bytes came back of {}", received.len(), expected.len());
}
