//! Logins that count from one address alone.

use std::net::IpAddr;

/// A certificate is shown from where it does not count. `Display` is for the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this login is pinned to {pinned_to} (pin_source_ip), and {}: log in again: sallyport login",
    self.whence()
)]
pub struct Elsewhere {
    /// Where it counts.
    pub pinned_to: IpAddr,
    /// Where it is shown; none where that is not known.
    pub from: Option<IpAddr>,
}

impl Elsewhere {
    /// A stable word for events and metrics.
    pub const REASON: &'static str = "pinned_elsewhere";

    fn whence(&self) -> String {
        match self.from {
            Some(from) => format!("you come from {from}"),
            None => "where you come from is not known".to_owned(),
        }
    }
}

/// A certificate without an address is shown by a user whose roles pin logins. `Display` is for the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "your roles want a login that is pinned to its address (pin_source_ip), and this one is not: it is from before that was asked for, \
     or an administrator has signed its certificates: log in again: sallyport login"
)]
pub struct Unpinned;

/// Why a certificate without an address is not enough where logins are pinned, and what to do about it.
pub(crate) const UNPINNED: (&str, &str) = (
    "it needs a login that is pinned to its address (pin_source_ip), and this one is not: it is from before that was asked for, or an \
     administrator has signed its certificates",
    "log in again: sallyport login",
);
