//! The second factor for each session: what roles demand, and for which sessions a proof is.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Kind, Login};

/// How long a proof serves the sessions that it was asked for where the roles give no more: as long as a certificate of it lives.
pub const SHORTEST_GRACE: Duration = Duration::from_secs(60);
/// Longest `session_mfa_ttl`.
pub const LONGEST_GRACE: Duration = Duration::from_secs(30 * 60);
/// Bits of an IPv6 address that say whose it is (RFC 6177 §2); the rest its machine chooses anew every day or so (RFC 8981).
const SUBSCRIBER_BITS: u32 = 64;

/// From where a proof serves that was given from an address: that address, or of IPv6 its /64, whose other addresses are the same machine's
/// as a rule. Its neighbours there are what those behind one IPv4 address are.
#[must_use]
pub fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (Ipv6Addr::BITS - SUBSCRIBER_BITS))))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// What stands for the account where a session of another user is joined.
pub const JOIN_ACCOUNT: &str = "sallyport-join";

/// Whether a second factor has to be proven before a session, or what a proof of one is worth. The greater is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionFactor {
    /// None.
    #[default]
    No,
    /// Any.
    Yes,
    /// A passkey or security key that does not leave its device.
    Hardware,
}

impl SessionFactor {
    /// Every one, the strictest last.
    pub const ALL: [Self; 3] = [Self::No, Self::Yes, Self::Hardware];

    /// How roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Hardware => "hardware",
        }
    }
}

/// What is demanded of sessions, and how long a proof serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FactorRule {
    /// The factor.
    pub factor: SessionFactor,
    /// How long after it was proven a proof serves sessions of its targets. Zero: those alone that it was asked for, for
    /// [`SHORTEST_GRACE`].
    pub grace: Duration,
}

impl FactorRule {
    /// The stricter factor of two, and the shorter time of those that demand one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.factor, other.factor) {
            (SessionFactor::No, _) => other,
            (_, SessionFactor::No) => self,
            (one, another) => Self { factor: one.max(another), grace: self.grace.min(other.grace) },
        }
    }

    /// How long a proof serves.
    #[must_use]
    pub fn serves(&self) -> Duration {
        self.grace.max(SHORTEST_GRACE)
    }
}

/// What has to be proven before a session, and which session it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactorDemand {
    /// What, and for how long.
    pub rule: FactorRule,
    /// Of which session.
    pub target: SessionTarget,
}

impl FactorDemand {
    /// None where nothing is demanded.
    pub(crate) fn of(rule: FactorRule, target: impl FnOnce() -> SessionTarget) -> Option<Self> {
        (rule.factor != SessionFactor::No).then(|| Self { rule, target: target() })
    }
}

/// A session that a factor is proven for, or several of one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionTarget {
    /// What it is with.
    pub kind: Kind,
    /// Id of a node, the name of anything else: what stays.
    pub resource: String,
    /// Login of a node, user of a database; none: any. What has no accounts has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Database within its server; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_name: Option<String>,
}

impl SessionTarget {
    /// Every session with a resource.
    #[must_use]
    pub fn any(kind: Kind, resource: impl Into<String>) -> Self {
        Self { kind, resource: resource.into(), account: None, db_name: None }
    }

    /// A session with a node.
    #[must_use]
    pub fn node(id: crate::HostId, login: &Login) -> Self {
        Self { account: Some(login.to_string()), ..Self::any(Kind::Node, id.to_string()) }
    }

    /// Taking part in the session of another user on a node.
    #[must_use]
    pub fn join(id: crate::HostId) -> Self {
        Self { account: Some(JOIN_ACCOUNT.to_owned()), ..Self::any(Kind::Node, id.to_string()) }
    }

    /// Whether a proof for this is one for another session, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let open = |mine: &Option<String>, theirs: &Option<String>| mine.is_none() || mine == theirs;
        self.kind == other.kind
            && self.resource == other.resource
            && open(&self.account, &other.account)
            && open(&self.db_name, &other.db_name)
    }
}

