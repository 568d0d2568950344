//! Limits of sessions: as roles and the cluster's session policy write them, and merged into those of one permit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::database::DatabaseUserMode;
use crate::device::DeviceTrust;
use crate::factor::{LONGEST_GRACE, SessionFactor};
use crate::limits::{RecordPolicy, RecordingMode};
use crate::node::{Forwarding, RecordInput};
use crate::yaml::{self, Problems, Section};

/// Shortest and longest `max_login_ttl`.
pub const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(7 * 86_400));
/// Session lifetime where no role says otherwise: 12 h.
pub const DEFAULT_LOGIN_TTL: Duration = Duration::from_secs(12 * 3600);
/// Sessions on one SSH connection where no role says otherwise, as OpenSSH's `MaxSessions`.
pub const DEFAULT_MAX_SESSIONS: usize = 10;
/// Longest time span that an option may name: 30 days.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Limits of the sessions that a role grants, or that hold in a whole cluster where no granting role says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Logins of a user that are open at a time. Default no bound; the smallest of all roles counts. Only in roles.
    pub max_logins: Option<usize>,
    /// How long a login may be unused until it ends. Default no bound; the shortest of all roles counts. Only in roles.
    pub login_idle_timeout: Option<Duration>,
    /// Longest life of a login, and so of its certificates. Default 12 h; the shortest of all roles counts.
    pub max_login_ttl: Option<Duration>,
    /// Whether the client's ssh-agent may be reached from the session. Default no.
    pub forward_agent: Option<bool>,
    /// Which TCP ports may be forwarded. Default both directions.
    pub port_forwarding: Option<Forwarding>,
    /// Which Unix sockets may be forwarded. Default both directions.
    pub stream_local_forwarding: Option<Forwarding>,
    /// Whether X11 may be forwarded. Default no.
    pub permit_x11_forwarding: Option<bool>,
    /// Whether SFTP, scp and rsync may be used. Default yes.
    pub ssh_file_copy: Option<bool>,
    /// What happens to a session that cannot be recorded. Default best effort.
    pub record_session: Option<RecordPolicy>,
    /// Where sessions are recorded. Default by the node, afterwards sent on.
    pub session_recording: Option<RecordingMode>,
    /// What is on record of what comes from the client. Default its number of bytes and their hash.
    pub record_input: Option<RecordInput>,
    /// Whether files that pass by SFTP are hashed for the recording. Default no.
    pub hash_files: Option<bool>,
    /// Silence after which a client is disconnected. Default none.
    pub client_idle_timeout: Option<Duration>,
    /// Longest time that a connection lasts. Default none.
    pub max_session_duration: Option<Duration>,
    /// Whether a connection ends with the certificate that opened it. Default no.
    pub disconnect_expired_cert: Option<bool>,
    /// Sessions on one SSH connection. Default 10.
    pub max_sessions: Option<usize>,
    /// Whether nodes do what comes with a ticket before the client has answered them. Default yes.
    pub early_data: Option<bool>,
    /// Whether database users are made as people come. Default no.
    pub create_db_user_mode: Option<DatabaseUserMode>,
    /// Whether the values of statements' parameters are on record. Default no.
    pub record_db_parameters: Option<bool>,
    /// Longest part of one statement that is on record, in bytes. Default 4096.
    pub db_statement_bytes: Option<usize>,
    /// Whether sessions with databases have to be TLS from the user's own program to the agent. Default no.
    pub db_end_to_end: Option<EndToEnd>,
    /// Sessions of one user with one database at a time, through one agent. Default 80.
    pub max_db_sessions: Option<usize>,
    /// Whether a database user may be used who may run what is not in the record. Default yes.
    pub db_unseen_sql: Option<UnseenSql>,
    /// Whether a proxy gets a certificate for a login at a registered server only by the user's own word. Default no.
    pub require_login_word: Option<bool>,
    /// Whether a second factor has to be proven before each session. Default no; the strictest of all roles and of the cluster counts.
    pub require_session_mfa: Option<SessionFactor>,
    /// How long after it was proven the factor serves sessions, at most 30 min. Default 0: those that it was asked for. The shortest of
    /// the roles that demand a factor counts.
    pub session_mfa_ttl: Option<Duration>,
    /// What is asked of the device that a login comes from. Default nothing.
    pub device_trust: Option<DeviceTrust>,
    /// Whether certificates of logins count from one address alone. Default no; for a login all roles of its user count.
    pub pin_source_ip: Option<bool>,
}

