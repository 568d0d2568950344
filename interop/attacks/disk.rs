//! A disk that an attacker has filled to its last byte.

use std::process::Command;

use crate::support::{
    Cluster, PROGRAM, is_root, lines_of, me, ok, read_until, ssh_command, stderr, stdout, target, wait_for,
};

#[test]
fn a_user_who_fills_the_authoritys_disk_can_still_be_locked_out_and_removed() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::apart_on_disk("", "16m");
    cluster.add_node("web-1", "env: prod");
    let mallory = cluster.add_user("mallory", "access", &crate::support::me());
    let bob = cluster.add_user("bob", "access", &crate::support::me());
    ok(mallory.ssh(&[&target("web-1"), "true"]));
    cluster.disk.as_ref().unwrap().fill();
    // What is no brake is refused, and the hint fits the error.
    let refused = wait_for("a refusal", || {
        let output = cluster.admin(&["tokens", "add", "--type", "node"]);
        (!output.status.success()).then(|| stderr(&output))
    });
    assert!(refused.contains("disk is full"), "{refused}");
    assert!(refused.contains("make room") && !refused.contains("is the proxy up"), "{refused}");
    // Again and again, with the disk filled anew before each: nothing else gets the room that is kept for this.
    for number in 0..40 {
        cluster.disk.as_ref().unwrap().fill();
        ok(cluster.admin(&["lock", "--login", &format!("account-{number}")]));
    }
    cluster.disk.as_ref().unwrap().fill();
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
    cluster.disk.as_ref().unwrap().fill();
    // All of it is on record and lasts.
    cluster.disk.as_ref().unwrap().clear();
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

/// Waits until a stopped authority that starts on a full disk says so.
fn wait_full(cluster: &Cluster) {
    let refused = wait_for("the authority to refuse what is no brake", || {
        let output = cluster.admin(&["tokens", "add", "--type", "node"]);
        assert!(!output.status.success(), "there is room");
        Some(stderr(&output)).filter(|said| said.contains("disk is full"))
    });
    assert!(refused.contains("make room") && refused.contains("Locks, ends of sessions"), "{refused}");
}

#[test]
fn an_authority_that_starts_on_a_full_disk_still_keeps_people_out() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::apart_on_disk("", "16m");
    cluster.add_node("web-1", "env: prod");
    let users = ["mallory", "carol", "bob"].map(|name| cluster.add_user(name, "access", &me()));
    let [mallory, carol, bob] = &users;
    let mut sessions = [mallory, carol].map(|user| {
        let mut ssh = ssh_command(&user.ssh_config(&[]));
        let mut child = ssh
            .args([&target("web-1"), "echo here; exec sleep 1000"])
            .env("SALLYPORT_CONNECT", "off")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = lines_of(&mut child);
        read_until(&mut lines, "here");
        child
    });
    let of =
        |name: &str| cluster.wait_event("session.start", |event| event["user"] == name)["session_id"].clone();
    let of_carol = of("carol").as_str().unwrap().to_owned();
    of("mallory");

    // Stopped in order and killed, each twice, and not a byte is left when it starts again. Its own log is on that disk as well.
    for (round, signal) in ["TERM", "KILL", "TERM", "KILL"].into_iter().enumerate() {
        let disk = cluster.disk.as_ref().unwrap();
        disk.fill();
        let log = disk.path("services.log");
        let services = cluster.services.as_mut().unwrap();
        services.signal(signal);
        wait_for("the authority to stop", || services.child.try_wait().unwrap());
        cluster.disk.as_ref().unwrap().fill();
        cluster.spawn_services(log);
        wait_full(&cluster);
        cluster.disk.as_ref().unwrap().fill();
        ok(cluster.admin(&["lock", "--login", &format!("account-{round}")]));
    }
    wait_for("the node to hear from the authority again", || {
        let output = Command::new(PROGRAM)
            .args(["sessions", "end", &of_carol, "--data-dir"])
            .arg(cluster.data_dir())
            .output()
            .unwrap();
        output.status.success().then_some(())
    });
    ok(cluster.admin(&["lock", "--user", "mallory", "--message", "full disk"]));
    for session in &mut sessions {
        wait_for("a session to end", || session.try_wait().unwrap());
    }
    let refused = mallory.ssh(&[&target("web-1"), "true"]);
    assert!(stderr(&refused).contains("full disk"), "{}", stderr(&refused));
    ok(cluster.admin(&["users", "rm", "bob"]));
    wait_for("the removal to reach the proxy", || {
        (!bob.ssh(&[&target("web-1"), "true"]).status.success()).then_some(())
    });

    // All of it is on record: what was done, each start, and that there was no room.
    cluster.disk.as_ref().unwrap().clear();
    cluster.wait_event("audit.resumed", |_| true);
    let events = cluster.events();
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!(count("auth.started"), 5, "{events:?}");
    assert!(count("lock.created") >= 5 && count("user.deleted") == 1 && count("session.terminated") == 1);
    ok(cluster.admin(&["audit", "verify"]));
    // And it lasts.
    cluster.services.as_mut().unwrap().kill_9();
    cluster.start_services();
    for lock in ["lock/user-mallory", "lock/login-account-0", "lock/login-account-3"] {
        ok(cluster.admin(&["get", lock]));
    }
    ok(cluster.admin(&["audit", "verify"]));
}

