//! The build with the FIPS module, from its sources to the whole job.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{
    PROGRAM, Process, at_another_time, free_port, me, ok, refused, ssh_command, stdout, wait_for,
};

/// The program with the feature `fips`. Its build is kept apart: the other tests use the program beside which they were built.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    for (program, version, package) in [("cmake", "--version", "cmake"), ("go", "version", "golang-go")] {
        let runs = Command::new(program).arg(version).stdout(Stdio::null()).status();
        assert!(runs.is_ok_and(|status| status.success()), "{program} is missing: install {package}");
    }
    // From TARGET/debug/sallyport.
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap().join("fips");
    let mut cargo = Command::new("cargo");
    // The runner names a package to the tests. Build scripts that look at these would run again each time.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(name);
        }
    }
    let arguments = ["build", "--locked", "--package", "sallyport-cli", "--features", "fips"];
    ok(cargo.args(arguments).arg("--target-dir").arg(&target).output().expect("run cargo"));
    target.join("debug").join("sallyport")
}

/// A directory of the quickstart, its address and its files.
struct Place {
    directory: tempfile::TempDir,
    listen: String,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), listen: format!("127.0.0.1:{}", free_port()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn quickstart(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built());
        command.arg("quickstart").args(arguments).arg("--dir").arg(self.path("qs"));
        command.args(["--listen", &self.listen]);
        command
    }

    /// A command of the demonstration's user, in FIPS mode as their machine would be.
    fn alice(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built());
        command.env("SALLYPORT_CRYPTO", "fips").env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
        command.arg("--home").arg(self.path("qs/client")).args(["--proxy", &self.listen]).args(arguments);
        command
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(built());
        command.args(["admin", "--data-dir"]).arg(self.path("qs/data")).args(arguments).output().unwrap()
    }

    fn cryptography(&self) -> Value {
        let status = ok(self.admin(&["status", "--format", "json"]));
        serde_json::from_slice::<Value>(&status.stdout).unwrap()["cryptography"].clone()
    }

    /// The services of authority and proxy on the demonstration's data, under a selection.
    fn services(&self, selection: &str) -> Process {
        let yaml = format!(
            "version: v1\ncluster: quickstart\ndata_dir: {}\ndrain_timeout: 1s\ncrypto:\n  selection: {selection}\nauth:\n  enabled: \
             true\nproxy:\n  enabled: true\n  listen: {listen}\n  public_addr: {listen}\nnode:\n  enabled: false\n",
            self.path("qs/data").display(),
            listen = self.listen,
        );
        let file = self.path("services.yaml");
        std::fs::write(&file, yaml).unwrap();
        let mut command = Command::new(built());
        let process = Process::spawn(command.arg("start").arg("-c").arg(file), self.path("services.log"));
        wait_for("the authority", || self.admin(&["status"]).status.success().then_some(()));
        process
    }

    /// A node in a process of its own, under a selection.
    fn node(&self, selection: &str, join: &str) -> Process {
        let yaml = format!(
            "version: v1\ncluster: quickstart\ndata_dir: {}\ndrain_timeout: 1s\ncrypto:\n  selection: {selection}\nauth:\n  enabled: \
             false\nproxy:\n  enabled: false\nnode:\n  enabled: true\n  name: web-2\n  proxy_server: {}{join}\n",
            self.path("node").display(),
            self.listen,
        );
        let file = self.path(&format!("node-{selection}.yaml"));
        std::fs::write(&file, yaml).unwrap();
        let log = self.path(&format!("node-{selection}.log"));
        Process::spawn(Command::new(built()).arg("start").arg("-c").arg(file), log)
    }

    fn recordings(&self) -> Vec<Value> {
        let mut command = Command::new(built());
        command.args(["recordings", "ls", "--format", "json", "--data-dir"]).arg(self.path("qs/data"));
        serde_json::from_slice(&ok(command.output().unwrap()).stdout).unwrap()
    }

    fn play(&self, session: &str) -> String {
        let mut command = Command::new(built());
        command.args(["play", session, "--format", "text", "--data-dir"]).arg(self.path("qs/data"));
        stdout(&ok(command.output().unwrap()))
    }

    /// Of the session of SSH that the tour has shown.
    fn play_the_tour_s(&self) -> String {
        let found = self.recordings().into_iter().find_map(|one| {
            let session = one["session_id"].as_str()?.to_owned();
            (one["node"] == "web-1" && self.play(&session).contains("hello from")).then_some(session)
        });
        found.expect("the recording of the tour's session")
    }

    /// The user goes on meanwhile, and is told of each new trust.
    fn rotate(&self, kind: &str) {
        let target = format!("{}@web-1", me());
        let goes_on =
            || assert_eq!(stdout(&ok(self.alice(&["ssh", &target, "echo on"]).output().unwrap())), "on\n");
        ok(self.admin(&["ca", "rotate", "--type", kind, "--phase", "init"]));
        loop {
            goes_on();
            let next = wait_for("every host's confirmation", || {
                let status = ok(self.admin(&["ca", "status", "--type", kind, "--format", "json"]));
                let status: Value = serde_json::from_slice(&status.stdout).unwrap();
                let state = &status[0];
                let all = state["not_confirmed"].as_array().is_none_or(Vec::is_empty);
                all.then(|| state["next_phase"].as_str().unwrap_or_default().to_owned())
            });
            ok(self.admin(&["ca", "rotate", "--type", kind, "--phase", &next]));
            if next == "standby" {
                return goes_on();
            }
        }
    }
}

