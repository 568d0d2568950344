//! Whatever cuts a session ends what it runs: every kind of session, by every way to end, whatever its program does. What is not
//! ended is told of. What is promised in which case is in [`promises`].

mod kinds;
mod promises;
mod seen;
mod ways;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use kinds::{Begun, Behaviour, Cell, KINDS, Kind, MOST_BEHAVIOURS};
use promises::Promise;
use ways::{WAYS, Way};
use world::World;

use crate::support::is_root;

/// How long the connections of [`Way::Lasted`] may last.
const LONGEST: Duration = Duration::from_secs(20);

/// How long what may stay is looked at, before it counts as staying.
const STAYS: Duration = Duration::from_secs(4);

/// How much longer than promised everything may take on a machine with other work.
const LOAD: u32 = 6;

/// How long an event may take to come: a host that was refused tries again after half a minute at most.
const TOLD: Duration = Duration::from_secs(40);

/// Which events tell that something is not gone.
const TELLS: [&str; 3] = ["session.outlived", "db.backend.left", "recording.interrupted"];

/// Where a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Node,
    Database,
    Registered,
}

/// What became of a cell.
struct Outcome {
    way: Way,
    kind: Kind,
    behaviour: Behaviour,
    promise: Promise,
    /// After how long what it ran was gone.
    gone: Option<Duration>,
    /// Whether what had left the session is there.
    left: bool,
    /// The session, where its processes say it.
    session: Option<String>,
    user: String,
    told: Option<String>,
}

impl Outcome {
    /// Whether an event has to say what is there.
    fn is_to_be_told(&self) -> bool {
        let left = self.left && promises::of_what_left(self.way, self.kind) == Promise::Told;
        left || (self.gone.is_none() && self.promise == Promise::Told)
    }

    /// Whether something is gone that a node is to leave alone: what ignores that its client has gone, and what has left the session.
    fn is_missing(&self) -> bool {
        let client = matches!(self.way, Way::ClientKilled | Way::ClientAsked);
        let node = self.kind.place() == Place::Node;
        let ended = client && self.promise == Promise::Told && self.gone.is_some();
        node && (ended || (self.behaviour == Behaviour::Leaves && !self.left))
    }

    /// What is not as it was promised, on a machine that may take so many times as long.
    fn broken(&self, load: u32) -> Option<&'static str> {
        let late = self.promise.time().is_some_and(|time| self.gone.is_none_or(|gone| gone > time * load));
        match self {
            _ if late => Some("late"),
            _ if self.is_missing() => Some("ended, which no way has asked for"),
            _ if self.is_to_be_told() && self.told.is_none() => Some("not told"),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        let gone = self.gone.map_or("stays".to_owned(), |gone| format!("{:.1} s", gone.as_secs_f64()));
        let left = if self.left { "; what left it stays" } else { "" };
        let told = self.told.as_ref().map(|told| format!(" ({told})")).unwrap_or_default();
        let Self { kind, way, behaviour, promise, .. } = self;
        format!("| {kind} | {way} | {behaviour} | {promise} | {gone}{left}{told} |")
    }
}

