//! Certificate chains that were verified before.
//!
//! To verify a chain costs more than the rest of a handshake's certificate work: the signature of the CA, and the
//! search for a path. The same few hosts and people come again and again, with the same certificates. [`Chains`]
//! remembers which ones were good, for a time that policy allows, within one [`Trust`](crate::Trust): another trust
//! starts with nothing.
//!
//! What is remembered is an answer to "did the CA sign this, and what does it say?", which does not change. What
//! changes is asked again at every use: the time, by the caller's clock, with the same allowance as the first time;
//! and locks, where they always are. The proof that the peer has the key is part of every full handshake and is not
//! touched.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sallyport_access::Identity;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash;
use sallyport_sal::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;

use crate::validity::effective_time;
use crate::{CaError, x509};

/// Keeps these digests apart from every other use of the hash.
const DOMAIN: &[u8] = b"sallyport verified chain v1\0";

/// How many verified chains are remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remember {
    /// After this time a chain is verified anew. Zero: nothing is remembered.
    pub age: Duration,
    /// Chains remembered at most, the least recently used are forgotten first. One takes about 1 KiB. Fewer than two:
    /// nothing is remembered.
    pub chains: usize,
}

impl Remember {
    /// Ten minutes, 4096 chains.
    pub const DEFAULT: Self = Self { age: Duration::from_secs(600), chains: 4096 };
    /// Every chain is verified every time.
    pub const OFF: Self = Self { age: Duration::ZERO, chains: 0 };

    fn is_off(self) -> bool {
        self.age.is_zero() || self.chains < 2
    }
}

impl Default for Remember {
    /// What [`remember_chains`] set, else [`Remember::DEFAULT`].
    fn default() -> Self {
        SETTING.get().copied().unwrap_or(Self::DEFAULT)
    }
}

static SETTING: OnceLock<Remember> = OnceLock::new();

/// Sets what every [`Trust`](crate::Trust) of this process made from now on remembers. The first call counts; gives
/// whether this was it.
pub fn remember_chains(remember: Remember) -> bool {
    SETTING.set(remember).is_ok()
}

/// How chains were judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainCounts {
    /// Chains that were verified, whether they were good or not.
    pub verified: u64,
    /// Chains that were known to be good.
    pub remembered: u64,
}

static VERIFIED: AtomicU64 = AtomicU64::new(0);
static REMEMBERED: AtomicU64 = AtomicU64::new(0);

/// The counts of the whole process, over every [`Trust`](crate::Trust).
#[must_use]
pub fn chain_counts() -> ChainCounts {
    ChainCounts { verified: VERIFIED.load(Ordering::Relaxed), remembered: REMEMBERED.load(Ordering::Relaxed) }
}

/// What a chain was verified for. A chain that is good for one purpose says nothing about another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The peer that connects.
    Client,
    /// The server of this name.
    Server(&'a ServerName<'a>),
}

/// The name of a chain and of what it was verified for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; hash::SHA256_BYTES]);

impl Key {
    fn of(purpose: Purpose<'_>, leaf: &[u8], intermediates: &[CertificateDer<'_>]) -> Self {
        let name = match purpose {
            Purpose::Client => None,
            Purpose::Server(name) => Some(name.to_str()),
        };
        let purpose: &[u8] = match (purpose, &name) {
            (Purpose::Server(ServerName::IpAddress(_)), Some(_)) => b"server at ",
            (_, Some(_)) => b"server ",
            (_, None) => b"client",
        };
        // Each part with its length in front, so that no two lists of parts read the same.
        let parts: Vec<&[u8]> = [purpose, name.as_deref().unwrap_or_default().as_bytes(), leaf]
            .into_iter()
            .chain(intermediates.iter().map(AsRef::as_ref))
            .collect();
        let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let mut all = vec![DOMAIN];
        for (length, part) in lengths.iter().zip(&parts) {
            all.extend([length.as_slice(), part]);
        }
        let mut digest = [0; hash::SHA256_BYTES];
        hash::digest(HashAlgorithm::Sha256, &all, &mut digest);
        Self(digest)
    }
}

type Validity = (OffsetDateTime, OffsetDateTime);

/// A good chain.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) identity: Identity,
    /// When it was verified.
    at: OffsetDateTime,
    /// The leaf's, as the certificate has it.
    leaf: Validity,
    /// Of the certificates that came with it, any of which the path may lead through.
    intermediates: Vec<Validity>,
}

