//! A login by GitHub: OAuth 2.0 with PKCE, and what its API says of the person.
//!
//! A person is the numeric id of an account; a handle changes hands. What is asked: the account, whether it belongs to each of the
//! connector's organisations, its teams, and its addresses where the connector looks at them. The token is not kept, and GitHub is
//! told to forget it.

use std::time::Duration;

use data_encoding::BASE64;
use http::header::LINK;
use http::{HeaderMap, Method, StatusCode};
use sallyport_oidc::{Identity, MAX_VALUES};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::asking::{Asker, FORM, Question, object, refused, said};
use super::claims::{Claims, EMAIL, EMAIL_VERIFIED};
use super::client::{Credential, encoded, form};
use super::connector::{Connector, GitHub};
use super::error::SsoError;
use crate::outgoing::Answer;

/// Most bytes of an answer: a page of 100 teams has some 200 KB.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Teams on a page, the most that GitHub gives, and pages that are read: more teams than values of a claim that are looked at.
const PAGE: usize = 100;
const PAGES: usize = MAX_VALUES / PAGE;
/// How long GitHub may take over all that it is asked of one person. In unit tests less than over one answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });
/// Roles in an organisation by which an account is a member of it: one who pays its bills is none.
const MEMBERS: [&str; 2] = ["member", "admin"];
/// What GitHub says of organisations that have single sign-on of their own.
const SSO: &str = "x-github-sso";
const HEADERS: [(&str, &str); 2] =
    [("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")];
const OAUTH: [(&str, &str); 1] = [("accept", "application/json")];

/// Where browsers are sent.
pub(super) fn authorization_endpoint(connector: &Connector) -> String {
    format!("{}/login/oauth/authorize", connector.issuer)
}

/// A GitHub, as one login asks it.
pub(super) struct Hub<'c> {
    asker: Asker<'c>,
    connector: &'c Connector,
    github: &'c GitHub,
    secret: &'c str,
}

/// An organisation that the person belongs to.
struct Organization {
    name: String,
    id: u64,
}

impl<'c> Hub<'c> {
    pub(super) fn new(
        connector: &'c Connector,
        github: &'c GitHub,
        credential: &'c Credential,
    ) -> Result<Self, SsoError> {
        let Credential::Secret(secret) = credential else {
            return Err(SsoError::NoProof { offered: "a secret".to_owned(), have: "a key" });
        };
        Ok(Self { asker: Asker::new(connector), connector, github, secret })
    }

