//! Requests as they come, and answers as they go: what carries them knows no more of SCIM than this.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::error::ScimError;
use crate::kind::Kind;

/// A request whose client is known already: its token was looked at before.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, such as `GET`.
    pub method: &'a str,
    /// The path below the base of the service, such as `/Users/7`.
    pub path: &'a str,
    /// The query without its question mark; empty where there is none.
    pub query: &'a str,
    /// Names and values of the headers. `Content-Type`, `If-Match` and `If-None-Match` are read, others may be left out.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body, of which at most [`MAX_BODY_BYTES`](crate::MAX_BODY_BYTES) are taken.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The value of a header, of several lines one list (RFC 9110 §5.3).
    pub(crate) fn header(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut lines = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, first) = lines.next()?;
        let rest: Vec<&str> = lines.map(|(_, value)| *value).collect();
        if rest.is_empty() {
            Some(Cow::Borrowed(first))
        } else {
            Some(format!("{first}, {}", rest.join(", ")).into())
        }
    }
}

/// An answer, and what was done.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Names and values of the headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty where there is none.
    pub body: Vec<u8>,
    /// What was changed, for the record. Nothing is, where nothing was to change.
    pub done: Option<Done>,
    /// Why the request was refused, for the record. Of a failure of ours the log has to tell more than the client reads.
    pub refused: Option<ScimError>,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The kind of the resource.
    pub kind: Kind,
    /// Its identifier.
    pub id: String,
    /// What was done to it.
    pub what: What,
}

/// What was done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was made.
    Created,
    /// It was changed otherwise than below.
    Changed,
    /// A user who could not log in may again.
    Activated,
    /// A user who could log in may not any more.
    Deactivated,
    /// It was removed.
    Deleted,
}

/// The media type of SCIM (RFC 7644 §8.1).
const SCIM_JSON: &str = "application/scim+json";

impl Response {
    /// An answer with a body.
    pub(crate) fn json(status: u16, body: impl Into<Value>) -> Self {
        let headers = vec![("Content-Type", SCIM_JSON.to_owned())];
        Self { status, headers, body: body.into().to_string().into_bytes(), done: None, refused: None }
    }

    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), done: None, refused: None }
    }

    pub(crate) fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    pub(crate) fn done(mut self, kind: Kind, id: &str, what: What) -> Self {
        self.done = Some(Done { kind, id: id.to_owned(), what });
        self
    }

    /// The answer to a request that is refused (RFC 7644 §3.12). Carriers use it for what they refuse themselves.
    #[must_use]
    pub fn refused(error: ScimError) -> Self {
        let mut body = Map::new();
        body.insert("schemas".to_owned(), json!(["urn:ietf:params:scim:api:messages:2.0:Error"]));
        body.insert("status".to_owned(), error.status().to_string().into());
        if let Some(keyword) = error.scim_type() {
            body.insert("scimType".to_owned(), keyword.into());
        }
        body.insert("detail".to_owned(), error.to_string().into());
        let answer = Self::json(error.status(), body);
        let answer = match &error {
            ScimError::Unauthorized => answer.with("WWW-Authenticate", "Bearer"),
            ScimError::MethodNotAllowed { allowed, .. } => answer.with("Allow", *allowed),
            ScimError::Busy => answer.with("Retry-After", "1"),
            _ => answer,
        };
        Self { refused: Some(error), ..answer }
    }
}
