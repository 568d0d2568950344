//! Keys for the hosts of this process, made before they are needed where making them is slow.
//!
//! A host makes fresh keys when it joins and with every renewal. Under a suite with RSA that takes tens of milliseconds
//! and more of a processor, and when a CA is rotated, on all hosts of a cluster at a time. So the keys of a renewal that
//! is coming are made when nothing else wants the processor. Keys are not kept for longer than that: a process that
//! renews nothing makes none ahead.

use std::sync::OnceLock;

use sallyport_sal::economy::{Capacity, KeyPool, PoolCount};
use sallyport_sal::{KeyPurpose, MemoryKey, SalError, Suite, selection};

/// A process has one host with certificates that are renewed by themselves, or two, which then seldom renew together.
const CAPACITY: Capacity = Capacity(1);

/// What a host needs keys for.
const PURPOSES: [KeyPurpose; 2] = [KeyPurpose::HostSsh, KeyPurpose::HostTls];

/// The keys of this process's hosts, however many run in it.
fn shared() -> &'static HostKeys {
    static SHARED: OnceLock<HostKeys> = OnceLock::new();
    SHARED.get_or_init(HostKeys::default)
}

/// Makes keys of this suite ready: a host is about to ask for them.
pub(crate) fn prepare(suite: Suite) {
    shared().prepare(suite);
}

/// The two keys of a host, for SSH and for TLS. Blocks for as long as it takes where none is ready: with RSA, tens of
/// milliseconds and more.
///
/// # Errors
/// [`SalError`] when no provider makes such keys.
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
    fn prepare(&self, suite: Suite) {
        self.0.keep(&PURPOSES.map(|purpose| (purpose, suite.algorithm(purpose))));
    }

    /// Nothing is made ahead after this, until the next time.
    fn take(&self, suite: Suite) -> Result<(MemoryKey, MemoryKey), SalError> {
        let take = |purpose| self.0.take(purpose, suite.algorithm(purpose)).map(|taken| taken.key);
        let keys = (take(KeyPurpose::HostSsh)?, take(KeyPurpose::HostTls)?);
        self.0.keep(&[]);
        Ok(keys)
    }
}

/// The private host key of sshd, of the default type that the mode of this process has.
#[must_use]
pub fn default_host_key() -> &'static str {
    if selection::global().is_fips() {
        "/etc/ssh/ssh_host_ecdsa_key"
    } else {
        "/etc/ssh/ssh_host_ed25519_key"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use sallyport_sal::{KeyAlgorithm, Signer};

    use super::*;

    #[test]
    fn rsa_keys_are_ready_for_a_renewal_that_was_told() {
        let keys = HostKeys::default();
        let of = |purpose| {
            let wanted = (purpose, KeyAlgorithm::Rsa2048);
            let counts = keys.0.counts();
            *counts.iter().find(|count| (count.purpose, count.algorithm) == wanted).unwrap()
        };
        let (ssh, tls) = keys.take(Suite::Legacy).unwrap();
        assert_eq!((ssh.algorithm(), tls.algorithm()), (KeyAlgorithm::Rsa2048, KeyAlgorithm::Rsa2048));
        assert_eq!((of(KeyPurpose::HostSsh).on_demand, of(KeyPurpose::HostSsh).capacity), (1, 0));
        keys.prepare(Suite::Legacy);
        let started = Instant::now();
        while of(KeyPurpose::HostSsh).ready == 0 || of(KeyPurpose::HostTls).ready == 0 {
            assert!(started.elapsed() < Duration::from_secs(280), "nothing fills the pool");
            std::thread::sleep(Duration::from_millis(10));
        }
        keys.take(Suite::Legacy).unwrap();
        for purpose in PURPOSES {
            let count = of(purpose);
            assert_eq!((count.from_pool, count.on_demand, count.capacity), (1, 1, 0));
        }
        // Another suite in the last moment: what was made for the old one is wiped.
        keys.prepare(Suite::Legacy);
        let (ssh, tls) = keys.take(Suite::BalancedV1).unwrap();
        assert_eq!((ssh.algorithm(), tls.algorithm()), (KeyAlgorithm::Ed25519, KeyAlgorithm::EcdsaP256));
        assert_eq!(of(KeyPurpose::HostSsh).ready, 0);
    }
}
