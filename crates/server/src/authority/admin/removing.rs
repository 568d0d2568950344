//! Resources as they are removed, with what has to end with them.

use sallyport_access::{HostId, HostRole, RoleName};
use sallyport_audit::Code;
use sallyport_store::typed;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::Inner;
use crate::authority::caller::Caller;
use crate::authority::hosts::{shown, storage};
use crate::authority::people::Ended;
use crate::authority::state::{
    HostRecord, LockRecord, NodeRecord, RoleRecord, SessionPolicyRecord, TokenRecord, UserRecord,
};
use crate::authority::view::PAGE;

impl Inner {
    pub(super) async fn delete(&self, caller: &Caller, kind: &str, name: &str) -> Result<(), Status> {
        match kind {
            "db" => return self.delete_database(caller, name).await,
            "user" => return self.delete_user(caller, name).await,
            "node" => return self.delete_node(caller, name).await,
            _ => {}
        }
        // Nobody gets a role that is on its way out.
        let _changing = match kind {
            "role" => Some(self.people.changing.write().await),
            _ => None,
        };
        let now = OffsetDateTime::now_utc();
        if !self.exists(kind, name, now).await? {
            return Err(Status::not_found(format!("there is no {kind} {}", shown(name))));
        }
        let (code, steps) = match kind {
            "role" => {
                if let Ok(role) = RoleName::new(name) {
                    self.must_hold_role(caller, "Admin.DeleteResource", &role, None).await?;
                }
                self.check_unused(name, now).await?;
                (Code::RoleDeleted, vec![typed::delete::<RoleRecord>(name, None)])
            }
            "lock" => (Code::LockDeleted, vec![typed::delete::<LockRecord>(name, None)]),
            "session_policy" => {
                (Code::SessionPolicyDeleted, vec![typed::delete::<SessionPolicyRecord>(name, None)])
            }
            "token" => (Code::TokenDeleted, vec![typed::delete::<TokenRecord>(name, None)]),
            _ => return Err(Status::internal("users, nodes and databases are removed elsewhere")),
        };
        self.store.backend().transact_urgent(steps, now).await.map_err(|error| storage(&error))?;
        self.refresh_after(kind).await?;
        let event = self.event(code, caller).message(format!("{kind}/{name}")).field("name", name);
        self.record_urgent(vec![event]).await
    }

    /// The id of the one node, or else the one proxy, that a name or id means.
    fn one_host(&self, text: &str) -> Result<String, Status> {
        match self.names.find(text, Some(HostRole::Proxy)).as_slice() {
            [one] if self.presence.find(text).is_empty() => Ok(one.id.to_string()),
            _ => self.one_node(text),
        }
    }

    /// Removes a node, or a proxy. It is locked until its last certificate is over, which ends its sessions and its connections.
    async fn delete_node(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let text = self.one_host(name)?;
        let id: HostId = text.parse().map_err(|_| Status::internal("the id of a node is none"))?;
        let known = self.names.find(&text, None).pop();
        let shown_name = known.map_or(text.clone(), |host| host.name.to_string());
        let mut steps = Vec::new();
        if self.exists("node", &text, now).await? {
            steps.push(typed::delete::<NodeRecord>(&text, None));
        }
        let host = self.store.get::<HostRecord>(&text, now).await.map_err(|error| storage(&error))?;
        let mut ended = Ended::default();
        let at = steps.len();
        if host.is_some() {
            steps.push(typed::delete::<HostRecord>(&text, None));
            ended = self.end_host(caller, id, now)?;
            steps.extend(std::mem::take(&mut ended.steps));
        }
        let done = self.store.backend().transact_urgent(steps, now).await;
        let revisions = done.map_err(|error| storage(&error))?;
        if host.is_some() {
            self.people.remove_host(id, revisions.get(at).copied().unwrap_or_default());
        }
        self.presence.remove(id);
        self.refresh_after("lock").await?;
        // From here on another host may have its names.
        self.names.release(id);
        self.confirmations.look_again();
        let event = self
            .event(Code::NodeDeleted, caller)
            .message(format!("node/{shown_name}"))
            .field("name", shown_name)
            .field("host_id", text);
        ended.events.insert(0, event);
        self.record_urgent(ended.events).await?;
        self.forget_reporter(&caller.name(), id, now).await
    }

    async fn check_unused(&self, role: &str, now: OffsetDateTime) -> Result<(), Status> {
        let mut after: Option<String> = None;
        let mut holders = Vec::new();
        loop {
            let page = self
                .store
                .list::<UserRecord>(after.as_deref(), PAGE, now)
                .await
                .map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            let of = page.iter().filter(|user| user.value.roles.iter().any(|held| held.as_str() == role));
            holders.extend(of.map(|user| user.name.clone()));
        }
        if holders.is_empty() {
            return Ok(());
        }
        let more = holders.len().saturating_sub(10);
        holders.truncate(10);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Status::failed_precondition(format!(
            "role {role} is held by {}{tail}; take it from them first: sallyport admin edit user/NAME",
            holders.join(", ")
        )))
    }
}
