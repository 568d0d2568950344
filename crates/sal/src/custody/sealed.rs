//! Custody in files.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::{Custody, StoredKey, secret_file};
use crate::aead::{Aes256GcmKey, KEY_BYTES};
use crate::{KeyAlgorithm, KeyPurpose, MemoryKey, SalError, Signer, random, selection};

/// Custody in files: each key is sealed under one [`SealingKey`].
#[derive(Debug, Clone)]
pub struct SealedCustody {
    key: Arc<SealingKey>,
}

impl SealedCustody {
    const NAME: &'static str = "sealed";

    /// Keeps keys sealed under this key.
    #[must_use]
    pub fn new(key: Arc<SealingKey>) -> Self {
        Self { key }
    }

    fn context(label: &str, algorithm: KeyAlgorithm) -> String {
        format!("private key {algorithm} {label}")
    }
}

impl Custody for SealedCustody {
    fn generate_for(
        &self,
        purpose: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError> {
        let key = MemoryKey::generate_counted(selection::global(), purpose, algorithm)?;
        let sealed = self.key.seal(&Self::context(label, algorithm), &key.to_pkcs8()?)?;
        Ok(StoredKey {
            custody: Self::NAME.to_owned(),
            label: label.to_owned(),
            algorithm,
            public_key: data_encoding::BASE64.encode(&key.public_key().spki_der()),
            handle: data_encoding::BASE64.encode(&sealed),
        })
    }

    fn load(&self, stored: &StoredKey) -> Result<Arc<dyn Signer>, SalError> {
        if stored.custody != Self::NAME {
            return Err(SalError::WrongCustody {
                label: stored.label.clone(),
                got: stored.custody.clone(),
                expected: Self::NAME,
            });
        }
        let damaged = || SalError::Undecryptable { what: format!("the private key {:?}", stored.label) };
        let sealed = data_encoding::BASE64.decode(stored.handle.as_bytes()).map_err(|_| damaged())?;
        let pkcs8 = self
            .key
            .unseal(&Self::context(&stored.label, stored.algorithm), &sealed)
            .map_err(|_| damaged())?;
        let key = MemoryKey::from_pkcs8(&pkcs8)?;
        // The public half is stored in the clear: it must be the one that was sealed.
        if key.public_key() != stored.public_key()? {
            return Err(damaged());
        }
        Ok(Arc::new(key))
    }
}

/// The key that all secrets at rest are sealed under.
pub struct SealingKey {
    key: Aes256GcmKey,
}

impl SealingKey {
    /// Length of the file, in bytes.
    pub const FILE_BYTES: u64 = KEY_BYTES as u64;

