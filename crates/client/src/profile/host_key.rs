//! The key by which the helper daemon proves itself to `ssh` where it ends SSH: it is made once for a login's directory,
//! lies beside the user's own keys, and `known_hosts` has it for the names of the cluster's nodes.
//!
//! A program that reads it can read the user's keys as well; with it alone, an attacker between this user's `ssh`
//! and a node could pass for the node. It never leaves the machine, and nothing but this user's `ssh` believes it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use sallyport_ca::keys::SshKeyPair;
use sallyport_sal::KeyPurpose;
use sallyport_sal::suite::Suite;
use zeroize::Zeroizing;

use crate::error::{Doing, Result};

const FILE: &str = "local_host_key";

/// The key of a directory; made where there is none. The suite says what it is; one that is there stays as it is.
pub(super) fn host_key(directory: &Path, suite: Suite) -> Result<SshKeyPair> {
    let path = directory.join(FILE);
    let read = || -> io::Result<Zeroizing<String>> { fs::read_to_string(&path).map(Zeroizing::new) };
    let understand = |text: &str| SshKeyPair::from_openssh(text).doing(format!("use {}", path.display()));
    if let Ok(text) = read() {
        return understand(&text);
    }
    let key = SshKeyPair::generate_for(suite, KeyPurpose::HostSsh, "sallyport on this machine")
        .doing("make a host key")?;
    // Of mode 0600, and whole before it has its name.
    let mut own = tempfile::Builder::new()
        .prefix(".local_host_key.")
        .tempfile_in(directory)
        .doing(format!("write into {}", directory.display()))?;
    own.write_all(key.private_openssh().as_bytes())
        .and_then(|()| own.as_file().sync_data())
        .doing(format!("write {}", path.display()))?;
    // Several programs may be here at once; all use the first one's.
    match own.persist_noclobber(&path) {
        Ok(_) => Ok(key),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
            understand(&read().doing(format!("read {}", path.display()))?)
        }
        // Not every file system has links. All use the last one's then.
        Err(failed) => {
            failed
                .file
                .persist(&path)
                .map_err(|failed| failed.error)
                .doing(format!("write {}", path.display()))?;
            Ok(key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let made = || host_key(directory.path(), Suite::BalancedV1).unwrap().public_line().to_owned();
        let lines: Vec<String> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(made)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
        let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }
}
