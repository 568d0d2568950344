//! A decision with all that was weighed.

use std::time::Duration;

use crate::role::Role;
use crate::{Kind, Labels};

/// An answer to "why", for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the session is allowed.
    pub allowed: bool,
    /// One line.
    pub summary: String,
    /// Everything that was weighed, a line each.
    pub details: Vec<String>,
}

/// Labels, for people.
pub(super) fn show_labels(labels: &Labels) -> String {
    if labels.is_empty() {
        return "none".to_owned();
    }
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// That the labels which a role grants of a kind are not those of a resource.
pub(super) fn unfit_labels(kind: Kind, role: &Role) -> String {
    let labels: Vec<&str> = role.allow.labels.of(kind).keys().map(String::as_str).collect();
    format!("its {} ({}) do not match", kind.row().labels, labels.join(", "))
}

/// A limit of time, for people.
pub(super) fn show_span(span: Option<Duration>) -> String {
    span.map_or("none".to_owned(), crate::yaml::show)
}
