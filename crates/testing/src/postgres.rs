//! The machine's PostgreSQL, with a data directory, a port and authorities of its own.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nix::sys::signal::Signal;
use sallyport_ca::keys::TlsKey;
use sallyport_ca::{Authority, CaKind, DatabaseServerRequest, issue_database_client, issue_database_server};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::{KeyPurpose, Suite};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

use super::account::Account;
use super::{Cluster, Process, Shape, Site, output, write_private};
use crate::{AtFile, TestbedError};

/// The name that a server on loopback proves.
pub const HOST: &str = "127.0.0.1";
/// The database's name in clusters.
pub const DATABASE: &str = "lab-db";
/// The database user, and the database.
pub const USER: &str = "lab";

/// How long its certificates live: longer than any measurement.
const LIFETIME: Duration = Duration::hours(8);
/// Who runs it where we are root, which PostgreSQL refuses to be.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];
/// Where Debian keeps its versions, each with a `bin`.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Connections that it takes: for as many idle sessions.
const CONNECTIONS: usize = 1200;

const HINT: &str =
    "the lab measures PostgreSQL: install postgresql (Debian, Ubuntu) or put initdb and postgres on PATH";

/// The running server.
#[derive(Debug)]
pub struct Postgres {
    /// The postmaster; every connection has a child.
    pub process: Process,
    /// Where it listens, which is the name that it proves.
    pub address: IpAddr,
    /// Its port there: TLS with a client certificate and nothing else.
    pub port: u16,
    /// Which release it is, as it says itself.
    pub version: String,
    /// The authority that signed its certificate, PEM.
    pub ca_pem: String,
    /// A certificate of the user and its key, PEM, for those who go straight to it.
    pub client_pem: (String, String),
    account: Option<Account>,
    programs: PathBuf,
    // Last: the server ends before its files go.
    directory: TempDir,
}

impl Postgres {
    /// Makes a data directory and starts a server on it.
    ///
    /// # Errors
    /// [`TestbedError`]: what is missing, or did not start, and its last words.
    pub fn start() -> Result<Self, TestbedError> {
        Self::start_at(&Site::default())
    }

