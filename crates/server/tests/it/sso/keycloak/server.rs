//! A Keycloak in a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::sso::provider::{PASSWORD, REDIRECT, SECRET, kill_group};

/// One that setup has built starts within a minute beside other work; another one is built by its start.
const STARTS: Duration = Duration::from_secs(240);
/// In a directory that setup has made, whose database is empty but for the administrator.
const READY: &str = "sallyport-ready";
const ADMINISTRATOR: &str = "administrator";

/// Where it was unpacked.
fn home() -> PathBuf {
    let home = std::env::var_os("SALLYPORT_KEYCLOAK").map(PathBuf::from).unwrap_or_default();
    assert!(
        home.join("bin/kc.sh").exists(),
        "Keycloak is not there: `cargo xtask setup --measure` fetches it for `cargo xtask test --measure`; SALLYPORT_KEYCLOAK names the directory of \
         a distribution of it, which needs Java 17 or newer"
    );
    home
}

pub(super) struct Keycloak {
    pub(super) issuer: String,
    base: String,
    token: String,
    _directory: tempfile::TempDir,
    _process: Child,
}

fn client(id: &str, logout_url: &str, mappers: &Value) -> Value {
    let mut all = vec![json!({
        "name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
        "config": { "claim.name": "groups", "full.path": "false", "id.token.claim": "true", "access.token.claim": "false",
                    "userinfo.token.claim": "true" },
    })];
    all.extend(mappers.as_array().unwrap().clone());
    json!({
        "clientId": id, "enabled": true, "publicClient": false, "secret": SECRET, "standardFlowEnabled": true,
        "directAccessGrantsEnabled": false, "redirectUris": [REDIRECT], "protocol": "openid-connect", "protocolMappers": all,
        "attributes": { "backchannel.logout.url": logout_url, "backchannel.logout.session.required": "true",
                        "pkce.code.challenge.method": "S256" },
    })
}

fn person(name: &str, groups: &[&str]) -> Value {
    json!({
        "username": name, "enabled": true, "email": format!("{name}@example.com"), "emailVerified": true, "firstName": name,
        "lastName": "Example", "groups": groups,
        "credentials": [{ "type": "password", "value": PASSWORD, "temporary": false }],
    })
}

fn realm(logout_url: &str) -> Value {
    let other = json!([{
        "name": "another audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
        "config": { "included.custom.audience": "another", "id.token.claim": "true", "access.token.claim": "true" },
    }]);
    json!({
        "realm": "corp", "enabled": true, "sslRequired": "none",
        // Each token of a refresh is good once.
        "revokeRefreshToken": true, "refreshTokenMaxReuse": 0,
        "groups": [{ "name": "ops-eu" }, { "name": "everyone" }],
        "users": [person("alice", &["/ops-eu", "/everyone"]), person("bob", &["/everyone"])],
        "clients": [client("sallyport", logout_url, &json!([])), client("wide", "", &other)],
    })
}

