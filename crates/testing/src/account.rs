//! Who runs a server where we are root.

use std::path::Path;
use std::process::Command;

use crate::{AtFile, TestbedError};

/// Who runs a program that root had better not run.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// An account without rights, the first of these that the system knows, where we are root; our own otherwise.
    pub fn unprivileged(program: &str, names: &[&str]) -> Result<Option<Self>, TestbedError> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        let found = names.iter().find_map(|name| nix::unistd::User::from_name(name).ok().flatten());
        found.map(|user| Some(Self { user: user.uid.as_raw(), group: user.gid.as_raw() })).ok_or_else(|| {
            TestbedError::Failed {
                what: format!("finding an account for {program}, which root must not run"),
                said: format!("there is no account {}", names.join(" or ")),
            }
        })
    }

    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.user
    }

    /// Gives a file or directory away.
    pub fn owns(self, path: &Path) -> Result<(), TestbedError> {
        std::os::unix::fs::chown(path, Some(self.user), Some(self.group)).at("give away", path)
    }

    /// Has a program run by it, where there is one.
    pub fn runs(account: Option<Self>, mut command: Command) -> Command {
        use std::os::unix::process::CommandExt;
        if let Some(account) = account {
            command.uid(account.user).gid(account.group);
        }
        command
    }

    /// Says so when it cannot enter the directory for temporary files, where a program's own directory will be.
    pub fn enters_temporary(account: Option<Self>, program: &str) -> Result<(), TestbedError> {
        let temporary = std::env::temp_dir();
        if account.is_none() || passable(&temporary) {
            return Ok(());
        }
        Err(TestbedError::Failed {
            what: format!("starting {program}, which root must not run"),
            said: format!(
                "the account that runs it cannot enter {}; set TMPDIR to a directory that all accounts can enter",
                temporary.display()
            ),
        })
    }
}

/// Whether others may pass through a directory: the account that runs the server has to.
fn passable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.ancestors()
        .all(|part| std::fs::metadata(part).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0))
}