#[test]
fn a_user_who_takes_every_inode_of_the_authoritys_disk_can_still_be_locked_out() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::apart_on_disk("", "64m,nr_inodes=160");
    cluster.add_node("web-1", "env: prod");
    let mallory = cluster.add_user("mallory", "access", &me());
    // Recordings, which are what a user can make, leave some.
    let short = wait_for("the authority to say that inodes are short", || {
        ok(mallory.ssh(&[&target("web-1"), "true"]));
        cluster.events().into_iter().find(|event| event["kind"] == "auth.disk_short")
    });
    assert!(short["message"].as_str().unwrap().contains("inodes left (df -i)"), "{short}");
    ok(mallory.login(&[]));

    // Something else takes the rest, and the authority is killed and starts.
    cluster.disk.as_ref().unwrap().fill_inodes();
    ok(cluster.admin(&["lock", "--login", "account-0"]));
    let services = cluster.services.as_mut().unwrap();
    services.kill_9();
    cluster.disk.as_ref().unwrap().fill_inodes();
    let log = cluster.path("services.log");
    cluster.spawn_services(log.clone());
    wait_for("the authority to lock", || {
        cluster.admin(&["lock", "--login", "account-1"]).status.success().then_some(())
    });
    ok(cluster.admin(&["lock", "--user", "mallory", "--message", "no inode"]));
    wait_for("the lock to reach the proxy", || {
        stderr(&mallory.ssh(&[&target("web-1"), "true"])).contains("no inode").then_some(())
    });

    // Stopped in order, its state's log goes where the file system counts a second name as an inode: it says why it does not start.
    let services = cluster.services.as_mut().unwrap();
    services.signal("TERM");
    wait_for("the authority to stop", || services.child.try_wait().unwrap());
    cluster.disk.as_ref().unwrap().fill_inodes();
    cluster.spawn_services(log.clone());
    let services = cluster.services.as_mut().unwrap();
    let status = wait_for("the authority to give up", || services.child.try_wait().unwrap());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!status.success() && said.contains("no free inode (df -i)"), "{said}");
    cluster.disk.as_ref().unwrap().clear_inodes();
    cluster.start_services();
    for lock in ["lock/user-mallory", "lock/login-account-0", "lock/login-account-1"] {
        ok(cluster.admin(&["get", lock]));
    }
    ok(cluster.admin(&["audit", "verify"]));
}

#[test]
fn services_in_one_process_start_on_a_full_disk_and_know_whom_to_refuse() {
    if !is_root() {
        eprintln!("left out: only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::bare_on_disk("16m");
    cluster.add_node("web-1", "env: prod");
    let users = ["mallory", "alice"].map(|name| cluster.add_user(name, "access", &me()));
    let [mallory, alice] = &users;
    for user in &users {
        ok(user.ssh(&[&target("web-1"), "true"]));
    }
    cluster.disk.as_ref().unwrap().fill();
    cluster.services.as_mut().unwrap().kill_9();
    cluster.disk.as_ref().unwrap().fill();
    cluster.spawn_services(cluster.disk.as_ref().unwrap().path("services.log"));
    wait_full(&cluster);
    ok(cluster.admin(&["lock", "--user", "mallory", "--message", "full disk"]));
    wait_for("the node to serve again", || {
        alice.ssh(&[&target("web-1"), "true"]).status.success().then_some(())
    });
    let refused = mallory.ssh(&[&target("web-1"), "true"]);
    assert!(stderr(&refused).contains("full disk"), "{}", stderr(&refused));
    cluster.disk.as_ref().unwrap().clear();
    cluster.wait_event("audit.resumed", |_| true);
    cluster.wait_event("lock.created", |_| true);
    // The proxy's events went to the same disk: how many are missing is said.
    let refused = cluster.events().into_iter().any(|event| event["kind"] == "session.refused");
    if !refused {
        cluster.wait_event("audit.lost", |event| {
            event["origin"].as_str().is_some_and(|by| by.starts_with("proxy"))
        });
    }
    ok(cluster.admin(&["audit", "verify"]));
}
