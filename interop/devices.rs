//! Trusted devices: enrolled, proven at login and demanded, by the real program, with a key in a TPM and one in a file. The TPM is swtpm, by
//! tpm2-pkcs11, as on a user's machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    Cluster, PASSWORD, Process, User, free_port, json, ok, stderr, stdout, target, wait_for,
};

const FILE_KEYS: &str = "  authentication: {devices: {allow_file_keys: true}}\n";
const PIN: &str = "271828";
const LABEL: &str = "sallyport";

/// A TPM in software, with a token of tpm2-pkcs11.
struct Tpm {
    directory: tempfile::TempDir,
    port: u16,
    _process: Process,
}

impl Tpm {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for made in ["state", "store", "bin"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        // Its two ports are one after the other, for the TCTI.
        let port = loop {
            let port = free_port();
            let next =
                port.checked_add(1).filter(|next| std::net::TcpListener::bind(("127.0.0.1", *next)).is_ok());
            if next.is_some() {
                break port;
            }
        };
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"]);
        command.arg(format!("dir={}", at("state").display()));
        command.args(["--server", &format!("type=tcp,port={port}")]);
        command.args(["--ctrl", &format!("type=tcp,port={}", port + 1)]);
        let process = Process::spawn(&mut command, at("swtpm.log"));
        let tpm = Self { directory, port, _process: process };
        wait_for("the TPM to answer", || {
            let mut asked = Command::new("tpm2_getrandom");
            tpm.with(&mut asked);
            asked.args(["--hex", "4"]).output().ok().filter(|output| output.status.success())
        });
        // A container has no resource manager of the kernel's: what each tool leaves in the TPM is flushed before the next.
        for tool in
            ["createprimary", "create", "load", "loadexternal", "evictcontrol", "unseal", "sign", "import"]
        {
            let script = tpm.directory.path().join("bin").join(format!("tpm2_{tool}"));
            let text = format!(
                "#!/bin/sh\n/usr/bin/tpm2_flushcontext -t >/dev/null 2>&1\nexec /usr/bin/tpm2_{tool} \"$@\"\n"
            );
            std::fs::write(&script, text).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        tpm.tool(&["init"]);
        tpm.tool(&["addtoken", "--pid", "1", "--label", LABEL, "--sopin", "31415926", "--userpin", PIN]);
        tpm.flush();
        tpm
    }

    /// Where programs find it.
    fn with<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let tcti = format!("swtpm:host=127.0.0.1,port={}", self.port);
        command.env("TPM2_PKCS11_STORE", self.directory.path().join("store"));
        command.env("TPM2_PKCS11_TCTI", &tcti).env("TPM2TOOLS_TCTI", &tcti).env("TPM2_PKCS11_LOG_LEVEL", "0")
    }

    fn flush(&self) {
        ok(self.with(Command::new("tpm2_flushcontext").arg("-t")).output().unwrap());
    }

    fn tool(&self, arguments: &[&str]) {
        let path = std::env::var("PATH").unwrap();
        let bin = self.directory.path().join("bin");
        let mut command = Command::new("tpm2_ptool");
        self.with(command.args(arguments)).env("PATH", format!("{}:{path}", bin.display()));
        ok(command.output().expect("tpm2_ptool, of the package libtpm2-pkcs11-tools"));
    }

    /// Runs a command of a user's where this TPM is.
    fn run(&self, user: &User, arguments: &[&str]) -> Output {
        self.flush();
        self.with(&mut user.command(arguments)).env("DEVICE_PIN", PIN).output().unwrap()
    }

    /// The same for a login.
    fn login(&self, user: &User) -> Output {
        self.flush();
        log_in(self.with(user.command(&[]).env("DEVICE_PIN", PIN)), user)
    }
}

