//! Where callers are from, as far as limits are concerned, and tables about them that do not grow.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

use sallyport_access::HostId;

/// How much more than one place the network around it may do: a site has many places, and few of them at fault at a time.
pub(crate) const WIDER: usize = 4;

/// Where a client is, and by which host's word. What one host says counts for that host alone, so that a host in the wrong hands takes
/// nothing of what clients at an address may do by other hosts, or by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) address: IpAddr,
    /// The host that says so; none where the authority sees it itself.
    pub(crate) told_by: Option<HostId>,
}

/// One subscriber: an IPv4 address, or a /64 of IPv6 (RFC 6177 §2). Wider: a /48, which one site may have. A network is its first
/// address with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(IpAddr, u32);

impl Place {
    /// The subscriber that an address belongs to.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::masked(address, 64).unwrap_or(Self(address.to_canonical(), 32))
    }

    /// The site around it; none for IPv4, where an address says nothing of its neighbours.
    pub(crate) fn around(address: IpAddr) -> Option<Self> {
        Self::masked(address, 48)
    }

    fn masked(address: IpAddr, bits: u32) -> Option<Self> {
        match address.to_canonical() {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => {
                let mask = u128::MAX << (128 - bits);
                Some(Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)), bits))
            }
        }
    }
}

/// The places of an address with how much each may, as a multiple of one place's part.
pub(crate) fn places(address: IpAddr) -> impl Iterator<Item = (Place, usize)> {
    std::iter::once((Place::of(address), 1)).chain(Place::around(address).map(|around| (around, WIDER)))
}

/// A table with a bound: what was not touched for the longest makes room for what is new, and nothing else goes.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    most: usize,
    clock: u64,
    entries: HashMap<K, (u64, V)>,
    /// Keys by when they were touched last.
    order: BTreeMap<u64, K>,
}

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), clock: 0, entries: HashMap::new(), order: BTreeMap::new() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key, made where there is none, and what had to go for it.
    pub(crate) fn touch(&mut self, key: &K, make: impl FnOnce() -> V) -> (&mut V, Option<(K, V)>) {
        let mut gone = None;
        if !self.entries.contains_key(key)
            && self.entries.len() >= self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            gone = self.entries.remove(&oldest).map(|(_, value)| (oldest, value));
        }
        self.clock += 1;
        let clock = self.clock;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (0, make()));
        self.order.remove(&entry.0);
        entry.0 = clock;
        self.order.insert(clock, key.clone());
        (&mut entry.1, gone)
    }

    /// Takes out everything that `goes`.
    pub(crate) fn drain(&mut self, mut goes: impl FnMut(&V) -> bool) -> Vec<(K, V)> {
        let keys: Vec<(u64, K)> = self
            .entries
            .iter()
            .filter(|(_, (_, value))| goes(value))
            .map(|(key, (at, _))| (*at, key.clone()))
            .collect();
        let mut gone = Vec::with_capacity(keys.len());
        for (at, key) in keys {
            self.order.remove(&at);
            if let Some((_, value)) = self.entries.remove(&key) {
                gone.push((key, value));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv6_subscriber_is_one_place_and_its_site_is_wider() {
        let place = |text: &str| Place::of(ip(text));
        assert_eq!(place("2001:db8:1:2:3:4:5:6"), place("2001:db8:1:2::1"));
        assert_ne!(place("2001:db8:1:2::1"), place("2001:db8:1:3::1"));
        assert_eq!(place("::ffff:192.0.2.1"), place("192.0.2.1"));
        let around = |text: &str| Place::around(ip(text));
        assert_eq!(around("2001:db8:1:2::1"), around("2001:db8:1:ffff::1"));
        assert_ne!(around("2001:db8:1:2::1"), around("2001:db8:2:2::1"));
        assert_ne!(
            Some(place("2001:db8:1::1")),
            around("2001:db8:1::1"),
            "a site is not its first subscriber"
        );
        assert_eq!((around("192.0.2.1"), around("::ffff:192.0.2.1")), (None, None));
    }

    #[test]
    fn what_was_not_touched_for_the_longest_goes_and_nothing_else() {
        let mut table: Bounded<u32, u32> = Bounded::new(3);
        for key in [1, 2, 3] {
            *table.touch(&key, || 0).0 = key * 10;
        }
        table.touch(&1, || 0);
        assert_eq!(table.touch(&4, || 40).1, Some((2, 20)));
        assert_eq!((table.get(&1), table.get(&2), table.get(&4)), (Some(&10), None, Some(&40)));
        assert_eq!(table.drain(|value| *value == 40), [(4, 40)]);
        assert_eq!((table.len(), table.order.len()), (2, 2));
    }
}
