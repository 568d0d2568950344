//! Logins of one user: seen, ended from another machine, logged out of, and the password that opens them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Cluster, PASSWORD, User, json, me, ok, read_until, recovery_codes, refused, ssh_command, stderr, stdout,
    target, under_way,
};

/// How long what has ended may still run.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The same user at another machine.
fn machine(cluster: &Cluster, user: &User, name: &str) -> User {
    let home = cluster.path(&format!("home-{name}"));
    User { name: user.name.clone(), home, proxy: user.proxy.clone(), otp_uri: None }
}

/// Stock ssh, which starts a program of its own for each connection.
fn stock(config: &Path) -> Command {
    let mut ssh = ssh_command(config);
    ssh.env("SALLYPORT_CONNECT", "off");
    ssh
}

/// By every way that a certificate is shown: the API, our own client, and stock ssh, which asks our program or jumps.
fn by_all_ways(user: &User) -> [Output; 4] {
    let (config, jump) = (user.ssh_config(&[]), user.ssh_config(&["--jump"]));
    let web = target("web-1");
    let by = |config: &Path| stock(config).args([&web, "true"]).output().unwrap();
    let own = user.command(&["ssh", &web, "true"]).env("SALLYPORT_CONNECT", "off").output().unwrap();
    [user.run(&["ls"]), own, by(&config), by(&jump)]
}

fn is_in(user: &User) {
    for output in by_all_ways(user) {
        ok(output);
    }
}

fn logins(user: &User) -> Vec<Value> {
    json(&ok(user.run(&["sessions", "logins", "--format", "json"]))).as_array().unwrap().clone()
}

#[test]
fn a_login_ends_at_once_by_another_of_its_user_and_by_logging_out() {
    let (cluster, alice) = Cluster::with_node();
    let [laptop, desk] = ["laptop", "desk"].map(|name| machine(&cluster, &alice, name));
    for user in [&laptop, &desk] {
        ok(user.login(&[]));
    }
    is_in(&laptop);
    let own = logins(&laptop).into_iter().find(|login| login["current"] == true).unwrap();
    let id = own["id"].as_str().unwrap();
    let text = stdout(&ok(alice.run(&["sessions", "logins"])));
    assert!(text.contains("now, here") && text.contains(id), "{text}");
    let said = refused(&alice.run(&["sessions", "logins", "end", "ffffffff"]), 1);
    assert!(said.contains("no open login has an id that begins with \"ffffffff\""), "{said}");

    let (mut live, mut lines) =
        under_way(stock(&laptop.ssh_config(&[])).args([&target("web-1"), "echo began; sleep 600"]));
    read_until(&mut lines, "began");
    let asked = Instant::now();
    let ended = ok(alice.run(&["sessions", "logins", "end", &id[..30]]));
    assert!(!live.wait().unwrap().success());
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(stdout(&ended), "Ended 1 login; its sessions end within seconds.\n");
    for output in by_all_ways(&laptop) {
        assert!(!output.status.success() && stderr(&output).contains("login"), "{output:?}");
    }
    cluster.wait_event("login.ended", |event| event["fields"]["login_id"] == id);

    // All but this one.
    is_in(&desk);
    ok(alice.run(&["sessions", "logins", "end", "--others"]));
    refused(&desk.run(&["ls"]), 4);
    assert_eq!(logins(&alice).len(), 1);
    let none = ok(alice.run(&["sessions", "logins", "end", "--others"]));
    assert_eq!(stdout(&none), "There was no other login to end.\n");

    // A thief has copied the whole directory of the login, and its user logs out.
    let thief = machine(&cluster, &alice, "thief");
    ok(Command::new("cp").arg("-a").args([&alice.home, &thief.home]).output().unwrap());
    is_in(&thief);
    let (mut live, mut lines) =
        under_way(stock(&thief.ssh_config(&[])).args([&target("web-1"), "echo began; sleep 600"]));
    read_until(&mut lines, "began");
    let asked = Instant::now();
    let out = ok(alice.run(&["logout"]));
    assert!(stdout(&out).starts_with("Logged out of interop.test") && stderr(&out).is_empty(), "{out:?}");
    assert!(!live.wait().unwrap().success());
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    for output in by_all_ways(&thief) {
        assert!(!output.status.success() && stderr(&output).contains("its user logged out"), "{output:?}");
    }
    refused(&alice.run(&["ls"]), 3);
    // Of a login that has ended nothing goes on to count.
    let out = ok(thief.run(&["logout"]));
    assert!(stderr(&out).is_empty(), "{out:?}");
    ok(alice.login(&[]));
    is_in(&alice);
}

