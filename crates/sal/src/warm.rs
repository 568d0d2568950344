//! What is made before the first connection, so that none waits for it.

use crate::{random, tls};

/// Draws the first random number of this process, which aws-lc takes 50 to 100 ms to prepare, and builds the TLS
/// provider. Servers call it before they listen; it may run on a thread of its own.
pub fn warm_up() {
    // A failure shows again, with an error, to the first caller that needs randomness.
    let _ = random::bytes::<32>();
    let _ = tls::provider();
}