impl Verified {
    /// Whether all is as it was when the chain was verified, but for the leaf's time.
    fn holds(&self, now: OffsetDateTime, at: UnixTime, age: Duration) -> bool {
        // A clock that was set back makes the age unknown.
        let fresh = Duration::try_from(now - self.at).is_ok_and(|since| since < age);
        let within = |(from, until): &Validity| {
            let at = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
            (from.unix_timestamp()..=until.unix_timestamp()).contains(&at)
        };
        fresh && self.intermediates.iter().all(within)
    }
}

/// Least recently used, by halves: what was used since the newer half was begun is in it, and when it is full, the
/// older half is forgotten.
#[derive(Debug, Default)]
struct Halves {
    newer: HashMap<Key, Arc<Verified>>,
    older: HashMap<Key, Arc<Verified>>,
}

impl Halves {
    fn find(&mut self, key: &Key, half: usize) -> (Option<Arc<Verified>>, HashMap<Key, Arc<Verified>>) {
        if let Some(found) = self.newer.get(key) {
            return (Some(Arc::clone(found)), HashMap::new());
        }
        match self.older.remove(key) {
            Some(found) => {
                let forgotten = self.put(*key, Arc::clone(&found), half);
                (Some(found), forgotten)
            }
            None => (None, HashMap::new()),
        }
    }

    /// Gives what is forgotten for it, to be freed where no connection waits.
    fn put(&mut self, key: Key, chain: Arc<Verified>, half: usize) -> HashMap<Key, Arc<Verified>> {
        let mut forgotten = HashMap::new();
        if self.newer.len() >= half && !self.newer.contains_key(&key) {
            forgotten = mem::replace(&mut self.older, mem::take(&mut self.newer));
        }
        self.newer.insert(key, chain);
        forgotten
    }
}

/// The memory of one trust.
#[derive(Debug)]
pub(crate) struct Chains {
    remember: Remember,
    halves: Mutex<Halves>,
    verified: AtomicU64,
    remembered: AtomicU64,
}

impl Chains {
    pub(crate) fn new(remember: Remember) -> Self {
        Self {
            remember,
            halves: Mutex::default(),
            verified: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
        }
    }

