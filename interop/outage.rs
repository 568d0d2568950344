//! The authority is away, certificates are renewed in time, and clocks differ.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support::{
    CLUSTER, Cluster, PROGRAM, Process, User, at_another_time, me, ok, read_until, ssh_command, stderr,
    stdout, target, wait_for,
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

    // Sessions go on, and a user who is logged in gets in.
    says("the authority has gone");
    enters(&alice, "during");
    // The decisions are those of before.
    let unknown = format!("no-such-login@web-1.{CLUSTER}");
    let refused = ssh_command(&alice.ssh_config(&[])).args([&unknown, "true"]).output().unwrap();
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
    cluster.wait_event("session.refused", |event| event["login"] == "no-such-login");
    enters(&alice, "after");
    let _ = alice.run(&["connect", "--stop"]);
}

/// How long the authority is away in the test below, in seconds, and how many sessions begin in a second.
const LENGTH: (&str, u64) = ("SALLYPORT_OUTAGE_SECONDS", 600);
const RATE: (&str, u64) = ("SALLYPORT_OUTAGE_RATE", 1);
const USERS: usize = 20;
const TYPISTS: usize = 5;
/// A key that shows nothing for so long is a failure.
const ECHO_WITHIN: Duration = Duration::from_secs(10);

fn setting((name, default): (&str, u64)) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Processor time of a process and the children that it has waited for, in seconds, and its memory in MiB.
fn cost(pid: u32) -> (f64, f64, u64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    // Fields 14 to 17 of proc(5), in hundredths of a second; the rest begins with the third.
    let seconds = |first: usize| {
        fields[first..first + 2].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (seconds(11), seconds(13), kib / 1024)
}

/// Types a line each second and waits for its echo, until told to stop; gives how many lines there were.
fn types(alice: &User, way: &str, stop: &AtomicBool) -> Result<usize, String> {
    let mut session = ssh_command(&alice.ssh_config(&[]))
        .args([&target("web-1"), "cat"])
        .env("SALLYPORT_CONNECT", way)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = session.stdin.take().unwrap();
    let output = BufReader::new(session.stdout.take().unwrap());
    let (lines, shown) = mpsc::channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
    let mut typed = 0;
    let outcome = loop {
        if stop.load(Ordering::Relaxed) {
            break Ok(typed);
        }
        typed += 1;
        let line = format!("typed {typed}");
        if let Err(error) = input.write_all(format!("{line}\n").as_bytes()) {
            break Err(format!("line {typed}: {error}"));
        }
        match shown.recv_timeout(ECHO_WITHIN) {
            Ok(echo) if echo == line => {}
            other => break Err(format!("line {typed}: {other:?}")),
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    drop(input);
    if outcome.is_err() {
        let _ = session.kill();
    }
    let status = session.wait().unwrap();
    outcome.and_then(|typed| if status.success() { Ok(typed) } else { Err(format!("{status}")) })
}

/// One session of a user, by one of three ways.
fn one_session(user: &User, number: usize) -> Result<(), String> {
    let word = format!("away {number}");
    let command = format!("echo {word}");
    let output = match (number / USERS) % 3 {
        way @ (0 | 1) => ssh_command(&user.home.join("ssh_config"))
            .args([&target("web-1"), &command])
            .env("SALLYPORT_CONNECT", if way == 0 { "on" } else { "off" })
            .output(),
        _ => user.command(&["ssh", &target("web-1"), &command]).output(),
    };
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() && stdout(&output) == format!("{word}\n") {
        return Ok(());
    }
    Err(format!("{}: {:?} {:?}", output.status, stdout(&output), stderr(&output)))
}

/// Recordings on the node's disk, by session.
fn spooled(directory: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rec") {
            let session = path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.insert(session, fs::metadata(&path).map_or(0, |metadata| metadata.len()));
        }
    }
    found
}

#[test]
#[ignore = "takes as long as SALLYPORT_OUTAGE_SECONDS says, ten minutes if it says nothing"]
fn an_authority_that_is_away_for_long_is_not_noticed_under_load() {
    let (length, rate) = (Duration::from_secs(setting(LENGTH)), setting(RATE));
    let mut cluster = Cluster::apart();
    cluster.add_node("web-1", "env: prod");
    let users: Vec<User> =
        (0..USERS).map(|number| cluster.add_user(&format!("user-{number}"), "access", &me())).collect();
    for user in &users {
        user.ssh_config(&[]);
        ok(user.ssh(&[&target("web-1"), "true"]));
    }
    for place in ["node-web-1/node/policy.json", "proxy/proxy/policy.json"] {
        wait_for(place, || fs::read_to_string(cluster.path(place)).ok()?.contains("web-1").then_some(()));
    }
    let spool = cluster.path("node-web-1/node/recordings");
    wait_for("the recordings before", || spooled(&spool).is_empty().then_some(()));

    let stop = AtomicBool::new(false);
    let failures = Mutex::new(Vec::<String>::new());
    let fails = |what: String| {
        eprintln!("FAILED: {what}");
        failures.lock().unwrap().push(what);
    };
    let took = Mutex::new(Vec::<Duration>::new());
    let typed = AtomicUsize::new(0);
    let (proxy, node) = (cluster.node("proxy").child.id(), cluster.node("web-1").child.id());
    let mut begun = 0;
    let kept = cluster.path("kept");
    fs::create_dir(&kept).unwrap();
    let (mut away, mut back) = (Instant::now(), Instant::now());
    std::thread::scope(|scope| {
        for (number, user) in users.iter().take(TYPISTS).enumerate() {
            let (stop, typed, fails) = (&stop, &typed, &fails);
            scope.spawn(move || match types(user, if number % 2 == 0 { "on" } else { "off" }, stop) {
                Ok(lines) => drop(typed.fetch_add(lines, Ordering::Relaxed)),
                Err(what) => fails(format!("{} who types: {what}", user.name)),
            });
        }
        // They have begun before the authority goes.
        wait_for("those who type", || (spooled(&spool).len() >= TYPISTS).then_some(()));
        std::thread::sleep(Duration::from_secs(2));
        let before = (cost(proxy), cost(node));
        cluster.services.take().unwrap().kill_9();
        away = Instant::now();
        let mut told = away;
        while away.elapsed() < length {
            let number = begun;
            begun += 1;
            let (user, took, fails) = (&users[number % USERS], &took, &fails);
            scope.spawn(move || {
                let began = Instant::now();
                match one_session(user, number) {
                    Ok(()) => took.lock().unwrap().push(began.elapsed()),
                    Err(what) => fails(format!("session {number} of {}: {what}", user.name)),
                }
            });
            let next =
                away + Duration::from_secs(1) * u32::try_from(begun).unwrap() / u32::try_from(rate).unwrap();
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                eprintln!("{} s: {begun} sessions", away.elapsed().as_secs());
            }
        }
        let elapsed = away.elapsed().as_secs_f64();
        for (name, (own, children, resident), (was, were, resident_before)) in
            [("proxy", cost(proxy), before.0), ("node", cost(node), before.1)]
        {
            eprintln!(
                "{name}: {:.2} % of a core, its sessions {:.2} %; memory {resident_before} -> {resident} MiB",
                (own - was) / elapsed * 100.0,
                (children - were) / elapsed * 100.0,
            );
        }
        // Those of the last second may not have begun yet; each is on the node's disk by the time it has ended.
        let deadline = Instant::now() + ECHO_WITHIN;
        while took.lock().unwrap().len() + failures.lock().unwrap().len() < begun && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        // The same files under other names: the node removes its own once the authority has all of them.
        for session in spooled(&spool).keys() {
            let name = format!("{session}.rec");
            fs::hard_link(spool.join(&name), kept.join(&name)).unwrap();
        }
        back = Instant::now();
        cluster.start_services();
        std::thread::sleep(Duration::from_secs(5));
        stop.store(true, Ordering::Relaxed);
    });
    eprintln!(
        "away for {:.0} s: {begun} sessions, {} lines typed",
        (back - away).as_secs_f64(),
        typed.load(Ordering::Relaxed)
    );
    let mut took = took.into_inner().unwrap();
    took.sort();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_millis();
    eprintln!("a session took {} ms (p50), {} ms (p99), {} ms (longest)", at(50), at(99), at(100));

    // What waited arrives, byte for byte.
    let sessions = spooled(&kept);
    let stored = cluster.data_dir().join("auth/recordings");
    let arrived = |session: &str| stored.join(format!("{session}.closed")).exists();
    let patience = Duration::from_secs(60) + length / 2;
    while !sessions.keys().all(|session| arrived(session)) {
        let missing = sessions.keys().filter(|session| !arrived(session)).count();
        assert!(back.elapsed() < patience, "{missing} of {} recordings have not arrived", sessions.len());
        std::thread::sleep(Duration::from_millis(200));
    }
    let bytes: u64 = sessions.values().sum();
    eprintln!(
        "{} recordings ({} KiB) had arrived {:.1} s after its start",
        sessions.len(),
        bytes / 1024,
        back.elapsed().as_secs_f64()
    );
    for session in sessions.keys() {
        let name = format!("{session}.rec");
        let (here, there) = (fs::read(kept.join(&name)).unwrap(), fs::read(stored.join(&name)).unwrap());
        assert!(here == there, "the copies of {session} differ");
    }
    // Every session is on record, once, and in order.
    let whole = |events: &[serde_json::Value]| {
        let ended = events.iter().filter(|event| event["kind"] == "session.end").count();
        ended >= begun + TYPISTS + USERS
    };
    let events = loop {
        let events = cluster.events();
        if whole(&events) {
            break events;
        }
        assert!(back.elapsed() < patience, "events of sessions are missing");
        std::thread::sleep(Duration::from_secs(1));
    };
    eprintln!("{} events were there {:.1} s after its start", events.len(), back.elapsed().as_secs_f64());
    let mut of_session: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut by_command: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut latest: HashMap<&str, OffsetDateTime> = HashMap::new();
    for event in &events {
        let kind = event["kind"].as_str().unwrap();
        assert!(!["recording.failed", "session.refused"].contains(&kind), "{event}");
        if let Some(session) = event["session_id"].as_str() {
            of_session.entry(session).or_default().push(kind);
            if let Some(command) = event["fields"]["command"].as_str().filter(|_| kind == "session.start") {
                by_command.entry(command).or_default().push(session);
            }
        }
        // What the authority says of a host's recording has the time at which it arrived.
        if let Some(origin) = event["origin"].as_str().filter(|_| !kind.starts_with("recording.")) {
            let time = OffsetDateTime::parse(event["time"].as_str().unwrap(), &Rfc3339).unwrap();
            let latest = latest.entry(origin).or_insert(time);
            // Those of one moment come from several threads.
            assert!(time + Duration::from_secs(1) > *latest, "out of order: {event}");
            *latest = time.max(*latest);
        }
    }
    for number in 0..begun {
        let sessions = by_command.get(format!("echo away {number}").as_str());
        let [session] = sessions.map(Vec::as_slice).unwrap_or_default() else {
            panic!("session {number} is on record as {sessions:?}");
        };
        let kinds = of_session.get(session).unwrap();
        let places: Vec<Option<usize>> = ["session.start", "session.exec", "session.end"]
            .iter()
            .map(|kind| kinds.iter().position(|is| is == kind))
            .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "session {number}: {kinds:?}");
        assert!(each_once(kinds), "session {number}: {kinds:?}");
    }
    ok(cluster.admin(&["audit", "verify"]));
    for user in &users {
        let _ = user.run(&["connect", "--stop"]);
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures: {failures:?}", failures.len());
}

/// No event of the beginning or the end was written twice.
fn each_once(kinds: &[&str]) -> bool {
    ["session.start", "session.exec", "session.end"]
        .iter()
        .all(|kind| kinds.iter().filter(|is| *is == kind).count() == 1)
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
    // No client noticed.
    assert!(session.try_wait().unwrap().is_none());
    enters(&alice, "renewed");
    session.kill().unwrap();
    session.wait().unwrap();
    let _ = alice.run(&["connect", "--stop"]);
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
