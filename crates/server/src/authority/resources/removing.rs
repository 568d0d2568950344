//! Resources as they are removed, with what has to end with them.

use sallyport_access::{Kind, Nature, RoleName};
use sallyport_audit::Code;
use sallyport_store::typed;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::{Caller, shown};
use crate::authority::records::{
    LockRecord, LoginRuleRecord, RoleRecord, SessionPolicyRecord, TokenRecord, UserRecord,
};
use crate::authority::resources::writing::Resources;
use crate::authority::sso::connector::KINDS as CONNECTORS;
use crate::authority::storage::{PAGE, storage};

impl Resources {
    pub(crate) async fn delete(&self, caller: &Caller, kind: &str, name: &str) -> Result<(), Status> {
        if let Some(kind) = Kind::of_document(kind) {
            return match kind.row().nature {
                Nature::Node => self.membership.delete_node(caller, name).await,
                Nature::Database => self.databases.delete(caller, kind, name).await,
                Nature::Listed => self.catalogue.delete(caller, kind, name).await,
            };
        }
        if kind == "user" {
            return self.accounts.delete_user(caller, name).await;
        }
        if CONNECTORS.contains(&kind) {
            return self.connectors.delete(caller, kind, name).await;
        }
        // No user gets a role that is being removed.
        let _changing = match kind {
            "role" => Some(self.identities.change().await),
            _ => None,
        };
        let now = OffsetDateTime::now_utc();
        if !self.exists(kind, name, now).await? {
            return Err(Status::not_found(format!("there is no {kind} {}", shown(name))));
        }
        let (code, steps) = match kind {
            "role" => {
                if let Ok(role) = RoleName::new(name) {
                    self.delegation.must_hold_role(caller, "Admin.DeleteResource", &role, None).await?;
                }
                self.check_unused(name, now).await?;
                (Code::RoleDeleted, vec![typed::delete::<RoleRecord>(name, None)])
            }
            "lock" => (Code::LockDeleted, vec![typed::delete::<LockRecord>(name, None)]),
            "login_rule" => (Code::LoginRuleDeleted, vec![typed::delete::<LoginRuleRecord>(name, None)]),
            "session_policy" => {
                (Code::SessionPolicyDeleted, vec![typed::delete::<SessionPolicyRecord>(name, None)])
            }
            "token" => (Code::TokenDeleted, vec![typed::delete::<TokenRecord>(name, None)]),
            _ => {
                return Err(Status::internal(
                    "users and resources that sessions are with are removed elsewhere",
                ));
            }
        };
        self.store.backend().transact_urgent(steps, now).await.map_err(|error| storage(&error))?;
        self.policy.refresh_after(kind).await?;
        let event = caller.event(code).message(format!("{kind}/{name}")).field("name", name);
        self.journal.record_urgent(vec![event]).await
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
