//! CA keys in PKCS#11 tokens, with real clusters and SoftHSM2.

use crate::support;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Cluster, User, me, ok, stderr, stdout, wait_for};
use tempfile::TempDir;

const PIN: &str = "271828";

/// Tokens of their own.
struct Tokens {
    directory: TempDir,
}

impl Tokens {
    fn new(labels: &[&str]) -> Self {
        let tokens = Self { directory: tempfile::tempdir().unwrap() };
        let place = tokens.directory.path().join("tokens");
        fs::create_dir(&place).unwrap();
        let settings = format!("directories.tokendir = {}\nobjectstore.backend = file\n", place.display());
        fs::write(tokens.configuration(), settings).unwrap();
        for label in labels {
            let mut make = Command::new("softhsm2-util");
            make.args(["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "31415926"]);
            let made = make.env("SOFTHSM2_CONF", tokens.configuration()).output();
            ok(made
                .unwrap_or_else(|error| panic!("install softhsm2: apt-get install -y softhsm2 ({error})")));
        }
        fs::write(tokens.pin_file(), PIN).unwrap();
        fs::set_permissions(tokens.pin_file(), fs::Permissions::from_mode(0o600)).unwrap();
        tokens
    }

    fn configuration(&self) -> PathBuf {
        self.directory.path().join("softhsm2.conf")
    }

    fn pin_file(&self) -> PathBuf {
        self.directory.path().join("pin")
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("SOFTHSM2_CONF".to_owned(), self.configuration().display().to_string())]
    }

    /// Lines of the section `auth`.
    fn settings(&self, labels: &[&str], more: &str) -> String {
        let module = module();
        let tokens: String = labels
            .iter()
            .map(|label| {
                format!(
                    "      {label}:\n        module: {}\n        token: {{label: {label}}}\n        pin: {{file: {}}}\n",
                    module.display(),
                    self.pin_file().display()
                )
            })
            .collect();
        format!("  ca_keys:\n    tokens:\n{tokens}{more}")
    }
}

fn module() -> PathBuf {
    ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so", "/usr/lib64/libsofthsm2.so"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("libsofthsm2.so is not installed: apt-get install -y softhsm2"))
}

fn ca(cluster: &Cluster, kind: &str) -> serde_json::Value {
    let status = ok(cluster.admin(&["status", "--format", "json"]));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    status["cas"].as_array().unwrap().iter().find(|ca| ca["kind"] == kind).unwrap().clone()
}

fn suite(cluster: &Cluster) -> String {
    let status = ok(cluster.admin(&["status", "--format", "json"]));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    status["suite"].as_str().unwrap().to_owned()
}

fn reaches(user: &User, node: &str) {
    let said = ok(user.run(&["ssh", &format!("{}@{node}", me()), "echo", "reached"]));
    assert_eq!(stdout(&said), "reached\n");
}

#[test]
fn a_cluster_is_born_in_a_token() {
    let tokens = Tokens::new(&["main"]);
    let mut cluster = Cluster::with_environment(&tokens.settings(&["main"], ""), tokens.environment());
    assert_eq!(suite(&cluster), "hsm-v1");
    for kind in ["user", "host"] {
        let ca = ca(&cluster, kind);
        assert_eq!(ca["custodies"], serde_json::json!(["main"]), "{ca}");
        assert_eq!(ca["ssh_algorithm"], "ecdsa-p256", "{ca}");
    }
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    reaches(&alice, "web-1");

    // The CA keys are where they were after a restart, and nothing was made anew.
    let before = ca(&cluster, "user")["ssh_fingerprint"].clone();
    cluster.services.take();
    cluster.start_services();
    assert_eq!(ca(&cluster, "user")["ssh_fingerprint"], before);
    ok(alice.login(&[]));
    cluster.wait_online("web-1");
    reaches(&alice, "web-1");

    // Without the token it does not start, and says which one it misses.
    cluster.services.take();
    let config = cluster.path("cluster.yaml");
    let said = start_refused(&config, &[("SOFTHSM2_CONF", "/dev/null")]);
    assert!(said.contains("main"), "{said}");
    fs::write(tokens.pin_file(), "999999").unwrap();
    let conf = tokens.configuration().display().to_string();
    let said = start_refused(&config, &[("SOFTHSM2_CONF", conf.as_str())]);
    assert!(said.contains("PIN") && !said.contains("999999"), "{said}");
}

#[test]
fn each_ca_has_its_own_token() {
    let tokens = Tokens::new(&["users", "rest"]);
    let settings =
        tokens.settings(&["users", "rest"], "    keep: rest\n    keep_by_ca: {user: users, jwt: sealed}\n");
    let cluster = Cluster::with_environment(&settings, tokens.environment());
    assert_eq!(ca(&cluster, "user")["custodies"], serde_json::json!(["users"]));
    assert_eq!(ca(&cluster, "host")["custodies"], serde_json::json!(["rest"]));
}

#[test]
fn a_suite_that_no_token_holds_is_refused_at_birth() {
    let tokens = Tokens::new(&["main"]);
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("cluster.yaml");
    let yaml = format!(
        "version: v1\ncluster: c.test\ndata_dir: {}\nauth:\n  enabled: true\n  suite: pq-v1\n  listen: \
         127.0.0.1:0\n{}",
        directory.path().join("data").display(),
        tokens.settings(&["main"], "")
    );
    fs::write(&config, yaml).unwrap();
    let conf = tokens.configuration().display().to_string();
    let said = start_refused(&config, &[("SOFTHSM2_CONF", conf.as_str())]);
    assert!(
        said.contains("pq-v1 in the token main") && said.contains("hsm-v1") && said.contains("ml-dsa-65"),
        "{said}"
    );
}

/// A whole rotation, step by step as hosts confirm; `user` reaches `node` in every phase.
fn rotate(cluster: &Cluster, kind: &str, user: &User, node: &str) {
    for phase in ["init", "update_clients", "update_servers", "standby"] {
        wait_for(&format!("the {kind} CA to enter {phase}"), || {
            let step = cluster.admin(&["ca", "rotate", "--type", kind, "--phase", phase]);
            step.status.success().then_some(())
        });
        reaches(user, node);
    }
}

#[test]
fn a_cluster_moves_into_a_token_and_out_again() {
    let tokens = Tokens::new(&["main"]);
    let mut cluster = Cluster::with_environment("  suite: balanced-v1\n", tokens.environment());
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    reaches(&alice, "web-1");
    let config = cluster.path("cluster.yaml");
    let sealed = fs::read_to_string(&config).unwrap();
    let with = |more: &str| {
        let settings = tokens.settings(&["main"], more);
        sealed.replace("  second_factor: optional\n", &format!("  second_factor: optional\n{settings}"))
    };
    let restart = |cluster: &mut Cluster, yaml: &str| {
        cluster.services.take();
        fs::write(&config, yaml).unwrap();
        cluster.start_services();
        cluster.wait_online("web-1");
    };

    // The token alone changes nothing.
    restart(&mut cluster, &with(""));
    assert_eq!(ca(&cluster, "user")["custodies"], serde_json::json!(["sealed"]));
    let said = stdout(&ok(cluster.admin(&["status"])));
    assert!(said.contains("the configuration wants them in main"), "{said}");
    reaches(&alice, "web-1");

    ok(cluster.admin(&["suite", "set", "hsm-v1", "--yes"]));
    for kind in ["user", "host"] {
        rotate(&cluster, kind, &alice, "web-1");
        let moved = ca(&cluster, kind);
        assert_eq!(moved["custodies"], serde_json::json!(["main"]), "{moved}");
        assert_eq!(moved["ssh_algorithm"], "ecdsa-p256", "{moved}");
    }

    // And back; the token may be gone when nothing is in it.
    restart(&mut cluster, &with("    keep: sealed\n"));
    for kind in ["user", "host"] {
        rotate(&cluster, kind, &alice, "web-1");
        assert_eq!(ca(&cluster, kind)["custodies"], serde_json::json!(["sealed"]));
    }
    restart(&mut cluster, &sealed);
    reaches(&alice, "web-1");
}

fn start_refused(config: &Path, environment: &[(&str, &str)]) -> String {
    let mut start = Command::new(support::PROGRAM);
    start.args(["start", "-c"]).arg(config).envs(environment.iter().copied());
    let output = start.output().unwrap();
    assert!(!output.status.success(), "{}", stdout(&output));
    stderr(&output)
}
