//! What others put between a client and PostgreSQL: HAProxy and PgBouncer, where the machine has them. They decide
//! nothing, record nothing and know no user of a cluster: they are the floor of what ending TLS costs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::postgres::{HOST, Postgres, USER};
use super::{Process, free_port};
use crate::TestbedError;

/// Where daemons are that need not be on a user's `PATH`.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];

/// One of them.
#[derive(Debug)]
pub struct Floor {
    /// It.
    pub process: Process,
    /// What it is and does.
    pub name: &'static str,
    /// Its port on loopback.
    pub port: u16,
    /// Whether clients ask for TLS first; otherwise they begin with it.
    pub ask: bool,
}

impl Floor {
    /// Those that the machine has.
    ///
    /// # Errors
    /// When one is there and does not start.
    pub fn start_all(postgres: &Postgres) -> Result<Vec<Self>, TestbedError> {
        let mut floors = Vec::new();
        if let Some(program) = find("haproxy") {
            floors.push(haproxy(&program, postgres)?);
        }
        if let Some(program) = find("pgbouncer") {
            floors.push(pgbouncer(&program, postgres)?);
        }
        Ok(floors)
    }
}

/// The server's certificate is theirs as well: the lab's clients expect it.
fn identity(postgres: &Postgres, name: &str) -> Result<(PathBuf, PathBuf), TestbedError> {
    let read = |file: &str| {
        let path = postgres.directory().join("data").join(file);
        std::fs::read_to_string(&path).map_err(|source| TestbedError::File {
            doing: "read",
            path: path.clone(),
            source,
        })
    };
    let pem = read("server.crt")? + &read("server.key")?;
    let clients = read("clients.pem")?;
    Ok((
        postgres.write(&format!("{name}.pem"), &pem)?,
        postgres.write(&format!("{name}-clients.pem"), &clients)?,
    ))
}

/// TLS ended with a client's certificate and begun again, and ended again in front of the server's socket: this release
/// of PostgreSQL cannot begin with TLS, and HAProxy cannot ask for it.
fn haproxy(program: &Path, postgres: &Postgres) -> Result<Floor, TestbedError> {
    let (port, inner) = (free_port()?, free_port()?);
    let (server, clients) = identity(postgres, "haproxy")?;
    let client = postgres
        .write("haproxy-client.pem", &format!("{}{}", postgres.client_pem.0, postgres.client_pem.1))?;
    let authority = postgres.write("haproxy-ca.pem", &postgres.ca_pem)?;
    let config = postgres.write(
        "haproxy.cfg",
        &format!(
            "global\n  nbthread 2\n  maxconn 4000\n  ssl-default-bind-options ssl-min-ver TLSv1.3\n\
             defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 120s\n  timeout server 120s\n\
             frontend outer\n  bind {HOST}:{port} ssl crt {server} ca-file {clients} verify required\n  \
             default_backend inner\n\
             backend inner\n  server next {HOST}:{inner} ssl crt {client} ca-file {authority} verify required \
             no-ssl-reuse\n\
             frontend last\n  bind {HOST}:{inner} ssl crt {server} ca-file {clients} verify required\n  \
             default_backend database\n\
             backend database\n  server postgres unix@{socket}/.s.PGSQL.{pg}\n",
            server = server.display(),
            clients = clients.display(),
            client = client.display(),
            authority = authority.display(),
            socket = postgres.directory().display(),
            pg = postgres.port(),
        ),
    )?;
    let mut process = Process::start(
        "haproxy",
        postgres.beside(program).args(["-db", "-f"]).arg(&config).current_dir("/"),
        postgres.directory(),
    )?;
    process.wait_until("HAProxy", || std::net::TcpStream::connect((HOST, port)).ok())?;
    Ok(Floor { process, name: "haproxy, TLS on two legs", port, ask: false })
}

/// TLS ended with a client's certificate, and a new connection with TLS and a certificate to the server for each.
fn pgbouncer(program: &Path, postgres: &Postgres) -> Result<Floor, TestbedError> {
    let port = free_port()?;
    let (_, clients) = identity(postgres, "pgbouncer")?;
    let data = postgres.directory().join("data");
    let certificate = postgres.write("pgbouncer-client.crt", &postgres.client_pem.0)?;
    let key = postgres.write("pgbouncer-client.key", &postgres.client_pem.1)?;
    let authority = postgres.write("pgbouncer-ca.pem", &postgres.ca_pem)?;
    let users = postgres.write("pgbouncer-users.txt", &format!("\"{USER}\" \"\"\n"))?;
    let config = postgres.write(
        "pgbouncer.ini",
        &format!(
            "[databases]\n{USER} = host={HOST} port={pg} dbname={USER}\n[pgbouncer]\nlisten_addr = {HOST}\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = cert\nauth_file = {users}\npool_mode = session\n\
             max_client_conn = 2000\ndefault_pool_size = 100\nserver_lifetime = 0\nlog_connections = 0\n\
             log_disconnections = 0\nclient_tls_sslmode = verify-full\nclient_tls_ca_file = {clients}\n\
             client_tls_cert_file = {data}/server.crt\nclient_tls_key_file = {data}/server.key\n\
             server_tls_sslmode = verify-full\nserver_tls_ca_file = {authority}\n\
             server_tls_cert_file = {certificate}\nserver_tls_key_file = {key}\n\
             client_tls_protocols = tlsv1.3\nserver_tls_protocols = tlsv1.3\n",
            pg = postgres.port(),
            users = users.display(),
            clients = clients.display(),
            data = data.display(),
            authority = authority.display(),
            certificate = certificate.display(),
            key = key.display(),
        ),
    )?;
    let mut process = Process::start(
        "pgbouncer",
        postgres.beside(program).arg(&config).current_dir("/"),
        postgres.directory(),
    )?;
    process.wait_until("PgBouncer", || std::net::TcpStream::connect((HOST, port)).ok())?;
    Ok(Floor { process, name: "pgbouncer, TLS on two legs", port, ask: true })
}

fn find(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|path| path.join(name))
        .find(|path| path.is_file())
}

/// What they are, as they say themselves.
#[must_use]
pub fn versions() -> Vec<String> {
    [("haproxy", "-v"), ("pgbouncer", "--version")]
        .into_iter()
        .filter_map(|(name, option)| {
            let output = Command::new(find(name)?).arg(option).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().next().map(|line| line.split(" - ").next().unwrap_or(line).trim().to_owned())
        })
        .collect()
}