    /// Makes a key and writes it to a new file of mode 0600, durably: the file and its directory are synced before
    /// this returns, so that nothing is ever sealed under a key that a power cut can take away.
    ///
    /// # Errors
    /// [`SalError::SealingKeyExists`] when the file exists, [`SalError::File`] when it cannot be written.
    pub fn create(path: &Path) -> Result<Self, SalError> {
        let failed = |action| move |source| SalError::File { action, path: path.to_owned(), source };
        let bytes = Zeroizing::new(random::bytes::<KEY_BYTES>()?);
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(SalError::SealingKeyExists { path: path.to_owned() });
            }
            Err(error) => return Err(failed("create")(error)),
        };
        file.write_all(bytes.as_ref()).and_then(|()| file.sync_all()).map_err(failed("write"))?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("sync the directory of"))?;
        Ok(Self { key: Aes256GcmKey::new(&bytes)? })
    }

    /// Reads the key from its file, after checking that the file is a regular one, ours, and closed to every other account.
    ///
    /// # Errors
    /// [`SalError::NoSealingKey`], [`SalError::NotAFile`], [`SalError::WrongOwner`], [`SalError::LooseMode`],
    /// [`SalError::TruncatedKey`] or [`SalError::File`]; each says what to do.
    pub fn open(path: &Path) -> Result<Self, SalError> {
        let failed = |action| move |source| SalError::File { action, path: path.to_owned(), source };
        let (mut file, length) = match secret_file::open(path) {
            Err(SalError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(SalError::NoSealingKey { path: path.to_owned() });
            }
            opened => opened?,
        };
        let truncated =
            |got| SalError::TruncatedKey { path: path.to_owned(), got, expected: Self::FILE_BYTES };
        if length != Self::FILE_BYTES {
            return Err(truncated(length));
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        match file.read_exact(bytes.as_mut()) {
            Ok(()) => Ok(Self { key: Aes256GcmKey::new(&bytes)? }),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(truncated(0)),
            Err(error) => Err(failed("read")(error)),
        }
    }

    /// [`SealingKey::open`], or [`SealingKey::create`] when there is no file yet. For the first start only: once
    /// anything is sealed, a missing key is a disaster and not a reason to make another.
    ///
    /// # Errors
    /// As those two.
    pub fn open_or_create(path: &Path) -> Result<Self, SalError> {
        match Self::open(path) {
            Err(SalError::NoSealingKey { .. }) => Self::create(path),
            other => other,
        }
    }

    /// Encrypts a secret. `context` says what it is, and must be the same when it is opened: a sealed one-time-password
    /// secret cannot be put in the place of another user's, or of a private key.
    ///
    /// # Errors
    /// [`SalError::Provider`] when there is no randomness.
    pub fn seal(&self, context: &str, secret: &[u8]) -> Result<Vec<u8>, SalError> {
        self.key.seal(context.as_bytes(), secret)
    }

    /// Decrypts what [`SealingKey::seal`] made.
    ///
    /// # Errors
    /// [`SalError::Undecryptable`] when it was damaged, or sealed under another key or context.
    pub fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SalError> {
        self.key
            .open(context.as_bytes(), sealed)
            .map_err(|_| SalError::Undecryptable { what: context.to_owned() })
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn sealed() -> (tempfile::TempDir, SealedCustody) {
        let dir = tempfile::tempdir().unwrap();
        let key = SealingKey::create(&dir.path().join("seal.key")).unwrap();
        (dir, SealedCustody::new(Arc::new(key)))
    }

    #[test]
    fn another_sealing_key_opens_nothing() {
        let stored = sealed().1.generate("a key", KeyAlgorithm::Ed25519).unwrap();
        let error = sealed().1.load(&stored).unwrap_err();
        assert!(matches!(error, SalError::Undecryptable { .. }));
        assert!(error.to_string().contains("\"a key\""), "{error}");
    }

    #[test]
    fn a_sealing_key_is_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        assert!(matches!(SealingKey::open(&path), Err(SalError::NoSealingKey { .. })));
        let made = SealingKey::open_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(matches!(SealingKey::create(&path), Err(SalError::SealingKeyExists { .. })));
        let sealed = made.seal("totp alice", b"secret").unwrap();
        let read = SealingKey::open_or_create(&path).unwrap();
        assert_eq!(read.unseal("totp alice", &sealed).unwrap().as_slice(), b"secret");
        assert!(matches!(read.unseal("totp bob", &sealed), Err(SalError::Undecryptable { .. })));
        assert_eq!(format!("{read:?}"), "SealingKey(..)");
    }

    #[test]
    fn files_that_are_not_a_private_key_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        SealingKey::create(&path).unwrap();

        for mode in [0o640, 0o604, 0o660, 0o644, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = SealingKey::open(&path).unwrap_err();
            assert!(matches!(error, SalError::LooseMode { mode: found, .. } if found == mode), "{error}");
            assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        SealingKey::open(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();

        let link = dir.path().join("link.key");
        symlink(&path, &link).unwrap();
        assert!(matches!(SealingKey::open(&link), Err(SalError::NotAFile { found: "a symbolic link", .. })));
        assert!(matches!(SealingKey::open(dir.path()), Err(SalError::NotAFile { found: "a directory", .. })));

        let whole = fs::read(&path).unwrap();
        for length in [0, 1, 31] {
            fs::write(&path, &whole[..length]).unwrap();
            let error = SealingKey::open(&path).unwrap_err();
            assert!(
                matches!(error, SalError::TruncatedKey { got, expected: 32, .. } if got == length as u64),
                "{error}"
            );
        }
        fs::write(&path, [whole.as_slice(), b"\n"].concat()).unwrap();
        assert!(matches!(SealingKey::open(&path), Err(SalError::TruncatedKey { got: 33, .. })));
        // A file cut short is not replaced by a new key: what it sealed would be lost without a word.
        assert!(SealingKey::open_or_create(&path).is_err());
    }
}
