//! What changed between two reports.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{AtFile, BenchError};

/// The file of a report that programs read, by which a directory is known to hold one.
pub const REPORT: &str = "report.json";
/// The most that is read of a report, in bytes.
const MOST: u64 = 64 << 20;
/// A difference of the medians that is not worth a word, where the intervals are narrower than that.
const SAME: f64 = 0.02;

/// A report, as it was written.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Written {
    /// Version of the program that wrote it.
    #[serde(default)]
    pub version: String,
    /// Its measurements.
    #[serde(default)]
    pub measurements: Vec<Measurement>,
}

/// One measurement of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Measurement {
    /// Its name.
    pub measurement: String,
    /// The machine.
    pub machine: Machine,
    /// How noisy it was.
    pub noise: Noise,
    /// The figures.
    pub rows: Vec<Row>,
}

/// What a comparison needs to know of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    optimised: bool,
}

/// What it needs to know of noise: shares and loads as in [`crate::machine::Noise`].
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Noise {
    seconds: f64,
    load_before: f64,
    load_after: f64,
    stolen: f64,
    busy: f64,
}

impl Noise {
    fn warning(&self) -> Option<String> {
        let Self { seconds, load_before, load_after, stolen, busy } = *self;
        crate::machine::Noise { seconds, load_before, load_after, stolen, busy }.warning()
    }
}

/// Figures of one thing.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    figures: Vec<Figure>,
}

impl Row {
    /// A figure by its name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.value)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Figure {
    name: String,
    value: Option<f64>,
    interval: Option<[f64; 2]>,
}

/// Reads the report in a directory, or the file of one.
///
/// # Errors
/// [`BenchError`] when there is none, or it is not one.
pub fn read(directory: &Path) -> Result<Written, BenchError> {
    let path = if directory.is_dir() { directory.join(REPORT) } else { directory.to_owned() };
    let metadata = fs::metadata(&path).at("read", &path)?;
    if !metadata.is_file() || metadata.len() > MOST {
        return Err(BenchError::NotAFile { path, most_mib: MOST >> 20 });
    }
    let text = fs::read_to_string(&path).at("read", &path)?;
    let written: Written = match serde_json::from_str(&text) {
        Ok(written) => written,
        Err(source) => return Err(BenchError::Malformed { path, source }),
    };
    if written.measurements.is_empty() {
        return Err(BenchError::Empty { path });
    }
    Ok(written)
}

/// What can be said of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The second is larger, and the intervals are apart.
    Larger,
    /// The second is smaller, and the intervals are apart.
    Smaller,
    /// The intervals overlap: no difference can be told.
    Untold,
    /// Computed or counted figures that are equal, or medians within two percent.
    Same,
    /// One figure has no interval, so that noise cannot be told from change.
    Unknown,
}

impl Change {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Untold => "no difference to tell",
            Self::Same => "same",
            Self::Unknown => "no interval",
        }
    }
}

/// One figure that both reports have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Which measurement.
    pub measurement: String,
    /// Which row.
    pub what: String,
    /// Which figure, with its unit.
    pub figure: String,
    /// In the first report.
    pub first: f64,
    /// In the second.
    pub second: f64,
    /// The second as a multiple of the first; none when the first is zero.
    pub ratio: Option<f64>,
    /// What can be said of it.
    pub change: Change,
}

/// Both reports, side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Figures that both have.
    pub differences: Vec<Difference>,
    /// Rows of one alone, with which one it is (1 or 2).
    pub alone: Vec<(String, usize)>,
    /// Why some of it is to be taken with care.
    pub warnings: Vec<String>,
}

/// Compares two reports, figure by figure.
#[must_use]
pub fn compare(first: &Written, second: &Written) -> Comparison {
    let mut comparison = Comparison { differences: Vec::new(), alone: Vec::new(), warnings: Vec::new() };
    warn(&mut comparison.warnings, first, second);
    let find = |written: &Written, measurement: &str, what: &str| -> Option<Row> {
        let found = written.measurements.iter().find(|one| one.measurement == measurement)?;
        found.rows.iter().find(|row| row.what == what).cloned()
    };
    for measurement in &first.measurements {
        for row in &measurement.rows {
            let Some(other) = find(second, &measurement.measurement, &row.what) else {
                comparison.alone.push((format!("{}: {}", measurement.measurement, row.what), 1));
                continue;
            };
            for figure in &row.figures {
                let theirs = other.figures.iter().find(|one| one.name == figure.name);
                let (Some(a), Some((theirs, b))) =
                    (figure.value, theirs.and_then(|theirs| Some((theirs, theirs.value?))))
                else {
                    continue;
                };
                comparison.differences.push(Difference {
                    measurement: measurement.measurement.clone(),
                    what: row.what.clone(),
                    figure: figure.name.clone(),
                    first: a,
                    second: b,
                    ratio: (a != 0.0).then(|| b / a),
                    change: change((a, figure.interval), (b, theirs.interval)),
                });
            }
        }
    }
    for measurement in &second.measurements {
        for row in &measurement.rows {
            if find(first, &measurement.measurement, &row.what).is_none() {
                comparison.alone.push((format!("{}: {}", measurement.measurement, row.what), 2));
            }
        }
    }
    comparison
}

