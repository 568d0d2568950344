//! Why a request was refused.

use crate::kind::Kind;

/// Everything that this crate refuses or fails at, sorted by who has to act.
///
/// `Display` is what the client reads as `detail`; sources are for the log alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScimError {
    // The operator.
    /// The address under which the service is reached is not one.
    #[error("{base:?} cannot be the address of a SCIM service: {reason}")]
    BadBase {
        /// What was given.
        base: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    // The client's settings.
    /// There is no bearer token, or it is not valid (any more).
    #[error("no valid bearer token came with the request: make one with `sallyport admin scim token add`")]
    Unauthorized,
    /// No such endpoint.
    #[error("there is nothing at {path:?}: resources are under /Users and /Groups")]
    NoEndpoint {
        /// The path, cut short.
        path: String,
    },
    /// An endpoint that is not supported.
    #[error("{what} is not supported; /ServiceProviderConfig says what is")]
    NotSupported {
        /// The endpoint.
        what: &'static str,
    },
    /// The endpoint has no such method.
    #[error("{method} is not allowed here, only {allowed}")]
    MethodNotAllowed {
        /// The method, cut short.
        method: String,
        /// Those that are, parted by commas.
        allowed: &'static str,
    },
    /// The body is not JSON by its type.
    #[error("the body is {got:?}, expected application/scim+json or application/json")]
    UnsupportedMediaType {
        /// The type, cut short.
        got: String,
    },
    /// More than is taken at once.
    #[error("{what} has {got} {unit}, at most {limit} are taken: send less at once")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How much it has.
        got: usize,
        /// Of what.
        unit: &'static str,
        /// The limit.
        limit: usize,
    },

    // The request.
    /// The body is not the message that it should be.
    #[error("the body: {reason}")]
    InvalidSyntax {
        /// What is wrong with it.
        reason: String,
    },
    /// A filter that cannot be read, or compares what cannot be compared.
    #[error("the filter: {reason}")]
    InvalidFilter {
        /// What is wrong with it.
        reason: String,
    },
    /// A path of a PATCH that cannot be read or names nothing.
    #[error("the path {path:?}: {reason}")]
    InvalidPath {
        /// The path, cut short.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A path of a PATCH at which there is nothing to work on.
    #[error("the path {path:?}: {reason}")]
    NoTarget {
        /// The path, cut short.
        path: String,
        /// Why there is nothing.
        reason: &'static str,
    },
    /// A value that an attribute or a parameter cannot have.
    #[error("{attribute}: {reason}")]
    InvalidValue {
        /// The attribute or parameter.
        attribute: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// An attribute that clients may not change so.
    #[error("{attribute}: {reason}")]
    Mutability {
        /// The attribute.
        attribute: String,
        /// Why not.
        reason: &'static str,
    },
    /// Discovery documents are not filtered (RFC 7644 §4).
    #[error("this endpoint takes no filter")]
    FilterForbidden,

    // What is stored.
    /// No such resource, or none that the client's connector made.
    #[error("there is no {kind} {id:?}")]
    NotFound {
        /// The kind.
        kind: Kind,
        /// The identifier, cut short.
        id: String,
    },
    /// Another resource has this value already.
    #[error("{attribute} is taken already")]
    Uniqueness {
        /// The attribute.
        attribute: &'static str,
    },
    /// The resource has another version than the client thinks.
    #[error("the resource is at version {now}, which If-Match does not name: read it again")]
    PreconditionFailed {
        /// Its version.
        now: String,
    },
    /// Others changed the resource each time that this change was about to be made.
    #[error("others kept changing the resource: try again")]
    Busy,
    /// As many resources as the connector may have.
    #[error("no more than {limit} of kind {kind} may be provisioned: {remedy}")]
    Full {
        /// The kind.
        kind: Kind,
        /// How many there may be.
        limit: usize,
        /// What to do about it.
        remedy: &'static str,
    },

    // Ourselves.
    /// The storage failed.
    #[error("the server failed: its log says why")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ScimError {
    /// The word for events and metrics. It never changes.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::BadBase { .. } => "bad_base",
            Self::Unauthorized => "unauthorized",
            Self::NoEndpoint { .. } => "no_endpoint",
            Self::NotSupported { .. } => "not_supported",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UnsupportedMediaType { .. } => "unsupported_media_type",
            Self::TooLarge { .. } => "too_large",
            Self::InvalidSyntax { .. } => "invalid_syntax",
            Self::InvalidFilter { .. } => "invalid_filter",
            Self::InvalidPath { .. } => "invalid_path",
            Self::NoTarget { .. } => "no_target",
            Self::InvalidValue { .. } => "invalid_value",
            Self::Mutability { .. } => "mutability",
            Self::FilterForbidden => "filter_forbidden",
            Self::NotFound { .. } => "not_found",
            Self::Uniqueness { .. } => "uniqueness",
            Self::PreconditionFailed { .. } => "precondition_failed",
            Self::Busy => "busy",
            Self::Full { .. } => "full",
            Self::Backend(_) => "backend",
        }
    }

    /// The status of the answer (RFC 7644 §3.12).
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::InvalidSyntax { .. }
            | Self::InvalidFilter { .. }
            | Self::InvalidPath { .. }
            | Self::NoTarget { .. }
            | Self::InvalidValue { .. }
            | Self::Mutability { .. } => 400,
            Self::Unauthorized => 401,
            Self::FilterForbidden => 403,
            Self::NoEndpoint { .. } | Self::NotFound { .. } => 404,
            Self::MethodNotAllowed { .. } => 405,
            Self::Uniqueness { .. } => 409,
            Self::PreconditionFailed { .. } => 412,
            Self::TooLarge { .. } => 413,
            Self::UnsupportedMediaType { .. } => 415,
            Self::BadBase { .. } | Self::Backend(_) => 500,
            Self::NotSupported { .. } => 501,
            Self::Busy => 503,
            Self::Full { .. } => 507,
        }
    }

    /// The detail error keyword of RFC 7644 §3.12, where one fits.
    #[must_use]
    pub const fn scim_type(&self) -> Option<&'static str> {
        Some(match self {
            Self::InvalidSyntax { .. } => "invalidSyntax",
            Self::InvalidFilter { .. } => "invalidFilter",
            Self::InvalidPath { .. } => "invalidPath",
            Self::NoTarget { .. } => "noTarget",
            Self::InvalidValue { .. } => "invalidValue",
            Self::Mutability { .. } => "mutability",
            Self::Uniqueness { .. } => "uniqueness",
            _ => return None,
        })
    }

    pub(crate) fn syntax(reason: impl Into<String>) -> Self {
        Self::InvalidSyntax { reason: reason.into() }
    }

    pub(crate) fn filter(reason: impl Into<String>) -> Self {
        Self::InvalidFilter { reason: reason.into() }
    }

    pub(crate) fn path(path: &str, reason: impl Into<String>) -> Self {
        Self::InvalidPath { path: shortened(path), reason: reason.into() }
    }

    pub(crate) fn value(attribute: &str, reason: impl Into<String>) -> Self {
        Self::InvalidValue { attribute: shortened(attribute), reason: reason.into() }
    }
}

/// The start of what a client sent, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}
