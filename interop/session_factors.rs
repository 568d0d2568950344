//! The second factor for each session, at the clients that people have: stock `ssh`, alone and fifty at once, `scp`, `ssh -J`, psql, and
//! our own.

mod batches;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    CLUSTER, Cluster, Helped, User, me, ok, recovery_codes, refused, ssh_command, stderr, stdout, target,
    wait_for,
};

/// A person with one-time and recovery codes, who is asked by the program of SSH_ASKPASS.
struct Person {
    alice: Helped,
    script: PathBuf,
    /// What the program was started with, a line each.
    asked: PathBuf,
}

/// What a role demands whose proofs serve for five minutes.
const DEMANDS: &str = "{require_session_mfa: yes, session_mfa_ttl: 5m}";

impl Person {
    /// Whose one role has these options.
    fn new(cluster: &Cluster, options: &str) -> Self {
        Self::of(cluster, cluster.add_user_with("alice", options))
    }

    fn with_role(cluster: &Cluster, role: &str) -> Self {
        Self::of(cluster, cluster.add_user("alice", role, &me()))
    }

    fn of(cluster: &Cluster, alice: User) -> Self {
        let alice = Helped(alice);
        let codes = recovery_codes(|arguments| alice.command(arguments));
        let (script, asked, kept) =
            (cluster.path("askpass.sh"), cluster.path("asked"), cluster.path("codes"));
        fs::write(&kept, format!("{}\n", codes.join("\n"))).unwrap();
        // Each code is good once.
        let text = format!(
            "#!/bin/sh\necho \"$1\" | tr '\\n' ' ' >> '{0}'\necho >> '{0}'\nhead -n 1 '{1}'\nsed -i 1d '{1}'\n",
            asked.display(),
            kept.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self { alice, script, asked }
    }

    /// A program whose person has this desktop.
    fn asks<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("SSH_ASKPASS", &self.script).env("SSH_ASKPASS_REQUIRE", "force")
    }

    /// A program of a person who is not there.
    fn silent(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = match program {
            "sallyport" => self.alice.command(&[]),
            _ => Command::new(program),
        };
        if program != "sallyport" {
            command.arg("-F").arg(self.alice.ssh_config(&[]));
        }
        command.args(arguments).env("SALLYPORT_MFA_PROMPT", "never").stdin(Stdio::null()).output().unwrap()
    }

    /// How often the person was asked.
    fn questions(&self) -> usize {
        fs::read_to_string(&self.asked).unwrap_or_default().lines().count()
    }
}

/// How long a client may take to say that it cannot ask.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Whether something takes less than [`AT_ONCE`]. The machine may be busy with other tests at any one time, so it is tried for as long as
/// that may last; one that waits for something never does.
fn at_once(mut once: impl FnMut()) {
    wait_for("one that takes less than two seconds", || {
        let began = Instant::now();
        once();
        (began.elapsed() < AT_ONCE).then_some(())
    });
}

/// Questions that the authority has opened.
fn challenges(cluster: &Cluster) -> usize {
    let of_session = |event: &&serde_json::Value| event["fields"]["purpose"] == "session";
    let events = cluster.events();
    let begun = events.iter().filter(|event| event["kind"] == "user.challenge_begun");
    begun.filter(of_session).count()
}

