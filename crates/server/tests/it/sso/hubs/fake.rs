//! A GitHub on loopback, by what its documentation says of OAuth and of its API. It is strict: what it would not understand, or what it
//! need not have been asked, is put down as wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use parking_lot::Mutex;
use sallyport_sal::hash;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::sso::members;
use crate::sso::provider::{REDIRECT, SECRET};

pub(super) const CLIENT: &str = "Iv1.8a61f9b3a7aba766";

/// An account.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) id: Value,
    pub(super) login: String,
    /// Organisations by name, with their ids and the state of the membership; `billing_manager` is an active one of that role.
    pub(super) organizations: Vec<(&'static str, u64, &'static str)>,
    /// Teams: the organisation's id and name, the slug, the id.
    pub(super) teams: Vec<(u64, &'static str, String, u64)>,
    pub(super) emails: Value,
}

#[derive(Debug, Default)]
struct State {
    accounts: BTreeMap<&'static str, Account>,
    /// Codes, with whose they are, the scopes and the challenge.
    codes: BTreeMap<String, (Account, String, String)>,
    tokens: BTreeMap<String, (Account, String)>,
    count: u64,
    wrong: Vec<String>,
    asked: Vec<String>,
    /// What is answered instead: status, headers, body.
    instead: BTreeMap<String, (u16, String, String)>,
    /// Organisations that the answer about teams leaves out.
    partial: Vec<u64>,
}

/// It. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct GitHub {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: String,
}

struct Answer {
    status: u16,
    headers: String,
    body: String,
}

fn answer(status: u16, body: &Value) -> Answer {
    let body = if status == 204 { String::new() } else { body.to_string() };
    Answer { status, headers: String::new(), body }
}

impl GitHub {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hub = Self { url, state: Arc::default() };
        let serving = hub.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let hub = serving.clone();
                tokio::spawn(async move { hub.serve(stream).await });
            }
        });
        hub
    }

    pub(super) fn has(&self, name: &'static str, account: Account) {
        self.state.lock().accounts.insert(name, account);
    }

    pub(super) fn answers(&self, path: &str, status: u16, headers: &str, body: &Value) {
        let instead = (status, headers.to_owned(), body.to_string());
        self.state.lock().instead.insert(path.to_owned(), instead);
    }

    pub(super) fn hides(&self, organization: u64) {
        self.state.lock().partial.push(organization);
    }

    pub(super) fn is_itself(&self) {
        let mut state = self.state.lock();
        state.instead.clear();
        state.partial.clear();
    }

    /// What was asked since the last time, `METHOD path`.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().asked)
    }

    /// Everything was asked as it is documented, and no token is good any more.
    pub(super) fn is_content(&self) {
        let state = self.state.lock();
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
        assert!(state.tokens.is_empty(), "{} tokens were not forgotten", state.tokens.len());
    }

    /// A person who is logged in presses "Authorize": what the browser is sent back with.
    pub(super) fn authorize(&self, url: &str, person: &str) -> BTreeMap<String, String> {
        let query = url.strip_prefix(&format!("{}/login/oauth/authorize?", self.url));
        let query = members(query.unwrap_or_else(|| panic!("{url} is not GitHub's page")));
        let known = [
            "allow_signup",
            "client_id",
            "code_challenge",
            "code_challenge_method",
            "redirect_uri",
            "response_type",
            "scope",
            "state",
        ];
        assert!(query.keys().all(|name| known.contains(&name.as_str())), "{query:?}");
        assert_eq!(query["client_id"], CLIENT);
        let connector = connector_of(&query["redirect_uri"]).expect("GitHub knows another redirect address");
        assert_eq!(query["code_challenge_method"], "S256");
        assert!(query["state"].len() >= 32);
        let mut state = self.state.lock();
        state.count += 1;
        let code = format!("code{}", state.count);
        let account = state.accounts[person].clone();
        state.codes.insert(code.clone(), (account, query["scope"].clone(), query["code_challenge"].clone()));
        BTreeMap::from([
            ("connector".to_owned(), connector.to_owned()),
            ("state".to_owned(), query["state"].clone()),
            ("code".to_owned(), code),
        ])
    }

    fn reply(&self, request: &Request) -> Answer {
        let mut state = self.state.lock();
        state.asked.push(format!("{} {}", request.method, request.path));
        if let Some((status, headers, body)) = state.instead.get(&request.path) {
            return Answer { status: *status, headers: headers.clone(), body: body.clone() };
        }
        if request.headers.get("user-agent").is_none_or(String::is_empty) {
            state.wrong.push("no user agent".to_owned());
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/login/oauth/access_token") => token(&mut state, request),
            (method, path) => match path.strip_prefix("/api/v3") {
                Some(path) => api(&mut state, method, path, request),
                None => {
                    state.wrong.push(format!("{method} {path}"));
                    answer(404, &json!({ "message": "Not Found" }))
                }
            },
        }
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let request = loop {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let mut lines = head.lines();
            let mut first = lines.next().unwrap().split(' ');
            let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap());
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                break Request {
                    method,
                    path: path.to_owned(),
                    query: members(query),
                    headers,
                    body: body.to_owned(),
                };
            }
        };
        let Answer { status, headers, body } = self.reply(&request);
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json; charset=utf-8\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// Of the connectors of these tests, the one whose redirect address it is.
fn connector_of(redirect_uri: &str) -> Option<&str> {
    let connector = redirect_uri.strip_prefix(REDIRECT.strip_suffix("corp")?)?;
    ["corp", "other"].contains(&connector).then_some(connector)
}

