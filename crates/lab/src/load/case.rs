//! What is compared with each other.

use std::time::Duration;

use super::client::Target;
use super::outcome::{Mode, Outcome};

/// One server, one certificate, one way of connecting.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) server: String,
    /// The type of key, `plain` without TLS; empty where only the server knows.
    pub(super) certificate: String,
    pub(super) mode: Mode,
    pub(super) target: Target,
    /// Processes that answer, as far as they are known.
    pub(super) processes: Vec<u32>,
    /// Whether the lab started it, and so knows where it runs.
    pub(super) ours: bool,
    pub(super) ceiling: bool,
    /// How long a request took, at first or since: the longest median.
    pub(super) takes: Duration,
    pub(super) outcome: Outcome,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let parts = [self.server.as_str(), self.certificate.as_str(), self.mode.name()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// What has the same server and mode, with another certificate.
    pub(super) fn beside<'a>(&self, cases: &'a [Self], certificate: &str) -> Option<&'a Outcome> {
        let mode = if certificate == PLAIN && self.mode == Mode::Resumed { Mode::New } else { self.mode };
        cases
            .iter()
            .find(|case| case.server == self.server && case.mode == mode && case.certificate == certificate)
            .map(|case| &case.outcome)
    }
}

/// The certificate of a server without TLS.
pub(super) const PLAIN: &str = "plain";
