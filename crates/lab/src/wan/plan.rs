//! What a WAN looks like: hosts, the regions they stand in, and what lies between regions.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

pub use sallyport_testing::Name;

use crate::LabError;

/// Most hosts: each has an address in one small network.
pub const HOSTS_MOST: usize = 64;
/// Longest round trip and jitter. Farther than the moon and back.
const MILLISECONDS_MOST: f64 = 10_000.0;
/// Most Mbit/s that a rate may name: past it a packet takes less than the clock can tell.
const MEGABITS_MOST: f64 = 100_000.0;

/// What lies between two hosts, both ways alike.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Conditions {
    /// How long a packet and its answer take together. Zero: as soon as the machine can.
    pub round_trip: Duration,
    /// How much a packet's way may be shorter or longer than half of that, evenly; packets do not overtake each other.
    pub jitter: Duration,
    /// The share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Bits a second, each way; none: as many as the machine can.
    pub rate: Option<u64>,
}

/// Two regions, the same in both orders.
type Pair = (Name, Name);

fn pair(one: &Name, other: &Name) -> Pair {
    if one <= other { (one.clone(), other.clone()) } else { (other.clone(), one.clone()) }
}

/// One figure for one pair of regions, or for all of them: `a-b=100`, or `100`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pair: Option<Pair>,
    value: f64,
}

impl FromStr for Setting {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let number = |digits: &str| {
            let value = digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| LabError::Input(format!("{text:?}: {digits:?} is no number, zero or more")))
        };
        let Some((names, value)) = text.split_once('=') else {
            return Ok(Self { pair: None, value: number(text)? });
        };
        let (one, other) = names.split_once('-').ok_or_else(|| {
            LabError::Input(format!(
                "{text:?} names no two regions: expected a-b={value}, or {value} for all"
            ))
        })?;
        Ok(Self { pair: Some(pair(&one.parse()?, &other.parse()?)), value: number(value)? })
    }
}

/// Figures as they are given, pair by pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Round trips in milliseconds.
    pub round_trips: Vec<Setting>,
    /// Jitter in milliseconds.
    pub jitter: Vec<Setting>,
    /// Loss in percent.
    pub loss: Vec<Setting>,
    /// Rates in Mbit/s.
    pub rates: Vec<Setting>,
}

/// What lies between regions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matrix(BTreeMap<Pair, Conditions>);

impl Matrix {
    /// From figures for these regions.
    ///
    /// A pair of regions whose round trip is not given is as far apart as the shortest way by other regions; it has no
    /// jitter, no loss and no limit of its own. A figure for all pairs is for those of different regions.
    ///
    /// # Errors
    /// [`LabError::Input`] when a figure is out of its range, or names a region that is not there.
    pub fn of(regions: &[Name], settings: &Settings) -> Result<Self, LabError> {
        let mut matrix = Self::default();
        let mut known: Vec<Pair> = Vec::new();
        for setting in &settings.round_trips {
            known.extend(matrix.set(regions, Figure::RoundTrip, setting)?);
        }
        for (settings, figure) in [
            (&settings.jitter, Figure::Jitter),
            (&settings.loss, Figure::Loss),
            (&settings.rates, Figure::Rate),
        ] {
            for setting in settings {
                matrix.set(regions, figure, setting)?;
            }
        }
        matrix.fill(regions, &known);
        Ok(matrix)
    }

    /// Sets a figure, and says for which pairs.
    fn set(&mut self, regions: &[Name], figure: Figure, setting: &Setting) -> Result<Vec<Pair>, LabError> {
        let pairs = match &setting.pair {
            Some(named) => {
                if let Some(unknown) = [&named.0, &named.1].into_iter().find(|one| !regions.contains(one)) {
                    return Err(LabError::Input(format!("no host stands in region {unknown}")));
                }
                vec![named.clone()]
            }
            None => every_pair(regions),
        };
        for one in &pairs {
            figure.set(self.0.entry(one.clone()).or_default(), setting.value)?;
        }
        Ok(pairs)
    }

