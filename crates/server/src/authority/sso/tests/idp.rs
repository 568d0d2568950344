//! A provider on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_ca::jwt::{self, Claims, KeySet};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How the provider answers.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Json(u16, Value),
    /// A whole answer, as it goes onto the wire.
    Raw(Vec<u8>),
    /// Nothing, while the connection stays.
    Silence,
    /// As it is itself, once the test lets it.
    Held(Arc<Semaphore>),
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn form(&self) -> BTreeMap<String, String> {
        members(&self.body)
    }
}

#[derive(Debug)]
struct State {
    keys: Vec<Arc<MemoryKey>>,
    claims: Map<String, Value>,
    nonce: String,
    replies: BTreeMap<String, Reply>,
    userinfo: Option<Value>,
    discovery: Map<String, Value>,
    seen: Vec<Seen>,
    refresh: Refreshes,
    /// How far its clock is ahead.
    ahead: time::Duration,
}

/// How the provider deals with refresh tokens.
#[derive(Debug)]
pub(super) struct Refreshes {
    /// Whether it gives any, and whether each is good once.
    pub(super) gives: bool,
    pub(super) rotates: bool,
    /// What it answers with besides.
    pub(super) id_token: bool,
    pub(super) access_token: bool,
    good: BTreeSet<String>,
    count: usize,
}

impl Refreshes {
    fn fresh(&mut self) -> String {
        self.count += 1;
        let token = format!("refresh-{}-of-the-provider", self.count);
        self.good.insert(token.clone());
        token
    }
}

/// The provider. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Idp {
    issuer: String,
    state: Arc<Mutex<State>>,
}

