//! What nodes say of themselves with their heartbeats.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_access::{
    Database, DatabaseName, HostId, Identity, Kind, Labels, Listed, NodeName, Principal, labels, text,
};
use sallyport_store::Store;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::catalogue::kept::Kept as _;
use crate::authority::catalogue::register::{Catalogue, DatabaseRegister};
use crate::authority::catalogue::reports::Said;
use crate::authority::catalogue::table::SaidHealth;
use crate::authority::hosts::registry::HostRegistry;
use crate::authority::records::{HostRecord, NodeRecord};
use crate::authority::storage::storage;

/// Labels of a node, and the length of one.
const MOST_LABELS: usize = 128;

const LONGEST_LABEL: usize = 1024;

/// Takes what nodes say of themselves.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    store: Store,
    registry: Arc<HostRegistry>,
    databases: Arc<DatabaseRegister>,
    catalogue: Arc<Catalogue>,
}

/// What a heartbeat says of databases.
fn databases_of(request: &mut v1::HeartbeatRequest) -> (Vec<Said>, Vec<SaidHealth<Database>>) {
    let document = Kind::Database.row().document;
    let reports = std::mem::take(&mut request.databases).into_iter();
    let health = std::mem::take(&mut request.database_health).into_iter();
    let health = health.filter_map(|said| {
        let id = DatabaseName::new(said.name).ok()?;
        Some(SaidHealth { id, healthy: said.healthy, problem: said.problem })
    });
    (reports.map(|one| Said { document: document.to_owned(), yaml: one.yaml }).collect(), health.collect())
}

/// What it says of the catalogue.
fn resources_of(request: &mut v1::HeartbeatRequest) -> (Vec<Said>, Vec<SaidHealth<Listed>>) {
    let reports = std::mem::take(&mut request.resources).into_iter();
    let health = std::mem::take(&mut request.resource_health).into_iter();
    let health = health.filter_map(|said| {
        let id = Listed::id_of(Kind::of_document(&said.kind)?, &said.name)?;
        Some(SaidHealth { id, healthy: said.healthy, problem: said.problem })
    });
    (reports.map(|one| Said { document: one.kind, yaml: one.yaml }).collect(), health.collect())
}

/// The kinds of the catalogue that an agent says it can serve: those that are known here.
fn known_kinds(mut kinds: Vec<String>) -> Vec<String> {
    kinds.retain(|kind| Kind::of_document(kind).is_some_and(Kind::is_listed));
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

impl Heartbeats {
    pub(crate) fn new(
        store: &Store,
        registry: &Arc<HostRegistry>,
        databases: &Arc<DatabaseRegister>,
        catalogue: &Arc<Catalogue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            registry: Arc::clone(registry),
            databases: Arc::clone(databases),
            catalogue: Arc::clone(catalogue),
        })
    }

    /// Takes what a node says of itself; gives what of it cannot be.
    pub(crate) async fn heartbeat(
        &self,
        identity: &Identity,
        mut request: v1::HeartbeatRequest,
    ) -> Result<Vec<String>, Status> {
        let Principal::Host { id, name, .. } = &identity.principal else {
            return Err(Status::permission_denied("only nodes have a heartbeat"));
        };
        let now = OffsetDateTime::now_utc();
        let databases = databases_of(&mut request);
        let (resources, health) = resources_of(&mut request);
        let mut problems = self.describe(*id, name, request, now).await?;
        let (reports, of_databases) = databases;
        problems.extend(self.databases.report(identity, (*id, name), reports, of_databases, now).await?);
        problems.extend(self.catalogue.report(identity, (*id, name), resources, health, now).await?);
        Ok(problems)
    }

    /// Takes a node's description; gives what of it its join token does not allow.
    async fn describe(
        &self,
        id: HostId,
        name: &NodeName,
        request: v1::HeartbeatRequest,
        now: OffsetDateTime,
    ) -> Result<Vec<String>, Status> {
        if request.labels.len() > MOST_LABELS
            || request.labels.iter().any(|(key, value)| key.len() + value.len() > LONGEST_LABEL)
        {
            return Err(Status::invalid_argument(format!(
                "at most {MOST_LABELS} labels of {LONGEST_LABEL} bytes are allowed"
            )));
        }
        for (key, value) in &request.labels {
            labels::check(key, value)
                .map_err(|error| Status::invalid_argument(format!("the label {:?}: {error}", shown(key))))?;
        }
        for (what, said) in [("the version", &request.version), ("the OS user", &request.os_user)] {
            text::check(what, said).map_err(|hidden| Status::invalid_argument(hidden.to_string()))?;
        }
        let databases_end_to_end = request.databases_end_to_end;
        let kinds = known_kinds(request.kinds);
        let mut own: BTreeMap<String, String> = request.labels.into_iter().collect();
        let bounds = self.registry.names.bounds(id);
        let mut problems = Vec::new();
        own.retain(|key, value| {
            let allowed = bounds.allow_label(key, value);
            if !allowed {
                problems.push(format!(
                    "the label {key}={value} is not one that this node's join token lets it set"
                ));
            }
            allowed
        });
        let version: String = request.version.chars().take(64).collect();
        let os_user: String = request.os_user.chars().take(64).collect();
        let known = self.registry.presence.seen(id, now);
        // The database is asked only when something changed. Labels of the token win over what the node says.
        let fixed = match &known {
            Some(known) => known.fixed.clone(),
            None => {
                let host = self
                    .store
                    .get::<HostRecord>(&id.to_string(), now)
                    .await
                    .map_err(|error| storage(&error))?;
                let host = host.ok_or_else(|| {
                    Status::permission_denied(
                        "this node was removed from the cluster; join again with a new token",
                    )
                })?;
                host.value.labels
            }
        };
        own.extend(fixed.clone());
        let labels: Labels = own.into_iter().collect();
        if known.is_some_and(|known| {
            known.node.labels == labels
                && known.version == version
                && known.os_user == os_user
                && known.databases_end_to_end == databases_end_to_end
                && known.kinds == kinds
        }) {
            return Ok(problems);
        }
        let name = name.clone();
        let openssh = None;
        let record =
            NodeRecord { id, name, labels, version, os_user, fixed, openssh, databases_end_to_end, kinds };
        self.store.put(&id.to_string(), &record, None, now).await.map_err(|error| storage(&error))?;
        self.registry.presence.put(record);
        self.registry.presence.seen(id, now);
        Ok(problems)
    }
}
