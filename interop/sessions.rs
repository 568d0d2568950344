//! Sessions that run: listed, ended, and by whom.

use crate::support;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Cluster, User, me, ok, refused, ssh_command, stderr, stdout, target, wait_for};
use serde_json::Value;

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
fn sessions_have_nothing_open_that_the_node_was_started_with() {
    let (_cluster, alice) = Cluster::with_node();
    let output = ok(alice.run(&["ssh", &target("web-1"), "ls /proc/self/fd"]));
    // Its own three, and the directory.
    assert_eq!(stdout(&output), "0\n1\n2\n3\n");
}

#[test]
fn sessions_ignore_no_signal_that_the_node_was_started_to_ignore() {
    let (mut cluster, alice) = Cluster::with_node();
    let ignored = ["ssh", &target("web-1"), "grep SigIgn /proc/self/status"];
    let said = stdout(&ok(alice.run(&ignored)));
    let mask = u64::from_str_radix(said.trim().trim_start_matches("SigIgn:").trim(), 16).unwrap();
    // Those from 32 on are the C library's own.
    assert_eq!(mask & 0x7fff_ffff, 0, "{said}");
    // The node does as it was told.
    cluster.node("web-1").signal("HUP");
    ok(alice.run(&ignored));
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
    assert!(live(&bob).is_empty(), "what is another user's");
    let said = refused(&bob.run(&["sessions", "end", &id]), 4);
    assert!(said.contains("bob may not delete session"), "{said}");
    let text = stdout(&ok(carol.run(&["sessions", "ls", "--user", "alice"])));
    assert!(text.contains("alice") && text.contains("sleep 600"), "{text}");
    assert!(stdout(&ok(carol.run(&["sessions", "ls", "--user", "bob"]))).is_empty());

    let asked = Instant::now();
    ok(carol.run(&["sessions", "terminate", &id[..30], "--reason", "maintenance"]));
    let ended = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
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

/// Waits until a client's output has this in it.
fn sees(output: &mut impl std::io::Read, seen: &mut String, what: &str) {
    let began = Instant::now();
    while !seen.contains(what) {
        assert!(began.elapsed() < support::PATIENCE, "{what:?} never came: {seen}");
        let mut block = [0; 4096];
        let length = output.read(&mut block).unwrap();
        assert!(length > 0, "ended before {what:?}: {seen}");
        seen.push_str(&String::from_utf8_lossy(&block[..length]));
    }
}

#[test]
fn sessions_are_joined_through_the_proxy_by_ssh_and_by_our_own_client() {
    let (cluster, alice) = Cluster::with_node();
    ok(cluster.create(
        "kind: role\nversion: v1\nmetadata: {name: support}\nspec:\n  allow:\n    join_sessions:\n    - roles: [access]\n      \
         modes: [observer]\n",
    ));
    // Carol may log in nowhere; mallory may do nothing at all.
    let carol = cluster.add_user("carol", "support", "nobody");
    ok(cluster.create("kind: role\nversion: v1\nmetadata: {name: none}\nspec: {}\n"));
    let mallory = cluster.add_user("mallory", "none", "nobody");
    let mut owner = ssh_command(&alice.ssh_config(&[]))
        .args(["-tt", &target("web-1"), "echo the first screen; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut owners = owner.stdout.take().unwrap();
    let mut seen = String::new();
    sees(&mut owners, &mut seen, "the first screen");
    let one = wait_for("the session to be listed", || live(&carol).into_iter().next());
    assert_eq!(one["may_join"], serde_json::json!(["observer"]), "{one}");
    let id = one["session_id"].as_str().unwrap().to_owned();
    assert!(live(&mallory).is_empty());

    let watch = |mut command: std::process::Command| {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut shown = String::new();
        sees(child.stdout.as_mut().unwrap(), &mut shown, "the first screen");
        child
    };
    let mut own = watch(carol.command(&["sessions", "join", &id]));
    sees(&mut owners, &mut seen, "carol joined as observer");
    let listed = wait_for("the one who watches", || {
        live(&alice)[0]["participants"].as_array().unwrap().first().cloned()
    });
    assert_eq!((listed["user"].as_str(), listed["mode"].as_str()), (Some("carol"), Some("observer")));
    let mut stock = ssh_command(&carol.ssh_config(&[]));
    stock.args(["-tt", &format!("sallyport-join@web-1.{}", support::CLUSTER), &id]);
    let mut stock = watch(stock);
    let said = refused(&carol.run(&["sessions", "join", &id, "--mode", "peer"]), 4);
    assert!(said.contains("only as observer, not as peer"), "{said}");
    assert!(!mallory.run(&["sessions", "join", &id]).status.success());
    let mut forced = ssh_command(&mallory.ssh_config(&[]));
    forced.args(["-tt", &format!("sallyport-join@web-1.{}", support::CLUSTER), &id]);
    assert_eq!(forced.output().unwrap().status.code(), Some(255));
    cluster.wait_event("session.refused", |event| {
        event["user"] == "mallory"
            && event["message"].as_str().unwrap().contains("may join no session on web-1")
    });

    ok(alice.run(&["sessions", "end", &id]));
    assert!(owner.wait().is_ok_and(|status| status.code() == Some(255)));
    for joined in [&mut own, &mut stock] {
        assert!(joined.wait().unwrap().success(), "the end of a session is no failure of who watched");
    }
    wait_for("both to have left", || {
        (cluster.events().iter().filter(|event| event["kind"] == "session.left").count() == 2).then_some(())
    });
}