    /// What GitHub says of the person behind a code.
    pub(super) async fn claims(
        &self,
        code: &str,
        verifier: &str,
        redirect_url: &str,
    ) -> Result<Claims, SsoError> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let token = self.redeem(code, verifier, redirect_url).await?;
        let bearer = Zeroizing::new(format!("Bearer {}", *token));
        let claims = tokio::time::timeout_at(deadline, self.person(&bearer)).await;
        self.forget(&token).await;
        claims.unwrap_or_else(|_| {
            let reason = format!("not all that was asked came within {} s", PATIENCE.as_secs());
            Err(SsoError::Unreadable { what: "the API", url: said(&self.github.api), reason })
        })
    }

    async fn redeem(
        &self,
        code: &str,
        verifier: &str,
        redirect_url: &str,
    ) -> Result<Zeroizing<String>, SsoError> {
        const WHAT: &str = "the token endpoint";
        let url = format!("{}/login/oauth/access_token", self.connector.issuer);
        let body = form([
            ("client_id", self.connector.client_id.as_str()),
            ("client_secret", self.secret),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", verifier),
        ]);
        let question = Question {
            what: WHAT,
            url: &url,
            method: Method::POST,
            headers: &OAUTH,
            authorization: None,
            body: Some((FORM, body)),
            limit: ANSWER_BYTES,
        };
        let answer = self.asker.put(question).await?;
        if !answer.status.is_success() {
            return Err(refused(WHAT, &url, &answer));
        }
        let members = object(WHAT, &url, &answer.body)?;
        // GitHub refuses with the status 200.
        if members.contains_key("error") {
            return Err(refused(WHAT, &url, &answer));
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let bearer = text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        let token = text("access_token").filter(|token| bearer && is_plain(token));
        let reason = || "it has no access_token of the type bearer".to_owned();
        let none = || SsoError::Unreadable { what: WHAT, url: said(&url), reason: reason() };
        Ok(Zeroizing::new(token.ok_or_else(none)?.to_owned()))
    }

    async fn person(&self, bearer: &str) -> Result<Claims, SsoError> {
        const WHAT: &str = "the account";
        let url = format!("{}/user", self.github.api);
        let answer = self.asked(WHAT, &url, bearer).await?;
        let account = object(WHAT, &url, &good(WHAT, &url, answer)?.body)?;
        let unreadable =
            |reason: &str| SsoError::Unreadable { what: WHAT, url: said(&url), reason: reason.to_owned() };
        let id = account.get("id").and_then(Value::as_u64).filter(|id| *id > 0);
        let id = id.ok_or_else(|| unreadable("it has no numeric id"))?;
        let login = account.get("login").and_then(Value::as_str);
        let login = login.ok_or_else(|| unreadable("it has no login"))?;
        let mut found = Map::new();
        found.insert("id".to_owned(), id.into());
        found.insert("login".to_owned(), login.into());
        if let Some(name) = account.get("name").and_then(Value::as_str) {
            found.insert("name".to_owned(), name.into());
        }
        let mut organizations = Vec::new();
        for name in &self.github.organizations {
            organizations.extend(self.membership(name, bearer).await?);
        }
        let teams = self.teams(&organizations, bearer).await?;
        let names: Vec<&str> = organizations.iter().map(|one| one.name.as_str()).collect();
        let ids: Vec<u64> = organizations.iter().map(|one| one.id).collect();
        found.insert("organizations".to_owned(), names.into());
        found.insert("organization_ids".to_owned(), ids.into());
        let (names, ids): (Vec<String>, Vec<u64>) = teams.into_iter().unzip();
        found.insert("teams".to_owned(), names.into());
        found.insert("team_ids".to_owned(), ids.into());
        if self.connector.scopes.iter().any(|scope| scope == "user:email")
            && let Some(email) = self.email(bearer).await?
        {
            found.insert(EMAIL.to_owned(), email.into());
            found.insert(EMAIL_VERIFIED.to_owned(), true.into());
        }
        let identity = Identity { issuer: self.connector.issuer.clone(), subject: id.to_string() };
        Ok(Claims {
            identity,
            token: Map::new(),
            userinfo: Some(found),
            fetched: Map::new(),
            groups: None,
            renewal: None,
        })
    }

    /// Whether the person belongs to an organisation: invited is not enough.
    async fn membership(&self, name: &str, bearer: &str) -> Result<Option<Organization>, SsoError> {
        const WHAT: &str = "the membership of an organisation";
        let url = format!("{}/user/memberships/orgs/{}", self.github.api, encoded(name));
        let answer = self.asked(WHAT, &url, bearer).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if answer.status == StatusCode::FORBIDDEN && !is_limited(&answer.headers) {
            return Err(hidden(name, &answer));
        }
        let members = object(WHAT, &url, &good(WHAT, &url, answer)?.body)?;
        if members.get("state").and_then(Value::as_str) != Some("active") {
            return Ok(None);
        }
        let organization = members.get("organization");
        let id = organization.and_then(|one| one.get("id")).and_then(Value::as_u64);
        let login = organization.and_then(|one| one.get("login")).and_then(Value::as_str);
        let login = login.map(str::to_ascii_lowercase).filter(|login| login == name);
        let (Some(id), Some(name)) = (id, login) else {
            let reason = format!("it is not about the organisation {name}");
            return Err(SsoError::Unreadable { what: WHAT, url: said(&url), reason });
        };
        let role = members.get("role").and_then(Value::as_str);
        let is_member = role.is_some_and(|role| MEMBERS.contains(&role));
        Ok(is_member.then_some(Organization { name, id }))
    }

    /// The person's teams in these organisations, by name and by id.
    async fn teams(
        &self,
        organizations: &[Organization],
        bearer: &str,
    ) -> Result<Vec<(String, u64)>, SsoError> {
        const WHAT: &str = "the teams";
        let mut teams = Vec::new();
        if organizations.is_empty() {
            return Ok(teams);
        }
        for page in 1..=PAGES {
            let url = format!("{}/user/teams?per_page={PAGE}&page={page}", self.github.api);
            let answer = good(WHAT, &url, self.asked(WHAT, &url, bearer).await?)?;
            // What an organisation's own single sign-on hides is left out, and the answer is good.
            let partial = hidden_ids(&answer.headers);
            if let Some(one) = organizations.iter().find(|one| partial.contains(&one.id)) {
                return Err(SsoError::OrganizationSso { organization: one.name.clone(), url: String::new() });
            }
            let unreadable = |reason: String| SsoError::Unreadable { what: WHAT, url: said(&url), reason };
            let found: Vec<Value> = serde_json::from_slice(&answer.body)
                .map_err(|error| unreadable(format!("it is no list ({error})")))?;
            if found.len() > PAGE {
                return Err(unreadable(format!("it has more than the {PAGE} teams that were asked for")));
            }
            for team in &found {
                let of = team.get("organization").and_then(|one| one.get("id")).and_then(Value::as_u64);
                let Some(organization) = organizations.iter().find(|one| Some(one.id) == of) else {
                    continue;
                };
                let slug = team.get("slug").and_then(Value::as_str);
                let id = team.get("id").and_then(Value::as_u64);
                let (Some(slug), Some(id)) = (slug, id) else {
                    return Err(unreadable("a team has no slug and id".to_owned()));
                };
                teams.push((format!("{}/{}", organization.name, slug.to_ascii_lowercase()), id));
            }
            if !has_next(&answer.headers) {
                return Ok(teams);
            }
        }
        Err(SsoError::Cut { from: "teams".to_owned() })
    }

    /// The person's first address, where GitHub has verified it.
    async fn email(&self, bearer: &str) -> Result<Option<String>, SsoError> {
        const WHAT: &str = "the addresses";
        let url = format!("{}/user/emails?per_page={PAGE}", self.github.api);
        let answer = good(WHAT, &url, self.asked(WHAT, &url, bearer).await?)?;
        let found: Vec<Value> = serde_json::from_slice(&answer.body).map_err(|error| {
            SsoError::Unreadable { what: WHAT, url: said(&url), reason: format!("it is no list ({error})") }
        })?;
        let is = |one: &Value, name: &str| one.get(name) == Some(&Value::Bool(true));
        let first = found.iter().find(|one| is(one, "primary") && is(one, "verified"));
        Ok(first.and_then(|one| one.get("email")).and_then(Value::as_str).map(str::to_owned))
    }

    async fn asked(&self, what: &'static str, url: &str, bearer: &str) -> Result<Answer, SsoError> {
        let question = Question {
            what,
            url,
            method: Method::GET,
            headers: &HEADERS,
            authorization: Some(bearer),
            body: None,
            limit: ANSWER_BYTES,
        };
        self.asker.put(question).await
    }

    /// Has GitHub forget the token, which would be good for ever. What the person gets does not depend on it.
    async fn forget(&self, token: &str) {
        const WHAT: &str = "the end of a token";
        let url = format!("{}/applications/{}/token", self.github.api, encoded(&self.connector.client_id));
        let pair = Zeroizing::new(format!("{}:{}", self.connector.client_id, self.secret));
        let basic = Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
        let question = Question {
            what: WHAT,
            url: &url,
            method: Method::DELETE,
            headers: &HEADERS,
            authorization: Some(&basic),
            body: Some(("application/json", json!({ "access_token": token }).to_string())),
            limit: ANSWER_BYTES,
        };
        let problem = match self.asker.put(question).await {
            Ok(answer) if answer.status.is_success() => return,
            Ok(answer) => format!("it answered {}", answer.status),
            Err(error) => crate::ServerError::chain(&error),
        };
        tracing::warn!(connector = %self.connector.name, problem, "GitHub was not told to forget a token");
    }
}

