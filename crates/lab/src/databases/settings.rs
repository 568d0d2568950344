//! What is measured of connections to databases, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_sal::Suite;

/// How long services have to finish what connections left them to do: events and recordings under way, backends to
/// be reaped.
pub(super) const SETTLE: Duration = Duration::from_millis(1500);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds; each presses once every candidate.
    pub rounds: usize,
    /// How long one candidate is pressed in one round.
    pub seconds: f64,
    /// Connections at a time.
    pub workers: usize,
    /// Connections a second for latencies without a queue, all workers together; 0 leaves that out.
    pub rate: f64,
    /// Suites of the clusters.
    pub suites: Vec<Suite>,
    /// Suites in which the published architecture is measured.
    pub published: Vec<Suite>,
    /// Sessions that stand idle, for memory; 0 leaves that out.
    pub idle: usize,
    /// MiB of a COPY; 0 leaves that out.
    pub copy: u64,
    /// Seconds of a run of pgbench; 0 leaves that out.
    pub pgbench: u64,
    /// Where every sample goes.
    pub csv: Option<PathBuf>,
}

impl Settings {
    /// A glance, or enough to rely on.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        let all = Self {
            rounds: 3,
            seconds: 10.0,
            workers: 10,
            rate: 40.0,
            suites: vec![Suite::Legacy, Suite::BalancedV1, Suite::FipsV1, Suite::PqV1],
            published: vec![Suite::Legacy, Suite::BalancedV1],
            idle: 500,
            copy: 512,
            pgbench: 10,
            csv: None,
        };
        let one = vec![Suite::BalancedV1];
        if quick {
            Self {
                rounds: 1,
                seconds: 1.0,
                suites: one.clone(),
                published: one,
                idle: 20,
                copy: 16,
                pgbench: 1,
                ..all
            }
        } else {
            all
        }
    }
}
