//! What we say in the server's own words: `ErrorResponse` (§53.8), with an SQLSTATE (appendix A) that drivers know.

/// What a client reads between two messages when the way to its database's agent is lost.
pub const LOST: &str = "the connection to the agent that serves this database was lost";
/// What to do then.
pub const LOST_HINT: &str = "a statement that was running may have been done or not; connect again, and if that is \
                             refused: sallyport db ls";

/// The classes of refusals that drivers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlState {
    /// 28000: not this person, or not with this.
    InvalidAuthorization,
    /// 3D000: there is no such database.
    InvalidCatalogName,
    /// 08006: the connection to the database failed.
    ConnectionFailure,
    /// 08P01: what came is not the protocol.
    ProtocolViolation,
    /// 0A000: part of the protocol that is not passed on.
    FeatureNotSupported,
    /// 53300: there are as many as there may be.
    TooManyConnections,
    /// 57P01: ended by an administrator: locked, terminated, expired.
    AdminShutdown,
    /// 57P03: it cannot be reached now.
    CannotConnectNow,
    /// 58000: what is required besides the database failed, such as the recording.
    SystemError,
}

impl SqlState {
    /// Its five characters.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidAuthorization => "28000",
            Self::InvalidCatalogName => "3D000",
            Self::ConnectionFailure => "08006",
            Self::ProtocolViolation => "08P01",
            Self::FeatureNotSupported => "0A000",
            Self::TooManyConnections => "53300",
            Self::AdminShutdown => "57P01",
            Self::CannotConnectNow => "57P03",
            Self::SystemError => "58000",
        }
    }
}

/// An error that ends the session, as a client shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its class.
    pub state: SqlState,
    /// What went wrong.
    pub message: String,
    /// What to try next.
    pub hint: Option<String>,
}

impl Refusal {
    /// Without a hint.
    #[must_use]
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    /// Of a client that wants to replicate ([`super::startup::Startup::wants_replication`]), wherever it is met.
    #[must_use]
    pub fn replication() -> Self {
        let message = "replication connections (pg_basebackup, pg_receivewal, subscriptions) are not passed on: they would carry \
                       all rows past the record";
        Self::new(SqlState::FeatureNotSupported, message).hint(
            "for a copy of one database: pg_dump; for backups and replicas connect to the server itself, past Sallyport",
        )
    }

    /// The same, with what to try next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The message, of severity FATAL: the client knows that the connection ends.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 + self.message.len());
        let mut field = |code: u8, text: &str| {
            body.push(code);
            // No text of ours has a zero; one from elsewhere would end the field early.
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        };
        field(b'S', "FATAL");
        field(b'V', "FATAL");
        field(b'C', self.state.code());
        field(b'M', &self.message);
        if let Some(hint) = &self.hint {
            field(b'H', hint);
        }
        body.push(0);
        super::message::encode(b'E', &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_what_a_server_would_send() {
        let refusal =
            Refusal::new(SqlState::InvalidAuthorization, "no role allows it").hint("sallyport db ls");
        assert_eq!(
            refusal.to_bytes(),
            b"E\0\0\0\x3eSFATAL\0VFATAL\0C28000\0Mno role allows it\0Hsallyport db ls\0\0"
        );
        let odd = Refusal::new(SqlState::SystemError, "a\0b").to_bytes();
        assert!(odd.windows(4).any(|window| window == b"Mab\0"));
    }
}
