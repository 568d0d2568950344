//! Channels of gRPC over connections that were made by hand: what their answers say of the trust in force, and what they want first.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use sallyport_wire::acts::{self, Weight};
use sallyport_wire::admin_factor::Wanted;
use sallyport_wire::trace_context::TRACEPARENT;
use sallyport_wire::{FRAME_BYTES, TRUST_HEADER};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::transport::{self, Endpoint, Uri};

use super::trace::recorder;
use crate::error::{Error, Result};

/// What hears from answers which trust is in force.
pub trait Follower: fmt::Debug + Send + Sync {
    /// An answer says that the trust of this version is.
    fn hear(&self, version: &str);
}

/// Who sees to it that an administrator proves a factor, where the authority wants that before it does what was asked for.
pub trait Prover: fmt::Debug + Send + Sync {
    /// Whether it is proven now, so that the call is made once more.
    fn prove(&self) -> BoxFuture<'_, bool>;
}

/// A channel that hears which trust is in force.
#[derive(Debug, Clone)]
pub struct Channel {
    inner: transport::Channel,
    /// Hears which trust is in force; none where there is no login.
    follower: Option<Arc<dyn Follower>>,
    /// Asked for what the authority wants first; none where it is no person that calls.
    prover: Option<Arc<dyn Prover>>,
}

impl Channel {
    /// One whose answers change nothing.
    pub fn plain(inner: transport::Channel) -> Self {
        Self { inner, follower: None, prover: None }
    }

    /// One whose answers tell `follower` which trust is in force.
    pub fn followed(inner: transport::Channel, follower: Arc<dyn Follower>) -> Self {
        Self { inner, follower: Some(follower), prover: None }
    }

    /// The same, where dangerous calls that want a proof first are made once more when `prover` has seen to it.
    #[must_use]
    pub fn proven_by(self, prover: Arc<dyn Prover>) -> Self {
        Self { prover: Some(prover), ..self }
    }

    /// Asks the other end whether it is there; nothing behind it is asked.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn ask_health(mut self) -> Result<(), transport::Error> {
        poll_fn(|context| self.inner.poll_ready(context)).await?;
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static("/healthz");
        self.inner.call(request).await.map(drop)
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let context = recorder::context().map(|context| http::HeaderValue::from_str(&context.to_string()));
        if let Some(Ok(context)) = context {
            request.headers_mut().insert(TRACEPARENT, context);
        }
        let follower = self.follower.clone();
        let prover = self.prover.clone().filter(|_| wants_proof(request.uri().path()));
        // What is ready is this one; the clone that stays has to ask anew.
        let again = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, again);
        Box::pin(async move {
            let answer = match prover {
                Some(prover) => call_proven(inner, request, prover).await?,
                None => inner.call(request).await?,
            };
            let version = answer.headers().get(TRUST_HEADER).and_then(|version| version.to_str().ok());
            if let (Some(follower), Some(version)) = (follower, version) {
                follower.hear(version);
            }
            Ok(answer)
        })
    }
}

/// Whether the authority may want a proof before it answers a call of this path: such calls have short messages of one piece.
fn wants_proof(path: &str) -> bool {
    let method = path.rsplit_once('.').map_or(path, |(_, method)| method).replace('/', ".");
    matches!(acts::of_method(&method), Weight::Dangerous | Weight::Documents)
}

/// Makes a call, and once more where the authority wants a proof first and the prover has seen to it.
async fn call_proven(
    mut inner: transport::Channel,
    request: http::Request<Body>,
    prover: Arc<dyn Prover>,
) -> Result<http::Response<Body>, transport::Error> {
    let (head, body) = request.into_parts();
    // The message is this program's own: reading it fails no more than sending it would.
    let message = body.collect().await.map(|message| message.to_bytes()).unwrap_or_default();
    let again = message.clone();
    let of = |head: http::request::Parts, message: Bytes| {
        http::Request::from_parts(head, Body::new(Full::new(message)))
    };
    let answer = inner.call(of(head.clone(), message)).await?;
    if Wanted::of_headers(answer.headers()) != Some(Wanted::Prove) || !prover.prove().await {
        return Ok(answer);
    }
    poll_fn(|context| inner.poll_ready(context)).await?;
    inner.call(of(head, again)).await
}

/// A channel over one connection.
pub(super) async fn channel_over<S>(
    endpoint: Endpoint,
    stream: S,
    doing: &'static str,
) -> Result<transport::Channel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = parking_lot::Mutex::new(Some(stream));
    // One connection is made by hand for its errors; a lost one is not silently dialled again.
    let connector = tower::service_fn(move |_: Uri| {
        let taken = stream.lock().take();
        async move { taken.map(TokioIo::new).ok_or_else(|| std::io::Error::other("the connection was lost")) }
    });
    endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| Error::Unusable { doing: doing.to_owned(), source: Arc::new(error) })
}

/// How the channels of this program are set up.
pub(super) fn endpoint() -> Endpoint {
    Endpoint::from_static("http://cluster.invalid")
        .user_agent(concat!("sallyport/", env!("CARGO_PKG_VERSION")))
        .expect("letters, digits, a slash and dots make a header value")
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20))
}
