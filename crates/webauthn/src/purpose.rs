//! What a ceremony is, and what it is for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a ceremony is for. A response serves for what its ceremony was begun for, and for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// To log in.
    Login,
    /// To confirm one act of a user who is logged in.
    StepUp,
    /// To add a factor: a registration, or the confirmation by another passkey ahead of it.
    AddFactor,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Login => "a login",
            Self::StepUp => "a confirmation",
            Self::AddFactor => "adding a factor",
        })
    }
}

/// Which of the two ceremonies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ceremony {
    Registration,
    Authentication,
}

impl Ceremony {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::Authentication => "authentication",
        }
    }
}