#[test]
fn a_password_is_changed_by_the_old_one_and_a_factor_and_other_logins_end() {
    const NEW: &str = "nine purple umbrellas dancing";
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let codes = recovery_codes(|arguments| alice.command(arguments));
    let laptop = machine(&cluster, &alice, "laptop");
    ok(laptop.login(&["--otp", &codes[0]]));
    let change = |old: &str, new: &str, more: &[&str]| {
        let arguments = [&["passwd", "--password-stdin"], more].concat();
        alice.run_with_input(&arguments, &format!("{old}\n{new}\n"))
    };
    let said = refused(&change(PASSWORD, NEW, &[]), 2);
    assert!(said.contains("you have to prove a factor") && said.contains("--otp CODE"), "{said}");
    // The factor is looked at first: without it, a right password and a wrong one read alike.
    let wrong = |old: &str| stderr(&change(old, NEW, &["--otp", "000000"]));
    let said = wrong(PASSWORD);
    assert!(said.contains("wrong") && said == wrong("not the password"), "{said}");
    let said = change("not the password", NEW, &["--otp", &codes[1]]);
    assert!(!said.status.success() && stderr(&said).contains("wrong"), "{said:?}");
    let said = change(PASSWORD, PASSWORD, &["--otp", &codes[2]]);
    assert!(!said.status.success() && stderr(&said).contains("choose another one"), "{said:?}");
    ok(laptop.run(&["ls"]));

    let changed = ok(change(PASSWORD, NEW, &["--otp", &codes[3]]));
    assert_eq!(stdout(&changed), "The password is changed.\n");
    assert!(stderr(&changed).contains("Other logins of yours that ended: 1"), "{changed:?}");
    cluster.wait_event("user.password_changed", |event| event["user"] == "alice");
    refused(&laptop.run(&["ls"]), 4);
    ok(alice.run(&["ls"]));
    refused(&laptop.login(&["--otp", &codes[4]]), 3);
    ok(laptop.login_with(NEW, &["--otp", &codes[5]]));
    // What was written nowhere: neither password, nor a code.
    let log = fs::read_to_string(cluster.path("services.log")).unwrap();
    assert!(![PASSWORD, NEW, codes[3].as_str()].iter().any(|secret| log.contains(secret)));
}

#[test]
fn an_administrator_asks_what_the_login_rules_come_to_and_that_is_what_happens() {
    let cluster = Cluster::bare();
    let alice = cluster.add_user("alice", "access", &me());
    let test = |more: &[&str]| cluster.admin(&[&["login-rule", "test", "--user", "alice"], more].concat());
    assert_eq!(stdout(&ok(test(&[]))), "alice would be let in.\n");
    for (name, when, message) in [
        ("office", r#"!context.networks.contains("office")"#, "from the office alone"),
        ("night", "context.hour >= 22", "not at night"),
    ] {
        ok(cluster.create(&format!(
            "kind: login_rule\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  then: deny\n  when: '{when}'\n  message: {message}\n  \
             networks: {{office: [192.0.2.0/24]}}\n"
        )));
    }
    let (noon, night) = ("2030-01-31T12:00:00Z", "2030-01-31T22:30:00Z");
    let at_noon = ok(test(&["--from", "192.0.2.7", "--at", noon]));
    assert!(stdout(&at_noon).ends_with("alice would be let in.\n"), "{at_noon:?}");
    let outcomes = |output: &Output| {
        let said = json(output);
        let met = |rule: &Value| (rule["rule"].as_str().unwrap().to_owned(), rule["meets"] == true);
        let mut rules: Vec<_> = said["rules"].as_array().unwrap().iter().map(met).collect();
        rules.sort();
        (said["allowed"] == true, said["message"].as_str().unwrap().to_owned(), rules)
    };
    for (from, at, office, nightly, message) in [
        ("192.0.2.7", night, false, true, "not at night"),
        ("198.51.100.1", noon, true, false, "from the office alone"),
    ] {
        let output = test(&["--from", from, "--at", at, "--format", "json"]);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let (allowed, said, rules) = outcomes(&output);
        assert!(!allowed && said.contains(message), "{said}");
        assert_eq!(rules, [("night".to_owned(), nightly), ("office".to_owned(), office)]);
    }
    let text = test(&["--from", "127.0.0.1", "--at", noon]);
    assert_eq!(text.status.code(), Some(4));
    assert!(
        stdout(&text).contains("alice would be refused: ") && stdout(&text).contains("not met"),
        "{text:?}"
    );
    // And so it is; what was only asked about has opened nothing.
    let said = alice.login(&[]);
    assert!(!said.status.success() && stderr(&said).contains("from the office alone"), "{said:?}");
    let open = json(&ok(cluster.admin(&["logins", "ls", "--user", "alice", "--format", "json"])));
    assert_eq!(open.as_array().unwrap().len(), 1, "{open}");
    let said = refused(&alice.run(&["admin", "login-rule", "test", "--user", "alice"]), 4);
    assert!(said.contains("alice may not"), "{said}");
}
