//! What people do and what they are told: logging in, being refused, being locked, asking why.

use crate::support;

use crate::support::{Cluster, PASSWORD, User, enrol_codes, me, ok, refused, stdout, target};
use time::OffsetDateTime;

#[test]
fn a_second_factor_is_enrolled_used_once_and_needed() {
    let cluster = Cluster::bare();
    let link = cluster.invite("alice", "access", &me());
    let mut alice = User {
        name: "alice".to_owned(),
        home: cluster.path("home-alice"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    let now = OffsetDateTime::now_utc();
    let (uri, secret) = enrol_codes(alice.command(&["signup", &link, "--password-stdin"]), now);
    alice.otp_uri = Some(uri);

    let used = refused(&alice.login(&["--otp", &secret.code(now)]), 3);
    assert!(used.contains("this one-time code was used already") && used.contains("comes in"), "{used}");
    refused(&alice.login(&[]), 3);
    let next = secret.code(now + time::Duration::seconds(30));
    ok(alice.login(&["--otp", &next]));
    refused(&alice.login(&["--otp", &next]), 3);
    let again = refused(&alice.run_with_input(&["signup", &link, "--password-stdin"], "x\n"), 4);
    assert!(again.contains("this link has been used"), "{again}");
    cluster.wait_event("user.login_failed", |event| event["message"] == "used one-time code");
    cluster.wait_event("user.invite_refused", |_| true);
    cluster.wait_event("cert.issued", |event| {
        event["user"] == "alice" && event["fields"]["ssh_serial"].is_string()
    });
}

#[test]
fn guessing_closes_an_account_and_a_reset_opens_it() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let stranger = User {
        name: "stranger".to_owned(),
        home: cluster.path("home-stranger"),
        proxy: cluster.proxy(),
        otp_uri: None,
    };
    for user in [&alice, &stranger] {
        for _ in 0..5 {
            let said = refused(&user.login_with("wrong password", &[]), 3);
            assert!(said.contains("wrong user name, password or one-time code"), "{said}");
        }
        // Whether the name exists or not, the answer is the same.
        let said = refused(&user.login(&[]), 1);
        assert!(said.contains("this account is closed for 15 more minutes"), "{said}");
    }
    cluster.wait_event("user.locked_out", |event| event["user"] == "alice");
    let output = ok(cluster.admin(&["users", "reset", "alice", "--format", "json"]));
    let link: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let link = link["link"].as_str().unwrap();
    ok(alice.run_with_input(
        &["signup", link, "--no-second-factor", "--password-stdin"],
        "another long password\n",
    ));
    ok(alice.login_with("another long password", &[]));
    refused(&alice.login(&[]), 3);
}

#[test]
fn the_first_contact_needs_the_right_pin() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user_without_login("alice", "access", &me());
    let login = |pin: &[&str]| {
        let mut arguments = vec!["login", "--user", "alice", "--password-stdin"];
        arguments.extend(pin);
        alice.run_with_input(&arguments, &format!("{PASSWORD}\n"))
    };
    let unknown = refused(&login(&[]), 255);
    assert!(unknown.contains("has never seen") && unknown.contains("--ca-pin PIN"), "{unknown}");
    assert!(!unknown.contains("sha256:"), "what the address itself says is no pin to paste: {unknown}");
    let wrong = format!("sha256:{}", "0".repeat(64));
    let said = refused(&login(&["--ca-pin", &wrong]), 255);
    assert!(said.contains("is not the cluster of this pin") && said.contains("an administrator"), "{said}");
    let link = cluster.invite("bob", "access", &me());
    let link = format!("{}#{wrong}", link.split('#').next().unwrap());
    let said = refused(&alice.run_with_input(&["signup", &link, "--password-stdin"], "x\n"), 255);
    assert!(said.contains("is not the cluster of this pin") && said.contains("invite link"), "{said}");
    for debug in ["OtherError", "Refused", "InvalidCertificate", "sallyport login", &cluster.pin] {
        assert!(!said.contains(debug), "{debug}: {said}");
    }
    refused(&login(&["--ca-pin", "nonsense"]), 2);
    ok(login(&["--ca-pin", &cluster.pin]));
    // Known from now on.
    ok(login(&[]));
}

