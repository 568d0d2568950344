//! What an authority is configured with.

use std::path::{Path, PathBuf};

use sallyport_access::ClusterName;
use sallyport_ca::Lifetimes;
use sallyport_sal::Suite;

use crate::config::{AuditSection, AuthenticationSection, CaKeysSection, SecondFactor};
use crate::files::Apart;

/// What an authority needs to know.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// Name of the installation.
    pub cluster: ClusterName,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Whether every user must have a second factor.
    pub second_factor: SecondFactor,
    /// `host:port` for invite links; may be empty.
    pub public_addr: String,
    /// The suite that a new cluster is made with; unset: `balanced-v1`, `hsm-v1` where CA keys are made in a token,
    /// `fips-v1` in FIPS mode. A cluster that is there keeps its own.
    pub suite: Option<Suite>,
    /// Where CA keys are made.
    pub ca_keys: CaKeysSection,
    /// How long what is issued may live.
    pub lifetimes: Lifetimes,
    /// Bounds of the audit log, and where its checkpoints go.
    pub audit: AuditSection,
    /// How people prove who they are.
    pub authentication: AuthenticationSection,
    /// How long an answer may wait for a caller who takes nothing of it, before the connection is closed.
    pub answer_patience: std::time::Duration,
    /// What is read for no document of an administrator's.
    pub(crate) apart: Apart,
    /// Only hosts and clients are taken that say that they take all cryptography from a FIPS module.
    pub require_fips: bool,
}

impl AuthConfig {
    /// What an authority reads for no document: what is in its directory, and these secrets of its configuration. The key that seals the state
    /// is known by itself, too, so that another link to it is no way around the directory.
    pub(crate) fn apart(data_dir: &Path, mut secrets: Vec<PathBuf>) -> Apart {
        secrets.push(data_dir.join("auth/seal.key"));
        Apart { directory: data_dir.to_owned(), files: secrets }
    }
}

#[cfg(test)]
impl AuthConfig {
    /// That of tests: the defaults, where no user must have a second factor.
    pub(crate) fn of_tests(data_dir: PathBuf) -> Self {
        let section = crate::config::AuthSection::default();
        Self {
            cluster: ClusterName::new("test.example").unwrap(),
            apart: Self::apart(&data_dir, Vec::new()),
            data_dir,
            second_factor: SecondFactor::Optional,
            public_addr: String::new(),
            suite: None,
            ca_keys: section.ca_keys,
            lifetimes: section.lifetimes,
            audit: section.audit,
            authentication: section.authentication,
            answer_patience: section.answer_patience,
            require_fips: false,
        }
    }
}
