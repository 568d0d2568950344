//! What one process runs, section by section.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::{ClusterName, Database, Labels, Listed, NodeName};
use sallyport_ca::Lifetimes;
use sallyport_sal::Suite;

use super::audit::AuditSection;
use super::authentication::AuthenticationSection;
use super::ca_keys::CaKeysSection;
use super::crypto::CryptoSection;
use super::danger::Danger;
use super::host_port::HostPort;
use super::log::LogConfig;
use super::telemetry::TelemetrySection;

/// The port that a proxy listens on unless told otherwise.
pub const DEFAULT_PROXY_PORT: u16 = 3080;
/// The port that an authority without a proxy in its process listens on unless told otherwise.
pub const DEFAULT_AUTH_PORT: u16 = 3025;

/// A value that no message, log or `Debug` shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that uses it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Whether a second factor is asked for at login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecondFactor {
    /// Users who have enrolled one are asked for it.
    Optional,
    /// Every user must enrol one.
    #[default]
    Required,
}

impl SecondFactor {
    /// The name in files and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// The authority service.
#[derive(Debug, Clone)]
pub struct AuthSection {
    /// Default required.
    pub second_factor: SecondFactor,
    /// Own address for proxies in other processes. Unset: none when a proxy runs in this process, else port 3025 on
    /// every address.
    pub listen: Option<SocketAddr>,
    /// Address that invite links and `status` name, when no proxy runs in this process.
    pub public_addr: Option<HostPort>,
    /// The suite of a new cluster. Unset: `balanced-v1`, `hsm-v1` where CA keys are made in a token, `fips-v1` in FIPS
    /// mode. A cluster that is there keeps its suite: `sallyport admin suite set` changes it.
    pub suite: Option<Suite>,
    /// Where CA keys are made.
    pub ca_keys: CaKeysSection,
    /// How long what is issued may live. Default: the table in docs/certificates.md.
    pub lifetimes: Lifetimes,
    /// Bounds of the audit log, and where its checkpoints go.
    pub audit: AuditSection,
    /// How people prove who they are. Default: by passwords.
    pub authentication: AuthenticationSection,
    /// How long an answer may wait for a caller who takes nothing of it, before the connection is closed. Default 30 s,
    /// which no file changes; shorter in tests.
    pub answer_patience: Duration,
}

impl Default for AuthSection {
    fn default() -> Self {
        Self {
            second_factor: SecondFactor::Required,
            listen: None,
            public_addr: None,
            suite: None,
            ca_keys: CaKeysSection::default(),
            lifetimes: Lifetimes::default(),
            audit: AuditSection::default(),
            authentication: AuthenticationSection::default(),
            answer_patience: Duration::from_secs(30),
        }
    }
}

/// How a proxy or node proves itself to a cluster for the first time.
#[derive(Debug, Clone, Default)]
pub struct JoinConfig {
    /// One-time token, here or in a file.
    pub token: Option<Secret>,
    /// File whose content is the token; read when it is needed.
    pub token_file: Option<PathBuf>,
    /// `sha256:` and 64 hexadecimal digits: which host CA to believe at first contact.
    pub ca_pin: Option<String>,
}

/// Bounds of the one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections in all, 1 to 1,000,000. Default 20,000.
    pub connections: usize,
    /// Open connections of one address (IPv6: one /64) whose clients have not proven who they are, 1 to 1,000,000.
    /// Default 1,000.
    pub connections_per_address: usize,
    /// Open connections of one user through this proxy, from wherever they come, 1 to 1,000,000. Default 250.
    pub connections_per_user: usize,
    /// From accept to the end of the handshake, 100 ms to 5 m. Default 15 s.
    pub handshake_timeout: Duration,
    /// Ways to nodes and databases of one user through this proxy at a time, 1 to 1,000,000. One connection may have many.
    /// Default 200.
    pub sessions_per_user: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_address: 1_000,
            connections_per_user: 250,
            handshake_timeout: Duration::from_secs(15),
            sessions_per_user: 200,
        }
    }
}

/// The proxy service.
#[derive(Debug, Clone)]
pub struct ProxySection {
    /// The one address. Default port 3080 on every address. Port 0 picks a free one (tests).
    pub listen: SocketAddr,
    /// What users and agents dial; the first is shown to people. Empty: the bound address, or this machine's name
    /// when every address is bound.
    pub public_addr: Vec<HostPort>,
    /// Whether clients may come by QUIC, too, on the same port number by UDP. Default true; what stands in its way is
    /// logged, and all clients come by TCP.
    pub quic: bool,
    /// Bounds of the listener, for both together.
    pub limits: Limits,
    /// The authority, when it runs in another process.
    pub auth_server: Option<HostPort>,
    /// For the first contact with `auth_server`.
    pub join: JoinConfig,
    /// A certificate that browsers and other programs trust, for the pages of the public address. Unset: the proxy's own
    /// certificate, or one that signs itself where others cannot read that.
    pub https: Option<HttpsFiles>,
    /// What is done against its interest. Default: nothing.
    pub danger: Danger,
}

/// A certificate from elsewhere. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsFiles {
    /// PEM, the leaf first.
    pub certificate: PathBuf,
    /// PEM; of mode 0600 or stricter.
    pub key: PathBuf,
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PROXY_PORT),
            public_addr: Vec::new(),
            quic: true,
            limits: Limits::default(),
            auth_server: None,
            join: JoinConfig::default(),
            https: None,
            danger: Danger::default(),
        }
    }
}

