//! Which token of a module.

use std::fmt;

use serde::Deserialize;

/// How a token is told from others of the same module.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenChoice {
    /// By the label it was given when it was initialised.
    Label(String),
    /// By its serial number, as `discover` shows it.
    Serial(String),
    /// By the number of its slot. Some modules, SoftHSM among them, number anew when tokens are added: prefer the others.
    Slot(u64),
}

impl fmt::Display for TokenChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => write!(f, "the label {label:?}"),
            Self::Serial(serial) => write!(f, "the serial number {serial:?}"),
            Self::Slot(slot) => write!(f, "the slot number {slot}"),
        }
    }
}
