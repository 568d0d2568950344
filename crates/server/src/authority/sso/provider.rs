//! The provider's side of a login: its documents and keys, which are kept, its token endpoint and its user information.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use parking_lot::Mutex;
use sallyport_oidc::{
    Answered, Discovery, Expected, IdToken, KeyCache, KeySet, LogoutToken, MAX_DISCOVERY_BYTES,
    MAX_KEY_SET_BYTES, MAX_VALUES, OidcError, Overage, Provider, discovery_url, overages,
};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::claims::{Claims, EMAIL, EMAIL_VERIFIED, check_class, of_the_provider};
use super::client::{Credential, form, prove};
use super::document::{Connector, endpoint};
use super::error::SsoError;
use crate::config::{Endpoint, HostPort};
use crate::dialling::{addresses, is_inside};
use crate::outgoing::{self, Bounds, Reach};

/// One answer of a provider takes so long at most.
/// Unit tests wait for answers that never come.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Most bytes of an answer with tokens, user information or groups.
const ANSWER_BYTES: usize = 256 * 1024;
/// Of a refusal so much is read.
const REFUSAL_BYTES: usize = 4096;
/// Longest text of a provider that is repeated to an administrator.
const SAID: usize = 256;
/// How long a discovery document is good, and how soon one that could not be fetched is asked for again.
const REFRESH: time::Duration = time::Duration::hours(1);
const AGAIN: time::Duration = time::Duration::seconds(5);
/// How long a login may have waited for a document that another one fetches.
const WAITED: time::Duration = time::Duration::minutes(1);
/// Most claims that are fetched from elsewhere in one login.
const FETCHES: usize = 4;
/// Where Entra ID's groups are, in place of the retired address that its tokens name.
const ENTRA_RETIRED: &str = "graph.windows.net";
const ENTRA_GROUPS: &str = "https://graph.microsoft.com/v1.0/me/getMemberObjects";

/// A connector's provider, with what is known of it.
#[derive(Debug)]
pub(crate) struct Remote {
    connector: Connector,
    kept: Mutex<Kept>,
    /// Held while the documents are fetched: many logins at once ask once.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    discovery: Option<(Arc<Discovery>, OffsetDateTime)>,
    /// When it last could not be fetched, and why.
    failed: Option<(OffsetDateTime, String)>,
    keys: KeyCache,
}

/// What the token endpoint gave.
struct Tokens {
    id_token: Zeroizing<String>,
    access_token: Option<Zeroizing<String>>,
}

fn said(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SAID).collect()
}

fn object(what: &'static str, url: &str, body: &[u8]) -> Result<Map<String, Value>, SsoError> {
    let unreadable = |reason: String| SsoError::Unreadable { what, url: said(url), reason };
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(unreadable("it is not an object".to_owned())),
        Err(error) => Err(unreadable(format!("it is not JSON ({error})"))),
    }
}

impl Remote {
    /// A provider of which nothing is known yet.
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    fn provider(&self) -> Result<Provider, SsoError> {
        let Connector { issuer, client_id, algorithms, .. } = &self.connector;
        Ok(Provider::new(issuer, client_id, algorithms)?)
    }

    /// What the provider says of itself: asked at most once an hour, and the last answer is good while it is away.
    pub(crate) async fn discovery(&self, now: OffsetDateTime) -> Result<Arc<Discovery>, SsoError> {
        // Those who waited while it was fetched began before it failed; a clock that was set back far does not count.
        let rests = |failed: OffsetDateTime| now - failed < AGAIN && failed - now < WAITED;
        let known = |kept: &Kept| {
            let failed = kept.failed.as_ref().filter(|(failed, _)| rests(*failed));
            match (&kept.discovery, failed) {
                (Some((discovery, fetched)), None) if now >= *fetched && now - *fetched < REFRESH => {
                    Some(Ok(Arc::clone(discovery)))
                }
                (Some((discovery, _)), Some(_)) => Some(Ok(Arc::clone(discovery))),
                (None, Some((_, problem))) => Some(Err(SsoError::Resting { problem: problem.clone() })),
                (_, None) => None,
            }
        };
        if let Some(known) = known(&self.kept.lock()) {
            return known;
        }
        let _alone = self.fetching.lock().await;
        if let Some(known) = known(&self.kept.lock()) {
            return known;
        }
        let begun = Instant::now();
        let fetched = self.fetch_discovery().await;
        let mut kept = self.kept.lock();
        match fetched {
            Ok(discovery) => {
                let discovery = Arc::new(discovery);
                kept.discovery = Some((Arc::clone(&discovery), now));
                kept.failed = None;
                Ok(discovery)
            }
            Err(error) => {
                // By when it failed: what a slow failure took does not use up the pause after it.
                kept.failed = Some((now + begun.elapsed(), crate::ServerError::chain(&error)));
                match &kept.discovery {
                    Some((discovery, _)) => {
                        tracing::warn!(
                            connector = %self.connector.name,
                            error = crate::ServerError::chain(&error),
                            "a provider's discovery document could not be fetched; the last one stays"
                        );
                        Ok(Arc::clone(discovery))
                    }
                    None => Err(error),
                }
            }
        }
    }