    /// The same, with these conditions between two regions, or within one.
    #[must_use]
    pub fn with(mut self, one: &Name, other: &Name, conditions: Conditions) -> Self {
        self.0.insert(pair(one, other), conditions);
        self
    }

    /// Between two regions, or within one.
    #[must_use]
    pub fn between(&self, one: &Name, other: &Name) -> Conditions {
        self.0.get(&pair(one, other)).copied().unwrap_or_default()
    }

    /// Gives pairs without a figure the round trip of the shortest way (Floyd and Warshall's).
    fn fill(&mut self, regions: &[Name], known: &[Pair]) {
        let mut shortest: BTreeMap<Pair, Duration> =
            known.iter().map(|one| (one.clone(), self.between(&one.0, &one.1).round_trip)).collect();
        for by in regions {
            for one in every_pair(regions) {
                if known.contains(&one) || one.0 == *by || one.1 == *by {
                    continue;
                }
                let (there, on) = (shortest.get(&pair(&one.0, by)), shortest.get(&pair(by, &one.1)));
                let (Some(there), Some(on)) = (there, on) else { continue };
                let sum = *there + *on;
                let best = shortest.get(&one).map_or(sum, |best| sum.min(*best));
                shortest.insert(one, best);
            }
        }
        for (one, round_trip) in shortest {
            self.0.entry(one).or_default().round_trip = round_trip;
        }
    }
}

/// Which figure a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    RoundTrip,
    Jitter,
    Loss,
    Rate,
}

/// A figure that changes while the WAN is up: `10:rtt:a-b=300`, after ten seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    after: Duration,
    figure: Figure,
    setting: Setting,
}

impl FromStr for Change {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        /// Longest time to a change: a day.
        const SECONDS_MOST: f64 = 86_400.0;
        let wrong = |what: &str| {
            LabError::Input(format!("{text:?}: {what}; expected SECONDS:rtt|jitter|loss|rate:A-B=VALUE"))
        };
        let mut parts = text.splitn(3, ':');
        let (Some(seconds), Some(figure), Some(setting)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("is no change"));
        };
        let seconds = seconds.parse::<f64>().ok().filter(|seconds| (0.0..=SECONDS_MOST).contains(seconds));
        let figure = match figure {
            "rtt" => Figure::RoundTrip,
            "jitter" => Figure::Jitter,
            "loss" => Figure::Loss,
            "rate" => Figure::Rate,
            _ => return Err(wrong("names no figure")),
        };
        Ok(Self {
            after: Duration::from_secs_f64(
                seconds.ok_or_else(|| wrong("says no time of 0 to 86400 seconds"))?,
            ),
            figure,
            setting: setting.parse()?,
        })
    }
}

impl Figure {
    fn set(self, conditions: &mut Conditions, value: f64) -> Result<(), LabError> {
        let within = |most: f64, unit: &str| {
            if value <= most {
                Ok(())
            } else {
                Err(LabError::Input(format!("{value}: expected at most {most} {unit}")))
            }
        };
        let milliseconds = || Duration::from_secs_f64(value / 1e3);
        match self {
            Self::RoundTrip => {
                within(MILLISECONDS_MOST, "ms")?;
                conditions.round_trip = milliseconds();
            }
            Self::Jitter => {
                within(MILLISECONDS_MOST, "ms")?;
                conditions.jitter = milliseconds();
            }
            Self::Loss => {
                within(100.0, "percent")?;
                conditions.loss = value / 100.0;
            }
            Self::Rate => {
                within(MEGABITS_MOST, "Mbit/s")?;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
                let bits = (value * 1e6) as u64;
                conditions.rate = (bits > 0).then_some(bits);
            }
        }
        Ok(())
    }
}

fn every_pair(regions: &[Name]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = regions
        .iter()
        .flat_map(|one| regions.iter().filter(move |other| one < *other).map(move |other| pair(one, other)))
        .collect();
    pairs.sort();
    pairs.dedup();
    pairs
}

