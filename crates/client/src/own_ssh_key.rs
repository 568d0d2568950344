//! An SSH key of the user's own, which a login has certified in place of a fresh one: `sallyport login --ssh-key FILE`.
//!
//! The public key alone is read. The private key may be in a security key, in an agent, or in a file behind a passphrase, and stays there.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sallyport_access::text;
use sallyport_ca::keys;

use crate::error::{Error, Result};
use crate::no_public_key::{MOST_BYTES, NoPublicKey};

/// What files of public keys end with.
const PUBLIC: &str = ".pub";
/// A public key that the user has named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSshKey {
    file: PathBuf,
    public_line: String,
}

impl OwnSshKey {
    /// Reads the public key in a file, or the one beside a private key.
    ///
    /// # Errors
    /// [`Error::NoPublicKey`].
    pub fn read(named: &Path) -> Result<Self> {
        let no_key = |why| Error::NoPublicKey { file: named.to_owned(), why };
        let absolute = std::path::absolute(named).map_err(|_| no_key(NoPublicKey::Missing))?;
        let name =
            absolute.to_str().filter(|name| text::check("its name", name).is_ok() && !is_expanded(name));
        let name = name.ok_or_else(|| no_key(NoPublicKey::Name))?;
        let beside = PathBuf::from(format!("{name}{PUBLIC}"));
        let file = if !name.ends_with(PUBLIC) && beside.is_file() { beside } else { absolute };
        let public_line = public_line(&file).map_err(no_key)?;
        Ok(Self { file, public_line })
    }

    /// The file of the public key, from the root of the file system on.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The key as a line, without its comment.
    #[must_use]
    pub fn public_line(&self) -> &str {
        &self.public_line
    }
}

/// Whether ssh takes a part of a file's name for a variable of its environment (ssh_config(5)), which nothing quotes.
#[must_use]
pub fn is_expanded(name: &str) -> bool {
    name.contains("${")
}

/// The SSH key of a stored login that is the user's own.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CertifiedKey {
    /// Its file, as ssh takes it.
    pub file: PathBuf,
    /// Its type, such as `sk-ssh-ed25519@openssh.com`.
    #[serde(rename = "type")]
    pub kind: String,
    /// As `ssh-keygen -l` shows it.
    pub fingerprint: String,
}

impl fmt::Display for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {}), which is yours", self.file.display(), self.kind, self.fingerprint)
    }
}

/// What `ssh` and `ssh-add` are told of a public key: the private key beside it, or, where there is none, itself, for a key that is in an agent.
#[must_use]
pub fn for_ssh(public: &Path) -> PathBuf {
    let private = public.to_str().and_then(|name| name.strip_suffix(PUBLIC)).map(PathBuf::from);
    private.filter(|private| private.is_file()).unwrap_or_else(|| public.to_owned())
}

fn public_line(file: &Path) -> Result<String, NoPublicKey> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => NoPublicKey::Missing,
        _ => NoPublicKey::Unreadable(error.to_string()),
    };
    // Who opens a pipe waits for its other end.
    if !std::fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(NoPublicKey::NoFile);
    }
    let mut bytes = Vec::new();
    File::open(file).map_err(unreadable)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MOST_BYTES {
        return Err(NoPublicKey::TooLong);
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(NoPublicKey::Unsupported("it is not text, as public keys of SSH are".to_owned()));
    };
    let text = text.trim();
    if text.starts_with("-----BEGIN") && text.contains("PRIVATE KEY") {
        return Err(NoPublicKey::Private);
    }
    if text.split_whitespace().next().is_some_and(|kind| kind.contains("-cert-v0")) {
        return Err(NoPublicKey::Certificate);
    }
    if text.lines().count() > 1 {
        return Err(NoPublicKey::SeveralLines);
    }
    keys::public_line(text).map_err(|error| NoPublicKey::Unsupported(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;

    use sallyport_ca::keys::SshKeyPair;
    use sallyport_sal::Suite;

    use super::*;
    use crate::error::Kind;

    const SECURITY_KEY: &str = "sk-ssh-ed25519@openssh.com \
        AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABHNzaDo=";

    fn why(named: &Path) -> NoPublicKey {
        let error = OwnSshKey::read(named).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        let Error::NoPublicKey { why, .. } = error else { panic!("{error:?}") };
        why
    }

    #[test]
    fn a_public_key_is_read_without_its_comment() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let pair = SshKeyPair::generate(Suite::BalancedV1, "").unwrap();
        let line = pair.public_line().trim();
        fs::write(at("id.pub"), format!("{line} alice@laptop, where else\n")).unwrap();
        fs::write(at("key.txt"), line).unwrap();
        fs::write(at("id_sk.pub"), format!("{SECURITY_KEY} alice\n")).unwrap();
        // By the private key's name: whether that is there, and what is in it, is not looked at.
        for named in ["id.pub", "id"] {
            let key = OwnSshKey::read(&at(named)).unwrap();
            assert_eq!((key.public_line(), key.file()), (line, at("id.pub").as_path()), "{named}");
        }
        assert_eq!(OwnSshKey::read(&at("key.txt")).unwrap().public_line(), line);
        assert_eq!(OwnSshKey::read(&at("id_sk")).unwrap().public_line(), SECURITY_KEY);
        // ssh is told of the private key where there is one.
        assert_eq!(for_ssh(&at("id.pub")), at("id.pub"));
        fs::write(at("id"), "in a security key").unwrap();
        assert_eq!(for_ssh(&at("id.pub")), at("id"));
        assert_eq!(for_ssh(&at("key.txt")), at("key.txt"));
    }

    #[test]
    fn what_is_no_public_key_is_refused_and_said() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let pair = SshKeyPair::generate(Suite::BalancedV1, "alice").unwrap();
        let line = pair.public_line();
        let private = pair.private_openssh();
        let certificate = format!("ssh-ed25519-cert-v01@openssh.com {}", line.split_once(' ').unwrap().1);
        for (content, expected) in [
            (private.as_str(), NoPublicKey::Private),
            (&certificate, NoPublicKey::Certificate),
            (&format!("{line}\n{line}\n"), NoPublicKey::SeveralLines),
            (&format!("{line} {}", "x".repeat(20_000)), NoPublicKey::TooLong),
        ] {
            fs::write(at("id"), content).unwrap();
            assert_eq!(why(&at("id")), expected);
        }
        for content in ["", "hello", "ssh-dss AAAAB3NzaC1kc3M= old", &format!("restrict {line}")] {
            fs::write(at("id"), content).unwrap();
            assert!(matches!(why(&at("id")), NoPublicKey::Unsupported(_)), "{content}");
        }
        fs::write(at("id"), [0xff, 0xfe]).unwrap();
        assert!(matches!(why(&at("id")), NoPublicKey::Unsupported(_)));
        assert_eq!(why(&at("nothing")), NoPublicKey::Missing);
        assert_eq!(why(&at("nothing.pub")), NoPublicKey::Missing);
        assert_eq!(why(directory.path()), NoPublicKey::NoFile);
        assert_eq!(why(&at("a\nb.pub")), NoPublicKey::Name);
        assert_eq!(why(&at("${HOME}.pub")), NoPublicKey::Name);
    }
}
