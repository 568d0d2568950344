//! How a host is removed.

use sallyport_access::HostId;
use sallyport_audit::Code;
use sallyport_store::typed;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::hosts::membership::Membership;
use crate::authority::identities::logins::Ended;
use crate::authority::records::{HostRecord, NodeRecord};
use crate::authority::storage::storage;

impl Membership {
    /// Removes a node, or a proxy. It is locked until its last certificate is over, which ends its sessions and its connections.
    pub(crate) async fn delete_node(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let text = self.registry.one_host(name)?;
        let id: HostId = text.parse().map_err(|_| Status::internal("the id of a node is none"))?;
        let known = self.registry.names.find(&text, None).pop();
        let shown_name = known.map_or(text.clone(), |host| host.name.to_string());
        let mut steps = Vec::new();
        if self
            .store
            .backend()
            .get(&typed::key::<NodeRecord>(&text), now)
            .await
            .map_err(|error| storage(&error))?
            .is_some()
        {
            steps.push(typed::delete::<NodeRecord>(&text, None));
        }
        let host = self.store.get::<HostRecord>(&text, now).await.map_err(|error| storage(&error))?;
        let mut ended = Ended::default();
        let at = steps.len();
        if host.is_some() {
            steps.push(typed::delete::<HostRecord>(&text, None));
            ended = self.logins.end_host(caller, id, now)?;
            steps.extend(std::mem::take(&mut ended.steps));
        }
        let done = self.store.backend().transact_urgent(steps, now).await;
        let revisions = done.map_err(|error| storage(&error))?;
        if host.is_some() {
            self.identities.remove_host(id, revisions.get(at).copied().unwrap_or_default());
        }
        self.registry.presence.remove(id);
        self.policy.refresh_after("lock").await?;
        // From here on another host may have its names.
        self.registry.names.release(id);
        self.confirmations.look_again();
        let event = caller
            .event(Code::NodeDeleted)
            .message(format!("node/{shown_name}"))
            .field("name", shown_name)
            .field("host_id", text);
        ended.events.insert(0, event);
        self.journal.record_urgent(ended.events).await?;
        self.databases.forget_reporter(&caller.name(), id, now).await?;
        self.catalogue.forget_reporter(&caller.name(), id, now).await
    }
}