#[test]
fn lifetimes_are_bounded_and_an_expired_login_says_so() {
    let (cluster, alice) = Cluster::with_node();
    let long = refused(&alice.login(&["--ttl", "30h"]), 1);
    assert!(long.contains("the longest lifetime is 12h") && long.contains("try: leave --ttl out"), "{long}");
    let short = refused(&alice.login(&["--ttl", "30s"]), 1);
    assert!(short.contains("the shortest lifetime is 1m"), "{short}");
    ok(alice.login(&["--ttl", "1m"]));
    ok(alice.ssh(&[&target("web-1"), "true"]));
    // As an hour later: the certificates are what they were, the profile says when they end.
    let output = ok(alice.run(&["status", "--format", "json"]));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["expired"], false);
    let profile = std::fs::read_dir(&alice.home)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("profile.json"))
        .find(|path| path.exists())
        .unwrap();
    let text = std::fs::read_to_string(&profile).unwrap();
    let until = status["valid_until"].as_str().unwrap();
    let year = &until[..4];
    std::fs::write(&profile, text.replace(&format!("\"{year}-"), "\"2020-")).unwrap();
    for arguments in [&["ls"][..], &["ssh", &target("web-1"), "true"]] {
        let said = stderr_of(&alice.run(arguments));
        assert!(said.contains("expired") && said.contains("sallyport login"), "{said}");
    }
    assert_eq!(alice.run(&["status"]).status.code(), Some(3));
    drop(cluster);
}

fn stderr_of(output: &std::process::Output) -> String {
    assert!(!output.status.success());
    support::stderr(output)
}

#[test]
fn a_refusal_names_what_is_missing_and_why_explains_it() {
    let (mut cluster, alice) = Cluster::with_node();
    let said = stderr_of(&alice.ssh(&[&format!("intruder@web-1.{}", support::CLUSTER), "true"]));
    assert!(said.contains("alice may not log in as intruder on web-1"), "{said}");
    assert!(said.contains(&format!("logins you may use there: {}", me())), "{said}");
    let said = stderr_of(&alice.run(&["ssh", "intruder@web-1", "true"]));
    assert!(said.contains("alice may not log in as intruder on web-1"), "{said}");
    let said = stderr_of(&alice.run(&["ssh", &format!("{}@nowhere", me()), "true"]));
    assert!(said.contains("nowhere"), "{said}");
    cluster.wait_event("session.refused", |event| event["user"] == "alice" && event["login"] == "intruder");

    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: no-prod}\nspec:\n  deny:\n    node_labels: {env: prod}\n",
    ));
    ok(cluster.create(&format!(
        "kind: user\nversion: v1\nmetadata: {{name: alice}}\nspec:\n  roles: [access, no-prod]\n  traits:\n    \
         internal.logins: [{}]\n",
        me()
    )));
    let why = |user: &str, login: &str| {
        let data = cluster.data_dir();
        let data = data.to_str().unwrap();
        let arguments =
            ["access", "why", "--data-dir", data, "--user", user, "--login", login, "--node", "web-1"];
        let output = alice.run(&arguments);
        (output.status.code(), stdout(&output))
    };
    let (code, said) = why("alice", &me());
    assert_eq!(code, Some(4));
    assert!(said.contains("role \"no-prod\" deny.node_labels"), "{said}");
    assert!(said.contains("role \"access\" allows it"), "{said}");
    // The certificate still has the old roles; the new login has the new ones.
    ok(alice.login(&[]));
    let said = stderr_of(&alice.ssh(&[&target("web-1"), "true"]));
    assert!(said.contains("no-prod"), "{said}");
    cluster.nodes.clear();
}

