//! Accounts of this machine.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User};

use super::error::{AccountError, StartError};

/// An account that sessions can run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its user id.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
    /// Its home directory.
    pub home: PathBuf,
    /// Its shell.
    pub shell: PathBuf,
}

impl Account {
    /// Looks an account up and checks that this process can serve it: root serves every account, any other account
    /// serves itself. Blocks while the system asks its directory services.
    ///
    /// # Errors
    /// [`StartError::NoAccount`], [`StartError::NotRoot`] or [`StartError::Lookup`].
    pub fn find(login: &str) -> Result<Self, StartError> {
        let account = Self::of_system(login)?;
        let own = nix::unistd::geteuid();
        if !own.is_root() && own.as_raw() != account.uid {
            let own = User::from_uid(own).ok().flatten().map_or_else(|| own.to_string(), |user| user.name);
            return Err(StartError::NotRoot { own, login: login.to_owned() });
        }
        Ok(account)
    }

    /// The account that this process runs as.
    ///
    /// # Errors
    /// [`StartError::Lookup`] when the system does not know it.
    pub fn own() -> Result<Self, StartError> {
        let uid = nix::unistd::geteuid();
        match User::from_uid(uid) {
            Ok(Some(user)) => Ok(user.into()),
            Ok(None) => Err(StartError::NoAccount { login: uid.to_string() }),
            Err(error) => Err(StartError::Lookup { login: uid.to_string(), reason: error.desc().to_owned() }),
        }
    }

    fn of_system(login: &str) -> Result<Self, StartError> {
        match User::from_name(login) {
            Ok(Some(user)) => Ok(user.into()),
            Ok(None) => Err(StartError::NoAccount { login: login.to_owned() }),
            Err(error) => {
                Err(StartError::Lookup { login: login.to_owned(), reason: error.desc().to_owned() })
            }
        }
    }

    /// The shell's name as `ps` shows a login shell: `-bash`.
    pub(crate) fn login_name_of_shell(&self) -> String {
        let name = self.shell.file_name().map(|name| name.to_string_lossy().into_owned());
        format!("-{}", name.unwrap_or_else(|| "sh".to_owned()))
    }

    /// Becomes this account for good: groups, group, user. A process that is this account already stays as it is.
    ///
    /// # Errors
    /// [`AccountError`].
    pub(crate) fn become_it(&self) -> Result<(), AccountError> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if nix::unistd::geteuid().is_root() {
            let name = CString::new(self.name.as_str()).map_err(|_| AccountError::Name(self.name.clone()))?;
            let failed = |doing| move |error| AccountError::System { doing, error };
            nix::unistd::initgroups(&name, gid).map_err(failed("set the groups"))?;
            nix::unistd::setgid(gid).map_err(failed("set the group"))?;
            nix::unistd::setuid(uid).map_err(failed("set the user"))?;
        }
        if nix::unistd::getuid() != uid || nix::unistd::geteuid() != uid {
            return Err(AccountError::Fixed(self.name.clone()));
        }
        if !uid.is_root() && nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
            return Err(AccountError::Regained);
        }
        Ok(())
    }

    /// Checks that runuser has made this process the account.
    ///
    /// # Errors
    /// [`AccountError`].
    pub(crate) fn check_it(&self) -> Result<(), AccountError> {
        let users = nix::unistd::getresuid()
            .map_err(|error| AccountError::System { doing: "learn the user", error })?;
        let uid = Uid::from_raw(self.uid);
        if [users.real, users.effective, users.saved].iter().all(|user| *user == uid) {
            return Ok(());
        }
        Err(AccountError::Other(self.name.clone()))
    }
}

impl From<User> for Account {
    fn from(user: User) -> Self {
        // passwd(5): an empty shell means the Bourne shell.
        let shell = if user.shell.as_os_str().is_empty() { Path::new("/bin/sh").into() } else { user.shell };
        Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw(), home: user.dir, shell }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_and_strangers_are_not() {
        let own = Account::own().unwrap();
        assert_eq!(Account::find(&own.name).unwrap(), own);
        let refused = Account::find("no-such-login-here").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "this machine has no account no-such-login-here; ask its administrator, or use another login"
        );
        assert!(own.login_name_of_shell().starts_with('-'));
    }

    #[test]
    fn becoming_oneself_changes_nothing() {
        // Becoming another account would take the whole test process along; tests/account.rs does that in a child.
        Account::own().unwrap().become_it().unwrap();
    }
}
