//! A real PostgreSQL for one test: on a free loopback port, in a directory of its own, with a certificate of the cluster's
//! CA for databases, and letting nobody in over the network but with certificates of the CA for their clients.
#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a test's fixture")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sallyport_testing::postgres::programs;
use tempfile::TempDir;

use super::{Cluster, Process, free_port, is_root, ok, stdout, wait_for};

/// The server and its files; both go with it.
pub struct Postgres {
    pub port: u16,
    server: Process,
    directory: TempDir,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, sessions included; the server's own children go with it.
        self.server.signal("QUIT");
        let _ = self.server.child.wait();
    }
}

/// The account that a server may run as; it refuses root.
fn account() -> Option<(u32, u32)> {
    if !is_root() {
        return None;
    }
    let number = |flag: &str| {
        let output = ok(Command::new("id").args([flag, "postgres"]).output().expect("run id"));
        stdout(&output).trim().parse().expect("a number")
    };
    Some((number("-u"), number("-g")))
}

fn command(program: &Path, account: Option<(u32, u32)>) -> Command {
    let mut command = match account {
        None => Command::new(program),
        Some((user, group)) => {
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--reuid={user}"))
                .arg(format!("--regid={group}"))
                .arg("--clear-groups")
                .arg(program);
            command
        }
    };
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    command
}

/// The files of a new server, made once for all tests of a build.
fn template(account: Option<(u32, u32)>) -> PathBuf {
    let programs = programs().expect("a PostgreSQL server: cargo xtask test installs it");
    let version = programs.parent().and_then(Path::file_name).expect("a version").display().to_string();
    let owner = account.map_or_else(String::new, |(user, _)| format!("-{user}"));
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("postgresql-{version}{owner}"));
    if !made.exists() {
        // Where the server's account may write; the first of several tests that make one wins.
        let place = tempfile::Builder::new().prefix("sallyport-initdb-").tempdir().expect("a directory");
        if let Some((user, group)) = account {
            chown(place.path(), Some(user), Some(group)).expect("chown");
        }
        let data = place.path().join("data");
        let mut initdb = command(&programs.join("initdb"), account);
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data);
        ok(initdb.stdin(Stdio::null()).output().expect("run initdb"));
        let beside = made.with_extension(std::process::id().to_string());
        ok(Command::new("cp").arg("-a").args([&data, &beside]).output().expect("run cp"));
        if fs::rename(&beside, &made).is_err() {
            let _ = fs::remove_dir_all(&beside);
        }
    }
    made
}

impl Postgres {
    /// With the users `app` and `reader` and the databases `shop` and `ledger`, which belong to `app`.
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, "hostssl all all 127.0.0.1/32 cert\n")
    }

    /// The same with other rules for who gets in over the network.
    pub fn start_with(cluster: &Cluster, rules: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("sallyport-pg-").tempdir().expect("a directory");
        let (account, port) = (account(), free_port());
        let at = |name: &str| directory.path().join(name);
        let signed = at("server").display().to_string();
        ok(cluster.admin(&[
            "auth",
            "sign",
            "--format",
            "db",
            "--host",
            "localhost,127.0.0.1",
            "--out",
            &signed,
        ]));
        let mut files = vec![directory.path().to_owned()];
        files.extend(["server.key", "server.crt", "server.cas"].map(at));
        if let Some((user, group)) = account {
            files.iter().for_each(|path| chown(path, Some(user), Some(group)).expect("chown"));
        }
        let data = at("data");
        ok(Command::new("cp").arg("-a").arg(template(account)).arg(&data).output().expect("run cp"));
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{place}'\nfsync = off\n\
             synchronous_commit = off\nfull_page_writes = off\nmax_connections = 200\nshared_buffers = 32MB\nssl = on\n\
             ssl_cert_file = '{signed}.crt'\nssl_key_file = '{signed}.key'\nssl_ca_file = '{signed}.cas'\n",
            place = directory.path().display()
        );
        fs::write(data.join("postgresql.auto.conf"), settings).expect("write the settings");
        fs::write(data.join("pg_hba.conf"), format!("local all all trust\n{rules}"))
            .expect("write the rules");
        let mut start = command(&programs().expect("a PostgreSQL server").join("postgres"), account);
        let server = Process::spawn(start.arg("-D").arg(&data), cluster.path("postgres.log"));
        let postgres = Self { port, server, directory };
        wait_for("PostgreSQL to answer", || {
            postgres.ask("postgres", "select 1").status.success().then_some(())
        });
        // Each word by itself: a database is made outside of a transaction.
        postgres.sql("postgres", "create role app login; create role reader login");
        for name in ["shop", "ledger"] {
            postgres.sql("postgres", &format!("create database {name} owner app"));
        }
        postgres
    }

    fn ask(&self, name: &str, statement: &str) -> Output {
        Command::new("psql")
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", name, "-h"])
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string(), "-c", statement])
            .stdin(Stdio::null())
            .output()
            .expect("run psql")
    }

    /// Runs a statement as the server's own administrator, beside the cluster.
    pub fn sql(&self, name: &str, statement: &str) -> String {
        stdout(&ok(self.ask(name, statement))).trim().to_owned()
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes the cluster know it.
    pub fn register(&self, cluster: &Cluster, name: &str, via: &str) {
        self.register_with(cluster, name, via, "");
    }

    /// `settings` are further lines of the document's `spec`, indented by two.
    pub fn register_with(&self, cluster: &Cluster, name: &str, via: &str, settings: &str) {
        ok(cluster.create(&format!(
            "kind: db\nversion: v1\nmetadata:\n  name: {name}\n  labels: {{env: test}}\nspec:\n  protocol: postgres\n  address: {}\n  via: \
             [{via}]\n{settings}",
            self.address()
        )));
    }

    pub fn make_private(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
    }
}
