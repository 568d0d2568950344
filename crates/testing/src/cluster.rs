//! An authority, a proxy and a node, each in its own process, and a user who is logged in.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sallyport_sal::Suite;
use sallyport_sal::economy::LEDGER_VARIABLE;

use super::parts::{self, off};
use super::process::Process;
use super::programs::{output, with_input, write_private};
use super::site::{Site, Sites};
use crate::{AtFile, TestbedError};

/// The node's name.
pub const NODE: &str = "lab-node";

/// The cluster's name.
pub const CLUSTER: &str = "lab.test";

/// The one user.
const USER: &str = "lab";

/// Which program each part is, where they are not one.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The authority, and what administers it.
    pub authority: PathBuf,
    /// The proxy.
    pub proxy: PathBuf,
    /// The node.
    pub node: PathBuf,
    /// The user's commands, and the helper daemon that they start.
    pub client: PathBuf,
}

impl Programs {
    /// One for all.
    #[must_use]
    pub fn all(program: &Path) -> Self {
        let program = program.to_owned();
        Self { authority: program.clone(), proxy: program.clone(), node: program.clone(), client: program }
    }
}

/// What a cluster is beyond the ordinary.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// Its suite; none: what new clusters have.
    pub suite: Option<Suite>,
    /// More lines of the authority's section, indented.
    pub auth: String,
    /// More lines of the proxy's section, indented.
    pub proxy: String,
    /// More lines of the node's section, indented.
    pub node: String,
    /// More lines below `allow` of the user's role, indented.
    pub allow: String,
    /// Whether each process writes down which keys it makes.
    pub ledgers: bool,
    /// Where it stands.
    pub sites: Sites,
}

/// The running cluster.
#[derive(Debug)]
pub struct Cluster {
    // In the order in which they end.
    /// The node.
    pub node: Process,
    /// The proxy.
    pub proxy: Process,
    /// The authority.
    pub authority: Process,
    /// The proxy's port.
    pub port: u16,
    /// The authority's port, at which proxies reach it.
    pub authority_port: u16,
    sites: Sites,
    programs: Programs,
    directory: PathBuf,
    /// Of its host CA.
    pin: String,
}