/// Whether a session with a database has to be TLS from the user's own program to the agent, so that no proxy sees into it or
/// opens one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EndToEnd {
    /// Stock clients may end their TLS at a proxy.
    #[default]
    Optional,
    /// They may not.
    Required,
}

impl EndToEnd {
    /// How roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// Whether sessions are let in as a database user who may run what their record does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum UnseenSql {
    /// They are.
    #[default]
    Allowed,
    /// The server is asked what the user may do, and they are not.
    Refused,
}

impl UnseenSql {
    /// How roles write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
        }
    }
}

/// How many of [`KEYS`] are about logins: only roles say these.
pub(crate) const OF_LOGINS: usize = 2;
/// The keys of a role's options, and what the cluster's policy may say of them: all but the first [`OF_LOGINS`].
pub(crate) const KEYS: [&str; 28] = [
    "max_logins",
    "login_idle_timeout",
    "max_login_ttl",
    "forward_agent",
    "port_forwarding",
    "stream_local_forwarding",
    "permit_x11_forwarding",
    "ssh_file_copy",
    "record_session",
    "session_recording",
    "record_input",
    "hash_files",
    "client_idle_timeout",
    "max_session_duration",
    "disconnect_expired_cert",
    "max_sessions",
    "early_data",
    "create_db_user_mode",
    "record_db_parameters",
    "db_statement_bytes",
    "db_end_to_end",
    "max_db_sessions",
    "db_unseen_sql",
    "require_login_word",
    "require_session_mfa",
    "session_mfa_ttl",
    "device_trust",
    "pin_source_ip",
];

/// What roles of earlier releases call `max_login_ttl`. It is read, and written by its name of today.
const EARLIER_LOGIN_TTL: &str = "max_session_ttl";

/// The keys that a role's options may have.
pub(crate) fn keys_of_roles() -> Vec<&'static str> {
    KEYS.into_iter().chain([EARLIER_LOGIN_TTL]).collect()
}

/// Shortest and longest `login_idle_timeout`: when a login was last used is kept to five minutes.
const IDLE_RANGE: (Duration, Duration) = (Duration::from_secs(15 * 60), LONGEST);
/// Shortest and longest part of a statement that can be asked to be on record, in bytes.
const STATEMENT_RANGE: (usize, usize) = (64, 65_536);
/// Longest part of a statement that is on record where nothing else is said, in bytes.
pub(crate) const DEFAULT_STATEMENT_BYTES: usize = 4096;
/// Sessions of one user with one database at a time where nothing else is said: more than the pool of a program has, and less
/// than the 97 that a PostgreSQL takes as it comes, so that others and its administrators get in.
pub(crate) const DEFAULT_MAX_DB_SESSIONS: usize = 80;

