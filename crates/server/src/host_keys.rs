//! Keys for the hosts of this process, made before they are needed where making them is slow.
//!
//! A host makes fresh keys when it joins and with every renewal. Under a suite with RSA that takes tens of milliseconds
//! and more of a processor, on every host of a cluster in the same hour. So the keys of the next renewal are made when
//! nothing else wants the processor.

use std::sync::OnceLock;

use sallyport_sal::economy::{Capacity, KeyPool, PoolCount};
use sallyport_sal::{KeyPurpose, MemoryKey, SalError, Suite};

/// Enough for two hosts in one process, which renew within the same hour: a proxy and a node.
const CAPACITY: Capacity = Capacity(2);

/// What a host needs keys for.
const PURPOSES: [KeyPurpose; 2] = [KeyPurpose::HostSsh, KeyPurpose::HostTls];

/// The keys of this process's hosts, however many run in it.
fn shared() -> &'static HostKeys {
    static SHARED: OnceLock<HostKeys> = OnceLock::new();
    SHARED.get_or_init(HostKeys::default)
}

/// The two keys of a host, for SSH and for TLS. Blocks for as long as it takes where none is ready: with RSA, tens of
/// milliseconds and more.
///
/// # Errors
/// [`SalError`] when nobody makes such keys.
pub(crate) fn take(suite: Suite) -> Result<(MemoryKey, MemoryKey), SalError> {
    shared().take(suite)
}

/// What the pool did so far.
pub(crate) fn counts() -> Vec<PoolCount> {
    shared().0.counts()
}

struct HostKeys(KeyPool);

impl Default for HostKeys {
    fn default() -> Self {
        Self(KeyPool::new(CAPACITY))
    }
}

impl HostKeys {
    /// Also makes those of the next renewal ready, and wipes what was made for another suite.
    fn take(&self, suite: Suite) -> Result<(MemoryKey, MemoryKey), SalError> {
        let take = |purpose| self.0.take(purpose, suite.algorithm(purpose)).map(|taken| taken.key);
        let keys = (take(KeyPurpose::HostSsh)?, take(KeyPurpose::HostTls)?);
        self.0.keep(&PURPOSES.map(|purpose| (purpose, suite.algorithm(purpose))));
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use sallyport_sal::{KeyAlgorithm, Signer};

    use super::*;

    #[test]
    fn rsa_keys_are_ready_for_the_next_renewal() {
        let keys = HostKeys::default();
        let (ssh, tls) = keys.take(Suite::Legacy).unwrap();
        assert_eq!((ssh.algorithm(), tls.algorithm()), (KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa2048));
        let of = |purpose| {
            let wanted = (purpose, KeyAlgorithm::Rsa2048);
            let counts = keys.0.counts();
            *counts.iter().find(|count| (count.purpose, count.algorithm) == wanted).unwrap()
        };
        let started = Instant::now();
        while of(KeyPurpose::HostSsh).ready < CAPACITY.0 || of(KeyPurpose::HostTls).ready < CAPACITY.0 {
            assert!(started.elapsed() < Duration::from_secs(120), "nothing fills the pool");
            std::thread::sleep(Duration::from_millis(20));
        }
        keys.take(Suite::Legacy).unwrap();
        let count = of(KeyPurpose::HostSsh);
        assert_eq!((count.from_pool, count.on_demand), (1, 1));
        // Another suite, other keys.
        let (ssh, tls) = keys.take(Suite::BalancedV1).unwrap();
        assert_eq!((ssh.algorithm(), tls.algorithm()), (KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256));
        assert_eq!((of(KeyPurpose::HostSsh).ready, of(KeyPurpose::HostSsh).capacity), (0, 0));
    }
}
