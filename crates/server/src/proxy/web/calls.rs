//! How a call of a page is taken: whose it is, how much of it, and what becomes of it.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use metrics::counter;
use sallyport_wire::v1::web_client::WebClient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use tracing::debug;
use zeroize::Zeroizing;

use super::answer::{Refused, json};
use super::limits::{Limits, UnderWay};
use super::origin::Origins;
use crate::proxy::bodies::{self, BodyError};
use crate::proxy::peer::Peer;

/// Longest call: an attestation with a chain of certificates is some ten thousand bytes.
pub(super) const LONGEST_BYTES: usize = 160 * 1024;
/// What pages send,
const JSON: &str = "application/json";
/// and servers that are no pages.
const FORM: &str = "application/x-www-form-urlencoded";
/// How long a call may take to arrive,
const ARRIVAL: Duration = Duration::from_secs(5);
/// and to be answered: less than the page waits for both.
const PATIENCE: Duration = Duration::from_secs(12);

/// Makes calls to the authority, over the connection of this moment.
pub(super) type Authority<S> = Arc<dyn Fn() -> WebClient<S> + Send + Sync>;

/// What carries calls to the authority.
pub(super) trait Channel:
    tonic::client::GrpcService<
        tonic::body::Body,
        ResponseBody = tonic::body::Body,
        Error: Into<BoxError>,
        Future: Send,
    > + Send
    + 'static
{
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<S> Channel for S where
    S: tonic::client::GrpcService<
            tonic::body::Body,
            ResponseBody = tonic::body::Body,
            Error: Into<BoxError>,
            Future: Send,
        > + Send
        + 'static
{
}

/// What every call needs.
pub(super) struct Calls<S> {
    authority: Authority<S>,
    origins: Arc<Origins>,
    limits: Limits,
}

impl<S> Clone for Calls<S> {
    fn clone(&self) -> Self {
        Self {
            authority: Arc::clone(&self.authority),
            origins: Arc::clone(&self.origins),
            limits: self.limits.clone(),
        }
    }
}

impl<S: Channel> Calls<S> {
    pub(super) fn new(authority: Authority<S>, origins: Origins) -> Self {
        Self { authority, origins: Arc::new(origins), limits: Limits::default() }
    }

    /// A call by POST: what is read of it goes to `ask`, with the browser's address.
    pub(super) fn call<Q, A, F, Answer>(&self, method: &'static str, ask: F) -> MethodRouter
    where
        Q: DeserializeOwned + Send + 'static,
        A: Serialize + 'static,
        F: Fn(WebClient<S>, Q, String) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = Result<A, Refused>> + Send + 'static,
    {
        let calls = self.clone();
        post(move |request: Request| {
            let (calls, ask) = (calls.clone(), ask.clone());
            let taken = async move {
                match calls.take(method, request, ask).await {
                    Ok(answer) => json(answer),
                    Err(refused) => {
                        debug!(method, %refused, "a page's call is refused");
                        refused.into_response()
                    }
                }
            };
            Box::pin(taken) as futures::future::BoxFuture<'static, Response>
        })
    }

    /// What another server tells by POST of a form, whatever its origin: it has no page. `ask` has the last part of the path, the form,
    /// and the server's address.
    pub(super) fn told<F, Answer>(&self, method: &'static str, ask: F) -> MethodRouter
    where
        F: Fn(WebClient<S>, String, Zeroizing<Vec<u8>>, String) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = Result<(), Refused>> + Send + 'static,
    {
        let calls = self.clone();
        post(move |Path(name): Path<String>, request: Request| {
            let (calls, ask) = (calls.clone(), ask.clone());
            let taken = async move {
                match calls.hear(method, name, request, ask).await {
                    Ok(()) => StatusCode::OK.into_response(),
                    Err(refused) => {
                        debug!(method, %refused, "what another server tells is refused");
                        refused.into_response()
                    }
                }
            };
            Box::pin(taken) as futures::future::BoxFuture<'static, Response>
        })
    }

    async fn hear<F, Answer>(
        &self,
        method: &'static str,
        name: String,
        request: Request,
        ask: F,
    ) -> Result<(), Refused>
    where
        F: Fn(WebClient<S>, String, Zeroizing<Vec<u8>>, String) -> Answer,
        Answer: Future<Output = Result<(), Refused>>,
    {
        let (head, body) = request.into_parts();
        let (_under_way, address) = self.admit(&head)?;
        let body = read(FORM, &head.headers, body).await.inspect_err(|_| turned_away("body"))?;
        answered(method, ask((self.authority)(), name, body, address)).await
    }

    async fn take<Q, A, F, Answer>(
        &self,
        method: &'static str,
        request: Request,
        ask: F,
    ) -> Result<A, Refused>
    where
        Q: DeserializeOwned,
        F: Fn(WebClient<S>, Q, String) -> Answer,
        Answer: Future<Output = Result<A, Refused>>,
    {
        let (head, body) = request.into_parts();
        self.origins.check(&head.uri, &head.headers).inspect_err(|_| turned_away("origin"))?;
        let (_under_way, address) = self.admit(&head)?;
        let body = read(JSON, &head.headers, body).await.inspect_err(|_| turned_away("body"))?;
        let question: Q = serde_json::from_slice(&body).map_err(|error| {
            turned_away("body");
            Refused::Invalid(error.to_string())
        })?;
        drop(body);
        answered(method, ask((self.authority)(), question, address)).await
    }

    /// Counts a call before it is read, and until it is answered; gives where it comes from.
    fn admit(&self, head: &Parts) -> Result<(UnderWay, String), Refused> {
        let Some(peer) = head.extensions.get::<Peer>() else { return Err(Refused::Foreign) };
        let address = peer.address.ip().to_canonical();
        let under_way = self.limits.admit(address, Instant::now()).inspect_err(|_| turned_away("limit"))?;
        Ok((under_way, address.to_string()))
    }
}

/// What the authority answers, within the time that a page waits.
async fn answered<A>(
    method: &'static str,
    asking: impl Future<Output = Result<A, Refused>>,
) -> Result<A, Refused> {
    let answer = tokio::time::timeout(PATIENCE, asking).await.unwrap_or(Err(Refused::Unanswered));
    let result = if answer.is_ok() { "ok" } else { "error" };
    counter!("sallyport_authority_calls_total", "method" => method, "result" => result).increment(1);
    answer
}

fn turned_away(reason: &'static str) {
    counter!("sallyport_page_calls_refused_total", "reason" => reason).increment(1);
}

/// The body of a call, which may hold a password.
async fn read(media_type: &str, headers: &HeaderMap, body: Body) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // With a charset or without; no form of a foreign page can send this without asking first (Fetch §3.2.2).
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if kinds.next().is_some() || !essence.eq_ignore_ascii_case(media_type) {
        return Err(if media_type == FORM { Refused::NotForm } else { Refused::NotJson });
    }
    let read = bodies::whole(body, LONGEST_BYTES, ARRIVAL).await.map_err(|error| match error {
        BodyError::Slow => Refused::Slow,
        BodyError::TooLong => Refused::TooLong(LONGEST_BYTES),
        BodyError::Broken(error) => Refused::Invalid(error.to_string()),
    })?;
    Ok(Zeroizing::new(read.into()))
}

/// What the authority has answered.
pub(super) fn heard<T>(answer: Result<tonic::Response<T>, Status>) -> Result<T, Refused> {
    answer.map(tonic::Response::into_inner).map_err(Refused::Authority)
}
