//! A PostgreSQL of a test's own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::world::Pki;

/// Where Debian has it.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A server that ends with the test.
pub(crate) struct Postgres {
    directory: TempDir,
    pub(crate) port: u16,
    server: Running,
}

/// How long a test waits for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(10);
/// How often a port may turn out to be taken: it is free when it is chosen, and the server binds it a moment later.
const PORTS: usize = 5;

impl Postgres {
    /// Makes a cluster and starts it. Over TLS it asks for certificates, of `scram` for SCRAM, of `md5` and `plain` for what
    /// those say; without TLS it believes everybody.
    pub(crate) fn start(pki: &Pki) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        own(directory.path());
        empty_cluster(&data);
        let server = pki.server(&["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let file = |name: &str, text: &str| {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            own(&path);
        };
        file("server.crt", &server.0);
        file("server.key", &server.1);
        file("clients.crt", &pki.client_ca);
        file(
            "pg_hba.conf",
            "local all all trust\n\
             hostssl all scram all scram-sha-256\n\
             hostssl all md5 all md5\n\
             hostssl all plain all password\n\
             hostssl all all all cert\n\
             hostnossl all all all trust\n",
        );
        let sockets = directory.path().display();
        for _ in 0..PORTS {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            file(
                "postgresql.auto.conf",
                &format!(
                    "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{sockets}'\nssl = on\n\
                     ssl_ca_file = 'clients.crt'\nfsync = off\nsynchronous_commit = off\nfull_page_writes = off\n\
                     shared_buffers = '16MB'\nmax_connections = 60\nmax_prepared_transactions = 5\nautovacuum = off\n"
                ),
            );
            let server = as_postgres("postgres")
                .args(["-D", data.to_str().unwrap()])
                .stdout(Stdio::null())
                .stderr(fs::File::create(directory.path().join("log")).unwrap())
                .spawn()
                .unwrap();
            let mut server = Running(server);
            if server.is_up(directory.path()) {
                return Self { directory, port, server };
            }
            let log = log(directory.path());
            assert!(log.contains("Address already in use"), "PostgreSQL does not start: {log}");
        }
        panic!("{PORTS} free ports were all taken by others");
    }

    /// What it has written.
    pub(crate) fn log(&self) -> String {
        log(self.directory.path())
    }

    fn psql(&self, user: &str, sql: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["-h", self.directory.path().to_str().unwrap(), "-p", &self.port.to_string(), "-U", user])
            .args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
        psql
    }

    /// Runs statements as the superuser, beside everything.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let out = self.psql("postgres", sql).output().unwrap();
        assert!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// Feeds a script to psql as the superuser, with these settings around it.
    pub(crate) fn feed(&self, script: &Path, settings: &[(&str, &str)]) -> Output {
        let mut psql = Command::new(program("psql"));
        psql.args([
            "-h",
            self.directory.path().to_str().unwrap(),
            "-p",
            &self.port.to_string(),
            "-U",
            "postgres",
        ])
        .args(["-X", "-Atq", "-f", script.to_str().unwrap(), "postgres"]);
        psql.envs(settings.iter().copied()).stdin(Stdio::null()).output().unwrap()
    }

    /// Begins to run statements as this user, past the agent.
    pub(crate) fn begin(&self, user: &str, sql: &str) -> Child {
        self.psql(user, sql).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits for an answer.
    pub(crate) fn until(&self, sql: &str, answer: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.sql(sql) != answer {
            assert!(Instant::now() < deadline, "{sql} does not say {answer}");
            std::thread::sleep(LOOK);
        }
    }

    /// Stops it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.server.end();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.server.end();
    }
}

/// The server's process, which ends with this.
struct Running(Child);

impl Running {
    /// Waits until it takes connections; false when it has ended.
    fn is_up(&mut self, directory: &Path) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Its eighth line is its state.
            let status = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap_or_default();
            if status.lines().nth(7).is_some_and(|state| state.trim() == "ready") {
                return true;
            }
            if self.0.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", log(directory));
            std::thread::sleep(LOOK);
        }
    }

    fn end(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = Command::new("kill").args(["-QUIT", &self.0.id().to_string()]).status();
            let _ = self.0.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join("log")).unwrap_or_default()
}

/// How a cluster is made.
const INITDB: [&str; 8] = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"];

/// A cluster in which nothing has happened: a copy of one that is kept for all tests, as making one takes a second.
fn empty_cluster(data: &Path) {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("postgresql-{}", version()));
    if kept.join("PG_VERSION").exists() {
        copy(&kept, data);
        return;
    }
    let made = as_postgres("initdb")
        .args(["-D", data.to_str().unwrap(), "--wal-segsize=1"])
        .args(INITDB)
        .output()
        .unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    // It gets its name when it is whole. Of two that are made at once the first stays.
    let copying = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy(data, &copying.path().join("cluster"));
    let _ = fs::rename(copying.path().join("cluster"), &kept);
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").args(["-a", "--reflink=auto"]).args([from, to]).output().unwrap();
    assert!(done.status.success(), "cp: {}", String::from_utf8_lossy(&done.stderr));
}

/// Each version's programs, the newest last.
fn versions() -> Vec<(u32, PathBuf)> {
    let versions = fs::read_dir(VERSIONS).expect("install postgresql (cargo xtask setup)");
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin"))).filter(|(_, path)| path.join("initdb").exists())
        })
        .collect();
    found.sort();
    found
}

fn version() -> u32 {
    versions().pop().expect("install postgresql (cargo xtask setup)").0
}

/// The newest version's program.
pub(crate) fn program(name: &str) -> PathBuf {
    versions().pop().expect("install postgresql (cargo xtask setup)").1.join(name)
}

/// PostgreSQL refuses to run as root: whose it is then.
static OWNER: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
    let is_root = id(&["-u"]) == 0;
    is_root.then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
});

fn as_postgres(name: &str) -> Command {
    if OWNER.is_none() {
        return Command::new(program(name));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]).arg(program(name));
    command.current_dir("/");
    command
}

fn id(arguments: &[&str]) -> u32 {
    let out = Command::new("id").args(arguments).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
}

fn own(path: &Path) {
    if let Some((user, group)) = *OWNER {
        chown(path, Some(user), Some(group)).unwrap();
    }
}
