//! Bearer tokens of SCIM clients. Several of a connector are good at a time, so that a client gets the next one before the last one
//! ends.

use std::time::Duration;

use sallyport_access::ResourceName;
use sallyport_audit::Code;
use sallyport_store::{StoreError, Stored, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::provisioning::Provisioning;
use super::records::ScimTokenRecord;
use crate::authority::caller::{Caller, shown};
use crate::authority::records::UserRecord;
use crate::authority::secrets::{TOKEN_NAME, fresh_token, hash_of};
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::{every, storage};

const TOKEN_TTL: Duration = Duration::from_secs(180 * 86_400);
const SHORTEST_TOKEN_TTL: Duration = Duration::from_secs(60);
const LONGEST_TOKEN_TTL: Duration = Duration::from_secs(366 * 86_400);
/// Tokens of one connector at a time.
const MOST_TOKENS: usize = 8;
/// Between the connector's name and the secret; neither has one.
const PARTED: char = ':';

/// What it takes to make or remove a token, in the refusal.
const WRITE: &str = "make or remove tokens of SCIM clients";

fn failed(error: StoreError) -> Status {
    storage(&error)
}

impl Provisioning {
    /// Makes a token for the SCIM client of a connector. With it one says who may log in by the connector, and ends their logins: it
    /// takes every right.
    pub(crate) async fn add_token(
        &self,
        caller: &Caller,
        request: v1::AddScimTokenRequest,
    ) -> Result<v1::AddScimTokenResponse, Status> {
        self.delegation.must_administer(caller, "Provisioning.AddScimToken", WRITE).await?;
        let now = OffsetDateTime::now_utc();
        let connector = ResourceName::new(request.connector.as_str())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        // None is removed, with its tokens, between this and the token.
        let _changing = self.changing.write().await;
        if self.store.get::<ConnectorRecord>(connector.as_str(), now).await.map_err(failed)?.is_none() {
            return Err(Status::not_found(format!(
                "there is no connector {connector}, whose users a SCIM client could provision; write the connector first: sallyport admin \
                 create -f FILE"
            )));
        }
        let ttl = request.ttl.as_ref().and_then(convert::duration_from_proto).unwrap_or(TOKEN_TTL);
        if !(SHORTEST_TOKEN_TTL..=LONGEST_TOKEN_TTL).contains(&ttl) {
            return Err(Status::invalid_argument("a token of a SCIM client lives from 1 minute to 366 days"));
        }
        if self.tokens_of(&connector, now).await?.len() >= MOST_TOKENS {
            return Err(Status::failed_precondition(format!(
                "the connector {connector} has {MOST_TOKENS} tokens: remove those that are not used any more (sallyport admin scim token ls)"
            )));
        }
        let linked =
            |user: &UserRecord| user.link.as_ref().is_some_and(|link| link.connector == connector.as_str());
        if let Some(user) = self.identities.users(linked).first() {
            return Err(Status::failed_precondition(format!(
                "the local user {name} is linked with a person of the connector {connector}, and a SCIM client says of its people alone who may \
                 come; unlink first who is linked with it: sallyport admin users unlink {name}",
                name = user.name
            )));
        }
        let (secret, name, _) = fresh_token()?;
        let token = format!("{connector}{PARTED}{secret}");
        let expires = now + ttl;
        let record = ScimTokenRecord { hash: hash_of(&token), created: now, expires };
        let step = typed::create(&format!("{connector}/{name}"), &record, None).map_err(failed)?;
        self.store.backend().transact(vec![step], now).await.map_err(failed)?;
        let event = caller
            .event(Code::ScimTokenCreated)
            .message(format!("scim_token/{connector}/{name}"))
            .field("connector", connector.to_string())
            .field("name", name.clone())
            .field("ttl_seconds", ttl.as_secs());
        self.journal.record(vec![event]).await?;
        let url = self.base().unwrap_or_default();
        Ok(v1::AddScimTokenResponse { token, name, expires: Some(convert::time_to_proto(expires)), url })
    }

    /// The tokens of all connectors, those that are over, too.
    pub(crate) async fn list_tokens(&self) -> Result<v1::ListScimTokensResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let all = every::<ScimTokenRecord>(&self.store, now).await.map_err(failed)?;
        let tokens = all.into_iter().filter_map(|stored| {
            let (connector, name) = stored.name.split_once('/')?;
            Some(v1::ScimToken {
                connector: connector.to_owned(),
                name: name.to_owned(),
                created: Some(convert::time_to_proto(stored.value.created)),
                expires: Some(convert::time_to_proto(stored.value.expires)),
            })
        });
        Ok(v1::ListScimTokensResponse { tokens: tokens.collect() })
    }

    /// Removes a token: at once no client comes with it. With its last one a connector is not provisioned any more, and every person
    /// whom its mapping gives a role may log in.
    pub(crate) async fn remove_token(
        &self,
        caller: &Caller,
        request: v1::RemoveScimTokenRequest,
    ) -> Result<(), Status> {
        self.delegation.must_administer(caller, "Provisioning.RemoveScimToken", WRITE).await?;
        let now = OffsetDateTime::now_utc();
        let key = format!("{}/{}", shown(&request.connector), shown(&request.name));
        let _changing = self.changing.write().await;
        let stored = self.store.get::<ScimTokenRecord>(&key, now).await.map_err(failed)?;
        let stored = stored.ok_or_else(|| {
            Status::not_found(format!("there is no token {key}; tokens are: sallyport admin scim token ls"))
        })?;
        let step = typed::delete::<ScimTokenRecord>(&key, Some(stored.revision));
        self.store.backend().transact_urgent(vec![step], now).await.map_err(failed)?;
        let event = caller
            .event(Code::ScimTokenDeleted)
            .message(format!("scim_token/{key}"))
            .field("connector", shown(&request.connector))
            .field("name", shown(&request.name));
        self.journal.record_urgent(vec![event]).await
    }

    /// The connector that a token is good for now.
    pub(super) async fn connector_of(
        &self,
        token: &str,
        now: OffsetDateTime,
    ) -> Result<Option<ResourceName>, Status> {
        let Some((connector, secret)) = token.split_once(PARTED) else { return Ok(None) };
        let (Ok(connector), Some(name)) = (ResourceName::new(connector), secret.get(..TOKEN_NAME)) else {
            return Ok(None);
        };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return Ok(None);
        }
        let stored = self.store.get::<ScimTokenRecord>(&format!("{connector}/{name}"), now).await;
        let stored = stored.map_err(failed)?.map(|stored| stored.value);
        let good = |known: &ScimTokenRecord| known.hash == hash_of(token) && now < known.expires;
        if !stored.as_ref().is_some_and(good) {
            return Ok(None);
        }
        let written = self.store.get::<ConnectorRecord>(connector.as_str(), now).await.map_err(failed)?;
        Ok(written.map(|_| connector))
    }

    pub(super) async fn tokens_of(
        &self,
        connector: &ResourceName,
        now: OffsetDateTime,
    ) -> Result<Vec<Stored<ScimTokenRecord>>, Status> {
        self.store.list_below(connector.as_str(), None, MOST_TOKENS, now).await.map_err(failed)
    }
}
