//! Whether what a lock names is there.

use sallyport_access::LockTarget;
use time::OffsetDateTime;
use tonic::Status;

use crate::auth::Inner;
use crate::auth::hosts::storage;
use crate::auth::state::HostRecord;
use crate::auth::view::PAGE;

impl Inner {
    /// That what a lock names is there: a lock on a name with a typing error keeps nobody out. Logins and certificates are not
    /// known here.
    pub(super) async fn check_target(&self, target: &LockTarget, now: OffsetDateTime) -> Result<(), Status> {
        let there = match target {
            LockTarget::User(user) => self.exists("user", user.as_str(), now).await?,
            LockTarget::Role(role) => self.view().roles.contains_key(role.as_str()),
            LockTarget::Db(database) => self.databases.find(database.as_str()).is_some(),
            LockTarget::Node(node) => !self.presence.find(node).is_empty() || self.is_host(node, now).await?,
            LockTarget::Login(_) | LockTarget::LoginId(_) => true,
        };
        if there {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "there is no {target}, so the lock would keep nobody out; to lock it all the same, for whoever comes by that name: --force"
        )))
    }

    /// Whether a host of this name or id has joined.
    async fn is_host(&self, name: &str, now: OffsetDateTime) -> Result<bool, Status> {
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list::<HostRecord>(after.as_deref(), PAGE, now).await;
            let page = page.map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { return Ok(false) };
            after = Some(last.name.clone());
            if page.iter().any(|host| host.value.name.as_str() == name || host.name == name) {
                return Ok(true);
            }
        }
    }
}
