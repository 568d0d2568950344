//! Whether the machine's shadow file has closed an account (shadow(5)), where PAM is not asked: as sshd looks without PAM
//! (`allowed_user` in its auth.c).

use std::io;
use std::path::{Path, PathBuf};

use time::{Date, Duration, OffsetDateTime};
use zeroize::Zeroizing;

use super::error::ClosedAccount;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowFile {
    /// The file. Default: `/etc/shadow`.
    pub path: PathBuf,
    /// Whether a locked password (`!` in front of it) closes the account for certificates, too. sshd without PAM has it so; with
    /// PAM, as distributions set it up, it does not, and neither does passwd(1) say so of `passwd -l`. Default: no.
    pub refuse_locked: bool,
}

impl Default for ShadowFile {
    fn default() -> Self {
        Self { path: "/etc/shadow".into(), refuse_locked: false }
    }
}

impl ShadowFile {
    /// Refuses an account that has expired, or that is locked where that counts. Blocks. An account that the file does not have
    /// is a directory service's, and a process that may not read it is not root and serves its own account.
    ///
    /// # Errors
    /// Why the account is refused, for the person.
    pub(crate) fn admit(&self, login: &str, now: OffsetDateTime) -> Result<(), ClosedAccount> {
        let text = match read(&self.path) {
            Ok(text) => text,
            Err(error) => {
                tracing::debug!(%error, path = %self.path.display(), "the shadow file is not looked at");
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&text);
        let entry = text.lines().map(|line| line.split(':')).find_map(|mut fields| {
            (fields.next() == Some(login)).then(|| (fields.next().unwrap_or_default(), fields.nth(5)))
        });
        let Some((password, expires)) = entry else { return Ok(()) };
        if self.refuse_locked && password.starts_with('!') {
            return Err(ClosedAccount::Locked { login: login.to_owned() });
        }
        let expires = match expires.unwrap_or_default() {
            "" => return Ok(()),
            days => match days.parse::<i64>() {
                Ok(-1) => return Ok(()),
                Ok(days) => days,
                Err(_) => {
                    // The system's own reader passes over such a line.
                    tracing::warn!(login, path = %self.path.display(), "the day of an account's expiry is no number");
                    return Ok(());
                }
            },
        };
        if expires >= now.unix_timestamp().div_euclid(86_400) {
            return Ok(());
        }
        Err(ClosedAccount::Expired { login: login.to_owned(), day: day(expires) })
    }
}

/// The file has everybody's password hashes.
fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    std::fs::read(path).map(Zeroizing::new)
}

fn day(days: i64) -> Option<Date> {
    OffsetDateTime::UNIX_EPOCH.date().checked_add(Duration::days(days.clamp(0, 10_000_000)))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn accounts_that_have_expired_are_refused_and_locked_ones_where_that_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shadow");
        // 2026-03-01 is day 20513.
        let file = "never:$6$x:20000:0:99999:7:::\nminus:*:20000:0:99999:7::-1:\ntoday:*:1::::1:20513:\n\
                    yesterday:*:1:::::20512:\nzero:*:1:::::0:\nlocked:!$6$x:1::::::\nfresh:!:1::::::\nold:*:1:::::x:\n\
                    short:*\nmust-change:$6$x:0:0:1:7:::\n";
        std::fs::write(&path, file).unwrap();
        let now = datetime!(2026-03-01 12:00:00 UTC);
        let admit =
            |login: &str, refuse_locked| ShadowFile { path: path.clone(), refuse_locked }.admit(login, now);
        for fine in [
            "never",
            "minus",
            "today",
            "locked",
            "fresh",
            "old",
            "short",
            "must-change",
            "elsewhere",
            "yester",
        ] {
            assert_eq!(admit(fine, false), Ok(()), "{fine}");
        }
        for (gone, day) in [("yesterday", "2026-02-28"), ("zero", "1970-01-01")] {
            let refused = admit(gone, false).unwrap_err().to_string();
            assert!(refused.contains(&format!("{gone}: it has expired ({day})")), "{refused}");
        }
        for locked in ["locked", "fresh"] {
            let refused = admit(locked, true).unwrap_err().to_string();
            assert!(refused.contains("its password is locked"), "{refused}");
        }
        assert_eq!(admit("minus", true), Ok(()));
        let nowhere = ShadowFile { path: directory.path().join("none"), refuse_locked: true };
        assert_eq!(nowhere.admit("locked", now), Ok(()));
    }
}
