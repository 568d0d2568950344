//! The program that session processes run.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::helper;

/// The program that becomes the account; see [`crate::helper`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// The program. Default: this one.
    pub program: PathBuf,
    /// Its arguments, to which the command is appended. Default: `__session`.
    pub arguments: Vec<OsString>,
}

impl Default for Helper {
    fn default() -> Self {
        // The link of the running file, not its path: it holds while an upgrade replaces the file.
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![helper::ARGUMENT.into()] }
    }
}
