//! The limits that sessions of every kind have: whether and where they are recorded, and how long they may last.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::factor::FactorRule;
use crate::pin::UNPINNED;
use crate::{DeviceTrust, Identity};

/// What happens to a session that cannot be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPolicy {
    /// It goes on, and the audit log says so.
    BestEffort,
    /// It ends.
    Strict,
}

impl RecordPolicy {
    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best_effort",
            Self::Strict => "strict",
        }
    }
}

/// Which host records a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RecordAt {
    /// None: the audit log has its events, and no more.
    Off,
    /// The node that it runs on, or the agent that serves it; end to end, the proxy sees ciphertext.
    #[default]
    Node,
    /// The proxy, which ends SSH: for servers that cannot record. A session of another kind is recorded by its agent.
    Proxy,
}

/// Where a session is recorded, and whether the authority has to keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingMode {
    /// Where.
    pub at: RecordAt,
    /// The session goes on only while the authority has what is older than a moment. Otherwise what is recorded may
    /// wait on the disk of the host that records.
    pub sync: bool,
}

impl RecordingMode {
    /// Every mode, as roles write it.
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("off", Self { at: RecordAt::Off, sync: false }),
        ("node", Self { at: RecordAt::Node, sync: false }),
        ("node-sync", Self { at: RecordAt::Node, sync: true }),
        ("proxy", Self { at: RecordAt::Proxy, sync: false }),
        ("proxy-sync", Self { at: RecordAt::Proxy, sync: true }),
    ];

    /// As roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let same = |known: Self| known.at == self.at && (self.at == RecordAt::Off || known.sync == self.sync);
        Self::ALL.into_iter().find(|(_, known)| same(*known)).map_or("node", |(name, _)| name)
    }
}

/// Limits of the sessions of one permit, whatever they are with: the most restrictive of what the granting roles say, else
/// what the cluster's session policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// What happens to a session that cannot be recorded. Default best effort.
    pub record_session: RecordPolicy,
    /// Where sessions are recorded. Default by the node, afterwards sent on.
    pub recording: RecordingMode,
    /// Silence after which the client is disconnected. Default none.
    pub client_idle_timeout: Option<Duration>,
    /// Longest time that a connection lasts. Default none.
    pub max_session_duration: Option<Duration>,
    /// Whether a connection ends with the certificate that opened it. Default no.
    pub disconnect_expired_cert: bool,
    /// The second factor that has to be proven before it. Default none.
    pub factor: FactorRule,
    /// What is asked of the device that a login comes from. Default nothing.
    pub device_trust: DeviceTrust,
    /// Whether the login has to be pinned to its address. Default no.
    pub pin_source_ip: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            record_session: RecordPolicy::BestEffort,
            recording: RecordingMode::default(),
            client_idle_timeout: None,
            max_session_duration: None,
            disconnect_expired_cert: false,
            factor: FactorRule::default(),
            device_trust: DeviceTrust::Optional,
            pin_source_ip: false,
        }
    }
}

impl Limits {
    /// Why a login that is pinned to no address is not enough, and what to do about it.
    pub(crate) fn unpinned(&self, identity: &Identity) -> Option<(&'static str, &'static str)> {
        (self.pin_source_ip && identity.pinned_to.is_none()).then_some(UNPINNED)
    }
}
