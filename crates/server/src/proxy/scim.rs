//! `/scim/v2`: requests of SCIM clients, handed on to the authority, which knows the tokens and answers.
//!
//! The proxy reads no more of a request than it takes to bound and to carry it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use sallyport_scim::{MAX_BODY_BYTES, MAX_QUERY_BYTES, ScimError};
use sallyport_wire::v1;
use tracing::warn;

use super::bodies::{self, BodyError};
use super::peer::Peer;
use super::web::limits::{Bounds, Limits};
use crate::member::authority_client::AuthorityClient;
use crate::routes::Routes;

const BASE: &str = "/scim/v2";
/// How long a client has for its body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// How long the authority has for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Longest bearer token and longest header, in bytes.
const LONGEST_HEADER_BYTES: usize = 1024;
/// Requests of one address at a time, of all addresses at a time, and of one address in a minute. A provider fills a directory by some
/// requests at a time.
const BOUNDS: Bounds = Bounds { in_a_minute: 6_000, at_a_time: 4, in_all: 256 };
/// Requests that are being answered at a time: each may hold an answer of megabytes. Those whose bodies are on their way have none of
/// these places, so that no stranger holds one by being slow.
const REQUESTS: usize = 32;
/// How long a request waits for such a place.
const PLACE_TIME: Duration = Duration::from_secs(5);

/// What the pages need.
#[derive(Debug, Clone)]
struct Carries {
    client: AuthorityClient,
    places: Arc<tokio::sync::Semaphore>,
    limits: Limits,
}

/// The service's paths, for every method.
pub(super) fn routes(client: AuthorityClient) -> Routes {
    let places = Arc::new(tokio::sync::Semaphore::new(REQUESTS));
    let carries = Carries { client, places, limits: Limits::of(BOUNDS) };
    Routes::default()
        .page("/scim/v2", any(carry).with_state(carries.clone()))
        .page("/scim/v2/{*path}", any(carry).with_state(carries))
}

async fn carry(State(carries): State<Carries>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let text = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let token = text(header::AUTHORIZATION).and_then(bearer).unwrap_or_default();
    // What has no token at all is not worth a call.
    if token.is_empty() || token.len() > LONGEST_HEADER_BYTES {
        return refused(ScimError::Unauthorized);
    }
    let query = parts.uri.query().unwrap_or_default();
    if query.len() > MAX_QUERY_BYTES {
        let (what, unit) = ("the query", "bytes");
        return refused(ScimError::TooLarge { what, got: query.len(), unit, limit: MAX_QUERY_BYTES });
    }
    let Some(peer) = parts.extensions.get::<Peer>() else { return refused(ScimError::Unauthorized) };
    // Counted before the body is read, and until it is answered.
    let Ok(_under_way) = carries.limits.admit(peer.address.ip().to_canonical(), Instant::now()) else {
        return refused(ScimError::Busy);
    };
    let body = match bounded(body).await {
        Ok(body) => body,
        Err(refusal) => return refused(refusal),
    };
    let Ok(Ok(_place)) = tokio::time::timeout(PLACE_TIME, carries.places.acquire()).await else {
        return refused(ScimError::Busy);
    };
    let carried = [header::CONTENT_TYPE, header::IF_MATCH, header::IF_NONE_MATCH];
    let request = v1::ScimRequest {
        token: token.to_owned(),
        method: parts.method.to_string(),
        path: parts.uri.path().strip_prefix(BASE).unwrap_or_default().to_owned(),
        query: query.to_owned(),
        headers: carried.iter().flat_map(|name| lines(&parts.headers, name)).collect(),
        body,
        client_addr: peer.address.to_string(),
    };
    let mut authority = carries.client.provisioning();
    match tokio::time::timeout(ANSWER_TIME, authority.answer_scim(request)).await {
        Ok(Ok(answer)) => answered(answer.into_inner()),
        Ok(Err(status)) => {
            warn!(code = ?status.code(), message = status.message(), "the authority answers no SCIM request");
            refused(ScimError::Busy)
        }
        Err(_) => {
            warn!("the authority took too long for a SCIM request");
            refused(ScimError::Busy)
        }
    }
}

/// The token of a header (RFC 6750 §2.1; the scheme's case does not matter).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// A body within its bounds of length and time.
async fn bounded(body: Body) -> Result<Bytes, ScimError> {
    bodies::whole(body, MAX_BODY_BYTES, BODY_TIME).await.map_err(|error| match error {
        BodyError::TooLong => {
            let (what, unit, limit) = ("the body", "bytes", MAX_BODY_BYTES);
            ScimError::TooLarge { what, got: limit + 1, unit, limit }
        }
        BodyError::Broken(error) => {
            ScimError::InvalidSyntax { reason: format!("it did not come whole: {error}") }
        }
        BodyError::Slow => {
            ScimError::InvalidSyntax { reason: format!("it did not come within {} s", BODY_TIME.as_secs()) }
        }
    })
}

fn lines(headers: &HeaderMap, name: &HeaderName) -> Vec<v1::ScimHeader> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let values = values.filter(|value| value.len() <= LONGEST_HEADER_BYTES).take(4);
    values.map(|value| v1::ScimHeader { name: name.to_string(), value: value.to_owned() }).collect()
}

fn refused(error: ScimError) -> Response {
    let answer = sallyport_scim::Response::refused(error);
    let headers = answer.headers.into_iter();
    let headers = headers.map(|(name, value)| v1::ScimHeader { name: name.to_owned(), value }).collect();
    answered(v1::ScimAnswer { status: answer.status.into(), headers, body: answer.body.into() })
}

fn answered(answer: v1::ScimAnswer) -> Response {
    let status = u16::try_from(answer.status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let mut response = (status.unwrap_or(StatusCode::BAD_GATEWAY), answer.body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    for line in answer.headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(line.name.as_str()), HeaderValue::try_from(line.value.as_str()))
        {
            headers.insert(name, value);
        }
    }
    // No cache in between keeps who there is.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_as_bearer_and_not_otherwise() {
        assert_eq!(bearer("Bearer okta:abc"), Some("okta:abc"));
        assert_eq!(bearer("bearer  okta:abc "), Some("okta:abc"));
        for other in ["Basic b2t0YQ==", "okta:abc", "", "Bearer"] {
            assert_eq!(bearer(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_body_is_taken_up_to_its_bound() {
        assert_eq!(bounded(Body::from(vec![b' '; MAX_BODY_BYTES])).await.unwrap().len(), MAX_BODY_BYTES);
        let error = bounded(Body::from(vec![b' '; MAX_BODY_BYTES + 1])).await.unwrap_err();
        assert_eq!(error.word(), "too_large");
    }
}
