//! How many events a host may report.

use parking_lot::Mutex;
use sallyport_access::HostId;
use time::OffsetDateTime;

use crate::places::Bounded;

/// Hosts that are remembered.
const HOSTS: usize = 20_000;
/// Bytes that count as an event more.
const BYTES: u64 = 1024;
/// A host that was quiet may report so many minutes' part at once.
const MINUTES: f64 = 2.0;

/// What each host may still report. It fills in time; a call may overdraw it, since an honest host's pieces have a size that the
/// budget does not know.
#[derive(Debug)]
pub(crate) struct Budgets {
    a_minute: f64,
    hosts: Mutex<Bounded<HostId, Budget>>,
}

#[derive(Debug, Clone, Copy)]
struct Budget {
    left: f64,
    at: OffsetDateTime,
}

impl Budgets {
    /// Budgets of so many events a minute.
    pub(crate) fn of(a_minute: u32) -> Self {
        Self { a_minute: a_minute.into(), hosts: Mutex::new(Bounded::new(HOSTS)) }
    }

    /// Whether a host may report these events now.
    pub(crate) fn admits(&self, host: HostId, texts: &[String], now: OffsetDateTime) -> bool {
        let cost: u64 = texts.iter().map(|text| 1 + text.len() as u64 / BYTES).sum();
        let full = self.a_minute * MINUTES;
        let mut hosts = self.hosts.lock();
        let (budget, _) = hosts.touch(&host, || Budget { left: full, at: now });
        let minutes = (now - budget.at).as_seconds_f64().max(0.0) / 60.0;
        *budget = Budget { left: (budget.left + minutes * self.a_minute).min(full), at: now };
        if budget.left <= 0.0 {
            return false;
        }
        // Calls are bounded in size; so many bytes are far within what a float tells apart.
        #[allow(clippy::cast_precision_loss)]
        let cost = cost as f64;
        budget.left -= cost;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_part_of_a_minute_and_no_more() {
        let budgets = Budgets::of(100);
        let (host, other) = (HostId::new(), HostId::new());
        let now = OffsetDateTime::UNIX_EPOCH;
        let small = vec!["{}".to_owned(); 10];
        let taken = (0..1000).filter(|_| budgets.admits(host, &small, now)).count();
        assert_eq!(taken, 20);
        assert!(budgets.admits(other, &small, now));
        let later = now + time::Duration::minutes(1);
        let taken = (0..1000).filter(|_| budgets.admits(host, &small, later)).count();
        assert_eq!(taken, 10);
        // Large ones count for more, and what was overdrawn is paid back first.
        assert!(budgets.admits(other, &["x".repeat(1 << 20)], now));
        assert!(!budgets.admits(other, &small, now + time::Duration::minutes(5)));
        assert!(budgets.admits(other, &small, now + time::Duration::minutes(9)));
    }
}