    async fn fetch_discovery(&self) -> Result<Discovery, SsoError> {
        let url = discovery_url(&self.connector.issuer)?;
        let document = self.get("the discovery document", &url, None, MAX_DISCOVERY_BYTES).await?;
        let discovery = Discovery::parse(&self.connector.issuer, &document)?;
        let named = [
            ("the authorization endpoint", Some(&discovery.authorization_endpoint)),
            ("the token endpoint", Some(&discovery.token_endpoint)),
            ("the key set", Some(&discovery.jwks_uri)),
            ("the user information", discovery.userinfo_endpoint.as_ref()),
        ];
        for (what, url) in named {
            if let Some(url) = url {
                self.address(what, url)?;
            }
        }
        Ok(discovery)
    }

    fn address(&self, what: &'static str, url: &str) -> Result<Endpoint, SsoError> {
        endpoint(url, self.connector.insecure_loopback).map_err(|reason| SsoError::Address {
            what,
            url: said(url),
            reason,
        })
    }

    async fn fetch_keys(&self, discovery: &Discovery, now: OffsetDateTime) -> Result<KeySet, SsoError> {
        self.kept.lock().keys.begin(now);
        let document = self.get("the key set", &discovery.jwks_uri, None, MAX_KEY_SET_BYTES).await?;
        let keys = KeySet::parse(&document)?;
        self.kept.lock().keys.keep(keys.clone(), now);
        Ok(keys)
    }

    /// The keys, fetched where they are old. While the provider is away, those that are kept are good.
    async fn keys(&self, discovery: &Discovery, now: OffsetDateTime) -> Result<KeySet, SsoError> {
        let kept = |kept: &Kept| (kept.keys.is_due(now), kept.keys.keys().cloned());
        if let (false, Some(keys)) = kept(&self.kept.lock()) {
            return Ok(keys);
        }
        let _alone = self.fetching.lock().await;
        let now_kept = kept(&self.kept.lock());
        match now_kept {
            (false, Some(keys)) => Ok(keys),
            (_, Some(old)) => match self.fetch_keys(discovery, now).await {
                Ok(keys) => Ok(keys),
                Err(error) => {
                    tracing::warn!(
                        connector = %self.connector.name,
                        error = crate::ServerError::chain(&error),
                        "a provider's keys could not be fetched; the last ones stay"
                    );
                    Ok(old)
                }
            },
            (_, None) => self.fetch_keys(discovery, now).await,
        }
    }

    /// Verifies something by the provider's keys, and once more by those that it has now where the key is not among them.
    async fn verified<T>(
        &self,
        now: OffsetDateTime,
        verify: impl Fn(&Provider, &KeySet) -> Result<T, OidcError>,
    ) -> Result<T, SsoError> {
        let (provider, discovery) = (self.provider()?, self.discovery(now).await?);
        let keys = self.keys(&discovery, now).await?;
        let refusal = match verify(&provider, &keys) {
            Ok(good) => return Ok(good),
            Err(refusal) => refusal,
        };
        if !self.kept.lock().keys.is_due_after(&refusal, now) {
            return Err(refusal.into());
        }
        let _alone = self.fetching.lock().await;
        let keys = self.fetch_keys(&discovery, now).await?;
        Ok(verify(&provider, &keys)?)
    }

    /// Verifies what the provider says of a logout.
    pub(crate) async fn logout(&self, token: &str, now: OffsetDateTime) -> Result<LogoutToken, SsoError> {
        self.verified(now, |provider, keys| provider.verify_logout(token, keys, now)).await
    }

    /// What the provider says of the person behind a code. `everything`: the user information also where nothing is missing.
    pub(super) async fn claims(
        &self,
        code: &str,
        answered: &Answered,
        redirect_url: &str,
        credential: &Credential,
        everything: bool,
        now: OffsetDateTime,
    ) -> Result<Claims, SsoError> {
        let discovery = self.discovery(now).await?;
        let tokens = self.redeem(&discovery, code, answered, redirect_url, credential, now).await?;
        let expected = Expected { nonce: &answered.nonce, max_age: self.connector.max_age };
        let IdToken { identity, claims, .. } = self
            .verified(now, |provider, keys| provider.verify(&tokens.id_token, keys, expected, now))
            .await?;
        let mut claims =
            Claims { identity, token: claims, userinfo: None, fetched: Map::new(), groups: None };
        check_class(&self.connector, &claims)?;
        if let (Some(url), Some(access)) = (&discovery.userinfo_endpoint, &tokens.access_token)
            && (everything || self.wanted().iter().any(|claim| !claims.has(claim)))
        {
            claims.userinfo = Some(self.userinfo(url, access, &claims.identity.subject).await?);
        }
        self.fetch_elsewhere(&mut claims, tokens.access_token.as_ref().map(|token| token.as_str())).await?;
        Ok(claims)
    }

