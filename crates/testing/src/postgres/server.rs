//! A server of the machine's PostgreSQL: its account, its files, its process, and the way in as its superuser.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::{AtFile, Process, Site, TestbedError, output, write_private};

/// Who runs it where we are root, which PostgreSQL refuses to be.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];
/// Where Debian keeps its versions, each with a `bin`.
const DEBIAN: &str = "/usr/lib/postgresql";
/// How long it has to read its files again.
const RELOAD_PATIENCE: Duration = Duration::from_secs(60);

/// How its files are made.
const INITDB: [&str; 5] =
    ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];

const HINT: &str = "install postgresql (Debian, Ubuntu) or put initdb and postgres on PATH";

/// Where a server will be: a directory of its own, since the account that runs it cannot see into others.
#[derive(Debug)]
pub struct Place {
    account: Option<Account>,
    programs: PathBuf,
    directory: TempDir,
}

/// What a server is started with.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Where it listens.
    pub site: &'a Site,
    /// Lines of `pg_hba.conf` for those who come over the network.
    pub rules: &'a str,
    /// The files of its certificate, its key, and the authorities of its clients.
    pub tls: [&'a Path; 3],
    /// More lines of its settings.
    pub settings: &'a str,
    /// Where the files of a new server are kept for those who come later.
    pub template: Option<&'a Path>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The postmaster; every connection has a child.
    pub process: Process,
    /// Its port.
    pub port: u16,
    /// Its files; they go after it.
    pub place: Place,
}

impl Place {
    /// Makes the directory.
    ///
    /// # Errors
    /// What is missing, or cannot be made.
    pub fn new() -> Result<Self, TestbedError> {
        let programs = programs()?;
        let account = Account::unprivileged("PostgreSQL", &ACCOUNTS)?;
        Account::enters_temporary(account, "PostgreSQL")?;
        let directory = tempfile::Builder::new()
            .prefix("sallyport-pg-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        let place = Self { account, programs, directory };
        place.owns(place.path())?;
        Ok(place)
    }

    /// Its directory, where the server's socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Gives a file to the account that runs the server.
    ///
    /// # Errors
    /// When it cannot be given.
    pub fn owns(&self, path: &Path) -> Result<(), TestbedError> {
        self.account.map_or(Ok(()), |account| account.owns(path))
    }

    /// Writes a file that only that account can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, TestbedError> {
        let path = self.path().join(name);
        write_private(&path, text)?;
        self.owns(&path)?;
        Ok(path)
    }

    /// One of PostgreSQL's programs.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// A program that must not be run by root, as the account that runs the server.
    #[must_use]
    pub fn beside(&self, program: &Path) -> Command {
        let mut command = Account::runs(self.account, Command::new(program));
        command.env("LC_ALL", "C.UTF-8").current_dir("/");
        command
    }

    /// The files of a new server.
    fn data(&self, template: Option<&Path>) -> Result<PathBuf, TestbedError> {
        let data = self.path().join("data");
        let Some(template) = template else { return self.made(data, &[]) };
        // An account and a release each have their own.
        let owner = self.account.map_or_else(|| "own".to_owned(), |account| account.number().to_string());
        let release = self.programs.display().to_string().replace('/', "-");
        let kept = template.join(format!("postgresql{release}-{owner}"));
        if !kept.exists() {
            // Small files of its log: a copy of 16 MiB takes longer than all else.
            let made = self.made(self.path().join("template"), &["--wal-segsize=1"])?;
            // The first of several that make one wins, in this process or in others.
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let beside = kept.with_extension(format!("{}-{number}", std::process::id()));
            output("cp", Command::new("cp").args(["-a", "--reflink=auto"]).args([&made, &beside]))?;
            if fs::rename(&beside, &kept).is_err() {
                let _ = fs::remove_dir_all(&beside);
            }
        }
        output("cp", Command::new("cp").args(["-a", "--reflink=auto"]).args([&kept, &data]))?;
        Ok(data)
    }

    fn made(&self, data: PathBuf, more: &[&str]) -> Result<PathBuf, TestbedError> {
        output(
            "initdb",
            self.beside(&self.programs.join("initdb")).args(INITDB).args(more).arg("-D").arg(&data),
        )?;
        Ok(data)
    }

    /// Starts a server here, and waits until it is ready.
    ///
    /// # Errors
    /// What did not start, and its last words.
    pub fn start(self, setup: &Setup<'_>) -> Result<Server, TestbedError> {
        let data = self.data(setup.template)?;
        let port = setup.site.free_port()?;
        let settings = settings((setup.site.address(), port), self.path(), setup.tls);
        for (name, text) in [
            ("pg_hba.conf", format!("local all all trust\n{}", setup.rules)),
            ("postgresql.auto.conf", settings + setup.settings),
        ] {
            let path = data.join(name);
            write_private(&path, &text)?;
            self.owns(&path)?;
        }
        let mut command = self.beside(&self.programs.join("postgres"));
        command.arg("-D").arg(&data);
        let directory = self.path();
        let process = setup.site.inside(|| Process::start("postgres", &mut command, directory))??;
        let mut process = process.ending_by(Signal::SIGINT);
        let state = data.join("postmaster.pid");
        process.wait_until("PostgreSQL", || is_ready(&state).then_some(()))?;
        Ok(Server { process, port, place: self })
    }
}

impl Server {
    /// Its sessions do not delay its end: it ends as by a crash.
    #[must_use]
    pub fn ending_at_once(mut self) -> Self {
        self.process = self.process.ending_by(Signal::SIGQUIT);
        self
    }

    /// Runs SQL as the superuser, by the socket.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String, TestbedError> {
        let mut psql = self.place.program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database])
            .args(["-p", &self.port.to_string(), "-c", statement, "-h"])
            .arg(self.place.path())
            .env_remove("PGSERVICE");
        output("psql", &mut psql)
    }

    /// Has it read its files again. A new session knows when the postmaster, which made it, has done so.
    ///
    /// # Errors
    /// When it refuses to, or does not get to it.
    pub fn reload(&self) -> Result<(), TestbedError> {
        let loaded = || self.sql("postgres", "select pg_conf_load_time()");
        let before = loaded()?;
        self.sql("postgres", "select pg_reload_conf()")?;
        let began = Instant::now();
        while loaded()? == before {
            if began.elapsed() > RELOAD_PATIENCE {
                let (what, said) =
                    ("reloading PostgreSQL".to_owned(), "it has not read its files".to_owned());
                return Err(TestbedError::Failed { what, said });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Whether the postmaster's file says so: its eighth line is its state.
fn is_ready(state: &Path) -> bool {
    let text = fs::read_to_string(state).unwrap_or_default();
    text.lines().nth(7).is_some_and(|state| state.trim() == "ready")
}

fn settings(
    (address, port): (IpAddr, u16),
    sockets: &Path,
    [certificate, key, clients]: [&Path; 3],
) -> String {
    format!(
        "port = {port}\nlisten_addresses = '{address}'\nunix_socket_directories = '{}'\nunix_socket_permissions = 0700\n\
         ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\nssl_ca_file = '{}'\n\
         fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n",
        sockets.display(),
        certificate.display(),
        key.display(),
        clients.display()
    )
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
