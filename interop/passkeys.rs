//! Passkeys at the pages of a real cluster, in a real browser.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::own_keys::{keygen, type_of_own_key};
use crate::support::{Browser, Cluster, User, me, ok, stderr, stdout, wait_for};

/// A certificate authority that browsers are told to believe, and a page's certificate of it.
pub(crate) struct Page {
    directory: tempfile::TempDir,
}

impl Page {
    pub(crate) fn new() -> Self {
        let page = Self { directory: tempfile::tempdir().unwrap() };
        let openssl = |arguments: &[&str]| {
            let mut command = Command::new("openssl");
            ok(command.args(arguments).current_dir(page.directory.path()).output().unwrap());
        };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        let made = |more: &[&str]| openssl(&[&["req", "-x509"], &key[..], more].concat());
        made(&["-subj", "/CN=the test's", "-keyout", "ca.key", "-out", "ca.pem"]);
        made(&[
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            "extendedKeyUsage=serverAuth",
            "-keyout",
            "page.key",
            "-out",
            "page.pem",
        ]);
        page
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A cluster whose passkeys are of localhost, with this page.
    pub(crate) fn cluster(&self) -> Cluster {
        self.cluster_with("")
    }

    /// With more lines of `auth.authentication`.
    fn cluster_with(&self, more: &str) -> Cluster {
        let proxy = format!(
            "  public_addr: [127.0.0.1:PORT, localhost:PORT]\n  https:\n    certificate: {}\n    key: {}\n",
            self.path("page.pem").display(),
            self.path("page.key").display()
        );
        let auth = "  authentication:\n    webauthn:\n      rp_id: localhost\n      origins: [\"https://localhost:PORT\"]\n";
        Cluster::with_settings(&format!("{auth}{more}"), &proxy)
    }
}

/// A program that was asked to show addresses, and writes them down.
pub(crate) struct Shown {
    file: PathBuf,
    script: PathBuf,
}

impl Shown {
    pub(crate) fn new(directory: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let (file, script) = (directory.join("shown"), directory.join("browser.sh"));
        std::fs::write(&script, format!("#!/bin/sh\nprintf '%s\\n' \"$1\" >> '{}'\n", file.display()))
            .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { file, script }
    }

