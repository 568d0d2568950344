//! Why a login by an identity provider failed.

use time::OffsetDateTime;

use crate::algorithm::Algorithm;

/// Everything that this crate refuses, sorted by who has to act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OidcError {
    // The operator.
    /// The issuer is not the URL of one.
    #[error(
        "{issuer:?} cannot be an issuer: {reason}; give the URL that the provider's documents have as \"issuer\""
    )]
    BadIssuer {
        /// What was given.
        issuer: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The client ID is empty, or no algorithm is allowed.
    #[error("the provider's settings: {reason}")]
    BadSettings {
        /// What is wrong.
        reason: &'static str,
    },
    /// A path or template of the mapping cannot be read.
    #[error("{text:?} in the mapping: {reason}")]
    BadTemplate {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    // The issuer, or who stands between.
    /// The discovery document cannot be read, or lacks something.
    #[error("the discovery document of {issuer}: {reason}")]
    BadDiscovery {
        /// The issuer that it was fetched for.
        issuer: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The discovery document is another issuer's.
    #[error(
        "the discovery document says that it is of {got:?}, expected {expected:?}: correct the issuer in the settings, to the letter"
    )]
    IssuerMismatch {
        /// Whose it says to be.
        got: String,
        /// The configured issuer.
        expected: String,
    },
    /// The key set cannot be read.
    #[error("the issuer's key set: {reason}")]
    BadKeySet {
        /// What is wrong with it.
        reason: String,
    },
    /// No key of the set can have made the signature.
    #[error(
        "the token was signed by the key {kid:?} for {algorithm}, and the issuer's key set has {known}: fetch the key set again"
    )]
    UnknownKey {
        /// The key that the token names.
        kid: String,
        /// Its algorithm.
        algorithm: Algorithm,
        /// What the key set has, and why it does not have others.
        known: String,
    },
    /// The token names no key, or one that several have, and more than one could be it.
    #[error("{count} keys of the issuer's set could have signed the token, and it names none of them alone")]
    AmbiguousKey {
        /// How many.
        count: usize,
    },

    // The bearer of the token.
    /// Longer than any ID token.
    #[error("the token has {got} bytes, at most {limit} are read")]
    TooLong {
        /// Its length, in bytes.
        got: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// It is not one token with one signature.
    #[error("not an ID token: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// Unsigned, or signed by a secret that both sides have.
    #[error("the token is signed by {got:?}, which proves nothing")]
    Unsigned {
        /// What its header names.
        got: String,
    },
    /// An algorithm that is not allowed for this issuer.
    #[error("the token is signed by {got:?}, expected one of {expected}")]
    AlgorithmNotAllowed {
        /// What its header names.
        got: String,
        /// Those that are allowed.
        expected: String,
    },
    /// It brings the key that it is to be verified by.
    #[error("the token brings a key of its own ({parameter}), which proves nothing")]
    EmbeddedKey {
        /// The header parameter.
        parameter: &'static str,
    },
    /// It demands to understand something that this does not (RFC 7515 §4.1.11).
    #[error("the token has critical header parameters ({names}), and none is supported here")]
    Critical {
        /// The parameters.
        names: String,
    },
    /// It was altered, or signed by another key.
    #[error("the signature of the token is not valid")]
    BadSignature,
    /// A claim that has to be there is not.
    #[error("the token has no claim {claim:?}")]
    MissingClaim {
        /// The claim.
        claim: &'static str,
    },
    /// A claim has another type than its own.
    #[error("the claim {claim:?} of the token is {got}, expected {expected}")]
    WrongClaim {
        /// The claim.
        claim: &'static str,
        /// What it is.
        got: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Made by another issuer.
    #[error("the token was issued by {got:?}, expected {expected:?}")]
    WrongIssuer {
        /// Whom it names.
        got: String,
        /// The configured issuer.
        expected: String,
    },
    /// Made for another client, or for others as well.
    #[error("the token is for {got}, expected {expected:?} alone")]
    WrongAudience {
        /// For whom it is.
        got: String,
        /// The client ID.
        expected: String,
    },
    /// Several may use it, and it was given to another one of them.
    #[error("the token was given to {got:?} (azp), expected {expected:?}")]
    WrongParty {
        /// To whom it was given; empty where it does not say.
        got: String,
        /// The client ID.
        expected: String,
    },
    /// Its time is over.
    #[error("the token ended at {ended} and it is now {now}: log in again; if that fails, check the clocks")]
    Expired {
        /// Its end.
        ended: OffsetDateTime,
        /// The clock.
        now: OffsetDateTime,
    },
    /// Its time has not come.
    #[error(
        "the token is from {from} on ({claim}) and it is only {now} here: check that both clocks are synchronised"
    )]
    NotYetValid {
        /// The claim.
        claim: &'static str,
        /// Its start.
        from: OffsetDateTime,
        /// The clock.
        now: OffsetDateTime,
    },
    /// Made too long ago for a login that goes on now.
    #[error("the token was made at {issued} and it is now {now}: log in again")]
    TooOld {
        /// When it was made.
        issued: OffsetDateTime,
        /// The clock.
        now: OffsetDateTime,
    },
    /// The user logged in at the provider longer ago than was asked for.
    #[error("the login at the provider was at {at}, and it is now {now}: log in there again")]
    LoginTooOld {
        /// When that was.
        at: OffsetDateTime,
        /// The clock.
        now: OffsetDateTime,
    },
    /// It answers another login.
    #[error("the token belongs to another login: start again")]
    NonceMismatch,
    /// The attempt took too long.
    #[error("the login was begun too long ago: it ended at {ended}; start again")]
    AttemptExpired {
        /// Its end.
        ended: OffsetDateTime,
    },
    /// The answer does not say whose it is, and the provider's answers do.
    #[error(
        "the answer names no issuer, expected {expected:?}, which has announced that its answers name it: start again"
    )]
    UnnamedAnswer {
        /// The configured issuer.
        expected: String,
    },
    /// A logout token says nothing of a logout, or what only an ID token says.
    #[error("not a logout token: {reason}")]
    NotLogout {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The answer belongs to no login that this browser began.
    #[error("the answer belongs to another login: start again in one window")]
    StateMismatch,

    // Ourselves.
    /// No randomness.
    #[error("the system has no randomness to give")]
    NoRandomness,
}

