//! What an operator must hear of.

use std::fmt;

use crate::Primitive;

/// Something that changed the choice of sources.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incident {
    /// A provider gave a wrong answer, or failed where it had no reason to, and is out of service for a primitive.
    Quarantined {
        /// The primitive.
        primitive: Primitive,
        /// The provider.
        provider: &'static str,
        /// What it did.
        reason: String,
        /// The provider that takes over, if one is left.
        next: Option<&'static str>,
    },
    /// A profile was measured on another machine or by another version; the preset is used.
    StaleProfile {
        /// What differs.
        reason: String,
    },
}

impl Incident {
    pub(super) fn quarantine_of(&self, of: Primitive, by: &str) -> Option<String> {
        match self {
            Self::Quarantined { primitive, provider, reason, .. } if *primitive == of && *provider == by => {
                Some(reason.clone())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quarantined { primitive, provider, reason, next } => {
                write!(f, "{provider} is out of service for {primitive}: {reason}; ")?;
                match next {
                    Some(next) => write!(f, "{next} takes over"),
                    None => f.write_str("no source is left to take over"),
                }
            }
            Self::StaleProfile { reason } => {
                write!(f, "the measured profile is not used: {reason}; run `sallyport sal tune` again")
            }
        }
    }
}
