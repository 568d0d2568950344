//! Every source for every primitive, measured.

use time::OffsetDateTime;

use super::operation::{self, Part};
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
    /// The primitive under way.
    pub primitive: Primitive,
    /// Primitives done.
    pub done: usize,
    /// Primitives in all.
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
    let primitives: Vec<_> =
        Primitive::all().filter(|primitive| scope.covers(*primitive) && wanted(*primitive)).collect();
    let mut rows = Vec::new();
    for (done, primitive) in primitives.iter().copied().enumerate() {
        progress(Progress { primitive, done, all: primitives.len() });
        let measurable: Vec<_> = selection
            .providers()
            .iter()
            .copied()
            .filter(|provider| operation::is_measurable(*provider, primitive))
            .collect();
        let slow = matches!(primitive, Primitive::GenerateKey(key) if key.kind() == KeyKind::Rsa);
        let effort = if slow { Effort { passes: rsa_passes(primitive), ..effort } } else { effort };
        for part in operation::parts(primitive) {
            let mut names: Vec<&'static dyn Provider> = Vec::new();
            let mut works = Vec::new();
            for provider in &measurable {
                // Each makes its own keys and peers where it can; the most capable one helps where it cannot.
                let own = operation::prepare(*provider, *provider, primitive, part);
                let ready = own.or_else(|error| match helper(selection, primitive) {
                    Some(helper) => operation::prepare(*provider, helper, primitive, part),
                    None => Err(error),
                });
                if let Ok(work) = ready {
                    names.push(*provider);
                    works.push(work);
                }
            }
            let times = timing::interleaved(&mut works, effort, || ());
            rows.extend(names.into_iter().zip(times).map(|(provider, times)| Measured {
                primitive,
                part,
                provider: provider.name(),
                times,
                warning: match provider.offer(primitive) {
                    Offer::Unsafe(reason) => Some(reason),
                    _ => None,
                },
            }));
        }
    }
    rows
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