/// What a certificate says of a second factor that was proven: for which sessions, and from where. It is evidence for as long as the
/// certificate is good, a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProof {
    /// What it is worth.
    pub factor: SessionFactor,
    /// For which sessions.
    pub targets: Vec<SessionTarget>,
    /// From where; it serves all of its [`place_of`].
    pub address: IpAddr,
    /// The factor as its user calls it, for the record.
    pub name: String,
}

impl SessionProof {
    /// Whether it is for this session, of a client that comes from there.
    #[must_use]
    pub fn serves(&self, demand: &FactorDemand, client: IpAddr) -> bool {
        self.factor >= demand.rule.factor
            && place_of(self.address) == place_of(client)
            && self.targets.iter().any(|target| target.covers(&demand.target))
    }
}

impl fmt::Display for SessionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.row().word, self.resource)?;
        if let Some(account) = &self.account {
            write!(f, " as {account}")?;
        }
        match &self.db_name {
            Some(name) => write!(f, " in {name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_covers_its_account_and_no_other_of_the_resource() {
        let id = crate::HostId::new();
        let [root, alice] = ["root", "alice"].map(|login| Login::new(login).unwrap());
        let (as_root, as_alice) = (SessionTarget::node(id, &root), SessionTarget::node(id, &alice));
        assert!(as_root.covers(&as_root));
        assert!(!as_root.covers(&as_alice) && !as_root.covers(&SessionTarget::join(id)));
        let any = SessionTarget::any(Kind::Node, id.to_string());
        assert!(any.covers(&as_root) && any.covers(&SessionTarget::join(id)));
        assert!(!as_root.covers(&any), "one account is not all");
        assert!(!any.covers(&SessionTarget::any(Kind::App, id.to_string())), "of another kind");
        assert!(!any.covers(&SessionTarget::node(crate::HostId::new(), &root)), "of another node");
    }

    #[test]
    fn a_proof_serves_its_ipv4_address_and_the_64_of_its_ipv6_address() {
        let proof = |address: &str| SessionProof {
            factor: SessionFactor::Yes,
            targets: vec![SessionTarget::any(Kind::App, "wiki")],
            address: address.parse().unwrap(),
            name: "key".to_owned(),
        };
        let rule = FactorRule { factor: SessionFactor::Yes, grace: Duration::ZERO };
        let demand = FactorDemand { rule, target: SessionTarget::any(Kind::App, "wiki") };
        let serves = |given: &str, client: &str| proof(given).serves(&demand, client.parse().unwrap());
        assert!(serves("192.0.2.1", "192.0.2.1") && serves("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!serves("192.0.2.1", "192.0.2.2") && !serves("192.0.2.1", "2001:db8::c000:201"));
        assert!(serves("2001:db8:1:2:aaaa::1", "2001:db8:1:2:bbbb:1:2:3"), "another of its machine's");
        assert!(!serves("2001:db8:1:2::1", "2001:db8:1:3::1"), "of a neighbour");
    }

    #[test]
    fn the_stricter_factor_counts_and_the_shorter_time_of_those_that_demand_one() {
        let rule = |factor, minutes: u64| FactorRule { factor, grace: Duration::from_secs(minutes * 60) };
        let (no, yes, hardware) = (SessionFactor::No, SessionFactor::Yes, SessionFactor::Hardware);
        assert_eq!(rule(yes, 5).and(rule(hardware, 10)), rule(hardware, 5));
        assert_eq!(rule(no, 0).and(rule(yes, 10)), rule(yes, 10), "who demands nothing shortens nothing");
        assert_eq!(rule(yes, 10).and(rule(no, 0)), rule(yes, 10));
        assert_eq!(rule(yes, 0).serves(), SHORTEST_GRACE);
    }
}
