//! Rotations of the user and the host CA, and rollbacks, under load: stock `ssh` with a ProxyCommand and through the
//! jump host, and `sallyport ssh`, all the time, against an authority with its proxy and a node in another process.
//!
//! The test runs a few connections a second through short phases. At full scale, by hand:
//!
//! ```text
//! cargo xtask test --filter no_client_notices_a_rotation_or_a_rollback_at_full_scale
//! ```
//!
//! `SALLYPORT_LOAD_RATE` (connections a second, default 20) and `SALLYPORT_LOAD_PHASE` (seconds in each phase, default
//! 15) change it. It prints what was done in each phase and what failed, and fails unless nothing did.

use crate::support;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Cluster, User, is_root, ok, ssh_command, stderr, stdout, target, wait_for};

/// What a connection goes by.
const WAYS: [&str; 3] = ["ssh ProxyCommand", "ssh -J", "sallyport ssh"];
/// Connections at a time: past this the machine is the bottleneck, and the pace is kept by waiting.
const AT_A_TIME: usize = 40;

/// What was done, by phase and way.
#[derive(Default)]
struct Tally {
    done: BTreeMap<(usize, &'static str), usize>,
    /// Those under way, by the phase that they began in.
    open: BTreeMap<usize, usize>,
    failed: Vec<String>,
    slowest: Duration,
}

/// Connections at a steady pace, for as long as it lives.
struct Load {
    tally: Arc<Mutex<Tally>>,
    phase: Arc<Mutex<(usize, String)>>,
    phases: Vec<String>,
    stop: Arc<AtomicBool>,
    pacing: Option<std::thread::JoinHandle<()>>,
    began: Instant,
}

impl Load {
    fn start(user: &Arc<User>, rate: f64) -> Self {
        let (tally, stop) = (Arc::<Mutex<Tally>>::default(), Arc::<AtomicBool>::default());
        let phase = Arc::new(Mutex::new((0, "before".to_owned())));
        let configs = [user.ssh_config(&[]), user.ssh_config(&["--jump"])];
        let pacing = std::thread::spawn({
            let (tally, stop, phase, user) =
                (Arc::clone(&tally), Arc::clone(&stop), Arc::clone(&phase), Arc::clone(user));
            move || pace(rate, &tally, &stop, &phase, &user, &configs)
        });
        let phases = vec!["before".to_owned()];
        Self { tally, phase, phases, stop, pacing: Some(pacing), began: Instant::now() }
    }

    fn enter(&mut self, name: String) {
        *self.phase.lock().unwrap() = (self.phases.len(), name.clone());
        self.phases.push(name);
    }

    /// Stays in a phase until this many connections were made in it, among them some of every way, and none that began
    /// before it is open. Phases of days outlast every connection; here a busy machine may take longer for one connection
    /// than for a phase.
    fn hold(&self, connections: usize) {
        let phase = self.phases.len() - 1;
        for number in 1..=connections {
            wait_for("the next connection of this phase", || {
                let tally = self.tally.lock().unwrap();
                let made: usize = WAYS.iter().filter_map(|way| tally.done.get(&(phase, way))).sum();
                (made >= number).then_some(())
            });
        }
        wait_for("connections of every way, and the end of earlier ones", || {
            let tally = self.tally.lock().unwrap();
            let every = WAYS.iter().all(|way| tally.done.contains_key(&(phase, way)));
            let earlier: usize = tally.open.range(..phase).map(|(_, open)| open).sum();
            (every && earlier == 0).then_some(())
        });
    }

