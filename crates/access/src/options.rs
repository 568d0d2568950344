//! Limits of sessions: as roles and the cluster's session policy write them, and merged into those of one permit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::database::{DatabaseOptions, DatabaseUserMode};
use crate::permit::{Forwarding, RecordAt, RecordInput, RecordPolicy, RecordingMode, SessionOptions};
use crate::role::{DEFAULT_MAX_SESSIONS, DEFAULT_SESSION_TTL, TTL_RANGE};
use crate::yaml::{self, Problems, Section};

/// Longest time span that an option may name: 30 days.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Limits of the sessions that a role grants, or that hold in a whole cluster where no granting role says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Longest lifetime of certificates. Default 12 h; the shortest of all roles counts. Only in roles.
    pub max_session_ttl: Option<Duration>,
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

/// The keys of a role's options, and what the cluster's policy may say of them: all but the first.
pub(crate) const KEYS: [&str; 22] = [
    "max_session_ttl",
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
];

/// Shortest and longest part of a statement that can be asked to be on record, in bytes.
const STATEMENT_RANGE: (usize, usize) = (64, 65_536);
/// Longest part of a statement that is on record where nothing else is said, in bytes.
const DEFAULT_STATEMENT_BYTES: usize = 4096;
/// Sessions of one user with one database at a time where nothing else is said: more than the pool of a program has, and less
/// than the 97 that a PostgreSQL takes as it comes, so that others and its administrators get in.
const DEFAULT_MAX_DB_SESSIONS: usize = 80;

const MODES: [(&str, RecordingMode); 5] = [
    ("off", RecordingMode { at: RecordAt::Off, sync: false }),
    ("node", RecordingMode { at: RecordAt::Node, sync: false }),
    ("node-sync", RecordingMode { at: RecordAt::Node, sync: true }),
    ("proxy", RecordingMode { at: RecordAt::Proxy, sync: false }),
    ("proxy-sync", RecordingMode { at: RecordAt::Proxy, sync: true }),
];

/// How roles write a mode.
pub(crate) fn mode_name(mode: RecordingMode) -> &'static str {
    let of = |at| {
        MODES.iter().find(|(_, known)| known.at == at && (at == RecordAt::Off || known.sync == mode.sync))
    };
    of(mode.at).map_or("node", |(name, _)| name)
}

/// Reads the options that stand in a section.
pub(crate) fn read(side: &Section<'_>, problems: &mut Problems) -> Options {
    let second = Duration::from_secs(1);
    Options {
        max_session_ttl: side.duration("max_session_ttl", TTL_RANGE.0, TTL_RANGE.1, problems),
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
        session_recording: side.choice("session_recording", &MODES, problems),
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
    }
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
        let values = [
            span(self.max_session_ttl),
            self.forward_agent.map(Into::into),
            forwarding(self.port_forwarding),
            forwarding(self.stream_local_forwarding),
            self.permit_x11_forwarding.map(Into::into),
            self.ssh_file_copy.map(Into::into),
            self.record_session.map(|policy| policy.as_str().into()),
            self.session_recording.map(|mode| mode_name(mode).into()),
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
        ];
        KEYS.into_iter().zip(values).filter_map(|(name, value)| value.map(|value| (name, value))).collect()
    }

    /// Whether these limits are no looser than others, of what a cluster's policy leaves to both.
    pub(crate) fn within(&self, other: &Self, cluster: &Self) -> bool {
        let ttl = |options: &Self| options.max_session_ttl.unwrap_or(DEFAULT_SESSION_TTL);
        let (said, databases) =
            (merge([other].into_iter(), cluster), merge_database([other].into_iter(), cluster));
        let explicit = Self {
            forward_agent: Some(said.forward_agent),
            port_forwarding: Some(said.port_forwarding),
            stream_local_forwarding: Some(said.stream_local_forwarding),
            permit_x11_forwarding: Some(said.x11_forwarding),
            ssh_file_copy: Some(said.ssh_file_copy),
            record_session: Some(said.record_session),
            session_recording: Some(said.recording),
            record_input: Some(said.record_input),
            hash_files: Some(said.hash_files),
            client_idle_timeout: said.client_idle_timeout,
            max_session_duration: said.max_session_duration,
            disconnect_expired_cert: Some(said.disconnect_expired_cert),
            max_sessions: Some(said.max_sessions),
            require_login_word: Some(said.require_login_word),
            create_db_user_mode: Some(databases.user_mode),
            record_db_parameters: Some(databases.record_parameters),
            db_statement_bytes: Some(databases.statement_bytes),
            db_end_to_end: databases.end_to_end.then_some(EndToEnd::Required),
            max_db_sessions: Some(databases.max_sessions),
            db_unseen_sql: databases.refuse_unseen.then_some(UnseenSql::Refused),
            ..Self::default()
        };
        // Nothing in which the others are stricter changes them.
        let full = (merge([self].into_iter(), cluster), merge_database([self].into_iter(), cluster));
        let both = [self, &explicit];
        let tightened = (merge(both.into_iter(), cluster), merge_database(both.into_iter(), cluster));
        ttl(self) <= ttl(other) && full == tightened
    }

    /// The stricter of two in everything that both say.
    fn tighten(&mut self, other: &Self) {
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
    }
}

