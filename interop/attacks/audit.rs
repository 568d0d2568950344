//! The audit log on the command line: proved against what was kept elsewhere, and set aside where it is damaged.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::PROGRAM;
use crate::support::{Cluster, lines_of, ok, refused, stdout, wait_for};

fn log_file(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("auth/audit/events-0000000000000001.log")
}

/// Stops the services in order, so that nothing is written any more.
fn stop(cluster: &mut Cluster) {
    let mut services = cluster.services.take().unwrap();
    services.signal("TERM");
    wait_for("the services to stop", || services.child.try_wait().unwrap());
}

fn verify(cluster: &Cluster, against: &str) -> Output {
    cluster.admin(&["audit", "verify", "--against", against])
}

#[test]
fn a_log_is_proved_against_what_was_kept_elsewhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let kept = elsewhere.path().join("kept");
    let mut cluster =
        Cluster::with_auth_settings(&format!("  audit:\n    checkpoint_file: {}\n", kept.display()));
    ok(cluster.admin(&["lock", "--login", "missing-1"]));
    ok(cluster.admin(&["audit", "verify"]));
    let line = wait_for("a checkpoint", || fs::read_to_string(&kept).ok()?.lines().last().map(str::to_owned));

    // The file, its last line, and only the number and the hash.
    let words: Vec<&str> = line.split(' ').collect();
    let head = format!("{} {}", words[0], words[1]);
    for against in [kept.to_str().unwrap(), &line, &head] {
        let said = stdout(&ok(verify(&cluster, against)));
        assert!(
            said.contains("is intact") && said.contains(&format!("holds the checkpoint {}", words[0])),
            "{said}"
        );
    }
    let json = stdout(&ok(cluster.admin(&["audit", "verify", "--format", "json", "--against", &line])));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["intact"], true);
    let status = stdout(&ok(cluster.admin(&["status"])));
    assert!(status.contains(&format!("kept in   {} (record", kept.display())), "{status}");

    // What is no checkpoint, is not there, or is another cluster's, is told apart from a log that is broken.
    let said = refused(&verify(&cluster, elsewhere.path().join("nothing").to_str().unwrap()), 1);
    assert!(said.contains("read a checkpoint from") && said.contains("nothing"), "{said}");
    let empty = elsewhere.path().join("empty");
    for content in ["", "no checkpoint\n"] {
        fs::write(&empty, content).unwrap();
        let said = refused(&verify(&cluster, empty.to_str().unwrap()), 1);
        assert!(said.contains("is not a checkpoint") && said.contains("--against 'NUMBER HASH'"), "{said}");
    }
    let other = Cluster::bare();
    ok(other.admin(&["audit", "verify"]));
    let theirs = fs::read_to_string(other.data_dir().join("auth/audit/checkpoints")).unwrap();
    fs::write(&empty, theirs).unwrap();
    let said = refused(&verify(&cluster, empty.to_str().unwrap()), 1);
    assert!(said.contains("is it of another cluster?"), "{said}");

    // A record that was changed: broken, also for a person who kept nothing.
    stop(&mut cluster);
    let text = fs::read_to_string(log_file(&cluster)).unwrap();
    fs::write(log_file(&cluster), text.replace("missing-1", "missing-2")).unwrap();
    cluster.spawn_services(cluster.path("services.log"));
    let found = wait_for("the verdict", || {
        let output = verify(&cluster, &line);
        let said = stdout(&output);
        (output.status.code() == Some(1) && said.contains("BROKEN")).then_some(said)
    });
    assert!(found.contains("Intact up to there"), "{found}");
}

#[test]
fn a_damaged_log_is_set_aside_by_hand_and_no_byte_of_it_is_lost() {
    let mut cluster = Cluster::bare();
    ok(cluster.admin(&["lock", "--login", "missing-1"]));
    let data = cluster.data_dir();
    let data = data.to_str().unwrap();
    let repair = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["admin", "audit", "repair"]).args(arguments).env("HOME", data).stdin(Stdio::null());
        command.output().unwrap()
    };
    // Not without a word where, nor under an authority that runs, nor where there is none.
    let said = refused(&repair(&[]), 2);
    assert!(
        said.contains("needs the directory of the log") && said.contains("audit repair --data-dir DIR"),
        "{said}"
    );
    let said = refused(&repair(&["--data-dir", data]), 1);
    assert!(said.contains("runs and has its log open") && said.contains("stop the authority"), "{said}");
    let said = refused(&repair(&["--data-dir", "/nowhere"]), 1);
    assert!(said.contains("/nowhere/auth/state.db.lock"), "{said}");

    stop(&mut cluster);
    let log = log_file(&cluster);
    let mut text = fs::read_to_string(&log).unwrap();
    let records = text.lines().count();
    text.push_str("this is a whole line and no record\n");
    fs::write(&log, &text).unwrap();
    let start = Command::new(PROGRAM)
        .args(["start", "-c"])
        .arg(cluster.path("cluster.yaml"))
        .stdin(Stdio::null())
        .output();
    let said = refused(&start.unwrap(), 1);
    assert!(said.contains(&format!("line {} is a whole line", records + 1)), "{said}");
    assert!(said.contains("sallyport admin audit repair --data-dir"), "{said}");
    assert_eq!(fs::read_to_string(&log).unwrap(), text, "nothing was changed");

    let said = stdout(&ok(repair(&["--data-dir", data])));
    let line = format!("events-0000000000000001.log line {} (35 bytes) is no record", records + 1);
    assert!(said.contains(&line) && said.contains(&format!("is record {records}.")), "{said}");
    let aside = fs::read_dir(cluster.data_dir().join("auth/audit")).unwrap().next().unwrap().unwrap().path();
    assert!(said.contains(aside.file_name().unwrap().to_str().unwrap()), "{said}");
    assert_eq!(fs::read_to_string(aside.join(log.file_name().unwrap())).unwrap(), text);

    cluster.start_services();
    let begun = cluster.wait_event("audit.begun_anew", |_| true);
    assert_eq!(begun["fields"]["last_record"], records, "{begun}");
    let said = stdout(&ok(cluster.admin(&["audit", "verify"])));
    assert!(said.contains("NOTE: this log begins behind record"), "{said}");
    ok(cluster.admin(&["get", "lock/login-missing-1"]));

    // A log without damage can be set aside as well.
    stop(&mut cluster);
    let said = stdout(&ok(repair(&["--data-dir", data])));
    assert!(said.contains("Every whole line is a record"), "{said}");
    cluster.start_services();
    assert_eq!(cluster.events().iter().filter(|event| event["kind"] == "audit.begun_anew").count(), 1);
}

