//! The parts of a cluster, each on a host of its own, in the regions a, b and c.

use std::fmt::Write as _;
use std::net::IpAddr;

use sallyport_testing::{Site, Sites};

use super::plan::{Matrix, Name, Placed, Plan, Settings};
use super::{Host, Wan};
use crate::LabError;

/// The parts, which are the hosts of the WAN.
pub(super) const HOSTS: [&str; 3] = ["client", "proxy", "host"];
/// The regions.
const REGIONS: [&str; 3] = ["a", "b", "c"];
/// Round trips where none are given: the proxy is on the way from the client to the host.
const ROUND_TRIPS: [&str; 6] = ["a-b=50", "b-c=50", "a-c=100", "a-a=0.5", "b-b=0.5", "c-c=0.5"];

/// Brings it up, with one part in each region; `figures` are what is not as usual, which is 50 ms from a to b and from b to
/// c, 100 ms from a to c, and 0.5 ms within a region.
///
/// # Errors
/// As [`Wan::up`], and for figures that make no sense.
pub fn up(figures: &Settings, seed: u64) -> Result<(Wan, Sites), LabError> {
    let (names, matrix) = (regions()?, matrix(figures)?);
    let placed = |(host, region): (&&str, &Name)| {
        Ok::<_, LabError>(Placed { host: host.parse()?, region: region.clone() })
    };
    let hosts = HOSTS.iter().zip(&names).map(placed).collect::<Result<_, _>>()?;
    let wan = Wan::up(&Plan { hosts, matrix, changes: Vec::new(), seed })?;
    let site = |name: &str| {
        wan.host(name).map(Site::from).ok_or_else(|| LabError::Input(format!("there is no host {name}")))
    };
    let sites = Sites { client: site("client")?, proxy: site("proxy")?, host: site("host")? };
    Ok((wan, sites))
}

impl From<&Host> for Site {
    fn from(host: &Host) -> Self {
        Self::of(IpAddr::V4(host.v4), host.namespace.clone())
    }
}

fn regions() -> Result<Vec<Name>, LabError> {
    REGIONS.iter().map(|region| Ok(region.parse()?)).collect()
}

/// What lies between the regions with these figures.
///
/// # Errors
/// For figures that make no sense.
pub fn matrix(figures: &Settings) -> Result<Matrix, LabError> {
    let usual: Vec<_> = ROUND_TRIPS.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let mut figures = figures.clone();
    // What is given comes later, and stands.
    figures.round_trips.splice(0..0, usual);
    Matrix::of(&regions()?, &figures)
}

/// What lies between the regions, in words.
pub(crate) fn conditions(wan: &Wan, seed: u64) -> String {
    let mut pairs = Vec::new();
    for (index, one) in REGIONS.iter().enumerate() {
        for other in REGIONS.iter().skip(index) {
            let (Ok(first), Ok(second)) = (one.parse::<Name>(), other.parse::<Name>()) else { continue };
            let between = wan.matrix().between(&first, &second);
            let mut said = format!("{one}-{other} {} ms", between.round_trip.as_secs_f64() * 1e3);
            if between.loss > 0.0 {
                let _ = write!(said, " losing {} %", between.loss * 100.0);
            }
            if let Some(rate) = between.rate {
                let _ = write!(said, " at {} Mbit/s", rate / 1_000_000);
            }
            pairs.push(said);
        }
    }
    format!("round trips: {}; seed {seed}", pairs.join(", "))
}
