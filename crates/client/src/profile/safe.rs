//! Whether a login's files are the user's alone: with others `ssh` uses no key, and this program no login.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::{TLS_CA, TLS_KEY_DER, TRUST_VERSION};
use crate::error::{Doing, Error, Result};

/// What others may neither read nor write,
const SECRETS: [&str; 5] = ["ssh_key", "tls_key.pem", TLS_KEY_DER, "local_host_key", "db"];
/// and what they may not write: it says whom to trust, and as whom to go where.
const FACTS: [&str; 8] = [
    "",
    "profile.json",
    "trust.json",
    TRUST_VERSION,
    "known_hosts",
    "ssh_key-cert.pub",
    "tls_cert.pem",
    TLS_CA,
];

/// Looks at the files of a login.
///
/// # Errors
/// The first that belongs to another user, or is open to others; with what to do.
pub(super) fn check(directory: &Path) -> Result {
    let secrets = SECRETS.iter().map(|name| (*name, 0o077));
    let facts = FACTS.iter().map(|name| (*name, 0o022));
    let me = rustix::process::geteuid().as_raw();
    for (name, closed) in facts.chain(secrets) {
        // Joined with nothing, it would end with a slash.
        let path = if name.is_empty() { directory.to_owned() } else { directory.join(name) };
        // What a link leads to counts: it is what is read.
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).doing(format!("look at {}", path.display())),
        };
        if metadata.uid() != me && metadata.uid() != 0 {
            return Err(Error::ForeignFile { path, owner: metadata.uid(), directory: directory.to_owned() });
        }
        if metadata.mode() & closed != 0 {
            return Err(Error::OpenFile { path, mode: metadata.mode() & 0o7777, secret: closed != 0o022 });
        }
    }
    Ok(())
}