fn change((a, first): (f64, Option<[f64; 2]>), (b, second): (f64, Option<[f64; 2]>)) -> Change {
    let near = (b - a).abs() <= SAME * a.abs().max(b.abs());
    match (first, second) {
        (Some([low, high]), Some([other_low, other_high])) => match (other_low > high, other_high < low) {
            _ if near => Change::Same,
            (true, _) => Change::Larger,
            (_, true) => Change::Smaller,
            (false, false) => Change::Untold,
        },
        _ if near => Change::Same,
        _ => Change::Unknown,
    }
}

fn warn(warnings: &mut Vec<String>, first: &Written, second: &Written) {
    let machines = |written: &Written| written.measurements.first().map(|one| one.machine.clone());
    if let (Some(one), Some(other)) = (machines(first), machines(second))
        && one != other
    {
        let line = |machine: &Machine| {
            let build = if machine.optimised { "" } else { ", unoptimised build" };
            format!("{} x {}, Linux {}{build}", machine.processors, machine.processor, machine.kernel)
        };
        warnings.push(format!("the machines or builds differ: {}; {}", line(&one), line(&other)));
    }
    if first.version != second.version {
        warnings.push(format!("the versions differ: {:?}; {:?}", first.version, second.version));
    }
    for (number, written) in [(1, first), (2, second)] {
        for measurement in &written.measurements {
            let name = &measurement.measurement;
            if !measurement.machine.optimised {
                warnings
                    .push(format!("{name} of report {number} is of an unoptimised build: it means nothing"));
            }
            if let Some(warning) = measurement.noise.warning() {
                warnings.push(format!("{name} of report {number}: {warning}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Talk;
    use crate::machine::Watch;
    use crate::report::{Report, Row as Given};
    use crate::statistics::Samples;

    fn written(values: &[f64], bytes: f64) -> Written {
        let samples: Samples = values.iter().copied().collect();
        let report = Report {
            rows: vec![
                Given::new("rsa-2048").measured("sign µs", 1, &samples).with("bytes", 0, bytes),
                Given::new(format!("only {bytes}")).with("x", 0, 1.0),
            ],
            ..Report::of("keys", &Watch::begin(), &Talk::silent())
        };
        let text = serde_json::json!({"measurements": [report]}).to_string();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_change_is_told_from_noise_by_the_intervals() {
        let before = written(&[10.0, 10.1, 10.2, 9.9, 10.0, 10.1], 100.0);
        for (values, expected) in [
            ([20.0, 20.2, 19.9, 20.0, 20.1, 20.0], Change::Larger),
            ([5.0, 5.2, 4.9, 5.0, 5.1, 5.0], Change::Smaller),
            ([10.0, 14.0, 9.0, 15.0, 11.0, 12.0], Change::Untold),
            ([10.1, 10.1, 10.2, 9.9, 10.0, 10.1], Change::Same),
        ] {
            let comparison = compare(&before, &written(&values, 150.0));
            let [sign, bytes] = comparison.differences.as_slice() else { panic!("{comparison:?}") };
            assert_eq!((sign.change, bytes.change), (expected, Change::Unknown), "{comparison:?}");
            assert_eq!(bytes.ratio, Some(1.5));
            assert_eq!(comparison.alone.len(), 2);
        }
    }

    #[test]
    fn what_is_no_report_is_told() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap_err().to_string().contains("report.json"));
        let path = directory.path().join(REPORT);
        for (text, why) in [("not json", "expected"), ("{}", "no measurements"), ("[1]", "invalid")] {
            fs::write(&path, text).unwrap();
            let error = read(directory.path()).unwrap_err().to_string();
            assert!(error.contains("is not a report") && error.contains(why), "{error}");
        }
        assert!(read(&directory.path().join("nowhere")).is_err());
    }
}
