//! Services that are killed again and again while people work.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::runs;
use crate::support::{Cluster, User, me, ok, stdout, wait_for};

const WORKERS: usize = 3;

/// Kills each service so often under load, and starts it again.
fn killed(times: usize) {
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let users: Vec<User> =
        (0..WORKERS).map(|number| cluster.add_user(&format!("user-{number}"), "access", &me())).collect();
    let probe = cluster.add_user("probe", "access", &me());
    let mallory = cluster.add_user("mallory", "access", &me());
    ok(cluster.admin(&["lock", "--user", "mallory", "--message", "out"]));
    wait_for("the lock to reach the proxy", || (!runs(&mallory, "true").status.success()).then_some(()));

    let (stop, number) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = Mutex::new(Vec::<String>::new());
    let failed = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::<String>::new());
    let mut longest: HashMap<&str, Duration> = HashMap::new();
    std::thread::scope(|scope| {
        for user in &users {
            let (stop, number, done, failed) = (&stop, &number, &done, &failed);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let command = format!("echo work {}", number.fetch_add(1, Ordering::Relaxed));
                    let output = runs(user, &command);
                    // What the person has seen counts, and not more.
                    match output.status.success() && stdout(&output) == format!("{}\n", &command[5..]) {
                        true => done.lock().unwrap().push(command),
                        false => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
        let (stop_mallory, wrong) = (&stop, &wrong);
        let mallory = &mallory;
        scope.spawn(move || {
            while !stop_mallory.load(Ordering::Relaxed) {
                let output = runs(mallory, "echo in");
                if output.status.success() || stdout(&output).contains("in") {
                    wrong.lock().unwrap().push(format!("{output:?}"));
                }
            }
        });
        for round in 0..times {
            for service in ["authority", "proxy", "node"] {
                // Not always at the same moment of what goes on.
                std::thread::sleep(Duration::from_millis((round * 37 % 190) as u64));
                match service {
                    "authority" => {
                        cluster.services.as_mut().unwrap().kill_9();
                        cluster.start_services();
                    }
                    "proxy" => {
                        cluster.node("proxy").kill_9();
                        let process = cluster.spawn_node("proxy", &cluster.path("proxy.yaml"));
                        *cluster.node("proxy") = process;
                    }
                    _ => {
                        cluster.node("web-1").kill_9();
                        let process = cluster.spawn_node("web-1", &cluster.path("node-web-1.yaml"));
                        *cluster.node("web-1") = process;
                    }
                }
                let began = Instant::now();
                wait_for("work to go on", || runs(&probe, "true").status.success().then_some(()));
                let took = longest.entry(service).or_default();
                *took = began.elapsed().max(*took);
            }
            if round % 20 == 19 {
                eprintln!("{} kills of each; {} sessions done", round + 1, done.lock().unwrap().len());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (done, wrong) = (done.into_inner().unwrap(), wrong.into_inner().unwrap());
    eprintln!(
        "{times} kills of each service: {} sessions went well, {} did not; longest until work went on: {longest:?}",
        done.len(),
        failed.load(Ordering::Relaxed)
    );
    assert!(wrong.is_empty(), "who is locked got in: {wrong:?}");
    assert!(!done.is_empty());

    // All that a person has seen is on record, once, or it is said that the node was killed.
    let mut missing = Vec::new();
    wait_for("the events of what was done", || {
        let events = cluster.events();
        let mut starts: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut ends: HashMap<&str, usize> = HashMap::new();
        for event in &events {
            let session = event["session_id"].as_str().unwrap_or_default();
            match event["kind"].as_str().unwrap() {
                "session.start" => {
                    let command = event["fields"]["command"].as_str().unwrap_or_default();
                    starts.entry(command).or_default().push(session);
                }
                "session.end" => *ends.entry(session).or_default() += 1,
                _ => {}
            }
        }
        missing = done
            .iter()
            .filter(|command| {
                let sessions = starts.get(command.as_str()).map(Vec::as_slice).unwrap_or_default();
                !matches!(sessions, [session] if ends.get(session) == Some(&1))
            })
            .cloned()
            .collect();
        let said = events.iter().filter(|event| event["kind"] == "audit.unclosed");
        let of = |role: &str| {
            said.clone().filter(|event| event["origin"].as_str().unwrap().starts_with(role)).count()
        };
        (of("node") >= times && of("proxy") >= times && missing.len() <= times).then_some(())
    });
    eprintln!(
        "{} of {} sessions lack an event, each told by audit.unclosed: {missing:?}",
        missing.len(),
        done.len()
    );
    let verified = stdout(&ok(cluster.admin(&["audit", "verify"])));
    assert!(verified.contains("intact"), "{verified}");
    // Recordings have their end, or it is said that they have not.
    wait_for("the recordings", || {
        let live = |recording: &serde_json::Value| recording["state"] == "live";
        (!cluster.recordings().iter().any(live)).then_some(())
    });
}

#[test]
fn services_that_are_killed_some_times_let_no_thief_in_and_lose_nothing_in_silence() {
    killed(4);
}

#[test]
fn services_that_are_killed_two_hundred_times_let_no_thief_in_and_lose_nothing_in_silence() {
    killed(200);
}
