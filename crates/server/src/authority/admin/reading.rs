//! Resources as they are read: one, or a page of them.

use sallyport_store::StoreError;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::Inner;
use crate::authority::databases::DatabaseRecord;
use crate::authority::hosts::{shown, storage};
use crate::authority::resources;
use crate::authority::state::{
    LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord, TokenRecord, UserRecord,
};

/// Resources in one answer.
const RESOURCES: usize = 1000;

impl Inner {
    pub(super) async fn resource(&self, kind: &str, name: &str) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let missing = || Status::not_found(format!("there is no {kind} {}", shown(name)));
        let failed = |error: StoreError| storage(&error);
        match kind {
            "role" => {
                let found =
                    self.store.get::<RoleRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resources::of(kind, name, found.revision, found.expires, found.value.yaml))
            }
            "lock" => {
                let found =
                    self.store.get::<LockRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resources::of(kind, name, found.revision, found.expires, found.value.yaml))
            }
            "session_policy" => {
                let found = self.store.get::<SessionPolicyRecord>(name, now).await.map_err(failed)?;
                let found = found.ok_or_else(missing)?;
                Ok(resources::of(kind, name, found.revision, None, found.value.yaml))
            }
            "user" => {
                let found =
                    self.store.get::<UserRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resources::of(kind, name, found.revision, None, resources::user_yaml(&found.value)))
            }
            "token" => {
                let found =
                    self.store.get::<TokenRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                let yaml = resources::token_yaml(name, &found.value);
                Ok(resources::of(kind, name, found.revision, Some(found.value.expires), yaml))
            }
            "db" => {
                let found =
                    self.store.get::<DatabaseRecord>(name, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resources::of(kind, name, found.revision, None, found.value.yaml))
            }
            _ => {
                let node = self.one_node(name)?;
                let found =
                    self.store.get::<NodeRecord>(&node, now).await.map_err(failed)?.ok_or_else(missing)?;
                Ok(resources::of(
                    kind,
                    found.value.name.as_str(),
                    found.revision,
                    None,
                    resources::node_yaml(&found.value),
                ))
            }
        }
    }

    /// The id of the one node that a name or id means.
    pub(super) fn one_node(&self, text: &str) -> Result<String, Status> {
        match self.presence.find(text).as_slice() {
            [] => Err(Status::not_found(format!("there is no node {}", shown(text)))),
            [one] => Ok(one.node.id.to_string()),
            several => {
                let ids: Vec<String> = several.iter().map(|known| known.node.id.to_string()).collect();
                Err(Status::failed_precondition(format!(
                    "several nodes are called {}; use an id: {}",
                    shown(text),
                    ids.join(", ")
                )))
            }
        }
    }

    pub(super) async fn resources(
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
        let mut listed: Vec<(String, v1::Resource)> = Vec::new();
        match kind {
            "role" => {
                for one in self.store.list::<RoleRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resources::of(kind, &one.name, one.revision, one.expires, one.value.yaml);
                    listed.push((one.name, resource));
                }
            }
            "lock" => {
                for one in self.store.list::<LockRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resources::of(kind, &one.name, one.revision, one.expires, one.value.yaml);
                    listed.push((one.name, resource));
                }
            }
            "session_policy" => {
                let stored =
                    self.store.list::<SessionPolicyRecord>(after, limit, now).await.map_err(failed)?;
                for one in stored {
                    let resource = resources::of(kind, &one.name, one.revision, None, one.value.yaml);
                    listed.push((one.name, resource));
                }
            }
            "user" => {
                for one in self.store.list::<UserRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = resources::user_yaml(&one.value);
                    listed.push((one.name.clone(), resources::of(kind, &one.name, one.revision, None, yaml)));
                }
            }
            "token" => {
                for one in self.store.list::<TokenRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = resources::token_yaml(&one.name, &one.value);
                    let resource =
                        resources::of(kind, &one.name, one.revision, Some(one.value.expires), yaml);
                    listed.push((one.name, resource));
                }
            }
            "db" => {
                for one in self.store.list::<DatabaseRecord>(after, limit, now).await.map_err(failed)? {
                    let resource = resources::of(kind, &one.name, one.revision, None, one.value.yaml);
                    listed.push((one.name, resource));
                }
            }
            _ => {
                for one in self.store.list::<NodeRecord>(after, limit, now).await.map_err(failed)? {
                    let yaml = resources::node_yaml(&one.value);
                    let resource = resources::of(kind, one.value.name.as_str(), one.revision, None, yaml);
                    listed.push((one.name, resource));
                }
            }
        }
        let next = if listed.len() == limit {
            listed.last().map(|(key, _)| key.clone()).unwrap_or_default()
        } else {
            String::new()
        };
        Ok(v1::ListResourcesResponse {
            resources: listed.into_iter().map(|(_, resource)| resource).collect(),
            next,
        })
    }
}
