//! What was run, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_sal::Primitive;
use sallyport_sal::provider::Fault;

use crate::conformance::known;

/// Where a vector comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Project Wycheproof.
    Wycheproof,
    /// An RFC, FIPS, or NIST's ACVP.
    Published,
    /// Our own, at the edge of what may be taken.
    Edge,
    /// One provider's output given to another.
    Crossed,
}

impl Origin {
    pub(crate) const ALL: [Self; 4] = [Self::Wycheproof, Self::Published, Self::Edge, Self::Crossed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wycheproof => "Wycheproof",
            Self::Published => "published",
            Self::Edge => "edge",
            Self::Crossed => "crossed",
        }
    }
}

/// What is asked of a provider that judges a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expect {
    Accept,
    Refuse,
    /// Standards leave it open: providers may differ, and the layer gives one answer, which is the strictest.
    Same,
}

/// One vector that is accepted or refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) primitive: Primitive,
    pub(crate) origin: Origin,
    /// The file or family.
    pub(crate) set: &'static str,
    /// What is special about it; vectors with the same note are listed together.
    pub(crate) note: String,
    /// Its number or name in the set.
    pub(crate) id: String,
    pub(crate) expect: Expect,
}

/// Counts for one primitive and origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// Not as expected, for a reason in [`known`]; the layer makes up for it.
    pub(crate) excused: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: BTreeMap<&'static str, usize>,
}

impl Tally {
    pub(crate) fn run(&self) -> usize {
        self.passed + self.excused + self.failed
    }

    pub(crate) fn skips(&self) -> usize {
        self.skipped.values().sum()
    }

    fn absorb(&mut self, other: Self) {
        self.passed += other.passed;
        self.excused += other.excused;
        self.failed += other.failed;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }
}

/// What came of the vectors that one subject ran: a provider, or the layer over one.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) subject: &'static str,
    pub(crate) tallies: BTreeMap<(Primitive, Origin), Tally>,
    /// Every vector that was judged, and whether it was accepted.
    pub(crate) verdicts: Vec<(Arc<Case>, bool)>,
    pub(crate) failures: Vec<String>,
    /// Places in [`known::DEVIATIONS`] that excused something.
    pub(crate) excuses: Vec<usize>,
}

impl Report {
    pub(crate) fn new(subject: &'static str) -> Self {
        Self {
            subject,
            tallies: BTreeMap::new(),
            verdicts: Vec::new(),
            failures: Vec::new(),
            excuses: Vec::new(),
        }
    }

    /// Takes down whether a vector was accepted. A fault that is not a refusal is a failure whatever was expected:
    /// the layer would take the provider out of service for something that a peer sent.
    pub(crate) fn judge(&mut self, case: &Arc<Case>, outcome: Result<(), Fault>) {
        let tally = self.tallies.entry((case.primitive, case.origin)).or_default();
        let accepted = match outcome {
            Ok(()) => true,
            Err(Fault::Refused(_)) => false,
            Err(fault) => {
                if let Some(excuse) = known::excuse(self.subject, case) {
                    tally.excused += 1;
                    self.excuses.push(excuse);
                    return;
                }
                tally.failed += 1;
                self.failures.push(format!(
                    "{}: {}: {fault}, which is not a refusal",
                    self.subject,
                    describe(case)
                ));
                return;
            }
        };
        let as_expected = match case.expect {
            Expect::Accept => accepted,
            Expect::Refuse => !accepted,
            Expect::Same => true,
        };
        if as_expected {
            tally.passed += 1;
        } else if let Some(excuse) = known::excuse(self.subject, case) {
            tally.excused += 1;
            self.excuses.push(excuse);
        } else {
            tally.failed += 1;
            let verdict = if accepted { "accepted" } else { "refused" };
            self.failures.push(format!("{}: {}: {verdict}", self.subject, describe(case)));
        }
        self.verdicts.push((Arc::clone(case), accepted));
    }

    /// Takes down whether an answer was the right one.
    pub(crate) fn check(
        &mut self,
        primitive: Primitive,
        origin: Origin,
        right: bool,
        what: impl FnOnce() -> String,
    ) {
        let tally = self.tallies.entry((primitive, origin)).or_default();
        if right {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            self.failures.push(format!("{}: {primitive}: {}", self.subject, what()));
        }
    }

    /// Takes down a vector that could not be run.
    pub(crate) fn skip(&mut self, primitive: Primitive, origin: Origin, reason: &'static str) {
        *self.tallies.entry((primitive, origin)).or_default().skipped.entry(reason).or_default() += 1;
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        for (key, tally) in other.tallies {
            self.tallies.entry(key).or_default().absorb(tally);
        }
        self.verdicts.extend(other.verdicts);
        self.failures.extend(other.failures);
        self.excuses.extend(other.excuses);
    }
}

fn describe(case: &Case) -> String {
    format!("{} {} {} ({})", case.primitive, case.set, case.id, case.note)
}
