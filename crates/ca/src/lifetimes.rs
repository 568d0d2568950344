//! How long what is issued may live: one table, and a policy within it.

use std::fmt;
use std::str::FromStr;

use sallyport_sal::KeyPurpose;
use serde::{Deserialize, Serialize};
use time::Duration;

use crate::{CaError, CaKind};

/// What is issued, by who holds it and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CertificateKind {
    /// A person who logged in: SSH and X.509.
    User,
    /// A session in the browser, whose keys the proxy holds: SSH and X.509.
    WebSession,
    /// A machine user, whose certificates it renews itself: SSH and X.509.
    Bot,
    /// A person at stock OpenSSH servers: SSH.
    OpensshUser,
    /// A node, a proxy or the authority: SSH and X.509.
    Host,
    /// A stock OpenSSH server: SSH.
    OpensshHost,
    /// A proxy that speaks to one agent for a user: X.509.
    ProxyToAgent,
    /// An agent that logs in to a database: X.509.
    AgentToDatabase,
    /// A database server: X.509.
    DatabaseServer,
    /// A workload: X.509-SVID.
    Svid,
    /// A user at an application: JWT.
    Jwt,
    /// A workload: JWT-SVID.
    JwtSvid,
    /// The cluster at a cloud provider: JWT.
    Oidc,
}

/// Bounds of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Shortest.
    pub min: Duration,
    /// What is given where no lifetime is asked for.
    pub default: Duration,
    /// Longest.
    pub max: Duration,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What is issued.
    pub kind: CertificateKind,
    /// Who signs it.
    pub authority: CaKind,
    /// The bounds where the configuration says nothing.
    pub bounds: Bounds,
    /// Longest that the configuration may allow.
    pub limit: Duration,
    /// What it is, in words.
    pub what: &'static str,
}

/// Shortest lifetime of anything. Shorter ones die of the differences between clocks.
pub const MIN_TTL: Duration = Duration::minutes(1);

const HOUR: Duration = Duration::hours(1);
const DAY: Duration = Duration::days(1);

/// A row: the shortest is one minute, but where renewal takes hands or a program that runs now and then.
const fn row(
    kind: CertificateKind,
    authority: CaKind,
    [default, max, limit]: [Duration; 3],
    what: &'static str,
) -> Row {
    Row { kind, authority, bounds: Bounds { min: MIN_TTL, default, max }, limit, what }
}

/// Every kind. `docs/certificates.md` prints it, and a test compares the two.
pub const TABLE: &[Row] = &[
    // Users' are bounded by their roles, too. After a week, a stolen laptop should be no problem any more.
    row(
        CertificateKind::User,
        CaKind::User,
        [Duration::hours(12), Duration::days(7), Duration::days(7)],
        "a person who logged in",
    ),
    row(
        CertificateKind::WebSession,
        CaKind::User,
        [Duration::hours(12), DAY, Duration::days(7)],
        "a session in the browser",
    ),
    // A bot renews: its certificate has to outlast a failed attempt or two, not a weekend.
    row(CertificateKind::Bot, CaKind::User, [HOUR, DAY, Duration::days(7)], "a machine user"),
    row(
        CertificateKind::OpensshUser,
        CaKind::Openssh,
        [Duration::hours(12), DAY, Duration::days(7)],
        "a person at stock OpenSSH servers",
    ),
    // Agents renew before two thirds of it; the maximum lets one be away for a quarter of a year.
    row(
        CertificateKind::Host,
        CaKind::Host,
        [Duration::days(7), Duration::days(90), Duration::days(90)],
        "a node, a proxy or the authority",
    ),
    // A person or their tool renews these: a year, and at most the two that administrators plan for.
    row(
        CertificateKind::OpensshHost,
        CaKind::Host,
        [Duration::days(90), Duration::days(365), Duration::days(730)],
        "a stock OpenSSH server",
    ),
    row(
        CertificateKind::ProxyToAgent,
        CaKind::User,
        [HOUR, DAY, DAY],
        "a proxy that speaks to one agent for a user",
    ),
    // Made for each connection.
    row(
        CertificateKind::AgentToDatabase,
        CaKind::DbClient,
        [Duration::minutes(10), HOUR, DAY],
        "an agent that logs in to a database",
    ),
    // 825 days is what verifiers that have a limit at all accept of a server.
    row(
        CertificateKind::DatabaseServer,
        CaKind::Db,
        [Duration::days(90), Duration::days(365), Duration::days(825)],
        "a database server",
    ),
    row(
        CertificateKind::Svid,
        CaKind::Spiffe,
        [HOUR, DAY, Duration::days(7)],
        "a workload, as an X.509-SVID",
    ),
    // A token is a bearer's: every reader has it.
    row(
        CertificateKind::Jwt,
        CaKind::Jwt,
        [Duration::minutes(10), HOUR, DAY],
        "a user at an application, as a JWT",
    ),
    row(
        CertificateKind::JwtSvid,
        CaKind::Spiffe,
        [Duration::minutes(5), HOUR, DAY],
        "a workload, as a JWT-SVID",
    ),
    row(
        CertificateKind::Oidc,
        CaKind::OidcIdp,
        [Duration::minutes(10), HOUR, DAY],
        "the cluster at a cloud provider, as a JWT",
    ),
];

