//! What ends a connection.

/// Why a connection cannot go on, in words that follow "the server …" or "the client …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    // The peer.
    /// The first line is not that of SSH 2 (RFC 4253 §4.2).
    #[error("does not greet as SSH 2 does")]
    Greeting,
    /// A packet of a length that none has (RFC 4253 §6.1).
    #[error(
        "sent a packet of {0} bytes, expected at least 12, or 8 under ChaCha20, and at most 262144 in whole blocks"
    )]
    Length(u32),
    /// A packet whose padding does not fit into it.
    #[error("sent a packet whose padding is longer than the packet")]
    Padding,
    /// A packet that does not decrypt.
    #[error("sent a packet that was altered on its way")]
    Altered,
    /// A message that does not have the fields it must have.
    #[error("sent a malformed message ({0})")]
    Malformed(&'static str),
    /// A message that has no place here.
    #[error("sent message {message} where {expected} was expected")]
    Unexpected {
        /// Its number (RFC 4250 §4.1).
        message: u8,
        /// What was expected.
        expected: &'static str,
    },
    /// The key exchange is not signed by the key that was shown.
    #[error("did not sign the key exchange with its host key")]
    Signature,
    /// A host key that cannot be read, or of another type than was agreed on.
    #[error("showed a host key that cannot be used: {0}")]
    HostKey(String),
    /// Another host key than at the beginning.
    #[error("showed another host key when keys were renewed")]
    OtherHostKey,
    /// A key share that gives no secret.
    #[error("sent a key share that cannot be used")]
    Share,
    /// A peer that goes on under a worn key, or does nothing but exchange keys.
    #[error("{0}")]
    Keys(&'static str),
    /// More data than was allowed (RFC 4254 §5.2).
    #[error("sent more than the window allows")]
    Window,

    /// A client that has proven its key asks for another account (RFC 4252 §5).
    #[error("asked for another account in the middle of its login")]
    Account,

    // Neither side: another client is to try.
    /// There is no algorithm that both sides have.
    #[error("has no {what} in common with this side; it offers {theirs}")]
    NothingCommon {
        /// Of which kind.
        what: &'static str,
        /// The server's names.
        theirs: String,
    },

    /// Too many logins that were refused, or that were asked about.
    #[error("tried to log in too often")]
    Attempts,
    /// The client offers nothing of a kind that is spoken here.
    #[error("offers no {what} that is spoken here ({ours})")]
    NotSpoken {
        /// Of which kind.
        what: &'static str,
        /// The names that are.
        ours: String,
    },

    // Ourselves.
    /// The abstraction layer has no source for what was agreed on.
    #[error("asks for cryptography that is not to be had here: {0}")]
    Unavailable(String),
    /// It was driven in another order than is possible.
    #[error("cannot be told that now: {0}")]
    Order(&'static str),
}

impl Breach {
    /// Why a key exchange with a client came to nothing, when that was for want of an algorithm in common.
    pub(crate) fn nothing_common(&self) -> Option<String> {
        matches!(self, Self::NotSpoken { .. }).then(|| format!("it {self}"))
    }

    /// Whether a client with more algorithms may get further.
    #[must_use]
    pub fn is_for_another_client(&self) -> bool {
        matches!(self, Self::NothingCommon { .. } | Self::Unavailable(_))
    }
}
