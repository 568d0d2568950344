//! What a scan says of a server.

use sallyport_sal::strength::Problem;
use serde::Serialize;

use crate::offers::Level;

/// Something to know, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// What it is about: `TLS 1.0`, `certificate, rsa-1024`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What to do.
    pub change: Option<String>,
}

impl Finding {
    pub(super) fn new(level: Level, what: &str, reason: String) -> Self {
        Self { level, what: what.to_owned(), reason, change: None }
    }

    pub(super) fn change(mut self, change: String) -> Self {
        self.change = Some(change);
        self
    }
}

/// What is wrong with an RSA key below 2048 bits, in the words of `lab strength`.
pub(super) fn short_rsa(bits: usize) -> String {
    match u32::try_from(bits).map(Problem::rsa) {
        Ok(Ok(problem)) => {
            let strength = problem.assess();
            let word = strength.verdict.name();
            let said = strength.reason.strip_prefix(word).unwrap_or(&strength.reason).trim_start();
            format!("RSA with {bits} bits is {word}: {said}")
        }
        _ => format!("RSA with {bits} bits is broken: anyone factors it at home"),
    }
}