/// Reads the options that stand in a section.
pub(crate) fn read(side: &Section<'_>, problems: &mut Problems) -> Options {
    let second = Duration::from_secs(1);
    Options {
        max_logins: side.count("max_logins", 1, 10_000, problems),
        login_idle_timeout: side.duration("login_idle_timeout", IDLE_RANGE.0, IDLE_RANGE.1, problems),
        max_login_ttl: login_ttl(side, problems),
        forward_agent: side.boolean("forward_agent", problems),
        port_forwarding: forwarding(side, "port_forwarding", problems),
        stream_local_forwarding: forwarding(side, "stream_local_forwarding", problems),
        permit_x11_forwarding: side.boolean("permit_x11_forwarding", problems),
        ssh_file_copy: side.boolean("ssh_file_copy", problems),
        record_session: side.choice(
            "record_session",
            &[("strict", RecordPolicy::Strict), ("best_effort", RecordPolicy::BestEffort)],
            problems,
        ),
        session_recording: side.choice("session_recording", &RecordingMode::ALL, problems),
        record_input: side.choice(
            "record_input",
            &[RecordInput::Hash, RecordInput::Full].map(|one| (one.as_str(), one)),
            problems,
        ),
        hash_files: side.boolean("hash_files", problems),
        client_idle_timeout: side.duration("client_idle_timeout", second, LONGEST, problems),
        max_session_duration: side.duration("max_session_duration", second, LONGEST, problems),
        disconnect_expired_cert: side.boolean("disconnect_expired_cert", problems),
        max_sessions: side.count("max_sessions", 1, 10_000, problems),
        early_data: side.boolean("early_data", problems),
        create_db_user_mode: side.choice(
            "create_db_user_mode",
            &DatabaseUserMode::ALL.map(|mode| (mode.as_str(), mode)),
            problems,
        ),
        record_db_parameters: side.boolean("record_db_parameters", problems),
        db_statement_bytes: side.count("db_statement_bytes", STATEMENT_RANGE.0, STATEMENT_RANGE.1, problems),
        db_end_to_end: side.choice(
            "db_end_to_end",
            &[EndToEnd::Optional, EndToEnd::Required].map(|one| (one.as_str(), one)),
            problems,
        ),
        max_db_sessions: side.count("max_db_sessions", 1, 10_000, problems),
        db_unseen_sql: side.choice(
            "db_unseen_sql",
            &[UnseenSql::Allowed, UnseenSql::Refused].map(|one| (one.as_str(), one)),
            problems,
        ),
        require_login_word: side.boolean("require_login_word", problems),
        require_session_mfa: side.choice(
            "require_session_mfa",
            &SessionFactor::ALL.map(|one| (one.as_str(), one)),
            problems,
        ),
        session_mfa_ttl: side.duration("session_mfa_ttl", Duration::ZERO, LONGEST_GRACE, problems),
        device_trust: side.choice("device_trust", &DeviceTrust::ALL.map(|one| (one.as_str(), one)), problems),
        pin_source_ip: side.boolean("pin_source_ip", problems),
    }
}

/// The longest life of a login, by its name of today or, in roles, by that of earlier releases.
fn login_ttl(side: &Section<'_>, problems: &mut Problems) -> Option<Duration> {
    let mut read = |key| side.duration(key, TTL_RANGE.0, TTL_RANGE.1, problems);
    let (today, earlier) = (read("max_login_ttl"), read(EARLIER_LOGIN_TTL));
    if today.is_some() && earlier.is_some() {
        problems.push(
            side.place(EARLIER_LOGIN_TTL),
            &side.name(EARLIER_LOGIN_TTL),
            "is what max_login_ttl was called once, and both are there",
            "leave it out",
        );
    }
    today.or(earlier)
}

fn forwarding(side: &Section<'_>, key: &str, problems: &mut Problems) -> Option<Forwarding> {
    side.choice(
        key,
        &[
            ("true", Forwarding::BOTH),
            ("false", Forwarding::NONE),
            ("local", Forwarding { local: true, remote: false }),
            ("remote", Forwarding { local: false, remote: true }),
        ],
        problems,
    )
}

