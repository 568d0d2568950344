//! What is asked of a report, and what came of it.

use std::path::PathBuf;

use sallyport_bench::report::Report;

use super::parts::Part;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// A glance: under two minutes with the default choice.
    Quick,
    /// As much as it takes for figures to rely on.
    Full,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything goes. It is made; when it is there, it must be empty or hold an earlier report.
    pub directory: PathBuf,
    /// How much.
    pub effort: Effort,
    /// Which measurements; empty for the set of the effort.
    pub only: Vec<&'static Part>,
    /// The command line, for the report.
    pub command: String,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The page.
    pub page: PathBuf,
    /// The measurements that were made.
    pub reports: Vec<Report>,
    /// Those that could not be made, and why.
    pub failed: Vec<(&'static str, String)>,
    /// How long everything took, in seconds.
    pub seconds: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
}
