//! The names of a login's files, and how such a file is written: whole, and for its user alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::{Doing, Result};

pub(super) const TRUST_VERSION: &str = "trust_version";

/// What other programs than ours, which speak TLS, check the proxy against.
pub const TLS_CA: &str = "tls_ca.pem";

/// The key of `tls_key.pem` in DER.
pub const TLS_KEY_DER: &str = "tls_key.pk8";

/// A file of text that appears whole or not at all, and ends with the end of a line.
pub fn write_private(path: &Path, content: &str) -> Result {
    if content.ends_with('\n') {
        return write_private_bytes(path, content.as_bytes());
    }
    let ended = Zeroizing::new(format!("{content}\n"));
    write_private_bytes(path, ended.as_bytes())
}

pub(super) fn write_private_bytes(path: &Path, content: &[u8]) -> Result {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(content)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().doing(format!("write {}", path.display())).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Makes a directory that is the user's alone, or an existing one so.
///
/// # Errors
/// It cannot be made.
pub fn private_directory(path: &Path) -> Result {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .doing(format!("create {}", path.display()))?;
    let mode = fs::metadata(path).doing(format!("look at {}", path.display()))?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .doing(format!("make {} private", path.display()))?;
    }
    Ok(())
}
