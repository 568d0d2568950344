//! The provider's side of a login: its documents and keys, which are kept, its token endpoint and its user information.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use sallyport_oidc::{
    Answered, Discovery, Expected, IdToken, KeyCache, KeySet, LogoutToken, MAX_DISCOVERY_BYTES,
    MAX_KEY_SET_BYTES, MAX_VALUES, OidcError, Overage, Provider, discovery_url, overages,
};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::asking::{Asker, FORM, object, refused, said};
use super::claims::{Claims, Renewal, check_class, wanted};
use super::client::{Credential, form, prove};
use super::connector::{Connector, Protocol};
use super::error::SsoError;
use super::github;
use super::settings::endpoint;

/// Most bytes of an answer with tokens, user information or groups.
const ANSWER_BYTES: usize = 256 * 1024;
/// Longest refresh token that is kept, in bytes.
const TOKEN_BYTES: usize = 16 * 1024;
/// What the token endpoint is called in messages.
const TOKENS: &str = "the token endpoint";
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
pub(super) struct Tokens {
    id_token: Option<Zeroizing<String>>,
    access_token: Option<Zeroizing<String>>,
    /// Whether there was an access token, be it of a type that is not used.
    granted: bool,
    pub(super) refresh_token: Option<Zeroizing<String>>,
}

