//! Sessions that run: listed, ended, and by whom.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, reason = "what a failing test says")]

mod support;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Cluster, User, me, ok, refused, ssh_command, stderr, stdout, target, wait_for};

fn live(user: &User) -> Vec<Value> {
    serde_json::from_slice(&ok(user.run(&["sessions", "ls", "--format", "json"])).stdout).expect("JSON")
}

/// A session that runs until it is ended.
fn begin(user: &User) -> (Child, String) {
    let before: Vec<Value> = live(user).iter().map(|one| one["session_id"].clone()).collect();
    let child = ssh_command(&user.ssh_config(&[]))
        .args([&target("web-1"), "sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = wait_for("the session to be listed", || {
        live(user).into_iter().find(|one| !before.contains(&one["session_id"]))
    });
    (child, id["session_id"].as_str().unwrap().to_owned())
}

#[test]
fn sessions_are_listed_and_ended_by_those_who_may() {
    let (mut cluster, alice) = Cluster::with_node();
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: on-call}\nspec:\n  allow:\n    rules:\n    - resources: [session]\n      \
         verbs: [list, delete]\n",
    ));
    let bob = cluster.add_user("bob", "access", &me());
    let carol = cluster.add_user("carol", "on-call", "nobody");
    let (child, id) = begin(&alice);
    let one = &live(&carol)[0];
    assert_eq!((one["user"].as_str(), one["node"].as_str()), (Some("alice"), Some("web-1")), "{one}");
    assert_eq!(
        (one["command"].as_str(), one["recording"].as_str()),
        (Some("sleep 600"), Some("node")),
        "{one}"
    );
    assert!(live(&bob).is_empty(), "what is somebody else's");
    let said = refused(&bob.run(&["sessions", "end", &id]), 4);
    assert!(said.contains("bob may not delete session"), "{said}");
    let text = stdout(&ok(carol.run(&["sessions", "ls", "--user", "alice"])));
    assert!(text.contains("alice") && text.contains("sleep 600"), "{text}");
    assert!(stdout(&ok(carol.run(&["sessions", "ls", "--user", "bob"]))).is_empty());

    let asked = Instant::now();
    ok(carol.run(&["sessions", "terminate", &id[..30], "--reason", "maintenance"]));
    let ended = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(ended.status.code(), Some(255));
    assert!(stderr(&ended).contains("ended by carol: maintenance"), "{}", stderr(&ended));
    cluster.wait_event("session.terminated", |event| {
        event["user"] == "carol" && event["session_id"] == id.as_str() && event["fields"]["owner"] == "alice"
    });
    wait_for("the list to be empty", || live(&carol).is_empty().then_some(()));
    let said = stderr(&carol.run(&["sessions", "end", &id]));
    assert!(said.contains("no session") && said.contains("sallyport sessions ls"), "{said}");

    // One's own; and a node that comes back tells what is left, which is nothing.
    let (own, id) = begin(&bob);
    ok(bob.run(&["sessions", "end", &id]));
    assert!(stderr(&own.wait_with_output().unwrap()).contains("ended by bob"));
    let (mut lost, _) = begin(&alice);
    cluster.node("web-1").kill_9();
    lost.wait().unwrap();
    cluster.restart_node("web-1");
    wait_for("the lost session to be forgotten", || live(&carol).is_empty().then_some(()));
}
