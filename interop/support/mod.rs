//! A real cluster for one test: real processes of the real binary, on loopback, in a directory of its own.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs, reason = "each suite uses its part")]
#![allow(clippy::print_stderr, reason = "what a failing test says")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

mod on_disk;
pub mod postgres;
pub mod wires;

use tempfile::TempDir;

pub use sallyport_testing::fixtures::{
    Account, Clock, Disk, PATIENCE, Process, Wire, at_another_time, drain, json, lines_of, ok, read_until,
    refused, ssh, ssh_command, stderr, stdout, under_way, wait_for,
};

pub use self::on_disk::StartOnDisk;
pub use self::wires::Wired;
pub use crate::PROGRAM;
pub const CLUSTER: &str = "interop.test";
/// Keeps the host CA's pin in the cluster's directory, so that no login has to ask for it.
const PIN_FILE: &str = "pin";
pub const PASSWORD: &str = "correct horse battery staple";

/// Authority and proxy in one process, nodes in their own.
pub struct Cluster {
    pub port: u16,
    pub services: Option<Process>,
    pub nodes: Vec<(String, Process)>,
    pub pin: String,
    /// Of the services, besides that of the tests.
    pub environment: Vec<(String, String)>,
    /// What the command of the services begins with.
    pub prefix: Vec<String>,
    /// Where the authority's data is, when it is on a disk of its own.
    pub disk: Option<Disk>,
    /// The last to go: what the processes above have logged is in it.
    pub directory: TempDir,
}

/// A logged-in user with a profile directory.
pub struct User {
    pub name: String,
    pub home: PathBuf,
    pub proxy: String,
    pub otp_uri: Option<String>,
}

pub fn free_port() -> u16 {
    sallyport_testing::free_port().expect("a free port")
}

/// The suite that a whole run of the tests is made under, where somebody asks for one.
fn suite_setting(settings: &str) -> String {
    match std::env::var("SALLYPORT_TEST_SUITE") {
        Ok(suite) if !settings.contains("suite:") => format!("  suite: {suite}\n"),
        _ => String::new(),
    }
}

/// The account the tests run as.
pub fn me() -> String {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let output = Command::new("id").arg("-un").output().expect("run id");
        stdout(&output).trim().to_owned()
    });
    NAME.clone()
}

/// `LOGIN@NODE.CLUSTER`.
pub fn target(node: &str) -> String {
    format!("{}@{node}.{CLUSTER}", me())
}

pub fn is_root() -> bool {
    me() == "root"
}

impl Cluster {
    /// Authority and proxy only.
    pub fn bare() -> Self {
        Self::with_auth_settings("")
    }

    /// `settings` are further lines of the `auth` section, indented by two.
    pub fn with_auth_settings(settings: &str) -> Self {
        Self::with_environment(settings, Vec::new())
    }

    /// The same, with variables in the environment of authority and proxy.
    pub fn with_environment(settings: &str, environment: Vec<(String, String)>) -> Self {
        Self::with_all(settings, "", environment, None)
    }

    /// `settings` are further lines of the `proxy` section, indented by two.
    pub fn with_proxy_settings(settings: &str) -> Self {
        Self::with_all("", settings, Vec::new(), None)
    }

    /// Authority and proxy in one process, with their data on a disk of this size.
    pub fn bare_on_disk(size: &str) -> Self {
        Self::with_all("", "", Vec::new(), Some(size))
    }

