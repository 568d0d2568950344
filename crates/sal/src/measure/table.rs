//! Every source for every primitive, measured.

use time::OffsetDateTime;

use super::danger::plain_rsa::PLAIN_RSA;
use super::operation::{self, Part, Work};
use super::timing::{self, Effort, Event, Times};
use crate::algorithm::{KeyAlgorithm, KeyKind, Standing};
use crate::provider::{Offer, Provider};
use crate::selection::Profile;
use crate::{Primitive, Selection};

/// One source for one part of a primitive.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The primitive.
    pub primitive: Primitive,
    /// The part of it.
    pub part: Part,
    /// The provider's name.
    pub provider: &'static str,
    /// Its times.
    pub times: Times,
    /// What it warns of itself; it is never chosen then.
    pub warning: Option<&'static str>,
}

/// What a measurement tells while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The primitive under way; none while all take turns.
    pub primitive: Option<Primitive>,
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub all: usize,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// What a selection needs to know: keys of full standing, without generating RSA keys, which takes from tenths of
    /// seconds to seconds each and varies as much.
    Selection,
    /// Everything, with RSA keys generated and the sizes that are only verified or measured.
    Everything,
}

impl Scope {
    /// Whether a primitive belongs to it.
    #[must_use]
    pub fn covers(self, primitive: Primitive) -> bool {
        match (self, primitive) {
            (Self::Everything, _) => true,
            (Self::Selection, Primitive::GenerateKey(key)) => {
                key.kind() != KeyKind::Rsa && key.standing() == Standing::Full
            }
            (Self::Selection, Primitive::Sign(key)) => key.standing() == Standing::Full,
            (Self::Selection, Primitive::Verify(key)) => key.standing() != Standing::LabOnly,
            (Self::Selection, _) => true,
        }
    }
}

/// Measures every source that can run here, for the primitives of a scope that `wanted` names.
pub fn measure(
    selection: &Selection,
    scope: Scope,
    effort: Effort,
    wanted: impl Fn(Primitive) -> bool,
    mut progress: impl FnMut(Progress),
) -> Vec<Measured> {
    let primitives = Primitive::all().filter(|primitive| scope.covers(*primitive) && wanted(*primitive));
    let wanted: Vec<Wanted> = primitives
        .flat_map(|primitive| {
            selection.providers().iter().map(move |provider| Wanted { primitive, provider: *provider })
        })
        .collect();
    let going = |now| {
        progress(now);
        true
    };
    measure_while(selection, &wanted, effort, going, |_, _| ())
}

/// One source for one primitive, to be measured.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The primitive.
    pub primitive: Primitive,
    /// The source. One that does not offer it, or cannot run here, is passed over.
    pub provider: &'static dyn Provider,
}

/// Measures these sources in turns, until `progress` says no: then there are fewer passes. `heard` gets every sample as it
/// comes: whose it is (its row has no times yet), and nanoseconds for one operation.
pub fn measure_while(
    selection: &Selection,
    wanted: &[Wanted],
    effort: Effort,
    mut progress: impl FnMut(Progress) -> bool,
    mut heard: impl FnMut(&Measured, f64),
) -> Vec<Measured> {
    // RSA key generation takes from tenths of seconds to seconds: it has passes of its own.
    let is_slow = |primitive| matches!(primitive, Primitive::GenerateKey(key) if key.kind() == KeyKind::Rsa);
    let (slow, quick): (Vec<_>, Vec<_>) =
        wanted.iter().copied().partition(|wanted| is_slow(wanted.primitive));
    let mut one_by_one: Vec<Vec<Wanted>> = Vec::new();
    for wanted in slow {
        match one_by_one.last_mut() {
            Some(last) if last.iter().any(|one| one.primitive == wanted.primitive) => last.push(wanted),
            _ => one_by_one.push(vec![wanted]),
        }
    }
    let slow = one_by_one;
    let all = slow.len() + if quick.is_empty() { 0 } else { effort.passes };
    let mut done = 0;

    // Everything takes part in every pass, so that a disturbance of seconds spoils one sample of each at most.
    let (mut candidates, works) = candidates(selection, &quick);
    let mut works: Vec<Work> = works;
    let mut going = true;
    let times = timing::interleaved_while(&mut works, effort, |event| {
        match event {
            Event::Sample(place, one) => tell(&candidates, place, one, &mut heard),
            Event::Pass => {
                done += 1;
                going = progress(Progress { primitive: None, done, all });
            }
        }
        going
    });
    for (candidate, times) in candidates.iter_mut().zip(times) {
        candidate.times = times;
    }
    for wanted in slow {
        let Some(primitive) = wanted.first().map(|first| first.primitive) else { continue };
        let now = Progress { primitive: Some(primitive), done, all };
        if !going || !progress(now) {
            break;
        }
        let (mut rows, mut works) = self::candidates(selection, &wanted);
        let effort = Effort { passes: rsa_passes(primitive), ..effort };
        let times = timing::interleaved_while(&mut works, effort, |event| {
            match event {
                Event::Sample(place, one) => tell(&rows, place, one, &mut heard),
                Event::Pass => going = progress(now),
            }
            going
        });
        for (row, times) in rows.iter_mut().zip(times) {
            row.times = times;
        }
        candidates.append(&mut rows);
        done += 1;
    }
    candidates.sort_by_key(|row| (row.primitive.index(), row.part));
    candidates
}

