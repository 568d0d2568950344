//! The calls of pages, towards an authority that answers what it is told.

mod fake;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use sallyport_wire::v1::web_client::WebClient;
use sallyport_wire::v1::web_server::WebServer;
use serde_json::{Value, json};
use tonic::Status;
use tower::ServiceExt as _;

use self::fake::{Fake, contract};
use super::calls::{Calls, LONGEST_BYTES};
use super::files::FILES;
use super::limits::IN_A_MINUTE;
use super::origin::Origins;
use super::pages::DOCUMENT;
use crate::proxy::peer::Peer;
use crate::routes::Routes;

const LOGOUT: &str = "/web/sso/logout/{connector}";
const OWN: &str = "https://proxy.example.org:3080";

/// The calls, and the authority behind them.
fn rig() -> (Routes, Fake) {
    let fake = Fake::default();
    let behind = fake.clone();
    let origins = Origins::new(&["proxy.example.org".to_owned()]);
    let calls = Calls::new(Arc::new(move || WebClient::new(WebServer::new(behind.clone()))), origins);
    (super::calls(calls), fake)
}

fn peer(address: &str) -> Peer {
    let address: SocketAddr = address.parse().unwrap();
    Peer { address, identity: None, certificate: None, unfit: None }
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header(header::HOST, "proxy.example.org:3080")
        .header(header::ORIGIN, OWN)
        .header(header::CONTENT_TYPE, "application/json")
        .extension(peer("203.0.113.5:4000"))
        .body(body.into())
        .unwrap()
}

async fn send(routes: &Routes, request: Request<Body>) -> (StatusCode, HeaderMap, Value) {
    let answer = routes.router().oneshot(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn told(body: &Value) -> (&str, &str) {
    let word = |key: &str| body["error"][key].as_str().unwrap_or_else(|| panic!("{body}"));
    (word("code"), word("message"))
}

#[tokio::test]
async fn every_call_asks_and_answers_what_the_pages_contract_says() {
    let (routes, fake) = rig();
    let contract = contract();
    let mut paths: Vec<String> =
        contract.as_object().unwrap().keys().map(|call| format!("/web/{call}")).collect();
    paths.sort_unstable();
    // What is no page's call has a test of its own.
    let mut served: Vec<&str> = routes.paths().iter().copied().filter(|path| *path != LOGOUT).collect();
    served.sort_unstable();
    assert_eq!(served, paths);
    for (call, example) in contract.as_object().unwrap() {
        let request = &example["request"];
        let (status, _, body) = send(&routes, post(&format!("/web/{call}"), request.to_string())).await;
        assert_eq!((status, &body), (StatusCode::OK, &example["answer"]), "{call}");
        let (method, id, address, more) = fake.asked.lock().pop().unwrap();
        let named = ["id", "token", "state"].iter().find_map(|key| request.get(*key)).unwrap();
        assert_eq!((Value::from(id), address.as_str()), (named.clone(), "203.0.113.5"), "{method}");
        // All that a page says arrives, and as it was said.
        let said = request
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| !["id", "token", "state"].contains(&key.as_str()));
        for (key, value) in said {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert!(more.contains(&value), "{call} {key}: {more:?}");
        }
    }
}

#[tokio::test]
async fn no_call_is_taken_of_another_page_of_another_type_by_another_method_or_too_long() {
    let (routes, fake) = rig();
    for (call, example) in contract().as_object().unwrap() {
        let (path, body) = (format!("/web/{call}"), example["request"].to_string());
        for (origin, site) in [
            (None, None),
            (Some("https://attacker.example"), None),
            (Some("null"), None),
            (Some("https://proxy.example.org"), None),
            (Some(OWN), Some("cross-site")),
            (Some(OWN), Some("same-site")),
        ] {
            let mut request = post(&path, body.clone());
            request.headers_mut().remove(header::ORIGIN);
            for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
                if let Some(value) = value {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
            }
            let (status, _, said) = send(&routes, request).await;
            assert_eq!(
                (status, told(&said).0),
                (StatusCode::FORBIDDEN, "foreign"),
                "{call} {origin:?} {site:?}"
            );
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "",
            "application/jsonx",
        ] {
            let mut request = post(&path, body.clone());
            request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
            let (status, ..) = send(&routes, request).await;
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{call} {kind}");
        }
        let long = format!("{}{}", body, " ".repeat(LONGEST_BYTES));
        let (status, _, said) = send(&routes, post(&path, long)).await;
        assert_eq!((status, told(&said).0), (StatusCode::PAYLOAD_TOO_LARGE, "invalid"), "{call}");
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let mut request = post(&path, body.clone());
            *request.method_mut() = method.parse().unwrap();
            let (status, headers, _) = send(&routes, request).await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {call}");
            assert!(headers.get("access-control-allow-origin").is_none());
        }
        assert_eq!(fake.asked.lock().len(), 0, "{call}: the authority hears of none of it");
    }
}