    fn with_all(settings: &str, proxy: &str, environment: Vec<(String, String)>, size: Option<&str>) -> Self {
        let directory = tempfile::Builder::new().prefix("sallyport-").tempdir().expect("a directory");
        let port = free_port();
        let disk = size.map(|size| Disk::mount(directory.path(), ("disk", "data"), size));
        let settings = format!("{settings}{}", suite_setting(settings));
        let yaml = format!(
            "version: v1\ncluster: {CLUSTER}\ndata_dir: {data}\nlog:\n  level: info\ndrain_timeout: 2s\nauth:\n  \
             enabled: true\n  second_factor: optional\n{settings}proxy:\n  enabled: true\n  listen: 127.0.0.1:{port}\n  \
             public_addr: 127.0.0.1:{port}\n{proxy}node:\n  enabled: false\n",
            data = directory.path().join(if disk.is_some() { "disk" } else { "data" }).display(),
        );
        fs::write(directory.path().join("cluster.yaml"), yaml).expect("write the configuration");
        let mut cluster = Self {
            directory,
            port,
            services: None,
            nodes: Vec::new(),
            pin: String::new(),
            environment,
            prefix: Vec::new(),
            disk,
        };
        cluster.start_services();
        cluster
    }

    /// Authority and proxy in processes of their own: `services` is the authority, and the proxy is among the nodes,
    /// called `proxy`.
    pub fn apart() -> Self {
        Self::apart_with("", None, None)
    }

    /// The same, with the authority's data on a disk of this size.
    pub fn apart_on_disk(settings: &str, size: &str) -> Self {
        Self::apart_with(settings, Some(size), None)
    }

    /// The same with the authority at the end of a wire, and users who come by another.
    pub fn apart_over(to_authority: &Wire, to_client: &Wire) -> Self {
        Self::apart_with("", None, Some((to_authority, to_client)))
    }

