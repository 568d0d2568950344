//! The identity provider of the tour: OpenID Connect with one person, for a demonstration and for nothing else. It listens at 127.0.0.1
//! as long as the tour's cluster is up, and only `quickstart --with-sso` starts it. A login there takes a password that the provider makes
//! at each start, and that the tour shows at its terminal alone: another account of this machine gets nothing by it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use parking_lot::Mutex;
use sallyport_ca::jwt::{self, KeySet};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, constant_time_eq, hash, random};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::http::{self, Message, encoded, members};
use crate::error::{CliError, CliResult, Context};

/// The person who logs in there, as the cluster knows them then.
pub(super) const PERSON: &str = "sam";
/// What the provider says of them.
pub(super) const GROUPS: [&str; 2] = ["engineering", "everyone"];
/// What the cluster is called there.
pub(super) const CLIENT: &str = "sallyport";
/// Where the tour's connector has browsers sent back to, on the proxy.
const CALLBACK: &str = "/web/sso/callback/tour";
const SUBJECT: &str = "24400320";

/// How long a connection may take, and connections at a time.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 16;
/// Codes that are not taken yet.
const CODES: usize = 64;
const LIFETIME: time::Duration = time::Duration::minutes(5);

/// What a code stands for.
struct Code {
    challenge: String,
    nonce: String,
    redirect: String,
    until: OffsetDateTime,
}

struct Inner {
    issuer: String,
    password: String,
    secret: String,
    login: String,
    key: MemoryKey,
    codes: Mutex<BTreeMap<String, Code>>,
}

/// The provider, which ends when this is dropped.
pub(super) struct Provider {
    inner: Arc<Inner>,
    port: u16,
    serving: JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a request is answered with.
struct Answer {
    status: &'static str,
    kind: &'static str,
    location: Option<String>,
    body: String,
}

fn page(status: &'static str, body: String) -> Answer {
    Answer { status, kind: "text/html; charset=utf-8", location: None, body }
}

fn in_json(status: &'static str, body: &Value) -> Answer {
    Answer { status, kind: "application/json", location: None, body: body.to_string() }
}

/// RFC 6749 §5.2.
fn refused(error: &str) -> Answer {
    in_json("400 Bad Request", &json!({ "error": error }))
}

/// The tour takes the port at which the provider of an earlier one was, and answers no request there. The cluster believes what answers at it as
/// long as the connector is stored: no other account of this machine is to be that.
pub(super) async fn hold(port: u16) -> CliResult<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| {
        CliError::new(format!(
            "{address}, where the identity provider of an earlier tour was, cannot be taken: {error}. The cluster of this directory \
             believes what answers there, and is not started"
        ))
        .hint(format!(
            "stop what uses the port (find it with `ss -ltnp 'sport = :{port}'`), or begin in another directory: sallyport quickstart \
             --dir DIR"
        ))
    })
}

impl Provider {
    /// Listens at a port of 127.0.0.1: that of the last time, or any. `login` is the person's account on nodes.
    pub(super) async fn start(port: Option<u16>, login: &str) -> CliResult<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            CliError::new(format!("the tour's identity provider cannot listen on {address}: {error}"))
                .hint("stop what uses the port, or begin in another directory: sallyport quickstart --with-sso --dir DIR")
        })?;
        let port = listener.local_addr().doing("find the provider's port")?.port();
        let inner = Arc::new(Inner {
            issuer: format!("http://127.0.0.1:{port}"),
            password: random::token(20).doing("make the provider's password")?,
            secret: random::token(20).doing("make a secret")?,
            login: login.to_owned(),
            key: MemoryKey::generate(KeyAlgorithm::EcdsaP256).doing("make the provider's key")?,
            codes: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&inner)));
        Ok(Self { inner, port, serving })
    }

    pub(super) fn issuer(&self) -> &str {
        &self.inner.issuer
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// What the person logs in with there.
    pub(super) fn password(&self) -> &str {
        &self.inner.password
    }

    /// What the cluster proves itself with there.
    pub(super) fn secret(&self) -> &str {
        &self.inner.secret
    }
}

async fn serve(listener: TcpListener, inner: Arc<Inner>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, inner.answer(&mut stream)).await;
            drop(place);
        });
    }
}

impl Inner {
    async fn answer(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let request = Message::read(stream).await?;
        let Answer { status, kind, location, body } = self.answer_to(&request, OffsetDateTime::now_utc());
        let mut headers = vec![
            ("Content-Type", kind),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
            ("Referrer-Policy", "no-referrer"),
        ];
        headers.extend(location.as_deref().map(|location| ("Location", location)));
        http::send(stream, &format!("HTTP/1.1 {status}"), &headers, body.as_bytes()).await
    }

