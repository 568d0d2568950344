//! What is kept to ask a provider again: sealed, with what it said last.

use data_encoding::BASE64;
use sallyport_oidc::Identity;
use sallyport_store::{Op, typed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::claims::{Claims, Renewal, wanted};
use super::connector::{Connector, Refresh};
use super::connectors::Connectors;
use crate::authority::identities::grants::GrantRecord;
use crate::authority::storage::storage;
use sallyport_sal::random;

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct Grant {
    issuer: String,
    subject: String,
    refresh_token: String,
    nonce: String,
    token: Map<String, Value>,
    userinfo: Option<Map<String, Value>>,
    fetched: Map<String, Value>,
}

/// Claims that say where others are (OpenID Connect Core §5.6.2).
const ELSEWHERE: [&str; 2] = ["_claim_names", "_claim_sources"];

fn label(id: Uuid) -> String {
    format!("sso_grant/{id}")
}

/// When a login is asked about next: at the interval, a tenth earlier or later, so that logins of one morning do not stay together.
pub(super) fn next(refresh: Refresh, now: OffsetDateTime) -> OffsetDateTime {
    let whole = refresh.interval.as_millis();
    let drawn = random::bytes::<4>().map_or(0, |bytes| u128::from(u32::from_le_bytes(bytes)));
    let millis = whole - whole / 10 + (whole / 5) * drawn / u128::from(u32::MAX);
    now + time::Duration::milliseconds(i64::try_from(millis).unwrap_or(i64::MAX))
}

impl Connectors {
    fn grant_sealed(
        &self,
        connector: &Connector,
        id: Uuid,
        claims: &Claims,
        renewal: &Renewal,
    ) -> Result<String, Status> {
        // No more of the person than what rules look at.
        let looked_at = wanted(connector);
        let kept = |part: &Map<String, Value>| -> Map<String, Value> {
            let is_kept = |claim: &str| looked_at.contains(claim) || ELSEWHERE.contains(&claim);
            part.iter()
                .filter(|(claim, _)| is_kept(claim))
                .map(|(claim, value)| (claim.clone(), value.clone()))
                .collect()
        };
        let grant = Grant {
            issuer: claims.identity.issuer.clone(),
            subject: claims.identity.subject.clone(),
            refresh_token: renewal.refresh_token.to_string(),
            nonce: renewal.nonce.clone(),
            token: kept(&claims.token),
            userinfo: claims.userinfo.as_ref().map(kept),
            fetched: kept(&claims.fetched),
        };
        let json = serde_json::to_vec(&grant).map(Zeroizing::new);
        drop(Zeroizing::new(grant.refresh_token));
        let json = json.map_err(|error| Status::internal(error.to_string()))?;
        let sealed =
            self.seal.seal(&label(id), &json).map_err(|error| Status::internal(error.to_string()))?;
        Ok(BASE64.encode(&sealed))
    }

    /// The step that keeps what a proven challenge brought, until its login is open or cannot be any more.
    pub(super) fn grant_of(
        &self,
        connector: &Connector,
        challenge: &str,
        claims: &Claims,
        until: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<Option<Op>, Status> {
        let (Some(renewal), Some(refresh)) = (&claims.renewal, connector.refresh) else { return Ok(None) };
        let id = Uuid::new_v4();
        let grant = GrantRecord {
            id,
            connector: connector.name.to_string(),
            sealed: self.grant_sealed(connector, id, claims, renewal)?,
            first: next(refresh, now),
        };
        typed::put(challenge, &grant, Some(until)).map(Some).map_err(|error| storage(&error))
    }

    /// The record with another token, and with what the provider said.
    pub(super) fn grant_again(
        &self,
        connector: &Connector,
        before: &GrantRecord,
        claims: &Claims,
        renewal: &Renewal,
    ) -> Result<GrantRecord, Status> {
        Ok(GrantRecord {
            sealed: self.grant_sealed(connector, before.id, claims, renewal)?,
            ..before.clone()
        })
    }

    /// What a record keeps. None where it cannot be read: another key sealed it, or it was changed.
    pub(super) fn grant_opened(&self, record: &GrantRecord) -> Option<(Claims, Renewal)> {
        let sealed = BASE64.decode(record.sealed.as_bytes()).ok()?;
        let json = self.seal.unseal(&label(record.id), &sealed).ok()?;
        let grant: Grant = serde_json::from_slice(&json).ok()?;
        let renewal = Renewal { refresh_token: Zeroizing::new(grant.refresh_token), nonce: grant.nonce };
        let claims = Claims {
            identity: Identity { issuer: grant.issuer, subject: grant.subject },
            token: grant.token,
            userinfo: grant.userinfo,
            fetched: grant.fetched,
            groups: None,
            renewal: None,
        };
        Some((claims, renewal))
    }
}