    /// The figures, and how many failed.
    fn finish(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.pacing.take().unwrap().join().unwrap();
        let took = self.began.elapsed();
        let tally = self.tally.lock().unwrap();
        let all: usize = tally.done.values().sum();
        eprintln!("{:<28} {:>18} {:>8} {:>14}", "PHASE", WAYS[0], WAYS[1], WAYS[2]);
        for (number, name) in self.phases.iter().enumerate() {
            let of = |way| tally.done.get(&(number, way)).copied().unwrap_or(0);
            eprintln!("{name:<28} {:>18} {:>8} {:>14}", of(WAYS[0]), of(WAYS[1]), of(WAYS[2]));
        }
        eprintln!(
            "{all} connections in {:.0} s ({:.1} a second, slowest {:.1} s), {} failed",
            took.as_secs_f64(),
            all as f64 / took.as_secs_f64(),
            tally.slowest.as_secs_f64(),
            tally.failed.len()
        );
        for failure in tally.failed.iter().take(20) {
            eprintln!("  {failure}");
        }
        tally.failed.len()
    }
}

fn pace(
    rate: f64,
    tally: &Arc<Mutex<Tally>>,
    stop: &Arc<AtomicBool>,
    phase: &Arc<Mutex<(usize, String)>>,
    user: &Arc<User>,
    configs: &[PathBuf; 2],
) {
    let open = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    let began = Instant::now();
    for number in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let due = Duration::from_secs_f64(f64::from(number) / rate);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        while open.load(Ordering::Relaxed) >= AT_A_TIME {
            std::thread::sleep(Duration::from_millis(5));
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (open, tally, user, configs) =
            (Arc::clone(&open), Arc::clone(tally), Arc::clone(user), configs.clone());
        let at = phase.lock().unwrap().clone();
        *tally.lock().unwrap().open.entry(at.0).or_default() += 1;
        running.push(std::thread::spawn(move || {
            let way = WAYS[number as usize % WAYS.len()];
            let said = format!("connection {number}");
            let (command, begun) = (format!("echo {said}"), Instant::now());
            let output = match way {
                "sallyport ssh" => user.run(&["ssh", &format!("{}@web-1", support::me()), &command]),
                "ssh -J" => ssh_command(&configs[1]).args([&target("web-1"), &command]).output().unwrap(),
                _ => ssh_command(&configs[0]).args([&target("web-1"), &command]).output().unwrap(),
            };
            let mut tally = tally.lock().unwrap();
            tally.slowest = tally.slowest.max(begun.elapsed());
            *tally.done.entry((at.0, way)).or_default() += 1;
            *tally.open.entry(at.0).or_default() -= 1;
            if !output.status.success() || stdout(&output).trim() != said {
                tally.failed.push(format!(
                    "{} in {}: {}: {}",
                    way,
                    at.1,
                    output.status,
                    stderr(&output).trim()
                ));
            }
            open.fetch_sub(1, Ordering::Relaxed);
        }));
        running.retain(|thread| !thread.is_finished());
    }
    for thread in running {
        thread.join().unwrap();
    }
}

fn phase_of(cluster: &Cluster, kind: &str) -> serde_json::Value {
    let output = ok(cluster.admin(&["ca", "status", "--type", kind, "--format", "json"]));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    found[0].clone()
}

/// Goes on to the next phase as soon as every host has confirmed this one.
fn advance(cluster: &Cluster, kind: &str) -> String {
    let next = wait_for("every host's confirmation", || {
        let state = phase_of(cluster, kind);
        let missing = state["not_confirmed"].as_array().unwrap();
        missing.is_empty().then(|| state["next_phase"].as_str().unwrap().to_owned())
    });
    ok(cluster.admin(&["ca", "rotate", "--type", kind, "--phase", &next]));
    next
}

/// `hold` is the number of connections in each phase, made at `rate` a second.
fn rotate_under_load(rate: f64, hold: usize) {
    let (cluster, alice) = Cluster::with_node();
    let alice = Arc::new(alice);
    let certificate = |user: &User| {
        let mut found = std::fs::read_dir(&user.home).unwrap().flatten().map(|entry| entry.path());
        let profile = found.find(|path| path.join("ssh_key-cert.pub").exists()).unwrap();
        std::fs::read_to_string(profile.join("ssh_key-cert.pub")).unwrap()
    };
    let first = certificate(&alice);
    let mut load = Load::start(&alice, rate);
    load.hold(hold);
    for kind in ["user", "host"] {
        load.enter(format!("{kind}: init"));
        ok(cluster.admin(&["ca", "rotate", "--type", kind, "--phase", "init"]));
        load.hold(hold);
        loop {
            let next = advance(&cluster, kind);
            load.enter(format!("{kind}: {next}"));
            load.hold(hold);
            if next == "standby" {
                break;
            }
        }
    }
    assert_ne!(certificate(&alice), first, "the certificates were signed anew on the way");
    for kind in ["user", "host"] {
        load.enter(format!("{kind}: init again"));
        ok(cluster.admin(&["ca", "rotate", "--type", kind, "--phase", "init"]));
        load.hold(hold);
        loop {
            let next = advance(&cluster, kind);
            load.enter(format!("{kind}: {next} again"));
            load.hold(hold);
            if next == "update_servers" {
                break;
            }
        }
        load.enter(format!("{kind}: rollback"));
        ok(cluster.admin(&["ca", "rotate", "--type", kind, "--rollback"]));
        load.hold(hold);
        assert_eq!(advance(&cluster, kind), "standby");
        load.enter(format!("{kind}: standby again"));
        load.hold(hold);
    }
    assert_eq!(load.finish(), 0, "connections failed");
    for kind in ["user", "host"] {
        let state = phase_of(&cluster, kind);
        assert_eq!((state["phase"].as_str(), state["generation"].as_u64()), (Some("standby"), Some(2)));
    }
}

#[test]
fn no_client_notices_a_rotation_or_a_rollback() {
    // Two a second; phases as short as hosts and programs can follow.
    rotate_under_load(2.0, 4);
}

#[test]
#[ignore = "takes minutes and the whole machine; see the top of this file"]
fn no_client_notices_a_rotation_or_a_rollback_at_full_scale() {
    let number = |name: &str, otherwise: f64| {
        std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (rate, phase) = (number("SALLYPORT_LOAD_RATE", 20.0), number("SALLYPORT_LOAD_PHASE", 15.0));
    rotate_under_load(rate, (rate * phase).round() as usize);
}

#[test]
fn the_commands_of_a_rotation_say_what_is_next() {
    let (mut cluster, alice) = Cluster::with_node();
    let text = stdout(&ok(cluster.admin(&["ca", "ls"])));
    assert!(text.contains("user") && text.contains("standby") && text.contains("sealed"), "{text}");
    let which = cluster.admin(&["ca", "rotate", "--type", "user"]);
    let said = support::refused(&which, 2);
    assert!(said.contains("--type user --phase init"), "{said}");
    // alice may not.
    let refused = alice.run(&["admin", "ca", "rotate", "--type", "user", "--phase", "init"]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));

    ok(cluster.admin(&["ca", "rotate", "--type", "host", "--phase", "init"]));
    cluster.node("web-1").kill_9();
    wait_for("the proxy's confirmation", || {
        (phase_of(&cluster, "host")["not_confirmed"].as_array().unwrap().len() <= 1).then_some(())
    });
    ok(cluster.admin(&["ca", "rotate", "--type", "host", "--phase", "update-clients", "--force"]));
    let held = cluster.admin(&["ca", "rotate", "--type", "host", "--phase", "update_servers"]);
    let said = stderr(&held);
    assert!(!held.status.success() && said.contains("node web-1") && said.contains("--force"), "{said}");
    let text = stdout(&ok(cluster.admin(&["status"])));
    for words in ["host CA: update_clients of rotation 1", "not yet", "node web-1", "by hand", "known_hosts"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    // It comes back, and is told the phases that it missed.
    cluster.restart_node("web-1");
    assert_eq!(advance(&cluster, "host"), "update_servers");
    assert_eq!(advance(&cluster, "host"), "standby");
    if is_root() {
        let text = stdout(&ok(cluster.admin(&["ca", "status"])));
        assert!(text.starts_with("standby: "), "{text}");
    }
}