/// What was asked of others than the module, with how often.
fn outside(cryptography: &Value) -> Vec<(String, u64)> {
    let uses = cryptography["uses"].as_array().unwrap();
    assert!(!uses.is_empty(), "{cryptography}");
    let outside = uses.iter().filter(|one| one["in_module"] == false);
    let named = |one: &Value| {
        format!("{} by {}", one["primitive"].as_str().unwrap(), one["provider"].as_str().unwrap())
    };
    outside.map(|one| (named(one), one["times"].as_u64().unwrap())).collect()
}

#[test]
#[ignore = "builds the program once more; `cargo xtask test --measure` runs it"]
fn the_whole_job_in_fips_mode_asks_no_provider_but_the_module() {
    let place = Place::new();
    let mut running =
        Process::spawn(&mut place.quickstart(&["--fips", "--with-postgres"]), place.path("qs.log"));
    let said = wait_for("the end of the tour", || {
        let said = std::fs::read_to_string(place.path("qs.log")).unwrap_or_default();
        if let Some(status) = running.child.try_wait().unwrap() {
            panic!("the quickstart ended: {status}\n{said}");
        }
        said.contains("The cluster stays up").then_some(said)
    });
    assert!(said.contains("hello from") && said.contains("rope|4.50") && said.contains("intact"), "{said}");

    // The native path, and a rotation of the CAs that it and databases rest on.
    for kind in ["user", "host", "db_client"] {
        place.rotate(kind);
    }
    let cryptography = place.cryptography();
    assert_eq!(cryptography["selection"], "fips");
    assert!(cryptography["fips_module"].as_str().unwrap().starts_with("AWS-LC-FIPS "), "{cryptography}");
    assert_eq!(outside(&cryptography), [], "{cryptography}");
    let asked = |primitive: &str| {
        cryptography["uses"].as_array().unwrap().iter().any(|one| one["primitive"] == primitive)
    };
    for primitive in [
        "generate/ecdsa-p256",
        "sign/ecdsa-p256",
        "verify/ecdsa-p256",
        "agree/p256",
        "encapsulate/ml-kem-768",
        "decapsulate/ml-kem-768",
        "aead/aes-128-gcm",
        "aead/aes-256-gcm",
        "hash/sha-256",
        "hmac/sha-256",
        "hmac/sha-512",
        "hmac/sha-1",
        "random",
    ] {
        assert!(asked(primitive), "{primitive}: {cryptography}");
    }

    // Stock OpenSSH: what it agrees on is approved, and nothing is computed for it outside the module.
    let config = place.path("ssh_config");
    std::fs::write(&config, stdout(&ok(place.alice(&["config", "--jump"]).output().unwrap()))).unwrap();
    let run = |options: &[&str]| {
        let target = format!("{}@web-1.quickstart", me());
        ssh_command(&config).args(options).args([&target, "echo stock"]).output().unwrap()
    };
    assert_eq!(stdout(&ok(run(&[]))), "stock\n");
    assert_eq!(
        stdout(&ok(run(&["-o", "RekeyLimit=1K", "-o", "KexAlgorithms=ecdh-sha2-nistp384"]))),
        "stock\n"
    );
    refused(&run(&["-o", "KexAlgorithms=curve25519-sha256"]), 255);
    refused(&run(&["-c", "chacha20-poly1305@openssh.com"]), 255);
    let cryptography = place.cryptography();
    assert_eq!(outside(&cryptography), [], "{cryptography}");
    let uses = cryptography["uses"].as_array().unwrap();
    assert!(!uses.iter().any(|one| one["primitive"] == "ssh/connection"), "{cryptography}");
    assert!(uses.iter().any(|one| one["primitive"] == "agree/p384"), "{cryptography}");

    let events = stdout(&ok(place.admin(&["audit", "ls", "--code", "SP3302I"])));
    for host in ["auth: ", "node:web-1 "] {
        assert!(events.contains(&format!("crypto.module {host}")), "{host}: {events}");
    }

    // What was recorded in this mode plays in it, and in another.
    let session = place.play_the_tour_s();
    running.signal("INT");
    running.child.wait().unwrap();
    let _services = place.services("preset");
    assert!(place.play(&session).contains("hello from"));
    assert_eq!(place.cryptography()["selection"], "preset");
}

