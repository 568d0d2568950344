//! Checkpoints by HTTP: posted to a webhook, or stored as objects.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use sallyport_audit::log::Checkpoint;
use sallyport_ca::tls::outside::outside_client_config;
use sallyport_sal::hash::sha256;
use time::OffsetDateTime;
use tokio_rustls::rustls::ClientConfig;

use super::sigv4;
use crate::authority::audit::sigv4::Credentials;
use crate::config::{Bucket, Endpoint, Webhook};
use crate::dialling::{BoxIo, dial, handshake};
use crate::{ServerError, files};

/// A server has so long to take a checkpoint.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a refusal so much is read.
const REFUSAL_BYTES: usize = 4096;
/// Where systems keep the CAs that they trust, the first that is there; the variable `SSL_CERT_FILE` names another.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Posts a checkpoint as JSON; any answer of the class 2xx is good.
pub(crate) async fn post(webhook: &Webhook, body: String) -> io::Result<()> {
    let mut request = request(Method::POST, &webhook.endpoint, &webhook.endpoint.path, body.into())?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(path) = &webhook.token_file {
        let token = private(path).await?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
            .map_err(|_| io::Error::other(format!("{} has no token of one line", path.display())))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    send(&webhook.endpoint, webhook.ca_file.as_deref(), request).await
}

/// Stores a checkpoint as an object that is named for the cluster and the record.
pub(crate) async fn store(bucket: &Bucket, cluster: &str, checkpoint: &Checkpoint) -> io::Result<()> {
    let credentials = Credentials::parse(&private(&bucket.credentials_file).await?)
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

/// Reads a secret, on no thread that serves connections: the file may be where nothing answers.
async fn private(path: &Path) -> io::Result<String> {
    let from = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || read_private(&from));
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(read) => read.map_err(io::Error::other)?,
        Err(_) => {
            let problem = format!("{} was not read within {} s", path.display(), PATIENCE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
}

fn read_private(path: &Path) -> io::Result<String> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()));
    let bytes = files::read_private(path)
        .map_err(|error| io::Error::other(ServerError::chain(&error)))?
        .ok_or_else(missing)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other(format!("{} is not UTF-8", path.display())))
}

fn request(method: Method, endpoint: &Endpoint, path: &str, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, endpoint.authority())
        .body(Full::new(body))
        .map_err(io::Error::other)
}

/// One request by HTTP/1.1 (RFC 9112) on a connection of its own.
async fn send(endpoint: &Endpoint, ca_file: Option<&Path>, request: Request<Full<Bytes>>) -> io::Result<()> {
    let tls = if endpoint.secure { Some(Arc::new(trusted(ca_file).await?)) } else { None };
    let sending = async {
        let tcp = dial(&endpoint.address).await?;
        let io: BoxIo = match tls {
            Some(config) => Box::new(handshake(tcp, config, &endpoint.address.host).await?),
            None => Box::new(tcp),
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
        let asking = async {
            let answer = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let said = Limited::new(answer.into_body(), REFUSAL_BYTES).collect().await;
            let said = said.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Err(io::Error::other(format!("the answer was {status}{}, not 2xx", reason(&said))))
        };
        tokio::pin!(connection, asking);
        tokio::select! {
            done = &mut asking => done,
            // It ends with the answer, which may be there already.
            _ = &mut connection => asking.await,
        }
    };
    match tokio::time::timeout(PATIENCE, sending).await {
        Ok(sent) => sent,
        Err(_) => {
            let problem = format!("no answer within {} s", PATIENCE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
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

async fn trusted(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let given = ca_file.map(Path::to_owned).or_else(|| std::env::var_os("SSL_CERT_FILE").map(Into::into));
    let read = tokio::task::spawn_blocking(move || {
        let path = match given {
            Some(path) => path,
            None => SYSTEM_ROOTS
                .iter()
                .map(Path::new)
                .find(|path| path.exists())
                .map(Path::to_owned)
                .ok_or_else(|| io::Error::other("this system has no list of CAs; name one: ca_file"))?,
        };
        let named = |problem: String| io::Error::other(format!("{}: {problem}", path.display()));
        let roots = std::fs::read(&path).map_err(|error| named(error.to_string()))?;
        outside_client_config(&roots).map_err(|error| named(error.to_string()))
    });
    read.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_that_does_not_come_keeps_no_connection_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        // Opening it waits until another opens it to write, which happens only after this thread has gone on.
        let reading = tokio::spawn({
            let path = path.clone();
            async move { private(&path).await }
        });
        tokio::task::yield_now().await;
        let written = tokio::task::spawn_blocking(move || std::fs::write(path, "secret\n"));
        let (read, written) = tokio::join!(reading, written);
        written.unwrap().unwrap();
        assert_eq!(read.unwrap().unwrap(), "secret\n");
    }
}
