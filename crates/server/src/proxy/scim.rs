//! `/scim/v2`: requests of SCIM clients, handed on to the authority, which knows the tokens and answers.
//!
//! The proxy reads no more of a request than it takes to bound and to carry it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use sallyport_scim::{MAX_BODY_BYTES, MAX_QUERY_BYTES, ScimError};
use sallyport_wire::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use super::bodies::{self, BodyError};
use super::peer::Peer;
use super::web::limits::{Bounds, Limits, UnderWay};
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
    room: Room,
}

/// How many requests there may be.
#[derive(Debug, Clone)]
struct Room {
    limits: Limits,
    answered: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { limits: Limits::of(BOUNDS), answered: Arc::new(Semaphore::new(REQUESTS)) }
    }
}

/// The service's paths, for every method.
pub(super) fn routes(client: AuthorityClient) -> Routes {
    let carries = Carries { client, room: Room::default() };
    Routes::default()
        .page("/scim/v2", any(carry).with_state(carries.clone()))
        .page("/scim/v2/{*path}", any(carry).with_state(carries))
}

/// The places of a request that is answered; both are given back with it.
#[derive(Debug)]
struct HeldPlaces {
    _under_way: UnderWay,
    _answered: OwnedSemaphorePermit,
}

impl Room {
    /// The whole of a request, and the places that it has. It is counted before its body is read, and until it is answered; a place among
    /// those that are answered it has only then.
    async fn whole(&self, address: IpAddr, body: Body) -> Result<(HeldPlaces, Bytes), ScimError> {
        let under_way = self.limits.admit(address, Instant::now()).map_err(|_| ScimError::Busy)?;
        let body = bounded(body).await?;
        let waiting = Arc::clone(&self.answered).acquire_owned();
        match tokio::time::timeout(PLACE_TIME, waiting).await {
            Ok(Ok(answered)) => Ok((HeldPlaces { _under_way: under_way, _answered: answered }, body)),
            Ok(Err(_)) | Err(_) => Err(ScimError::Busy),
        }
    }
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
    let (_held, body) = match carries.room.whole(peer.address.ip().to_canonical(), body).await {
        Ok(whole) => whole,
        Err(refusal) => return refused(refusal),
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
#[allow(clippy::unwrap_used, clippy::panic)]
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

    fn never() -> Body {
        Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
    }

    /// A body of which a byte comes each second, for ever.
    fn trickling() -> Body {
        Body::from_stream(futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_strangers_have_few_places_and_give_them_back() {
        let (room, stranger) = (Room::default(), IpAddr::from([192, 0, 2, 7]));
        let began = tokio::time::Instant::now();
        let slow = [never(), trickling(), never(), trickling()].map(|body| {
            let room = room.clone();
            tokio::spawn(async move { room.whole(stranger, body).await })
        });
        // They have begun, and hold all that their address may.
        tokio::task::yield_now().await;
        let crowded = room.whole(stranger, Body::empty()).await.unwrap_err();
        assert_eq!(crowded.word(), "busy");
        // Others are answered meanwhile, in as many places as without them.
        let other = IpAddr::from([198, 51, 100, 7]);
        let (held, body) = room.whole(other, Body::from("{}")).await.unwrap();
        assert_eq!((&body[..], room.answered.available_permits()), (&b"{}"[..], REQUESTS - 1));
        drop(held);
        assert_eq!(began.elapsed(), Duration::ZERO, "no one waited for them");
        // A time that is long for a test and would be none to a stranger without a bound.
        let all = tokio::time::timeout(Duration::from_secs(600), futures::future::join_all(slow));
        for ended in all.await.unwrap_or_else(|_| panic!("slow bodies are waited for without end")) {
            assert_eq!(ended.unwrap().unwrap_err().word(), "invalid_syntax");
        }
        assert_eq!(began.elapsed(), BODY_TIME);
        assert_eq!(room.answered.available_permits(), REQUESTS);
        room.whole(stranger, Body::from("{}")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_answers_place_and_not_for_ever() {
        let (room, client) = (Room::default(), IpAddr::from([192, 0, 2, 7]));
        let all = u32::try_from(REQUESTS).unwrap();
        let taken = Arc::clone(&room.answered).acquire_many_owned(all).await.unwrap();
        for _ in 0..2 * BOUNDS.at_a_time {
            let began = tokio::time::Instant::now();
            assert_eq!(room.whole(client, Body::empty()).await.unwrap_err().word(), "busy");
            assert_eq!(began.elapsed(), PLACE_TIME);
        }
        drop(taken);
        room.whole(client, Body::empty()).await.unwrap();
    }
}
