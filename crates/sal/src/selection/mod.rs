//! Which source serves which primitive, and why.
//!
//! A [`Selection`] ranks the providers for each primitive by its [`Policy`], and gives the first one that is eligible:
//! it offers the primitive without a warning of its own, the CPU has what it needs, and its self-test passed. The
//! self-test runs once, before the first use of the primitive by that provider. A provider that fails it, or that
//! breaks later where it had no reason to, is quarantined for that primitive: the next one takes over, and an
//! [`Incident`] says so.

mod counts;
mod incident;
mod keys;
mod policy;
mod preset;
mod profile;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use counts::Counts;
pub use counts::Use;
pub use incident::Incident;
use parking_lot::Mutex;
pub use policy::{Mode, Policy, PolicyError};
pub use preset::order as preset_order;
pub use profile::{Cost, Profile, ProfileError};

use crate::cpu::{Cpu, CpuFeature};
use crate::provider::{self, Fault, Offer, Provider};
use crate::{KeyAlgorithm, Primitive, SalError, selftest};

/// A measured source must be faster than the preset's by more than this share to displace it: less is noise.
pub const MARGIN: f64 = 0.03;

const NOT_CHOSEN: u8 = u8::MAX;
const UNTESTED: u8 = 0;
const PASSED: u8 = 1;
const FAILED: u8 = 2;

/// What stands against a provider for a primitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It does not have the primitive.
    NotOffered,
    /// It warns of it itself.
    Unsafe(&'static str),
    /// The CPU lacks what it needs.
    MissingCpuFeature(CpuFeature),
    /// The policy admits other providers only.
    Policy,
    /// It gave a wrong answer, or failed where it had no reason to.
    Quarantined(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("not offered"),
            Self::Unsafe(reason) => f.write_str(reason),
            Self::MissingCpuFeature(feature) => write!(f, "the CPU has no {feature}"),
            Self::Policy => f.write_str("not admitted by the policy"),
            Self::Quarantined(reason) => write!(f, "quarantined: {reason}"),
        }
    }
}

/// A provider's place for a primitive.
#[derive(Debug, Clone)]
pub struct Place {
    /// The provider.
    pub provider: &'static dyn Provider,
    /// What stands against it; none when it is eligible.
    pub obstacle: Option<Obstacle>,
    /// What an operation costs by the profile, in nanoseconds.
    pub cost: Option<Cost>,
}

/// Why a source stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was measured to be the fastest on this machine.
    Measured,
    /// The built-in table puts it first.
    Preset,
    /// The configuration names it for this primitive.
    Override,
    /// The policy names it for all.
    Only,
    /// It is what the FIPS module has.
    Fips,
}

impl Reason {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Preset => "preset",
            Self::Override => "override",
            Self::Only => "only",
            Self::Fips => "fips",
        }
    }
}

/// The choice for every primitive.
pub struct Selection {
    providers: Vec<&'static dyn Provider>,
    cpu: Cpu,
    policy: Policy,
    /// Place in `providers`, for each primitive.
    chosen: Vec<AtomicU8>,
    /// For each primitive, one for each provider.
    health: Vec<AtomicU8>,
    /// How often each was asked, laid out as `health`.
    uses: Counts,
    /// Held while a source is sought, so that a self-test runs once.
    seeking: Mutex<()>,
    incidents: Mutex<Incidents>,
}

type Listener = Arc<dyn Fn(&Incident) + Send + Sync>;

#[derive(Default)]
struct Incidents {
    kept: Vec<Incident>,
    listeners: Vec<Listener>,
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("providers", &self.providers).finish_non_exhaustive()
    }
}

static GLOBAL: OnceLock<Selection> = OnceLock::new();

/// The selection of this process: what [`configure`] set, or the preset.
#[must_use]
pub fn global() -> &'static Selection {
    GLOBAL.get_or_init(|| Selection::new(provider::ALL, Policy::default()))
}

/// Sets the policy of this process. It must come before anything used the layer.
///
/// # Errors
/// [`SalError::AlreadyInUse`] when the selection stands already.
pub fn configure(policy: Policy) -> Result<&'static Selection, SalError> {
    GLOBAL.set(Selection::new(provider::ALL, policy)).map_err(|_| SalError::AlreadyInUse)?;
    Ok(global())
}

