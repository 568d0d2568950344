//! By what identity providers are asked again whether logins stand: a refresh token a login, sealed, as long as the login is open.

use sallyport_store::{Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::storage::removed;

/// What a provider is asked with, and what it said last, sealed, in base64: of a login that is proven and not open yet under the hash
/// of its challenge's id, of one that is open under the login's id. Written anew with each token, so that it is read when it is used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GrantRecord {
    /// What it was sealed under. It moves with the record.
    pub(crate) id: Uuid,
    pub(crate) connector: String,
    pub(crate) sealed: String,
    /// After which time of the login the provider is asked first.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) first: OffsetDateTime,
}

impl Kind for GrantRecord {
    const KIND: &'static str = "sso_grant";
}

/// When the provider is asked of a login, under the login's id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RefreshRecord {
    pub(crate) user: String,
    pub(crate) connector: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) next: OffsetDateTime,
    /// An authority that asks now keeps others from showing the same token until then.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) asked_until: Option<OffsetDateTime>,
    /// Since when the provider gives no answer.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) failing_since: Option<OffsetDateTime>,
}

impl Kind for RefreshRecord {
    const KIND: &'static str = "sso_refresh";
}

/// The steps that give what a challenge's proof brought to the login that is opened by it. None where it brought nothing.
pub(crate) async fn goes_with(
    store: &Store,
    challenge: &str,
    user: &str,
    login_id: Uuid,
    until: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<Vec<Op>, StoreError> {
    let Some(grant) = store.get::<GrantRecord>(challenge, now).await? else { return Ok(Vec::new()) };
    let name = login_id.to_string();
    let refresh = RefreshRecord {
        user: user.to_owned(),
        connector: grant.value.connector.clone(),
        next: grant.value.first,
        asked_until: None,
        failing_since: None,
    };
    Ok(vec![
        typed::delete::<GrantRecord>(challenge, Some(grant.revision)),
        typed::create(&name, &grant.value, Some(until))?,
        typed::create(&name, &refresh, Some(until))?,
    ])
}

/// The steps that end what is kept for a login, whether there is any or not.
pub(crate) fn ended(login_id: Uuid) -> Result<[Op; 4], StoreError> {
    let name = login_id.to_string();
    let grant = GrantRecord {
        id: login_id,
        connector: String::new(),
        sealed: String::new(),
        first: OffsetDateTime::UNIX_EPOCH,
    };
    let refresh = RefreshRecord {
        user: String::new(),
        connector: String::new(),
        next: OffsetDateTime::UNIX_EPOCH,
        asked_until: None,
        failing_since: None,
    };
    let ([put, gone], [put_refresh, gone_refresh]) = (removed(&name, &grant)?, removed(&name, &refresh)?);
    Ok([put, gone, put_refresh, gone_refresh])
}
