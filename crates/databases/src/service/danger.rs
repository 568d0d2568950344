//! What only tests change.

pub use super::pace::Pace;
use super::{Service, Settings};

/// A service at another pace.
#[must_use]
pub fn paced(settings: Settings, pace: Pace) -> Service {
    Service::paced(settings, pace)
}