impl CertificateKind {
    /// The name in configuration, commands and records, such as `database_server`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::WebSession => "web_session",
            Self::Bot => "bot",
            Self::OpensshUser => "openssh_user",
            Self::Host => "host",
            Self::OpensshHost => "openssh_host",
            Self::ProxyToAgent => "proxy_to_agent",
            Self::AgentToDatabase => "agent_to_database",
            Self::DatabaseServer => "database_server",
            Self::Svid => "svid",
            Self::Jwt => "jwt",
            Self::JwtSvid => "jwt_svid",
            Self::Oidc => "oidc",
        }
    }

    /// Every kind, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.kind)
    }

    /// Its row.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // A test has every kind in its place.
        TABLE.get(self as usize).unwrap_or(&FIRST)
    }

    /// Who signs it.
    #[must_use]
    pub fn authority(self) -> CaKind {
        self.row().authority
    }

    /// The purpose of the SSH key that it certifies, if it does.
    #[must_use]
    pub const fn ssh_purpose(self) -> Option<KeyPurpose> {
        match self {
            Self::User | Self::OpensshUser => Some(KeyPurpose::UserSsh),
            Self::WebSession => Some(KeyPurpose::WebSessionSsh),
            Self::Bot => Some(KeyPurpose::BotSsh),
            Self::Host | Self::OpensshHost => Some(KeyPurpose::HostSsh),
            _ => None,
        }
    }

    /// The purpose of the TLS key that it certifies, if it does.
    #[must_use]
    pub const fn tls_purpose(self) -> Option<KeyPurpose> {
        match self {
            Self::User => Some(KeyPurpose::UserTls),
            Self::WebSession => Some(KeyPurpose::WebSessionTls),
            Self::Bot => Some(KeyPurpose::BotTls),
            Self::Host => Some(KeyPurpose::HostTls),
            Self::ProxyToAgent => Some(KeyPurpose::ProxyToAgent),
            Self::AgentToDatabase => Some(KeyPurpose::AgentToDatabase),
            Self::DatabaseServer => Some(KeyPurpose::DatabaseServer),
            Self::Svid => Some(KeyPurpose::Svid),
            _ => None,
        }
    }

    /// Refuses a lifetime that no configuration could allow.
    pub(crate) fn check(self, ttl: Duration) -> Result<(), CaError> {
        within(ttl, MIN_TTL, self.row().limit)
    }
}

static FIRST: Row = row(CertificateKind::User, CaKind::User, [MIN_TTL; 3], "");

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no kind of certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of certificate {got:?}; the kinds are {known}", known = CertificateKind::all().map(CertificateKind::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownKind {
    /// The word given.
    pub got: String,
}

impl FromStr for CertificateKind {
    type Err = UnknownKind;
    /// Takes `database-server` as well as `database_server`.
    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let wanted = text.replace('-', "_");
        Self::all().find(|kind| kind.name() == wanted).ok_or_else(|| UnknownKind { got: text.to_owned() })
    }
}

