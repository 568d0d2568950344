//! The `openssl` program: what it knows, and its processes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sallyport_sal::KeyAlgorithm;
use sallyport_sal::algorithm::{KexGroup, KeyKind};

/// How long one process or connection may take; a busy machine is slow.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The installed OpenSSL.
pub(crate) struct Installed {
    /// As `openssl version` says it, such as `OpenSSL 3.0.19 27 Jan 2026`.
    pub(crate) version: String,
    algorithms: Vec<String>,
}

impl Installed {
    /// None when there is none.
    pub(crate) fn find() -> Option<Self> {
        let run = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).stdin(Stdio::null()).output();
            match output {
                Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    println!("skipped: openssl is not installed");
                    None
                }
                Err(error) => panic!("openssl: {error}"),
            }
        };
        let version = run(&["version"])?.trim().to_owned();
        let lists = run(&["list", "-kem-algorithms", "-signature-algorithms"])?;
        let algorithms = lists
            .split(|c: char| c.is_whitespace() || "{},".contains(c))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        Some(Self { version, algorithms })
    }

    fn lists(&self, name: &str) -> bool {
        self.algorithms.iter().any(|one| *one == name.to_lowercase())
    }

    /// The classic groups are known to every version that speaks TLS 1.3.
    pub(crate) fn knows_group(&self, group: KexGroup) -> bool {
        matches!(group, KexGroup::X25519 | KexGroup::P256 | KexGroup::P384) || self.lists(group.name())
    }

    pub(crate) fn knows_key(&self, algorithm: KeyAlgorithm) -> bool {
        algorithm.kind() != KeyKind::MlDsa || self.lists(algorithm.name())
    }
}

/// A process, killed when it is dropped. What it says goes to files.
pub(crate) struct Program {
    child: Child,
    output: PathBuf,
}

impl Program {
    pub(crate) fn start(directory: &Path, arguments: &[String]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let output = directory.join(format!("output-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let file = File::options().create_new(true).append(true).open(&output).unwrap();
        let child = Command::new("openssl")
            .args(arguments)
            // Neither the machine's configuration nor its language changes what is said.
            .env("OPENSSL_CONF", "/dev/null")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, output }
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    /// Writes to its standard input, which stays open.
    pub(crate) fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The port that a server chose.
    pub(crate) fn port(&mut self) -> u16 {
        let began = Instant::now();
        loop {
            let said = self.said();
            // The line is whole when its end is there.
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            let port = whole.lines().find_map(|line| line.strip_prefix("ACCEPT 127.0.0.1:"));
            if let Some(port) = port {
                return port.parse().unwrap();
            }
            assert!(self.is_running() && began.elapsed() < TIME_LIMIT, "no server: {said}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it ends by itself.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, self.said());
            }
            assert!(began.elapsed() < TIME_LIMIT, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it ends well, and gives what it said.
    pub(crate) fn finish(&mut self) -> String {
        let (status, said) = self.end();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