/// Web application flow, step 2. Refusals have the status 200.
fn token(state: &mut State, request: &Request) -> Answer {
    let form = members(&request.body);
    let names: Vec<&str> = form.keys().map(String::as_str).collect();
    if names != ["client_id", "client_secret", "code", "code_verifier", "redirect_uri"]
        || request.headers["accept"] != "application/json"
    {
        state.wrong.push(format!("the token endpoint was asked with {names:?}"));
    }
    let error = |error: &str, description: &str| {
        answer(
            200,
            &json!({ "error": error, "error_description": description, "error_uri": "https://docs.github.com" }),
        )
    };
    if form["client_id"] != CLIENT || form["client_secret"] != SECRET {
        return error(
            "incorrect_client_credentials",
            "The client_id and/or client_secret passed are incorrect.",
        );
    }
    if connector_of(&form["redirect_uri"]).is_none() {
        return error("redirect_uri_mismatch", "The redirect_uri MUST match the registered callback URL.");
    }
    let challenge = BASE64URL_NOPAD.encode(&hash::sha256(form["code_verifier"].as_bytes()));
    // A code is good once, whoever shows it.
    match state.codes.remove(&form["code"]) {
        Some((account, scope, wanted)) if wanted == challenge => {
            state.count += 1;
            let token = format!("gho_{}", state.count);
            state.tokens.insert(token.clone(), (account, scope.clone()));
            answer(
                200,
                &json!({ "access_token": token, "scope": scope.replace(' ', ","), "token_type": "bearer" }),
            )
        }
        _ => error("bad_verification_code", "The code passed is incorrect or expired."),
    }
}

fn api(state: &mut State, method: &str, path: &str, request: &Request) -> Answer {
    let missing = || answer(404, &json!({ "message": "Not Found" }));
    if request.headers["accept"] != "application/vnd.github+json"
        || request.headers.get("x-github-api-version").map(String::as_str) != Some("2022-11-28")
    {
        state.wrong.push(format!("{method} {path} without version"));
    }
    let authorization = request.headers.get("authorization").cloned().unwrap_or_default();
    if (method, path) == ("DELETE", format!("/applications/{CLIENT}/token").as_str()) {
        let basic = format!("Basic {}", BASE64.encode(format!("{CLIENT}:{SECRET}").as_bytes()));
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let token = body["access_token"].as_str().unwrap().to_owned();
        if authorization != basic || state.tokens.remove(&token).is_none() {
            state.wrong.push("a token was not forgotten".to_owned());
            return missing();
        }
        return answer(204, &json!(null));
    }
    let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
    let Some((account, scope)) = state.tokens.get(token).cloned() else {
        state.wrong.push(format!("{method} {path} without a token that is good"));
        return answer(401, &json!({ "message": "Bad credentials" }));
    };
    let has = |wanted: &str| scope.split(' ').any(|one| one == wanted);
    if path == "/user" {
        return answer(
            200,
            &json!({ "login": account.login, "id": account.id, "type": "User", "name": "A person" }),
        );
    }
    if let Some(name) = path.strip_prefix("/user/memberships/orgs/") {
        let found = account.organizations.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        return match found {
            Some((name, id, member)) if has("read:org") => {
                let (member, role) = match *member {
                    "billing_manager" => ("active", "billing_manager"),
                    other => (other, "member"),
                };
                answer(
                    200,
                    &json!({ "state": member, "role": role, "organization": { "login": name, "id": id } }),
                )
            }
            _ => missing(),
        };
    }
    if path == "/user/emails" && has("user:email") {
        return answer(200, &account.emails);
    }
    if path == "/user/teams" && has("read:org") {
        let number = |name: &str| request.query[name].parse::<usize>().unwrap();
        let (per_page, page) = (number("per_page"), number("page"));
        assert!((1..=100).contains(&per_page));
        let hidden = |of: &u64| state.partial.contains(of);
        let teams: Vec<Value> = account
            .teams
            .iter()
            .filter(|(of, ..)| !hidden(of))
            .map(|(of, name, slug, id)| json!({ "id": id, "slug": slug, "name": slug, "organization": { "login": name, "id": of } }))
            .collect();
        let mut found = answer(200, &json!(teams.chunks(per_page).nth(page - 1).unwrap_or_default()));
        if teams.len() > page * per_page {
            let at =
                |page: usize, rel: &str| format!("<http://127.0.0.1:1/elsewhere?page={page}>; rel=\"{rel}\"");
            let last = teams.len().div_ceil(per_page);
            found.headers = format!("link: {}, {}\r\n", at(page + 1, "next"), at(last, "last"));
        }
        if !state.partial.is_empty() {
            let ids: Vec<String> = state.partial.iter().map(u64::to_string).collect();
            found.headers += &format!("x-github-sso: partial-results; organizations={}\r\n", ids.join(","));
        }
        return found;
    }
    state.wrong.push(format!("{method} {path} with {scope}"));
    missing()
}

/// The document of a connector to it.
pub(super) fn document(name: &str, url: &str, secret: &std::path::Path, more: &str) -> String {
    format!(
        "kind: github\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  url: {url}\n  client_id: {CLIENT}\n  client_secret_file: {}\n  \
         insecure_loopback: true\n  organizations: [Acme]\n  redirect_urls: ['{REDIRECT}']\n  provider_checks_second_factor: true\n  \
         mapping:\n    roles:\n      - {{claim: teams, value: 'acme/ops*', roles: [access]}}\n      - {{claim: team_ids, value: '77', \
         roles: [auditor]}}\n{more}",
        secret.display()
    )
}
