//! `lab wan`: a WAN in a box.
//!
//! Hosts are network namespaces. Each has a TUN device with an address of its own, and one thread of this process carries
//! packets between them: as late, as seldom and as slowly as the regions that the hosts stand in are apart. It needs no
//! module of the kernel's for that, and sees every packet: [`Capture`] counts the round trips of a protocol.

mod capture;
mod captured;
pub mod congestion;
mod emulator;
mod guarded;
mod host;
pub mod ladder;
mod line;
mod packet;
mod plan;
mod round_trips;
mod run;
pub mod sites;
pub mod table;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

pub use capture::{Capture, Direction, Flow, PACKETS_MOST};
pub use captured::CapturedPacket;
pub use emulator::Counts;
pub use host::Host;
pub use line::{Fate, Line};
pub use packet::{Carries, Packet, Segment};
pub use plan::{Change, Conditions, HOSTS_MOST, Matrix, Name, Placed, Plan, Setting, Settings};
pub use round_trips::{Cause, Journey, Trip};
pub use run::{Ended, flows, run};
pub use sallyport_testing::namespace::{Namespace, clean};

use crate::LabError;
use emulator::{DEVICE, Emulator};
use sallyport_testing::namespace::Claim;

/// What a host's second address has other than the first; more than there are hosts.
const SECOND_ADDRESS: u8 = 0x80;

/// A WAN that is up. Dropping it takes it down, and leaves nothing behind.
#[derive(Debug)]
pub struct Wan {
    // In the order in which they end: the devices go with the emulator, then the namespaces with the claim.
    emulator: Emulator,
    claim: Claim,
    hosts: Vec<Host>,
    matrix: Matrix,
}

impl Wan {
    /// Brings it up.
    ///
    /// # Errors
    /// [`LabError`]: what is missing (root, ip(8), `/dev/net/tun`), or what the system refused.
    pub fn up(plan: &Plan) -> Result<Self, LabError> {
        let names: Vec<Name> = plan.hosts.iter().map(|placed| placed.host.clone()).collect();
        let claim = Claim::take(&names)?;
        let mut hosts = Vec::new();
        for (number, (placed, namespace)) in (1..).zip(plan.hosts.iter().zip(claim.make()?)) {
            hosts.push(Host {
                name: placed.host.clone(),
                region: placed.region.clone(),
                namespace,
                v4: Ipv4Addr::new(10, 77, 0, number),
                v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number)),
            });
        }
        let changes =
            plan.changes.iter().map(|(after, matrix)| (*after, conditions(&hosts, matrix))).collect();
        let emulator = Emulator::start(&hosts, &conditions(&hosts, &plan.matrix), changes, plan.seed)?;
        let names = hosts.iter().fold(String::new(), |mut lines, host| {
            let _ = writeln!(lines, "{} {name}\n{} {name}", host.v4, host.v6, name = host.name);
            lines
        });
        for host in &hosts {
            host.namespace.configure(&format!(
                "link set lo up\naddress add {}/24 dev {DEVICE}\naddress add {}/64 dev {DEVICE} nodad\n\
                 link set {DEVICE} txqueuelen 10000\n",
                host.v4, host.v6
            ))?;
            // What one connection learned of the way must not make the next one another measurement.
            host.namespace.tune("ipv4/tcp_no_metrics_save", "1")?;
            // Where /etc cannot be written to, hosts are known by their addresses alone.
            let _ = host.namespace.name_hosts(&names);
        }
        if let Some(first) = hosts.first() {
            emulator.calibrate(first)?;
        }
        emulator.begin();
        Ok(Self { emulator, claim, hosts, matrix: plan.matrix.clone() })
    }

    /// Its number among those that are up on this machine: its namespaces are called `wanNUMBER-HOST`.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.claim.number()
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name.as_str() == name)
    }

    /// What lies between regions.
    #[must_use]
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// What lies between two hosts, by their numbers.
    #[must_use]
    pub fn between(&self, one: usize, other: usize) -> Conditions {
        match (self.hosts.get(one), self.hosts.get(other)) {
            (Some(one), Some(other)) => self.matrix.between(&one.region, &other.region),
            _ => Conditions::default(),
        }
    }

    /// Puts a host into another region, from now on, and forgets changes that the plan has for later. What is under way arrives as it was going to.
    pub fn place(&mut self, name: &str, region: &Name) {
        if let Some(host) = self.hosts.iter_mut().find(|host| host.name.as_str() == name) {
            host.region = region.clone();
        }
        self.emulator.change(&conditions(&self.hosts, &self.matrix));
    }

    /// Takes a host's addresses away and gives it others, as a laptop that comes into another network: what is under way to the
    /// old ones arrives nowhere.
    ///
    /// # Errors
    /// [`LabError`] when the system refuses.
    pub fn readdress(&mut self, name: &str) -> Result<(), LabError> {
        let Some(host) = self.hosts.iter_mut().find(|host| host.name.as_str() == name) else {
            return Err(LabError::Input(format!("there is no host {name}")));
        };
        let (old_v4, old_v6) = (host.v4, host.v6);
        // Each host has two of each kind, and goes from the one to the other.
        let mut octets = old_v4.octets();
        octets[3] ^= SECOND_ADDRESS;
        host.v4 = Ipv4Addr::from(octets);
        host.v6 = Ipv6Addr::from(old_v6.to_bits() ^ u128::from(SECOND_ADDRESS));
        host.namespace.configure(&format!(
            "address del {old_v4}/24 dev {DEVICE}\naddress del {old_v6}/64 dev {DEVICE}\n\
             address add {}/24 dev {DEVICE}\naddress add {}/64 dev {DEVICE} nodad\n",
            host.v4, host.v6
        ))?;
        let (v4, v6) = (host.v4, host.v6);
        self.emulator.readdress(IpAddr::V4(old_v4), IpAddr::V4(v4));
        self.emulator.readdress(IpAddr::V6(old_v6), IpAddr::V6(v6));
        Ok(())
    }

    /// Changes what lies between regions, from now on, and forgets changes that the plan has for later.
    pub fn change(&mut self, matrix: Matrix) {
        self.matrix = matrix;
        self.emulator.change(&conditions(&self.hosts, &self.matrix));
    }

    /// Begins to write packets down, in place of what was being written, and says when.
    #[must_use]
    pub fn record(&self) -> Instant {
        self.emulator.record()
    }

    /// Ends that, and gives what was seen.
    #[must_use]
    pub fn recorded(&self) -> Capture {
        self.emulator.recorded()
    }

    /// What became of packets so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.emulator.counts()
    }

    /// Processes that are in one of its namespaces, and in which.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, String)> {
        let inside = |host: &Host| {
            let name = host.namespace.name().to_owned();
            host.namespace.processes().into_iter().map(move |process| (process, name.clone()))
        };
        self.hosts.iter().flat_map(inside).collect()
    }

    /// The longest round trip between two hosts.
    #[must_use]
    pub fn longest_round_trip(&self) -> Duration {
        let pairs = (0..self.hosts.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs.map(|(one, other)| self.between(one, other).round_trip).max().unwrap_or_default()
    }
}

/// Those of all lines between these hosts.
fn conditions(hosts: &[Host], matrix: &Matrix) -> Vec<Conditions> {
    let line = |from: &Host| {
        let region = from.region.clone();
        hosts.iter().map(move |to| matrix.between(&region, &to.region))
    };
    hosts.iter().flat_map(line).collect()
}
