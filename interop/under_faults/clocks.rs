//! A clock that jumps by an hour under a process that runs, at each of the services in turn, there and back.

use std::process::Command;

use super::{Typist, runs};
use crate::support::{Clock, Cluster, PROGRAM, Process, User, me, ok, stderr, wait_for};

struct Clocks {
    cluster: Cluster,
    authority: Clock,
    proxy: Clock,
    node: Clock,
}

impl Clocks {
    fn new() -> Self {
        let mut cluster = Cluster::apart();
        cluster.add_node("web-1", "env: prod");
        let clock = |name: &str| Clock::new(cluster.path(&format!("clock-{name}")));
        let (authority, proxy, node) = (clock("authority"), clock("proxy"), clock("node"));
        cluster.environment = authority.variables();
        cluster.services.take();
        cluster.start_services();
        cluster.nodes.clear();
        for (name, file, clock) in [("proxy", "proxy", &proxy), ("web-1", "node-web-1", &node)] {
            let mut command = Command::new(PROGRAM);
            command.args(["start", "-c"]).arg(cluster.path(&format!("{file}.yaml"))).envs(clock.variables());
            let process = Process::spawn(&mut command, cluster.path(&format!("{file}.log")));
            cluster.nodes.push((name.to_owned(), process));
        }
        cluster.wait_online("web-1");
        Self { cluster, authority, proxy, node }
    }

    fn of(&self, service: &str) -> &Clock {
        match service {
            "authority" => &self.authority,
            "proxy" => &self.proxy,
            _ => &self.node,
        }
    }
}

/// Logs in and runs a command.
fn anew(user: &User) -> bool {
    user.login(&[]).status.success() && runs(user, "true").status.success()
}

#[test]
fn a_clock_that_jumps_an_hour_lets_no_expired_user_in_and_is_forgotten_when_it_is_right_again() {
    let clocks = Clocks::new();
    let [alice, fresh] = super::with_users(&clocks.cluster, ["alice", "fresh"]);
    // A certificate of half an hour.
    let brief = clocks.cluster.add_user_without_login("brief", "access", &me());
    ok(brief.login(&["--ttl", "30m"]));
    let mut typist = Typist::of(&alice, &[]);
    for user in [&alice, &fresh, &brief] {
        ok(runs(user, "true"));
    }
    for service in ["authority", "proxy", "node"] {
        for offset in ["+3600", "-3600"] {
            let clock = clocks.of(service);
            clock.set(offset);
            let word = format!("{service} {offset}");
            typist.types(&word);
            let with_long = runs(&alice, &format!("echo {word}"));
            let with_brief = runs(&brief, "true");
            let login = fresh.login(&[]);
            let with_fresh = runs(&fresh, "true");
            eprintln!(
                "{word}: half a day's certificate {}, half an hour's {}, a login {}, a session with it {}",
                verdict(&with_long),
                verdict(&with_brief),
                verdict(&login),
                verdict(&with_fresh)
            );
            // A certificate that has ended, or has not begun, by the clock of the deciding process is refused; others are taken.
            let decides = service != "authority";
            let (ended, not_yet) = (decides && offset == "+3600", decides && offset == "-3600");
            assert_eq!(with_long.status.success(), !not_yet, "{word}: {}", stderr(&with_long));
            assert_eq!(with_brief.status.success(), !ended && !not_yet, "{word}: {}", stderr(&with_brief));
            clock.set("+0");
            wait_for("a login and a session", || anew(&fresh).then_some(()));
            typist.types(&format!("{word} and back"));
            ok(runs(&brief, "true"));
        }
    }
    // Of two that decide one is right: a certificate that has ended is refused, whichever of them is an hour behind.
    for behind in ["proxy", "node"] {
        for service in ["authority", "proxy", "node"] {
            clocks.of(service).set(if service == behind { "+0" } else { "+3600" });
        }
        let output = runs(&brief, "true");
        assert!(!output.status.success(), "{behind} is behind, and a certificate that has ended lets in");
    }
    for service in ["authority", "proxy", "node"] {
        clocks.of(service).set("+0");
    }
    wait_for("a login and a session", || anew(&fresh).then_some(()));
    typist.types("to the end");
    // What was said in another hour is on record with when it was heard.
    let said = |event: &serde_json::Value| event["fields"]["command"] == "echo node +3600";
    let event = clocks.cluster.wait_event("session.start", said);
    assert!(event["received"].is_string() && event["fields"]["reported_time"].is_string(), "{event}");
    ok(clocks.cluster.admin(&["audit", "verify"]));
}

fn verdict(output: &std::process::Output) -> String {
    match output.status.success() {
        true => "works".to_owned(),
        false => format!("is refused ({})", stderr(output).lines().next().unwrap_or_default()),
    }
}