    fn answer_to(&self, request: &Message, now: OffsetDateTime) -> Answer {
        // By its address alone, so that no name that a web site has point here leads here.
        let host = request.headers.get("host").map(String::as_str);
        if host.map(|host| format!("http://{host}")).as_deref() != Some(self.issuer.as_str()) {
            return page("403 Forbidden", "This is no server of that name.".to_owned());
        }
        let mut words = request.first.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let body = String::from_utf8_lossy(&request.body);
        match (method, path) {
            ("GET", "/.well-known/openid-configuration") => in_json("200 OK", &self.discovery()),
            ("GET", "/keys") => self.keys(),
            ("GET", "/authorize") => page("200 OK", form(target)),
            ("POST", "/authorize") => self.authorize(query, &members(&body), now),
            ("POST", "/token") => self.token(&members(&body), now),
            _ => page("404 Not Found", "There is nothing here.".to_owned()),
        }
    }

    /// OpenID Connect Discovery 1.0 §3.
    fn discovery(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    fn keys(&self) -> Answer {
        let set = KeySet::new([&self.key.public_key()]).and_then(|set| set.jwks());
        let set = set.ok().and_then(|set| serde_json::from_str(&set).ok());
        set.map_or_else(
            || page("500 Internal Server Error", String::new()),
            |set: Value| in_json("200 OK", &set),
        )
    }

    /// OpenID Connect Core 1.0 §3.1.2.
    fn authorize(&self, query: &str, form: &BTreeMap<String, String>, now: OffsetDateTime) -> Answer {
        let asked = members(query);
        let of = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
        let redirect = of("redirect_uri");
        let fits = of("client_id") == CLIENT
            && of("response_type") == "code"
            && of("code_challenge_method") == "S256"
            && ["code_challenge", "nonce", "state"].iter().all(|name| !of(name).is_empty())
            && redirect.starts_with("https://")
            && redirect.ends_with(CALLBACK)
            && redirect.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            return page("400 Bad Request", "This is no request of the tour's cluster.".to_owned());
        }
        let typed = form.get("password").map(String::as_str).unwrap_or_default();
        if !constant_time_eq(typed.as_bytes(), self.password.as_bytes()) {
            return page("403 Forbidden", "The password is wrong. Go back, and try again.".to_owned());
        }
        let Ok(code) = random::token(20) else { return page("500 Internal Server Error", String::new()) };
        let mut codes = self.codes.lock();
        codes.retain(|_, code| code.until > now);
        if codes.len() >= CODES {
            return page("503 Service Unavailable", "There are too many logins at this moment.".to_owned());
        }
        codes.insert(
            code.clone(),
            Code {
                challenge: of("code_challenge").to_owned(),
                nonce: of("nonce").to_owned(),
                redirect: redirect.to_owned(),
                until: now + LIFETIME,
            },
        );
        let (state, issuer) = (encoded(of("state")), encoded(&self.issuer));
        let location = format!("{redirect}?code={code}&state={state}&iss={issuer}");
        Answer { location: Some(location), ..page("303 See Other", String::new()) }
    }

    /// OpenID Connect Core 1.0 §3.1.3, RFC 7636 §4.6. A code is taken once, whatever comes of it.
    fn token(&self, form: &BTreeMap<String, String>, now: OffsetDateTime) -> Answer {
        let of = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let is_client = of("client_id") == CLIENT
            && constant_time_eq(of("client_secret").as_bytes(), self.secret.as_bytes());
        if !is_client {
            return refused("invalid_client");
        }
        if of("grant_type") != "authorization_code" {
            return refused("unsupported_grant_type");
        }
        let code = self.codes.lock().remove(of("code"));
        let verified = BASE64URL_NOPAD.encode(&hash::sha256(of("code_verifier").as_bytes()));
        let code = code.filter(|code| {
            code.until > now && code.redirect == of("redirect_uri") && code.challenge == verified
        });
        let Some(code) = code else { return refused("invalid_grant") };
        let said = json!({
            "nonce": code.nonce,
            "preferred_username": PERSON,
            "groups": GROUPS,
            "unix_name": self.login,
        });
        let claims = jwt::Claims {
            issuer: Some(self.issuer.clone()),
            subject: SUBJECT.to_owned(),
            audience: vec![CLIENT.to_owned()],
            expires: now + LIFETIME,
            not_before: None,
            issued: Some(now),
            id: None,
            custom: said.as_object().cloned().unwrap_or_default(),
        };
        match jwt::sign(&self.key, &claims) {
            Ok(token) => in_json(
                "200 OK",
                &json!({ "access_token": "none", "token_type": "Bearer", "expires_in": 60, "id_token": token }),
            ),
            Err(_) => refused("server_error"),
        }
    }
}

