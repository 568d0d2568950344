//! Testbeds: clusters in three processes, stock servers and databases, on loopback or in network namespaces; and fixtures for
//! tests alone. What is started here ends with the value that stands for it.

pub mod account;
pub mod authenticator;
mod cluster;
mod error;
pub mod fixtures;
pub mod floors;
mod name;
pub mod namespace;
mod parts;
pub mod postgres;
mod process;
mod programs;
mod site;
mod sshd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

pub use cluster::{CLUSTER, Cluster, NODE, Programs, Shape};
pub use error::{AtFile, TestbedError};
pub use name::Name;
pub use namespace::Namespace;
use postgres::Postgres;
pub use process::Process;
pub use programs::{missing, output, with_input, write_private};
pub use site::{Site, Sites, free_port};
pub use sshd::{CIPHER, KEY_EXCHANGE, Sshd};

/// The name that the stock server has in the configuration of `ssh`.
pub const DIRECT: &str = "direct.lab.invalid";

/// The name that the stock server has in the cluster, where it is registered.
pub const REGISTERED: &str = "lab-stock";

/// The name of the stock server beside the proxy, through which stock `ssh` may jump.
pub const BASTION: &str = "bastion.lab.invalid";

/// The variable that turns the helper daemon off.
const HELPER: &str = "SALLYPORT_CONNECT";

/// How stock `ssh` reaches its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshRoute {
    /// Straight to the stock server.
    Direct,
    /// To the stock server, through another one that stands where the proxy does: only where there is one.
    Bastion,
    /// Through the cluster with `ProxyCommand`, as `sallyport config` prints it: by the helper daemon.
    Helper,
    /// The same without the helper: each connection dials the proxy by itself.
    ProxyCommand,
    /// Through the cluster's SSH face, as `ssh -J` goes.
    Jump,
}

/// What there may be beside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// A stock server beside the proxy, to jump through.
    pub bastion: bool,
    /// The stock server beside the node is reached through the cluster, too.
    pub registered: bool,
    /// A database behind the node.
    pub postgres: Option<&'a Postgres>,
    /// More lines of the authority's section, indented.
    pub auth: &'a str,
}

/// Everything that was started; ends with this value.
#[derive(Debug)]
pub struct Testbed {
    /// The cluster, with its user logged in.
    pub cluster: Cluster,
    /// The stock server.
    pub sshd: Sshd,
    /// The stock server through which stock `ssh` jumps; only on a WAN.
    pub bastion: Option<Sshd>,
    /// The account that sessions run as.
    pub login: String,
    /// Its shell.
    pub shell: PathBuf,
    config: PathBuf,
    jump_config: PathBuf,
    bastion_config: PathBuf,
    // Last: the processes end before their files go.
    directory: TempDir,
}

impl Testbed {
    /// Starts everything. `program` is the `sallyport` that is measured; `say` gets a line for each step.
    ///
    /// # Errors
    /// [`TestbedError`]: what is missing, or did not start, and its last words.
    pub fn start(program: &Path, say: &dyn Fn(&str)) -> Result<Self, TestbedError> {
        Self::start_at(program, &Sites::default(), Extras::default(), say)
    }

