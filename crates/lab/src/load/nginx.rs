//! The machine's nginx, with a configuration, ports and certificates of the lab's own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sallyport_bench::AtFile;
use sallyport_sal::measure::certificate::{self, Role};
use sallyport_sal::tls::rustls::RootCertStore;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use sallyport_testing::account::Account;
use sallyport_testing::{Process, free_port, write_private};
use tempfile::TempDir;

use super::client::{Target, Tls};
use super::cores::Cores;
use super::target::trusting;
use crate::LabError;

const HINT: &str = "the lab measures nginx: install nginx-light (Debian, Ubuntu) or put nginx on PATH";

/// Where the daemon is, which need not be on a user's `PATH`.
const PLACES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin"];
/// Who runs it where we are root.
const ACCOUNTS: [&str; 3] = ["www-data", "nginx", "nobody"];
/// Connections of one worker: more than the load ever has.
const CONNECTIONS: usize = 8192;
/// How long the workers have to appear, where their sockets can be seen at all.
const WORKERS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// Keys that nginx and the client both take.
const KEYS: [KeyAlgorithm; 6] = [
    KeyAlgorithm::Rsa2048,
    KeyAlgorithm::Rsa3072,
    KeyAlgorithm::Rsa4096,
    KeyAlgorithm::EcdsaP256,
    KeyAlgorithm::EcdsaP384,
    KeyAlgorithm::Ed25519,
];
/// The authority's key: the same for all, so that a client has the same chain to verify whatever the server's key.
const AUTHORITY: KeyAlgorithm = KeyAlgorithm::EcdsaP256;

/// One of its ports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listener {
    pub address: SocketAddr,
    /// None: plain HTTP.
    pub key: Option<KeyAlgorithm>,
    /// Whether it gives tickets for resumption.
    pub tickets: bool,
}

/// The running server.
#[derive(Debug)]
pub(super) struct Nginx {
    /// The master; it ends its workers.
    _process: Process,
    pub listeners: Vec<Listener>,
    pub roots: RootCertStore,
    /// Release and library, as it says itself.
    pub version: String,
    /// How many workers it has.
    pub workers: usize,
    // Last: the server ends before its files go.
    _directory: TempDir,
}

impl Nginx {
    /// How a port of it is asked.
    pub(super) fn target(&self, listener: &Listener, patience: Duration) -> Result<Target, LabError> {
        let tls = match listener.key {
            None => None,
            Some(_) => Some(Tls {
                config: trusting(self.roots.clone(), listener.tickets)?,
                name: ServerName::try_from("localhost").map_err(|error| failed(&error))?,
            }),
        };
        Ok(Target::new(listener.address, tls, &listener.address.to_string(), "/", patience))
    }

