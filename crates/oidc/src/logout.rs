//! What a provider says when a person has logged out there (OpenID Connect Back-Channel Logout 1.0).

use serde_json::Value;
use time::OffsetDateTime;

use crate::error::OidcError;
use crate::keys::KeySet;
use crate::token::{MAX_AGE, Provider, SKEW, date, subject, text};

/// The event that such a token is about (§2.4).
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Longest id of a session and of a token, in bytes.
const MAX_ID_BYTES: usize = 255;

/// A logout token that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutToken {
    /// `sub`: the person whose sessions end; none where only one session does.
    pub subject: Option<String>,
    /// `sid`: the session at the provider.
    pub session: Option<String>,
    /// `jti`: taken once.
    pub id: String,
    /// How long the id has to be remembered: after that the token is too old.
    pub until: OffsetDateTime,
}

impl Provider {
    /// Verifies a logout token (§2.6). It is for its receiver to take each [`LogoutToken::id`] once.
    ///
    /// # Errors
    /// [`OidcError`] with the reason; an ID token is none.
    pub fn verify_logout(
        &self,
        token: &str,
        keys: &KeySet,
        now: OffsetDateTime,
    ) -> Result<LogoutToken, OidcError> {
        let claims = self.authentic(token, keys, &["logout+jwt", "JWT", "JOSE"])?;
        self.check_issuer(&claims)?;
        self.check_audience(&claims)?;
        let issued = date(&claims, "iat")?.ok_or(OidcError::MissingClaim { claim: "iat" })?;
        let ended = date(&claims, "exp")?.ok_or(OidcError::MissingClaim { claim: "exp" })?;
        if now >= ended + SKEW {
            return Err(OidcError::Expired { ended, now });
        }
        if now + SKEW < issued {
            return Err(OidcError::NotYetValid { claim: "iat", from: issued, now });
        }
        if now - issued > MAX_AGE + SKEW {
            return Err(OidcError::TooOld { issued, now });
        }
        let event = claims.get("events").and_then(|events| events.get(EVENT));
        if !event.is_some_and(Value::is_object) {
            return Err(OidcError::NotLogout { reason: "its events do not say that a session has ended" });
        }
        if claims.contains_key("nonce") {
            return Err(OidcError::NotLogout { reason: "it has a nonce, as ID tokens have" });
        }
        let named = |claim| match claims.get(claim) {
            None => Ok(None),
            Some(_) => text(&claims, claim).map(|id| Some(id.to_owned())),
        };
        let subject = match claims.get("sub") {
            None => None,
            Some(_) => Some(subject(&claims)?.to_owned()),
        };
        let session = named("sid")?;
        if subject.is_none() && session.is_none() {
            return Err(OidcError::NotLogout {
                reason: "it names neither a person (sub) nor a session (sid)",
            });
        }
        let id = named("jti")?.ok_or(OidcError::MissingClaim { claim: "jti" })?;
        if [Some(&id), session.as_ref()]
            .into_iter()
            .flatten()
            .any(|id| id.is_empty() || id.len() > MAX_ID_BYTES)
        {
            return Err(OidcError::NotLogout { reason: "an id in it is empty or longer than 255 bytes" });
        }
        Ok(LogoutToken { subject, session, id, until: issued + MAX_AGE + 2 * SKEW })
    }
}
