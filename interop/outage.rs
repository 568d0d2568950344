//! The authority is away, certificates are renewed in time, and clocks differ.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, reason = "what a failing test says")]

mod support;

use std::fs;
use std::io::{BufReader, Write};
use std::process::{Command, Stdio};

use support::{
    CLUSTER, Cluster, PROGRAM, Process, User, me, ok, read_until, ssh_command, stderr, stdout, target,
    wait_for,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// By every way that people take.
fn enters(alice: &User, word: &str) {
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    for setting in ["on", "off"] {
        let command = format!("echo {word} {setting}");
        let output =
            ssh_command(&config).args([&web, &command]).env("SALLYPORT_CONNECT", setting).output().unwrap();
        assert_eq!(stdout(&ok(output)), format!("{word} {setting}\n"));
    }
    let output = alice.command(&["ssh", &web, &format!("echo {word} own")]).output().unwrap();
    assert_eq!(stdout(&ok(output)), format!("{word} own\n"));
    let jump = alice.ssh_config(&["--jump"]);
    let output = ssh_command(&jump).args([&web, &format!("echo {word} jump")]).output().unwrap();
    assert_eq!(stdout(&ok(output)), format!("{word} jump\n"));
}

fn wait_enters(alice: &User) {
    let config = alice.ssh_config(&[]);
    wait_for("the node to be reachable again", || {
        let output = ssh_command(&config).args([&target("web-1"), "true"]).output().unwrap();
        output.status.success().then_some(())
    });
}

#[test]
fn an_authority_that_is_away_is_not_noticed() {
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    let web = target("web-1");
    enters(&alice, "before");
    let mut session = ssh_command(&alice.ssh_config(&[]))
        .args([&web, "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = session.stdin.take().unwrap();
    let mut output = BufReader::new(session.stdout.take().unwrap());
    let mut says = |word: &str| {
        input.write_all(format!("{word}\n").as_bytes()).unwrap();
        read_until(&mut output, word);
    };
    says("the authority is there");
    // The copies of what is known are written a moment after a change.
    for place in ["node-web-1/node/policy.json", "proxy/proxy/policy.json"] {
        wait_for(place, || {
            let text = fs::read_to_string(cluster.path(place)).ok()?;
            text.contains("web-1").then_some(())
        });
    }
    cluster.services.take().unwrap().kill_9();

    // Whoever runs goes on, and whoever is logged in gets in.
    says("the authority has gone");
    enters(&alice, "during");
    // The decisions are those of before.
    let nobody = format!("nobody-i-know@web-1.{CLUSTER}");
    let refused = ssh_command(&alice.ssh_config(&[])).args([&nobody, "true"]).output().unwrap();
    assert!(stderr(&refused).contains("no role allows it"), "{}", stderr(&refused));
    // A node that starts anew decides with what it had on disk; so does a proxy.
    cluster.node("web-1").kill_9();
    cluster.restart_node("web-1");
    wait_enters(&alice);
    enters(&alice, "node-anew");
    cluster.node("proxy").kill_9();
    let config = cluster.path("proxy.yaml");
    let proxy = cluster.spawn_node("proxy", &config);
    cluster.nodes.retain(|(name, _)| name != "proxy");
    cluster.nodes.push(("proxy".to_owned(), proxy));
    wait_enters(&alice);
    enters(&alice, "proxy-anew");
    // Only what needs the authority says so.
    let listed = alice.run(&["ls"]);
    assert!(!listed.status.success() && !stderr(&listed).is_empty());
    let _ = session.kill();
    let _ = session.wait();

    // It is back: what waited arrives, from before the restarts as well.
    cluster.start_services();
    for word in ["during", "node-anew", "proxy-anew"] {
        for way in ["on", "off", "own", "jump"] {
            let command = format!("echo {word} {way}");
            let event =
                cluster.wait_event("session.exec", |event| event["fields"]["command"] == command.as_str());
            let session = event["session_id"].as_str().or(event["session"].as_str()).unwrap().to_owned();
            cluster.wait_recording("complete", |recording| recording["session_id"] == session.as_str());
            assert!(cluster.playback(&session, "text").contains(&format!("{word} {way}")));
        }
    }
    cluster.wait_event("session.refused", |event| event["login"] == "nobody-i-know");
    enters(&alice, "after");
    let _ = alice.run(&["connect", "--stop"]);
}

#[test]
fn host_certificates_are_renewed_before_two_thirds_of_their_life() {
    let mut cluster = Cluster::with_auth_settings("  lifetimes:\n    host: {default: 1m}\n");
    cluster.add_node("web-1", "env: prod");
    let alice = cluster.add_user("alice", "access", &me());
    let identity = |place: &str| {
        let text = fs::read_to_string(cluster.path(place)).ok()?;
        let identity: serde_json::Value = serde_json::from_str(&text).ok()?;
        let at = |key: &str| OffsetDateTime::parse(identity[key].as_str()?, &Rfc3339).ok();
        Some((at("issued")?, at("valid_until")?))
    };
    let mut session =
        ssh_command(&alice.ssh_config(&[])).args([&target("web-1"), "sleep 300"]).spawn().unwrap();
    for place in ["node-web-1/node/identity.json", "data/proxy/identity.json"] {
        let (issued, valid_until) = identity(place).unwrap();
        let life = valid_until - issued;
        assert!(life <= time::Duration::seconds(61), "{life}");
        let (renewed, _) =
            wait_for("a renewed certificate", || identity(place).filter(|(at, _)| *at != issued));
        let share = (renewed - issued) / life;
        assert!(share < 2.0 / 3.0, "{place}: renewed after {share} of its life");
    }
    // Nobody noticed.
    assert!(session.try_wait().unwrap().is_none());
    enters(&alice, "renewed");
    session.kill().unwrap();
    session.wait().unwrap();
    let _ = alice.run(&["connect", "--stop"]);
}

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

fn at_another_time<'c>(command: &'c mut Command, offset: &str) -> &'c mut Command {
    command
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME", offset)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_NO_CACHE", "1")
}

#[test]
fn clocks_may_differ_by_a_minute() {
    let mut cluster = Cluster::bare();
    for (name, offset) in [("web-1", "-50"), ("web-2", "+50")] {
        let token = cluster.token(&[]);
        let config = cluster.node_config(name, "env: prod", Some(&token));
        let log = cluster.path(&format!("node-{name}.log"));
        let mut command = Command::new(PROGRAM);
        at_another_time(command.args(["start", "-c"]).arg(config), offset);
        cluster.nodes.push((name.to_owned(), Process::spawn(&mut command, log)));
        cluster.wait_online(name);
    }
    let alice = cluster.add_user("alice", "access", &me());
    for node in ["web-1", "web-2"] {
        let web = target(node);
        for offset in ["-50", "+0", "+50"] {
            let mut own = alice.command(&["ssh", &web, "date +%s"]);
            at_another_time(&mut own, offset).env("SALLYPORT_CONNECT", "off");
            ok(own.output().unwrap());
            let config = alice.ssh_config(&[]);
            let mut stock = ssh_command(&config);
            at_another_time(&mut stock, offset).env("SALLYPORT_CONNECT", "off").args([&web, "true"]);
            ok(stock.output().unwrap());
        }
    }
    // Far off is told in words.
    let mut late = alice.command(&["ssh", &target("web-1"), "true"]);
    let late = at_another_time(&mut late, "-3600").env("SALLYPORT_CONNECT", "off").output().unwrap();
    assert!(!late.status.success() && stderr(&late).contains("clock"), "{}", stderr(&late));
}
