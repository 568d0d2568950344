//! One login by a provider: where the browser is sent, and what is made of the answer that it brings back.

use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use sallyport_oidc::Attempt;
use sallyport_sal::{constant_time_eq, random};
use sallyport_store::{Op, StoreError, typed};
use time::OffsetDateTime;
use tonic::Status;

use super::claims::Claims;
use super::client::{Credential, form, secret};
use super::connector::{ClientProof, Connector, Protocol, addressee};
use super::connectors::{Connectors, key_name};
use super::error::SsoError;
use super::failure::{Failure, state};
use super::provider::Remote;
use super::records::{AttemptRecord, Under};
use crate::authority::caller::shown;
use crate::authority::records::KeyRecord;
use crate::authority::secrets::hash_of;
use sallyport_sal::custody::{Custody as _, SealedCustody};

/// How far the provider's clock may be behind this one.
const SKEW: Duration = Duration::from_secs(60);
/// Bytes of what the browser keeps.
const BINDING_BYTES: usize = 16;
/// Longest code, `state` and `iss` that are read of an answer, in bytes.
const ANSWER_BYTES: usize = 4096;

/// What a provider's answer is awaited for.
pub(crate) struct ToProve<'a> {
    pub(crate) challenge: &'a str,
    /// The challenge's end, after which no answer is awaited.
    pub(crate) until: OffsetDateTime,
    /// The document of a connector that is tried, and not stored.
    pub(crate) tested: Option<String>,
    /// Whether the person has to sign in again.
    pub(crate) anew: bool,
}

/// A login that goes to the provider now.
pub(crate) struct Begun {
    /// Where the browser is sent.
    pub(crate) url: String,
    /// What the browser keeps, and shows with the answer.
    pub(crate) binding: String,
    /// Of the login's record, to remove it when another takes its place.
    pub(crate) key: String,
}

/// What a browser brings back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    /// Whose address the browser came back to; empty: that which every connector may have.
    pub(crate) connector: String,
    pub(crate) state: String,
    pub(crate) code: String,
    /// RFC 9207; empty where it is not there.
    pub(crate) iss: String,
    /// RFC 6749 §4.1.2.1; empty in an answer with a code.
    pub(crate) error: String,
    pub(crate) error_description: String,
    pub(crate) binding: String,
}

/// A login whose answer has come, once.
pub(crate) struct Taken {
    /// Of its record.
    pub(crate) key: String,
    pub(crate) challenge: String,
    pub(crate) connector: String,
    /// The document of a connector that is tested.
    pub(crate) tested: Option<String>,
    /// The provider was asked to have the person sign in again.
    pub(crate) anew: bool,
    under: Under,
}

fn label(key: &str) -> String {
    format!("sso_attempt/{key}")
}

impl Connectors {
    /// Begins a login of a challenge: the step that keeps it is the caller's to take, with the challenge's own. `anew`: the provider is
    /// asked to have the person sign in again, whatever session it has with the browser.
    ///
    /// # Errors
    /// The provider's documents cannot be had, there is nowhere to send the browser back to, or the provider's answer could not be told
    /// there from another's.
    pub(crate) async fn begin(
        &self,
        remote: &Remote,
        to_prove: ToProve<'_>,
        origin: &str,
        now: OffsetDateTime,
    ) -> Result<(Begun, Op), Failure> {
        let ToProve { challenge, until, tested, anew } = to_prove;
        let connector = remote.connector();
        let redirect_url = connector.redirect_url(origin, &self.config.public_addr);
        let redirect_url = redirect_url.ok_or(SsoError::NoRedirect)?;
        let (endpoint, names_itself) = remote.authorization(now).await?;
        // RFC 9207 §1: at an address that is not this connector's alone, the answer of another provider would be taken for this one's.
        if addressee(&redirect_url).is_empty() && !names_itself {
            return Err(SsoError::SharedAddress { connector: connector.name.clone() }.into());
        }
        let attempt = Attempt::begin(&connector.issuer, now)?.named(names_itself);
        let binding = random::bytes::<BINDING_BYTES>().map_err(|_| SsoError::NoRandomness)?;
        let binding = BASE64URL_NOPAD.encode(&binding);
        let url = authorization_url(connector, &endpoint, &attempt, &redirect_url, anew);
        let (key, expires) = (hash_of(attempt.state()), attempt.expires().min(until));
        let under = Under {
            challenge: challenge.to_owned(),
            connector: connector.name.to_string(),
            tested,
            anew,
            redirect_url,
            binding: hash_of(&binding),
            attempt,
        };
        let json = serde_json::to_vec(&under)
            .map_err(|error| Failure::State(Status::internal(error.to_string())))?;
        let sealed = self.seal.seal(&label(&key), &json);
        let sealed = sealed.map_err(|error| Failure::State(Status::internal(error.to_string())))?;
        let record = AttemptRecord { sealed: BASE64.encode(&sealed) };
        let step = typed::create(&key, &record, Some(expires)).map_err(|error| state(&error))?;
        Ok((Begun { url, binding, key }, step))
    }