/// A host and its region: `client=a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The host.
    pub host: Name,
    /// Where it stands.
    pub region: Name,
}

impl FromStr for Placed {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let (host, region) = text.split_once('=').ok_or_else(|| {
            LabError::Input(format!("{text:?} puts no host into a region: expected client=a"))
        })?;
        Ok(Self { host: host.parse()?, region: region.parse()? })
    }
}

/// A whole WAN.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its hosts.
    pub hosts: Vec<Placed>,
    /// What lies between their regions.
    pub matrix: Matrix,
    /// What lies between them later, and how long after the WAN came up.
    pub changes: Vec<(Duration, Matrix)>,
    /// What losses and jitter are drawn from: the same packets meet the same fate again.
    pub seed: u64,
}

impl Plan {
    /// From hosts and figures. Without hosts there is one in each region that the figures name, called like it.
    ///
    /// # Errors
    /// [`LabError::Input`] when there are fewer than two hosts or too many, one is there twice, or a figure is out of its
    /// range.
    pub fn of(hosts: Vec<Placed>, settings: &Settings, seed: u64) -> Result<Self, LabError> {
        let hosts = if hosts.is_empty() { one_each(settings) } else { hosts };
        if !(2..=HOSTS_MOST).contains(&hosts.len()) {
            return Err(LabError::Input(format!(
                "a WAN of {} hosts: expected 2 to {HOSTS_MOST}, as by --rtt a-b=100 or --host client=a --host proxy=b",
                hosts.len()
            )));
        }
        for (index, one) in hosts.iter().enumerate() {
            if hosts.iter().skip(index + 1).any(|other| other.host == one.host) {
                return Err(LabError::Input(format!("host {} is there twice", one.host)));
            }
        }
        let matrix = Matrix::of(&regions(&hosts), settings)?;
        Ok(Self { hosts, matrix, changes: Vec::new(), seed })
    }

    /// The same, with changes, each of which is on top of those before it.
    ///
    /// # Errors
    /// [`LabError::Input`] as in [`Self::of`].
    pub fn then(mut self, changes: &[Change]) -> Result<Self, LabError> {
        let regions = regions(&self.hosts);
        let mut in_order: Vec<&Change> = changes.iter().collect();
        in_order.sort_by_key(|change| change.after);
        let mut matrix = self.matrix.clone();
        for change in in_order {
            matrix.set(&regions, change.figure, &change.setting)?;
            self.changes.push((change.after, matrix.clone()));
        }
        Ok(self)
    }
}

/// The regions that hosts stand in.
fn regions(hosts: &[Placed]) -> Vec<Name> {
    let mut regions: Vec<Name> = hosts.iter().map(|placed| placed.region.clone()).collect();
    regions.sort();
    regions.dedup();
    regions
}