impl OidcError {
    /// The word for events and metrics. It never changes.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::BadIssuer { .. } => "bad_issuer",
            Self::BadSettings { .. } => "bad_settings",
            Self::BadTemplate { .. } => "bad_template",
            Self::BadDiscovery { .. } => "bad_discovery",
            Self::IssuerMismatch { .. } => "issuer_mismatch",
            Self::BadKeySet { .. } => "bad_key_set",
            Self::UnknownKey { .. } => "unknown_key",
            Self::AmbiguousKey { .. } => "ambiguous_key",
            Self::TooLong { .. } => "too_long",
            Self::Malformed { .. } => "malformed",
            Self::Unsigned { .. } => "unsigned",
            Self::AlgorithmNotAllowed { .. } => "algorithm_not_allowed",
            Self::EmbeddedKey { .. } => "embedded_key",
            Self::Critical { .. } => "critical",
            Self::BadSignature => "bad_signature",
            Self::MissingClaim { .. } => "missing_claim",
            Self::WrongClaim { .. } => "wrong_claim",
            Self::WrongIssuer { .. } => "wrong_issuer",
            Self::WrongAudience { .. } => "wrong_audience",
            Self::WrongParty { .. } => "wrong_party",
            Self::Expired { .. } => "expired",
            Self::NotYetValid { .. } => "not_yet_valid",
            Self::TooOld { .. } => "too_old",
            Self::LoginTooOld { .. } => "login_too_old",
            Self::NonceMismatch => "nonce_mismatch",
            Self::AttemptExpired { .. } => "attempt_expired",
            Self::UnnamedAnswer { .. } => "unnamed_answer",
            Self::NotLogout { .. } => "not_logout",
            Self::StateMismatch => "state_mismatch",
            Self::NoRandomness => "no_randomness",
        }
    }
}