#[test]
fn a_lock_keeps_out_at_once_and_cuts_live_sessions() {
    let (cluster, alice) = Cluster::with_node();
    let mut ssh = support::ssh_command(&alice.ssh_config(&[]));
    let (mut live, mut lines) = support::under_way(ssh.args([&target("web-1"), "echo began; sleep 600"]));
    support::read_until(&mut lines, "began");
    ok(cluster.admin(&["lock", "--user", "alice", "--message", "on leave"]));
    let begin = std::time::Instant::now();
    assert!(!live.wait().unwrap().success());
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
    let said = stderr_of(&alice.ssh(&[&target("web-1"), "true"]));
    assert!(said.contains("on leave"), "{said}");
    let said = refused(&alice.login(&[]), 4);
    assert!(said.contains("on leave"), "{said}");
    ok(cluster.admin(&["rm", "lock/user-alice"]));
    ok(alice.login(&[]));
    support::wait_for("the lock to be lifted everywhere", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
}

#[test]
fn administration_needs_a_right_and_resources_have_revisions() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let editor = cluster.add_user("erin", "editor", "");
    for arguments in [
        &["admin", "users", "ls"][..],
        &["admin", "audit", "ls"],
        &["admin", "tokens", "add"],
        &["admin", "status"],
    ] {
        let said = refused(&alice.run(arguments), 4);
        assert!(said.contains("alice may not"), "{said}");
        ok(editor.run(arguments));
    }
    let none = ok(cluster.admin(&["audit", "ls", "--user", "no-user-of-the-name"]));
    assert!(stdout(&none).is_empty() && support::stderr(&none).contains("no such event"), "{none:?}");
    let tokens = stdout(&ok(cluster.admin(&["tokens", "ls"])));
    assert!(tokens.contains("expires=") && !tokens.contains('.'), "{tokens}");
    let bad = cluster.create("kind: role\nversion: v1\nmetadata: {name: x}\nspec:\n  alow: {}\n");
    let said = refused(&bad, 1);
    assert!(said.contains("role:5:3: spec.alow: no such key; did you mean allow?"), "{said}");
    let said = refused(&cluster.admin(&["rm", "role/access"]), 1);
    assert!(said.contains("held by alice"), "{said}");
    // Two people edit the same role: the second is told.
    let edit = |user: &User, script: &str| {
        user.command(&["admin", "edit", "role/auditor"])
            .env("EDITOR", script)
            .env_remove("VISUAL")
            .output()
            .unwrap()
    };
    ok(edit(&editor, "sed -i s/every/each/"));
    let conflict = cluster.path("conflict.sh");
    std::fs::write(
        &conflict,
        format!(
            "#!/bin/sh\n{} admin --data-dir {} get role/auditor | sed 's/each/some/' > $1.other\n{} admin --data-dir {} create \
             --force -f $1.other\nsed -i s/each/all/ $1\n",
            support::PROGRAM,
            cluster.data_dir().display(),
            support::PROGRAM,
            cluster.data_dir().display()
        ),
    )
    .unwrap();
    let said = refused(&edit(&editor, &format!("sh {}", conflict.display())), 1);
    assert!(said.contains("was changed meanwhile") && said.contains("your edit is in"), "{said}");
    let text = stdout(&ok(cluster.admin(&["get", "role/auditor"])));
    assert!(text.contains("# revision ") && text.contains("some recording"), "{text}");
    cluster.wait_event("role.updated", |event| event["user"] == "erin");
    cluster.wait_event("api.refused", |event| {
        event["user"] == "alice" && event["fields"]["method"] == "Admin.CreateToken"
    });
    let verified = stdout(&ok(cluster.admin(&["audit", "verify"])));
    assert!(verified.contains("The audit log is intact"), "{verified}");
}

#[test]
fn tokens_are_good_once_and_for_a_while() {
    let mut cluster = Cluster::bare();
    // The shortest life that a token may have; it is lived through beside everything else.
    let stale = cluster.token(&["--ttl", "10s"]);
    let made = std::time::Instant::now();
    let token = cluster.token(&[]);
    let config = cluster.node_config("web-1", "env: prod", Some(&token));
    let process = cluster.spawn_node("web-1", &config);
    cluster.nodes.push(("web-1".to_owned(), process));
    cluster.wait_online("web-1");
    for (name, token, expected) in [
        ("web-2", token.clone(), "this token has been used"),
        ("web-3", "aaaaaaaabbbbbbbbccccccccdddddddd".to_owned(), "this token is not known"),
        ("web-4", cluster.token(&["--role", "proxy"]), "this token is for a proxy"),
    ] {
        let config = cluster.node_config(name, "env: prod", Some(&token));
        let mut process = cluster.spawn_node(name, &config);
        let status = support::wait_for("the node to give up", || process.child.try_wait().unwrap());
        assert!(!status.success());
        let log = std::fs::read_to_string(&process.log).unwrap();
        assert!(log.contains(expected), "{name}: {log}");
        assert!(!log.contains(&token), "the token stands in the log");
        cluster.wait_event("node.join_refused", |event| event["node"] == name);
    }
    std::thread::sleep(std::time::Duration::from_secs(11).saturating_sub(made.elapsed()));
    let config = cluster.node_config("web-5", "env: prod", Some(&stale));
    let mut process = cluster.spawn_node("web-5", &config);
    support::wait_for("the node to give up", || process.child.try_wait().unwrap());
    let log = std::fs::read_to_string(&process.log).unwrap();
    assert!(log.contains("this token has expired"), "{log}");
}
