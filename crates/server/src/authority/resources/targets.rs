//! Whether what a lock names is there.

use sallyport_access::{LockTarget, Nature};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::devices::records::DeviceRecord;
use crate::authority::resources::writing::Resources;
use crate::authority::storage::storage;

impl Resources {
    /// That what a lock names is there: a lock on a name with a typing error locks no one out. Logins and certificates are not
    /// known here.
    pub(crate) async fn check_target(&self, target: &LockTarget, now: OffsetDateTime) -> Result<(), Status> {
        let there = match target {
            LockTarget::User(user) => self.exists("user", user.as_str(), now).await?,
            LockTarget::Role(role) => self.policy.cache().roles.contains_key(role.as_str()),
            LockTarget::Resource(kind, name) => match kind.row().nature {
                Nature::Node => self.registry.is_one_host(name)?,
                Nature::Database => self.databases.find(name).is_some(),
                Nature::Listed => self.catalogue.one(*kind, name).is_some(),
            },
            LockTarget::Device(id) => {
                let known = self.store.get::<DeviceRecord>(&id.to_string(), now).await;
                known.map_err(|error| storage(&error))?.is_some()
            }
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
