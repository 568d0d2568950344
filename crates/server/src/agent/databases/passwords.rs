//! Passwords for databases that take no certificate, from a file in the format of libpq's password file (PostgreSQL 17
//! documentation, chapter 32.16).

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::ServerError;
use crate::files;

/// The file. It is read whenever a password is needed: passwords change.
#[derive(Debug, Clone)]
pub(crate) struct PasswordFile(PathBuf);

impl PasswordFile {
    /// The file, which must be there and private.
    ///
    /// # Errors
    /// When it cannot be read, or others may read it.
    pub(crate) fn open(path: &Path) -> Result<Self, ServerError> {
        let file = Self(path.to_owned());
        match file.read()? {
            Some(_) => Ok(file),
            None => Err(ServerError::File {
                action: "read",
                path: path.to_owned(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
            }),
        }
    }

    fn read(&self) -> Result<Option<Zeroizing<Vec<u8>>>, ServerError> {
        files::read_private(&self.0).map(|bytes| bytes.map(Zeroizing::new))
    }

    /// The password of a user at an address (`host:port`), for one of its databases. The first line that fits counts.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn find(
        &self,
        address: &str,
        db_name: &str,
        user: &str,
    ) -> Result<Option<Zeroizing<String>>, ServerError> {
        let bytes = self.read()?.unwrap_or_default();
        Ok(std::str::from_utf8(&bytes).ok().and_then(|text| search(text, address, db_name, user)))
    }
}

fn search(text: &str, address: &str, db_name: &str, user: &str) -> Option<Zeroizing<String>> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line.trim_end_matches('\r');
        for wanted in [host, port, db_name, user] {
            let (field, after) = field(rest)?;
            if *field != "*" && *field != wanted {
                return None;
            }
            rest = after?;
        }
        field(rest).map(|(password, _)| password)
    })
}

/// The field at the beginning without its escapes, and what follows the colon behind it.
fn field(text: &str) -> Option<(Zeroizing<String>, Option<&str>)> {
    let mut field = Zeroizing::new(String::with_capacity(text.len()));
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => field.push(characters.next().map_or('\\', |(_, escaped)| escaped)),
            ':' => return Some((field, text.get(index + 1..))),
            other => field.push(other),
        }
    }
    Some((field, None))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# a comment\n\
                    other:5432:*:app:wrong\n\
                    db.internal:5432:shop:app:se\\:cr\\\\et\n\
                    db.internal:*:*:app:general\n\
                    ::1:5433:*:v6:six\n\
                    broken line\n";
        let find = |address, name, user| search(text, address, name, user).map(|found| found.to_string());
        assert_eq!(find("db.internal:5432", "shop", "app").as_deref(), Some("se:cr\\et"));
        assert_eq!(find("db.internal:5433", "shop", "app").as_deref(), Some("general"));
        assert_eq!(find("db.internal:5432", "shop", "eve"), None);
        assert_eq!(find("nowhere:5432", "shop", "app"), None);
        // In the file, a colon in an address is escaped like any other.
        let escaped = "\\:\\:1:5433:*:v6:six\n";
        assert_eq!(search(escaped, "[::1]:5433", "x", "v6").unwrap().as_str(), "six");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        assert!(PasswordFile::open(&path).is_err());
        std::fs::write(&path, "*:*:*:app:secret\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(PasswordFile::open(&path).unwrap_err().to_string().contains("pgpass"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = PasswordFile::open(&path).unwrap();
        assert_eq!(file.find("a:1", "x", "app").unwrap().unwrap().as_str(), "secret");
    }
}
