//! Whether what a lock names is there.

use sallyport_access::LockTarget;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::Inner;
use crate::authority::host_role_name;

impl Inner {
    /// That what a lock names is there: a lock on a name with a typing error keeps nobody out. Logins and certificates are not
    /// known here.
    pub(super) async fn check_target(&self, target: &LockTarget, now: OffsetDateTime) -> Result<(), Status> {
        let there = match target {
            LockTarget::User(user) => self.exists("user", user.as_str(), now).await?,
            LockTarget::Role(role) => self.view().roles.contains_key(role.as_str()),
            LockTarget::Db(database) => self.databases.find(database.as_str()).is_some(),
            LockTarget::Node(node) => self.is_one_host(node)?,
            LockTarget::Login(_) | LockTarget::LoginId(_) => true,
        };
        if there {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "there is no {target}, so the lock would keep nobody out; to lock it all the same, for whoever comes by that name: --force"
        )))
    }

    /// Whether a host of any role has this id, or alone has this registered name: proxies are called by the address that
    /// users reach them by, which several of them have, and a lock by that name would fit them all.
    fn is_one_host(&self, text: &str) -> Result<bool, Status> {
        let found = self.names.find(text, None);
        if found.len() < 2 {
            return Ok(!found.is_empty() || !self.presence.find(text).is_empty());
        }
        let hosts = found.iter().map(|host| format!("\n  {}  {}", host.id, host_role_name(host.role)));
        Err(Status::failed_precondition(format!(
            "{} hosts are called {text}; lock one of them by its id, or all of them and those that will be called so: \
             --force{}",
            found.len(),
            hosts.collect::<String>()
        )))
    }
}
