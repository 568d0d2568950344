//! Every source for every primitive, measured.

use time::OffsetDateTime;

use super::operation::{self, Part, Work};
use super::timing::{self, Effort, Times};
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
    let primitives = || Primitive::all().filter(|primitive| scope.covers(*primitive) && wanted(*primitive));
    // RSA key generation takes from tenths of seconds to seconds: it has passes of its own.
    let is_slow = |primitive| matches!(primitive, Primitive::GenerateKey(key) if key.kind() == KeyKind::Rsa);
    let slow: Vec<_> = primitives().filter(|primitive| is_slow(*primitive)).collect();
    let quick: Vec<_> = primitives().filter(|primitive| !is_slow(*primitive)).collect();
    let all = slow.len() + if quick.is_empty() { 0 } else { effort.passes };
    let mut done = 0;

    // Everything takes part in every pass, so that a disturbance of seconds spoils one sample of each at most.
    let (mut candidates, works) = candidates(selection, &quick);
    let mut works: Vec<Work> = works;
    let times = timing::interleaved(&mut works, effort, || {
        done += 1;
        progress(Progress { primitive: None, done, all });
    });
    for (candidate, times) in candidates.iter_mut().zip(times) {
        candidate.times = times;
    }
    for primitive in slow {
        progress(Progress { primitive: Some(primitive), done, all });
        let (mut rows, mut works) = self::candidates(selection, &[primitive]);
        let effort = Effort { passes: rsa_passes(primitive), ..effort };
        for (row, times) in rows.iter_mut().zip(timing::interleaved(&mut works, effort, || ())) {
            row.times = times;
        }
        candidates.append(&mut rows);
        done += 1;
    }
    candidates.sort_by_key(|row| (row.primitive.index(), row.part));
    candidates
}

/// Every source that can run here for these primitives, ready to be timed.
fn candidates(selection: &Selection, primitives: &[Primitive]) -> (Vec<Measured>, Vec<Work>) {
    let (mut rows, mut works) = (Vec::new(), Vec::new());
    for primitive in primitives.iter().copied() {
        let measurable = || {
            selection.providers().iter().filter(|provider| operation::is_measurable(**provider, primitive))
        };
        for part in operation::parts(primitive) {
            for provider in measurable() {
                // Each makes its own keys and peers where it can; the most capable one helps where it cannot.
                let own = operation::prepare(*provider, *provider, primitive, part);
                let ready = own.or_else(|error| match helper(selection, primitive) {
                    Some(helper) => operation::prepare(*provider, helper, primitive, part),
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
    }
    (rows, works)
}

/// A profile of this machine.
pub fn tune(selection: &Selection, now: OffsetDateTime, progress: impl FnMut(Progress)) -> Profile {
    let rows = measure(selection, Scope::Selection, Effort::TUNE, |_| true, progress);
    profile(selection, &rows, now)
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
    selection.source(helps).ok()
}
