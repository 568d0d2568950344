//! The browser: found, started with a profile of its own, and gone afterwards with everything that it started.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sallyport_bench::AtFile;
use tempfile::TempDir;

use crate::LabError;

/// What it is called, by the first that is there.
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
const HINT: &str = "install it (Debian: apt-get install chromium), or name one with --browser PATH";

/// How the browser comes to believe the lab's root certificate.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// It is in the NSS database of the run's home directory, and chains are verified as any.
    Database(PathBuf),
    /// The browser is told to overlook errors of chains that have one of these public keys: it does not verify them.
    Overlook(String),
}

impl Trust {
    /// By a database where `certutil` is there to make one, else by telling the browser to overlook errors.
    pub(super) fn make(root: &[u8], pins: String, directory: &Path) -> Result<Self, LabError> {
        let database = directory.join("nssdb");
        let file = directory.join("root.der");
        std::fs::create_dir(&database).at("make", &database)?;
        std::fs::write(&file, root).at("write", &file)?;
        let name = format!("sql:{}", database.display());
        let certutil = |arguments: &[&str]| {
            Command::new("certutil")
                .args(["-d", &name])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        let file = file.display().to_string();
        let made = certutil(&["-N", "--empty-password"])
            && certutil(&["-A", "-t", "C,,", "-n", "sallyport lab", "-i", &file]);
        Ok(if made { Self::Database(database) } else { Self::Overlook(pins) })
    }

    /// In words, for the report.
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Database(_) => {
                "the root certificate is trusted by an NSS database in the run's home directory, and the chain is \
                 verified as any other"
            }
            Self::Overlook(_) => {
                "the browser is told to overlook errors of our chains (--ignore-certificate-errors-spki-list), so \
                 that verifying the chain is NOT in the figures; with `certutil` (Debian: libnss3-tools) it would be"
            }
        }
    }
}

/// A browser that can be started.
#[derive(Debug)]
pub(super) struct Browser {
    program: PathBuf,
    /// What it says of itself.
    pub(super) version: String,
    /// Whether it runs without its sandbox, which root cannot have.
    pub(super) unconfined: bool,
}

impl Browser {
    /// The one that is named, or the first that is there.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, LabError> {
        let program = match named {
            Some(path) => path.to_owned(),
            None => {
                NAMES.iter().find_map(|name| on_the_path(name)).unwrap_or_else(|| PathBuf::from("chromium"))
            }
        };
        let missing =
            |source| LabError::Missing { program: program.display().to_string(), source, hint: HINT };
        let output =
            Command::new(&program).arg("--version").stdin(Stdio::null()).output().map_err(missing)?;
        let version = String::from_utf8_lossy(&output.stdout).trim().chars().take(100).collect::<String>();
        if !output.status.success() || !version.to_ascii_lowercase().contains("chrom") {
            return Err(LabError::Input(format!(
                "{} --version does not say what a browser says: {version:?}",
                program.display()
            )));
        }
        Ok(Self { program, version, unconfined: rustix::process::geteuid().is_root() })
    }

    /// Starts it with a fresh profile, at this address.
    pub(super) fn start(&self, trust: &Trust, address: &str) -> Result<Run, LabError> {
        let home = tempfile::Builder::new()
            .prefix("sallyport-browser-")
            .tempdir()
            .at("make a directory in", &std::env::temp_dir())?;
        let profile = home.path().join("profile");
        let preferences = profile.join("Default/Preferences");
        std::fs::create_dir_all(profile.join("Default")).at("make", &profile)?;
        // Never connect before a navigation needs it: the page would not see the handshake then.
        std::fs::write(&preferences, r#"{"net":{"network_prediction_options":2}}"#)
            .at("write", &preferences)?;
        let log = home.path().join("log");
        let file = std::fs::File::create(&log).at("write", &log)?;
        let mut command = Command::new(&self.program);
        command
            .args([
                "--headless=new",
                "--no-first-run",
                "--no-default-browser-check",
                "--disable-gpu",
                "--mute-audio",
            ])
            // Nothing that the browser does for itself shall be in the way of what is measured.
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args([
                "--disable-default-apps",
                "--disable-extensions",
                "--disable-breakpad",
                "--password-store=basic",
            ])
            .args(["--no-proxy-server", "--disable-quic"])
            .arg(format!("--user-data-dir={}", profile.display()));
        if self.unconfined {
            command.arg("--no-sandbox");
        }
        match trust {
            Trust::Database(database) => {
                let own = home.path().join(".pki/nssdb");
                std::fs::create_dir_all(&own).at("make", &own)?;
                for entry in std::fs::read_dir(database).at("read", database)? {
                    let from = entry.at("read", database)?;
                    std::fs::copy(from.path(), own.join(from.file_name())).at("copy", &from.path())?;
                }
            }
            Trust::Overlook(pins) => {
                command.arg(format!("--ignore-certificate-errors-spki-list={pins}"));
            }
        }
        command
            .arg(address)
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("XDG_CONFIG_HOME", home.path().join(".config"))
            .env("XDG_CACHE_HOME", home.path().join(".cache"))
            // Where else a database of certificates might be looked for.
            .env_remove("XDG_DATA_HOME")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            // Ctrl-C at the terminal is for the lab, which ends the browser itself.
            .process_group(0);
        let child = command.spawn().map_err(|source| LabError::Missing {
            program: self.program.display().to_string(),
            source,
            hint: HINT,
        })?;
        Ok(Run { child, home, log })
    }
}

fn on_the_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// A browser that runs. It is killed when this goes.
#[derive(Debug)]
pub(super) struct Run {
    child: Child,
    home: TempDir,
    log: PathBuf,
}

impl Run {
    /// Whether it ended by itself.
    pub(super) fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The last of what it said.
    pub(super) fn said(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let mut lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.reverse();
        lines.join(" | ").chars().filter(|letter| !letter.is_control()).take(600).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        // What left the group (a crash handler does) has the profile's name, which is ours alone, in its arguments.
        let mine = self.home.path().as_os_str().as_encoded_bytes();
        for _ in 0..20 {
            let left = processes_with(mine);
            if left.is_empty() {
                break;
            }
            for process in left {
                let _ = kill_process(process, Signal::KILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
    }
}

/// Processes of ours that have these words in their arguments.
fn processes_with(words: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    entries
        .flatten()
        .filter_map(number)
        .filter(|number| {
            std::fs::read(format!("/proc/{number}/cmdline"))
                .is_ok_and(|line| line.windows(words.len().max(1)).any(|window| window == words))
        })
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != rustix::process::getpid())
        .collect()
}