/// As [`merge`], for the sessions with databases.
pub(crate) fn merge_database<'o>(
    options: impl Iterator<Item = &'o Options>,
    cluster: &Options,
) -> DatabaseOptions {
    let mut said = Options::default();
    for one in options {
        said.tighten(one);
    }
    let recording = said.session_recording.or(cluster.session_recording).unwrap_or_default();
    DatabaseOptions {
        record_session: said.record_session.or(cluster.record_session).unwrap_or(RecordPolicy::BestEffort),
        record: recording.at != RecordAt::Off,
        sync: recording.sync,
        record_parameters: said.record_db_parameters.or(cluster.record_db_parameters).unwrap_or(false),
        statement_bytes: said
            .db_statement_bytes
            .or(cluster.db_statement_bytes)
            .unwrap_or(DEFAULT_STATEMENT_BYTES),
        client_idle_timeout: said.client_idle_timeout.or(cluster.client_idle_timeout),
        max_session_duration: said.max_session_duration.or(cluster.max_session_duration),
        disconnect_expired_cert: said
            .disconnect_expired_cert
            .or(cluster.disconnect_expired_cert)
            .unwrap_or(false),
        user_mode: said.create_db_user_mode.or(cluster.create_db_user_mode).unwrap_or_default(),
        end_to_end: said.db_end_to_end.or(cluster.db_end_to_end).unwrap_or_default() == EndToEnd::Required,
        refuse_unseen: said.db_unseen_sql.or(cluster.db_unseen_sql).unwrap_or_default() == UnseenSql::Refused,
        max_sessions: said.max_db_sessions.or(cluster.max_db_sessions).unwrap_or(DEFAULT_MAX_DB_SESSIONS),
    }
}

/// The most restrictive of what the granting roles say; what none says is as the cluster's policy says, else the
/// default.
pub(crate) fn merge<'o>(options: impl Iterator<Item = &'o Options>, cluster: &Options) -> SessionOptions {
    let mut said = Options::default();
    for one in options {
        said.tighten(one);
    }
    SessionOptions {
        forward_agent: said.forward_agent.or(cluster.forward_agent).unwrap_or(false),
        port_forwarding: said.port_forwarding.or(cluster.port_forwarding).unwrap_or(Forwarding::BOTH),
        stream_local_forwarding: said
            .stream_local_forwarding
            .or(cluster.stream_local_forwarding)
            .unwrap_or(Forwarding::BOTH),
        x11_forwarding: said.permit_x11_forwarding.or(cluster.permit_x11_forwarding).unwrap_or(false),
        ssh_file_copy: said.ssh_file_copy.or(cluster.ssh_file_copy).unwrap_or(true),
        record_session: said.record_session.or(cluster.record_session).unwrap_or(RecordPolicy::BestEffort),
        recording: said.session_recording.or(cluster.session_recording).unwrap_or_default(),
        record_input: said.record_input.or(cluster.record_input).unwrap_or_default(),
        hash_files: said.hash_files.or(cluster.hash_files).unwrap_or(false),
        client_idle_timeout: said.client_idle_timeout.or(cluster.client_idle_timeout),
        max_session_duration: said.max_session_duration.or(cluster.max_session_duration),
        disconnect_expired_cert: said
            .disconnect_expired_cert
            .or(cluster.disconnect_expired_cert)
            .unwrap_or(false),
        max_sessions: said.max_sessions.or(cluster.max_sessions).unwrap_or(DEFAULT_MAX_SESSIONS),
        require_login_word: said.require_login_word.or(cluster.require_login_word).unwrap_or(false),
    }
}
