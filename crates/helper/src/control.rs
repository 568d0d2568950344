//! What a running helper is asked about itself.

use std::io;
use std::path::Path;

use serde_json::Value;

use super::request::Request;
use super::socket::{self, Place};

/// Asks the helper of a profile how it stands, which it tells as JSON.
///
/// # Errors
/// None runs, or it does not answer.
pub fn status(profile: &Path) -> io::Result<String> {
    socket::ask(&Place::of(profile), &Request::Status)
}

/// Tells the helper of a profile to take no more connections, and to end when those that it has are over. It tells how it stands.
///
/// # Errors
/// None runs, or it does not answer.
pub fn stop(profile: &Path) -> io::Result<String> {
    socket::ask(&Place::of(profile), &Request::Stop)
}

/// How the helper of a profile stands, where one runs.
pub fn standing(profile: &Path) -> Option<Value> {
    serde_json::from_str(&status(profile).ok()?).ok()
}

/// Tells the helper of a profile that its login is forgotten.
pub fn forget(profile: &Path) {
    let _ = stop(profile);
}
