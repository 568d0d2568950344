//! The machine's PostgreSQL, with a data directory, a port and authorities of its own.

mod server;

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sallyport_ca::keys::TlsKey;
use sallyport_ca::{Authority, CaKind, DatabaseServerRequest, issue_database_client, issue_database_server};
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::{KeyPurpose, Suite};
use time::{Duration, OffsetDateTime};

pub use self::server::{Place, Server, Setup, programs};
use crate::{AtFile, Cluster, Process, Shape, Site, TestbedError, output, write_private};

/// The name that a server on loopback proves.
pub const HOST: &str = "127.0.0.1";
/// The database's name in clusters.
pub const DATABASE: &str = "lab-db";
/// The database user, and the database.
pub const USER: &str = "lab";

/// How long its certificates live: longer than any measurement.
const LIFETIME: Duration = Duration::hours(8);
/// The authorities of its clients.
const CLIENTS: &str = "clients.pem";
/// Connections that it takes: for as many idle sessions.
const CONNECTIONS: usize = 1200;

/// The running server.
#[derive(Debug)]
pub struct Postgres {
    /// Where it listens, which is the name that it proves. It takes TLS with a client certificate and nothing else.
    pub address: IpAddr,
    /// Which release it is, as it says itself.
    pub version: String,
    /// The authority that signed its certificate, PEM.
    pub ca_pem: String,
    /// A certificate of the user and its key, PEM, for those who go straight to it.
    pub client_pem: (String, String),
    server: Server,
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
        let place = Place::new()?;
        let made = certify(place.path(), address)?;
        let certificate = place.write("server.crt", &made.server.0)?;
        let key = place.write("server.key", &made.server.1)?;
        let clients = place.write(CLIENTS, &made.clients)?;
        let server = place.start(&Setup {
            site,
            rules: host_access(address),
            tls: [&certificate, &key, &clients],
            settings: &format!(
                "max_connections = {CONNECTIONS}\nshared_buffers = 128MB\nmax_wal_size = 4GB\nautovacuum = off\n\
                 logging_collector = off\n"
            ),
            template: None,
        })?;
        let version = server.sql("postgres", "SHOW server_version")?.trim().to_owned();
        server.sql("postgres", &format!("CREATE ROLE {USER} LOGIN"))?;
        server.sql("postgres", &format!("CREATE DATABASE {USER} OWNER {USER}"))?;
        Ok(Self { address, version, ca_pem: made.authority, client_pem: made.client, server })
    }

    /// The postmaster; every connection has a child.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.server.process
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Runs SQL as the superuser, by the socket.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String, TestbedError> {
        self.server.sql(database, statement)
    }

    /// Lets in who shows a certificate of these authorities as well, PEM.
    ///
    /// # Errors
    /// When its files cannot be written, or it does not read them.
    pub fn trust(&self, authorities_pem: &[String]) -> Result<(), TestbedError> {
        let path = self.directory().join(CLIENTS);
        let mut all = fs::read_to_string(&path).at("read", &path)?;
        for pem in authorities_pem {
            all.push_str(pem);
        }
        write_private(&path, &all)?;
        self.server.reload()
    }

    /// `psql` straight to it, with a certificate whose files are made in `directory`, and with these arguments.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn psql(&self, directory: &Path, arguments: &[&str]) -> Result<Command, TestbedError> {
        let mut command = self.program("psql");
        command.args(arguments).env_remove("PGSERVICE");
        command.env("PGHOST", self.address.to_string()).env("PGPORT", self.port().to_string());
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
            self.address,
            self.port()
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
        self.server.place.program(name)
    }

    /// A program that must not be run by root, as the account that runs the server.
    #[must_use]
    pub fn beside(&self, program: &Path) -> Command {
        self.server.place.beside(program)
    }

    /// Where its socket is, and room for those that run as it does.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.server.place.path()
    }

    /// Writes a file that only the account that runs the server can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, TestbedError> {
        self.server.place.write(name, text)
    }
}

/// Over TCP nothing but TLS with a certificate; the socket lies in a directory that others cannot enter.
fn host_access(address: IpAddr) -> &'static str {
    if address.is_loopback() {
        "hostssl all all 127.0.0.1/32 cert\n"
    } else {
        "hostssl all all samenet cert\n"
    }
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