fn tell(rows: &[Measured], place: usize, nanoseconds: f64, heard: &mut impl FnMut(&Measured, f64)) {
    if let Some(row) = rows.get(place) {
        heard(row, nanoseconds);
    }
}

/// Those of the sources that can run here, ready to be timed.
fn candidates(selection: &Selection, wanted: &[Wanted]) -> (Vec<Measured>, Vec<Work>) {
    let (mut rows, mut works) = (Vec::new(), Vec::new());
    for Wanted { primitive, provider } in wanted.iter().copied() {
        if !operation::is_measurable(provider, primitive) {
            continue;
        }
        for part in operation::parts(primitive) {
            // Each makes its own keys and peers where it can; the most capable one helps where it cannot.
            let own = operation::prepare(provider, provider, primitive, part);
            let ready = own.or_else(|error| match helper(selection, primitive) {
                Some(helper) => operation::prepare(provider, helper, primitive, part),
                None => Err(error),
            });
            let Ok(work) = ready else { continue };
            works.push(work);
            rows.push(Measured {
                primitive,
                part,
                provider: provider.name(),
                times: Times::default(),
                warning: match provider.offer(primitive) {
                    Offer::Unsafe(reason) => Some(reason),
                    _ => None,
                },
            });
        }
    }
    (rows, works)
}

/// The profile that follows from a table.
#[must_use]
pub fn profile(selection: &Selection, rows: &[Measured], now: OffsetDateTime) -> Profile {
    let mut profile = Profile::new(selection.cpu(), now);
    for row in rows {
        if row.part == operation::deciding_part(row.primitive) && row.warning.is_none() {
            profile.costs.entry(row.primitive).or_default().insert(row.provider.to_owned(), row.times.cost());
        }
    }
    profile
}

/// Key generation of RSA has a long tail: its mean matters, and needs many samples.
fn rsa_passes(primitive: Primitive) -> usize {
    match primitive {
        Primitive::GenerateKey(KeyAlgorithm::Rsa1024 | KeyAlgorithm::Rsa2048) => 20,
        Primitive::GenerateKey(KeyAlgorithm::Rsa3072) => 10,
        Primitive::GenerateKey(KeyAlgorithm::Rsa8192) => 1,
        _ => 5,
    }
}

fn helper(selection: &Selection, primitive: Primitive) -> Option<&'static dyn Provider> {
    let helps = match primitive {
        Primitive::Verify(key) => Primitive::Sign(key),
        Primitive::Decapsulate => Primitive::Encapsulate,
        Primitive::Encapsulate => Primitive::Decapsulate,
        other => other,
    };
    match helps {
        Primitive::Sign(KeyAlgorithm::Rsa1024) => Some(&PLAIN_RSA),
        _ => selection.source(helps).ok(),
    }
}
