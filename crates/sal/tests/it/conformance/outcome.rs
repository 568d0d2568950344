//! Runs everything once, on every core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::{AeadAlgorithm, DhGroup, HashAlgorithm, KeyAlgorithm};
use sallyport_sal::cpu::Cpu;
use sallyport_sal::provider::{ALL, Offer, Provider};

use crate::conformance::layered::{Layered, PREFIX};
use crate::conformance::report::{Case, Report};
use crate::conformance::{
    agreement, ciphers, crossed, derivation, digests, encapsulation, private_keys, signatures,
};

/// What came of everything.
pub(crate) struct Outcome {
    /// By subject.
    pub(crate) reports: BTreeMap<&'static str, Report>,
    /// Providers of this build that cannot run here, with what the CPU lacks.
    pub(crate) absent: BTreeMap<&'static str, String>,
    pub(crate) took: Duration,
}

/// Who accepted a vector, and who refused it.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) accepted: Vec<&'static str>,
    pub(crate) refused: Vec<&'static str>,
    /// The layer, over one provider or another.
    pub(crate) layer_accepted: Vec<&'static str>,
    pub(crate) layer_refused: Vec<&'static str>,
}

impl Verdicts {
    /// Whether the providers are of two minds.
    pub(crate) fn differ(&self) -> bool {
        !self.accepted.is_empty() && !self.refused.is_empty()
    }
}

impl Outcome {
    /// Every vector that was judged, with what all made of it.
    pub(crate) fn verdicts(&self) -> BTreeMap<&Case, Verdicts> {
        let mut all = BTreeMap::<&Case, Verdicts>::new();
        for report in self.reports.values() {
            let layered = report.subject.starts_with(PREFIX);
            for (case, accepted) in &report.verdicts {
                let verdicts = all.entry(case).or_default();
                let list = match (layered, accepted) {
                    (false, true) => &mut verdicts.accepted,
                    (false, false) => &mut verdicts.refused,
                    (true, true) => &mut verdicts.layer_accepted,
                    (true, false) => &mut verdicts.layer_refused,
                };
                list.push(report.subject);
            }
        }
        all
    }
}

/// The one run that every test of this suite looks at.
pub(crate) static OUTCOME: LazyLock<Outcome> = LazyLock::new(run);

/// The providers that can run on this CPU.
pub(crate) static PRESENT: LazyLock<Vec<&'static dyn Provider>> =
    LazyLock::new(|| ALL.iter().copied().filter(|provider| missing(*provider).is_none()).collect());

/// The layer over each of them.
pub(crate) static LAYERED: LazyLock<Vec<&'static Layered>> =
    LazyLock::new(|| PRESENT.iter().copied().map(Layered::over).collect());

fn missing(provider: &dyn Provider) -> Option<String> {
    let cpu = Cpu::detect();
    provider
        .needs()
        .iter()
        .find(|feature| !cpu.has(**feature))
        .map(|feature| format!("the CPU has no {feature}"))
}

/// Every offer of a provider that is present.
pub(crate) fn offers() -> impl Iterator<Item = (&'static dyn Provider, Primitive)> {
    PRESENT.iter().copied().flat_map(|provider| {
        Primitive::all()
            .filter(move |primitive| provider.offer(*primitive) != Offer::No)
            .map(move |primitive| (provider, primitive))
    })
}

type Job = Box<dyn FnOnce() -> Vec<Report> + Send>;

fn jobs() -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    // The slowest first: keys of RSA are made by all who make them.
    for algorithm in KeyAlgorithm::ALL.iter().rev().copied() {
        jobs.push(Box::new(move || crossed::signatures(algorithm, &PRESENT)));
    }
    let parts: [fn(&dyn Provider, &mut Report); 7] = [
        signatures::verify,
        private_keys::sign,
        agreement::run,
        encapsulation::decapsulate,
        encapsulation::encapsulate,
        ciphers::run,
        digests::run,
    ];
    for part in parts {
        for provider in PRESENT.iter().copied() {
            jobs.push(Box::new(move || {
                let mut report = Report::new(provider.name());
                part(provider, &mut report);
                vec![report]
            }));
        }
    }
    // What comes from a peer passes through the layer, too, over each provider alone.
    for part in [
        signatures::verify,
        private_keys::sign,
        agreement::run,
        encapsulation::decapsulate,
        encapsulation::encapsulate,
    ] as [fn(&dyn Provider, &mut Report); 5]
    {
        for provider in LAYERED.iter().copied() {
            jobs.push(Box::new(move || {
                let mut report = Report::new(provider.name());
                part(provider, &mut report);
                vec![report]
            }));
        }
    }
    for layered in LAYERED.iter().copied() {
        jobs.push(Box::new(move || {
            let mut report = Report::new(layered.name());
            derivation::suites(layered, &mut report);
            vec![report]
        }));
    }
    for group in DhGroup::ALL.iter().copied() {
        jobs.push(Box::new(move || crossed::agreements(group, &PRESENT)));
    }
    jobs.push(Box::new(|| crossed::encapsulations(&PRESENT)));
    for algorithm in AeadAlgorithm::ALL.iter().copied() {
        jobs.push(Box::new(move || crossed::ciphers(algorithm, &PRESENT)));
    }
    for algorithm in HashAlgorithm::ALL.iter().copied() {
        jobs.push(Box::new(move || crossed::digests(algorithm, &PRESENT)));
    }
    jobs
}

fn run() -> Outcome {
    let began = Instant::now();
    let queue = Mutex::new(jobs().into_iter());
    let done = Mutex::new(BTreeMap::<&'static str, Report>::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(job) = queue.lock().unwrap().next() else { break };
                    for report in job() {
                        let mut done = done.lock().unwrap();
                        done.entry(report.subject)
                            .or_insert_with(|| Report::new(report.subject))
                            .absorb(report);
                    }
                }
            });
        }
    });
    let absent: BTreeMap<_, _> =
        ALL.iter().filter_map(|provider| Some((provider.name(), missing(*provider)?))).collect();
    let names: BTreeSet<_> = ALL.iter().map(|provider| provider.name()).collect();
    assert_eq!(names.len(), ALL.len(), "every provider has a name of its own");
    Outcome { reports: done.into_inner().unwrap(), absent, took: began.elapsed() }
}
