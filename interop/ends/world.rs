//! One cluster for all cells: what a way ends for all sessions is there once for that way alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

use super::seen::{Process as Seen, Watch};
use crate::openssh_servers::Sshd;
use crate::support::postgres::Postgres;
use crate::support::{Account, CLUSTER, Cluster, PROGRAM, Process, User, free_port, ok, wait_for};

/// How long services that are asked to stop wait for sessions; see `drain_timeout` of the testbed.
pub(super) const DRAIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What a session's user goes to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) node: String,
    pub(super) server: String,
    pub(super) database: String,
    /// Which proxy leads there.
    pub(super) proxy: &'static str,
}

/// The user of a session, with a role of their own.
pub(super) struct Owner {
    pub(super) user: User,
    pub(super) role: String,
    pub(super) login: String,
    pub(super) target: Target,
    pub(super) config: PathBuf,
    pub(super) jump: PathBuf,
}

impl Owner {
    pub(super) fn services(&self) -> PathBuf {
        self.user.home.join("services.conf")
    }
}

pub(super) struct World {
    // Processes go before the cluster's directory.
    watch: Watch,
    agent: Child,
    /// Services that a way ends, by name.
    doomed: Mutex<BTreeMap<String, Process>>,
    proxies: BTreeMap<&'static str, String>,
    _servers: [Sshd; 2],
    postgres: Postgres,
    pub(super) cluster: Cluster,
    pub(super) account: Account,
    pub(super) other: Account,
    room: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        // Their idle helpers would wait for the next command.
        let homes = fs::read_dir(self.cluster.path("")).into_iter().flatten().flatten();
        for home in homes.filter(|one| one.file_name().to_string_lossy().starts_with("home-")) {
            let stop =
                Command::new(PROGRAM).arg("--home").arg(home.path()).args(["connect", "--stop"]).output();
            drop(stop);
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// The places that ways end: nodes with their proxies. `shared` belongs to no cell alone.
const NODES: [(&str, &str); 6] = [
    ("shared", "proxy"),
    ("locked", "proxy"),
    ("stopped", "proxy"),
    ("killed", "proxy"),
    ("behind-stopped", "proxy-stopped"),
    ("behind-killed", "proxy-killed"),
];

fn marker() -> String {
    format!("97{}.", std::process::id())
}

impl World {
    pub(super) fn new() -> Self {
        let mut cluster = Cluster::apart();
        let (account, other) = (Account::new(), Account::new());
        let room = tempfile::Builder::new().prefix("sallyport-ends-").tempdir().unwrap();
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).unwrap();

        let postgres = Postgres::start(&cluster);
        let servers = ["srv-shared", "srv-locked"].map(|name| {
            // Many log in at once.
            let drop_ins = cluster.path(&format!("sshd-{name}/sshd_config.d"));
            fs::create_dir_all(&drop_ins).unwrap();
            fs::write(drop_ins.join("10-many.conf"), "MaxStartups 1000\n").unwrap();
            let sshd = Sshd::start(&cluster, name);
            let applied = ["--address", &sshd.address(), "--apply", "--proxy-only"];
            ok(sshd.join_with_token(&cluster, name, &applied));
            sshd
        });

        for (node, _) in NODES {
            postgres.register(&cluster, &format!("db-{node}"), node);
        }
        postgres.register(&cluster, "db-closed", "shared");

        let mut proxies = BTreeMap::from([("proxy", cluster.proxy())]);
        let mut doomed = BTreeMap::new();
        for name in ["proxy-stopped", "proxy-killed"] {
            let (address, process) = proxy(&cluster, name);
            proxies.insert(name, address);
            doomed.insert(name.to_owned(), process);
        }
        for (node, proxy) in NODES {
            let token = cluster.token(&[]);
            let config = cluster.node_config(node, "env: prod", Some(&token));
            let text = fs::read_to_string(&config).unwrap();
            fs::write(&config, text.replace(&cluster.proxy(), &proxies[proxy])).unwrap();
            let process = cluster.spawn_node(node, &config);
            if ["stopped", "killed"].contains(&node) {
                doomed.insert(node.to_owned(), process);
            } else {
                cluster.nodes.push((node.to_owned(), process));
            }
        }
        for (node, _) in NODES {
            cluster.wait_online(node);
        }
        let socket = room.path().join("agent");
        let mut agent = Command::new("ssh-agent");
        let agent = agent.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        wait_for("ssh-agent", || socket.exists().then_some(()));
        let nowhere = "kind: role\nversion: v1\nmetadata: {name: none}\nspec: {}\n";
        ok(cluster.create(nowhere));
        let watch = Watch::begin(marker(), vec![account.uid, other.uid]);
        Self {
            watch,
            agent,
            doomed: Mutex::new(doomed),
            proxies,
            _servers: servers,
            postgres,
            cluster,
            account,
            other,
            room,
        }
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(super) fn room(&self) -> &Path {
        self.room.path()
    }

    pub(super) fn agent(&self) -> PathBuf {
        self.room.path().join("agent")
    }

    /// A word that stands in the arguments of what a cell runs, and that sleep(1) takes for a time.
    pub(super) fn mark(&self, number: u32) -> String {
        format!("{}{number}", marker())
    }

    /// The database's process of a cell.
    pub(super) fn backend(&self, number: u32) -> Option<Seen> {
        let asked = format!(
            "select pid from pg_stat_activity where application_name = '{}' and state = 'active'",
            self.mark(number)
        );
        Seen::read(self.postgres.sql("postgres", &asked).parse().ok()?)
    }

    pub(super) fn proxy(&self, name: &str) -> String {
        self.proxies[name].clone()
    }

    /// Creates a resource; of several at once, each by a file of its own.
    pub(super) fn create(&self, name: &str, yaml: &str) {
        let file = self.room().join(format!("{name}.yaml"));
        fs::write(&file, yaml).unwrap();
        ok(self.cluster.admin(&["create", "--force", "-f", file.to_str().unwrap()]));
    }

    /// A role that lets in everywhere.
    fn role(&self, name: &str, options: &str) {
        let logins = format!("{}, {}", self.account.name, self.other.name);
        self.create(
            name,
            &format!(
                "kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  options: {{session_recording: proxy, \
                 forward_agent: true{options}}}\n  allow:\n    logins: [{logins}]\n    node_labels: {{'*': '*'}}\n    \
                 db_labels: {{env: test}}\n    db_users: [app]\n    db_names: [shop]\n"
            ),
        );
    }

    /// A user with a role of their own, logged in.
    pub(super) fn owner(
        &self,
        name: &str,
        options: &str,
        login: &str,
        target: Target,
        ttl: &[&str],
    ) -> Owner {
        let role = format!("role-{name}");
        self.role(&role, options);
        let mut user = self.cluster.add_user_without_login(name, &role, login);
        user.proxy = self.proxy(target.proxy);
        ok(user.login(ttl));
        let config = user.ssh_config(&[]);
        let jump = user.ssh_config(&["--jump"]);
        let services = user.home.join("services.conf");
        let chosen = ["db", "login", &target.database, "--db-user", "app", "--db-name", "shop"];
        ok(user.command(&chosen).env("PGSERVICEFILE", services).output().unwrap());
        Owner { user, role, login: login.to_owned(), target, config, jump }
    }

    pub(super) fn signal(&self, service: &str, name: &str) {
        self.doomed.lock().unwrap()[service].signal(name);
    }

    /// Starts again what a way has ended, so that it hands over its report.
    pub(super) fn restart(&self, service: &str) {
        let mut doomed = self.doomed.lock().unwrap();
        if let Some(mut ended) = doomed.remove(service) {
            wait_for("a service to end", || ended.child.try_wait().unwrap());
        }
        let proxy = self.cluster.path(&format!("{service}.yaml"));
        let config = if proxy.exists() { proxy } else { self.cluster.path(&format!("node-{service}.yaml")) };
        doomed.insert(service.to_owned(), self.cluster.spawn_node(service, &config));
    }
}

/// One more proxy, and its address.
fn proxy(cluster: &Cluster, name: &str) -> (String, Process) {
    let address = format!("127.0.0.1:{}", free_port());
    let first = fs::read_to_string(cluster.path("proxy.yaml")).unwrap();
    let line = |key: &str| first.lines().find(|line| line.trim_start().starts_with(key)).unwrap().to_owned();
    let token = cluster.token(&["--type", "proxy"]);
    let yaml = format!(
        "version: v1\ncluster: {CLUSTER}\ndata_dir: {data}\nlog:\n  level: info\ndrain_timeout: 2s\nauth:\n  enabled: false\n\
         proxy:\n  enabled: true\n  listen: {address}\n  public_addr: {address}\n{server}\n  join:\n    token: {token}\n    ca_pin: \
         {pin}\nnode:\n  enabled: false\n",
        data = cluster.path(name).display(),
        server = line("auth_server:"),
        pin = cluster.pin,
    );
    let config = cluster.path(&format!("{name}.yaml"));
    fs::write(&config, yaml).unwrap();
    let process = Process::spawn(
        Command::new(PROGRAM).args(["start", "-c"]).arg(&config),
        cluster.path(&format!("{name}.log")),
    );
    wait_for("a proxy to listen", || std::net::TcpStream::connect(&address).ok());
    (address, process)
}