    /// The same, somewhere.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(site: &Site) -> Result<Self, TestbedError> {
        let address = site.address();
        let programs = programs()?;
        let account = Account::unprivileged("PostgreSQL", &ACCOUNTS)?;
        Account::enters_temporary(account, "PostgreSQL")?;
        // Of its own: the account that runs it cannot see into the lab's.
        let directory = tempfile::Builder::new()
            .prefix("sallyport-lab-pg-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        if let Some(account) = account {
            account.owns(directory.path())?;
        }
        let data = directory.path().join("data");
        let program = |name: &str| Account::runs(account, Command::new(programs.join(name)));
        output(
            "initdb",
            program("initdb")
                .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
                .arg("-D")
                .arg(&data)
                .current_dir("/"),
        )?;
        let made = certify(directory.path(), address)?;
        let private = |path: &Path, text: &str| {
            write_private(path, text)?;
            account.map_or(Ok(()), |account| account.owns(path))
        };
        let port = site.free_port()?;
        private(&data.join("server.crt"), &made.server.0)?;
        private(&data.join("server.key"), &made.server.1)?;
        private(&data.join("clients.pem"), &made.clients)?;
        private(&data.join("pg_hba.conf"), &host_access(address))?;
        private(&data.join("postgresql.auto.conf"), &settings((address, port), directory.path()))?;
        let mut command = program("postgres");
        command.arg("-D").arg(&data).current_dir("/");
        let process = site.inside(|| Process::start("postgres", &mut command, directory.path()))??;
        let mut process = process.ending_by(Signal::SIGINT);
        process.wait_until("PostgreSQL", || site.answers(port).then_some(()))?;
        let mut postgres = Self {
            process,
            address,
            port,
            version: String::new(),
            ca_pem: made.authority,
            client_pem: made.client,
            account,
            programs,
            directory,
        };
        postgres.version = postgres.until_ready()?;
        postgres.sql("postgres", &format!("CREATE ROLE {USER} LOGIN"))?;
        postgres.sql("postgres", &format!("CREATE DATABASE {USER} OWNER {USER}"))?;
        Ok(postgres)
    }

    /// Runs SQL as the superuser, by the socket.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String, TestbedError> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database])
            .args(["-p", &self.port.to_string(), "-c", statement, "-h"])
            .arg(self.directory.path())
            .env_remove("PGSERVICE");
        output("psql", &mut psql)
    }

    /// It takes connections a moment before it is ready for them.
    fn until_ready(&self) -> Result<String, TestbedError> {
        let mut tries = 0;
        loop {
            match self.sql("postgres", "SHOW server_version") {
                Ok(version) => return Ok(version.trim().to_owned()),
                Err(error) if tries > 100 => return Err(error),
                Err(_) => {
                    tries += 1;
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            }
        }
    }

    /// Lets in who shows a certificate of these authorities as well, PEM.
    ///
    /// # Errors
    /// When its files cannot be written, or it does not read them.
    pub fn trust(&self, authorities_pem: &[String]) -> Result<(), TestbedError> {
        let path = self.directory.path().join("data/clients.pem");
        let mut all = fs::read_to_string(&path).at("read", &path)?;
        for pem in authorities_pem {
            all.push_str(pem);
        }
        write_private(&path, &all)?;
        self.sql("postgres", "SELECT pg_reload_conf()")?;
        // The postmaster reads it when it gets around to it.
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok(())
    }

    /// `psql` straight to it, with a certificate whose files are made in `directory`, and with these arguments.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn psql(&self, directory: &Path, arguments: &[&str]) -> Result<Command, TestbedError> {
        let mut command = self.program("psql");
        command.args(arguments).env_remove("PGSERVICE");
        command.env("PGHOST", self.address.to_string()).env("PGPORT", self.port.to_string());
        command.env("PGUSER", USER).env("PGDATABASE", USER).env("PGSSLMODE", "verify-full");
        let (chain, key) = &self.client_pem;
        for (variable, name, text) in [
            ("PGSSLROOTCERT", "db-ca.pem", &self.ca_pem),
            ("PGSSLCERT", "db-cert.pem", chain),
            ("PGSSLKEY", "db-key.pem", key),
        ] {
            let path = directory.join(name);
            write_private(&path, text)?;
            command.env(variable, path);
        }
        Ok(command)
    }

    /// A cluster that has it as [`DATABASE`], for its user.
    #[must_use]
    pub fn behind(&self, mut shape: Shape) -> Shape {
        let ca: String = self.ca_pem.lines().map(|line| format!("          {line}\n")).collect();
        let _ = write!(
            shape.node,
            "  databases:\n    - name: {DATABASE}\n      labels:\n        env: lab\n      address: {}:{}\n      tls:\n        \
             ca: |\n{ca}",
            self.address, self.port
        );
        let _ = write!(
            shape.allow,
            "    db_labels:\n      '*': '*'\n    db_names: [{USER}]\n    db_users: [{USER}]\n"
        );
        shape
    }

    /// Lets in whom a cluster lets in.
    ///
    /// # Errors
    /// As [`Self::trust`], and when the cluster does not say which authority it has.
    pub fn trust_cluster(&self, cluster: &Cluster) -> Result<(), TestbedError> {
        let export = &mut cluster.admin(&["ca", "export", "--kind", "db_client", "--format", "tls"]);
        self.trust(&[output("exporting the db_client CA", export)?])
    }

    /// One of its programs (`pgbench`).
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// A program that must not be run by root, as the account that runs the server.
    #[must_use]
    pub fn beside(&self, program: &Path) -> Command {
        Account::runs(self.account, Command::new(program))
    }

    /// Where its socket is, and room for those that run as it does.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file that only the account that runs the server can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, TestbedError> {
        let path = self.directory.path().join(name);
        write_private(&path, text)?;
        self.account.map_or(Ok(()), |account| account.owns(&path))?;
        Ok(path)
    }
}