/// A query or a form, decoded.
pub(super) fn members(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.bytes());
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                }
                b'+' => bytes.push(b' '),
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    text.split('&')
        .filter_map(|one| one.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn key() -> Arc<MemoryKey> {
    Arc::new(MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap())
}

impl Idp {
    pub(super) async fn plain() -> Self {
        Self::start(None).await
    }

    pub(super) async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let issuer = match tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        let claims = super::person("24400320", "alice", &["ops-eu"]);
        let state = State {
            keys: vec![key()],
            claims: claims.as_object().unwrap().clone(),
            nonce: String::new(),
            replies: BTreeMap::new(),
            userinfo: None,
            discovery: Map::new(),
            seen: Vec::new(),
            ahead: time::Duration::ZERO,
            refresh: Refreshes {
                gives: false,
                rotates: true,
                id_token: true,
                access_token: true,
                good: BTreeSet::new(),
                count: 0,
            },
        };
        let idp = Self { issuer, state: Arc::new(Mutex::new(state)) };
        let serving = idp.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (idp, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                idp.serve(stream).await;
                            }
                        }
                        None => idp.serve(stream).await,
                    }
                });
            }
        });
        idp
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(super) fn expect_nonce(&self, nonce: &str) {
        self.state.lock().nonce = nonce.to_owned();
    }

    /// What the tokens of the next logins say; `iss`, `aud`, `nonce` and times are the provider's unless they are here.
    pub(super) fn says(&self, claims: Value) {
        self.state.lock().claims = claims.as_object().unwrap().clone();
    }

    pub(super) fn userinfo(&self, said: Value) {
        self.state.lock().userinfo = Some(said);
    }

    pub(super) fn replies(&self, path: &str, reply: Reply) {
        self.state.lock().replies.insert(path.to_owned(), reply);
    }

    pub(super) fn is_itself(&self) {
        self.state.lock().replies.clear();
    }

    pub(super) fn announces(&self, name: &str, value: Value) {
        self.state.lock().discovery.insert(name.to_owned(), value);
    }

    /// It is that time for it.
    pub(super) fn lives_at(&self, at: OffsetDateTime) {
        self.state.lock().ahead = at - super::now();
    }

    pub(super) fn refreshes(&self, change: impl FnOnce(&mut Refreshes)) {
        change(&mut self.state.lock().refresh);
    }

    /// Ends the session of the login that got the `number`th refresh token.
    pub(super) fn revokes(&self, number: usize) {
        self.state.lock().refresh.good.remove(&format!("refresh-{number}-of-the-provider"));
    }

    /// Requests for the token endpoint with a refresh token.
    pub(super) fn asked_again(&self) -> Vec<String> {
        let forms = self.seen("/token").into_iter().map(|seen| seen.form());
        forms.filter_map(|mut form| form.remove("refresh_token")).collect()
    }

    /// Signs by a new key from now on, and publishes no other.
    pub(super) fn rotates(&self) {
        self.state.lock().keys = vec![key()];
    }

    pub(super) fn seen(&self, path: &str) -> Vec<Seen> {
        self.state.lock().seen.iter().filter(|one| one.path == path).cloned().collect()
    }

    /// A token with these claims, by the newest key.
    pub(super) fn token(&self, claims: Map<String, Value>) -> String {
        let signer = Arc::clone(self.state.lock().keys.last().unwrap());
        self.token_by(signer.as_ref(), time::Duration::ZERO, claims)
    }

    /// As [`Self::token`], signed at another time.
    pub(super) fn token_at(&self, at: OffsetDateTime, claims: Map<String, Value>) -> String {
        let signer = Arc::clone(self.state.lock().keys.last().unwrap());
        self.token_by(signer.as_ref(), at - super::now(), claims)
    }

    /// The token without `sub`, signed again.
    pub(super) fn unnamed(&self, token: String) -> String {
        use data_encoding::BASE64URL_NOPAD;
        let parts: Vec<&str> = token.split('.').collect();
        let payload = BASE64URL_NOPAD.decode(parts[1].as_bytes()).unwrap();
        let mut claims: Map<String, Value> = serde_json::from_slice(&payload).unwrap();
        claims.remove("sub").unwrap();
        let payload = BASE64URL_NOPAD.encode(&serde_json::to_vec(&claims).unwrap());
        let signed = format!("{}.{payload}", parts[0]);
        let signer = Arc::clone(self.state.lock().keys.last().unwrap());
        let der = signer.sign(signed.as_bytes()).unwrap();
        // Two integers in a sequence (RFC 3279 section 2.2.3) become two numbers of 32 bytes (RFC 7518 section 3.4).
        let (mut signature, mut rest) = (Vec::new(), &der[2..]);
        for _ in 0..2 {
            let (number, after) = rest[2..].split_at(usize::from(rest[1]));
            let digits = &number[number.len().saturating_sub(32)..];
            signature.extend(std::iter::repeat_n(0, 32 - digits.len()).chain(digits.iter().copied()));
            rest = after;
        }
        format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
    }

    fn token_by(&self, signer: &dyn Signer, ahead: time::Duration, mut claims: Map<String, Value>) -> String {
        let mut text = |name: &str, default: &str| match claims.remove(name) {
            Some(Value::String(text)) => text,
            _ => default.to_owned(),
        };
        let (issuer, subject) = (text("iss", &self.issuer), text("sub", "nobody"));
        let (audience, id) = (text("aud", "sallyport"), text("jti", ""));
        let now = super::now() + ahead;
        let claims = Claims {
            issuer: Some(issuer),
            subject,
            audience: vec![audience],
            expires: now + time::Duration::minutes(5),
            not_before: None,
            issued: Some(now),
            id: (!id.is_empty()).then_some(id),
            custom: claims,
        };
        jwt::sign(signer, &claims).unwrap()
    }

    fn reply(&self, seen: &Seen) -> Reply {
        let at = |path: &str| format!("{}{path}", self.issuer);
        let state = self.state.lock();
        if let Some(reply) = state.replies.get(&seen.path) {
            return reply.clone();
        }
        match seen.path.as_str() {
            "/.well-known/openid-configuration" => {
                let mut document = json!({
                    "issuer": self.issuer,
                    "authorization_endpoint": at("/authorize"),
                    "token_endpoint": at("/token"),
                    "jwks_uri": at("/keys"),
                    "response_types_supported": ["code"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                    "token_endpoint_auth_methods_supported":
                        ["client_secret_basic", "client_secret_post", "private_key_jwt"],
                });
                if state.userinfo.is_some() {
                    document["userinfo_endpoint"] = at("/userinfo").into();
                }
                document.as_object_mut().unwrap().extend(state.discovery.clone());
                Reply::Json(200, document)
            }
            "/keys" => {
                let keys: Vec<_> = state.keys.iter().map(|key| key.public_key()).collect();
                let set = KeySet::new(&keys).unwrap().jwks().unwrap();
                Reply::Json(200, serde_json::from_str(&set).unwrap())
            }
            "/token" => {
                drop(state);
                self.tokens(&seen.form())
            }
            "/userinfo" => match &state.userinfo {
                Some(said) => Reply::Json(200, said.clone()),
                None => Reply::Json(404, json!({})),
            },
            _ => Reply::Json(404, json!({})),
        }
    }

    fn tokens(&self, form: &BTreeMap<String, String>) -> Reply {
        let mut state = self.state.lock();
        let mut claims = state.claims.clone();
        let again = form["grant_type"] == "refresh_token";
        let mut answer = json!({});
        if again {
            let shown = form["refresh_token"].as_str();
            if !state.refresh.good.contains(shown) {
                return Reply::Json(
                    400,
                    json!({ "error": "invalid_grant", "error_description": "Session not active" }),
                );
            }
            if state.refresh.rotates {
                state.refresh.good.remove(shown);
                answer["refresh_token"] = state.refresh.fresh().into();
            }
        } else {
            claims.entry("nonce").or_insert_with(|| state.nonce.clone().into());
            if state.refresh.gives {
                answer["refresh_token"] = state.refresh.fresh().into();
            }
        }
        if !again || state.refresh.access_token {
            answer["access_token"] = "access".into();
            answer["token_type"] = "Bearer".into();
        }
        if !again || state.refresh.id_token {
            let signer = Arc::clone(state.keys.last().unwrap());
            answer["id_token"] = self.token_by(signer.as_ref(), state.ahead, claims).into();
        }
        Reply::Json(200, answer)
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let mut bytes = Vec::new();
        let seen = loop {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let mut lines = head.lines();
            let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                break Seen { path, headers, body: body.to_owned() };
            }
        };
        self.state.lock().seen.push(seen.clone());
        let mut reply = self.reply(&seen);
        if let Reply::Held(gate) = &reply {
            gate.acquire().await.unwrap().forget();
            self.state.lock().replies.remove(&seen.path);
            reply = self.reply(&seen);
        }
        let answer = match reply {
            Reply::Json(status, body) => {
                let body = body.to_string();
                format!(
                    "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .into_bytes()
            }
            Reply::Raw(bytes) => bytes,
            Reply::Silence | Reply::Held(_) => {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                return;
            }
        };
        let _ = stream.write_all(&answer).await;
        let _ = stream.shutdown().await;
    }
}