impl Remote {
    /// A provider of which nothing is known yet.
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    fn asker(&self) -> Asker<'_> {
        Asker::new(&self.connector)
    }

    /// Where browsers are sent, and whether its answers name it.
    pub(super) async fn authorization(&self, now: OffsetDateTime) -> Result<(String, bool), SsoError> {
        if let Protocol::GitHub(_) = &self.connector.protocol {
            return Ok((github::authorization_endpoint(&self.connector), false));
        }
        let discovery = self.discovery(now).await?;
        Ok((discovery.authorization_endpoint.clone(), discovery.names_itself))
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
        let document = self.asker().get("the discovery document", &url, None, MAX_DISCOVERY_BYTES).await?;
        let discovery = Discovery::parse(&self.connector.issuer, &document)?;
        let named = [
            ("the authorization endpoint", Some(&discovery.authorization_endpoint)),
            ("the token endpoint", Some(&discovery.token_endpoint)),
            ("the key set", Some(&discovery.jwks_uri)),
            ("the user information", discovery.userinfo_endpoint.as_ref()),
        ];
        for (what, url) in named {
            if let Some(url) = url {
                self.asker().address(what, url)?;
            }
        }
        Ok(discovery)
    }

    async fn fetch_keys(&self, discovery: &Discovery, now: OffsetDateTime) -> Result<KeySet, SsoError> {
        self.kept.lock().keys.begin(now);
        let document = self.asker().get("the key set", &discovery.jwks_uri, None, MAX_KEY_SET_BYTES).await?;
        let keys = KeySet::parse(&document)?;
        self.kept.lock().keys.keep(keys.clone(), now);
        Ok(keys)
    }

    /// The keys, fetched where they are old. While the provider is away, those that are kept are good for a time.
    async fn keys(&self, discovery: &Discovery, now: OffsetDateTime) -> Result<KeySet, SsoError> {
        let kept = |kept: &Kept| (kept.keys.is_due(now), kept.keys.keys(now).cloned());
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
            // It was asked a moment ago, and strangers can have it asked.
            (false, None) => {
                let resting = SsoError::Resting { problem: "the key set could not be fetched".to_owned() };
                Err(match self.kept.lock().keys.fetched() {
                    Some(fetched) => SsoError::StaleKeys { fetched, source: Box::new(resting) },
                    None => resting,
                })
            }
            (true, None) => {
                let before = self.kept.lock().keys.fetched();
                self.fetch_keys(discovery, now).await.map_err(|error| match before {
                    Some(fetched) => SsoError::StaleKeys { fetched, source: Box::new(error) },
                    None => error,
                })
            }
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

    /// Whether the provider says when a person has signed in: by its own documents, or where the connector asks for `max_age`.
    pub(super) async fn says_when(&self, now: OffsetDateTime) -> Result<bool, SsoError> {
        match self.connector.protocol {
            Protocol::OpenIdConnect => {
                Ok(self.connector.max_age.is_some() || self.discovery(now).await?.says_when)
            }
            Protocol::GitHub(_) | Protocol::GitLab => Ok(false),
        }
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
        if let Protocol::GitHub(github) = &self.connector.protocol {
            let hub = github::Hub::new(&self.connector, github, credential)?;
            return hub.claims(code, &answered.verifier, redirect_url).await;
        }
        let discovery = self.discovery(now).await?;
        let members = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", answered.verifier.as_str()),
        ];
        let tokens = self.tokens(&discovery, &members, credential, now).await?;
        let Some(id_token) = &tokens.id_token else {
            let reason =
                "it has no id_token: the client has to be one of OpenID Connect, and scopes need openid";
            let url = said(&discovery.token_endpoint);
            return Err(SsoError::Unreadable { what: TOKENS, url, reason: reason.to_owned() });
        };
        let expected = Expected { nonce: &answered.nonce, max_age: self.connector.max_age };
        let IdToken { identity, claims, .. } =
            self.verified(now, |provider, keys| provider.verify(id_token, keys, expected, now)).await?;
        let mut claims = Claims {
            identity,
            token: claims,
            userinfo: None,
            fetched: Map::new(),
            groups: None,
            renewal: None,
        };
        check_class(&self.connector, &claims)?;
        // What is asked again later is asked now, too, so that it is known what is no longer said.
        let everything = everything || self.connector.refresh.is_some();
        if let (Some(url), Some(access)) = (&discovery.userinfo_endpoint, &tokens.access_token)
            && (everything || wanted(&self.connector).iter().any(|claim| !claims.has(claim)))
        {
            claims.userinfo = Some(self.userinfo(url, access, &claims.identity.subject).await?);
        }
        self.fetch_elsewhere(&mut claims, tokens.access_token.as_ref().map(|token| token.as_str())).await?;
        if self.connector.refresh.is_some() {
            let refresh_token = tokens.refresh_token.ok_or(SsoError::NoRefreshToken)?;
            claims.renewal = Some(Renewal { refresh_token, nonce: answered.nonce.clone() });
        }
        Ok(claims)
    }

    /// Asks the provider whether a login by it stands (RFC 6749 §6). The token in the answer takes the place of the one that was
    /// shown, which may be worth nothing from now on.
    pub(super) async fn renew(
        &self,
        renewal: &Renewal,
        credential: &Credential,
        now: OffsetDateTime,
    ) -> Result<Tokens, SsoError> {
        let discovery = self.discovery(now).await?;
        let members = [("grant_type", "refresh_token"), ("refresh_token", renewal.refresh_token.as_str())];
        self.tokens(&discovery, &members, credential, now).await
    }

    /// What the provider says of the person with those tokens. It need say nothing (OpenID Connect Core §12.2): what it said before
    /// stays then.
    pub(super) async fn claims_again(
        &self,
        tokens: &Tokens,
        renewal: &Renewal,
        before: Claims,
        now: OffsetDateTime,
    ) -> Result<Claims, SsoError> {
        let discovery = self.discovery(now).await?;
        // RFC 6749 §5.1. Not looked at before, so that a refresh token beside it is kept all the same.
        if !tokens.granted {
            let (url, reason) = (said(&discovery.token_endpoint), "it has no access_token".to_owned());
            return Err(SsoError::Unreadable { what: TOKENS, url, reason });
        }
        let mut token = None;
        if let Some(id_token) = &tokens.id_token {
            let verify = |provider: &Provider, keys: &KeySet| {
                provider.verify_refreshed(id_token, keys, &renewal.nonce, now)
            };
            let IdToken { identity, claims, .. } = self.verified(now, verify).await?;
            if identity != before.identity {
                let (got, expected) = (said(&identity.subject), before.identity.subject);
                return Err(SsoError::OtherSubject { got, expected });
            }
            token = Some(claims);
        }
        let userinfo = match (&discovery.userinfo_endpoint, &tokens.access_token) {
            (Some(url), Some(access)) => Some(self.userinfo(url, access, &before.identity.subject).await?),
            _ => None,
        };
        let mut claims = before.renewed(token, userinfo);
        self.fetch_elsewhere(&mut claims, tokens.access_token.as_ref().map(|token| token.as_str())).await?;
        Ok(claims)
    }

    /// RFC 6749 §4.1.3 and §6, RFC 7636 §4.5.
    async fn tokens(
        &self,
        discovery: &Discovery,
        members: &[(&'static str, &str)],
        credential: &Credential,
        now: OffsetDateTime,
    ) -> Result<Tokens, SsoError> {
        let url = &discovery.token_endpoint;
        let proof = prove(credential, &self.connector.client_id, discovery, now)?;
        let proofs = proof.form.iter().map(|(name, value)| (*name, value.as_str()));
        let body = form(members.iter().copied().chain(proofs));
        let header = proof.header.as_ref().map(|header| header.as_str());
        let answer = self.asker().ask(TOKENS, url, header, Some((FORM, body)), ANSWER_BYTES).await?;
        if !answer.status.is_success() {
            return Err(refused(TOKENS, url, &answer));
        }
        let members = object(TOKENS, url, &answer.body)?;
        // Some providers refuse with the status 200.
        if members.get("error").is_some_and(|error| !error.is_null()) {
            return Err(refused(TOKENS, url, &answer));
        }
        let text = |name: &str| {
            members.get(name).and_then(Value::as_str).map(|text| Zeroizing::new(text.to_owned()))
        };
        // RFC 6749 §7.1: a token of a type that is not known is not used.
        let bearer = text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        let access_token =
            text("access_token").filter(|token| bearer && token.bytes().all(|byte| byte.is_ascii_graphic()));
        let granted = text("access_token").is_some_and(|token| !token.is_empty());
        let refresh_token = text("refresh_token").filter(|token| (1..=TOKEN_BYTES).contains(&token.len()));
        Ok(Tokens { id_token: text("id_token"), access_token, granted, refresh_token })
    }

    /// Core §5.3: it counts for the subject of the ID token alone.
    async fn userinfo(&self, url: &str, access: &str, subject: &str) -> Result<Map<String, Value>, SsoError> {
        const WHAT: &str = "the user information";
        let bearer = Zeroizing::new(format!("Bearer {access}"));
        let answer = self.asker().ask(WHAT, url, Some(&bearer), None, ANSWER_BYTES).await?;
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
        let looked_at = wanted(&self.connector);
        let elsewhere = overages(&claims.all());
        let missing = elsewhere
            .into_iter()
            .filter(|one| looked_at.contains(one.claim.as_str()) && !claims.has(&one.claim));
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
        let answer = self.asker().ask(WHAT, url, Some(&bearer), body, ANSWER_BYTES).await?;
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Entra ID, with these hosts besides it.
    fn entra(allowed_hosts: &str) -> Remote {
        let document = format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: entra}}\nspec:\n  issuer: https://login.microsoftonline.com/tenant/v2.0\n  \
             client_id: sallyport\n  client_secret_file: /etc/sallyport/entra.secret\n  allowed_hosts: [{allowed_hosts}]\n  mapping: \
             {{roles: [{{claim: groups, value: x, roles: [access]}}]}}\n"
        );
        Remote::new(Connector::parse(&document).unwrap())
    }

    /// Where the groups are fetched from that a token has at this place, as Entra ID writes it for a person with more than 200.
    fn asked(remote: &Remote, endpoint: &str) -> Option<String> {
        let token = json!({
            "_claim_names": { "groups": "src1" },
            "_claim_sources": { "src1": { "endpoint": endpoint } },
        });
        let elsewhere = overages(token.as_object().unwrap());
        assert_eq!((elsewhere.len(), elsewhere[0].claim.as_str()), (1, "groups"));
        remote.allowed(&elsewhere[0])
    }

    #[test]
    fn groups_that_entra_has_at_its_retired_graph_are_asked_for_at_microsoft_graph() {
        let retired =
            "https://graph.windows.net/833ced3d-cb2e-41de-92f1-29e2af035ddc/users/1/getMemberObjects";
        let graph = "https://graph.microsoft.com/v1.0/me/getMemberObjects";
        let allowing = entra("graph.microsoft.com");
        assert_eq!(asked(&allowing, retired).as_deref(), Some(graph));
        // It is Graph that the document has to allow, and the retired server is asked under no setting.
        assert_eq!(asked(&entra(""), retired), None);
        assert_eq!(asked(&entra("graph.windows.net"), retired), None);

        // Another place is asked as the token names it, where the document allows its host.
        let of_graph = "https://graph.microsoft.com/v1.0/users/1/getMemberObjects";
        assert_eq!(asked(&allowing, of_graph).as_deref(), Some(of_graph));
        for foreign in [
            "https://graph.windows.net.attacker.example/users/1/getMemberObjects",
            "https://graph.microsoft.com:8443/v1.0/me/getMemberObjects",
            "http://graph.windows.net/users/1/getMemberObjects",
        ] {
            assert_eq!(asked(&allowing, foreign), None, "{foreign}");
        }
    }
}
