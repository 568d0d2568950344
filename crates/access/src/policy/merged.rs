//! What the options of several roles and the session policy of the cluster are together.

use std::time::Duration;

use crate::database::DatabaseOptions;
use crate::factor::{FactorRule, SessionFactor};
use crate::limits::{Limits, RecordPolicy};
use crate::node::{Forwarding, SshOptions};
use crate::options::{
    DEFAULT_LOGIN_TTL, DEFAULT_MAX_DB_SESSIONS, DEFAULT_MAX_SESSIONS, DEFAULT_STATEMENT_BYTES, EndToEnd,
    Options, UnseenSql,
};

/// The most restrictive of what the granting roles say; what none says is as the cluster's policy says, else the
/// default.
#[derive(Debug)]
pub struct Merged<'o> {
    said: Options,
    cluster: &'o Options,
    factor: FactorRule,
}

impl<'o> Merged<'o> {
    pub(crate) fn of(granting: impl Iterator<Item = &'o Options>, cluster: &'o Options) -> Self {
        let (mut said, mut rule) = (Options::default(), factor(cluster, cluster));
        for one in granting {
            said.tighten(one);
            rule = rule.and(factor(one, cluster));
        }
        Self { said, cluster, factor: rule }
    }

    /// What is said of one option, by the roles or else by the cluster.
    pub fn get<T>(&self, of: impl Fn(&Options) -> Option<T>) -> Option<T> {
        of(&self.said).or_else(|| of(self.cluster))
    }

    /// What sessions of every kind have.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            record_session: self.get(|one| one.record_session).unwrap_or(RecordPolicy::BestEffort),
            recording: self.get(|one| one.session_recording).unwrap_or_default(),
            client_idle_timeout: self.get(|one| one.client_idle_timeout),
            max_session_duration: self.get(|one| one.max_session_duration),
            disconnect_expired_cert: self.get(|one| one.disconnect_expired_cert).unwrap_or(false),
            factor: self.factor,
            device_trust: self.get(|one| one.device_trust).unwrap_or_default(),
            pin_source_ip: self.get(|one| one.pin_source_ip).unwrap_or(false),
        }
    }

    /// What sessions with nodes have besides.
    pub(crate) fn ssh(&self) -> SshOptions {
        SshOptions {
            forward_agent: self.get(|one| one.forward_agent).unwrap_or(false),
            port_forwarding: self.get(|one| one.port_forwarding).unwrap_or(Forwarding::BOTH),
            stream_local_forwarding: self.get(|one| one.stream_local_forwarding).unwrap_or(Forwarding::BOTH),
            x11_forwarding: self.get(|one| one.permit_x11_forwarding).unwrap_or(false),
            ssh_file_copy: self.get(|one| one.ssh_file_copy).unwrap_or(true),
            record_input: self.get(|one| one.record_input).unwrap_or_default(),
            hash_files: self.get(|one| one.hash_files).unwrap_or(false),
            max_sessions: self.get(|one| one.max_sessions).unwrap_or(DEFAULT_MAX_SESSIONS),
            require_login_word: self.get(|one| one.require_login_word).unwrap_or(false),
        }
    }

    /// What sessions with databases have besides; the roles that are given to users who are made are not options.
    pub(crate) fn database(&self) -> DatabaseOptions {
        DatabaseOptions {
            record_parameters: self.get(|one| one.record_db_parameters).unwrap_or(false),
            statement_bytes: self.get(|one| one.db_statement_bytes).unwrap_or(DEFAULT_STATEMENT_BYTES),
            user_mode: self.get(|one| one.create_db_user_mode).unwrap_or_default(),
            roles: Vec::new(),
            end_to_end: self.get(|one| one.db_end_to_end).unwrap_or_default() == EndToEnd::Required,
            refuse_unseen: self.get(|one| one.db_unseen_sql).unwrap_or_default() == UnseenSql::Refused,
            max_sessions: self.get(|one| one.max_db_sessions).unwrap_or(DEFAULT_MAX_DB_SESSIONS),
        }
    }

    fn all(&self) -> (Limits, SshOptions, DatabaseOptions) {
        (self.limits(), self.ssh(), self.database())
    }
}

/// The second factor that one role demands, or the cluster of itself. What it leaves open of the time, the cluster says.
fn factor(options: &Options, cluster: &Options) -> FactorRule {
    match options.require_session_mfa.unwrap_or_default() {
        SessionFactor::No => FactorRule::default(),
        factor => {
            let grace = options.session_mfa_ttl.or(cluster.session_mfa_ttl).unwrap_or_default();
            FactorRule { factor, grace }
        }
    }
}

impl Options {
    /// Whether these limits are no looser than others, of what a cluster's policy leaves to both.
    pub(crate) fn within(&self, other: &Self, cluster: &Self) -> bool {
        let ttl =
            |options: &Self| options.max_login_ttl.or(cluster.max_login_ttl).unwrap_or(DEFAULT_LOGIN_TTL);
        let logins = |options: &Self| options.max_logins.unwrap_or(usize::MAX);
        let idle = |options: &Self| options.login_idle_timeout.unwrap_or(Duration::MAX);
        let (limits, ssh, databases) = Merged::of([other].into_iter(), cluster).all();
        let explicit = Self {
            forward_agent: Some(ssh.forward_agent),
            port_forwarding: Some(ssh.port_forwarding),
            stream_local_forwarding: Some(ssh.stream_local_forwarding),
            permit_x11_forwarding: Some(ssh.x11_forwarding),
            ssh_file_copy: Some(ssh.ssh_file_copy),
            record_session: Some(limits.record_session),
            session_recording: Some(limits.recording),
            record_input: Some(ssh.record_input),
            hash_files: Some(ssh.hash_files),
            client_idle_timeout: limits.client_idle_timeout,
            max_session_duration: limits.max_session_duration,
            disconnect_expired_cert: Some(limits.disconnect_expired_cert),
            device_trust: Some(limits.device_trust),
            pin_source_ip: Some(limits.pin_source_ip),
            max_sessions: Some(ssh.max_sessions),
            require_login_word: Some(ssh.require_login_word),
            require_session_mfa: Some(limits.factor.factor),
            session_mfa_ttl: Some(limits.factor.grace),
            create_db_user_mode: Some(databases.user_mode),
            record_db_parameters: Some(databases.record_parameters),
            db_statement_bytes: Some(databases.statement_bytes),
            db_end_to_end: databases.end_to_end.then_some(EndToEnd::Required),
            max_db_sessions: Some(databases.max_sessions),
            db_unseen_sql: databases.refuse_unseen.then_some(UnseenSql::Refused),
            ..Self::default()
        };
        // Nothing in which the others are stricter changes them.
        let full = Merged::of([self].into_iter(), cluster).all();
        let tightened = Merged::of([self, &explicit].into_iter(), cluster).all();
        let of_logins = ttl(self) <= ttl(other) && logins(self) <= logins(other) && idle(self) <= idle(other);
        of_logins && full == tightened
    }
}
