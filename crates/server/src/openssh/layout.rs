//! Where sshd has its files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where sshd has its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// sshd's program.
    pub sshd: PathBuf,
    /// Its main configuration file, which must include `drop_in`.
    pub config: PathBuf,
    /// The file with our settings.
    pub drop_in: PathBuf,
    /// Where the CA keys and revoked keys are put.
    pub directory: PathBuf,
    /// The private host key. Only the file beside it that ends in `.pub` is read.
    pub host_key: PathBuf,
    /// A command for the shell that makes sshd read its configuration again.
    pub reload: String,
    /// Trust the openssh CA alone: then only proxies come in, which record and enforce every option of a role.
    pub proxy_only: bool,
    /// Trust the user CA alone: then a proxy that records comes in with the user's own key.
    #[serde(default)]
    pub user_only: bool,
}

impl Layout {
    pub(super) fn public_key(&self) -> PathBuf {
        with_suffix(&self.host_key, ".pub")
    }

    pub(super) fn host_certificate(&self) -> PathBuf {
        with_suffix(&self.host_key, "-cert.pub")
    }

    pub(super) fn user_cas(&self) -> PathBuf {
        self.directory.join("sallyport_user_cas.pub")
    }

    pub(super) fn revoked(&self) -> PathBuf {
        self.directory.join("sallyport_revoked_keys")
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