/// What an operator changes of a row; the rest stays as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Shortest.
    pub min: Option<Duration>,
    /// What is given where no lifetime is asked for.
    pub default: Option<Duration>,
    /// Longest.
    pub max: Option<Duration>,
}

/// Why a change of a row cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Outside what this build allows.
    #[error("{field} is {got}, expected {least} to {most}", got = Words(*got), least = Words(*least), most = Words(*most))]
    OutOfBounds {
        /// `min`, `default` or `max`.
        field: &'static str,
        /// What was given.
        got: Duration,
        /// Shortest.
        least: Duration,
        /// Longest.
        most: Duration,
    },
    /// `min` ≤ `default` ≤ `max` does not hold.
    #[error("{smaller} is longer than {larger}")]
    Order {
        /// The field that should be the shorter one.
        smaller: &'static str,
        /// The field that should be the longer one.
        larger: &'static str,
    },
}

/// The lifetimes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetimes {
    bounds: Vec<Bounds>,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { bounds: TABLE.iter().map(|row| row.bounds).collect() }
    }
}

impl Lifetimes {
    /// The bounds of a kind.
    #[must_use]
    pub fn bounds(&self, kind: CertificateKind) -> Bounds {
        self.bounds.get(kind as usize).copied().unwrap_or(kind.row().bounds)
    }

    /// Changes the bounds of a kind. A default that is not given moves into the new bounds.
    ///
    /// # Errors
    /// [`PolicyError`] when they are not in order, or beyond the limit of the table.
    pub fn change(&mut self, kind: CertificateKind, change: Change) -> Result<(), PolicyError> {
        let (old, limit) = (self.bounds(kind), kind.row().limit);
        for (field, value) in [("min", change.min), ("default", change.default), ("max", change.max)] {
            if let Some(got) = value.filter(|value| *value < MIN_TTL || *value > limit) {
                return Err(PolicyError::OutOfBounds { field, got, least: MIN_TTL, most: limit });
            }
        }
        let given = change.default;
        let max = change.max.unwrap_or_else(|| old.max.max(given.unwrap_or(old.max)));
        let min = change.min.unwrap_or_else(|| old.min.min(max));
        if min > max {
            return Err(PolicyError::Order { smaller: "min", larger: "max" });
        }
        let default = given.unwrap_or_else(|| old.default.clamp(min, max));
        if default < min {
            return Err(PolicyError::Order { smaller: "min", larger: "default" });
        }
        if default > max {
            return Err(PolicyError::Order { smaller: "default", larger: "max" });
        }
        if let Some(place) = self.bounds.get_mut(kind as usize) {
            *place = Bounds { min, default, max };
        }
        Ok(())
    }

    /// The lifetime for a caller that asks for `asked`, or for nothing.
    ///
    /// # Errors
    /// [`CaError::BadLifetime`] when it is out of bounds.
    pub fn choose(&self, kind: CertificateKind, asked: Option<Duration>) -> Result<Duration, CaError> {
        let bounds = self.bounds(kind);
        let ttl = asked.unwrap_or(bounds.default);
        within(ttl, bounds.min, bounds.max).map(|()| ttl)
    }

    /// A lifetime that the requester chose, moved into the bounds.
    #[must_use]
    pub fn bounded(&self, kind: CertificateKind, ttl: Duration) -> Duration {
        let bounds = self.bounds(kind);
        ttl.clamp(bounds.min, bounds.max)
    }
}

fn within(ttl: Duration, min: Duration, max: Duration) -> Result<(), CaError> {
    if ttl < min || ttl > max {
        return Err(CaError::BadLifetime {
            got: ttl.whole_seconds(),
            min: min.whole_seconds(),
            max: max.whole_seconds(),
        });
    }
    Ok(())
}