impl Selection {
    /// A selection among these providers, for this machine.
    #[must_use]
    pub fn new(providers: &[&'static dyn Provider], policy: Policy) -> Self {
        Self::on(providers, policy, Cpu::detect())
    }

    /// The same for another CPU: what it lacks, this one does as if it lacked it too.
    #[must_use]
    pub fn on(providers: &[&'static dyn Provider], mut policy: Policy, cpu: Cpu) -> Self {
        let providers: Vec<_> = providers.iter().copied().take(provider::MAX).collect();
        let mut incidents = Incidents::default();
        if let Mode::Measured(profile) = &policy.mode
            && let Some(reason) = profile.stale(&cpu)
        {
            incidents.kept.push(Incident::StaleProfile { reason });
            policy.mode = Mode::Preset;
        }
        let table = |length| (0..length).map(|_| AtomicU8::new(UNTESTED)).collect::<Vec<_>>();
        Self {
            chosen: (0..Primitive::COUNT).map(|_| AtomicU8::new(NOT_CHOSEN)).collect(),
            health: table(Primitive::COUNT * provider::MAX),
            uses: Counts::new(Primitive::COUNT * provider::MAX),
            providers,
            cpu,
            policy,
            seeking: Mutex::new(()),
            incidents: Mutex::new(incidents),
        }
    }

    /// The source of a primitive.
    ///
    /// # Errors
    /// [`SalError::NoSource`] when no provider is eligible, saying what stands against each.
    #[inline]
    pub fn source(&self, primitive: Primitive) -> Result<&'static dyn Provider, SalError> {
        self.placed(primitive).map(|(_, provider)| provider)
    }

    /// The source of a primitive, and its place among the providers.
    #[inline]
    pub(crate) fn placed(&self, primitive: Primitive) -> Result<(usize, &'static dyn Provider), SalError> {
        let at = self.chosen.get(primitive.index()).map_or(NOT_CHOSEN, |at| at.load(Ordering::Acquire));
        match self.providers.get(usize::from(at)) {
            Some(provider) => Ok((usize::from(at), *provider)),
            None => self.seek(primitive),
        }
    }

    /// Counts that a provider was asked for a primitive.
    #[inline]
    pub(crate) fn used(&self, primitive: Primitive, at: usize) {
        self.uses.add(primitive.index() * provider::MAX + at);
    }

    /// How often each provider was asked for each primitive so far, without those that never were. Self-tests and measurements
    /// are not counted.
    #[must_use]
    pub fn uses(&self) -> Vec<Use> {
        Primitive::all()
            .flat_map(|primitive| {
                self.providers.iter().enumerate().filter_map(move |(at, provider)| {
                    let times = self.uses.at(primitive.index() * provider::MAX + at);
                    let in_module = provider.is_fips() && matches!(provider.offer(primitive), Offer::Yes);
                    let primitive = (times > 0).then(|| primitive.to_string())?;
                    Some(Use { primitive, provider: provider.name(), times, in_module })
                })
            })
            .collect()
    }

    /// Runs an operation on the source of its primitive. When that breaks, it is quarantined and the next one is
    /// tried; a refusal is an answer like any other.
    ///
    /// # Errors
    /// [`RunError`]: the provider's refusal, or that there is no source left.
    pub fn run<T>(
        &self,
        primitive: Primitive,
        mut operation: impl FnMut(&'static dyn Provider) -> Result<T, Fault>,
    ) -> Result<T, RunError> {
        loop {
            let (at, provider) = self.placed(primitive).map_err(RunError::NoSource)?;
            self.used(primitive, at);
            match operation(provider) {
                Ok(done) => return Ok(done),
                Err(Fault::Refused(reason)) => return Err(RunError::Refused(reason)),
                Err(fault @ (Fault::Broken(_) | Fault::Unsupported)) => {
                    self.quarantine(primitive, provider, &fault.to_string());
                }
            }
        }
    }

    /// Takes a provider out of service for a primitive. The next one takes over, and an incident says so.
    pub fn quarantine(&self, primitive: Primitive, provider: &'static dyn Provider, reason: &str) {
        let Some(at) = self.place_of(provider) else { return };
        let failed =
            self.health(primitive, at).is_some_and(|health| health.swap(FAILED, Ordering::AcqRel) != FAILED);
        if let Some(chosen) = self.chosen.get(primitive.index()) {
            let _ = chosen.compare_exchange(
                u8::try_from(at).unwrap_or(NOT_CHOSEN),
                NOT_CHOSEN,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        if failed {
            let next = self
                .ranking(primitive)
                .into_iter()
                .find(|place| place.obstacle.is_none())
                .map(|place| place.provider.name());
            self.report(Incident::Quarantined {
                primitive,
                provider: provider.name(),
                reason: reason.to_owned(),
                next,
            });
        }
    }

    /// Every provider in the order in which it would serve a primitive, those that cannot last.
    #[must_use]
    pub fn ranking(&self, primitive: Primitive) -> Vec<Place> {
        let mut places: Vec<Place> = self
            .providers
            .iter()
            .enumerate()
            .map(|(at, provider)| Place {
                provider: *provider,
                obstacle: self.obstacle(primitive, at, *provider),
                cost: self.policy.profile().and_then(|profile| profile.cost(primitive, provider.name())),
            })
            .collect();
        let preset = preset::order(primitive, &self.cpu);
        let place_in_preset = |name: &str| preset.iter().position(|one| *one == name).unwrap_or(usize::MAX);
        // Stable: providers that the table does not name keep the order of the list.
        places.sort_by_key(|place| place_in_preset(place.provider.name()));
        if self.policy.profile().is_some() {
            let prior = places.iter().find(|place| place.obstacle.is_none()).cloned();
            places.sort_by(|left, right| match (left.cost, right.cost) {
                (Some(left), Some(right)) => left.nanoseconds.total_cmp(&right.nanoseconds),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => std::cmp::Ordering::Equal,
            });
            let best = places.iter().find(|place| place.obstacle.is_none()).and_then(|place| place.cost);
            if let (Some(prior), Some(best)) = (prior, best)
                && prior.cost.is_some_and(|cost| cost.nanoseconds <= best.nanoseconds / (1.0 - MARGIN))
            {
                places.sort_by_key(|place| place.provider.name() != prior.provider.name());
            }
        }
        if self.policy.quick_start && primitive.draws_randomness() {
            places.sort_by_key(|place| place.provider.starts_slowly());
        }
        if let Some(named) = self.policy.overrides.get(&primitive) {
            places.sort_by_key(|place| place.provider.name() != named);
        }
        places.sort_by_key(|place| place.obstacle.is_some());
        places
    }

    /// Why the source of a primitive stands first.
    #[must_use]
    pub fn reason(&self, primitive: Primitive) -> Reason {
        if self.policy.overrides.contains_key(&primitive) {
            return Reason::Override;
        }
        match &self.policy.mode {
            Mode::Only(_) => Reason::Only,
            Mode::Fips => Reason::Fips,
            Mode::Measured(profile) if profile.has(primitive) => Reason::Measured,
            Mode::Measured(_) | Mode::Preset => Reason::Preset,
        }
    }

    /// The policy in force: a stale profile was replaced by the preset.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The FIPS module that everything comes from, where the policy is that.
    #[must_use]
    pub fn fips_module(&self) -> Option<provider::Module> {
        self.providers.iter().filter(|_| self.is_fips()).find_map(|provider| provider.module())
    }

    /// Whether anything at all may be computed by this provider. In FIPS mode none but the module computes, not as a witness of
    /// self-tests either: it has its own.
    #[must_use]
    pub fn may_compute(&self, provider: &dyn Provider) -> bool {
        !self.is_fips() || provider.is_fips()
    }

    /// Whether nothing but a FIPS module may serve.
    #[must_use]
    pub fn is_fips(&self) -> bool {
        matches!(self.policy.mode, Mode::Fips)
    }

    /// The CPU it chooses for.
    #[must_use]
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The providers it chooses from.
    #[must_use]
    pub fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }

    /// Calls a function for every incident so far and from now on.
    pub fn on_incident(&self, listener: impl Fn(&Incident) + Send + Sync + 'static) {
        let listener: Listener = Arc::new(listener);
        let kept = {
            let mut incidents = self.incidents.lock();
            incidents.listeners.push(Arc::clone(&listener));
            incidents.kept.clone()
        };
        for incident in &kept {
            listener(incident);
        }
    }

    /// Every incident so far.
    #[must_use]
    pub fn incidents(&self) -> Vec<Incident> {
        self.incidents.lock().kept.clone()
    }

    /// Runs the self-tests of the sources of these primitives now, rather than at their first use.
    ///
    /// # Errors
    /// [`SalError::NoSource`] for the first primitive that no source can serve.
    pub fn prepare(&self, primitives: impl IntoIterator<Item = Primitive>) -> Result<(), SalError> {
        primitives.into_iter().try_for_each(|primitive| self.source(primitive).map(|_| ()))
    }

    #[cold]
    fn seek(&self, primitive: Primitive) -> Result<(usize, &'static dyn Provider), SalError> {
        let seeking = self.seeking.lock();
        loop {
            let ranking = self.ranking(primitive);
            let Some(first) = ranking.iter().find(|place| place.obstacle.is_none()) else {
                let obstacles = ranking
                    .iter()
                    .filter_map(|place| {
                        place
                            .obstacle
                            .as_ref()
                            .map(|obstacle| format!("{}: {obstacle}", place.provider.name()))
                    })
                    .collect();
                return Err(SalError::NoSource { primitive, obstacles });
            };
            let provider = first.provider;
            let Some(at) = self.place_of(provider) else { continue };
            let Some(health) = self.health(primitive, at) else { continue };
            if health.load(Ordering::Acquire) == UNTESTED {
                let witness =
                    |other: &&dyn Provider| other.name() != provider.name() && self.may_compute(*other);
                let mut others: Vec<_> = self.providers.iter().copied().filter(witness).collect();
                // A self-test does not wait for a witness.
                others.sort_by_key(|other| other.starts_slowly());
                match selftest::check(provider, primitive, &others) {
                    Ok(()) => health.store(PASSED, Ordering::Release),
                    Err(reason) => {
                        self.quarantine(primitive, provider, &reason.to_string());
                        continue;
                    }
                }
            }
            if let Some(chosen) = self.chosen.get(primitive.index()) {
                chosen.store(u8::try_from(at).unwrap_or(NOT_CHOSEN), Ordering::Release);
            }
            drop(seeking);
            return Ok((at, provider));
        }
    }

    fn obstacle(&self, primitive: Primitive, at: usize, provider: &'static dyn Provider) -> Option<Obstacle> {
        match provider.offer(primitive) {
            Offer::No => return Some(Obstacle::NotOffered),
            Offer::Unsafe(reason) => return Some(Obstacle::Unsafe(reason)),
            Offer::Yes => {}
        }
        if let Some(missing) = provider.needs().iter().find(|feature| !self.cpu.has(**feature)) {
            return Some(Obstacle::MissingCpuFeature(*missing));
        }
        if self.health(primitive, at).is_some_and(|health| health.load(Ordering::Acquire) == FAILED) {
            let reason = self
                .incidents
                .lock()
                .kept
                .iter()
                .find_map(|incident| incident.quarantine_of(primitive, provider.name()))
                .unwrap_or_default();
            return Some(Obstacle::Quarantined(reason));
        }
        (!self.policy.admits(provider)).then_some(Obstacle::Policy)
    }

    /// Where a provider stands in [`Selection::providers`].
    pub(crate) fn place_of(&self, provider: &'static dyn Provider) -> Option<usize> {
        self.providers.iter().position(|one| one.name() == provider.name())
    }

    fn used_by(&self, primitive: Primitive, provider: &'static dyn Provider) {
        if let Some(at) = self.place_of(provider) {
            self.used(primitive, at);
        }
    }

    fn health(&self, primitive: Primitive, provider: usize) -> Option<&AtomicU8> {
        self.health.get(primitive.index() * provider::MAX + provider)
    }

    fn report(&self, incident: Incident) {
        let listeners = {
            let mut incidents = self.incidents.lock();
            incidents.kept.push(incident.clone());
            incidents.listeners.clone()
        };
        for listener in listeners {
            listener(&incident);
        }
    }

    /// Fills a buffer with random bytes.
    ///
    /// # Errors
    /// [`SalError::NoSource`] when no source has any.
    pub fn random(&self, out: &mut [u8]) -> Result<(), SalError> {
        self.run(Primitive::Random, |provider| provider.random(out))
            .map_err(|error| error.into_sal(|_| SalError::Provider { operation: "give random bytes" }))
    }
}

/// [`Selection::derive_public`] of this process.
pub(crate) fn derive_public(algorithm: KeyAlgorithm, secret: &[u8]) -> Result<Vec<u8>, SalError> {
    global().derive_public(algorithm, secret)
}

/// An operation gave no result.
#[derive(Debug)]
pub enum RunError {
    /// The provider refused the input.
    Refused(&'static str),
    /// No provider is left.
    NoSource(SalError),
}

impl RunError {
    /// Turns a refusal into an error of the caller's choice.
    pub fn into_sal(self, refused: impl FnOnce(&'static str) -> SalError) -> SalError {
        match self {
            Self::Refused(reason) => refused(reason),
            Self::NoSource(error) => error,
        }
    }
}

#[cfg(test)]
mod tests;