    /// The judgement on a chain: from memory where it was good and nothing stands against it since, else by `verify`,
    /// which gives the identity and the leaf's validity. Nothing is locked while `verify` runs. A refusal is not
    /// remembered.
    pub(crate) fn judge(
        &self,
        purpose: Purpose<'_>,
        leaf: &[u8],
        intermediates: &[CertificateDer<'_>],
        now: OffsetDateTime,
        verify: impl FnOnce() -> Result<(Identity, Validity), CaError>,
    ) -> Result<Arc<Verified>, CaError> {
        let key = (!self.remember.is_off()).then(|| Key::of(purpose, leaf, intermediates));
        if let Some(known) = key.and_then(|key| self.find(&key)) {
            // The leaf's end is the same refusal as the first time, whatever else there is to say.
            let at = effective_time(known.leaf.0, known.leaf.1, now)?;
            if known.holds(now, at, self.remember.age) {
                self.remembered.fetch_add(1, Ordering::Relaxed);
                REMEMBERED.fetch_add(1, Ordering::Relaxed);
                return Ok(known);
            }
        }
        self.verified.fetch_add(1, Ordering::Relaxed);
        VERIFIED.fetch_add(1, Ordering::Relaxed);
        let (identity, validity) = verify()?;
        // One that cannot be read was not part of the path, but to say so is not ours: such chains are not remembered.
        let others: Option<Vec<Validity>> =
            intermediates.iter().map(|certificate| x509::validity(certificate).ok()).collect();
        let remembers = key.filter(|_| others.is_some());
        let chain = Arc::new(Verified {
            identity,
            at: now,
            leaf: validity,
            intermediates: others.unwrap_or_default(),
        });
        if let Some(key) = remembers {
            let forgotten = self.lock().put(key, Arc::clone(&chain), self.remember.chains / 2);
            drop(forgotten);
        }
        Ok(chain)
    }

    pub(crate) fn counts(&self) -> ChainCounts {
        ChainCounts {
            verified: self.verified.load(Ordering::Relaxed),
            remembered: self.remembered.load(Ordering::Relaxed),
        }
    }

    fn find(&self, key: &Key) -> Option<Arc<Verified>> {
        let (found, forgotten) = self.lock().find(key, self.remember.chains / 2);
        drop(forgotten);
        found
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_access::{HostId, HostRole, NodeName, Principal};
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn chains(chains: usize) -> Chains {
        Chains::new(Remember { chains, ..Remember::DEFAULT })
    }

    fn identity() -> (Identity, Validity) {
        let principal = Principal::Host {
            id: HostId::new(),
            name: NodeName::new("web-1").unwrap(),
            role: HostRole::Node,
        };
        let until = NOW + time::Duration::days(1);
        (
            Identity {
                principal,
                login_id: Uuid::nil(),
                device: None,
                pinned_to: None,
                valid_after: NOW,
                valid_before: until,
            },
            (NOW, until),
        )
    }

    /// Whether a leaf was known.
    fn knows(chains: &Chains, purpose: Purpose<'_>, leaf: &[u8], now: OffsetDateTime) -> bool {
        let mut asked = false;
        let judged = chains.judge(purpose, leaf, &[], now, || {
            asked = true;
            Ok(identity())
        });
        judged.unwrap();
        !asked
    }

    #[test]
    fn names_keep_purposes_and_parts_apart() {
        let dns = |text: &'static str| ServerName::try_from(text).unwrap();
        let (a, b, ip) = (dns("a.example"), dns("b.example"), dns("10.0.0.1"));
        let (one, two) = (CertificateDer::from(vec![1]), CertificateDer::from(vec![2]));
        let joined = CertificateDer::from(vec![1, 2]);
        let keys = [
            Key::of(Purpose::Client, b"leaf", &[]),
            Key::of(Purpose::Client, b"lea", &[]),
            Key::of(Purpose::Client, b"leaf", std::slice::from_ref(&one)),
            Key::of(Purpose::Client, b"leaf", &[one.clone(), two.clone()]),
            Key::of(Purpose::Client, b"leaf", &[two, one]),
            Key::of(Purpose::Client, b"leaf", &[joined]),
            Key::of(Purpose::Server(&a), b"leaf", &[]),
            Key::of(Purpose::Server(&b), b"leaf", &[]),
            Key::of(Purpose::Server(&ip), b"leaf", &[]),
        ];
        let different: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(Key::of(Purpose::Server(&a), b"leaf", &[]), *keys.get(6).unwrap());
    }

    #[test]
    fn the_least_recently_used_go_first_and_the_bound_holds() {
        let chains = chains(8);
        let leaf = |number: u32| number.to_be_bytes();
        for number in 0..1_000 {
            assert!(!knows(&chains, Purpose::Client, &leaf(number), NOW));
            // One that is used all the time stays.
            assert_eq!(knows(&chains, Purpose::Client, b"often", NOW), number > 0, "{number}");
            let halves = chains.lock();
            assert!(halves.newer.len() + halves.older.len() <= 8);
        }
        assert!(!knows(&chains, Purpose::Client, &leaf(0), NOW));
        assert!(knows(&chains, Purpose::Client, &leaf(999), NOW));
    }

    #[test]
    fn age_counts_from_the_verification_and_clocks_may_jump() {
        let chains = chains(8);
        let after = |seconds| NOW + time::Duration::seconds(seconds);
        assert!(!knows(&chains, Purpose::Client, b"leaf", after(100)));
        assert!(knows(&chains, Purpose::Client, b"leaf", after(699)));
        // Being used makes it no younger.
        assert!(!knows(&chains, Purpose::Client, b"leaf", after(700)));
        assert!(knows(&chains, Purpose::Client, b"leaf", after(700)));
        // Before it was verified.
        assert!(!knows(&chains, Purpose::Client, b"leaf", after(300)));
    }

    #[test]
    fn nothing_is_remembered_when_that_is_said_or_the_chain_was_refused() {
        for off in [Remember::OFF, Remember { chains: 1, ..Remember::DEFAULT }] {
            let chains = Chains::new(off);
            assert!(!knows(&chains, Purpose::Client, b"leaf", NOW));
            assert!(!knows(&chains, Purpose::Client, b"leaf", NOW));
            assert_eq!(chains.counts(), ChainCounts { verified: 2, remembered: 0 });
        }
        let chains = chains(8);
        let refused = || Err(CaError::BadSignature);
        assert!(chains.judge(Purpose::Client, b"leaf", &[], NOW, refused).is_err());
        assert!(!knows(&chains, Purpose::Client, b"leaf", NOW));
        // With it comes something that is no certificate.
        let junk = [CertificateDer::from(b"junk".to_vec())];
        for _ in 0..2 {
            let mut asked = false;
            let judged = chains.judge(Purpose::Client, b"leaf", &junk, NOW, || {
                asked = true;
                Ok(identity())
            });
            assert!(judged.is_ok() && asked);
        }
    }

    #[test]
    fn nobody_waits_for_a_verification() {
        let chains = Arc::new(chains(8));
        let judged = chains.judge(Purpose::Client, b"slow", &[], NOW, || {
            let other = Arc::clone(&chains);
            let done = std::thread::spawn(move || knows(&other, Purpose::Client, b"quick", NOW));
            assert!(!done.join().unwrap());
            Ok(identity())
        });
        assert!(judged.is_ok());
    }
}
