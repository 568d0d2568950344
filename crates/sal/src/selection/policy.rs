//! How sources are chosen.

use std::collections::BTreeMap;

use super::Profile;
use crate::Primitive;
use crate::provider::{self, Provider};

/// How sources are chosen. The default is the preset without overrides.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The rule for every primitive.
    pub mode: Mode,
    /// Primitives for which the configuration names a provider.
    pub overrides: BTreeMap<Primitive, String>,
    /// For commands that are over in a moment: sources whose first random number takes tens of milliseconds come after
    /// the others wherever randomness is drawn. Services warm up instead.
    pub quick_start: bool,
}

/// The rule for every primitive.
#[derive(Debug, Clone, Default)]
pub enum Mode {
    /// The fastest on this machine, by a saved profile.
    Measured(Profile),
    /// The built-in table.
    #[default]
    Preset,
    /// One provider and no other: what it lacks is not to be had.
    Only(String),
    /// What a module validated under FIPS 140-3 offers, and nothing else.
    Fips,
}

/// A policy that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is no such provider in this build.
    #[error("unknown provider {got:?}; this build has {known}")]
    UnknownProvider {
        /// The name given.
        got: String,
        /// The names that would do.
        known: String,
    },
    /// An override names a provider that does not offer the primitive, or warns of it.
    #[error("{provider} cannot serve {primitive}: {reason}")]
    NotOffered {
        /// The provider.
        provider: String,
        /// The primitive.
        primitive: Primitive,
        /// What stands against it.
        reason: String,
    },
    /// FIPS was asked of a build that has no such module.
    #[error("this build has no FIPS module: build it with `--features fips`")]
    NoFipsModule,
}

impl Policy {
    /// Checks that every name is that of a provider which can do what is asked of it.
    ///
    /// # Errors
    /// Every [`PolicyError`] at once.
    pub fn check(&self) -> Result<(), Vec<PolicyError>> {
        let mut errors = Vec::new();
        let mut named = |name: &str| {
            let found = provider::by_name(name);
            if found.is_none() {
                errors.push(PolicyError::UnknownProvider {
                    got: name.to_owned(),
                    known: provider::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "),
                });
            }
            found
        };
        if let Mode::Only(name) = &self.mode {
            named(name);
        }
        let mut unfit = Vec::new();
        for (primitive, name) in &self.overrides {
            let reason = match named(name).map(|provider| provider.offer(*primitive)) {
                Some(provider::Offer::No) => "it does not offer it",
                Some(provider::Offer::Unsafe(reason)) => reason,
                Some(provider::Offer::Yes) | None => continue,
            };
            unfit.push(PolicyError::NotOffered {
                provider: name.clone(),
                primitive: *primitive,
                reason: reason.to_owned(),
            });
        }
        errors.extend(unfit);
        if matches!(self.mode, Mode::Fips) && !provider::ALL.iter().any(|provider| provider.is_fips()) {
            errors.push(PolicyError::NoFipsModule);
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    pub(super) fn profile(&self) -> Option<&Profile> {
        match &self.mode {
            Mode::Measured(profile) => Some(profile),
            _ => None,
        }
    }

    pub(super) fn admits(&self, provider: &dyn Provider) -> bool {
        match &self.mode {
            Mode::Only(name) => provider.name() == name,
            Mode::Fips => provider.is_fips(),
            Mode::Measured(_) | Mode::Preset => true,
        }
    }
}
