//! Every path of the HTTPS page and of the diagnostics address, and what it answers those who have shown no certificate.

use std::collections::BTreeSet;

use http::{Method, Request};
use tower::ServiceExt as _;

use super::strangers::ask;
use crate::health::{Health, diagnostics_routes};
use crate::proxy::tests::rig::Rig;

/// The methods of RFC 9110 §9.3 that have a path, two others, and one that no specification has.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "SALLYPORT"];

/// For holders of certificates alone; whatever the HTTP method, gRPC's answer is that there is none.
const TRANSPORT: &str = "/sallyport.v1.Transport/{*method}";

/// For clients with a bearer token, by every method.
const SCIM: &str = "/scim/v2";

/// The paths of the public address as the router has them, one that fits, and what GET and HEAD answer there. Any other method
/// is not allowed (405).
const PUBLIC: [(&str, &str, u16); 22] = [
    ("/", "/", 200),
    ("/login", "/login", 200),
    ("/web/sso/callback", "/web/sso/callback?code=x&state=y", 200),
    ("/web/sso/callback/{connector}", "/web/sso/callback/corp?code=x&state=y", 200),
    ("/approve", "/approve", 200),
    ("/factors", "/factors", 200),
    ("/enrol", "/enrol", 200),
    ("/web/app.js", "/web/app.js?v=0", 200),
    ("/web/app.css", "/web/app.css", 200),
    ("/web/icon.svg", "/web/icon.svg", 200),
    ("/invite/{token}", "/invite/abc123", 200),
    ("/invite/{token}", "/invite/%3Cscript%3E", 404),
    ("/ca/{kind}/{format}", "/ca/user/openssh", 200),
    // The authorities that the rig's cluster has not made yet.
    ("/.well-known/jwks.json", "/.well-known/jwks.json", 503),
    ("/.well-known/jwks-oidc", "/.well-known/jwks-oidc", 503),
    ("/.well-known/openid-configuration", "/.well-known/openid-configuration", 503),
    ("/spiffe/bundle.json", "/spiffe/bundle.json", 503),
    ("/healthz", "/healthz", 200),
    // The rig's authority never answers.
    ("/readyz", "/readyz", 503),
    (TRANSPORT, "/sallyport.v1.Transport/ProxySsh", 0),
    // Any method is one without a token.
    ("/scim/v2", SCIM, 401),
    ("/scim/v2/{*path}", "/scim/v2/Users", 401),
];

/// Where identity providers tell of logouts, which takes a form by POST (415) and nothing else (405).
const LOGOUT: &str = "/web/sso/logout/{connector}";

/// The calls of pages, which are refused to those who send no origin (403). Any method but POST is not allowed (405).
const CALLS: [&str; 24] = [
    "/web/login/describe",
    "/web/login/passkey/begin",
    "/web/login/passkey/finish",
    "/web/login/password",
    "/web/login/sso/begin",
    "/web/login/sso/finish",
    "/web/login/refuse",
    "/web/approve/describe",
    "/web/approve/passkey/begin",
    "/web/approve/passkey/finish",
    "/web/approve/otp",
    "/web/approve/refuse",
    "/web/factors/describe",
    "/web/factors/list",
    "/web/factors/remove/begin",
    "/web/factors/remove/finish",
    "/web/factors/refuse",
    "/web/enrol/describe",
    "/web/enrol/begin",
    "/web/enrol/finish",
    "/web/enrol/refuse",
    "/web/invite/describe",
    "/web/invite/begin",
    "/web/invite/finish",
];

/// The same of the diagnostics address, which listens on loopback unless an administrator says otherwise.
const DIAGNOSTICS: [(&str, u16); 3] = [("/healthz", 200), ("/readyz", 200), ("/metrics", 200)];