    /// The same, somewhere, with more.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(
        program: &Path,
        sites: &Sites,
        extras: Extras<'_>,
        say: &dyn Fn(&str),
    ) -> Result<Self, TestbedError> {
        Self::start_of(&Programs::all(program), sites, extras, say)
    }

    /// The same of several programs.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_of(
        programs: &Programs,
        sites: &Sites,
        extras: Extras<'_>,
        say: &dyn Fn(&str),
    ) -> Result<Self, TestbedError> {
        let directory = tempfile::Builder::new()
            .prefix("sallyport-lab-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        let (login, shell) = account()?;
        say(&format!("starting an authority, a proxy and a node in {}", directory.path().display()));
        let mut shape = Shape { sites: sites.clone(), auth: extras.auth.to_owned(), ..Shape::default() };
        if let Some(postgres) = extras.postgres {
            shape = postgres.behind(shape);
        }
        let cluster = Cluster::start(programs, directory.path(), &login, &shape)?;
        say("starting a stock sshd that trusts the same user CA");
        let member = extras.registered.then_some(REGISTERED);
        let sshd = Sshd::start(directory.path(), &cluster, DIRECT, member, &sites.host)?;
        if let Some(postgres) = extras.postgres {
            postgres.trust_cluster(&cluster)?;
        }
        let bastion = extras
            .bastion
            .then(|| {
                let directory = directory.path().join("bastion");
                fs::create_dir(&directory).at("make", &directory)?;
                Sshd::start(&directory, &cluster, BASTION, None, &sites.proxy)
            })
            .transpose()?;
        let config = directory.path().join("ssh_config");
        let jump_config = directory.path().join("ssh_config_jump");
        let stock = algorithms() + &sshd.ssh_config(&cluster);
        for (path, arguments) in [(&config, &["config"][..]), (&jump_config, &["config", "--jump"])] {
            let mut command = cluster.client(arguments);
            let ours = sites.client.inside(|| output("sallyport config", &mut command))??;
            write_private(path, &(stock.clone() + &ours))?;
        }
        let bastion_config = directory.path().join("ssh_config_bastion");
        if let Some(bastion) = &bastion {
            let jump = format!("Host {DIRECT}\n    ProxyJump {login}@{BASTION}\n\n");
            write_private(&bastion_config, &(stock + &jump + &bastion.ssh_config(&cluster)))?;
        }
        Ok(Self { cluster, sshd, bastion, login, shell, config, jump_config, bastion_config, directory })
    }

    /// A directory for the files of a measurement.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stock `ssh`, one way or the other, up to and including the destination.
    #[must_use]
    pub fn ssh(&self, route: SshRoute) -> Command {
        let mut command = self.openssh("ssh", route);
        command.arg(self.destination(route));
        command
    }

    /// Stock `ssh` or `scp` with the configuration for one way.
    #[must_use]
    pub fn openssh(&self, program: &str, route: SshRoute) -> Command {
        let mut command = Command::new(program);
        command
            .arg("-F")
            .arg(match route {
                SshRoute::Jump => &self.jump_config,
                SshRoute::Bastion => &self.bastion_config,
                SshRoute::Direct | SshRoute::Helper | SshRoute::ProxyCommand => &self.config,
            })
            .args(["-o", "BatchMode=yes"])
            .env_remove("SSH_AUTH_SOCK")
            .stdin(Stdio::null());
        if route != SshRoute::Helper {
            command.env(HELPER, "off");
        }
        command
    }

    /// `LOGIN@HOST`.
    #[must_use]
    pub fn destination(&self, route: SshRoute) -> String {
        match route {
            SshRoute::Direct | SshRoute::Bastion => format!("{}@{DIRECT}", self.login),
            SshRoute::Helper | SshRoute::ProxyCommand | SshRoute::Jump => {
                format!("{}@{NODE}.{CLUSTER}", self.login)
            }
        }
    }

    /// The cluster's own client, up to and including the destination; by the helper daemon or not.
    #[must_use]
    pub fn own_ssh(&self, by_helper: bool) -> Command {
        self.own_ssh_to(NODE, by_helper)
    }

    /// The same to another host of the cluster: [`REGISTERED`].
    #[must_use]
    pub fn own_ssh_to(&self, host: &str, by_helper: bool) -> Command {
        let mut command = self.cluster.client(&["ssh", &format!("{}@{host}", self.login)]);
        if !by_helper {
            command.env(HELPER, "off");
        }
        command
    }

    /// `psql` through the cluster, with these arguments; by the helper daemon or not.
    #[must_use]
    pub fn psql(&self, postgres: &Postgres, by_helper: bool, arguments: &[&str]) -> Command {
        let program = postgres.program("psql");
        let user = postgres::USER;
        let mut command =
            self.cluster.client(&["db", "connect", postgres::DATABASE, "-u", user, "-n", user, "--psql"]);
        command.arg(program.get_program()).arg("--").args(arguments);
        if !by_helper {
            command.env(HELPER, "off");
        }
        command
    }

    /// What is held the same on both sides, in words.
    #[must_use]
    pub fn conditions(&self) -> Vec<String> {
        vec![
            format!(
                "stock ssh, all ways: {KEY_EXCHANGE}, {CIPHER}, the same user certificate; host certificates of one CA"
            ),
            "own client: mlkem768x25519-sha256, which costs more, and the same cipher; it is not weakened to match"
                .to_owned(),
            "every session through the cluster is recorded and audited; nothing is on the direct way".to_owned(),
        ]
    }
}

/// What goes before everything else in the configuration of `ssh`.
fn algorithms() -> String {
    format!(
        "Host *\n    KexAlgorithms {KEY_EXCHANGE}\n    Ciphers {CIPHER}\n    Compression no\n    ControlMaster no\n    \
         UpdateHostKeys no\n    LogLevel ERROR\n\n"
    )
}

/// Who runs the lab, and so whom its sessions run as; and the shell.
pub fn account() -> Result<(String, PathBuf), TestbedError> {
    let failed = |said: String| TestbedError::Failed { what: "finding out who runs this".to_owned(), said };
    let user =
        nix::unistd::User::from_uid(nix::unistd::geteuid()).map_err(|error| failed(error.to_string()))?;
    let user = user.ok_or_else(|| failed("the account has no name".to_owned()))?;
    Ok((user.name, user.shell))
}