    /// Starts a command whose person has this browser.
    pub(crate) fn start(&self, user: &User, arguments: &[&str]) -> Child {
        let _ = std::fs::remove_file(&self.file);
        let mut command = user.command(arguments);
        command.env("BROWSER", &self.script);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What it was asked to show.
    pub(crate) fn address(&self) -> String {
        wait_for("an address to open", || {
            let text = std::fs::read_to_string(&self.file).ok()?;
            text.lines().next().filter(|_| text.ends_with('\n')).map(str::to_owned)
        })
    }
}

#[test]
fn a_passkey_made_at_the_invitation_logs_in_by_the_browser() {
    let page = Page::new();
    let cluster = page.cluster();
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(page.directory.path());
    let link = cluster.invite("alice", "access", &me());

    browser.go(&link.replacen("127.0.0.1", "localhost", 1));
    browser.reads("You were invited to");
    browser.fill("Name of the passkey", "test key");
    browser.press("Make a passkey");
    browser.reads("The account of alice is ready");
    // Spent, by whatever way.
    browser.go(&link.replacen("127.0.0.1", "localhost", 1));
    browser.reads("This link has been used");

    // No user name is typed at the page: the passkey says whose it is.
    let alice = User {
        name: "alice".to_owned(),
        home: cluster.path("home-alice"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let login = shown.start(&alice, &["login", "--browser", "--user", "alice", "--ca-pin", &cluster.pin]);
    let address = shown.address();
    browser.go(&address);
    browser.reads("the name it gives itself; it is not checked");
    browser.press("Continue with a passkey");
    ok(login.wait_with_output().unwrap());
    assert!(browser.address().starts_with("http://127.0.0.1:"), "{}", browser.text());
    let status = stdout(&ok(alice.run(&["status", "--format", "json"])));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["user"], &status["expired"]), (&"alice".into(), &false.into()), "{status}");
    ok(alice.run(&["ls"]));
    // The page of a login that is over does nothing more.
    browser.go(&address);
    browser.reads("Start again in your terminal");

    // One that its person did not ask for ends at the page, and the program hears of it.
    let refused = shown.start(&alice, &["login", "--browser"]);
    browser.go(&shown.address());
    browser.press("I did not ask for this");
    browser.reads("You refused this request");
    let mut refused = refused;
    refused.kill().unwrap();
    drop(refused.wait_with_output());
    cluster.wait_event("user.challenge_refused", |_| true);
}

/// The address that a program shows, and the code that it wants typed there.
pub(crate) fn page_and_code(said: &mut impl std::io::BufRead) -> (String, String) {
    let (mut address, mut code) = (None, None);
    while address.is_none() || code.is_none() {
        let mut line = String::new();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "the program has ended");
        let words = line.trim();
        address = address.or_else(|| words.starts_with("https://").then(|| words.to_owned()));
        code = code.or_else(|| words.strip_prefix("and type this code there: ").map(str::to_owned));
    }
    (address.unwrap(), code.unwrap())
}

#[test]
fn a_headless_login_wants_the_code_and_a_new_factor_a_proof() {
    let page = Page::new();
    let cluster = page.cluster();
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(page.directory.path());
    let link = cluster.invite("bob", "access", &me());
    browser.go(&link.replacen("127.0.0.1", "localhost", 1));
    browser.fill("Name of the passkey", "test key");
    browser.press("Make a passkey");
    browser.reads("The account of bob is ready");

    let bob = User {
        name: "bob".to_owned(),
        home: cluster.path("home-bob"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let key = keygen(cluster.path("id"));
    let own = ["--ssh-key", key.to_str().unwrap()];
    let arguments = ["login", "--headless", "--user", "bob", "--ca-pin", &cluster.pin];
    let mut login = shown.start(&bob, &[&arguments[..], &own].concat());
    let mut said = std::io::BufReader::new(login.stderr.take().unwrap());
    let (address, code) = page_and_code(&mut said);
    browser.go(&address);
    browser.reads("Go on only if you started this login yourself");
    browser.fill("Code that the program shows", "BBBB-BBBB");
    browser.press("Continue with a passkey");
    browser.reads("The code is not the one that the terminal shows");
    browser.fill("Code that the program shows", &code.to_lowercase());
    browser.press("Continue with a passkey");
    browser.reads("goes on by itself within a few seconds");
    ok(login.wait_with_output().unwrap());
    assert_eq!(type_of_own_key(&bob), "ssh-ed25519");
    ok(bob.run(&["ls"]));

    // A passkey more: approved by the one there is, then made; a device that has one is told so.
    let mut add = shown.start(&bob, &["mfa", "add", "second", "--kind", "passkey", "--browser"]);
    let mut said = std::io::BufReader::new(add.stderr.take().unwrap());
    let (approve, code) = page_and_code(&mut said);
    browser.go(&approve);
    browser.reads("Confirm a new factor");
    browser.reads("Go on only if you started this yourself");
    browser.fill("Code that the program shows", &code);
    browser.press("Approve with a passkey");
    browser.reads("Approved");
    let (enrol, code) = page_and_code(&mut said);
    assert!(enrol.contains("/enrol#"), "{enrol}");
    browser.go(&enrol);
    browser.fill("Code that the program shows", "BBBB-BBBB");
    browser.press("Make the passkey");
    browser.reads("The code is not the one that the terminal shows");
    browser.fill("Code that the program shows", &code);
    browser.press("Make the passkey");
    browser.reads("This device or key has a passkey for your account already");
    add.kill().unwrap();
    let said = add.wait_with_output().unwrap();
    assert!(!said.status.success(), "{}", stderr(&said));

    // The page of factors lists the one that there is, and keeps it: it is all that its user logs in by.
    let mut list = shown.start(&bob, &["mfa", "ls", "--browser"]);
    let mut said = std::io::BufReader::new(list.stderr.take().unwrap());
    let (factors, code) = page_and_code(&mut said);
    assert!(factors.contains("/factors#"), "{factors}");
    browser.go(&factors);
    browser.fill("Code that the program shows", "BBBB-BBBB");
    browser.press("Show them");
    browser.reads("The code is not the one that the terminal shows");
    assert!(!browser.text().contains("test key"), "{}", browser.text());
    browser.fill("Code that the program shows", &code);
    browser.press("Show them");
    browser.reads("test key");
    browser.press("Remove");
    browser.reads("is your last factor");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    assert!(rest.contains("The page is good until"), "{rest}");
    ok(list.wait_with_output().unwrap());
}

#[test]
fn an_administrator_admits_a_device_at_the_page_that_shows_it() {
    let page = Page::new();
    let cluster = page.cluster_with("    devices: { allow_file_keys: true }\n");
    let mut browser = Browser::start(&page.path("ca.pem"));
    let shown = Shown::new(page.directory.path());
    let link = cluster.invite("root", "access,editor", &me());
    browser.go(&link.replacen("127.0.0.1", "localhost", 1));
    browser.fill("Name of the passkey", "test key");
    browser.press("Make a passkey");
    browser.reads("The account of root is ready");
    let root = User {
        name: "root".to_owned(),
        home: cluster.path("home-root"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let login = shown.start(&root, &["login", "--browser", "--user", "root", "--ca-pin", &cluster.pin]);
    browser.go(&shown.address());
    browser.press("Continue with a passkey");
    ok(login.wait_with_output().unwrap());

    let alice = cluster.add_user("alice", "access", &me());
    let enrolled = stdout(&ok(alice.run(&["device", "enroll", "--file", "--format", "json"])));
    let enrolled: serde_json::Value = serde_json::from_str(&enrolled).unwrap();
    let id = enrolled["id"].as_str().unwrap();
    let mut assign = shown.start(&root, &["admin", "devices", "assign", id, "--browser"]);
    let mut said = std::io::BufReader::new(assign.stderr.take().unwrap());
    let (approve, code) = page_and_code(&mut said);
    browser.go(&approve);
    browser.reads("Admit a trusted device");
    browser.reads(id);
    browser.reads(enrolled["key_sha256"].as_str().unwrap());
    browser.reads("what the machine says of itself; it is not checked");
    browser.fill("Code that the program shows", &code);
    browser.press("Approve with a passkey");
    browser.reads("Approved");
    let done = stdout(&ok(assign.wait_with_output().unwrap()));
    assert!(done.contains("is enrolled for alice"), "{done}");
    cluster.wait_event("admin.factor_proven", |event| event["fields"]["device"] == id);
}