/// Over TCP nothing but TLS with a certificate; the socket lies in a directory that others cannot enter.
fn host_access(address: IpAddr) -> String {
    let from = if address.is_loopback() { "127.0.0.1/32" } else { "samenet" };
    format!(
        "local all all trust
hostssl all all {from} cert
"
    )
}

fn settings((address, port): (IpAddr, u16), sockets: &Path) -> String {
    format!(
        "port = {port}\nlisten_addresses = '{address}'\nunix_socket_directories = '{}'\nunix_socket_permissions = 0700\n\
         ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\nssl_ca_file = 'clients.pem'\n\
         max_connections = {CONNECTIONS}\nshared_buffers = 128MB\nfsync = off\nsynchronous_commit = off\n\
         full_page_writes = off\nmax_wal_size = 4GB\nautovacuum = off\nlogging_collector = off\n",
        sockets.display()
    )
}

/// What the server and those who go straight to it show.
struct Made {
    authority: String,
    server: (String, String),
    clients: String,
    client: (String, String),
}

/// Certificates as a cluster would give them, from authorities of the lab's own: keys of the types that clusters use
/// towards databases, whatever the suite.
fn certify(directory: &Path, address: IpAddr) -> Result<Made, TestbedError> {
    let failed = |error: &dyn std::fmt::Display| TestbedError::Failed {
        what: "certifying the database".to_owned(),
        said: error.to_string(),
    };
    let suite = Suite::BalancedV1;
    let now = OffsetDateTime::now_utc();
    let sealing = directory.join("sealing.key");
    let custody = SealedCustody::new(Arc::new(SealingKey::create(&sealing).map_err(|error| failed(&error))?));
    let cluster = super::CLUSTER.parse().map_err(|error| failed(&error))?;
    let authority =
        |kind| Authority::generate(kind, &cluster, &custody, suite, now).map_err(|error| failed(&error));
    let (servers, clients) = (authority(CaKind::Db)?, authority(CaKind::DbClient)?);
    let key = |purpose| TlsKey::generate_for(suite, purpose).map_err(|error| failed(&error));
    let (server_key, client_key) = (key(KeyPurpose::DatabaseServer)?, key(KeyPurpose::AgentToDatabase)?);
    let names = [address.to_string()];
    let request = DatabaseServerRequest { names: &names, tls_spki: server_key.spki_der() };
    let server = issue_database_server(&servers, &request, now, LIFETIME).map_err(|error| failed(&error))?;
    let client = issue_database_client(&clients, USER, client_key.spki_der(), now, LIFETIME)
        .map_err(|error| failed(&error))?;
    fs::remove_file(&sealing).at("remove", &sealing)?;
    Ok(Made {
        authority: server.ca_pem,
        server: (server.pem, server_key.pkcs8_pem().to_string()),
        clients: client.ca_pem,
        client: (client.pem, client_key.pkcs8_pem().to_string()),
    })
}

/// The directory with `initdb` and `postgres`: the newest of Debian's, what `pg_config` says, or one of `PATH`.
///
/// # Errors
/// [`TestbedError::Missing`] when there is none.
pub fn programs() -> Result<PathBuf, TestbedError> {
    let complete = |path: &PathBuf| path.join("initdb").exists() && path.join("postgres").exists();
    let mut versions: Vec<PathBuf> = fs::read_dir(DEBIAN)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let number = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok()).unwrap_or(0)
    };
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    let configured = Command::new("pg_config")
        .arg("--bindir")
        .output()
        .ok()
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .map(|path| path.join("bin"))
        .chain(configured)
        .chain(std::env::split_paths(&paths))
        .find(complete)
        .ok_or_else(|| TestbedError::Missing {
            program: "initdb".to_owned(),
            source: std::io::Error::from(std::io::ErrorKind::NotFound),
            hint: HINT,
        })
}
