//! Join tokens: who may become a host of the cluster, under which names, and with what to say of itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sallyport_access::labels::{check, check_set};
use sallyport_access::{Bounds, HostRole, Kind};
use sallyport_audit::Code;
use sallyport_store::Store;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, shown};
use crate::authority::gate::delegation::Delegation;
use crate::authority::hosts::names::Claim;
use crate::authority::hosts::registry::{HostRegistry, host_role};
use crate::authority::issuance::in_force::Issuance;
use crate::authority::records::{HostRecord, TokenRecord};
use crate::authority::secrets::{REMEMBERED, fresh_token};
use crate::authority::storage::storage;

const TOKEN_TTL: Duration = Duration::from_secs(3600);
const LONGEST_TOKEN_TTL: Duration = Duration::from_secs(7 * 86_400);
const SHORTEST_TOKEN_TTL: Duration = Duration::from_secs(10);
const MOST_USES: u32 = 10_000;
/// Patterns of one sort in a token.
const MOST_PATTERNS: usize = 64;
/// Longest pattern, in bytes: that of a host name.
const LONGEST_PATTERN: usize = 253;

/// Makes join tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    store: Store,
    journal: Arc<Journal>,
    delegation: Arc<Delegation>,
    issuance: Arc<Issuance>,
    registry: Arc<HostRegistry>,
}

impl Tokens {
    pub(crate) fn new(
        store: &Store,
        journal: &Arc<Journal>,
        delegation: &Arc<Delegation>,
        issuance: &Arc<Issuance>,
        registry: &Arc<HostRegistry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            journal: Arc::clone(journal),
            delegation: Arc::clone(delegation),
            issuance: Arc::clone(issuance),
            registry: Arc::clone(registry),
        })
    }

    pub(crate) async fn create_token(
        &self,
        caller: &Caller,
        request: v1::CreateTokenRequest,
    ) -> Result<v1::CreateTokenResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let bad = |problem: String| Status::invalid_argument(problem);
        let role = host_role(&request.role).ok_or_else(|| {
            bad(format!(
                "{:?} is not a role of a host; expected node, proxy or openssh",
                shown(&request.role)
            ))
        })?;
        let ttl = request.ttl.as_ref().and_then(convert::duration_from_proto).unwrap_or(TOKEN_TTL);
        if !(SHORTEST_TOKEN_TTL..=LONGEST_TOKEN_TTL).contains(&ttl) {
            return Err(bad("a token lives from 10 s to 7 days".to_owned()));
        }
        let uses = request.uses.max(1);
        if uses > MOST_USES {
            return Err(bad(format!("a token has at most {MOST_USES} uses")));
        }
        if !matches!(role, HostRole::Node | HostRole::OpenSsh) && !request.labels.is_empty() {
            return Err(bad("only nodes and OpenSSH servers have labels".to_owned()));
        }
        self.delegation.must_hold_host(caller, "Admin.CreateToken", role).await?;
        let expires = now + ttl;
        let mut bounds = bounds(role, &request)?;
        let mut labels: BTreeMap<String, String> = request.labels.into_iter().collect();
        for (key, value) in &labels {
            check_set(key, value).map_err(|error| bad(format!("the label {:?}: {error}", shown(key))))?;
        }
        let replaced = match request.replace.as_str() {
            "" => None,
            _ if uses > 1 => {
                return Err(bad("a token that replaces a host has one use".to_owned()));
            }
            text => Some(self.to_be_replaced(role, text)?),
        };
        // A registered server keeps its labels by itself.
        if let Some(host) = replaced.as_ref().filter(|_| role == HostRole::Node) {
            self.inherit(host, &mut labels, &mut bounds, now).await?;
        }
        let (text, name, hash) = fresh_token()?;
        let record = TokenRecord {
            hash,
            role,
            uses_left: uses,
            labels,
            expires,
            bounds,
            replaces: replaced.as_ref().map(|host| host.id),
        };
        self.store
            .create(&name, &record, Some(expires + REMEMBERED), now)
            .await
            .map_err(|error| storage(&error))?;
        let mut event = caller
            .event(Code::TokenCreated)
            .message(format!("token/{name}"))
            .field("name", name)
            .field("role", role.name())
            .field("uses", uses)
            .field("ttl_seconds", ttl.as_secs());
        if !record.labels.is_empty() {
            event = event.field("labels", pairs(&record.labels));
        }
        if let Some(own) = &record.bounds.labels {
            event = event.field("own_labels", pairs(own));
        }
        if !record.bounds.names.is_empty() {
            event = event.field("names", record.bounds.names);
        }
        if !record.bounds.databases.is_empty() {
            event = event.field("databases", record.bounds.databases);
        }
        if !record.bounds.resources.is_empty() {
            event = event.field("resources", record.bounds.resources);
        }
        if let Some(replaced) = replaced {
            event = event
                .field("replaces", replaced.name.to_string())
                .field("replaced_host_id", replaced.id.to_string());
        }
        self.journal.record(vec![event]).await?;
        Ok(v1::CreateTokenResponse {
            token: text,
            // While one host CA replaces the other, a host that joins may meet either.
            ca_pin: self.issuance.authorities().trust().pins().join(","),
            expires: Some(convert::time_to_proto(expires)),
        })
    }

    /// What the replaced host's own token gave it, where the new one says nothing of it: without its labels the new host would be
    /// under other roles than the old one, deny rules among them.
    async fn inherit(
        &self,
        replaced: &Claim,
        labels: &mut BTreeMap<String, String>,
        bounds: &mut Bounds,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let stored = self.store.get::<HostRecord>(&replaced.id.to_string(), now).await;
        let Some(host) = stored.map_err(|error| storage(&error))?.map(|stored| stored.value) else {
            return Ok(());
        };
        // What runs in the authority's own process had no token, and no bounds.
        if host.in_process {
            return Ok(());
        }
        if labels.is_empty() {
            *labels = host.labels;
        }
        if bounds.labels.is_none() {
            bounds.labels = host.bounds.labels;
        }
        if bounds.databases.is_empty() {
            bounds.databases = host.bounds.databases;
        }
        if bounds.resources.is_empty() {
            bounds.resources = host.bounds.resources;
        }
        Ok(())
    }

    /// The host that a token is to replace.
    fn to_be_replaced(&self, role: HostRole, text: &str) -> Result<Claim, Status> {
        let mut found = self.registry.names.find(text, Some(role));
        match (found.pop(), found.as_slice()) {
            (Some(one), []) => Ok(one),
            (Some(one), others) => {
                let ids: Vec<String> =
                    others.iter().chain([&one]).map(|claim| claim.id.to_string()).collect();
                Err(Status::failed_precondition(format!(
                    "several hosts are called {}; write the id of the one that is to be replaced: {}",
                    shown(text),
                    ids.join(", ")
                )))
            }
            (None, _) => Err(Status::not_found(format!(
                "there is no {} {} to be replaced; a host of a new name needs a token without --replace",
                role.name(),
                shown(text)
            ))),
        }
    }
}