const ACCESS: &str = "AKIAEVIDENCE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+only/for/tests";
const TOKEN: &str = "a-token-of-the-webhook";

/// A certificate for 127.0.0.1 of a CA of its own.
fn certify(place: &Path) {
    let script = "set -e; ec='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'; \
                  openssl req -x509 $ec -days 2 -subj /CN=ca -keyout ca.key -out ca.pem; \
                  openssl req $ec -subj /CN=server -keyout key.pem -out server.csr; \
                  echo subjectAltName=IP:127.0.0.1 > names; \
                  openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem";
    ok(Command::new("sh").args(["-c", script]).current_dir(place).output().unwrap());
}

/// A web server that takes checkpoints, which ends with the test.
struct Evidence {
    child: Child,
    port: u16,
}

impl Evidence {
    fn start(place: &Path) -> Self {
        fs::create_dir(place.join("taken")).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/support/evidence.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args(["cert.pem", "key.pem", "taken", TOKEN, ACCESS, SECRET])
            .current_dir(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        lines_of(&mut child).read_line(&mut port).unwrap();
        Self { child, port: port.trim().parse().unwrap() }
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn checkpoints_go_to_a_webhook_and_an_object_store_by_https() {
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path();
    certify(place);
    let server = Evidence::start(place);
    let secret = |name: &str, text: &str| {
        fs::write(place.join(name), text).unwrap();
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    let keys =
        |secret: &str| format!("[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {secret}\n");
    secret("token", "yesterdays\n");
    secret("keys", &keys("yesterdays"));
    let (at, url) = (place.display(), format!("https://127.0.0.1:{}", server.port));
    let cluster = Cluster::with_auth_settings(&format!(
        "  audit:\n    checkpoint_webhook: {url}/checkpoints\n    checkpoint_webhook_ca_file: {at}/ca.pem\n    \
         checkpoint_webhook_token_file: {at}/token\n    checkpoint_bucket:\n      url: {url}/evidence/prod\n      \
         region: eu-central-1\n      credentials_file: {at}/keys\n      ca_file: {at}/ca.pem\n"
    ));
    ok(cluster.admin(&["audit", "verify"]));
    // What is not taken is tried again, is an event, and is seen in the status with what was said.
    for (at, said) in
        [("/checkpoints", "401 Unauthorized"), ("/evidence/prod", "403 Forbidden (SignatureDoesNotMatch)")]
    {
        let event = cluster.wait_event("audit.checkpoint_not_taken", |event| {
            event["message"].as_str().unwrap().contains(said)
        });
        assert!(event["fields"]["place"].as_str().unwrap().ends_with(at), "{event}");
        let status = stdout(&ok(cluster.admin(&["status"])));
        let line = status.lines().find(|line| line.contains(at) && line.contains("FAILS since"));
        assert!(line.is_some_and(|line| line.contains(said)), "{status}");
    }
    // The files are read whenever they are needed.
    secret("token", &format!("{TOKEN}\n"));
    secret("keys", &keys(SECRET));
    for at in ["/checkpoints", "/evidence/prod"] {
        cluster.wait_event("audit.checkpoint_taken", |event| {
            event["fields"]["place"].as_str().unwrap().ends_with(at)
        });
    }
    let status = stdout(&ok(cluster.admin(&["status"])));
    assert!(!status.contains("FAILS") && status.matches("(record ").count() == 2, "{status}");

    // What was taken proves the log.
    let taken = place.join("taken");
    let posted: serde_json::Value =
        serde_json::from_slice(&fs::read(taken.join("posted.json")).unwrap()).unwrap();
    assert_eq!(posted["cluster"], crate::support::CLUSTER);
    let objects: Vec<PathBuf> = fs::read_dir(&taken)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name().unwrap().to_str().unwrap().starts_with("evidence_prod_interop.test-0")
        })
        .collect();
    assert!(!objects.is_empty());
    for against in [objects[0].to_str().unwrap(), posted["checkpoint"].as_str().unwrap()] {
        let said = stdout(&ok(verify(&cluster, against)));
        assert!(said.contains("It holds the checkpoint"), "{said}");
    }
    // A server that is not the one that is meant gets neither token nor checkpoint.
    let other = tempfile::tempdir().unwrap();
    certify(other.path());
    fs::copy(other.path().join("ca.pem"), place.join("ca.pem")).unwrap();
    fs::remove_file(taken.join("posted.json")).unwrap();
    ok(cluster.admin(&["lock", "--login", "missing-1"]));
    ok(cluster.admin(&["audit", "verify"]));
    wait_for("the webhook to be refused", || {
        let status = stdout(&ok(cluster.admin(&["status"])));
        let line =
            status.lines().find(|line| line.contains("/checkpoints") && line.contains("FAILS"))?.to_owned();
        line.contains("certificate").then_some(())
    });
    assert!(!taken.join("posted.json").exists());
}
