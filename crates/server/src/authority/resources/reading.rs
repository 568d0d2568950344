//! Resources as they are read: one, or a page of them.

use sallyport_access::Kind;
use sallyport_store::StoreError;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::shown;
use crate::authority::catalogue::kept::{DatabaseRecord, ListedRecord};
use crate::authority::records::{
    LockRecord, LoginRuleRecord, NodeRecord, RoleRecord, SessionPolicyRecord, TokenRecord, UserRecord,
};
use crate::authority::resources::documents::{node_yaml, resource, token_yaml, user_yaml};
use crate::authority::resources::writing::Resources;
use crate::authority::sso::connector::KINDS as CONNECTORS;
use crate::authority::sso::records::ConnectorRecord;
use crate::authority::storage::{every, storage};

fn is_listed(kind: &str) -> bool {
    Kind::of_document(kind).is_some_and(Kind::is_listed)
}

/// A kind that the API knows, and that nothing here reads. It must not be read as another.
fn unread(kind: &str) -> Status {
    Status::internal(format!("resources of the kind {kind} are not read here"))
}

/// Resources in one answer.
const RESOURCES: usize = 1000;

impl Resources {
    pub(crate) async fn get(&self, kind: &str, name: &str) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let missing = || Status::not_found(format!("there is no {kind} {}", shown(name)));
        let failed = |error: StoreError| storage(&error);
        match kind {
            "role" => {
                let found =
                    self.store.get::<RoleRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, found.expires, found.value.yaml))
            }
            "lock" => {
                let found =
                    self.store.get::<LockRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, found.expires, found.value.yaml))
            }
            "login_rule" => {
                let found = self.store.get::<LoginRuleRecord>(name, now).await.map_err(failed)?;
                let found = found.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, None, found.value.yaml))
            }
            "session_policy" => {
                let found = self.store.get::<SessionPolicyRecord>(name, now).await.map_err(failed)?;
                let found = found.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, None, found.value.yaml))
            }
            _ if CONNECTORS.contains(&kind) => {
                let found = self.store.get::<ConnectorRecord>(name, now).await.map_err(failed)?;
                let found = found.filter(|found| found.value.kind() == kind).ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, None, found.value.yaml))
            }
            "user" => {
                let found =
                    self.store.get::<UserRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, found.expires, user_yaml(&found.value)))
            }
            "token" => {
                let found =
                    self.store.get::<TokenRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                let yaml = token_yaml(name, &found.value);
                Ok(resource(kind, name, found.revision, Some(found.value.expires), yaml))
            }
            "db" => {
                let found =
                    self.store.get::<DatabaseRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, None, found.value.yaml))
            }
            _ if is_listed(kind) => {
                let key = format!("{kind}/{name}");
                let found =
                    self.store.get::<ListedRecord>(&key, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, name, found.revision, None, found.value.yaml))
            }
            "node" => {
                let node = self.registry.one_node(name)?;
                let found =
                    self.store.get::<NodeRecord>(&node, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resource(kind, found.value.name.as_str(), found.revision, None, node_yaml(&found.value)))
            }
            _ => Err(unread(kind)),
        }
    }

    pub(crate) async fn list(
        &self,
        kind: &str,
        asked: &v1::ListResourcesRequest,
    ) -> Result<v1::ListResourcesResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let limit = match asked.limit {
            0 => RESOURCES,
            limit => (limit as usize).min(RESOURCES),
        };
        let after = (!asked.after.is_empty()).then_some(asked.after.as_str());
        let failed = |error: StoreError| storage(&error);
        let mut found: Vec<(String, v1::Resource)> = Vec::new();
        match kind {
            "role" => {
                for one in self.store.list::<RoleRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resource(kind, &one.name, one.revision, one.expires, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            "lock" => {
                for one in self.store.list::<LockRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resource(kind, &one.name, one.revision, one.expires, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            "login_rule" => {
                for one in self.store.list::<LoginRuleRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resource(kind, &one.name, one.revision, None, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            "session_policy" => {
                let stored =
                    self.store.list::<SessionPolicyRecord>(after, limit, now).await.map_err(failed)?;
                for one in stored {
                    let resource = resource(kind, &one.name, one.revision, None, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            _ if CONNECTORS.contains(&kind) => {
                // Those of every kind are kept together, and there are few.
                let all = every::<ConnectorRecord>(&self.store, now).await.map_err(failed)?;
                let follows = |name: &str| after.is_none_or(|after| name > after);
                let of_kind = all.into_iter().filter(|one| one.value.kind() == kind && follows(&one.name));
                for one in of_kind.take(limit) {
                    let resource = resource(kind, &one.name, one.revision, None, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            "user" => {
                for one in self.store.list::<UserRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = user_yaml(&one.value);
                    found
                        .push((one.name.clone(), resource(kind, &one.name, one.revision, one.expires, yaml)));
                }
            }
            "token" => {
                for one in self.store.list::<TokenRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = token_yaml(&one.name, &one.value);
                    let resource = resource(kind, &one.name, one.revision, Some(one.value.expires), yaml);
                    found.push((one.name, resource));
                }
            }
            "db" => {
                for one in self.store.list::<DatabaseRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resource(kind, &one.name, one.revision, None, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            _ if is_listed(kind) => {
                for one in
                    self.store.list_below::<ListedRecord>(kind, after, limit, now).await.map_err(failed)?
                {
                    let resource = resource(kind, &one.name, one.revision, None, one.value.yaml);
                    found.push((one.name, resource));
                }
            }
            "node" => {
                for one in self.store.list::<NodeRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = node_yaml(&one.value);
                    let resource = resource(kind, one.value.name.as_str(), one.revision, None, yaml);
                    found.push((one.name, resource));
                }
            }
            _ => return Err(unread(kind)),
        }
        let next = if found.len() == limit {
            found.last().map(|(key, _)| key.clone()).unwrap_or_default()
        } else {
            String::new()
        };
        Ok(v1::ListResourcesResponse {
            resources: found.into_iter().map(|(_, resource)| resource).collect(),
            next,
        })
    }
}