impl Options {
    /// What is said, by its key, in the form in which it is written.
    pub(crate) fn to_map(&self) -> BTreeMap<&'static str, serde_json::Value> {
        let span = |span: Option<Duration>| span.map(|span| yaml::show(span).into());
        let forwarding = |one: Option<Forwarding>| one.map(Forwarding::to_json);
        let values: [Option<serde_json::Value>; KEYS.len()] = [
            self.max_logins.map(Into::into),
            span(self.login_idle_timeout),
            span(self.max_login_ttl),
            self.forward_agent.map(Into::into),
            forwarding(self.port_forwarding),
            forwarding(self.stream_local_forwarding),
            self.permit_x11_forwarding.map(Into::into),
            self.ssh_file_copy.map(Into::into),
            self.record_session.map(|policy| policy.as_str().into()),
            self.session_recording.map(|mode| mode.as_str().into()),
            self.record_input.map(|one| one.as_str().into()),
            self.hash_files.map(Into::into),
            span(self.client_idle_timeout),
            span(self.max_session_duration),
            self.disconnect_expired_cert.map(Into::into),
            self.max_sessions.map(Into::into),
            self.early_data.map(Into::into),
            self.create_db_user_mode.map(|mode| mode.as_str().into()),
            self.record_db_parameters.map(Into::into),
            self.db_statement_bytes.map(Into::into),
            self.db_end_to_end.map(|one| one.as_str().into()),
            self.max_db_sessions.map(Into::into),
            self.db_unseen_sql.map(|one| one.as_str().into()),
            self.require_login_word.map(Into::into),
            self.require_session_mfa.map(|one| one.as_str().into()),
            span(self.session_mfa_ttl),
            self.device_trust.map(|one| one.as_str().into()),
            self.pin_source_ip.map(Into::into),
        ];
        KEYS.into_iter().zip(values).filter_map(|(name, value)| value.map(|value| (name, value))).collect()
    }

    /// The stricter of two in everything that both say.
    pub(crate) fn tighten(&mut self, other: &Self) {
        let either = |a: Option<bool>, b: Option<bool>| match (a, b) {
            (Some(a), Some(b)) => Some(a && b),
            (one, other) => one.or(other),
        };
        let both = |a: Option<Forwarding>, b: Option<Forwarding>| match (a, b) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (one, other) => one.or(other),
        };
        let least = |a: Option<Duration>, b: Option<Duration>| [a, b].into_iter().flatten().min();
        self.forward_agent = either(self.forward_agent, other.forward_agent);
        self.port_forwarding = both(self.port_forwarding, other.port_forwarding);
        self.stream_local_forwarding = both(self.stream_local_forwarding, other.stream_local_forwarding);
        self.permit_x11_forwarding = either(self.permit_x11_forwarding, other.permit_x11_forwarding);
        self.ssh_file_copy = either(self.ssh_file_copy, other.ssh_file_copy);
        self.record_session = self.record_session.max(other.record_session);
        self.session_recording = match (self.session_recording, other.session_recording) {
            (Some(a), Some(b)) => Some(RecordingMode { at: a.at.max(b.at), sync: a.sync || b.sync }),
            (one, other) => one.or(other),
        };
        // What is asked for here is more to be recorded, or an end: saying yes is the stricter.
        self.record_input = self.record_input.max(other.record_input);
        self.hash_files = self.hash_files.max(other.hash_files);
        self.disconnect_expired_cert = self.disconnect_expired_cert.max(other.disconnect_expired_cert);
        self.client_idle_timeout = least(self.client_idle_timeout, other.client_idle_timeout);
        self.max_session_duration = least(self.max_session_duration, other.max_session_duration);
        self.max_sessions = [self.max_sessions, other.max_sessions].into_iter().flatten().min();
        self.early_data = either(self.early_data, other.early_data);
        self.create_db_user_mode =
            [self.create_db_user_mode, other.create_db_user_mode].into_iter().flatten().min();
        self.record_db_parameters = self.record_db_parameters.max(other.record_db_parameters);
        self.db_statement_bytes = self.db_statement_bytes.max(other.db_statement_bytes);
        self.db_end_to_end = self.db_end_to_end.max(other.db_end_to_end);
        self.db_unseen_sql = self.db_unseen_sql.max(other.db_unseen_sql);
        self.max_db_sessions = [self.max_db_sessions, other.max_db_sessions].into_iter().flatten().min();
        self.require_login_word = self.require_login_word.max(other.require_login_word);
        // How long a proof serves counts of those alone that demand one: `FactorRule` has both.
        self.require_session_mfa = self.require_session_mfa.max(other.require_session_mfa);
        self.device_trust = self.device_trust.max(other.device_trust);
        self.pin_source_ip = self.pin_source_ip.max(other.pin_source_ip);
    }
}
