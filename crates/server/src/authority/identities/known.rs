//! Who there is now: users and hosts as the state has them, and the logins that are open.
//!
//! A certificate says what its holder was when it was made. Every check of the authority asks here what they are now:
//! who was removed is refused, and a role counts when the certificate and the state both have it. Proxies and nodes
//! know the certificate alone. So a change of a user's roles, traits or password ends the logins that are open, by a
//! lock on each that lasts as long as its certificates: proxies and nodes hear of it as of every other lock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use sallyport_access::{Device, DeviceCustody, DeviceId, HostId, HostRole, Identity, Principal, UserName};
use sallyport_store::{Change, Store, StoreError, typed};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::error;
use uuid::Uuid;

use crate::authority::caller::{Caller, NOWHERE};
use crate::authority::policy::Policy;
use crate::authority::records::{HostRecord, UserRecord};
use crate::authority::storage::PAGE;

/// How soon it is tried again to follow the state.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// What the answer to "why" was decided with. Open logins have no other roles and traits: a change ends them.
pub(crate) const DECIDED_BY_STATE: &str = "decided with the user's roles and traits in the state, not with a certificate's; \
     a login with others was ended, and proxies and nodes refuse it once they have heard of that";

/// What is known under a key, and since which revision. Nothing: it was deleted by it.
type Entry<T> = (u64, Option<T>);

fn set<K: std::hash::Hash + Eq, V>(
    map: &RwLock<HashMap<K, Entry<V>>>,
    key: K,
    revision: u64,
    value: Option<V>,
) {
    let mut map = map.write();
    // The watch tells later what was set at once.
    if map.get(&key).is_none_or(|(known, _)| *known <= revision) {
        map.insert(key, (revision, value));
    }
}

/// The users and hosts of the cluster.
#[derive(Debug)]
pub(crate) struct Identities {
    store: Store,
    policy: Arc<Policy>,
    users: RwLock<HashMap<UserName, Entry<Arc<UserRecord>>>>,
    hosts: RwLock<HashMap<HostId, Entry<(Uuid, HostRole)>>>,
    /// Read while a login or a credential is made, written while a user, or a role that users hold, changes: neither
    /// goes on with what the other has just made untrue.
    changing: tokio::sync::RwLock<()>,
    stop: CancellationToken,
}

impl Identities {
    fn empty(store: &Store, policy: &Arc<Policy>, stop: &CancellationToken) -> Self {
        Self {
            store: store.clone(),
            policy: Arc::clone(policy),
            users: RwLock::default(),
            hosts: RwLock::default(),
            changing: tokio::sync::RwLock::new(()),
            stop: stop.clone(),
        }
    }