#[tokio::test]
async fn a_hostile_body_is_refused_before_the_authority_is_asked() {
    let (routes, fake) = rig();
    let long = "x".repeat(257);
    for id in ["", "../../x", "a b", "<script>", "a\u{0}b", "ä", long.as_str(), "a/b", "#", "%2e"] {
        let (status, _, said) =
            send(&routes, post("/web/login/describe", json!({ "id": id }).to_string())).await;
        assert_eq!((status, told(&said).0), (StatusCode::BAD_REQUEST, "invalid"), "{id}");
    }
    let deep =
        format!("{{\"id\":\"abcdefgh\",\"response\":{{\"a\":{}1{}}}}}", "[".repeat(5000), "]".repeat(5000));
    for (path, body) in [
        ("/web/login/describe", String::new()),
        ("/web/login/describe", "null".to_owned()),
        ("/web/login/describe", "[]".to_owned()),
        ("/web/login/describe", json!({ "id": 7 }).to_string()),
        ("/web/login/describe", json!({ "id": "abcdefgh", "address": "192.0.2.1" }).to_string()),
        ("/web/login/describe", "{\"id\":\"abcdefgh\",\"id\":\"ijklmnop\"}".to_owned()),
        ("/web/login/describe", "{\"id\":\"abcdefgh\"} {}".to_owned()),
        ("/web/login/passkey/finish", json!({ "id": "abcdefgh", "response": "{}" }).to_string()),
        ("/web/login/passkey/finish", json!({ "id": "abcdefgh", "response": [1] }).to_string()),
        ("/web/login/passkey/finish", deep),
        ("/web/login/password", json!({ "id": "abcdefgh", "user": "alice" }).to_string()),
        (
            "/web/login/password",
            json!({ "id": "abcdefgh", "user": "alice", "password": "x".repeat(5000) }).to_string(),
        ),
        ("/web/approve/otp", json!({ "id": "abcdefgh", "otp": "1".repeat(65) }).to_string()),
        ("/web/factors/remove/begin", json!({ "id": "abcdefgh", "code": "", "factor": "../x" }).to_string()),
        ("/web/factors/remove/finish", json!({ "id": "abcdefgh", "code": "", "factor": "a" }).to_string()),
        ("/web/invite/finish", json!({ "token": "abcdefgh", "name": "n", "response": null }).to_string()),
    ] {
        let (status, _, said) = send(&routes, post(path, body.clone())).await;
        let (code, message) = told(&said);
        assert_eq!((status, code), (StatusCode::BAD_REQUEST, "invalid"), "{path} {body:.80}");
        assert!(!message.contains("xxxx"), "what was typed is not repeated: {message}");
    }
    assert_eq!(fake.asked.lock().len(), 0);
}

