//! A disk that an attacker has filled to its last byte.

use std::fs;
use std::io::Write;

use crate::support::{Cluster, is_root, ok, stderr, stdout, target, wait_for};

#[test]
fn whoever_fills_the_authoritys_disk_can_still_be_locked_out_and_removed() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::apart_on_disk("", "16m");
    cluster.add_node("web-1", "env: prod");
    let mallory = cluster.add_user("mallory", "access", &crate::support::me());
    let bob = cluster.add_user("bob", "access", &crate::support::me());
    ok(mallory.ssh(&[&target("web-1"), "true"]));
    let ballast = cluster.data_dir().join("ballast");
    let full = || {
        let mut file = fs::File::options().append(true).create(true).open(&ballast).unwrap();
        let block = vec![7; 64 * 1024];
        for size in [block.len(), 4096, 1] {
            while file.write_all(&block[..size]).is_ok() {}
        }
        file.write_all(b"x").is_err()
    };
    assert!(full(), "a byte is left");
    // What is no brake is refused, and the hint fits the error.
    let refused = wait_for("a refusal", || {
        let output = cluster.admin(&["tokens", "add", "--type", "node"]);
        (!output.status.success()).then(|| stderr(&output))
    });
    assert!(refused.contains("disk is full"), "{refused}");
    assert!(refused.contains("make room") && !refused.contains("is the proxy up"), "{refused}");
    // Again and again, with the disk filled anew before each: nothing else gets the room that is kept for this.
    for number in 0..40 {
        assert!(full());
        ok(cluster.admin(&["lock", "--login", &format!("account-{number}")]));
    }
    assert!(full());
    let locked = ok(cluster.admin(&["lock", "--user", "mallory", "--message", "full disk"]));
    assert!(stdout(&locked).contains("Locked user mallory"), "{}", stdout(&locked));
    wait_for("the lock to reach the proxy", || {
        let output = mallory.ssh(&[&target("web-1"), "true"]);
        stderr(&output).contains("full disk").then_some(())
    });
    ok(cluster.admin(&["users", "rm", "bob"]));
    ok(cluster.admin(&["rm", "lock/login-account-1"]));
    wait_for("the removal to reach the proxy", || {
        (!bob.ssh(&[&target("web-1"), "true"]).status.success()).then_some(())
    });
    assert!(full(), "a byte was given back");
    // All of it is on record and lasts.
    fs::remove_file(&ballast).unwrap();
    cluster.services.as_mut().unwrap().kill_9();
    cluster.start_services();
    let events = cluster.events();
    let locks = events.iter().filter(|event| event["kind"] == "lock.created").count();
    assert!(locks >= 41, "{locks}");
    for kind in ["user.deleted", "lock.deleted"] {
        assert!(events.iter().any(|event| event["kind"] == kind), "{kind} is missing");
    }
    ok(cluster.admin(&["audit", "verify"]));
    let lock = ok(cluster.admin(&["get", "lock/user-mallory"]));
    assert!(stdout(&lock).contains("full disk"));
}