/// A duration as a person writes it in the configuration: `90d`, `12h`, `10m`, `45s`.
pub(crate) struct Words(pub(crate) Duration);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.whole_seconds();
        for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "m")] {
            // 24h and 7d, but 36h.
            if seconds != 0 && seconds % unit == 0 && !(unit == 86_400 && seconds == unit) {
                return write!(f, "{}{name}", seconds / unit);
            }
        }
        write!(f, "{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GUIDE: &str = include_str!("../../../docs/certificates.md");

    #[test]
    fn every_row_is_in_its_place_and_in_order() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.kind as usize, at, "{}", row.kind);
            assert_eq!(row.kind.name().parse::<CertificateKind>().unwrap(), row.kind);
            assert_eq!(serde_json::to_string(&row.kind).unwrap(), format!("\"{}\"", row.kind));
            let Bounds { min, default, max } = row.bounds;
            assert!(MIN_TTL <= min && min <= default && default <= max && max <= row.limit, "{}", row.kind);
        }
        assert!("cat".parse::<CertificateKind>().unwrap_err().to_string().contains("agent_to_database"));
    }

    #[test]
    fn every_subject_of_the_suites_has_a_certificate() {
        let keys = CertificateKind::all().flat_map(|kind| [kind.ssh_purpose(), kind.tls_purpose()]).flatten();
        let mut certified: Vec<KeyPurpose> = keys.collect();
        certified.sort_unstable();
        certified.dedup();
        let subjects = KeyPurpose::ALL.iter().copied();
        let subjects: Vec<KeyPurpose> =
            subjects.filter(|purpose| !purpose.is_ca() && *purpose != KeyPurpose::AuditCheckpoint).collect();
        assert_eq!(certified, subjects);
    }

    #[test]
    fn the_guide_has_the_table() {
        for row in TABLE {
            let Bounds { min, default, max } = row.bounds;
            let line = format!(
                "| `{}` | {} | {} | {} | {} | {} | {} |",
                row.kind,
                row.what,
                row.authority,
                Words(min),
                Words(default),
                Words(max),
                Words(row.limit)
            );
            assert!(GUIDE.contains(&line), "docs/certificates.md lacks the row\n{line}");
        }
    }

    #[test]
    fn policy_stays_within_the_table() {
        let kind = CertificateKind::DatabaseServer;
        let days = Duration::days;
        let mut policy = Lifetimes::default();
        assert_eq!(policy.choose(kind, None).unwrap(), days(90));
        policy.change(kind, Change { max: Some(days(30)), ..Change::default() }).unwrap();
        assert_eq!(policy.choose(kind, None).unwrap(), days(30), "the default follows the maximum");
        assert!(matches!(policy.choose(kind, Some(days(31))), Err(CaError::BadLifetime { .. })));
        assert_eq!(policy.bounded(kind, days(31)), days(30));
        policy.change(kind, Change { default: Some(days(400)), ..Change::default() }).unwrap();
        assert_eq!(policy.bounds(kind).max, days(400), "a maximum that is not given follows the default");
        let error = policy.change(kind, Change { max: Some(days(826)), ..Change::default() }).unwrap_err();
        assert_eq!(error.to_string(), "max is 826d, expected 1m to 825d");
        let error = policy
            .change(kind, Change { min: Some(Duration::seconds(59)), ..Change::default() })
            .unwrap_err();
        assert_eq!(error.to_string(), "min is 59s, expected 1m to 825d");
        for (change, words) in [
            (Change { min: Some(days(2)), max: Some(days(1)), default: None }, "min is longer than max"),
            (Change { min: Some(days(2)), default: Some(days(1)), max: None }, "min is longer than default"),
            (Change { default: Some(days(2)), max: Some(days(1)), min: None }, "default is longer than max"),
        ] {
            assert_eq!(policy.change(kind, change).unwrap_err().to_string(), words);
        }
        assert_eq!(policy.bounds(kind).max, days(400), "a change that is refused changes nothing");
        assert_eq!(policy.bounds(CertificateKind::User), CertificateKind::User.row().bounds);
    }

    #[test]
    fn durations_read_as_they_are_written() {
        let written = [90, 3_600, 36 * 3_600, 86_400, 7 * 86_400, 600, 0];
        let read = written.map(|seconds| Words(Duration::seconds(seconds)).to_string());
        assert_eq!(read, ["90s", "1h", "36h", "24h", "7d", "10m", "0s"]);
    }
}
