//! An identity provider that does the least that a login needs: what it is, its key, and a token for a code. It is not measured, and
//! takes each person's own word.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sallyport_ca::jwt::{self, KeySet};
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, constant_time_eq, random};
use sallyport_testing::write_private;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::LabError;

const CLIENT: &str = "sallyport";
/// Most of a request: a form with a code, and the head before it.
const REQUEST_BYTES: usize = 16 * 1024;
/// How long a token is good.
const LIFETIME: time::Duration = time::Duration::minutes(5);

/// The provider, while the runtime runs that it was started in.
pub(super) struct Provider {
    issuer: String,
    secret: PathBuf,
    /// What every code of this run begins with: another account of the machine, which does not know it, gets no token.
    run: String,
}

struct Keys {
    issuer: String,
    run: String,
    key: MemoryKey,
    /// Its public half, as a set of JSON Web Keys.
    keys: Value,
}

impl Provider {
    pub(super) async fn start(directory: &Path) -> Result<Self, LabError> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .map_err(LabError::of_connection)?;
        let issuer = format!("http://{}", listener.local_addr().map_err(LabError::of_connection)?);
        let secret = directory.join("provider.secret");
        write_private(&secret, "what-the-provider-knows-the-cluster-by")?;
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).map_err(LabError::of_connection)?;
        let run = random::token(20).map_err(LabError::of_connection)?;
        let set =
            KeySet::new([&key.public_key()]).and_then(|set| set.jwks()).map_err(LabError::of_connection)?;
        let keys = serde_json::from_str(&set).map_err(LabError::of_connection)?;
        let keys = Arc::new(Keys { issuer: issuer.clone(), run: run.clone(), key, keys });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keys = Arc::clone(&keys);
                tokio::spawn(async move {
                    let _ = serve(stream, &keys).await;
                });
            }
        });
        Ok(Self { issuer, secret, run })
    }

    /// The code with which a person comes back: it says all that the token is to say.
    pub(super) fn code(&self, person: &str, nonce: &str) -> String {
        format!("{}.{person}.{nonce}", self.run)
    }

    /// The connector that leads to it.
    pub(super) fn document(&self, name: &str, origin: &str) -> String {
        format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  title: The lab\n  issuer: {}\n  client_id: {CLIENT}\n  \
             client_secret_file: {}\n  insecure_loopback: true\n  algorithms: [EdDSA]\n  scopes: [openid]\n  \
             redirect_urls: ['{origin}/web/sso/callback/{name}']\n  provider_checks_second_factor: true\n  mapping:\n    roles:\n      - \
             {{claim: groups, value: everyone, roles: [guests]}}\n",
            self.issuer,
            self.secret.display()
        )
    }
}

/// Answers requests on one connection until the other end goes.
async fn serve(mut stream: TcpStream, keys: &Keys) -> std::io::Result<()> {
    let mut read = Vec::new();
    loop {
        let head_end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if read.len() > REQUEST_BYTES || stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(read.get(..head_end).unwrap_or_default()).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let whole = head_end + length.unwrap_or(0_usize).min(REQUEST_BYTES);
        while read.len() < whole {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        let body = String::from_utf8_lossy(read.get(head_end..whole).unwrap_or_default()).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        read.drain(..whole.min(read.len()));
        let answer = keys.answer(&path, &body).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(format!("{head}{answer}").as_bytes()).await?;
    }
}

impl Keys {
    fn answer(&self, path: &str, body: &str) -> Value {
        let issuer = &self.issuer;
        match path {
            "/.well-known/openid-configuration" => json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "jwks_uri": format!("{issuer}/keys"),
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["EdDSA"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            }),
            "/keys" => self.keys.clone(),
            "/token" => match self.token(body) {
                Some(token) => json!({
                    "access_token": "none", "token_type": "Bearer", "expires_in": LIFETIME.whole_seconds(), "id_token": token,
                }),
                None => json!({ "error": "invalid_grant" }),
            },
            _ => json!({ "error": "not_found" }),
        }
    }

    /// An ID token (OpenID Connect Core §2) that says what the code does.
    fn token(&self, form: &str) -> Option<String> {
        let code = form.split('&').find_map(|pair| pair.strip_prefix("code="))?;
        let (run, said) = code.split_once('.')?;
        if !constant_time_eq(run.as_bytes(), self.run.as_bytes()) {
            return None;
        }
        let (person, nonce) = said.split_once('.')?;
        let now = OffsetDateTime::now_utc();
        let said = json!({
            "nonce": nonce, "auth_time": now.unix_timestamp(), "preferred_username": person, "groups": ["everyone"],
        });
        let claims = jwt::Claims {
            issuer: Some(self.issuer.clone()),
            subject: person.to_owned(),
            audience: vec![CLIENT.to_owned()],
            expires: now + LIFETIME,
            not_before: None,
            issued: Some(now),
            id: None,
            custom: said.as_object().cloned()?,
        };
        jwt::sign(&self.key, &claims).ok()
    }
}
