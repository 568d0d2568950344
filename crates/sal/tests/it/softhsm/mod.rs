//! A SoftHSM2 of its own for each test.
//!
//! The module reads its configuration from the environment when it starts, and starts once in a process: so each test
//! runs again in a process of its own, which is this program with other arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sallyport_sal::SalError;
use sallyport_sal::custody::token::{Pin, PinSource, TokenChoice, TokenConfig, TokenCustody};

pub(crate) const PIN: &str = "271828";
pub(crate) const SO_PIN: &str = "31415926";
pub(crate) const LABEL: &str = "sallyport ca";
/// How long a test waits for what must happen; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the process of a test finds its directory.
const DIRECTORY: &str = "SALLYPORT_TEST_SOFTHSM";

/// The directory of a test, with a configuration and one initialised token.
pub(crate) struct SoftHsm {
    directory: PathBuf,
}

/// Runs the body of the test `name` in a process of its own. `extra` is added to SoftHSM's configuration.
pub(crate) fn alone(name: &str, extra: &str, body: fn(&SoftHsm)) {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        body(&SoftHsm { directory: directory.into() });
        return;
    }
    let _ = module();
    let directory = tempfile::tempdir().unwrap();
    let hsm = SoftHsm { directory: directory.path().to_owned() };
    std::fs::create_dir(hsm.tokens()).unwrap();
    std::fs::write(
        hsm.configuration(),
        format!(
            "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n{extra}\n",
            hsm.tokens().display()
        ),
    )
    .unwrap();
    hsm.add_token(LABEL);
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env(DIRECTORY, &hsm.directory)
        .env("SOFTHSM2_CONF", hsm.configuration());
    let output = again.output().unwrap();
    let said = said(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{name} failed in its own process\n{said}");
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The module of the package.
pub(crate) fn module() -> PathBuf {
    [
        "/usr/lib/softhsm/libsofthsm2.so",
        "/usr/lib64/softhsm/libsofthsm2.so",
        "/usr/lib64/libsofthsm2.so",
        "/usr/local/lib/softhsm/libsofthsm2.so",
    ]
    .iter()
    .map(PathBuf::from)
    .find(|path| path.exists())
    .unwrap_or_else(|| panic!("libsofthsm2.so is not installed; install it: apt-get install -y softhsm2"))
}

impl SoftHsm {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn configuration(&self) -> PathBuf {
        self.path("softhsm2.conf")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.path("tokens")
    }

    /// Initialises one more token, which a module that runs already does not see.
    pub(crate) fn add_token(&self, label: &str) {
        let output = Command::new("softhsm2-util")
            .args(["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", SO_PIN])
            .env("SOFTHSM2_CONF", self.configuration())
            .output()
            .unwrap_or_else(|error| {
                panic!("softhsm2-util does not run ({error}); install it: apt-get install -y softhsm2")
            });
        assert!(output.status.success(), "{}", said(&output));
    }

    pub(crate) fn config(&self) -> TokenConfig {
        self.config_with(PIN)
    }

    pub(crate) fn config_with(&self, pin: &str) -> TokenConfig {
        TokenConfig::new(
            module(),
            TokenChoice::Label(LABEL.to_owned()),
            PinSource::Value(Pin::new(pin.to_owned())),
        )
    }

    pub(crate) fn custody(&self) -> TokenCustody {
        TokenCustody::open(&self.config()).unwrap()
    }

    /// The directory of the only token.
    fn token(&self) -> PathBuf {
        let mut tokens = std::fs::read_dir(self.tokens()).unwrap();
        let token = tokens.next().unwrap().unwrap().path();
        assert!(tokens.next().is_none());
        token
    }

    /// Pulls the only token out, as far as a directory can be pulled out.
    pub(crate) fn pull_out(&self) -> Pulled {
        let home = self.token();
        let away = self.path("pulled out");
        std::fs::rename(&home, &away).unwrap();
        Pulled { home, away }
    }
}

/// A token that is out.
pub(crate) struct Pulled {
    home: PathBuf,
    away: PathBuf,
}

impl Pulled {
    pub(crate) fn put_back(self) {
        std::fs::rename(self.away, self.home).unwrap();
    }
}

/// Tries until it succeeds: a token that was put back is looked for at most twice a second.
pub(crate) fn soon<T, E: std::fmt::Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => {
                assert!(began.elapsed() < PATIENCE, "still failing: {error}")
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What went wrong, in the words that an operator reads.
pub(crate) fn words<T>(result: Result<T, SalError>) -> String {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.to_string(),
    }
}

/// Asks the `openssl` program whether a signature is good. `options` say by which scheme.
pub(crate) fn openssl_agrees(
    directory: &Path,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
    options: &[&str],
) -> bool {
    let file = |name: &str, content: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        data_encoding::BASE64
            .encode(spki)
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    );
    let output = Command::new("openssl")
        .args(["pkeyutl", "-verify", "-pubin", "-rawin", "-inkey"])
        .arg(file("public.pem", pem.as_bytes()))
        .arg("-in")
        .arg(file("message", message))
        .arg("-sigfile")
        .arg(file("signature", signature))
        .args(options)
        .output()
        .unwrap_or_else(|error| {
            panic!("openssl does not run ({error}); install it: apt-get install -y openssl")
        });
    output.status.success() && said(&output).contains("Signature Verified Successfully")
}
