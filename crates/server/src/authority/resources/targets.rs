//! Whether what a lock names is there.

use sallyport_access::LockTarget;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::resources::writing::Resources;

impl Resources {
    /// That what a lock names is there: a lock on a name with a typing error locks no one out. Logins and certificates are not
    /// known here.
    pub(crate) async fn check_target(&self, target: &LockTarget, now: OffsetDateTime) -> Result<(), Status> {
        let there = match target {
            LockTarget::User(user) => self.exists("user", user.as_str(), now).await?,
            LockTarget::Role(role) => self.policy.cache().roles.contains_key(role.as_str()),
            LockTarget::Db(database) => self.databases.find(database.as_str()).is_some(),
            LockTarget::Node(node) => self.registry.is_one_host(node)?,
            LockTarget::Login(_) | LockTarget::LoginId(_) => true,
        };
        if there {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "there is no {target}, so the lock would keep no user and no host out; to lock that name all the same: --force"
        )))
    }
}