#[test]
fn fifty_stock_ssh_at_once_ask_once() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: prod");
    let person = Person::new(&cluster, DEMANDS);
    let config = person.alice.ssh_config(&[]);
    // Where there is no person, each is told at once what to run, and nobody is asked.
    let web = target("web-1");
    at_once(|| {
        let told = stderr(&person.silent("ssh", &[&web, "true"]));
        assert!(told.contains("sallyport mfa pre-auth --for 15m --hosts web-1"), "{told}");
    });
    assert_eq!((person.questions(), challenges(&cluster)), (0, 0));

    let start = |number: u32| {
        let mut command = ssh_command(&config);
        person.asks(&mut command).args([&target("web-1"), &format!("echo {number}")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..50).map(start).collect();
    for (number, child) in all.into_iter().enumerate() {
        assert_eq!(stdout(&ok(child.wait_with_output().unwrap())), format!("{number}\n"));
    }
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
    let asked = fs::read_to_string(&person.asked).unwrap();
    assert!(asked.contains("/approve#") && asked.contains("and type this code there: "), "{asked}");

    // For as long as the role lets it serve, nobody is asked again: other programs of the same login, and scp.
    let file = cluster.path("file");
    fs::write(&file, "copied\n").unwrap();
    let (from, to) = (file.display().to_string(), cluster.path("copy").display().to_string());
    ok(person.silent("scp", &[&from, &format!("{}:{to}", target("web-1"))]));
    assert_eq!(fs::read_to_string(&to).unwrap(), "copied\n");
    ok(person.silent("sallyport", &["ssh", &target("web-1"), "true"]));
    ok(person.silent("sallyport", &["ssh", "--hosts", &format!("{}@env=prod", me()), "true"]));
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
}

#[test]
fn our_own_programs_ask_once_for_all_hosts_and_beforehand() {
    let mut cluster = Cluster::bare();
    for name in ["web-1", "web-2"] {
        cluster.add_node(name, "env: prod");
    }
    let person = Person::new(&cluster, "{require_session_mfa: yes}");
    let all = format!("{}@env=prod", me());
    let mut command = person.alice.command(&["ssh", "--hosts", &all, "echo", "$((6*7))"]);
    let said = stdout(&ok(person.asks(&mut command).output().unwrap()));
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["web-1 | 42", "web-2 | 42"], "{said}");
    assert_eq!((person.questions(), challenges(&cluster)), (1, 1));
    // Where no proof serves for a time, there is none beforehand for all that may come.
    let said = refused(&person.silent("sallyport", &["mfa", "pre-auth", "--for", "5m"]), 1);
    assert!(said.contains("session_mfa_ttl"), "{said}");
}

#[test]
fn clients_that_cannot_ask_read_where_to_prove_it() {
    let mut cluster = Cluster::bare();
    cluster.add_node("web-1", "env: prod");
    ok(cluster.create(
        "kind: db\nversion: v1\nmetadata:\n  name: prod\n  labels: {env: test}\nspec:\n  protocol: postgres\n  address: 127.0.0.1:1\n  via: [web-1]\n",
    ));
    ok(cluster.create(&format!(
        "kind: role\nversion: v1\nmetadata: {{name: alice-role}}\nspec:\n  options: {DEMANDS}\n  allow:\n    logins: [{}]\n    node_labels: \
         {{'*': '*'}}\n    db_labels: {{'*': '*'}}\n    db_users: [app]\n    db_names: [shop]\n",
        me()
    )));
    let person = Person::with_role(&cluster, "alice-role");
    let jump = person.alice.ssh_config(&["--jump"]);
    let web = target("web-1");
    let told = stderr(&ssh_command(&jump).args([&web, "true"]).output().unwrap());
    assert!(
        told.contains("/approve#") && told.contains("and type ") && told.contains("connect again"),
        "{told}"
    );
    // The user who asks to be asked types a code at the proxy.
    let asks = format!("mfa@{CLUSTER}-proxy");
    let mut command = ssh_command(&jump);
    command.args(["-o", "BatchMode=no", "-J", &asks, &web, "echo jumped"]);
    assert_eq!(stdout(&ok(person.asks(&mut command).output().unwrap())), "jumped\n");
    assert_eq!(challenges(&cluster), 1);
    // psql, straight to the proxy, from another address of this machine's than the proof is for: none is proven there.
    let services = cluster.path("services.conf");
    let mut login = person.alice.command(&["db", "login", "prod", "--db-user", "app", "--db-name", "shop"]);
    ok(login.env("PGSERVICEFILE", &services).output().unwrap());
    let mut psql = Command::new("psql");
    psql.args(["-X", "service=prod", "-c", "select 1"]).env("PGSERVICEFILE", &services).stdin(Stdio::null());
    let told = stderr(&psql.output().unwrap());
    assert!(told.contains("a second factor has to be proven") && told.contains("/approve#"), "{told}");
    // Proven beforehand, what stands in the way comes after it: no administrator has set the database up.
    let mut before = person.alice.command(&["mfa", "pre-auth", "--for", "1m"]);
    let said = stdout(&ok(person.asks(&mut before).output().unwrap()));
    assert!(said.starts_with("Proven; it serves new sessions until 20"), "{said}");
    let told = stderr(&psql.output().unwrap());
    assert!(told.contains("prod: the TLS certificate and key cannot be used"), "{told}");
}
