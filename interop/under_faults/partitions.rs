//! Networks that are cut in two, between each pair that talks with each other: authority and proxy, proxy and node, client and proxy.
//! (A node talks with the authority through the proxy.) Packets vanish and neither end is told.

use std::time::{Duration, Instant};

use super::{Typist, runs};
use crate::support::{Wired, is_root, ok, stderr, wait_for};

/// A tunnel, and a client's connection, is taken for dead after 45 s of silence; no process notices what is shorter.
const PATIENT: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    AuthorityProxy,
    ProxyNode,
    ClientProxy,
}

/// Cuts one wire for so long, and looks at what becomes of it.
fn cut(wired: &mut Wired, pair: Pair, length: Duration) {
    let round = format!("{pair:?}").to_lowercase();
    let name = |who: &str| format!("{who}-{round}");
    let alice = wired.add_far_user(&name("alice"));
    let mallory = wired.cluster.add_user(&name("mallory"), "access", &crate::support::me());
    let bob = wired.cluster.add_user(&name("bob"), "access", &crate::support::me());
    let mut typist = Typist::of(&alice, &wired.to_client.prefix());
    let mut locked = Typist::of(&mallory, &[]);
    let wire = match pair {
        Pair::AuthorityProxy => &wired.to_authority,
        Pair::ProxyNode => &wired.to_node,
        Pair::ClientProxy => &wired.to_client,
    };
    wire.pull();
    let began = Instant::now();
    // The administrator's way to the authority is its own.
    ok(wired.cluster.admin(&["lock", "--user", &mallory.name, "--message", "out"]));
    let mut during = 0;
    match pair {
        // The decisions are those of before, so sessions go on and begin.
        Pair::AuthorityProxy => {
            while during == 0 || began.elapsed() < length {
                during += 1;
                typist.types(&format!("word {during}"));
                ok(runs(&bob, &format!("echo during {round} {during}")));
                std::thread::sleep(length.saturating_sub(began.elapsed()).min(Duration::from_secs(1)));
            }
        }
        Pair::ProxyNode | Pair::ClientProxy => {
            typist.sends("into the dark");
            // Who is locked is refused at the proxy meanwhile, whatever the node knows.
            wait_for("the lock to reach the proxy", || {
                stderr(&runs(&mallory, "true")).contains("out").then_some(())
            });
            std::thread::sleep(length.saturating_sub(began.elapsed()));
        }
    }
    wire.plug_in();
    let healed = Instant::now();
    // The lock is in force everywhere, on what runs and what is asked for.
    wait_for("the locked session to end", || locked.is_over());
    let lock_after = healed.elapsed();
    wait_for("the lock to be in force", || {
        let output = runs(&mallory, "true");
        assert!(!output.status.success() || pair == Pair::AuthorityProxy, "{output:?}");
        stderr(&output).contains("out").then_some(())
    });
    // By itself everything is back.
    wait_for("the node to serve again", || runs(&bob, "true").status.success().then_some(()));
    let back_after = healed.elapsed();
    let survives = pair == Pair::AuthorityProxy || length < PATIENT;
    if survives {
        typist.types("after");
    } else {
        wait_for("the lost session to end at the client", || typist.is_over());
        wired.cluster.wait_event("session.end", |event| event["user"] == alice.name.as_str());
    }
    eprintln!(
        "{pair:?} cut for {} s: the session {}; the lock is in force after {:.1} s, the node serves after {:.1} s",
        length.as_secs(),
        if survives { "goes on" } else { "has ended" },
        lock_after.as_secs_f64(),
        back_after.as_secs_f64(),
    );
    drop(typist);
    // Nothing of what happened meanwhile is missing.
    for number in 1..=during {
        let command = format!("echo during {round} {number}");
        let is = |event: &serde_json::Value| event["fields"]["command"] == command.as_str();
        let start = wired.cluster.wait_event("session.start", is);
        wired.cluster.wait_event("session.end", |event| event["session_id"] == start["session_id"]);
    }
    let of_alice = wired.cluster.wait_event("session.start", |event| event["user"] == alice.name.as_str());
    let session = of_alice["session_id"].as_str().unwrap().to_owned();
    wait_for("her recording", || {
        let arrived = |event: &serde_json::Value| {
            event["session_id"] == session.as_str()
                && (event["kind"] == "recording.uploaded" || event["kind"] == "recording.interrupted")
        };
        wired.cluster.events().iter().any(arrived).then_some(())
    });
    assert!(wired.cluster.playback(&session, "text").contains("here"));
    let events = wired.cluster.events();
    assert!(!events.iter().any(|event| event["kind"] == "audit.lost"));
    ok(wired.cluster.admin(&["audit", "verify"]));
}

fn each_pair(length: Duration) {
    if !is_root() {
        eprintln!("left out: network namespaces need root");
        return;
    }
    let pairs = [Pair::AuthorityProxy, Pair::ProxyNode, Pair::ClientProxy];
    if length < Duration::from_secs(10) {
        let Some(mut wired) = Wired::new() else { return };
        pairs.into_iter().for_each(|pair| cut(&mut wired, pair, length));
        return;
    }
    // Almost all of it is waiting, which is done side by side.
    std::thread::scope(|scope| {
        let cut = |pair| move || Wired::new().map(|mut wired| cut(&mut wired, pair, length));
        let cuts = pairs.map(|pair| scope.spawn(cut(pair)));
        for cut in cuts {
            cut.join().unwrap();
        }
    });
}

#[test]
fn a_cut_of_some_seconds_is_not_noticed() {
    each_pair(Duration::from_secs(2));
}

#[test]
fn a_cut_of_ten_seconds_is_not_noticed() {
    each_pair(Duration::from_secs(10));
}

#[test]
fn a_cut_of_two_minutes_costs_the_sessions_across_it() {
    each_pair(Duration::from_secs(120));
}

#[test]
fn a_cut_of_ten_minutes_costs_the_sessions_across_it() {
    each_pair(Duration::from_secs(600));
}