/// One way with all its cells. What its sessions have left is there for as long as they are kept.
fn by(way: Way, cells: &[Cell], world: &World, begun: &Barrier) -> Vec<(Outcome, Begun)> {
    let logged_in = Instant::now();
    // The others do not wait for what has failed.
    let unless_failed = |failed: Box<dyn std::any::Any + Send>| -> ! {
        begun.wait();
        resume_unwind(failed)
    };
    let owner =
        catch_unwind(AssertUnwindSafe(|| way.owner(world))).unwrap_or_else(|failed| unless_failed(failed));
    let start = || -> Vec<(Instant, Begun)> {
        let started: Vec<_> = cells.iter().map(|cell| (Instant::now(), cell.start(world, &owner))).collect();
        let all = cells.iter().zip(started);
        all.map(|(cell, (asked, started))| (asked, cell.begun(world, started))).collect()
    };
    let running = if way == Way::Lasted {
        begun.wait();
        start()
    } else {
        let running = catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|failed| unless_failed(failed));
        begun.wait();
        running
    };
    let sessions: Vec<&Begun> = running.iter().map(|(_, begun)| begun).collect();
    let acted = way.act(world, &owner, &sessions, logged_in);
    let mut outcomes: Vec<(Instant, Outcome)> = Vec::new();
    for (cell, (asked, begun)) in cells.iter().zip(&running) {
        let outcome = Outcome {
            way,
            kind: cell.kind,
            behaviour: cell.behaviour,
            promise: promises::of(way, cell.kind, cell.behaviour),
            gone: None,
            left: false,
            session: begun.session.clone(),
            user: owner.user.name.clone(),
            told: None,
        };
        outcomes.push((if way == Way::Lasted { *asked + LONGEST } else { acted }, outcome));
    }
    loop {
        let mut wait = false;
        for ((cell, (_, begun)), (since, outcome)) in cells.iter().zip(&running).zip(&mut outcomes) {
            // What is left alone is there when the kill would have been.
            wait |= cell.behaviour == Behaviour::Leaves && Instant::now() < *since + STAYS;
            if outcome.gone.is_some() {
                continue;
            }
            let at = world.watch().gone(&begun.things, cell.number, Instant::now().min(*since));
            outcome.gone = at.map(|at| at.saturating_duration_since(*since));
            let patience = outcome.promise.time().map_or(STAYS, |time| time * LOAD);
            wait |= outcome.gone.is_none() && Instant::now() < *since + patience;
        }
        if !wait {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if let Some(service) = way.service() {
        world.restart(service);
    }
    way.undo(world, &owner);
    let outcomes = outcomes.into_iter().zip(running).map(|((_, outcome), (_, begun))| {
        let left = begun.left.iter().any(|process| process.is_there());
        (Outcome { left, ..outcome }, begun)
    });
    outcomes.collect()
}

/// Tries all that is chosen for each way and kind, and asserts what is promised, but for how busy the machine is.
fn run(ways: &[Way], load: u32, chosen: impl Fn(usize, usize, &'static [Behaviour]) -> Vec<Behaviour>) {
    if !is_root() {
        eprintln!("left out: accounts are root's to make");
        return;
    }
    let began = Instant::now();
    let world = World::new();
    let mut number = 0;
    let mut table = Vec::new();
    for (row, way) in ways.iter().enumerate() {
        let mut cells = Vec::new();
        for (column, kind) in KINDS.into_iter().enumerate().filter(|(_, kind)| way.ends(*kind)) {
            for behaviour in chosen(row, column, kind.behaviours()) {
                cells.push(Cell { kind, behaviour, number });
                number += 2;
            }
        }
        table.push((*way, cells));
    }
    let barrier = Barrier::new(table.len());
    let mut failed = false;
    let (mut outcomes, _kept): (Vec<Outcome>, Vec<Begun>) = std::thread::scope(|scope| {
        let (world, barrier) = (&world, &barrier);
        let running: Vec<_> =
            table.iter().map(|(way, cells)| scope.spawn(|| by(*way, cells, world, barrier))).collect();
        let joined = running.into_iter().map(|way| way.join());
        joined.filter_map(|way| way.inspect_err(|_| failed = true).ok()).flatten().collect()
    });
    let asked = Instant::now();
    while outcomes.iter().any(|one| one.is_to_be_told() && one.told.is_none()) && asked.elapsed() < TOLD {
        let events = world.cluster.events();
        for one in outcomes.iter_mut().filter(|one| one.is_to_be_told()) {
            let of_it = |event: &&serde_json::Value| {
                TELLS.iter().any(|kind| event["kind"] == *kind)
                    && match &one.session {
                        Some(session) => event["session_id"] == session.as_str(),
                        // Neither a database's process nor a registered server knows the session.
                        None => event["user"] == one.user.as_str(),
                    }
            };
            one.told = events.iter().find(of_it).and_then(|event| event["kind"].as_str().map(str::to_owned));
        }
    }
    for one in &outcomes {
        println!("{}", one.shown());
    }
    println!("{} cells in {:.1} s", outcomes.len(), began.elapsed().as_secs_f64());
    let broken: Vec<String> =
        outcomes.iter().filter_map(|one| Some(format!("{}: {}", one.broken(load)?, one.shown()))).collect();
    assert!(
        broken.is_empty(),
        "{} of {} are not as promised:\n{}",
        broken.len(),
        outcomes.len(),
        broken.join("\n")
    );
    assert!(!failed, "a way could not be tried");
}

/// A third of all kinds by each way, with one behaviour in turn: each kind is ended by some ways of each sort, and each of its
/// behaviours is tried.
#[test]
fn what_cuts_a_session_ends_what_it_runs() {
    // The shortest certificate lives for a minute.
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| *way != Way::Expired).collect();
    run(&ways, LOAD, |row, column, behaviours| match (row + column) % 3 {
        0 => vec![behaviours[(row + column) / 3 % behaviours.len()]],
        _ => Vec::new(),
    });
}

/// How many ways are tried at once where nothing may be late: two processors do not end two hundred sessions in a second.
const AT_ONCE: usize = 4;

/// All of it, on a machine that has nothing else to do: a round for each behaviour, since a thousand sessions do not begin at once.
/// What is not as promised in one round does not keep the next from being tried.
#[test]
fn every_end_of_every_kind_of_session_whatever_it_runs() {
    let mut broken = 0;
    for round in 0..MOST_BEHAVIOURS {
        for ways in WAYS.chunks(AT_ONCE) {
            let tried =
                || run(ways, 1, |_, _, behaviours| behaviours.get(round).copied().into_iter().collect());
            broken += u32::from(catch_unwind(tried).is_err());
        }
    }
    assert_eq!(broken, 0, "runs in which something was not as promised; each says above what");
}
