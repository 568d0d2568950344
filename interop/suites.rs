//! Changes of suite on a live cluster: which clients would break is said before, and those break and no others.

use std::process::{Command, Output, Stdio};

use crate::support::{Cluster, User, me, ok, refused, ssh_command, stderr, stdout, target, wait_for};
use serde_json::Value;

fn cluster(suite: &str) -> (Cluster, User) {
    let mut cluster = Cluster::with_auth_settings(&format!("  suite: {suite}\n"));
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    (cluster, alice)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Whether the ssh of this machine has what `pq-v1` requires: then nothing breaks that could be shown.
fn stock_ssh_is_hybrid() -> bool {
    let kex = Command::new("ssh").args(["-Q", "kex"]).output().expect("run ssh");
    stdout(&kex).contains("mlkem768x25519-sha256")
}

/// Stock `ssh` to the node. One that ends in the helper daemon does not leave the machine, and no suite is asked of it.
fn end_to_end(alice: &User, arguments: &[&str]) -> Output {
    let mut command = ssh_command(&alice.ssh_config(&[]));
    command.args(arguments).env("SALLYPORT_FRONT", "ssh").output().expect("run ssh")
}

/// `ssh -v`, until the host shows a key of this type.
fn wait_host_key(alice: &User, wanted: &str) {
    let config = alice.ssh_config(&[]);
    wait_for(&format!("a host key of {wanted}"), || {
        let ran = ssh_command(&config)
            .args(["-v", &target("web-1"), "true"])
            .env("SALLYPORT_FRONT", "ssh")
            .output()
            .unwrap();
        stderr(&ran).contains(&format!("kex: host key algorithm: {wanted}")).then_some(())
    });
}

#[test]
fn clients_that_would_break_are_named_before_and_break_and_no_others() {
    if stock_ssh_is_hybrid() {
        eprintln!("skipped: the ssh of this machine has hybrid key exchange, so pq-v1 breaks nothing");
        return;
    }
    let (mut cluster, alice) = cluster("balanced-v1");
    let web = target("web-1");
    let own = format!("{}@web-1", me());
    assert_eq!(stdout(&ok(end_to_end(&alice, &[&web, "echo hello"]))), "hello\n");
    ok(alice.run(&["ssh", &own, "true"]));

    // Before anything changes: the client by name, with what it lacks, whose it is and who saw it.
    let named = wait_for("the preflight to name stock ssh", || {
        let output = cluster.admin(&["suite", "preflight", "--to", "pq-v1", "--format", "json"]);
        let preflight = json(&output);
        let breaks = preflight["breaks"].as_array()?.clone();
        let found = breaks.iter().find(|one| one["client"]["seen_by"][0] == "node:web-1").cloned()?;
        assert_eq!((output.status.code(), breaks.len()), (Some(5), 1), "{preflight:#}");
        Some(found)
    });
    assert!(named["client"]["software"].as_str().unwrap().starts_with("OpenSSH_"), "{named:#}");
    assert!(named["reason"].as_str().unwrap().starts_with("offers no mlkem768x25519-sha256"), "{named:#}");
    assert_eq!((&named["client"]["users"][0], &named["felt"]), (&"alice".into(), &"at once".into()));
    let told = cluster.admin(&["suite", "preflight", "--to", "pq-v1"]);
    let text = stdout(&told);
    for line in [
        "balanced-v1 to pq-v1",
        "key-exchange: preferred to required",
        "host-tls: ecdsa-p256 to ml-dsa-65",
        "sallyport admin ca rotate --type host",
        "would break:\n  ssh client OpenSSH_",
        " by alice on node:web-1",
        "1 client would break",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    assert_eq!(cluster.admin(&["suite", "preflight", "--to", "fips-v1"]).status.code(), Some(0));

    // Not without being asked.
    let said = refused(&cluster.admin(&["suite", "set", "pq-v1"]), 1);
    assert!(said.contains("would break: ssh client OpenSSH_") && said.contains("--yes"), "{said}");
    let current = |cluster: &Cluster| {
        let suites = json(&ok(cluster.admin(&["suite", "ls", "--format", "json"])));
        let current = suites.as_array().unwrap().iter().find(|suite| suite["current"] == true).cloned();
        current.unwrap()["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(current(&cluster), "balanced-v1");

    ok(cluster.admin(&["suite", "set", "pq-v1", "--yes"]));
    assert_eq!(current(&cluster), "pq-v1");
    let said = wait_for("stock ssh to be sent away", || {
        let ran = end_to_end(&alice, &[&web, "true"]);
        (ran.status.code() == Some(255)).then(|| stderr(&ran))
    });
    assert!(
        said.contains("this cluster requires post-quantum key exchange (mlkem768x25519-sha256)"),
        "{said}"
    );
    assert!(said.contains("or: sallyport ssh"), "{said}");
    ok(alice.ssh(&[&web, "true"]));
    cluster.wait_event("session.refused", |event| {
        event["message"].as_str().is_some_and(|message| message.contains("offers no mlkem768x25519-sha256"))
            && event["fields"]["client"].as_str().is_some_and(|client| client.starts_with("OpenSSH_"))
    });
    // Our own client goes on, with the login from before and with a new one; so do the node and one that joins now.
    ok(alice.run(&["ssh", &own, "true"]));
    ok(alice.login(&[]));
    ok(alice.run(&["ssh", &own, "true"]));
    cluster.add_node("web-2", "env: prod");
    ok(alice.run(&["ssh", &format!("{}@web-2", me()), "true"]));
    // A client that only reads the public pages is not concerned.
    let page = Command::new("curl")
        .args(["-sk", "--max-time", "20", &format!("https://{}/healthz", cluster.proxy())])
        .stdin(Stdio::null())
        .output()
        .expect("run curl");
    ok(page);
    // The node tells of its clients some time later.
    let sent_away = |client: &Value| client["refused"].as_str().is_some_and(|reason| !reason.is_empty());
    wait_for("the client that was sent away to be known", || {
        let clients = json(&ok(cluster.admin(&["suite", "clients", "--kind", "ssh", "--format", "json"])));
        clients["clients"].as_array().unwrap().iter().any(sent_away).then_some(())
    });

    // And back: no client breaks, so no question is asked.
    ok(cluster.admin(&["suite", "set", "balanced-v1"]));
    wait_for("stock ssh to work again", || {
        end_to_end(&alice, &[&web, "true"]).status.success().then_some(())
    });
    ok(alice.run(&["ssh", &own, "true"]));
    let changes: Vec<(Value, Value)> = cluster
        .events()
        .into_iter()
        .filter(|event| event["kind"] == "suite.changed")
        .map(|event| (event["fields"]["from"].clone(), event["fields"]["to"].clone()))
        .collect();
    let wanted = [("balanced-v1", "pq-v1"), ("pq-v1", "balanced-v1")];
    assert_eq!(changes, wanted.map(|(from, to)| (Value::from(from), Value::from(to))));
}

#[test]
fn a_cluster_leaves_legacy_and_comes_back() {
    let (cluster, alice) = cluster("legacy");
    let web = target("web-1");
    let own = format!("{}@web-1", me());
    for (suite, host_key) in [
        ("", "rsa-sha2-512-cert-v01@openssh.com"),
        ("balanced-v1", "ssh-ed25519-cert-v01@openssh.com"),
        ("legacy", "rsa-sha2-512-cert-v01@openssh.com"),
    ] {
        if !suite.is_empty() {
            ok(cluster.admin(&["suite", "preflight", "--to", suite]));
            ok(cluster.admin(&["suite", "set", suite]));
            // The login from before the change works on.
            ok(alice.run(&["ssh", &own, "true"]));
            ok(end_to_end(&alice, &[&web, "true"]));
        }
        wait_host_key(&alice, host_key);
        ok(alice.login(&[]));
        assert_eq!(stdout(&ok(end_to_end(&alice, &[&web, "echo hello"]))), "hello\n", "{suite}");
        ok(alice.run(&["ssh", &own, "true"]));
    }
}