/// Labels as the log has them: key=value each.
fn pairs(labels: &BTreeMap<String, String>) -> Vec<String> {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// What a token lets hosts be called and say of themselves.
fn bounds(role: HostRole, request: &v1::CreateTokenRequest) -> Result<Bounds, Status> {
    let is_node = role == HostRole::Node;
    let serves = !request.databases.is_empty() || !request.resources.is_empty();
    if !is_node && (request.own_labels_bounded || !request.own_labels.is_empty() || serves) {
        return Err(Status::invalid_argument(
            "only nodes set labels of their own and serve databases and other resources; leave --own-labels, --databases and \
             --resources out",
        ));
    }
    for pattern in &request.resources {
        let kind = pattern.split_once('/').map(|(kind, _)| kind);
        if !kind.and_then(Kind::of_document).is_some_and(Kind::is_listed) {
            let kinds: Vec<&str> = Kind::listed().map(|kind| kind.row().document).collect();
            return Err(Status::invalid_argument(format!(
                "the pattern {:?} of resources does not begin with a kind and a slash; kinds are: {}",
                shown(pattern),
                kinds.join(", ")
            )));
        }
    }
    let labels: BTreeMap<String, String> =
        request.own_labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let names: Vec<String> = request.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let patterns = names.iter().chain(&request.databases).chain(&request.resources).map(String::as_str);
    for (key, value) in
        patterns.map(|pattern| (pattern, "")).chain(labels.iter().map(|(k, v)| (k.as_str(), v.as_str())))
    {
        if key.len() + value.len() > LONGEST_PATTERN {
            return Err(Status::invalid_argument(format!(
                "the pattern {} is longer than {LONGEST_PATTERN} bytes",
                shown(key)
            )));
        }
        check(key, value)
            .map_err(|error| Status::invalid_argument(format!("the pattern {:?}: {error}", shown(key))))?;
    }
    let most = request.databases.len().max(request.resources.len());
    if names.len().max(most).max(labels.len()) > MOST_PATTERNS {
        return Err(Status::invalid_argument(format!(
            "a token has at most {MOST_PATTERNS} patterns of a sort"
        )));
    }
    let bounded = request.own_labels_bounded || !labels.is_empty();
    Ok(Bounds {
        names,
        labels: bounded.then_some(labels),
        databases: request.databases.clone(),
        resources: request.resources.clone(),
    })
}