    /// Starts it with a port for plain HTTP and one for each type of key; where sessions are resumed, a second one.
    pub(super) fn start(
        keys: &[KeyAlgorithm],
        resume: bool,
        page_bytes: usize,
        cores: &Cores,
    ) -> Result<Self, LabError> {
        if let Some(key) = keys.iter().find(|key| !KEYS.contains(key)) {
            let known: Vec<&str> = KEYS.iter().map(|key| key.name()).collect();
            return Err(LabError::Input(format!(
                "nginx cannot be measured with {key}: it takes {}",
                known.join(", ")
            )));
        }
        let program = program();
        let version = version(&program)?;
        let account = Account::unprivileged("nginx", &ACCOUNTS)?;
        Account::enters_temporary(account, "nginx")?;
        // Of its own: the account that runs it cannot see into the lab's.
        let directory = tempfile::Builder::new()
            .prefix("sallyport-lab-nginx-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        let root = directory.path();
        let give = |path: &Path| account.map_or(Ok(()), |account| account.owns(path));
        give(root)?;
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            write_private(&path, text)?;
            give(&path)
        };
        let pages = root.join("pages");
        std::fs::create_dir(&pages).at("make", &pages)?;
        give(&pages)?;
        write("pages/index.html", &page(page_bytes))?;
        let authority = MemoryKey::generate(AUTHORITY).map_err(|error| failed(&error))?;
        let certified = |key: &MemoryKey, number, role| {
            certificate::issue(&key.public_key(), number, role, &authority, 1).map_err(|error| failed(&error))
        };
        let mut roots = RootCertStore::empty();
        let root_certificate = CertificateDer::from(certified(&authority, 1, Role::Authority)?);
        roots.add(root_certificate).map_err(|error| failed(&error))?;
        let mut listeners = vec![Listener { address: free_address()?, key: None, tickets: false }];
        for (number, algorithm) in (2..).zip(keys) {
            let key = MemoryKey::generate(*algorithm).map_err(|error| failed(&error))?;
            let leaf = certified(&key, number, Role::Leaf)?;
            write(&format!("{algorithm}.crt"), &pem(&leaf))?;
            write(&format!("{algorithm}.key"), &key.to_pkcs8_pem().map_err(|error| failed(&error))?)?;
            listeners.push(Listener { address: free_address()?, key: Some(*algorithm), tickets: false });
            if resume {
                listeners.push(Listener { address: free_address()?, key: Some(*algorithm), tickets: true });
            }
        }
        let workers = cores.server.len();
        write("nginx.conf", &configuration(root, workers, &listeners))?;
        let mut process = cores.on_server(|| {
            let mut command = Account::runs(account, Command::new(&program));
            command
                .arg("-p")
                .arg(root)
                .arg("-e")
                .arg(root.join("error.log"))
                .arg("-c")
                .arg(root.join("nginx.conf"));
            Ok(Process::start("nginx", command.current_dir("/"), root)?)
        })?;
        for listener in &listeners {
            process.wait_until("nginx", || std::net::TcpStream::connect(listener.address).ok())?;
        }
        // The master listens before it has made its workers, who are to be counted.
        let complete = |listener: &Listener| super::target::listeners(listener.address).len() > workers;
        let began = std::time::Instant::now();
        while !listeners.iter().all(complete) && began.elapsed() < WORKERS_PATIENCE {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(Self { _process: process, listeners, roots, version, workers, _directory: directory })
    }
}

fn free_address() -> Result<SocketAddr, LabError> {
    Ok(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|directory| directory.join("nginx"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("nginx"))
}

/// The release and the TLS library: two lines of what `nginx -V` says.
fn version(program: &Path) -> Result<String, LabError> {
    let mut command = Command::new(program);
    let output = command.arg("-V").output().map_err(|source| LabError::Missing {
        program: program.display().to_string(),
        source,
        hint: HINT,
    })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of = |beginning: &str| said.lines().find(|line| line.starts_with(beginning)).unwrap_or_default();
    let release = of("nginx version: ").trim_start_matches("nginx version: ").replace('/', " ");
    Ok(format!("{release}, {}", of("built with ")).trim_end_matches(", ").to_owned())
}

/// A page of exactly so many bytes.
fn page(bytes: usize) -> String {
    let mut page = "<!doctype html><title>lab</title>\n".to_owned();
    while page.len() < bytes {
        page.push_str("What does this key cost?\n");
    }
    page.truncate(bytes);
    page
}

/// As a fresh installation serves a small page, without a log; nothing of the machine's configuration takes part.
fn configuration(root: &Path, workers: usize, listeners: &[Listener]) -> String {
    let root = root.display();
    let mut text = format!(
        "daemon off;\nworker_processes {workers};\npid {root}/nginx.pid;\nerror_log {root}/error.log error;\n\
         events {{ worker_connections {CONNECTIONS}; }}\nhttp {{\n  access_log off;\n  default_type text/html;\n  \
         sendfile on;\n  tcp_nopush on;\n  keepalive_timeout 60s;\n  keepalive_requests 1000000000;\n  \
         client_body_temp_path {root}/body;\n  proxy_temp_path {root}/proxy;\n  fastcgi_temp_path {root}/fastcgi;\n  \
         uwsgi_temp_path {root}/uwsgi;\n  scgi_temp_path {root}/scgi;\n  ssl_protocols TLSv1.3;\n  \
         ssl_session_cache off;\n"
    );
    for listener in listeners {
        let Listener { address, key, tickets } = listener;
        let secure = if key.is_some() { " ssl" } else { "" };
        text.push_str(&format!("  server {{\n    listen {address}{secure};\n    root {root}/pages;\n"));
        if let Some(key) = key {
            let tickets = if *tickets { "on" } else { "off" };
            text.push_str(&format!(
                "    ssl_certificate {root}/{key}.crt;\n    ssl_certificate_key {root}/{key}.key;\n    \
                 ssl_session_tickets {tickets};\n"
            ));
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

fn pem(der: &[u8]) -> String {
    let base64 = data_encoding::BASE64.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in base64.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn failed(error: &dyn std::fmt::Display) -> LabError {
    LabError::Failed { what: "making keys and certificates for nginx".to_owned(), said: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_nginx_names_its_package() {
        let said = version(Path::new("/nowhere/nginx")).map_err(|error| error.to_string());
        assert!(said.as_ref().is_err_and(|said| said.contains("nginx-light")), "{said:?}");
    }

    #[test]
    fn a_page_has_the_length_that_was_asked_for() {
        for bytes in [0, 1, 33, 34, 512, 100_000] {
            assert_eq!(page(bytes).len(), bytes);
        }
    }

    #[test]
    fn each_port_has_its_key_and_nothing_is_outside_of_the_directory() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4711));
        let listeners = [
            Listener { address, key: None, tickets: false },
            Listener { address, key: Some(KeyAlgorithm::Rsa2048), tickets: true },
        ];
        let text = configuration(Path::new("/lab"), 3, &listeners);
        for line in [
            "worker_processes 3;",
            "    listen 127.0.0.1:4711;",
            "    listen 127.0.0.1:4711 ssl;",
            "    ssl_certificate_key /lab/rsa-2048.key;",
            "    ssl_session_tickets on;",
            "  ssl_protocols TLSv1.3;",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
