//! How long a client may stay that has nothing open here.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::dial::JumpError;
use super::known::Known;

/// What a client reads that comes while the proxy shuts down.
pub(super) const DRAINING: &str = "the proxy is shutting down; try again in a moment";

/// How long a client may take to get in and stand unused, and when it is sent away all the same.
pub(super) struct Bounds {
    /// From the first byte to a proven identity.
    pub(super) patience: Duration,
    /// From there to the answers to what the proxy asks besides the key. A connection may stand unused for as long.
    pub(super) idle: Duration,
    /// No new client is let in any more, and one without a channel is sent away.
    pub(super) draining: CancellationToken,
}

impl Bounds {
    /// Waits until a client has to go, and gives the words that it reads, and why it went. It stays as long as `is_used` holds, which is
    /// asked again at each change of what is known of it. `unused` are the words for a client that is known and does nothing.
    pub(super) async fn run_out(
        &self,
        known: &Known,
        is_used: impl Fn() -> bool,
        unused: &'static str,
    ) -> (&'static str, JumpError) {
        let proven_by = Instant::now() + self.patience;
        loop {
            let changed = known.changed.notified();
            let (is_known, is_used) = (known.identity.get().is_some(), is_used());
            // A person may take longer to answer than a program to prove a key.
            let deadline = if is_known { Instant::now() + self.idle } else { proven_by };
            tokio::select! {
                () = changed => {}
                () = self.draining.cancelled(), if is_known && !is_used => return (DRAINING, JumpError::Draining),
                () = sleep_until(deadline), if !is_used => return match is_known {
                    true => (unused, JumpError::Idle(self.idle)),
                    false => ("no certificate was presented in time", JumpError::AuthTimeout(self.patience)),
                },
            }
        }
    }
}
