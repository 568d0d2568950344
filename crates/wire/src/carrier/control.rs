//! Which congestion controller a connection goes by.

use std::sync::Arc;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};

use super::congestion::RateBasedConfig;

/// A congestion controller. Connections of the cluster go by [`Congestion::RateBased`]; `lab wan congestion` compares it with those
/// that quinn has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// Our own, by the rate that the path has shown to carry.
    #[default]
    RateBased,
    /// quinn's BBR (draft-cardwell-iccrg-bbr-congestion-control), which quinn calls experimental.
    Bbr,
    /// quinn's CUBIC (RFC 9438), its default.
    Cubic,
    /// quinn's NewReno (RFC 9002 §7).
    NewReno,
}

impl Congestion {
    /// Every controller, our own first.
    pub const ALL: [Self; 4] = [Self::RateBased, Self::Bbr, Self::Cubic, Self::NewReno];

    /// As measurements name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateBased => "rate-based",
            Self::Bbr => "bbr",
            Self::Cubic => "cubic",
            Self::NewReno => "new-reno",
        }
    }

    /// `most` bounds what our own has under way; for quinn's the connection's send window does.
    pub(super) fn factory(self, most: u64) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::RateBased => Arc::new(RateBasedConfig { most }),
            Self::Bbr => Arc::new(BbrConfig::default()),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::NewReno => Arc::new(NewRenoConfig::default()),
        }
    }
}
