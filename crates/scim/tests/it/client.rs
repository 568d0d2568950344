//! A client without a wire: requests go to the provider as they are written.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sallyport_scim::{Connector, Done, MemoryDirectory, Provider, Request, Response};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;

pub const BASE: &str = "https://proxy.example.com/scim/v2";
pub const NOW: OffsetDateTime = datetime!(2026-01-01 12:00 UTC);
pub const USER: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
pub const GROUP: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";
pub const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
const JSON: (&str, &str) = ("Content-Type", "application/scim+json");

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub json: Value,
    pub done: Option<Done>,
    headers: Vec<(&'static str, String)>,
}

impl Answer {
    fn of(response: Response) -> Self {
        let json = if response.body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&response.body).unwrap()
        };
        Self { status: response.status, json, done: response.done, headers: response.headers }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    pub fn id(&self) -> String {
        self.json["id"].as_str().unwrap().to_owned()
    }

    /// That it is a refusal with this status and keyword.
    pub fn refused(&self, status: u16, keyword: &str) {
        assert_eq!(self.json["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:Error"]), "{self:?}");
        assert_eq!(
            (self.status, self.json["status"].as_str()),
            (status, Some(&*status.to_string())),
            "{self:?}"
        );
        assert_eq!(self.json["scimType"].as_str().unwrap_or_default(), keyword, "{self:?}");
        assert!(self.json["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{self:?}");
        assert!(self.done.is_none(), "{self:?}");
    }

    /// What of each resource of a list is under a name.
    pub fn each(&self, name: &str) -> Vec<String> {
        let resources = self.json["Resources"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        resources.iter().map(|resource| resource[name].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// What a directory in memory comes to, which is never waited for.
pub fn ready<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a directory in memory waits for something"),
    }
}

/// A client with a connector of its own.
pub struct Client<'a> {
    connector: Connector<'a>,
    provider: Provider,
    pub now: OffsetDateTime,
}

impl<'a> Client<'a> {
    pub fn new(directory: &'a MemoryDirectory, name: &'a str) -> Self {
        let provider = Provider::new(BASE).unwrap();
        Self { connector: directory.connector(name), provider, now: NOW }
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request { method, path, query, headers, body };
        Answer::of(ready(self.provider.handle(&request, &self.connector, self.now)))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[JSON], body.to_string().as_bytes())
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[JSON], body.to_string().as_bytes())
    }

    pub fn patch(&self, path: &str, operations: &Value) -> Answer {
        self.send("PATCH", path, &[JSON], patch(operations).to_string().as_bytes())
    }

    pub fn patch_if(&self, path: &str, version: &str, operations: &Value) -> Answer {
        self.send("PATCH", path, &[JSON, ("If-Match", version)], patch(operations).to_string().as_bytes())
    }

    /// What a filter finds, by the names of users.
    pub fn found(&self, filter: &str) -> Vec<String> {
        let answer = self.get(&format!("/Users?filter={}", encoded(filter)));
        assert_eq!(answer.status, 200, "{filter}: {answer:?}");
        assert_eq!(answer.json["totalResults"], json!(answer.each("userName").len()), "{filter}");
        answer.each("userName")
    }

    pub fn user(&self, attributes: Value) -> Answer {
        let answer = self.post("/Users", &said(USER, attributes));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer
    }

    pub fn group(&self, name: &str, members: &[&str]) -> Answer {
        let members: Vec<Value> = members.iter().map(|id| json!({ "value": id })).collect();
        let answer = self.post("/Groups", &said(GROUP, json!({ "displayName": name, "members": members })));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer
    }
}

pub fn patch(operations: &Value) -> Value {
    json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations })
}

/// Attributes with their schema.
pub fn said(schema: &str, mut attributes: Value) -> Value {
    attributes["schemas"] = json!([schema]);
    attributes
}

/// A text as it stands in a query.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
