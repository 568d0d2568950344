//! What a provisioning client sends, or a thief of its token: a filter that is read is written again as itself, a PATCH is done
//! whole or not at all, and each request is answered without a failure of ours.
//!
//! The first byte says what the rest is.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sallyport_scim::{Filter, Kind, MAX_FILTER_BYTES, MemoryDirectory, Patch, Provider, Request, Response};
use time::OffsetDateTime;

const JSON: &[(&str, &str)] = &[("Content-Type", "application/scim+json")];

/// A directory in memory is never waited for.
fn ready<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a directory in memory waits for something"),
    }
}

/// A provider with a user and a group, which the fuzzer's requests come to.
struct Service {
    provider: Provider,
    directory: MemoryDirectory,
}

impl Service {
    fn new() -> Self {
        let provider = Provider::new("https://example.org/scim/v2").expect("an address");
        let service = Self { provider, directory: MemoryDirectory::new() };
        let user = br#"{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],"userName":"alice","name":{"givenName":"A"},
            "emails":[{"value":"w@x","type":"work","primary":true},{"value":"h@x","type":"home"}]}"#;
        assert_eq!(service.send("POST", "/Users", user).status, 201);
        let group = br#"{"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],"displayName":"g","members":[{"value":"00000001"}]}"#;
        assert_eq!(service.send("POST", "/Groups", group).status, 201);
        service
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> Response {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request { method, path, query, headers: JSON, body };
        let connector = self.directory.connector("fuzz");
        let answer = ready(self.provider.handle(&request, &connector, OffsetDateTime::UNIX_EPOCH));
        assert_ne!(answer.status, 500);
        assert_eq!(answer.refused.is_some(), answer.status >= 400);
        answer
    }

    /// A resource as it is, which is taken back as it is.
    fn holds(&self, path: &str) -> Vec<u8> {
        let shown = self.send("GET", path, b"");
        assert_eq!(shown.status, 200);
        let put = self.send("PUT", path, &shown.body);
        assert!(put.status == 200 && put.done.is_none());
        shown.body
    }

    fn patch(&self, kind: Kind, path: &str, operations: &str) {
        let body = format!(
            r#"{{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{operations}]}}"#
        );
        let before = self.holds(path);
        let answer = self.send("PATCH", path, body.as_bytes());
        let after = self.holds(path);
        assert_eq!(before == after, answer.done.is_none());
        if Patch::parse(kind, body.as_bytes()).is_err() {
            assert!(answer.refused.is_some());
        }
    }
}

fuzz_target!(|data: (u8, &[u8])| {
    let (part, bytes) = data;
    let text = String::from_utf8_lossy(bytes);
    match part % 6 {
        0 => {
            if let Ok(filter) = Filter::parse(&text) {
                let written = filter.to_string();
                if written.len() <= MAX_FILTER_BYTES {
                    assert_eq!(Filter::parse(&written).expect("what was written"), filter);
                }
            }
            let query: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            let service = Service::new();
            for path in ["/Users", "/Groups", "/"] {
                service.send("GET", &format!("{path}?filter={query}"), b"");
            }
        }
        1 => Service::new().patch(Kind::User, "/Users/00000001", &text),
        2 => Service::new().patch(Kind::Group, "/Groups/00000002", &text),
        3 => {
            let service = Service::new();
            let body = format!(r#"{{"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],{text}}}"#);
            if service.send("POST", "/Users", body.as_bytes()).status == 201 {
                service.holds("/Users/00000003");
            }
        }
        4 => {
            let (method, path) = text.split_once(' ').unwrap_or(("GET", &text));
            Service::new().send(method, path, b"{}");
        }
        _ => drop(Service::new().send("POST", "/.search", bytes)),
    }
});
