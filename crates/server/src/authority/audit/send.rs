//! Checkpoints by HTTP: posted to a webhook, or stored as objects.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use sallyport_audit::log::Checkpoint;
use sallyport_sal::hash::sha256;
use time::OffsetDateTime;

use super::sigv4;
use crate::ServerError;
use crate::authority::audit::sigv4::Credentials;
use crate::config::{Bucket, Endpoint, Webhook};
use crate::outgoing::{self, Bounds};

/// A server has so long to take a checkpoint.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a refusal so much is read.
const REFUSAL_BYTES: usize = 4096;

/// Posts a checkpoint as JSON; any answer of the class 2xx is good.
pub(crate) async fn post(webhook: &Webhook, body: String) -> io::Result<()> {
    let mut request = request(Method::POST, &webhook.endpoint, &webhook.endpoint.path, body.into())?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(path) = &webhook.token_file {
        let token = outgoing::secret(path, PATIENCE).await?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
            .map_err(|_| io::Error::other(format!("{} has no token of one line", path.display())))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    send(&webhook.endpoint, webhook.ca_file.as_deref(), request).await
}

/// Stores a checkpoint as an object that is named for the cluster and the record.
pub(crate) async fn store(bucket: &Bucket, cluster: &str, checkpoint: &Checkpoint) -> io::Result<()> {
    let credentials = Credentials::parse(&outgoing::secret(&bucket.credentials_file, PATIENCE).await?)
        .map_err(|problem| io::Error::other(format!("{}: {problem}", bucket.credentials_file.display())))?;
    let path = format!("{}/{cluster}-{:016}.checkpoint", bucket.endpoint.path, checkpoint.head.sequence);
    let body = Bytes::from(format!("{}\n", checkpoint.to_line()));
    let digest = sha256(&body);
    let payload = HEXLOWER.encode(&digest);
    let now = OffsetDateTime::now_utc();
    let mut headers = vec![
        ("content-type", "text/plain".to_owned()),
        ("host", bucket.endpoint.authority()),
        // Buckets whose objects cannot be changed ask for one.
        ("x-amz-checksum-sha256", BASE64.encode(&digest)),
        ("x-amz-content-sha256", payload.clone()),
        ("x-amz-date", sigv4::stamp(now)),
    ];
    headers
        .extend(credentials.token.as_ref().map(|token| ("x-amz-security-token", token.as_str().to_owned())));
    let signed = sigv4::Request {
        method: "PUT",
        path: &path,
        query: "",
        headers: &headers,
        payload: &payload,
        region: &bucket.region,
        service: "s3",
        time: now,
    };
    let authorization = sigv4::authorization(&credentials, &signed).map_err(io::Error::other)?;
    let mut request = request(Method::PUT, &bucket.endpoint, &path, body)?;
    for (name, value) in headers.into_iter().chain([("authorization", authorization)]) {
        let mut value = HeaderValue::try_from(value).map_err(io::Error::other)?;
        value.set_sensitive(name == "authorization" || name == "x-amz-security-token");
        request.headers_mut().insert(name, value);
    }
    send(&bucket.endpoint, bucket.ca_file.as_deref(), request).await
}

fn request(method: Method, endpoint: &Endpoint, path: &str, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, endpoint.authority())
        .body(Full::new(body))
        .map_err(io::Error::other)
}

/// A checkpoint is taken by an answer of the class 2xx.
async fn send(endpoint: &Endpoint, ca_file: Option<&Path>, request: Request<Full<Bytes>>) -> io::Result<()> {
    let bounds = Bounds { patience: PATIENCE, body: 0, refusal: REFUSAL_BYTES };
    let answer = outgoing::send(endpoint, ca_file, request, bounds)
        .await
        .map_err(|error| io::Error::other(ServerError::chain(&error)))?;
    if answer.status.is_success() {
        return Ok(());
    }
    Err(io::Error::other(format!("the answer was {}{}, not 2xx", answer.status, reason(&answer.body))))
}

/// What an object store says of a refusal: the code in its XML.
fn reason(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let code =
        text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    match code {
        Some(code) if code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            format!(" ({code})")
        }
        _ => String::new(),
    }
}
