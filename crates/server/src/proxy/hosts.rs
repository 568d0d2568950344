//! What one host may take of a proxy by its tunnels: how often it opens them, how many it has, and the memory of all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metrics::gauge;
use parking_lot::Mutex;
use sallyport_access::HostId;
use sallyport_wire::tunnel::state::{MAX_RECEIVED, MAX_SENT};
use sallyport_wire::tunnel::{Config, Memory};

use crate::places::Bounded;

/// What bytes that wait in tunnels may cost a proxy, of all hosts: those that clients have not taken yet,
const ALL_RECEIVED: u64 = 512 * 1024 * 1024;
/// and those that hosts have not.
const ALL_SENT: u64 = 256 * 1024 * 1024;
/// Tunnels that a host may open at once: an agent that is started again and again by its supervisor,
const BURST: u32 = 30;
/// and from then on one in so long. Agents whose tunnel is lost wait up to 15 s themselves.
const EVERY: Duration = Duration::from_secs(2);
/// Tunnels of a host at a time: its newest, and those whose last sessions live on after the certificate was renewed.
const AT_A_TIME: usize = 16;
/// How often it is told that a host is refused; what comes between is counted.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Hosts that are remembered.
const REMEMBERED: usize = 20_000;

/// All hosts' shares.
#[derive(Debug, Clone)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    received: Memory,
    sent: Memory,
    hosts: Mutex<Bounded<HostId, Share>>,
}

#[derive(Debug)]
struct Share {
    received: Memory,
    sent: Memory,
    open: Arc<AtomicUsize>,
    left: u32,
    refilled: Instant,
    /// Since it was last told.
    refused: u64,
    told: Option<Instant>,
}

/// A tunnel may be served with this for as long as it lives.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) config: Config,
    _open: Open,
}

#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A tunnel that may not be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway {
    /// For the agent.
    pub(crate) why: String,
    /// How many were since it was last told, when it is time to tell.
    pub(crate) tell: Option<u64>,
}

impl Default for Shares {
    fn default() -> Self {
        Self(Arc::new(Inner {
            received: Memory::new(ALL_RECEIVED),
            sent: Memory::new(ALL_SENT),
            hosts: Mutex::new(Bounded::new(REMEMBERED)),
        }))
    }
}

impl Shares {
    /// Takes a host's part for one more tunnel.
    pub(crate) fn admit(&self, host: HostId, now: Instant) -> Result<Admitted, TurnedAway> {
        gauge!("sallyport_tunnel_bytes").set((self.0.received.held() + self.0.sent.held()) as f64);
        let mut hosts = self.0.hosts.lock();
        let fresh = || Share {
            received: self.0.received.part(MAX_RECEIVED),
            sent: self.0.sent.part(MAX_SENT),
            open: Arc::default(),
            left: BURST,
            refilled: now,
            refused: 0,
            told: None,
        };
        let (share, _) = hosts.touch(&host, fresh);
        share.refill(now);
        let why = if share.left == 0 {
            Some(format!(
                "this host has opened more than {BURST} tunnels within a short time, and gets one every {} s now; stop \
                 what starts its agent again and again, or a second agent with the same identity",
                EVERY.as_secs()
            ))
        } else if share.open.load(Ordering::Relaxed) >= AT_A_TIME {
            Some(format!("this host has {AT_A_TIME} tunnels to this proxy, which is the most allowed"))
        } else {
            None
        };
        if let Some(why) = why {
            share.refused += 1;
            let due = share.told.is_none_or(|at| now.saturating_duration_since(at) >= TELL_EVERY);
            let tell = due.then(|| {
                share.told = Some(now);
                std::mem::take(&mut share.refused)
            });
            return Err(TurnedAway { why, tell });
        }
        share.left -= 1;
        share.open.fetch_add(1, Ordering::Relaxed);
        let config =
            Config { received: share.received.clone(), sent: share.sent.clone(), ..Config::default() };
        Ok(Admitted { config, _open: Open(Arc::clone(&share.open)) })
    }

    /// What is held for a host.
    #[cfg(test)]
    pub(crate) fn held(&self, host: &HostId) -> u64 {
        let hosts = self.0.hosts.lock();
        hosts.get(host).map_or(0, |share| share.received.held() + share.sent.held())
    }
}

impl Share {
    fn refill(&mut self, now: Instant) {
        let whole = now.saturating_duration_since(self.refilled).as_secs() / EVERY.as_secs();
        let whole = u32::try_from(whole).unwrap_or(u32::MAX).min(BURST);
        if self.left.saturating_add(whole) >= BURST {
            (self.left, self.refilled) = (BURST, now);
        } else {
            self.left += whole;
            self.refilled += EVERY * whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_opens_so_many_at_once_and_then_one_at_a_time_and_it_is_told_once_a_minute() {
        let (shares, host, began) = (Shares::default(), HostId::new(), Instant::now());
        for _ in 0..BURST {
            shares.admit(host, began).unwrap();
        }
        let told: Vec<Option<u64>> = (0..175).map(|_| shares.admit(host, began).unwrap_err().tell).collect();
        assert_eq!((told[0], told.iter().flatten().count()), (Some(1), 1));
        assert!(shares.admit(HostId::new(), began).is_ok());
        let mut opened = 0;
        for second in 1..=60 {
            let now = began + Duration::from_secs(second);
            opened += u32::from(shares.admit(host, now).is_ok());
            if let Err(TurnedAway { tell: Some(count), .. }) = shares.admit(host, now) {
                assert!(second == 60 && count > 174, "after {second} s: {count}");
            }
        }
        assert_eq!(opened, 30);
    }

    #[test]
    fn a_host_has_so_many_tunnels_and_gets_their_places_back() {
        let (shares, host, now) = (Shares::default(), HostId::new(), Instant::now());
        let mut held: Vec<Admitted> = (0..AT_A_TIME).map(|_| shares.admit(host, now).unwrap()).collect();
        let refused = shares.admit(host, now).unwrap_err();
        assert!(refused.why.contains("16 tunnels"), "{refused:?}");
        held.pop();
        assert!(shares.admit(host, now).is_ok());
    }
}