#[tokio::test]
async fn refusals_of_the_authority_have_their_status_and_tell_nothing_of_its_inside() {
    let (routes, fake) = rig();
    let inside = "connection to 10.0.0.7:5432 failed";
    for (status, http, code, says) in [
        (Status::not_found("no such request; begin again"), 404, "unknown", "no such request; begin again"),
        (Status::unauthenticated("wrong one-time code"), 403, "wrong", "wrong one-time code"),
        (Status::permission_denied("you are locked: on leave"), 403, "denied", "you are locked: on leave"),
        (Status::failed_precondition("passkeys are off"), 409, "failed", "passkeys are off"),
        (Status::aborted("answered already"), 409, "ended", "answered already"),
        (Status::already_exists("there is such a name"), 409, "exists", "there is such a name"),
        (Status::resource_exhausted("too many"), 429, "crowded", "too many"),
        (Status::invalid_argument("not a name"), 400, "invalid", "not a name"),
        (Status::unavailable(inside), 503, "unavailable", "cannot reach the cluster's authority"),
        (Status::unimplemented(inside), 501, "unsupported", "older than this proxy"),
        (Status::internal(inside), 502, "internal", "could not do this"),
        (Status::unknown(inside), 502, "internal", "could not do this"),
    ] {
        *fake.refusal.lock() = Some(status);
        let body = json!({ "id": "abcdefgh" }).to_string();
        let (answered, _, said) = send(&routes, post("/web/login/describe", body)).await;
        let (word, message) = told(&said);
        assert_eq!((answered.as_u16(), word), (http, code));
        assert!(message.contains(says) && !message.contains("10.0.0.7"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_does_not_answer_and_a_body_that_does_not_come_are_given_up() {
    let (routes, fake) = rig();
    *fake.silent.lock() = true;
    let body = json!({ "id": "abcdefgh" }).to_string();
    let (status, _, said) = send(&routes, post("/web/login/describe", body)).await;
    assert_eq!((status.as_u16(), told(&said).0), (504, "unavailable"));
    let never = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let (status, _, said) = send(&routes, post("/web/login/describe", Body::from_stream(never))).await;
    assert_eq!((status.as_u16(), told(&said).0), (408, "slow"));
}

#[tokio::test]
async fn one_place_that_asks_too_much_waits_and_others_do_not() {
    let (routes, fake) = rig();
    let body = || json!({ "id": "abcdefgh" }).to_string();
    for _ in 0..IN_A_MINUTE {
        let (status, ..) = send(&routes, post("/web/login/describe", body())).await;
        assert_eq!(status, StatusCode::OK);
    }
    let (status, headers, said) = send(&routes, post("/web/approve/refuse", body())).await;
    assert_eq!((status, told(&said).0), (StatusCode::TOO_MANY_REQUESTS, "crowded"));
    assert!(headers.get(header::RETRY_AFTER).is_some());
    assert_eq!(fake.asked.lock().len(), IN_A_MINUTE);
    let mut other = post("/web/login/describe", body());
    other.extensions_mut().insert(peer("203.0.113.6:4000"));
    let (status, ..) = send(&routes, other).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn files_are_kept_for_good_by_their_hash_alone() {
    let routes = super::files::routes();
    for file in FILES.iter() {
        let ask = |query: &str, headers: &[(&str, &str)]| {
            let mut request = Request::get(format!("{}{query}", file.path));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            routes.router().oneshot(request.body(Body::empty()).unwrap())
        };
        let header = |headers: &HeaderMap, name: &str| {
            headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        assert!(DOCUMENT.contains(&format!("\"{}?v={}\"", file.path, file.hash)), "{}", file.path);
        let named = ask(&format!("?v={}", file.hash), &[]).await.unwrap();
        assert!(header(named.headers(), "cache-control").contains("immutable"));
        let tag = header(named.headers(), "etag");
        assert_eq!(named.into_body().collect().await.unwrap().to_bytes(), file.content);
        for query in ["", "?v=", "?v=0000000000000000", "?x=1"] {
            let other = ask(query, &[]).await.unwrap();
            assert_eq!(
                (other.status(), header(other.headers(), "cache-control")),
                (StatusCode::OK, "no-cache".into())
            );
        }
        let known = ask("", &[("if-none-match", &tag)]).await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        for (accepts, compressed) in
            [("gzip, br, zstd", true), ("br;q=1, ZSTD;q=0.5", true), ("zstd;q=0", false), ("gzip", false)]
        {
            let answer = ask("", &[("accept-encoding", accepts)]).await.unwrap();
            assert_eq!(header(answer.headers(), "content-encoding") == "zstd", compressed, "{accepts}");
            assert_eq!(header(answer.headers(), "vary"), "accept-encoding");
            assert_eq!(header(answer.headers(), "etag") == tag, !compressed, "other bytes have another mark");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            if compressed {
                assert_eq!(zstd::bulk::decompress(&body, file.content.len()).unwrap(), file.content);
            } else {
                assert_eq!(body, file.content);
            }
        }
    }
}

#[tokio::test]
async fn a_provider_tells_of_a_logout_by_a_form_with_one_token() {
    let (routes, fake) = rig();
    let form = |connector: &str, kind: &'static str, body: &str| {
        Request::post(format!("/web/sso/logout/{connector}"))
            .header(header::HOST, "proxy.example.org:3080")
            .header(header::CONTENT_TYPE, kind)
            .extension(peer("192.0.2.9:4000"))
            .body(Body::from(body.to_owned()))
            .unwrap()
    };
    const FORM: &str = "application/x-www-form-urlencoded";
    let (status, ..) = send(&routes, form("corp", FORM, "logout_token=a.b-_.c")).await;
    assert_eq!(status, StatusCode::OK);
    let heard = fake.asked.lock().pop().unwrap();
    assert_eq!(heard, ("SsoLogout", "corp".to_owned(), "192.0.2.9".to_owned(), vec!["a.b-_.c".to_owned()]));
    for (connector, kind, body, expected) in [
        ("corp", "application/json", "{}", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("corp", FORM, "", StatusCode::BAD_REQUEST),
        ("corp", FORM, "logout_token=a&logout_token=b", StatusCode::BAD_REQUEST),
        ("%3Cscript%3E", FORM, "logout_token=a.b.c", StatusCode::BAD_REQUEST),
    ] {
        let (status, ..) = send(&routes, form(connector, kind, body)).await;
        assert_eq!(status, expected, "{connector} {kind} {body}");
    }
    assert!(fake.asked.lock().is_empty());
    *fake.refusal.lock() = Some(Status::invalid_argument("the logout token is not good"));
    let (status, _, body) = send(&routes, form("corp", FORM, "logout_token=a.b.c")).await;
    assert_eq!((status, told(&body).0), (StatusCode::BAD_REQUEST, "invalid"));
}