impl Keycloak {
    /// Starts one; its clock is so far from this machine's.
    pub(super) async fn start(skew: &str, logout_url: &str) -> Self {
        let (home, directory) = (home(), tempfile::tempdir().unwrap());
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let management = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        // Its own, with what setup has built, and with the database that setup has made.
        let own = directory.path().join("keycloak");
        let copied = std::process::Command::new("cp").arg("-r").arg(&home).arg(&own).status();
        assert!(copied.unwrap().success());
        if !own.join(READY).exists() {
            let _ = std::fs::remove_dir_all(own.join("data"));
        }
        std::fs::create_dir_all(own.join("data/import")).unwrap();
        std::fs::write(own.join("data/import/corp-realm.json"), realm(logout_url).to_string()).unwrap();
        let start = [
            "start",
            "--import-realm",
            "--http-enabled=true",
            "--http-host=127.0.0.1",
            "--hostname-strict=false",
            // As setup builds it: with others, or where nothing has built it, the start does.
            "--db=dev-file",
            "--cache=local",
            "--health-enabled=false",
        ];
        let program = own.join("bin/kc.sh");
        let mut command = match skew {
            "" => Command::new(program),
            skew => {
                let mut command = Command::new("faketime");
                // Java waits by the monotonic clock, which stays the machine's: by libfaketime's own remedy for that, each wait spins.
                command
                    .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                    .env("FAKETIME_FORCE_MONOTONIC_FIX", "0")
                    .args(["-f", skew])
                    .arg(program);
                command
            }
        };
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let process = command
            .args(start)
            .arg(format!("--http-port={port}"))
            .arg(format!("--http-management-port={management}"))
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMINISTRATOR)
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", PASSWORD)
            .env("JAVA_OPTS_KC_HEAP", "-Xms64m -Xmx512m")
            // Quickly compiled: it runs for a minute.
            .env("JAVA_OPTS_APPEND", "-XX:TieredStopAtLevel=1")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("Keycloak starts (Java; faketime for another clock)");
        let base = format!("http://127.0.0.1:{port}");
        let mut server = Self {
            issuer: format!("{base}/realms/corp"),
            base,
            token: String::new(),
            _directory: directory,
            _process: process,
        };
        let deadline = tokio::time::Instant::now() + STARTS;
        let mut looks = tokio::time::interval(Duration::from_millis(500));
        loop {
            looks.tick().await;
            let document = format!("{}/.well-known/openid-configuration", server.issuer);
            if let Some((200, _)) = ask("GET", &document, &[], "").await {
                break;
            }
            let log = || std::fs::read_to_string(server._directory.path().join("log")).unwrap_or_default();
            assert!(tokio::time::Instant::now() < deadline, "Keycloak did not start: {}", log());
        }
        server.administer().await;
        server
    }

    async fn administer(&mut self) {
        let form = format!(
            "grant_type=password&client_id=admin-cli&username={ADMINISTRATOR}&password={}",
            PASSWORD.replace(' ', "+")
        );
        let url = format!("{}/realms/master/protocol/openid-connect/token", self.base);
        let (status, body) =
            ask("POST", &url, &[("content-type", "application/x-www-form-urlencoded")], &form).await.unwrap();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        self.token = answer["access_token"].as_str().unwrap().to_owned();
    }

    /// A call of its administration; an answer that is no success is a failure of the test.
    pub(super) async fn admin(&mut self, method: &str, path: &str, body: &Value) -> Value {
        // Its administrators' tokens are good for a minute.
        self.administer().await;
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("{}/admin/realms/corp{path}", self.base);
        let (status, answer) = ask(method, &url, &headers, &body).await.unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    pub(super) async fn person(&mut self, name: &str) -> String {
        let found = self.admin("GET", &format!("/users?exact=true&username={name}"), &Value::Null).await;
        found[0]["id"].as_str().unwrap().to_owned()
    }

    /// A person more, who has no session yet.
    pub(super) async fn add(&mut self, name: &str, groups: &[&str]) {
        self.admin("POST", "/users", &person(name, groups)).await;
    }

    /// It signs by another key from now on, and the former one is worth nothing.
    pub(super) async fn rotate(&mut self) {
        let keys = self.admin("GET", "/keys", &Value::Null).await;
        let former = keys["active"]["RS256"].as_str().unwrap().to_owned();
        let of = keys["keys"].as_array().unwrap().iter().find(|key| key["kid"] == former.as_str()).unwrap();
        let component = of["providerId"].as_str().unwrap().to_owned();
        let fresh = json!({
            "name": "fresh", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
            "config": { "priority": ["1000"], "algorithm": ["RS256"], "keySize": ["2048"], "enabled": ["true"], "active": ["true"] },
        });
        self.admin("POST", "/components", &fresh).await;
        self.admin("DELETE", &format!("/components/{component}"), &Value::Null).await;
        let keys = self.admin("GET", "/keys", &Value::Null).await;
        assert_ne!(keys["active"]["RS256"], former.as_str());
    }
}

impl Drop for Keycloak {
    fn drop(&mut self) {
        // The script has started Java: both are of one group of processes.
        kill_group(&self._process);
    }
}

/// One request by HTTP/1.0, which ends an answer by closing. None where nothing serves yet.
pub(super) async fn ask(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<(u16, String)> {
    let (authority, path) = url.strip_prefix("http://")?.split_once('/')?;
    let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} /{path} HTTP/1.0\r\nhost: {authority}\r\naccept: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(authority).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    tokio::time::timeout(Duration::from_secs(60), reading).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