fn is_plain(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

fn good(what: &'static str, url: &str, answer: Answer) -> Result<Answer, SsoError> {
    if answer.status == StatusCode::OK {
        return Ok(answer);
    }
    Err(SsoError::Status { what, url: said(url), status: answer.status })
}

/// Whether GitHub refuses since it was asked too often.
fn is_limited(headers: &HeaderMap) -> bool {
    let spent = headers.get("x-ratelimit-remaining").is_some_and(|left| left.as_bytes() == b"0");
    spent || headers.contains_key("retry-after")
}

/// Why nothing is said of an organisation.
fn hidden(organization: &str, answer: &Answer) -> SsoError {
    let organization = organization.to_owned();
    let sso = answer.headers.get(SSO).and_then(|value| value.to_str().ok());
    if let Some(required) = sso.and_then(|sso| sso.strip_prefix("required")) {
        let url = required.split("url=").nth(1).map(said).unwrap_or_default();
        return SsoError::OrganizationSso { organization, url };
    }
    let members = serde_json::from_slice::<Map<String, Value>>(&answer.body).unwrap_or_default();
    let said = members.get("message").and_then(Value::as_str).map(said).unwrap_or_default();
    SsoError::OrganizationHidden { organization, said }
}

/// The organisations whose part of an answer was left out.
fn hidden_ids(headers: &HeaderMap) -> Vec<u64> {
    let sso = headers.get(SSO).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let ids = sso.strip_prefix("partial-results").and_then(|rest| rest.split("organizations=").nth(1));
    ids.unwrap_or_default().split(',').filter_map(|id| id.trim().parse().ok()).collect()
}

/// Whether another page follows (RFC 8288). Its address is not followed: it is known.
fn has_next(headers: &HeaderMap) -> bool {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    links
        .flat_map(|value| value.split(','))
        .any(|link| link.split(';').any(|one| one.trim() == "rel=\"next\""))
}