/// Paths that are none, or that look like another to some software.
const NOWHERE: [&str; 20] = [
    "/web",
    "/web/",
    "/web/index.html",
    "/web/login",
    "/login/",
    "/web/../login",
    "/metrics",
    "/admin",
    "/index.html",
    "/sallyport.v1.Admin/ListResources",
    "/sallyport.v1.Login/Ping",
    "/sallyport.v1.Transport",
    "//",
    "/invite/../readyz",
    "/invite/",
    "/invite/a/b",
    "/ca",
    "/ca/user/openssh/",
    "/HEALTHZ",
    "/%68ealthz",
];

/// What a method is answered where GET is answered `by_get`.
fn expected(method: &str, by_get: u16) -> u16 {
    if matches!(method, "GET" | "HEAD") { by_get } else { 405 }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_answers_a_stranger_as_the_list_says_by_every_method() {
    let rig = Rig::new().await;
    let served: BTreeSet<&str> = rig.service.paths.iter().copied().collect();
    let listed: BTreeSet<&str> =
        PUBLIC.iter().map(|(route, ..)| *route).chain(CALLS).chain([LOGOUT]).collect();
    assert_eq!(served, listed, "each path needs a row: what does it answer a stranger?");
    for (route, path, by_get) in PUBLIC {
        for method in METHODS {
            let (status, text) = ask(&rig, method, path).await;
            if route == TRANSPORT {
                let is_refused = text.to_lowercase().contains("grpc-status: 16");
                assert!(is_refused || [401, 403, 405].contains(&status), "{method} {path}: {text}");
                continue;
            }
            let by_method = if path.starts_with(SCIM) { by_get } else { expected(method, by_get) };
            assert_eq!(status, by_method, "{method} {path}: {text}");
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            assert!(status == by_get || body.is_empty(), "{method} {path}: {text}");
        }
    }
    for path in CALLS {
        for method in METHODS {
            let (status, text) = ask(&rig, method, path).await;
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let is_told = body.contains("\"code\":\"foreign\"");
            let expected = if method == "POST" { (403, true) } else { (405, false) };
            assert_eq!((status, is_told), expected, "{method} {path}: {text}");
            assert!(text.to_lowercase().contains("cache-control: no-store"), "{method} {path}: {text}");
        }
    }
    for method in METHODS {
        let (status, text) = ask(&rig, method, "/web/sso/logout/corp").await;
        assert_eq!(status, if method == "POST" { 415 } else { 405 }, "{method}: {text}");
    }
    for path in NOWHERE {
        for method in METHODS {
            let (status, text) = ask(&rig, method, path).await;
            assert_eq!(status, 404, "{method} {path}: {text}");
        }
    }
    // Only a read is answered with what a page has to say, and no answer may be framed, sniffed or kept by accident.
    let (_, text) = ask(&rig, "GET", "/").await;
    let head = text.to_lowercase();
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
         data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types \
         svelte-trusted-html\r\n",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
        "cross-origin-resource-policy: same-origin",
        "strict-transport-security: max-age=31536000",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{header}: {text}");
    }
}

#[tokio::test]
async fn every_path_of_the_diagnostics_address_is_listed() {
    let routes = diagnostics_routes(Health::new());
    let served: BTreeSet<&str> = routes.paths().iter().copied().collect();
    let listed: BTreeSet<&str> = DIAGNOSTICS.iter().map(|(path, _)| *path).collect();
    assert_eq!(served, listed, "each path needs a row: what does it answer?");
    for (path, by_get) in
        DIAGNOSTICS.into_iter().chain([("/", 404), ("/debug/pprof", 404), ("/metrics/x", 404)])
    {
        for method in METHODS {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let request =
                Request::builder().method(&method).uri(path).body(axum::body::Body::empty()).unwrap();
            let answer = routes.router().oneshot(request).await.unwrap();
            let expected = if by_get == 404 { 404 } else { expected(method.as_str(), by_get) };
            assert_eq!(answer.status().as_u16(), expected, "{method} {path}");
        }
    }
}