#[test]
#[ignore = "builds the program once more; `cargo xtask test --measure` runs it"]
fn a_cluster_moves_to_fips_mode_with_its_recordings_and_its_users() {
    let place = Place::new();
    let said = stdout(&ok(place.quickstart(&["--once"]).output().unwrap()));
    assert!(said.contains("hello from") && said.contains("intact"), "{said}");
    // As it is, it does not start in that mode, and says what to do.
    let said = refused(&place.quickstart(&["--once", "--fips"]).output().unwrap(), 1);
    assert!(said.contains("balanced-v1") && said.contains("admin suite set fips-v1"), "{said}");
    let session = {
        let _services = place.services("preset");
        ok(place.admin(&["suite", "set", "fips-v1", "--yes"]));
        place.play_the_tour_s()
    };
    let services = place.services("fips");
    assert!(place.play(&session).contains("hello from"));
    let said = refused(&place.admin(&["suite", "set", "balanced-v1", "--yes"]), 1);
    assert!(said.contains("in FIPS mode only fips-v1 and legacy are allowed"), "{said}");
    let names: Vec<String> = outside(&place.cryptography()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["agree/x25519 by aws-lc"], "the recording of before was sealed to X25519");
    drop(services);

    // The tour once more, in that mode: its user has a hash of argon2id, its node keys of the suite before.
    let mut tour = place.quickstart(&["--once", "--fips"]);
    let said = stdout(&ok(at_another_time(&mut tour, "+60").output().unwrap()));
    assert!(said.contains("hello from") && said.contains("intact"), "{said}");

    // A client that is not in that mode, where it is required.
    let services = place.services("fips\n  require_fips: true");
    let status: Value =
        serde_json::from_slice(&ok(place.admin(&["status", "--format", "json"])).stdout).unwrap();
    assert_eq!(status["cryptography"]["requires_fips"], true);
    let cas = status["cas"].as_array().unwrap();
    let pin = cas.iter().find(|ca| ca["kind"] == "host").unwrap()["tls_pin"].as_str().unwrap();

    // A node of its own process says it with every call; without the setting it is told at its start.
    let token = ok(place.admin(&["tokens", "add", "--type", "node", "--format", "json"]));
    let token: Value = serde_json::from_slice(&token.stdout).unwrap();
    let join = format!("\n  join:\n    token: {}\n    ca_pin: {pin}", token["token"].as_str().unwrap());
    let node = place.node("fips", &join);
    wait_for("the node's description, which is refused without the word", || {
        let status = ok(place.admin(&["status", "--format", "json"]));
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        (status["nodes_online"] == 1).then_some(())
    });
    drop(node);
    let node = place.node("preset", "");
    wait_for("the authority's word to a node without it", || {
        let said = std::fs::read_to_string(&node.log).unwrap();
        said.contains("this cluster requires FIPS mode").then_some(())
    });
    drop(node);

    let mut login = Command::new(PROGRAM);
    login.arg("--home").arg(place.path("other")).args(["--proxy", &place.listen, "login", "--user", "alice"]);
    std::fs::write(place.path("password"), "a password\n").unwrap();
    let password = std::fs::File::open(place.path("password")).unwrap();
    login.args(["--ca-pin", pin, "--otp", "123456", "--password-stdin"]).stdin(password);
    login.env("SALLYPORT_CRYPTO", "preset");
    let said = refused(&login.output().unwrap(), 1);
    assert!(said.contains("requires FIPS mode") && said.contains("SALLYPORT_CRYPTO=fips"), "{said}");
    drop(services);
}

#[test]
#[ignore = "builds the program once more; `cargo xtask test --measure` runs it"]
fn only_the_module_and_what_ssh_brings_is_linked() {
    // A release has no names of functions; this build has.
    let symbols = ok(Command::new("nm").arg("--demangle").arg(built()).output().expect("run nm (binutils)"));
    let symbols = stdout(&symbols);
    let has = |what: &str| symbols.lines().any(|line| line.contains(what));
    assert!(has("aws_lc_fips_"), "the module");
    // aws-lc-sys gives its symbols this prefix, ring and the others theirs.
    for absent in ["aws_lc_0_", "ring_core_", "graviola::", "libcrux_ml_kem::", "libcrux_ml_dsa::"] {
        let found = symbols.lines().find(|line| line.contains(absent));
        assert_eq!(found, None, "{absent}");
    }
}
