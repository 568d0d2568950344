//! Why there is no session with a database, and what the client reads then.

use crate::postgres::error::{Refusal, SqlState};
use crate::postgres::scram::ScramError;
use crate::service::ports::CredentialsError;

/// What to do where the server has not behaved as the right one would.
const WHICH_SERVER: &str = "find out which server answers at the resource's address before its users' passwords are used again; with \
                            tls.mode: verify-full the agent goes on only with the server of that name";

/// Why an agent has no session with a database, or no answer of it. Its message says which, where and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There are no credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Nothing answers, or not in time.
    #[error("the database at {address} cannot be reached: {problem}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What came of it.
        problem: String,
    },
    /// The resource says TLS, and the server declines it.
    #[error("the database at {address} takes no TLS")]
    NoTls {
        /// Where it is.
        address: String,
    },
    /// The server's certificate is not the right one, or the server does not take the agent's.
    #[error("the TLS connection to the database at {address} failed: {problem}")]
    Tls {
        /// Where it is.
        address: String,
        /// In the words of TLS.
        problem: String,
    },
    /// The login with a password.
    #[error("the database's login failed: {0}")]
    Scram(#[from] ScramError),
    /// It asks for something that would show it the password, or that is not there.
    #[error("the database asks for {0}, which is not used")]
    Method(&'static str),
    /// It asks for a password, and there is none.
    #[error("the database asks for a password, and {0}")]
    NoPassword(&'static str),
    /// With `login: password` the server has to show that it knows the password.
    #[error(
        "the database let the agent in without SCRAM, although the resource says login: password: it has not proven that it \
         knows the password"
    )]
    Unproven,
    /// The server's own refusal, as it came.
    #[error("the database refused: {message} ({code})")]
    Server {
        /// `SQLSTATE`.
        code: String,
        /// In the server's words.
        message: String,
        /// The whole `ErrorResponse`.
        bytes: Vec<u8>,
    },
    /// A user that is to be made for the session.
    #[error("the database user cannot be made: {0}")]
    Provision(String),
    /// What concerns the user was not done in time.
    #[error("the database answers too late: {0}")]
    Late(String),
    /// The session may not be, for now or with this user.
    #[error("{message}")]
    Denied {
        /// Why.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// The database user may run what is not in the record, and the roles want no such.
    #[error("the database user {user} may run what is not in the record (db_unseen_sql: refused): {why}")]
    Unseen {
        /// The database user.
        user: String,
        /// By what.
        why: String,
    },
    /// What is there is no PostgreSQL, or has another idea of its protocol.
    #[error("the database at {address} does not keep to the protocol: {what}")]
    Protocol {
        /// Where it is.
        address: String,
        /// Its answer.
        what: String,
    },
    /// The session's process cannot be terminated by its number.
    #[error("the database has not said which process it is")]
    NoProcess,
    /// The session's process is not among the user's.
    #[error("the database has no process {process} of the user {user}: is a pooler between?")]
    UnknownProcess {
        /// Its number, by what the server has said.
        process: u32,
        /// The database user.
        user: String,
    },
    /// The agent's statement has no answer.
    #[error("the database has not answered within {0:?}")]
    Silent(std::time::Duration),
}

impl ConnectError {
    /// A stable word for traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Credentials(_) => "credentials",
            Self::Unreachable { .. } => "unreachable",
            Self::NoTls { .. } => "no_tls",
            Self::Tls { .. } => "tls",
            Self::Scram(_) | Self::Method(_) | Self::NoPassword(_) | Self::Unproven => "login",
            Self::Server { .. } => "refused_by_database",
            Self::Provision(_) => "provision",
            Self::Late(_) => "late",
            Self::Denied { .. } => "denied",
            Self::Unseen { .. } => "unseen_sql",
            Self::Protocol { .. } => "protocol",
            Self::NoProcess | Self::UnknownProcess { .. } | Self::Silent(_) => "process",
        }
    }

    /// What the client reads.
    pub(crate) fn to_bytes(&self, name: &str) -> Vec<u8> {
        let refusal = |state, hint: &str| {
            let refusal = Refusal::new(state, format!("{name}: {self}"));
            if hint.is_empty() { refusal.to_bytes() } else { refusal.hint(hint).to_bytes() }
        };
        match self {
            Self::Server { bytes, .. } => bytes.clone(),
            Self::Credentials(CredentialsError::Refused(_)) => {
                refusal(SqlState::InvalidAuthorization, "see what you may use: sallyport db ls")
            }
            Self::Credentials(CredentialsError::Unavailable(_)) => {
                refusal(SqlState::CannotConnectNow, "try again; if it stays so, tell an administrator")
            }
            Self::Unreachable { .. } => refusal(
                SqlState::CannotConnectNow,
                "is the database running? see its health: sallyport db ls",
            ),
            Self::NoTls { .. } => refusal(
                SqlState::ConnectionFailure,
                "turn on TLS in the database (ssl = on in postgresql.conf)",
            ),
            Self::Tls { .. } => refusal(
                SqlState::ConnectionFailure,
                "the database's certificate has to be of the CA and the name that the resource says (tls.ca, \
                 tls.server_name), and the database has to trust the cluster's db_client CA (ssl_ca_file)",
            ),
            Self::Method(_) => refusal(
                SqlState::InvalidAuthorization,
                "let the database ask for a certificate (hostssl ... cert in pg_hba.conf), or for scram-sha-256 with \
                 login: password in the resource",
            ),
            Self::NoPassword(_) => refusal(
                SqlState::InvalidAuthorization,
                "let the database ask for a certificate (hostssl ... cert in pg_hba.conf), or give the resource \
                 login: password and the agent a password file (node.pgpass)",
            ),
            Self::Unproven => refusal(
                SqlState::InvalidAuthorization,
                "let the database ask for scram-sha-256 (pg_hba.conf), or take login: password out of the resource; where it does \
                 ask already, another server answers at the resource's address",
            ),
            Self::Scram(error) => refusal(SqlState::InvalidAuthorization, scram_hint(error)),
            Self::Provision(_) => refusal(
                SqlState::InvalidAuthorization,
                "the account that the resource names (admin_user) has to be there with LOGIN and CREATEROLE, be let in \
                 by certificate as others are, and may grant the roles of db_roles",
            ),
            Self::Late(_) => refusal(
                SqlState::CannotConnectNow,
                "try again; if it stays so, the database is overloaded, or another session holds its locks",
            ),
            Self::Denied { hint, .. } => refusal(SqlState::InvalidAuthorization, hint),
            Self::Unseen { .. } => refusal(
                SqlState::InvalidAuthorization,
                "log in as a database user without that right (-U), or have it taken away at the database",
            ),
            Self::Protocol { .. } | Self::NoProcess | Self::UnknownProcess { .. } | Self::Silent(_) => {
                refusal(SqlState::ConnectionFailure, "")
            }
        }
    }
}

fn scram_hint(error: &ScramError) -> &'static str {
    match error {
        ScramError::Refused(_) => "check the agent's password file (node.pgpass) against the database",
        ScramError::Rounds(_) => {
            "set the user's password anew at the database, with its scram_iterations (PostgreSQL 16 and later) within \
             these bounds; 4096 is what servers ask for where it is not set"
        }
        ScramError::Unbindable => {
            "give the database a certificate that is signed with ECDSA or RSA and SHA-256, SHA-384 or SHA-512, or \
             set tls.mode: verify-full in the resource; where it has one already, another server answers at the resource's address"
        }
        ScramError::Mechanism => "let the database ask for scram-sha-256 (pg_hba.conf)",
        ScramError::Unavailable => "the agent's log says which source of cryptography has failed",
        ScramError::Malformed(_) | ScramError::BoundToNothing | ScramError::NotTheServer => WHICH_SERVER,
    }
}
