//! What the node tells a session process: by its arguments, by a variable, and by the signals that a keeper takes as orders.

use std::io;
use std::path::Path;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::pam;

/// The argument that makes a `sallyport` process a session process.
pub const ARGUMENT: &str = "__session";
/// The variable that says which session.
pub(crate) const SPEC: &str = "SALLYPORT_SESSION_SPEC";
/// What it says to a process that has to wait for its session ([`crate::session::Ready`]).
pub(crate) const WAIT: &str = "wait";
/// Exit status of a session process that could not become what it should; sshd's as well.
pub(super) const FAILED: u8 = 255;
/// The file that closes the machine to all but root.
pub(super) const NOLOGIN: &str = "/etc/nologin";

/// The session is over, whether its process has ended or not. No other program has a use for this signal.
pub(crate) const OVER: Signal = Signal::POWER;
/// Kill the session's process and its group. The keeper could not read the signal that does that.
pub(crate) const KILL: Signal = Signal::XFSZ;

/// What the node tells the session process. The command line, which need not be text, is an argument instead.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) login: String,
    pub(crate) work: Work,
    pub(crate) terminal: bool,
    pub(crate) environment: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) hash_files: bool,
    /// A keeper stands above the session, for the node's process of this number ([`super::keeper`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keeper_for: Option<u32>,
    /// The keeper has a session of PAM's opened first ([`super::pam_session`]), and gets the session's ends by its standard input.
    #[serde(default)]
    pub(crate) pam_session: bool,
    /// The keeper lets what the session leaves running go on.
    #[serde(default)]
    pub(crate) spares_orphans: bool,
    /// For [`Work::Account`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pam: Option<pam::Question>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    Shell,
    Exec,
    Sftp,
    /// Ask PAM whether the account may be used, and say why not.
    Account,
    /// Connect to the Unix socket that the argument names, and hand it over; see [`crate::session::socket`].
    Connect,
    /// Listen on a Unix socket there, hand it over, and remove it when the node is done with it.
    Listen,
}

impl Spec {
    pub(crate) fn to_text(&self) -> String {
        // Strings and booleans always become JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why the machine takes no logins at the moment.
pub(super) fn closed_to_logins(file: &Path) -> Option<String> {
    let text = match std::fs::read(file) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => String::new(),
    };
    if text.is_empty() {
        return Some(format!("this machine takes no logins at the moment ({NOLOGIN})\n"));
    }
    Some(text)
}
