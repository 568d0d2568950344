//! Bytes that need not be text, for JSON and logs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a path as JSON can carry them.
pub(crate) fn printable(path: &[u8]) -> String {
    OsStr::from_bytes(path).to_string_lossy().into_owned()
}