/// A login with the right password, in this command's environment.
fn log_in(command: &mut Command, user: &User) -> Output {
    use std::io::Write as _;
    use std::process::Stdio;
    command.args(["login", "--user", &user.name, "--password-stdin", "--add-keys-to-agent", "no"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn token(cluster: &Cluster, more: &[&str]) -> String {
    let all = [&["devices", "token", "add", "--format", "json"], more].concat();
    json(&ok(cluster.admin(&all)))["token"].as_str().unwrap().to_owned()
}

/// Another machine with everything that the first has on disk.
fn copied(user: &User, to: &Path) -> User {
    ok(Command::new("cp").arg("-a").arg(&user.home).arg(to).output().unwrap());
    User { name: user.name.clone(), home: to.to_owned(), proxy: user.proxy.clone(), otp_uri: None }
}

fn devices_of(home: &Path) -> PathBuf {
    home.join("devices")
}

#[test]
fn a_key_in_a_tpm_lets_in_and_is_not_copied() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: test");
    let alice = cluster.add_user_with("alice", "{device_trust: required-hardware}");
    let refused = alice.run(&["ssh", &target("web-1"), "true"]);
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(said.contains("trusted device") && said.contains("sallyport device enroll"), "{said}");
    // Stock ssh hears the same.
    let refused = alice.ssh(&[&target("web-1"), "true"]);
    assert!(!refused.status.success() && stderr(&refused).contains("trusted device"), "{}", stderr(&refused));

    // A file is not taken here, and a missing module is said.
    let no_file = stderr(&alice.run(&["device", "enroll", "--file", "--token", &token(&cluster, &[])]));
    assert!(no_file.contains("allow_file_keys"), "{no_file}");
    let missing = stderr(&alice.run(&["device", "enroll", "--module", "/nowhere/module.so"]));
    assert!(missing.contains("/nowhere/module.so") && missing.contains("docs/devices.md"), "{missing}");

    let tpm = Tpm::start();
    let asked = token(&cluster, &["--user", "alice", "--hardware"]);
    let enroll = ["device", "enroll", "--pin-env", "DEVICE_PIN", "--format", "json", "--token", &asked];
    let enrolled = json(&ok(tpm.run(&alice, &enroll)));
    assert_eq!((&enrolled["custody"], &enrolled["state"]), (&"hardware".into(), &"enrolled".into()));
    let again = stderr(&tpm.run(&alice, &enroll));
    assert!(again.contains("this token is not good"), "{again}");
    let said = stdout(&ok(tpm.login(&alice)));
    assert!(said.contains("its key is in hardware"), "{said}");
    assert_eq!(stdout(&ok(alice.run(&["ssh", &target("web-1"), "echo in"]))), "in\n");
    assert_eq!(stdout(&ok(alice.ssh(&[&target("web-1"), "echo in"]))), "in\n");

    // A thief of everything on the disk has no TPM, or another one, and its key is in none of these files.
    for entry in std::fs::read_dir(devices_of(&alice.home)).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
    let thief = copied(&alice, &cluster.path("home-thief"));
    let nothing =
        log_in(thief.command(&[]).env("DEVICE_PIN", PIN).env("TPM2_PKCS11_TCTI", "swtpm:port=1"), &thief);
    assert!(!nothing.status.success() && stderr(&nothing).contains("--no-device"), "{}", stderr(&nothing));
    let other = Tpm::start();
    let elsewhere = other.login(&thief);
    assert!(!elsewhere.status.success(), "{}", stdout(&elsewhere));

    // What is removed is out at once.
    let id = enrolled["id"].as_str().unwrap();
    ok(cluster.admin(&["devices", "rm", id]));
    wait_for("the device to be out", || {
        let refused = alice.run(&["ssh", &target("web-1"), "true"]);
        stderr(&refused).contains("the device was removed").then_some(())
    });
    cluster.wait_event("device.removed", |event| event["fields"]["device"] == id);
}

#[test]
fn a_key_in_a_file_is_enrolled_admitted_listed_and_locked() {
    let mut cluster = Cluster::with_auth_settings(FILE_KEYS);
    cluster.add_node("web-1", "env: test");
    let alice = cluster.add_user_with("alice", "{device_trust: required}");
    let enrolled = json(&ok(alice.run(&["device", "enroll", "--file", "--format", "json"])));
    assert_eq!((&enrolled["custody"], &enrolled["state"]), (&"file".into(), &"pending".into()));
    let id = enrolled["id"].as_str().unwrap();
    let key = std::fs::read_dir(devices_of(&alice.home)).unwrap().map(|entry| entry.unwrap().path());
    for path in key {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
    let early = stderr(&alice.login(&[]));
    assert!(early.contains("admin devices assign"), "{early}");
    ok(alice.login(&["--no-device"]));
    ok(cluster.admin(&["devices", "assign", id]));
    ok(alice.login(&[]));
    assert_eq!(stdout(&ok(alice.run(&["ssh", &target("web-1"), "echo in"]))), "in\n");
    let listed = json(&ok(alice.run(&["device", "ls", "--format", "json"])));
    assert_eq!(listed["current"], id);
    let own = &listed["devices"][0];
    assert_eq!((&own["users"][0], &own["last_user"]), (&"alice".into(), &"alice".into()));
    let table = stdout(&ok(cluster.admin(&["devices", "ls"])));
    assert!(table.contains("SAID SERIAL") && table.contains(id), "{table}");

    ok(cluster.admin(&["devices", "lock", id, "--message", "left in a train"]));
    wait_for("the lock to be known", || {
        stderr(&alice.run(&["ssh", &target("web-1"), "true"])).contains("left in a train").then_some(())
    });
    let refused = stderr(&alice.login(&[]));
    assert!(refused.contains("left in a train"), "{refused}");
    ok(alice.login(&["--no-device"]));
    ok(cluster.admin(&["rm", &format!("lock/device-{id}")]));
    ok(alice.login(&[]));
    ok(alice.run(&["device", "forget"]));
    ok(alice.login(&[]));
    let refused = stderr(&alice.run(&["ssh", &target("web-1"), "true"]));
    assert!(refused.contains("this login is from none"), "{refused}");
}
