//! The section `auth.lifetimes`: how long what the authorities issue may live.

use std::time::Duration;

use sallyport_access::yaml::{Problems, Section};
use sallyport_ca::lifetimes::{Change, PolicyError};
use sallyport_ca::{CertificateKind, Lifetimes, MIN_TTL};

const BOUNDS: &[&str] = &["min", "default", "max"];

/// Reads the section; without it, the table of the program is in force.
pub(super) fn read(auth: &Section<'_>, problems: &mut Problems) -> Lifetimes {
    let mut lifetimes = Lifetimes::default();
    let kinds: Vec<&str> = CertificateKind::all().map(CertificateKind::name).collect();
    let Some(section) = auth.section("lifetimes", &kinds, problems) else { return lifetimes };
    for kind in CertificateKind::all() {
        let Some(row) = section.section(kind.name(), BOUNDS, problems) else { continue };
        let (least, most) = (std_duration(MIN_TTL), std_duration(kind.row().limit));
        let mut bound = |key| {
            let read = row.duration(key, least, most, problems)?;
            time::Duration::try_from(read).ok()
        };
        let change = Change { min: bound("min"), default: bound("default"), max: bound("max") };
        if let Err(error) = lifetimes.change(kind, change) {
            let key = match error {
                PolicyError::OutOfBounds { field, .. } => field,
                PolicyError::Order { smaller, .. } => smaller,
            };
            problems.push(
                row.place(key),
                &row.name(key),
                error.to_string(),
                "write bounds with min <= default <= max",
            );
        }
    }
    lifetimes
}

fn std_duration(span: time::Duration) -> Duration {
    Duration::try_from(span).unwrap_or(Duration::MAX)
}