    /// `settings` are further lines of the authority's configuration.
    fn apart_with(settings: &str, size: Option<&str>, wires: Option<(&Wire, &Wire)>) -> Self {
        let directory = tempfile::Builder::new().prefix("sallyport-").tempdir().expect("a directory");
        let (port, auth_port) = (free_port(), free_port());
        let head = |name: &str| {
            let data = directory.path().join(name).display().to_string();
            format!(
                "version: v1\ncluster: {CLUSTER}\ndata_dir: {data}\nlog:\n  level: info\ndrain_timeout: 2s\n"
            )
        };
        let disk = size.map(|size| Disk::mount(directory.path(), ("disk", "data"), size));
        let everywhere = if wires.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let yaml = format!(
            "{}{settings}auth:\n  enabled: true\n  second_factor: optional\n  listen: {everywhere}:{auth_port}\n  public_addr: \
             127.0.0.1:{port}\nproxy:\n  enabled: false\nnode:\n  enabled: false\n",
            head(if disk.is_some() { "disk" } else { "data" })
        );
        fs::write(directory.path().join("cluster.yaml"), yaml).expect("write the configuration");
        let proxy = head("proxy");
        let mut cluster = Self {
            directory,
            port,
            services: None,
            nodes: Vec::new(),
            pin: String::new(),
            environment: Vec::new(),
            prefix: wires.map(|(authority, _)| authority.prefix()).unwrap_or_default(),
            disk,
        };
        cluster.start_services();
        let token = cluster.token(&["--type", "proxy"]);
        let authority = wires.map_or("127.0.0.1".to_owned(), |(authority, _)| authority.there().to_string());
        let more = wires.map(|(_, client)| format!(", {}:{port}", client.here())).unwrap_or_default();
        let yaml = format!(
            "{proxy}auth:\n  enabled: false\nproxy:\n  enabled: true\n  listen: {everywhere}:{port}\n  public_addr: \
             [127.0.0.1:{port}{more}]\n  auth_server: {authority}:{auth_port}\n  join:\n    token: {token}\n    ca_pin: {}\n\
             node:\n  enabled: false\n",
            cluster.pin
        );
        let config = cluster.path("proxy.yaml");
        fs::write(&config, yaml).expect("write the configuration");
        let process = cluster.spawn_node("proxy", &config);
        cluster.nodes.push(("proxy".to_owned(), process));
        wait_for("the proxy to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        cluster
    }

    /// A cluster with one online node `web-1` (labels env=prod) and the user `alice`, who may log in as the account
    /// the tests run as.
    pub fn with_node() -> (Self, User) {
        let mut cluster = Self::bare();
        cluster.add_node("web-1", "env: prod");
        let alice = cluster.add_user("alice", "access", &me());
        (cluster, alice)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    pub fn proxy(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts the services, without a look at what becomes of them.
    pub fn spawn_services(&mut self, log: PathBuf) {
        let mut words = self.prefix.iter().map(String::as_str).chain([PROGRAM]);
        let mut command = match &self.disk {
            Some(disk) => disk.inside(),
            None => Command::new(words.next().expect("a program")),
        };
        command.args(words).args(["start", "-c"]).arg(self.path("cluster.yaml"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.services = Some(Process::spawn(&mut command, log));
    }

    pub fn start_services(&mut self) {
        self.spawn_services(self.path("services.log"));
        let answer = wait_for("the cluster to answer", || {
            let services = self.services.as_mut().expect("services");
            if let Some(status) = services.child.try_wait().expect("look at the services") {
                panic!(
                    "the services ended: {status}\n{}",
                    fs::read_to_string(&services.log).unwrap_or_default()
                );
            }
            let answer = self.admin(&["status", "--format", "json"]);
            answer.status.success().then_some(answer)
        });
        // Nodes and proxies are told the one of the cluster's first start.
        if self.pin.is_empty() {
            self.pin = host_pin(&answer);
            fs::write(self.path(PIN_FILE), &self.pin).expect("keep the pin");
        }
    }

    /// `sallyport admin`, through the authority's socket.
    pub fn admin(&self, arguments: &[&str]) -> Output {
        // A rotation changes the pin.
        if arguments.starts_with(&["ca", "rotate"]) {
            let _ = fs::remove_file(self.path(PIN_FILE));
        }
        Command::new(PROGRAM)
            .args(["admin", "--data-dir"])
            .arg(self.data_dir())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("run sallyport admin")
    }

    /// Creates a resource from YAML.
    pub fn create(&self, yaml: &str) -> Output {
        let file = self.path("resource.yaml");
        fs::write(&file, yaml).expect("write YAML");
        self.admin(&["create", "--force", "-f", file.to_str().expect("UTF-8")])
    }

    pub fn token(&self, arguments: &[&str]) -> String {
        let mut all = vec!["tokens", "add", "--format", "json"];
        all.extend(arguments);
        let output = ok(self.admin(&all));
        let token: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        token["token"].as_str().expect("a token").to_owned()
    }

    /// The configuration of a node; `join` false for one that has joined already.
    pub fn node_config(&self, name: &str, labels: &str, token: Option<&str>) -> PathBuf {
        let join = token
            .map(|token| format!("  join:\n    token: {token}\n    ca_pin: {}\n", self.pin))
            .unwrap_or_default();
        let yaml = format!(
            "version: v1\ncluster: {CLUSTER}\ndata_dir: {data}\nlog:\n  level: info\ndrain_timeout: 2s\nauth:\n  enabled: \
             false\nproxy:\n  enabled: false\nnode:\n  enabled: true\n  name: {name}\n  labels:\n    {labels}\n  \
             proxy_server: 127.0.0.1:{port}\n{join}",
            data = self.path(&format!("node-{name}")).display(),
            port = self.port,
        );
        let path = self.path(&format!("node-{name}.yaml"));
        fs::write(&path, yaml).expect("write the configuration");
        path
    }

    pub fn spawn_node(&self, name: &str, config: &Path) -> Process {
        // By a shell that has left a file open, and ignores signals as nohup does.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' HUP QUIT; exec 9</dev/null; exec \"$@\"", "sh", PROGRAM, "start", "-c"])
            .arg(config);
        Process::spawn(&mut command, self.path(&format!("node-{name}.log")))
    }

    /// Joins a node with a fresh token and waits until it is online.
    pub fn add_node(&mut self, name: &str, labels: &str) {
        self.add_node_with(name, labels, "");
    }

    /// `sections` are further ones of its configuration.
    pub fn add_node_with(&mut self, name: &str, labels: &str, sections: &str) {
        let token = self.token(&[]);
        let config = self.node_config(name, labels, Some(&token));
        let mut file = fs::OpenOptions::new().append(true).open(&config).expect("open the configuration");
        file.write_all(sections.as_bytes()).expect("write the configuration");
        let process = self.spawn_node(name, &config);
        self.nodes.push((name.to_owned(), process));
        self.wait_online(name);
    }

    /// Joins a node whose data is on a disk of this size, and waits until it is online.
    pub fn add_node_on_disk(&mut self, name: &str, size: &str) -> Disk {
        let token = self.token(&[]);
        let config = self.node_config(name, "env: prod", Some(&token));
        let (place, way) = (format!("node-{name}"), format!("node-{name}-disk"));
        let disk = Disk::mount(self.directory.path(), (&place, &way), size);
        let process = disk.start(&config, self.path(&format!("node-{name}.log")));
        self.nodes.push((name.to_owned(), process));
        self.wait_online(name);
        disk
    }

    pub fn restart_node(&mut self, name: &str) {
        let config = self.path(&format!("node-{name}.yaml"));
        let process = self.spawn_node(name, &config);
        self.nodes.retain(|(known, _)| known != name);
        self.nodes.push((name.to_owned(), process));
    }

    pub fn node(&mut self, name: &str) -> &mut Process {
        self.nodes.iter_mut().find(|(known, _)| known == name).map(|(_, process)| process).expect("the node")
    }

    pub fn wait_online(&self, name: &str) {
        wait_for(&format!("{name} to be online"), || {
            let output = self.admin(&["nodes", "ls", "--search", name, "--format", "json"]);
            let nodes: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            nodes.as_array()?.iter().any(|node| node["name"] == name && node["online"] == true).then_some(())
        });
    }

    /// An invite link for a new user.
    pub fn invite(&self, name: &str, roles: &str, logins: &str) -> String {
        let output =
            ok(self.admin(&["users", "add", name, "--roles", roles, "--logins", logins, "--format", "json"]));
        let invite: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        invite["link"].as_str().expect("a link").to_owned()
    }

    /// Adds a user, accepts the invite without a second factor, and logs in.
    pub fn add_user(&self, name: &str, roles: &str, logins: &str) -> User {
        let user = self.add_user_without_login(name, roles, logins);
        ok(user.login(&[]));
        user
    }

    /// A user whose one role says this about recording, and logs in.
    pub fn add_user_with(&self, name: &str, options: &str) -> User {
        ok(self.create(&format!(
            "kind: role\nversion: v1\nmetadata: {{name: {name}-role}}\nspec:\n  options: {options}\n  allow:\n    logins: [{}]\n    \
             node_labels: {{'*': '*'}}\n",
            me()
        )));
        self.add_user(name, &format!("{name}-role"), &me())
    }

    pub fn add_user_without_login(&self, name: &str, roles: &str, logins: &str) -> User {
        let link = self.invite(name, roles, logins);
        let user = User {
            name: name.to_owned(),
            home: self.path(&format!("home-{name}")),
            proxy: self.proxy(),
            otp_uri: None,
        };
        ok(user.run_with_input(
            &["signup", &link, "--no-second-factor", "--password-stdin"],
            &format!("{PASSWORD}\n"),
        ));
        user
    }

    /// The audit log, the oldest event first.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let output = ok(self.admin(&["audit", "ls", "-n", "0", "--format", "json"]));
        stdout(&output)
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["event"].clone())
            .collect()
    }

    /// Waits for an event of this kind for which `matches` holds.
    pub fn wait_event(&self, kind: &str, matches: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        wait_for(&format!("the event {kind}"), || {
            self.events().into_iter().find(|event| event["kind"] == kind && matches(event))
        })
    }

    /// Recordings as `recordings ls --format json` gives them to an administrator.
    pub fn recordings(&self) -> Vec<serde_json::Value> {
        let output = ok(Command::new(PROGRAM)
            .args(["recordings", "ls", "--data-dir"])
            .arg(self.data_dir())
            .args(["--format", "json"])
            .output()
            .expect("run sallyport"));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// What a recording shows, once it has arrived whole (or is known to be cut off).
    pub fn playback(&self, session: &str, format: &str) -> String {
        let output = ok(Command::new(PROGRAM)
            .args(["play", session, "--format", format, "--data-dir"])
            .arg(self.data_dir())
            .output()
            .expect("run sallyport"));
        stdout(&output)
    }

    /// The recording of the newest session for which `matches` holds, when it is in `state`.
    pub fn wait_recording(&self, state: &str, matches: impl Fn(&serde_json::Value) -> bool) -> String {
        wait_for(&format!("a {state} recording"), || {
            self.recordings()
                .into_iter()
                .find(|recording| recording["state"] == state && matches(recording))
                .and_then(|recording| recording["session_id"].as_str().map(str::to_owned))
        })
    }
}

/// What `admin status` says of the host CA.
fn host_pin(status: &Output) -> String {
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    let host = status["cas"].as_array().expect("a list of CAs").iter().find(|ca| ca["kind"] == "host");
    host.and_then(|ca| ca["tls_pin"].as_str()).expect("the host CA's pin").to_owned()
}

impl User {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("--home")
            .arg(&self.home)
            .args(["--proxy", &self.proxy])
            .args(arguments)
            .env_remove("SSH_AUTH_SOCK")
            .stdin(Stdio::null());
        command
    }

    /// The certificate and the key of TLS.
    pub fn tls_files(&self) -> (PathBuf, PathBuf) {
        let profile = self.home.join(self.proxy.replace(':', "_"));
        (profile.join("tls_cert.pem"), profile.join("tls_key.pem"))
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("run sallyport")
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run sallyport");
        // A command that fails early does not read its input.
        let _ = child.stdin.take().expect("stdin").write_all(input.as_bytes());
        child.wait_with_output().expect("wait for sallyport")
    }

    /// Logs in with the right password. The pin is known from the administrator.
    pub fn login(&self, arguments: &[&str]) -> Output {
        self.login_with(PASSWORD, arguments)
    }

    pub fn login_with(&self, password: &str, arguments: &[&str]) -> Output {
        let pin = self.pin();
        let mut all = vec!["login", "--user", &self.name, "--password-stdin", "--add-keys-to-agent", "no"];
        all.extend(["--ca-pin", &pin]);
        all.extend(arguments);
        self.run_with_input(&all, &format!("{password}\n"))
    }

    fn pin(&self) -> String {
        let directory = self.home.parent().expect("the cluster's directory");
        if let Ok(pin) = fs::read_to_string(directory.join(PIN_FILE)) {
            return pin;
        }
        let output = Command::new(PROGRAM)
            .args(["admin", "--data-dir"])
            .arg(directory.join("data"))
            .args(["status", "--format", "json"])
            .output()
            .expect("run sallyport");
        host_pin(&output)
    }

    /// Writes what `sallyport config` prints, and returns the path for `ssh -F`.
    pub fn ssh_config(&self, arguments: &[&str]) -> PathBuf {
        let mut all = vec!["config"];
        all.extend(arguments);
        let output = ok(self.run(&all));
        let path = self.home.join(if arguments.is_empty() { "ssh_config" } else { "ssh_config_other" });
        fs::write(&path, &output.stdout).expect("write ssh_config");
        path
    }

    /// Stock `ssh` with that configuration, which is written once.
    pub fn ssh(&self, arguments: &[&str]) -> Output {
        let written = self.home.join("ssh_config");
        let config = if written.exists() { written } else { self.ssh_config(&[]) };
        ssh(&config, arguments)
    }
}