    /// The claims that the connector looks at.
    fn wanted(&self) -> BTreeSet<&str> {
        let mut wanted = self.connector.mapping.claims();
        wanted.extend(self.connector.username.claims());
        let mut wanted = of_the_provider(wanted);
        if wanted.contains(EMAIL) && !self.connector.email_without_verification {
            wanted.insert(EMAIL_VERIFIED);
        }
        wanted
    }

    /// RFC 6749 §4.1.3, RFC 7636 §4.5.
    async fn redeem(
        &self,
        discovery: &Discovery,
        code: &str,
        answered: &Answered,
        redirect_url: &str,
        credential: &Credential,
        now: OffsetDateTime,
    ) -> Result<Tokens, SsoError> {
        const WHAT: &str = "the token endpoint";
        let url = &discovery.token_endpoint;
        let proof = prove(credential, &self.connector.client_id, discovery, now)?;
        let mut members = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", answered.verifier.as_str()),
        ];
        members.extend(proof.form.iter().map(|(name, value)| (*name, value.as_str())));
        let body = form(members);
        let header = proof.header.as_ref().map(|header| header.as_str());
        let answer =
            self.ask(WHAT, url, header, Some(("application/x-www-form-urlencoded", body)), ANSWER_BYTES);
        let answer = answer.await?;
        if !answer.status.is_success() {
            return Err(refused(WHAT, url, &answer));
        }
        let members = object(WHAT, url, &answer.body)?;
        let text = |name: &str| {
            members.get(name).and_then(Value::as_str).map(|text| Zeroizing::new(text.to_owned()))
        };
        let Some(id_token) = text("id_token") else {
            let reason =
                "it has no id_token: the client has to be one of OpenID Connect, and scopes need openid";
            return Err(SsoError::Unreadable { what: WHAT, url: said(url), reason: reason.to_owned() });
        };
        // RFC 6749 §7.1: a token of a type that is not known is not used.
        let bearer = text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        let access_token =
            text("access_token").filter(|token| bearer && token.bytes().all(|byte| byte.is_ascii_graphic()));
        Ok(Tokens { id_token, access_token })
    }

    /// Core §5.3: it counts for the subject of the ID token alone.
    async fn userinfo(&self, url: &str, access: &str, subject: &str) -> Result<Map<String, Value>, SsoError> {
        const WHAT: &str = "the user information";
        let bearer = Zeroizing::new(format!("Bearer {access}"));
        let answer = self.ask(WHAT, url, Some(&bearer), None, ANSWER_BYTES).await?;
        if !answer.status.is_success() {
            return Err(SsoError::Status { what: WHAT, url: said(url), status: answer.status });
        }
        if answer.media_type == "application/jwt" {
            let reason =
                "it is signed (application/jwt): set the client at the provider to plain JSON".to_owned();
            return Err(SsoError::Unreadable { what: WHAT, url: said(url), reason });
        }
        let members = object(WHAT, url, &answer.body)?;
        match members.get("sub").and_then(Value::as_str) {
            Some(got) if got == subject => Ok(members),
            got => Err(SsoError::OtherSubject {
                got: said(got.unwrap_or_default()),
                expected: subject.to_owned(),
            }),
        }
    }

    /// Fetches what was too large for the token, from servers that the document allows. What is not fetched stays known as missing.
    async fn fetch_elsewhere(&self, claims: &mut Claims, access: Option<&str>) -> Result<(), SsoError> {
        let wanted = self.wanted();
        let elsewhere = overages(&claims.all());
        let missing = elsewhere
            .into_iter()
            .filter(|one| wanted.contains(one.claim.as_str()) && !claims.has(&one.claim));
        for overage in missing.take(FETCHES).collect::<Vec<_>>() {
            if let Some(url) = self.allowed(&overage) {
                let values = self.fetch_claim(&overage, &url, access).await?;
                claims.fetched.insert(overage.claim, values);
            }
        }
        Ok(())
    }

    /// Where a claim is fetched from, where the document allows that.
    fn allowed(&self, overage: &Overage) -> Option<String> {
        let named = overage.endpoint.as_deref()?;
        let found = endpoint(named, self.connector.insecure_loopback).ok()?;
        let url = match found.address.host.as_str() {
            ENTRA_RETIRED => ENTRA_GROUPS.to_owned(),
            _ => named.to_owned(),
        };
        let found = endpoint(&url, self.connector.insecure_loopback).ok()?;
        self.connector.allowed_hosts.contains(&found.address).then_some(url)
    }

    async fn fetch_claim(
        &self,
        overage: &Overage,
        url: &str,
        access: Option<&str>,
    ) -> Result<Value, SsoError> {
        const WHAT: &str = "the place of a claim that was too large";
        let failed = |reason: String| SsoError::Elsewhere {
            claim: overage.claim.clone(),
            endpoint: said(url),
            reason,
        };
        let access =
            access.ok_or_else(|| failed("and the provider gave no access token for it".to_owned()))?;
        let bearer = Zeroizing::new(format!("Bearer {access}"));
        // Of Microsoft's Graph the ids of groups are asked for; any other place is one of Core §5.6.2.
        let graph = url.ends_with("/getMemberObjects");
        let body = graph.then(|| ("application/json", r#"{"securityEnabledOnly":false}"#.to_owned()));
        let answer = self.ask(WHAT, url, Some(&bearer), body, ANSWER_BYTES).await?;
        if !answer.status.is_success() {
            return Err(failed(format!("which answered {}", answer.status)));
        }
        let mut members = object(WHAT, url, &answer.body)?;
        let name = if graph { "value" } else { overage.claim.as_str() };
        let values = members.remove(name).ok_or_else(|| failed(format!("whose answer has no {name:?}")))?;
        if members.contains_key("@odata.nextLink")
            || values.as_array().is_some_and(|list| list.len() > MAX_VALUES)
        {
            return Err(failed(format!("which has more than {MAX_VALUES} values, or several pages of them")));
        }
        Ok(values)
    }

    async fn get(
        &self,
        what: &'static str,
        url: &str,
        authorization: Option<&str>,
        limit: usize,
    ) -> Result<Bytes, SsoError> {
        let answer = self.ask(what, url, authorization, None, limit).await?;
        // §4.2: 200, and nothing else of the class.
        if answer.status != http::StatusCode::OK {
            return Err(SsoError::Status { what, url: said(url), status: answer.status });
        }
        Ok(answer.body)
    }

    /// A server that the provider's documents name, and the administrator does not, is asked where it is on the Internet, or the
    /// provider itself is not.
    pub(super) async fn reach(&self, address: &HostPort) -> Reach {
        let issuer = Endpoint::parse(&self.connector.issuer).map(|issuer| issuer.address);
        let Ok(issuer) = issuer else { return Reach::Public };
        if address.host == issuer.host || self.connector.allowed_hosts.contains(address) {
            return Reach::Named;
        }
        match tokio::time::timeout(PATIENCE, addresses(&issuer)).await {
            Ok(Ok(found)) if found.iter().any(|found| is_inside(found.ip())) => Reach::Named,
            _ => Reach::Public,
        }
    }

    async fn ask(
        &self,
        what: &'static str,
        url: &str,
        authorization: Option<&str>,
        body: Option<(&'static str, String)>,
        limit: usize,
    ) -> Result<outgoing::Answer, SsoError> {
        let found = self.address(what, url)?;
        let unreadable = |error: String| SsoError::Unreadable { what, url: said(url), reason: error };
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(found.path.as_str())
            .header(HOST, found.authority())
            .header(USER_AGENT, concat!("sallyport/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json");
        if let Some(authorization) = authorization {
            let mut value =
                HeaderValue::try_from(authorization).map_err(|error| unreadable(error.to_string()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let body = match body {
            Some((kind, body)) => {
                request = request.header(CONTENT_TYPE, kind);
                body
            }
            None => String::new(),
        };
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| unreadable(error.to_string()))?;
        let bounds = Bounds { patience: PATIENCE, body: limit, refusal: REFUSAL_BYTES };
        let reach = self.reach(&found.address).await;
        outgoing::send_within(reach, &found, self.connector.ca_file.as_deref(), request, bounds)
            .await
            .map_err(|source| SsoError::Asked { what, url: said(url), source })
    }
}

/// RFC 6749 §5.2: the error is in the body, where it is one of OAuth.
fn refused(what: &'static str, url: &str, answer: &outgoing::Answer) -> SsoError {
    let members = serde_json::from_slice::<Map<String, Value>>(&answer.body).unwrap_or_default();
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(said);
    match text("error") {
        Some(error) => {
            SsoError::Refused { error, description: text("error_description").unwrap_or_default() }
        }
        None => SsoError::Status { what, url: said(url), status: answer.status },
    }
}
