//! A hostile provider of its own name, which hands out tokens that another one has signed.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::ask;

#[derive(Debug, Default)]
struct State {
    id_token: String,
    asked: Vec<String>,
}

/// It. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Poser {
    pub(super) issuer: String,
    jwks_uri: String,
    state: Arc<Mutex<State>>,
}

/// What an issuer says about itself.
pub(super) async fn discovered(issuer: &str) -> Value {
    let url = format!("{issuer}/.well-known/openid-configuration");
    let (status, body) = ask("GET", &url, &[], "").await.unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

impl Poser {
    /// One that names the keys of another issuer as its own.
    pub(super) async fn with_keys_of(issuer: &str) -> Self {
        let jwks_uri = discovered(issuer).await["jwks_uri"].as_str().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let poser = Self { issuer, jwks_uri, state: Arc::default() };
        let serving = poser.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let poser = serving.clone();
                tokio::spawn(async move { poser.serve(stream).await });
            }
        });
        poser
    }

    /// What it hands out for any code.
    pub(super) fn gives(&self, id_token: &str) {
        id_token.clone_into(&mut self.state.lock().id_token);
    }

    /// How often its token endpoint was asked.
    pub(super) fn asked_for_tokens(&self) -> usize {
        self.state.lock().asked.iter().filter(|line| line.starts_with("POST /token ")).count()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut text = String::new();
        let line = loop {
            let mut piece = [0; 4096];
            let Ok(count @ 1..) = stream.read(&mut piece).await else { return };
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or_default() {
                break head.lines().next().unwrap_or_default().to_owned();
            }
        };
        let body = if line.starts_with("POST /token ") { self.token() } else { self.document() };
        self.state.lock().asked.push(line);
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\ncontent-length: \
             {}\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    fn token(&self) -> Value {
        json!({ "access_token": "of-no-use", "token_type": "Bearer", "expires_in": 60, "id_token": self.state.lock().id_token })
    }

    fn document(&self) -> Value {
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": format!("{}/authorize", self.issuer),
            "token_endpoint": format!("{}/token", self.issuer),
            "jwks_uri": self.jwks_uri,
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "authorization_response_iss_parameter_supported": true,
        })
    }
}
