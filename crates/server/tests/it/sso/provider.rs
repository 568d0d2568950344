//! A certified provider in a process of its own, and a browser that goes through it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::support::{self, PATIENCE};

/// Below it, each connector has its own.
const CALLBACKS: &str = "https://proxy.example.com/web/sso/callback/";
/// Of the connector `corp`.
pub(crate) const REDIRECT: &str = "https://proxy.example.com/web/sso/callback/corp";
/// Of every person at the providers that ask for one.
pub(crate) const PASSWORD: &str = "correct horse battery staple";
pub(crate) const SECRET: &str = "a-secret-of:the-client%";

/// The provider's directory in the sources, with its packages.
fn sources() -> PathBuf {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/providers");
    assert!(
        at.join("node_modules/oidc-provider").exists(),
        "the provider of these tests is not installed: run npm ci in interop/providers"
    );
    at
}

/// A provider that runs.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    directory: tempfile::TempDir,
    settings: Value,
    process: Child,
}

impl Provider {
    pub(crate) async fn start(change: impl FnOnce(&mut Value)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // A port that is free now: the provider has to know its issuer before it listens.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let mut settings = json!({
            "port": port,
            "keys": directory.path().join("key.json"),
            "redirect_uri": REDIRECT,
            "logout_uri": "http://127.0.0.1:1/",
            "people": {
                "1": { "name": "alice", "groups": ["ops-eu", "everyone"] },
                "2": { "name": "bob", "groups": ["everyone"] },
                "3": { "name": "alice", "groups": ["ops-eu"] },
                "4": { "name": "mallory", "groups": [] },
            },
        });
        change(&mut settings);
        let process = Self::run(directory.path(), &settings).await;
        Self { issuer: format!("http://127.0.0.1:{port}"), directory, settings, process }
    }

    async fn run(directory: &Path, settings: &Value) -> Child {
        let file = directory.join("settings.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let mut command = match settings["skew"].as_str() {
            None => Command::new("node"),
            Some(skew) => {
                let mut command = Command::new("faketime");
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").args(["-f", skew, "node"]);
                command
            }
        };
        let mut process = command
            .arg("provider.mjs")
            .arg(file)
            .current_dir(sources())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("node has to be installed (package nodejs; faketime for another clock)");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert!(line.is_some_and(|line| line.starts_with("http://")), "the provider did not start");
        process
    }

    /// It signs by another key from now on, and knows no one who had logged in there.
    pub(crate) async fn rotate(&mut self) {
        self.stop().await;
        std::fs::remove_file(self.directory.path().join("key.json")).unwrap();
        self.process = Self::run(self.directory.path(), &self.settings).await;
    }

    /// Its clock is so far from this machine's from now on, or (`+0`) no further; it knows no one who had logged in there.
    pub(crate) async fn skew(&mut self, skew: &str) {
        self.stop().await;
        self.settings["skew"] = skew.into();
        self.process = Self::run(self.directory.path(), &self.settings).await;
    }

    async fn stop(&mut self) {
        kill_group(&self.process);
        self.process.wait().await.unwrap();
        let address = self.issuer.strip_prefix("http://").unwrap();
        support::until("the provider's port is free", async || TcpStream::connect(address).await.err()).await;
    }

    /// A person is in these groups from now on.
    pub(crate) fn moves(&mut self, person: &str, groups: &[&str]) {
        self.settings["people"][person]["groups"] = groups.into();
        let (file, new) =
            (self.directory.path().join("settings.json"), self.directory.path().join("new.json"));
        std::fs::write(&new, self.settings.to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// A file with the client's secret.
    pub(crate) fn secret(&self) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join("secret");
        std::fs::write(&path, format!("{SECRET}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        kill_group(&self.process);
    }
}

/// `faketime` starts what it runs as a process of its own.
pub(crate) fn kill_group(process: &Child) {
    let group = process.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// A browser, as far as the provider needs one: it keeps cookies, follows redirects, and sends forms.
#[derive(Default)]
pub(crate) struct Browser {
    cookies: BTreeMap<(String, String), String>,
}

struct Answer {
    location: Option<String>,
    body: String,
}

impl Browser {
    async fn ask(&mut self, url: &str, form: Option<&str>) -> Answer {
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let path = format!("/{path}");
        let bare = path.split('?').next().unwrap();
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .filter(|((_, scope), _)| bare.starts_with(scope.as_str()))
            .map(|((name, _), value)| format!("{name}={value}"))
            .collect();
        let method = if form.is_some() { "POST" } else { "GET" };
        let form = form.unwrap_or_default();
        // By HTTP/1.0, which ends an answer by closing.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {authority}\r\naccept: text/html\r\ncookie: {}\r\ncontent-type: \
             application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{form}",
            cookies.join("; "),
            form.len()
        );
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut location = None;
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").unwrap();
            if name.eq_ignore_ascii_case("location") {
                let absolute = value.starts_with("http");
                location =
                    Some(if absolute { value.to_owned() } else { format!("http://{authority}{value}") });
            } else if name.eq_ignore_ascii_case("set-cookie") {
                let mut parts = value.split(';').map(str::trim);
                let (name, value) = parts.next().unwrap().split_once('=').unwrap();
                let path = parts.find_map(|part| part.strip_prefix("path=").or(part.strip_prefix("Path=")));
                let path = path.unwrap_or("/");
                self.cookies.insert((name.to_owned(), path.to_owned()), value.to_owned());
            }
        }
        Answer { location, body: body.to_owned() }
    }

    /// Goes where the page sends it, logs in there as a person where that is asked, and gives the members of the address that it is
    /// sent back to, with the connector whose address that is.
    pub(crate) async fn through(&mut self, url: &str, person: &str) -> BTreeMap<String, String> {
        let mut answer = self.ask(url, None).await;
        let mut at = url.to_owned();
        for _ in 0..20 {
            let (next, form) = match answer.location.take() {
                Some(location) if location.starts_with(CALLBACKS) => {
                    let (connector, query) = location[CALLBACKS.len()..].split_once('?').unwrap();
                    let mut answer = super::members(query);
                    answer.insert("connector".to_owned(), connector.to_owned());
                    return answer;
                }
                Some(location) => (location, None),
                None if answer.body.contains("value=\"login\"") => {
                    (at.clone(), Some(format!("prompt=login&login={person}&password=x")))
                }
                None if answer.body.contains("value=\"consent\"") => {
                    (at.clone(), Some("prompt=consent".to_owned()))
                }
                // Keycloak's page, which says where its form goes.
                None if answer.body.contains("id=\"kc-form-login\"") => {
                    let (_, form) = answer.body.split_once("id=\"kc-form-login\"").unwrap();
                    let to = form.split("action=\"").nth(1).unwrap().split('"').next().unwrap();
                    let password = PASSWORD.replace(' ', "+");
                    (
                        to.replace("&amp;", "&"),
                        Some(format!("username={person}&password={password}&credentialId=")),
                    )
                }
                // Dex's pages: of its ways to log in the one that is named, then the form of its own passwords.
                None if answer.body.contains(&format!("/auth/{}?", way(person))) => {
                    let (_, link) = answer.body.split_once(&format!("/auth/{}?", way(person))).unwrap();
                    let query = link.split('"').next().unwrap().replace("&amp;", "&").replace("&#43;", "+");
                    let (origin, _) = at.split_once("/auth").unwrap();
                    (format!("{origin}/auth/{}?{query}", way(person)), None)
                }
                None if answer.body.contains("name=\"login\"") => {
                    let password = PASSWORD.replace(' ', "+");
                    (at.clone(), Some(format!("login={person}%40example.com&password={password}")))
                }
                None => panic!("{at} leads nowhere: {}", answer.body),
            };
            answer = self.ask(&next, form.as_deref()).await;
            at = next;
        }
        panic!("{url} leads in circles");
    }

    /// Logs out at the provider.
    pub(crate) async fn log_out(&mut self, issuer: &str) {
        let page = self.ask(&format!("{issuer}/session/end"), None).await.body;
        let xsrf = page.split("name=\"xsrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let answer = self
            .ask(&format!("{issuer}/session/end/confirm"), Some(&format!("xsrf={xsrf}&logout=yes")))
            .await;
        assert!(answer.location.is_some(), "{}", answer.body);
    }
}

/// How a person logs in at Dex: by its own passwords, or by its stand-in for a provider behind it, which has groups.
fn way(person: &str) -> &'static str {
    if person == "mock" { "mock" } else { "local" }
}

/// What a provider tells of logouts: the forms that come.
pub(crate) struct Told {
    pub(crate) url: String,
    listener: TcpListener,
}

impl Told {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { url: format!("http://{}/logout", listener.local_addr().unwrap()), listener }
    }

    /// The next token that comes.
    pub(crate) async fn token(&self) -> String {
        let (mut stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
        let mut text = String::new();
        loop {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "the provider has said nothing");
            text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or_default() && body.contains("logout_token=") {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                return super::members(body)["logout_token"].clone();
            }
        }
    }
}
