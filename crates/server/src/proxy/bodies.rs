//! Bodies of requests, read whole within bounds.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("it did not come in time")]
    Slow,
    #[error("it is too long")]
    TooLong,
    #[error("{0}")]
    Broken(axum::BoxError),
}

/// Reads a body of at most so many bytes, which all come within a time.
pub(super) async fn whole(body: Body, most: usize, within: Duration) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(within, Limited::new(body, most).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLong),
        Ok(Err(error)) => Err(BodyError::Broken(error)),
        Err(_) => Err(BodyError::Slow),
    }
}
