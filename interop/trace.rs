//! `sallyport ssh --trace`: where the time of a connection went.

use std::process::Output;

use crate::support::{Cluster, User, me, ok, refused, stderr, stdout, target};
use serde_json::Value;

/// What `--trace=json` told: the one line of stderr that is JSON.
fn told(output: &Output) -> Value {
    let said = stderr(output);
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no JSON in {said}"));
    serde_json::from_str(line).expect("JSON")
}

fn names(trace: &Value) -> Vec<&str> {
    trace["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect()
}

/// With the helper daemon's help, or without, by SSH.
fn traced(user: &User, helper: &str, arguments: &[&str]) -> Output {
    traced_by(user, "ssh", helper, arguments)
}

fn traced_by(user: &User, front: &str, helper: &str, arguments: &[&str]) -> Output {
    let all = [&["ssh", "--trace=json"], arguments].concat();
    let mut command = user.command(&all);
    command.env("SALLYPORT_CONNECT", helper).env("SALLYPORT_FRONT", front).output().unwrap()
}

#[test]
fn the_native_protocol_takes_one_handshake_and_none_with_a_ticket() {
    let (_cluster, alice) = Cluster::with_node();
    let web = target("web-1");
    let cold = ok(traced_by(&alice, "native", "off", &[&web, "echo out"]));
    assert_eq!(stdout(&cold), "out\n");
    let cold = told(&cold);
    let seen = names(&cold);
    for phase in ["dial", "tls", "stream", "decision", "tunnel", "native.handshake"] {
        assert!(seen.contains(&phase), "{seen:?}");
    }
    assert!(!seen.contains(&"ssh.key_exchange"), "{seen:?}");
    let trips = |trace: &Value| trace["round_trips"].as_u64().unwrap();
    assert!(trips(&cold) < trips(&told(&ok(traced(&alice, "off", &[&web, "echo out"])))), "{cold:#}");
    ok(traced_by(&alice, "native", "30s", &[&web, "true"]));
    ok(traced_by(&alice, "native", "30s", &[&web, "true"]));
    let warm = told(&ok(traced_by(&alice, "native", "30s", &[&web, "true"])));
    ok(alice.run(&["connect", "--stop"]));
    assert!(!names(&warm).contains(&"tls"), "{warm:#}");
}

#[test]
fn a_cold_connection_shows_every_phase_and_counts_round_trips() {
    let (_cluster, alice) = Cluster::with_node();
    let web = target("web-1");
    let phase = |trace: &serde_json::Value, name: &str| {
        trace["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap().clone()
    };
    let once = || {
        let output = ok(traced(&alice, "off", &[&web, "echo out"]));
        assert_eq!(stdout(&output), "out\n");
        told(&output)
    };
    // A machine that is busy notices late that TCP is there. Answers that come much sooner then do not count as such.
    let counted = |trace: &serde_json::Value| phase(trace, "tls")["round_trips"] == 1;
    let trace = (0..5).map(|_| once()).find(counted).expect("TLS takes one round trip");
    let phases = [
        "name",
        "dial",
        "tls",
        "stream",
        "decision",
        "tunnel",
        "ssh.version",
        "ssh.key_exchange",
        "ssh.authentication",
        "ssh.channel",
        "ssh.program",
        "ssh.first_byte",
    ];
    let mut seen = names(&trace);
    seen.sort_unstable();
    let mut expected = phases.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected, "{trace:#}");
    assert_eq!(trace["trace_id"].as_str().unwrap().len(), 32);
    assert!(trace["failed"].is_null() && trace["helper"].is_null(), "{trace:#}");
    assert_eq!(phase(&trace, "dial")["round_trips"], 1);
    assert_eq!(phase(&trace, "decision")["by"], "proxy");
    assert!(phase(&trace, "dial")["network.peer.address"].as_str().unwrap().starts_with("127.0.0.1:"));
    // TCP, TLS, and what SSH takes at least; on this quick link each change of direction counts.
    let round_trips = trace["round_trips"].as_u64().unwrap();
    assert!((6..=24).contains(&round_trips), "{trace:#}");
    let times = |key: &str| {
        trace["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|phase| phase[key].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    let end = trace["duration_ms"].as_f64().unwrap();
    let starts = times("start_ms");
    assert!(starts.iter().zip(times("duration_ms")).all(|(start, took)| start + took <= end + 0.01));
    assert!(starts.iter().all(|start| *start >= 0.0), "{trace:#}");

    let all = ["ssh", "--trace", web.as_str(), "true"];
    let mut command = alice.command(&all);
    let output = ok(command.env("SALLYPORT_CONNECT", "off").env("SALLYPORT_FRONT", "ssh").output().unwrap());
    let said = stderr(&output);
    assert!(said.contains("start ms") && said.contains("ssh.key_exchange"), "{said}");
    assert!(said.contains(" round trips; one takes about "), "{said}");
    // Nothing is said, and nothing else changes, where no trace is asked for.
    let plain = ok(alice.command(&["ssh", &web, "true"]).env("SALLYPORT_CONNECT", "off").output().unwrap());
    assert_eq!(stderr(&plain), "");
}

#[test]
fn the_helper_daemon_says_whether_it_was_warm() {
    let (_cluster, alice) = Cluster::with_node();
    let web = target("web-1");
    let first = told(&ok(traced(&alice, "30s", &[&web, "true"])));
    let second = told(&ok(traced(&alice, "30s", &[&web, "true"])));
    ok(alice.run(&["connect", "--stop"]));
    assert_eq!(first["helper"]["started"], true, "{first:#}");
    assert_eq!(second["helper"]["started"], false, "{second:#}");
    assert_eq!(second["helper"]["dialled"], false, "{second:#}");
    let seen = names(&second);
    assert!(seen.contains(&"helper") && !seen.contains(&"dial") && !seen.contains(&"tls"), "{seen:?}");
    assert!(second["round_trips"].as_u64().unwrap() < 24, "{second:#}");
}

#[test]
fn what_failed_is_shown_up_to_the_failure() {
    let (mut cluster, alice) = Cluster::with_node();
    let output = traced(&alice, "off", &[&target("nowhere"), "true"]);
    let trace = told(&output);
    let said = refused(&output, 255);
    assert!(trace["failed"].as_str().unwrap().contains("nowhere"), "{trace:#}");
    assert!(said.contains("no node is called"), "{said}");
    let seen = names(&trace);
    assert!(seen.contains(&"tls") && !seen.contains(&"ssh.authentication"), "{seen:?}");

    cluster.services.take();
    let output = traced(&alice, "off", &[&target("web-1"), "true"]);
    let trace = told(&output);
    refused(&output, 255);
    assert_eq!(names(&trace), ["name", "dial"], "{trace:#}");
    assert!(trace["failed"].as_str().unwrap().contains("cannot connect to"), "{trace:#}");
}

#[test]
fn several_nodes_are_not_one_connection() {
    let (mut cluster, alice) = Cluster::with_node();
    cluster.add_node("web-2", "env: prod");
    let output = alice.run(&["ssh", "--trace", "-l", &me(), "env=prod", "true"]);
    let said = refused(&output, 255);
    assert!(said.contains("--trace shows one connection"), "{said}");
    let said = refused(&alice.run(&["ssh", "--trace=xml", &target("web-1"), "true"]), 2);
    assert!(said.contains("text, json"), "{said}");
}