    /// Takes an answer, once: whatever comes of it, the same answer is not awaited again.
    ///
    /// # Errors
    /// [`SsoError::NotAwaited`], [`SsoError::OtherBrowser`] and [`SsoError::OtherAddress`].
    pub(crate) async fn take(&self, answer: &Answer, now: OffsetDateTime) -> Result<Taken, Failure> {
        let parts =
            [&answer.connector, &answer.state, &answer.code, &answer.iss, &answer.error, &answer.binding];
        if answer.state.is_empty() || parts.iter().any(|part| part.len() > ANSWER_BYTES) {
            return Err(SsoError::NotAwaited.into());
        }
        let key = hash_of(&answer.state);
        let stored = self.store.get::<AttemptRecord>(&key, now).await.map_err(|error| state(&error))?;
        let stored = stored.ok_or(SsoError::NotAwaited)?;
        let spent = typed::delete::<AttemptRecord>(&key, Some(stored.revision));
        match self.store.backend().transact(vec![spent], now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {
                return Err(SsoError::NotAwaited.into());
            }
            Err(error) => return Err(state(&error)),
        }
        let damaged =
            || Failure::State(Status::internal("a login by single sign-on cannot be read; start again"));
        let sealed = BASE64.decode(stored.value.sealed.as_bytes()).map_err(|_| damaged())?;
        let json = self.seal.unseal(&label(&key), &sealed).map_err(|_| damaged())?;
        let under: Under = serde_json::from_slice(&json).map_err(|_| damaged())?;
        if !constant_time_eq(hash_of(&answer.binding).as_bytes(), under.binding.as_bytes()) {
            return Err(SsoError::OtherBrowser.into());
        }
        // RFC 9700 §4.4.2: a code that another provider has sent is not shown to this one, nor the other way round.
        if answer.connector != addressee(&under.redirect_url) {
            return Err(SsoError::OtherAddress {
                connector: under.connector,
                expected: under.redirect_url,
                got: shown(&answer.connector),
            }
            .into());
        }
        Ok(Taken {
            key,
            challenge: under.challenge.clone(),
            connector: under.connector.clone(),
            tested: under.tested.clone(),
            anew: under.anew,
            under,
        })
    }

    /// What the provider says of the person, by the answer that was taken. `everything`: also what no rule asks for.
    ///
    /// # Errors
    /// [`SsoError`] with the reason.
    pub(crate) async fn claims(
        &self,
        remote: &Remote,
        taken: Taken,
        answer: &Answer,
        everything: bool,
        now: OffsetDateTime,
    ) -> Result<Claims, Failure> {
        let connector = remote.connector();
        let Under { attempt, redirect_url, anew, .. } = taken.under;
        // The code is not shown to another provider than the one that the browser was sent to.
        if attempt.issuer() != connector.issuer {
            return Err(SsoError::Changed.into());
        }
        let iss = (!answer.iss.is_empty()).then_some(answer.iss.as_str());
        let began = attempt.began();
        let answered = attempt.answer(&answer.state, iss, now)?;
        if !answer.error.is_empty() || answer.code.is_empty() {
            let text = |text: &str| text.chars().filter(|c| !c.is_control()).take(256).collect::<String>();
            let error = if answer.error.is_empty() { "no code".to_owned() } else { text(&answer.error) };
            return Err(SsoError::Refused { error, description: text(&answer.error_description) }.into());
        }
        let credential = self.credential(connector, now).await?;
        // A login rule may look at what the ID token does not have.
        let everything = everything || self.policy.cache().login_rules.reads().is_any();
        let said =
            remote.claims(&answer.code, &answered, &redirect_url, &credential, everything, now).await?;
        if anew {
            let says_when = remote.says_when(now).await?;
            check_anew(&said, began, says_when)?;
        }
        Ok(said)
    }

