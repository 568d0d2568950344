//! What a page is answered: JSON, or an error with a word for the page and a sentence for the person.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use tonic::{Code, Status};

/// Why a call comes to nothing.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum Refused {
    /// The browser says that another site's page asks, or does not say which.
    #[error(
        "this call is not of this proxy's own page; open the page by one of the proxy's public addresses"
    )]
    Foreign,
    /// Not JSON.
    #[error("the call has to be application/json")]
    NotJson,
    /// Not a form.
    #[error("the call has to be application/x-www-form-urlencoded")]
    NotForm,
    /// It does not end, or is too long.
    #[error("the call is longer than {0} bytes")]
    TooLong(usize),
    /// It did not arrive in time.
    #[error("the call did not arrive in time; try again")]
    Slow,
    /// It is not what this call takes.
    #[error("the call cannot be read: {0}")]
    Invalid(String),
    /// This place has asked too much, or all have.
    #[error("too many calls come from your network; try again in {} seconds", .0.as_secs().max(1))]
    Crowded(Duration),
    /// What the authority says.
    #[error("{}", .0.message())]
    Authority(Status),
    /// What the authority has answered cannot be read.
    #[error("the cluster has answered in a way that this proxy does not know; try again later")]
    Unreadable,
    /// The authority did not answer.
    #[error("the cluster took too long to answer; try again")]
    Unanswered,
}

impl Refused {
    /// HTTP's status, and the word by which the page tells.
    fn sorted(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Foreign => (StatusCode::FORBIDDEN, "foreign"),
            Self::NotJson | Self::NotForm => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid"),
            Self::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "invalid"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "slow"),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Self::Crowded(_) => (StatusCode::TOO_MANY_REQUESTS, "crowded"),
            Self::Unreadable => (StatusCode::BAD_GATEWAY, "internal"),
            Self::Unanswered => (StatusCode::GATEWAY_TIMEOUT, "unavailable"),
            // Never 401: that asks for a scheme of HTTP's, which there is none of (RFC 9110 §15.5.2).
            Self::Authority(status) => match status.code() {
                Code::InvalidArgument | Code::OutOfRange => (StatusCode::BAD_REQUEST, "invalid"),
                Code::Unauthenticated => (StatusCode::FORBIDDEN, "wrong"),
                Code::PermissionDenied => (StatusCode::FORBIDDEN, "denied"),
                Code::NotFound => (StatusCode::NOT_FOUND, "unknown"),
                Code::AlreadyExists => (StatusCode::CONFLICT, "exists"),
                Code::Aborted => (StatusCode::CONFLICT, "ended"),
                Code::FailedPrecondition => (StatusCode::CONFLICT, "failed"),
                Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, "crowded"),
                Code::Unimplemented => (StatusCode::NOT_IMPLEMENTED, "unsupported"),
                Code::Unavailable | Code::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
                Code::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, "unavailable"),
                Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => {
                    (StatusCode::BAD_GATEWAY, "internal")
                }
            },
        }
    }

    /// What the person reads. What the authority says of itself, or of the proxy's connection to it, is not theirs.
    fn told(&self, word: &str) -> String {
        match (self, word) {
            (Self::Authority(_), "unavailable") => {
                "this proxy cannot reach the cluster's authority; try again in a minute".to_owned()
            }
            (Self::Authority(_), "unsupported") => {
                "the cluster's authority is older than this proxy and has no such pages; ask an administrator to upgrade it"
                    .to_owned()
            }
            (Self::Authority(_), "internal") => {
                "the cluster's authority could not do this; try again, or ask an administrator to look at its log"
                    .to_owned()
            }
            _ => self.to_string(),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, word) = self.sorted();
        let body = json!({ "error": { "code": word, "message": self.told(word) } });
        let mut response = (status, Json(body)).into_response();
        if let Self::Crowded(wait) = self {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }
}

/// JSON of an answer.
pub(super) fn json(answer: impl Serialize) -> Response {
    Json(answer).into_response()
}