/// A host for each region that a figure names.
fn one_each(settings: &Settings) -> Vec<Placed> {
    let all = [&settings.round_trips, &settings.jitter, &settings.loss, &settings.rates];
    let pairs = all.into_iter().flatten().filter_map(|setting| setting.pair.as_ref());
    let mut names: Vec<Name> = pairs.flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| Placed { host: name.clone(), region: name }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(round_trips: &[&str]) -> Settings {
        Settings {
            round_trips: round_trips.iter().map(|text| text.parse().unwrap()).collect(),
            ..Settings::default()
        }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn regions_become_hosts_and_unnamed_pairs_go_the_shortest_way() {
        let plan = Plan::of(Vec::new(), &settings(&["a-b=100", "c-b=20", "a-a=1"]), 1).unwrap();
        let hosts: Vec<_> = plan.hosts.iter().map(|placed| placed.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b", "c"]);
        let rtt = |one: &str, other: &str| {
            plan.matrix.between(&name(one), &name(other)).round_trip.as_secs_f64() * 1e3
        };
        assert!((rtt("b", "a") - 100.0).abs() < 1e-9 && (rtt("b", "c") - 20.0).abs() < 1e-9);
        assert!((rtt("a", "c") - 120.0).abs() < 1e-9, "by way of b");
        assert!((rtt("a", "a") - 1.0).abs() < 1e-9 && rtt("b", "b").abs() < 1e-9);
        let named = Plan::of(Vec::new(), &settings(&["a-b=100", "b-c=20", "a-c=90"]), 1).unwrap();
        assert_eq!(named.matrix.between(&name("a"), &name("c")).round_trip, Duration::from_millis(90));
    }

    #[test]
    fn a_figure_without_names_is_for_all_pairs_of_different_regions() {
        let all = Settings {
            round_trips: vec!["a-b=10".parse().unwrap()],
            loss: vec!["1".parse().unwrap()],
            rates: vec!["a-b=8".parse().unwrap(), "a-b=0".parse().unwrap()],
            jitter: vec!["a-b=2".parse().unwrap()],
        };
        let plan = Plan::of(Vec::new(), &all, 1).unwrap();
        let between = plan.matrix.between(&name("a"), &name("b"));
        assert!((between.loss - 0.01).abs() < 1e-12);
        assert_eq!((between.rate, between.jitter), (None, Duration::from_millis(2)));
        assert!(plan.matrix.between(&name("a"), &name("a")).loss.abs() < 1e-12);
    }

    #[test]
    fn hosts_stand_where_they_are_put() {
        let hosts = ["client=a", "proxy=b", "host=b"].iter().map(|text| text.parse().unwrap()).collect();
        let plan = Plan::of(hosts, &settings(&["a-b=100"]), 1).unwrap();
        assert_eq!(plan.hosts[2].region, name("b"));
    }

    #[test]
    fn changes_are_on_top_of_each_other_in_the_order_of_time() {
        let changes: Vec<Change> = ["5:loss:100", "1.5:rtt:b-a=300", "9:loss:a-b=0"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let plan = Plan::of(Vec::new(), &settings(&["a-b=100"]), 1).unwrap().then(&changes).unwrap();
        let between = |matrix: &Matrix| {
            let between = matrix.between(&name("a"), &name("b"));
            (between.round_trip.as_millis(), between.loss > 0.5)
        };
        let all: Vec<_> = plan.changes.iter().map(|(at, matrix)| (at.as_millis(), between(matrix))).collect();
        assert_eq!(all, [(1500, (300, false)), (5000, (300, true)), (9000, (300, false))]);
        assert_eq!(between(&plan.matrix), (100, false));
        for (text, why) in
            [("5", "no change"), ("x:rtt:1", "no time"), ("1:mtu:1", "no figure"), ("1:rtt:ab=1", "no two")]
        {
            assert!(text.parse::<Change>().unwrap_err().to_string().contains(why), "{text}");
        }
        let plan = Plan::of(Vec::new(), &settings(&["a-b=100"]), 1).unwrap();
        assert!(plan.then(&["1:rtt:a-c=1".parse().unwrap()]).unwrap_err().to_string().contains("region c"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        let refusal = |text: &str| text.parse::<Setting>().unwrap_err().to_string();
        assert!(refusal("ab=1").contains("no two regions"));
        assert!(refusal("a-b=x").contains("no number"));
        assert!(refusal("a-b=-1").contains("no number"));
        assert!(refusal("A-b=1").contains("lower-case"));
        assert!(refusal("a-abcdefghijk=1").contains("1 to 10"));
        assert!("client".parse::<Placed>().unwrap_err().to_string().contains("client=a"));
        let plan = |hosts: &[&str], rtt: &[&str]| {
            let hosts = hosts.iter().map(|text| text.parse().unwrap()).collect();
            Plan::of(hosts, &settings(rtt), 1).unwrap_err().to_string()
        };
        assert!(plan(&[], &[]).contains("0 hosts"));
        assert!(plan(&["x=a", "x=b"], &[]).contains("twice"));
        assert!(plan(&["x=a", "y=b"], &["a-c=1"]).contains("region c"));
        assert!(plan(&[], &["a-b=1e9"]).contains("at most"));
    }
}