/// A command whose output is a label. It runs as the account of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelCommand {
    /// The label's key.
    pub name: String,
    /// Program and arguments; no shell takes part.
    pub command: Vec<String>,
    /// From one run to the next, 1 s to 30 days. Default 10 minutes.
    pub period: Duration,
    /// How long a run may take, 100 ms to 5 minutes. Default 10 s.
    pub timeout: Duration,
}

/// What carries an agent's tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TunnelCarrier {
    /// TLS on TCP, which costs less for each byte, and whose end the system tells when the agent is killed.
    #[default]
    Tcp,
    /// QUIC where the proxy is far and UDP comes through: the tunnel lives on when the machine changes its address.
    Auto,
    /// QUIC or nothing.
    Quic,
}

/// The node service: an agent that serves SSH on this machine through the proxy.
#[derive(Debug, Clone)]
pub struct NodeSection {
    /// What people type. Default: the machine's host name.
    pub name: Option<NodeName>,
    /// What roles select by.
    pub labels: Labels,
    /// Further labels, from the output of commands. Default: none.
    pub commands: Vec<LabelCommand>,
    /// The proxy's public address. Unset: the proxy in this process.
    pub proxy_server: Option<HostPort>,
    /// What carries the tunnel to the proxy. Default TCP.
    pub carrier: TunnelCarrier,
    /// For the first contact.
    pub join: JoinConfig,
    /// Environment variables that clients may set; `*` at the end matches the rest. Default `LANG`, `LC_*`.
    pub allow_env: Vec<String>,
    /// Let clients of `ssh -R` say on which addresses the node listens for them. Default: loopback only.
    pub gateway_ports: bool,
    /// Serve our own clients by the native protocol, too. Default: yes.
    pub native_door: bool,
    /// Begin what a client asks with its first bytes, when it has a ticket, before it has answered. Default: yes.
    pub early_data: bool,
    /// Enter sessions with a terminal into utmp, wtmp and lastlog. Default: yes.
    pub login_records: bool,
    /// End what a session left running when it ends. Default: no.
    pub kill_orphans: bool,
    /// Ask PAM about the account of each connection, by this service. Default: PAM is not asked.
    pub pam_account: Option<String>,
    /// Refuse accounts whose password is locked (`!` in the shadow file), where PAM is not asked. Default: no.
    pub refuse_locked_accounts: bool,
    /// Open a PAM session around each session, by runuser(1). Default: no.
    pub pam_session: bool,
    /// Connect for clients (`ssh -L`) to the proxy's address and to what this process listens on. Default: yes.
    pub forwards_to_cluster: bool,
    /// Disk that recordings and events waiting for the authority may fill, in MiB, 16 to 1,048,576. Default 2,048.
    pub spool_limit_mib: usize,
    /// Databases that this agent serves, besides those that administrators name it for. Default: none.
    pub databases: Vec<Database>,
    /// What else this agent serves, of the kinds of the catalogue, each under the name for several of them. Default: nothing.
    pub resources: Vec<Listed>,
    /// Passwords for databases that take no certificate, in the format of libpq's password file. Default: none.
    pub pgpass: Option<PathBuf>,
    /// How often each resource that this agent serves is asked whether it answers, 1 s to 1 day. Default 1 min.
    pub check_interval: Duration,
    /// What is done against its interest. Default: nothing.
    pub danger: Danger,
    /// The program that is run as `PROGRAM __session ...` for each session; unset: this executable.
    pub helper: Option<PathBuf>,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            name: None,
            labels: Labels::default(),
            commands: Vec::new(),
            proxy_server: None,
            carrier: TunnelCarrier::default(),
            join: JoinConfig::default(),
            allow_env: vec!["LANG".to_owned(), "LC_*".to_owned()],
            gateway_ports: false,
            native_door: true,
            early_data: true,
            login_records: true,
            kill_orphans: false,
            pam_account: None,
            refuse_locked_accounts: false,
            pam_session: false,
            forwards_to_cluster: true,
            spool_limit_mib: 2_048,
            databases: Vec::new(),
            resources: Vec::new(),
            pgpass: None,
            check_interval: Duration::from_secs(60),
            danger: Danger::default(),
            helper: None,
        }
    }
}

/// What one process runs. `None` is a service that is off.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the installation.
    pub cluster: ClusterName,
    /// Where state lives. Default `/var/lib/sallyport`.
    pub data_dir: PathBuf,
    /// What is logged.
    pub log: LogConfig,
    /// `/healthz`, `/readyz` and `/metrics` in plain HTTP; unset: not served. Keep it on loopback or a private network.
    pub diag_addr: Option<SocketAddr>,
    /// How long a stopping process waits for its sessions, 0 to 24 h. Default 30 s.
    pub drain_timeout: Duration,
    /// Where cryptography comes from.
    pub crypto: CryptoSection,
    /// Which traces are kept, and where they go; unset: nothing is traced.
    pub telemetry: Option<TelemetrySection>,
    /// The authority service.
    pub auth: Option<AuthSection>,
    /// The proxy service.
    pub proxy: Option<ProxySection>,
    /// The node service.
    pub node: Option<NodeSection>,
}

impl Config {
    /// A configuration with every service off.
    #[must_use]
    pub fn new(cluster: ClusterName, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            cluster,
            data_dir: data_dir.into(),
            log: LogConfig::default(),
            diag_addr: None,
            drain_timeout: Duration::from_secs(30),
            crypto: CryptoSection::default(),
            telemetry: None,
            auth: None,
            proxy: None,
            node: None,
        }
    }
}

impl JoinConfig {
    /// Whether a token was given in either way.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }
}