    /// Reads the users and hosts of the state.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub(crate) async fn load(
        store: &Store,
        policy: &Arc<Policy>,
        stop: &CancellationToken,
        now: OffsetDateTime,
    ) -> Result<Arc<Self>, StoreError> {
        let known = Self::empty(store, policy, stop);
        let mut after = None::<String>;
        loop {
            let page = store.list::<UserRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            page.into_iter().for_each(|stored| known.put_user(stored.value, stored.revision));
        }
        let mut after = None::<String>;
        loop {
            let page = store.list::<HostRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { return Ok(Arc::new(known)) };
            after = Some(last.name.clone());
            page.into_iter().for_each(|stored| known.put_host(&stored.value, stored.revision));
        }
    }

    /// A user as they are now.
    pub(crate) fn user(&self, name: &UserName) -> Option<Arc<UserRecord>> {
        let users = self.users.read();
        users.get(name).and_then(|(_, user)| user.clone())
    }

    /// Keeps users and their roles as they are while a login or a credential is made.
    pub(crate) async fn steady(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.changing.read().await
    }

    /// Held while a user, or a role that users hold, changes: no login and no credential is made meanwhile.
    pub(crate) async fn change(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.changing.write().await
    }

    /// How many users there are.
    pub(crate) fn count(&self) -> u64 {
        let users = self.users.read();
        users.values().filter(|(_, user)| user.is_some()).count() as u64
    }

    /// The users that are picked.
    pub(crate) fn users(&self, wanted: impl Fn(&UserRecord) -> bool) -> Vec<Arc<UserRecord>> {
        let users = self.users.read();
        users.values().filter_map(|(_, user)| user.clone()).filter(|user| wanted(user)).collect()
    }

    pub(crate) fn put_user(&self, user: UserRecord, revision: u64) {
        set(&self.users, user.name.clone(), revision, Some(Arc::new(user)));
    }

    pub(crate) fn remove_user(&self, name: &UserName, revision: u64) {
        set(&self.users, name.clone(), revision, None);
    }

    /// Whether a host is as it joined.
    fn knows_host(&self, id: HostId, join_id: Uuid, role: HostRole) -> bool {
        let hosts = self.hosts.read();
        hosts.get(&id).is_some_and(|(_, known)| *known == Some((join_id, role)))
    }

    pub(crate) fn put_host(&self, host: &HostRecord, revision: u64) {
        set(&self.hosts, host.id, revision, Some((host.join_id, host.role)));
    }

    pub(crate) fn remove_host(&self, id: HostId, revision: u64) {
        set(&self.hosts, id, revision, None);
    }

    fn take(&self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Put(item) if item.key.starts_with("user/") => {
                let stored = typed::decode::<UserRecord>(item)?;
                self.put_user(stored.value, stored.revision);
            }
            Change::Put(item) => {
                let stored = typed::decode::<HostRecord>(item)?;
                self.put_host(&stored.value, stored.revision);
            }
            Change::Delete { key, revision } => match key.split_once('/') {
                Some(("user", name)) => {
                    if let Ok(name) = UserName::new(name) {
                        self.remove_user(&name, revision);
                    }
                }
                Some((_, id)) => {
                    if let Ok(id) = id.parse() {
                        self.remove_host(id, revision);
                    }
                }
                None => {}
            },
        }
        Ok(())
    }

    /// An identity as the state has it now: no role that the user does not have any more, and today's traits. The
    /// certificate is all that is looked at where both agree.
    ///
    /// # Errors
    /// When the user or host is not there any more.
    pub(crate) fn current<'i>(&self, identity: &'i Identity) -> Result<Cow<'i, Identity>, Status> {
        match &identity.principal {
            Principal::User { name, roles, logins, traits } => {
                let user = self.user(name).ok_or_else(|| {
                    Status::permission_denied(format!(
                        "there is no user {name} any more, and their certificates count no more; ask an administrator"
                    ))
                })?;
                if user.roles == *roles && user.traits == *traits {
                    return Ok(Cow::Borrowed(identity));
                }
                let principal = Principal::User {
                    name: name.clone(),
                    roles: roles.iter().filter(|role| user.roles.contains(role)).cloned().collect(),
                    logins: logins.clone(),
                    traits: user.traits.clone(),
                };
                Ok(Cow::Owned(Identity { principal, ..identity.clone() }))
            }
            // The authority's own.
            Principal::Host { role: HostRole::Auth, .. } => Ok(Cow::Borrowed(identity)),
            Principal::Host { id, role, .. } if self.knows_host(*id, identity.login_id, *role) => {
                Ok(Cow::Borrowed(identity))
            }
            Principal::Host { .. } => Err(Status::permission_denied(
                "this host was removed from the cluster; join again with a new token: sallyport admin tokens add",
            )),
        }
    }

    /// A caller with the rights of now, for one call.
    pub(crate) fn as_now(&self, caller: &Caller) -> Caller {
        match caller {
            Caller::Certified { identity, from } => match self.current(identity) {
                Ok(Cow::Owned(now)) => Caller::Certified { identity: Arc::new(now), from: *from },
                // A caller that was removed is refused when its certificate is checked.
                Ok(Cow::Borrowed(_)) | Err(_) => caller.clone(),
            },
            Caller::Anonymous { .. } | Caller::Behind { .. } | Caller::LocalAdmin => caller.clone(),
        }
    }

    /// The identity that a login of this user would have, its validity aside.
    pub(crate) fn identity_of(&self, user: &UserRecord, now: OffsetDateTime) -> Identity {
        let logins = self.policy.cache().policies.logins_for(&user.roles, &user.traits);
        Identity {
            principal: Principal::User {
                name: user.name.clone(),
                roles: user.roles.clone(),
                logins,
                traits: user.traits.clone(),
            },
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: None,
            valid_after: now - sallyport_ca::SKEW_ALLOWANCE,
            valid_before: now + time::Duration::hours(1),
        }
    }

    /// Whom the answer to "why" is about: with the device of the caller's own login where they ask about themselves, else as from a device
    /// that every role takes. What roles ask of devices stands in the answer's options.
    pub(crate) fn asked_about(&self, user: &UserRecord, caller: &Caller, now: OffsetDateTime) -> Identity {
        let own = caller.identity().filter(|identity| identity.user() == Some(&user.name));
        let device = match own {
            Some(own) => own.device,
            None => Some(Device { id: DeviceId::new(), custody: DeviceCustody::Hardware }),
        };
        // As with devices: where a role pins, the address is the one that it wants.
        let pinned_to = match own {
            Some(own) => own.pinned_to,
            None => Some(NOWHERE.ip()),
        };
        Identity { device, pinned_to, ..self.identity_of(user, now) }
    }

    /// Keeps the table true when something else changes the state.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let prefixes = ["user/", "host/"].map(str::to_owned).to_vec();
            let mut watch = match self.store.backend().watch(prefixes, OffsetDateTime::now_utc()).await {
                Ok(watch) => watch,
                Err(StoreError::Closed) => return,
                Err(problem) => {
                    error!(%problem, "users and hosts cannot be followed; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(AGAIN) => continue,
                        () = self.stop.cancelled() => return,
                    }
                }
            };
            let mut ready: Vec<Change> = watch.snapshot.drain(..).map(Change::Put).collect();
            loop {
                for change in ready.drain(..) {
                    if let Err(problem) = self.take(change) {
                        error!(%problem, "a user or host cannot be read; what was known of it stays");
                    }
                    self.policy.changed();
                }
                let change = tokio::select! {
                    change = watch.changes.next() => change,
                    () = self.stop.cancelled() => return,
                };
                match change {
                    Ok(change) => ready.push(change),
                    Err(StoreError::Lagged { .. }) => break,
                    Err(_) => return,
                }
            }
        }
    }
}
