//! The provider behind HTTP, with bearer tokens: each is a connector of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sallyport_scim::{MAX_BODY_BYTES, MemoryDirectory, Provider, Request, Response, ScimError};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server on loopback; it ends with this.
pub struct Server {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Serves clients with one of the tokens.
    pub async fn start(directory: Arc<MemoryDirectory>, tokens: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let provider = Arc::new(Provider::new(&format!("http://{address}/scim/v2")).unwrap());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (provider, directory) = (Arc::clone(&provider), Arc::clone(&directory));
                let service = service_fn(move |request| {
                    let (provider, directory) = (Arc::clone(&provider), Arc::clone(&directory));
                    async move { serve(&provider, &directory, tokens, request).await }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, task }
    }
}

async fn serve(
    provider: &Provider,
    directory: &MemoryDirectory,
    tokens: &[&str],
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, hyper::http::Error> {
    let (parts, body) = request.into_parts();
    let answer = match Limited::new(body, MAX_BODY_BYTES + 1).collect().await {
        Ok(body) => answer(provider, directory, tokens, &parts, &body.to_bytes()).await,
        Err(_) => {
            let (what, unit, limit) = ("the body", "bytes", MAX_BODY_BYTES);
            Response::refused(ScimError::TooLarge { what, got: limit + 1, unit, limit })
        }
    };
    let mut response = hyper::Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(answer.body.into()))
}

async fn answer(
    provider: &Provider,
    directory: &MemoryDirectory,
    tokens: &[&str],
    parts: &hyper::http::request::Parts,
    body: &[u8],
) -> Response {
    let said = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    let token = said.and_then(|said| said.strip_prefix("Bearer ")).unwrap_or_default();
    let Some(token) = tokens.iter().find(|known| **known == token) else {
        return Response::refused(ScimError::Unauthorized);
    };
    let Some(path) = parts.uri.path().strip_prefix("/scim/v2") else {
        return Response::refused(ScimError::NoEndpoint { path: parts.uri.path().to_owned() });
    };
    let headers: Vec<(&str, &str)> = parts
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let (method, query) = (parts.method.as_str(), parts.uri.query().unwrap_or_default());
    let request = Request { method, path, query, headers: &headers, body };
    provider.handle(&request, &directory.connector(token), OffsetDateTime::now_utc()).await
}
