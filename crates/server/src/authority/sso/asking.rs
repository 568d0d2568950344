//! What a provider's servers are asked, within bounds, and how their answers are read.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use serde_json::{Map, Value};

use super::connector::Connector;
use super::error::SsoError;
use super::settings::endpoint;
use crate::config::{Endpoint, HostPort};
use crate::dialling::{addresses, is_inside};
use crate::outgoing::{self, Bounds, Reach};

/// One answer of a provider takes so long at most.
/// Unit tests wait for answers that never come.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Of a refusal so much is read.
const REFUSAL_BYTES: usize = 4096;
/// Longest text of a provider that is repeated to an administrator.
const SAID: usize = 256;
/// The type of a form.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Something that is asked of a provider.
#[derive(Debug)]
pub(super) struct Question<'q> {
    pub(super) what: &'static str,
    pub(super) url: &'q str,
    pub(super) method: Method,
    pub(super) headers: &'q [(&'static str, &'static str)],
    /// The header `authorization`.
    pub(super) authorization: Option<&'q str>,
    /// Its type, and itself.
    pub(super) body: Option<(&'static str, String)>,
    /// Most bytes of the answer.
    pub(super) limit: usize,
}

/// Who asks the servers of one connector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker<'c> {
    connector: &'c Connector,
}

pub(super) fn said(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SAID).collect()
}

/// The members of an answer.
pub(super) fn object(what: &'static str, url: &str, body: &[u8]) -> Result<Map<String, Value>, SsoError> {
    let unreadable = |reason: String| SsoError::Unreadable { what, url: said(url), reason };
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(unreadable("it is not an object".to_owned())),
        Err(error) => Err(unreadable(format!("it is not JSON ({error})"))),
    }
}

impl<'c> Asker<'c> {
    pub(super) fn new(connector: &'c Connector) -> Self {
        Self { connector }
    }

    /// The server of an address that a document of the provider names.
    pub(super) fn address(&self, what: &'static str, url: &str) -> Result<Endpoint, SsoError> {
        endpoint(url, self.connector.insecure_loopback).map_err(|reason| SsoError::Address {
            what,
            url: said(url),
            reason,
        })
    }

    pub(super) async fn get(
        &self,
        what: &'static str,
        url: &str,
        authorization: Option<&str>,
        limit: usize,
    ) -> Result<Bytes, SsoError> {
        let answer = self.ask(what, url, authorization, None, limit).await?;
        // §4.2: 200, and nothing else of the class.
        if answer.status != http::StatusCode::OK {
            return Err(SsoError::Status { what, url: said(url), status: answer.status });
        }
        Ok(answer.body)
    }

    /// A server that the provider's documents name, and the administrator does not, is asked where it is on the Internet, or the
    /// provider itself is not.
    pub(super) async fn reach(&self, address: &HostPort) -> Reach {
        let issuer = Endpoint::parse(&self.connector.issuer).map(|issuer| issuer.address);
        let Ok(issuer) = issuer else { return Reach::Public };
        if address.host == issuer.host || self.connector.allowed_hosts.contains(address) {
            return Reach::Named;
        }
        match tokio::time::timeout(PATIENCE, addresses(&issuer)).await {
            Ok(Ok(found)) if found.iter().any(|found| is_inside(found.ip())) => Reach::Named,
            _ => Reach::Public,
        }
    }

    pub(super) async fn ask(
        &self,
        what: &'static str,
        url: &str,
        authorization: Option<&str>,
        body: Option<(&'static str, String)>,
        limit: usize,
    ) -> Result<outgoing::Answer, SsoError> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let headers = &[("accept", "application/json")];
        self.put(Question { what, url, method, headers, authorization, body, limit }).await
    }

    pub(super) async fn put(&self, question: Question<'_>) -> Result<outgoing::Answer, SsoError> {
        let Question { what, url, method, headers, authorization, body, limit } = question;
        let found = self.address(what, url)?;
        let unreadable = |error: String| SsoError::Unreadable { what, url: said(url), reason: error };
        let mut request = Request::builder()
            .method(method)
            .uri(found.path.as_str())
            .header(HOST, found.authority())
            .header(USER_AGENT, concat!("sallyport/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = authorization {
            let mut value =
                HeaderValue::try_from(authorization).map_err(|error| unreadable(error.to_string()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let body = match body {
            Some((kind, body)) => {
                request = request.header(CONTENT_TYPE, kind);
                body
            }
            None => String::new(),
        };
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| unreadable(error.to_string()))?;
        let bounds = Bounds { patience: PATIENCE, body: limit, refusal: REFUSAL_BYTES };
        let reach = self.reach(&found.address).await;
        outgoing::send_within(reach, &found, self.connector.ca_file.as_deref(), request, bounds)
            .await
            .map_err(|source| SsoError::Asked { what, url: said(url), source })
    }
}

/// RFC 6749 §5.2: the error is in the body, where it is one of OAuth.
pub(super) fn refused(what: &'static str, url: &str, answer: &outgoing::Answer) -> SsoError {
    let members = serde_json::from_slice::<Map<String, Value>>(&answer.body).unwrap_or_default();
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(said);
    match text("error") {
        Some(error) => {
            SsoError::Refused { error, description: text("error_description").unwrap_or_default() }
        }
        None => SsoError::Status { what, url: said(url), status: answer.status },
    }
}
