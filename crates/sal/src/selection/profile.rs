//! What each source costs on this machine, measured and saved.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::Primitive;
use crate::cpu::Cpu;

/// What an operation costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The least time of all passes, in nanoseconds: what the operation takes when nothing disturbs it.
    pub nanoseconds: f64,
    /// The median of the passes, in nanoseconds.
    pub median: f64,
}

/// The costs of every primitive by every provider, with the machine they were measured on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Layout of the file; see [`Profile::LAYOUT`].
    pub layout: u32,
    /// Version of this crate.
    pub version: String,
    /// The machine, as [`Cpu::fingerprint`] tells it.
    pub cpu: String,
    /// When it was measured.
    #[serde(with = "time::serde::rfc3339")]
    pub measured: OffsetDateTime,
    /// Names and versions of the libraries.
    pub sources: Vec<String>,
    /// Costs by primitive and provider.
    pub costs: BTreeMap<Primitive, BTreeMap<String, Cost>>,
}

/// A profile could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read or written.
    #[error("cannot {action} the profile {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a profile.
    #[error("{path} is not a profile: {reason}; run `sallyport sal tune` again")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Profile {
    /// The layout that this build writes.
    pub const LAYOUT: u32 = 1;

    /// An empty profile of this build and machine.
    #[must_use]
    pub fn new(cpu: &Cpu, measured: OffsetDateTime) -> Self {
        Self {
            layout: Self::LAYOUT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: cpu.fingerprint(),
            measured,
            sources: credits(),
            costs: BTreeMap::new(),
        }
    }

    /// The cost of a primitive by a provider.
    #[must_use]
    pub fn cost(&self, primitive: Primitive, provider: &str) -> Option<Cost> {
        self.costs.get(&primitive)?.get(provider).copied()
    }

    /// Whether anything was measured for a primitive.
    #[must_use]
    pub fn has(&self, primitive: Primitive) -> bool {
        self.costs.get(&primitive).is_some_and(|costs| !costs.is_empty())
    }

    /// Why it says nothing about this build on this machine; none when it does.
    #[must_use]
    pub fn stale(&self, cpu: &Cpu) -> Option<String> {
        if self.layout != Self::LAYOUT {
            return Some(format!("its layout is {}, this build reads {}", self.layout, Self::LAYOUT));
        }
        if self.version != env!("CARGO_PKG_VERSION") || self.sources != credits() {
            return Some("it was measured with other versions of the libraries".to_owned());
        }
        (self.cpu != cpu.fingerprint()).then(|| "it was measured on another CPU".to_owned())
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| ProfileError::File {
            action: "read",
            path: shown.clone(),
            source,
        })?;
        serde_json::from_str(&text)
            .map_err(|error| ProfileError::Malformed { path: shown, reason: error.to_string() })
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// [`ProfileError::File`].
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let shown = path.display().to_string();
        let failed = |action| {
            let path = shown.clone();
            move |source| ProfileError::File { action, path, source }
        };
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(failed("create the directory of"))?;
        }
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| ProfileError::Malformed { path: shown.clone(), reason: error.to_string() })?;
        text.push('\n');
        let temporary = path.with_extension(format!("tmp{}", std::process::id()));
        let written = fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed("write"))
    }
}

fn credits() -> Vec<String> {
    crate::provider::ALL.iter().map(|provider| provider.credit().to_owned()).collect()
}