    /// What the connector proves this cluster with.
    pub(super) async fn credential(
        &self,
        connector: &Connector,
        now: OffsetDateTime,
    ) -> Result<Credential, Failure> {
        match &connector.proof {
            ClientProof::SecretFile(path) => {
                self.check_file("client_secret_file", path)?;
                Ok(Credential::Secret(secret(path, &self.config.apart).await?))
            }
            ClientProof::Key(algorithm) => {
                let name = key_name(&connector.name);
                let stored = self.store.get::<KeyRecord>(&name, now).await.map_err(|error| state(&error))?;
                let stored = stored.filter(|stored| stored.value.0.algorithm == *algorithm);
                let none = || SsoError::NoKey { algorithm: algorithm.jose_name().to_owned() };
                let stored = stored.ok_or_else(none)?;
                let custody = SealedCustody::new(std::sync::Arc::clone(&self.seal));
                Ok(Credential::Key(custody.load(&stored.value.0).map_err(SsoError::Key)?))
            }
        }
    }
}

/// Core §2 and §3.1.2.1: who was asked for `max_age` says when the person has signed in. The question goes through the browser, which may
/// leave it out; so a provider that is known to say it has to. Of one that never does, the answer is all that there is.
fn check_anew(said: &Claims, began: OffsetDateTime, says_when: bool) -> Result<(), SsoError> {
    match said.signed_in_at() {
        Some(at) if at >= began - SKEW => Ok(()),
        None if !says_when => Ok(()),
        at => Err(SsoError::NotAnew { at, began }),
    }
}

/// OpenID Connect Core §3.1.2.1, RFC 7636 §4.3.
fn authorization_url(
    connector: &Connector,
    endpoint: &str,
    attempt: &Attempt,
    redirect_url: &str,
    anew: bool,
) -> String {
    let (scope, classes) = (connector.scopes.join(" "), connector.acr_values.join(" "));
    // GitHub and GitLab have no word for it; a provider that does not know `login` has another `prompt` in its connector.
    let anew = anew && matches!(connector.protocol, Protocol::OpenIdConnect);
    let prompt = connector.prompt.or(anew.then_some("login"));
    let max_age = if anew { Some(Duration::ZERO) } else { connector.max_age };
    let (challenge, max_age) = (attempt.challenge(), max_age.map(|age| age.as_secs().to_string()));
    let mut members = vec![
        ("response_type", "code"),
        ("client_id", connector.client_id.as_str()),
        ("redirect_uri", redirect_url),
        ("scope", scope.as_str()),
        ("state", attempt.state()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    members.push(match &connector.protocol {
        // No account is made on the way: it would be in no team.
        Protocol::GitHub(_) => ("allow_signup", "false"),
        Protocol::OpenIdConnect | Protocol::GitLab => ("nonce", attempt.nonce()),
    });
    members.extend(max_age.as_deref().map(|age| ("max_age", age)));
    members.extend((!classes.is_empty()).then_some(("acr_values", classes.as_str())));
    members.extend(prompt.map(|prompt| ("prompt", prompt)));
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{separator}{}", form(members))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_oidc::Identity;

    use super::*;

    #[test]
    fn who_signed_in_before_they_were_asked_has_not_signed_in_again() {
        let began = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let said = |token: serde_json::Value| Claims {
            identity: Identity { issuer: "https://login.example.com".to_owned(), subject: "1".to_owned() },
            token: token.as_object().unwrap().clone(),
            userinfo: None,
            fetched: serde_json::Map::new(),
            groups: None,
            renewal: None,
        };
        let at = |seconds: i64| said(serde_json::json!({ "auth_time": 1_800_000_000 + seconds }));
        for (claims, says_when, good) in [
            (at(5), true, true),
            // The provider's clock may be a minute behind.
            (at(-60), true, true),
            (at(-61), true, false),
            // A time is believed also where the provider's documents do not announce it.
            (at(-61), false, false),
            // Left out of the question by the browser.
            (said(serde_json::json!({})), true, false),
            (said(serde_json::json!({})), false, true),
            (said(serde_json::json!({ "auth_time": "1800000005" })), true, false),
        ] {
            let checked = check_anew(&claims, began, says_when);
            assert_eq!(checked.is_ok(), good, "{:?} {says_when}", claims.token);
            assert!(checked.err().is_none_or(|error| error.word() == "not_anew"));
        }
    }
}
