//! An administrator proves a factor for what is dangerous: asked at a terminal, told what to run without one.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Cluster, PROGRAM, me, ok, recovery_codes, refused, stdout};

/// Runs a program at a terminal, answers what it asks, and gives what the terminal showed and the exit code.
const AT_A_TERMINAL: &str = r#"
import os, pty, select, sys, time
question, answer = sys.argv[1].encode(), sys.argv[2].encode()
master, slave = pty.openpty()
pid = os.fork()
if pid == 0:
    os.setsid()
    import fcntl, termios
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.execv(sys.argv[3], sys.argv[3:])
os.close(slave)
seen, asked, end = b"", False, time.time() + 30
while True:
    left = end - time.time()
    if left <= 0 or not select.select([master], [], [], left)[0]:
        sys.exit("%r was not asked, or nothing came after it: %r" % (question, seen))
    try:
        more = os.read(master, 65536)
    except OSError:
        more = b""
    if not more:
        break
    seen += more
    if not asked and question in seen:
        asked = True
        os.write(master, answer + b"\n")
_, status = os.waitpid(pid, 0)
sys.stdout.write(seen.decode())
sys.exit(os.WEXITSTATUS(status))
"#;

#[test]
fn an_administrator_is_asked_at_a_terminal_and_a_script_is_told_what_to_run() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access,editor", &me());
    let policy = cluster.path("policy.yaml");
    let written = "kind: session_policy\nversion: v1\nmetadata: {name: default}\nspec: {max_sessions: 3}\n";
    fs::write(&policy, written).unwrap();
    let create = ["admin", "create", "--force", "-f", policy.to_str().unwrap()];

    // Without a factor: let in, on record, and named by the status.
    ok(alice.run(&create));
    cluster.wait_event("admin.act_unproven", |event| event["user"] == "alice");
    let status = stdout(&ok(cluster.admin(&["status"])));
    assert!(status.contains("warning: alice without one"), "{status}");

    let codes = recovery_codes(|arguments| alice.command(arguments));
    let code = |number: usize| codes[number].as_str();

    // A script fails at once, with what to run.
    let said = refused(&alice.run(&create), 4);
    assert!(
        said.contains("you prove a factor first") && said.contains("try: sallyport admin prove"),
        "{said}"
    );
    // What only reads, and what cannot wait, is done.
    ok(alice.run(&["admin", "get", "roles"]));
    ok(alice.run(&["admin", "lock", "--login", "nobody-at-all", "--force"]));

    // At a terminal the person is asked, and the command goes on.
    let script = cluster.path("terminal.py");
    fs::write(&script, AT_A_TERMINAL).unwrap();
    let output = Command::new("/usr/bin/python3")
        .arg(&script)
        .args(["One-time or recovery code", code(0), PROGRAM, "--home"])
        .arg(&alice.home)
        .args(["--proxy", &alice.proxy])
        .args(create)
        .stdin(Stdio::null())
        .output()
        .expect("run /usr/bin/python3");
    let shown = stdout(&ok(output));
    assert!(
        shown.contains("An administrator proves a factor") && shown.contains("session_policy/default"),
        "{shown}"
    );
    cluster.wait_event("admin.factor_proven", |event| event["fields"]["way"] == "recovery code");
    // It serves what comes next.
    ok(alice.run(&create));

    // Another login proves for itself, beforehand.
    ok(alice.login(&["--otp", code(1)]));
    refused(&alice.run(&create), 4);
    let wrong = refused(&alice.run(&["admin", "prove", "--otp", "000000"]), 3);
    assert!(wrong.contains("wrong"), "{wrong}");
    ok(alice.run(&["admin", "prove", "--otp", code(2)]));
    ok(alice.run(&create));
    let status = stdout(&ok(cluster.admin(&["status"])));
    assert!(status.contains("each has one"), "{status}");
}

/// What a cluster asks for that says nothing of it.
#[test]
fn an_administrator_without_a_factor_is_told_how_to_get_one() {
    let cluster = Cluster::with_auth_settings("  authentication: {admin_factor: required}\n");
    let alice = cluster.add_user("alice", "access,editor", &me());
    let add = ["admin", "users", "add", "bob", "--roles", "access"];
    let said = refused(&alice.run(&add), 4);
    assert!(said.contains("you have none") && said.contains("try: sallyport mfa add NAME"), "{said}");
    let status = stdout(&ok(cluster.admin(&["status"])));
    assert!(status.contains("alice without one can do nothing that is: sallyport mfa add NAME"), "{status}");
    let codes = recovery_codes(|arguments| alice.command(arguments));
    refused(&alice.run(&add), 4);
    ok(alice.run(&["admin", "prove", "--otp", &codes[0]]));
    ok(alice.run(&add));
}