/// The page at which a person logs in: it sends what it was asked for back to where it came from.
fn form(target: &str) -> String {
    let mut action = String::new();
    for letter in target.chars() {
        match letter {
            '&' => action.push_str("&amp;"),
            '"' => action.push_str("&quot;"),
            '<' => action.push_str("&lt;"),
            other => action.push(other),
        }
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Identity provider of the tour</title><h1>Identity provider of the \
         tour</h1><p>A demonstration: it knows {PERSON} alone.</p><form method=\"post\" action=\"{action}\"><label>Password of {PERSON} \
         <input type=\"password\" name=\"password\" autocomplete=\"off\" autofocus></label> <button>Log in</button></form></html>"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const REDIRECT: &str = "https://127.0.0.1:3080/web/sso/callback/tour";

    fn request(provider: &Provider, first: &str, body: &str) -> Message {
        let host = provider.issuer().strip_prefix("http://").unwrap().to_owned();
        let headers = BTreeMap::from([("host".to_owned(), host)]);
        Message { first: format!("{first} HTTP/1.1"), headers, body: body.as_bytes().to_vec() }
    }

    fn asked(changes: &[(&str, &str)]) -> String {
        let verifier = BASE64URL_NOPAD.encode(&hash::sha256(b"verifier"));
        let mut members = BTreeMap::from([
            ("client_id", CLIENT),
            ("response_type", "code"),
            ("code_challenge_method", "S256"),
            ("code_challenge", verifier.as_str()),
            ("nonce", "n"),
            ("state", "s"),
            ("redirect_uri", REDIRECT),
        ]);
        members.extend(changes.iter().copied());
        let members: Vec<String> =
            members.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        members.join("&")
    }

    #[tokio::test]
    async fn a_code_takes_the_password_and_a_token_takes_all_that_belongs_to_the_code() {
        let provider = Provider::start(None, "dev").await.unwrap();
        let right = provider.password();
        let now = OffsetDateTime::now_utc();
        let inner = &provider.inner;
        let code = |query: &str, password: &str| {
            let request =
                request(&provider, &format!("POST /authorize?{query}"), &format!("password={password}"));
            let answer = inner.answer_to(&request, now);
            let location = answer.location.ok_or(answer.status)?;
            Ok::<_, &str>(members(location.split_once('?').unwrap().1)["code"].clone())
        };
        for wrong in ["", "guessed", &right[1..]] {
            assert_eq!(code(&asked(&[]), wrong).unwrap_err(), "403 Forbidden");
        }
        for (name, value) in [
            ("redirect_uri", "https://evil.example/"),
            ("redirect_uri", "http://127.0.0.1/web/sso/callback/tour"),
            ("redirect_uri", "https://127.0.0.1:3080/web/sso/callback"),
            ("client_id", "another"),
            ("code_challenge_method", "plain"),
            ("nonce", ""),
        ] {
            assert_eq!(code(&asked(&[(name, value)]), right).unwrap_err(), "400 Bad Request", "{name}");
        }
        let redeem = |code: &str, changes: &[(&str, &str)], at: OffsetDateTime| {
            let mut form = BTreeMap::from([
                ("grant_type", "authorization_code"),
                ("client_id", CLIENT),
                ("client_secret", provider.secret()),
                ("code", code),
                ("code_verifier", "verifier"),
                ("redirect_uri", REDIRECT),
            ]);
            form.extend(changes.iter().copied());
            let form: Vec<String> =
                form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
            let answer = inner.answer_to(&request(&provider, "POST /token", &form.join("&")), at);
            serde_json::from_str::<Value>(&answer.body).unwrap()
        };
        for (name, value, error) in [
            ("client_secret", "guessed", "invalid_client"),
            ("code_verifier", "another", "invalid_grant"),
            ("redirect_uri", "https://127.0.0.1:1/web/sso/callback/tour", "invalid_grant"),
            ("grant_type", "password", "unsupported_grant_type"),
        ] {
            let code = code(&asked(&[]), right).unwrap();
            assert_eq!(redeem(&code, &[(name, value)], now)["error"], error);
        }
        let late = code(&asked(&[]), right).unwrap();
        assert_eq!(redeem(&late, &[], now + LIFETIME)["error"], "invalid_grant");
        let good = code(&asked(&[]), right).unwrap();
        assert!(redeem(&good, &[], now)["id_token"].is_string());
        assert_eq!(redeem(&good, &[], now)["error"], "invalid_grant", "once");
    }

    #[tokio::test]
    async fn it_listens_at_loopback_by_its_address_and_ends_with_the_tour() {
        let provider = Provider::start(None, "dev").await.unwrap();
        let mut other = request(&provider, "GET /keys", "");
        assert_eq!(provider.inner.answer_to(&other, OffsetDateTime::now_utc()).status, "200 OK");
        other.headers.insert("host".to_owned(), "rebound.example".to_owned());
        assert_eq!(provider.inner.answer_to(&other, OffsetDateTime::now_utc()).status, "403 Forbidden");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, provider.port()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let host = address.to_string();
        http::send(&mut stream, "GET /authorize?a=%22&b=c HTTP/1.1", &[("Host", &host)], b"").await.unwrap();
        let answer = Message::read(&mut stream).await.unwrap();
        assert_eq!(answer.status(), 200);
        let told = hold(provider.port()).await.unwrap_err().to_string();
        assert!(told.contains("is not started"), "{told}");
        assert!(String::from_utf8(answer.body).unwrap().contains("action=\"/authorize?a=%22&amp;b=c\""));
        drop(provider);
        // The port is free once the runtime has ended the task.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while std::net::TcpListener::bind(address).is_err() {
            assert!(tokio::time::Instant::now() < deadline, "the port is still taken");
            tokio::task::yield_now().await;
        }
    }
}