impl Cluster {
    /// Starts authority, proxy and node, and logs the user `login` in.
    ///
    /// # Errors
    /// What did not start, and its last words.
    pub fn start(
        programs: &Programs,
        directory: &Path,
        login: &str,
        shape: &Shape,
    ) -> Result<Self, TestbedError> {
        let sites = &shape.sites;
        let (port, authority_port) = (sites.proxy.free_port()?, sites.proxy.free_port()?);
        let address = sites.proxy.address();
        let start = |name: &'static str, program: &Path, site: &Site, services: &str| {
            let config = directory.join(format!("{name}.yaml"));
            write_private(&config, &(parts::head(CLUSTER, &directory.join(name)) + services))?;
            let mut command = Command::new(program);
            command.args(["start", "-c"]).arg(config);
            if shape.ledgers {
                command.env(LEDGER_VARIABLE, directory.join(format!("{name}.keys")));
            }
            site.inside(|| Process::start(name, &mut command, directory))?
        };
        let suite = shape.suite.map(|suite| format!("  suite: {}\n", suite.name())).unwrap_or_default();
        let mut authority = start(
            "authority",
            &programs.authority,
            &sites.proxy,
            &format!(
                "auth:\n  enabled: true\n  second_factor: optional\n  listen: {address}:{authority_port}\n{suite}{}{}",
                shape.auth,
                off(&["proxy", "node"])
            ),
        )?;
        let admin =
            |arguments: &[&str]| parts::admin(&programs.authority, &directory.join("authority"), arguments);
        let status = authority.wait_until("the authority", || {
            output("sallyport admin status", &mut admin(&["status", "--format", "json"])).ok()
        })?;
        let pin =
            parts::host_pin(&status).ok_or_else(|| failed("reading the pin of the host CA", &status))?;
        let join = |role: &str| Ok::<_, TestbedError>(parts::join(&token(admin(&[]), role)?, &pin));
        // The default limits, but for those that one client on one address would run into.
        let limits = "  limits:\n    connections: 40000\n    connections_per_address: 40000\n    \
                      connections_per_user: 40000\n    sessions_per_user: 40000\n";
        let mut proxy = start(
            "proxy",
            &programs.proxy,
            &sites.proxy,
            &format!(
                "proxy:\n  enabled: true\n  listen: {address}:{port}\n  public_addr: {address}:{port}\n  \
                 auth_server: {address}:{authority_port}\n{limits}{}{}{}",
                join("proxy")?,
                shape.proxy,
                off(&["auth", "node"])
            ),
        )?;
        proxy.wait_until("the proxy", || sites.proxy.answers(port).then_some(()))?;
        let mut node = start(
            "node",
            &programs.node,
            &sites.host,
            &format!(
                "node:\n  enabled: true\n  name: {NODE}\n  labels:\n    env: lab\n  proxy_server: {address}:{port}\n{}{}{}",
                join("node")?,
                shape.node,
                off(&["auth", "proxy"])
            ),
        )?;
        node.wait_until("the node to be online", || {
            let said = output("ls", &mut admin(&["nodes", "ls", "--format", "json"])).ok()?;
            parts::is_online(&said, NODE).then_some(())
        })?;
        let cluster = Self {
            node,
            proxy,
            authority,
            port,
            authority_port,
            sites: sites.clone(),
            programs: programs.clone(),
            directory: directory.to_owned(),
            pin,
        };
        cluster.log_in(login, shape)?;
        Ok(cluster)
    }

    /// `sallyport admin`, through the authority's socket.
    #[must_use]
    pub fn admin(&self, arguments: &[&str]) -> Command {
        parts::admin(&self.programs.authority, &self.directory.join("authority"), arguments)
    }

    /// The authority's data directory, with its socket.
    #[must_use]
    pub fn authority_directory(&self) -> PathBuf {
        self.directory.join("authority")
    }

    /// The pin of its host CA.
    #[must_use]
    pub fn pin(&self) -> &str {
        &self.pin
    }

    /// `sallyport join openssh`, up to what it is about.
    pub fn join_openssh(&self) -> Result<Command, TestbedError> {
        let token = token(self.admin(&[]), "openssh")?;
        let mut command = Command::new(&self.programs.client);
        command.args([
            "join",
            "openssh",
            "--proxy",
            &self.address(),
            "--token",
            &token,
            "--ca-pin",
            &self.pin,
        ]);
        Ok(command)
    }

    /// Where the proxy is: `ADDRESS:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.sites.proxy.address(), self.port)
    }

    /// Where it stands.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// `sallyport` as the user, to be run where the client stands.
    #[must_use]
    pub fn client(&self, arguments: &[&str]) -> Command {
        parts::client(&self.programs.client, &self.home(), &self.address(), arguments)
    }

    /// The same as another user, or with another login, of this directory.
    #[must_use]
    pub fn client_of(&self, home: &Path, arguments: &[&str]) -> Command {
        parts::client(&self.programs.client, home, &self.address(), arguments)
    }

    /// Ends the helper daemon, which clients have started on demand.
    fn stop_helper(&self) {
        let mut stop = self.client(&["connect", "--stop"]);
        let _ = stop.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }

    /// Where the user's profile is.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Where the user's keys and certificates are.
    #[must_use]
    pub fn profile(&self) -> PathBuf {
        self.home().join(self.address().replace(':', "_"))
    }

    /// Where a process wrote down which keys it made: `authority`, `proxy` or `node`.
    #[must_use]
    pub fn ledger(&self, process: &str) -> PathBuf {
        self.directory.join(format!("{process}.keys"))
    }

    /// Where the authority keeps the recordings.
    #[must_use]
    pub fn recordings(&self) -> PathBuf {
        self.directory.join("authority/auth/recordings")
    }

    /// An account with a role of its own that lets it in many times over.
    fn log_in(&self, login: &str, shape: &Shape) -> Result<(), TestbedError> {
        fs::DirBuilder::new().mode(0o700).create(self.home()).at("make", &self.home())?;
        let role = self.directory.join("role.yaml");
        write_private(
            &role,
            &format!(
                "kind: role\nversion: v1\nmetadata:\n  name: {USER}\nspec:\n  options:\n    max_sessions: 1000\n    \
                 max_db_sessions: 10000\n  allow:\n{allow}    logins: [{login}]\n    node_labels:\n      '*': '*'\n    rules:\n      - resources: \
                 [node]\n        verbs: [list, read]\n",
                allow = shape.allow,
            ),
        )?;
        output("making a role", self.admin(&["create", "--force", "-f"]).arg(&role))?;
        let said = output(
            "inviting a user",
            &mut self.admin(&["users", "add", USER, "--roles", USER, "--logins", login, "--format", "json"]),
        )?;
        let link = parts::text(&said, "/link").ok_or_else(|| failed("inviting a user", &said))?;
        // It lives as long as the directory, on loopback, and belongs to no user.
        let password = format!("lab-{}-{}\n", std::process::id(), link.len());
        let here = &self.sites.client;
        let mut signup = self.client(&parts::signup(&link));
        here.inside(|| with_input("sallyport signup", &mut signup, Some(&password)))??;
        let mut login = self.client(&parts::login(USER, &self.pin));
        here.inside(|| with_input("sallyport login", &mut login, Some(&password)))??;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_helper();
    }
}

/// A token to join with.
fn token(mut admin: Command, role: &str) -> Result<String, TestbedError> {
    admin.args(["tokens", "add", "--role", role, "--format", "json"]);
    if role == "node" {
        // What is measured is of the node's own configuration.
        admin.args(["--databases", "*", "--own-labels", "*=*"]);
    }
    let said = output("sallyport admin tokens add", &mut admin)?;
    parts::text(&said, "/token").ok_or_else(|| failed("making a join token", &said))
}

fn failed(what: &str, said: &str) -> TestbedError {
    TestbedError::Failed { what: what.to_owned(), said: said.trim().to_owned() }
}
