//! A PostgreSQL of a test's own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::world::Pki;

/// Where Debian has it.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A server that ends with the test.
pub(crate) struct Postgres {
    directory: TempDir,
    pub(crate) port: u16,
    server: Child,
}

impl Postgres {
    /// Makes a cluster and starts it. Over TLS it asks for certificates, of `scram` for SCRAM, of `md5` and `plain` for what
    /// those say; without TLS it believes everybody.
    pub(crate) fn start(pki: &Pki) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let data = directory.path().join("data");
        own(directory.path());
        let made = as_postgres("initdb")
            .args([
                "-D",
                data.to_str().unwrap(),
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
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
        file(
            "postgresql.auto.conf",
            &format!(
                "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{sockets}'\nssl = on\n\
                 ssl_ca_file = 'clients.crt'\nfsync = off\nshared_buffers = '16MB'\nmax_connections = 60\n\
                 autovacuum = off\n"
            ),
        );
        let server = as_postgres("postgres")
            .args(["-D", data.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let postgres = Self { directory, port, server };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !postgres.try_sql("select 1") {
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", postgres.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        postgres
    }

    /// What it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn psql(&self, user: &str, sql: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["-h", self.directory.path().to_str().unwrap(), "-p", &self.port.to_string(), "-U", user])
            .args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
        psql
    }

    fn try_sql(&self, sql: &str) -> bool {
        self.psql("postgres", sql).output().unwrap().status.success()
    }

    /// Runs statements as the superuser, beside everything.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let out = self.psql("postgres", sql).output().unwrap();
        assert!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// Begins to run statements as this user, past the agent.
    pub(crate) fn begin(&self, user: &str, sql: &str) -> Child {
        self.psql(user, sql).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits for an answer.
    pub(crate) fn until(&self, sql: &str, answer: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.sql(sql) != answer {
            assert!(Instant::now() < deadline, "{sql} does not say {answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        signal(&self.server, "-QUIT");
        let _ = self.server.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        signal(&self.server, "-QUIT");
        let _ = self.server.wait();
    }
}

fn signal(child: &Child, signal: &str) {
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
}

/// The newest version's program.
pub(crate) fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(VERSIONS).expect("install postgresql (cargo xtask setup)");
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin").join(name))).filter(|(_, path)| path.exists())
        })
        .collect();
    found.sort();
    found.pop().expect("install postgresql (cargo xtask setup)").1
}

/// PostgreSQL refuses to run as root.
fn as_postgres(name: &str) -> Command {
    if !is_root() {
        return Command::new(program(name));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]).arg(program(name));
    command.current_dir("/");
    command
}

fn is_root() -> bool {
    id(&["-u"]) == 0
}

fn id(arguments: &[&str]) -> u32 {
    let out = Command::new("id").args(arguments).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
}

fn own(path: &Path) {
    if is_root() {
        chown(path, Some(id(&["-u", "postgres"])), Some(id(&["-g", "postgres"]))).unwrap();
    }
}
