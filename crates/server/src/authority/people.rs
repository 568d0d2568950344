//! Who there is now: users and hosts as the state has them, and the logins that are open.
//!
//! A certificate says what its holder was when it was made. Every check of the authority asks here what they are now:
//! who was removed is refused, and a role counts when the certificate and the state both have it. Proxies and nodes
//! know the certificate alone. So a change of a user's roles, traits or password ends the logins that are open, by a
//! lock on each that lasts as long as its certificates: proxies and nodes hear of it as of every other lock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sallyport_access::{HostId, HostRole, Identity, Lock, LockTarget, Principal, UserName};
use sallyport_audit::{Code, Event};
use sallyport_ca::{CertificateKind, SKEW_ALLOWANCE};
use sallyport_store::{Change, Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tonic::Status;
use tracing::{error, warn};
use uuid::Uuid;

use super::Inner;
use super::caller::Caller;
use super::hosts::storage;
use super::state::{HostRecord, LockRecord, UserRecord};
use super::view::PAGE;

/// How soon it is tried again to follow the state, or to learn of logins that an earlier release let in.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// What the answer to "why" was decided with. Open logins have no other roles and traits: a change ends them.
pub(super) const DECIDED_BY_STATE: &str = "decided with the user's roles and traits in the state, not with a certificate's; \
     a login with others was ended, and proxies and nodes refuse it once they have heard of that";

/// A login whose certificates are valid, under the user's name and its own id. It is written before they are given out,
/// and ceases to exist with them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    pub(super) login_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) valid_until: OffsetDateTime,
}

impl Kind for LoginRecord {
    const KIND: &'static str = "login";
}

/// What is known under a key, and since which revision. Nothing: it was deleted by it.
type Entry<T> = (u64, Option<T>);

/// Users and hosts, in memory.
#[derive(Debug, Default)]
pub(super) struct People {
    users: RwLock<HashMap<UserName, Entry<Arc<UserRecord>>>>,
    hosts: RwLock<HashMap<HostId, Entry<(Uuid, HostRole)>>>,
    /// Read while a login or a credential is made, written while a user, or a role that users hold, changes: neither
    /// goes on with what the other has just made untrue.
    pub(super) changing: tokio::sync::RwLock<()>,
}

fn set<K: std::hash::Hash + Eq, V>(
    map: &RwLock<HashMap<K, Entry<V>>>,
    key: K,
    revision: u64,
    value: Option<V>,
) {
    let mut map = map.write().unwrap_or_else(PoisonError::into_inner);
    // The watch tells later what was set at once.
    if map.get(&key).is_none_or(|(known, _)| *known <= revision) {
        map.insert(key, (revision, value));
    }
}

impl People {
    pub(super) async fn load(store: &Store, now: OffsetDateTime) -> Result<Self, StoreError> {
        let people = Self::default();
        let mut after = None::<String>;
        loop {
            let page = store.list::<UserRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            page.into_iter().for_each(|stored| people.put_user(stored.value, stored.revision));
        }
        let mut after = None::<String>;
        loop {
            let page = store.list::<HostRecord>(after.as_deref(), PAGE, now).await?;
            let Some(last) = page.last() else { return Ok(people) };
            after = Some(last.name.clone());
            page.into_iter().for_each(|stored| people.put_host(&stored.value, stored.revision));
        }
    }

    /// A user as they are now.
    pub(super) fn user(&self, name: &UserName) -> Option<Arc<UserRecord>> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.get(name).and_then(|(_, user)| user.clone())
    }

    /// The users that are picked.
    pub(super) fn users(&self, wanted: impl Fn(&UserRecord) -> bool) -> Vec<Arc<UserRecord>> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.values().filter_map(|(_, user)| user.clone()).filter(|user| wanted(user)).collect()
    }

    pub(super) fn put_user(&self, user: UserRecord, revision: u64) {
        set(&self.users, user.name.clone(), revision, Some(Arc::new(user)));
    }

    pub(super) fn remove_user(&self, name: &UserName, revision: u64) {
        set(&self.users, name.clone(), revision, None);
    }

    /// Whether a host is as it joined.
    fn knows_host(&self, id: HostId, join_id: Uuid, role: HostRole) -> bool {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&id).is_some_and(|(_, known)| *known == Some((join_id, role)))
    }

    pub(super) fn put_host(&self, host: &HostRecord, revision: u64) {
        set(&self.hosts, host.id, revision, Some((host.join_id, host.role)));
    }

    pub(super) fn remove_host(&self, id: HostId, revision: u64) {
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
}

/// What the end of a user's logins takes: steps for the transaction that makes it necessary, and what is on record of it.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) steps: Vec<Op>,
    pub(super) events: Vec<Event>,
}

impl Inner {
    /// An identity as the state has it now: no role that the user does not have any more, and today's traits. The
    /// certificate is all that is looked at where both agree.
    ///
    /// # Errors
    /// When the user or host is not there any more.
    pub(super) fn current<'i>(&self, identity: &'i Identity) -> Result<Cow<'i, Identity>, Status> {
        match &identity.principal {
            Principal::User { name, roles, logins, traits } => {
                let user = self.people.user(name).ok_or_else(|| {
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
            Principal::Host { id, role, .. } if self.people.knows_host(*id, identity.login_id, *role) => {
                Ok(Cow::Borrowed(identity))
            }
            Principal::Host { .. } => Err(Status::permission_denied(
                "this host was removed from the cluster; join again with a new token: sallyport admin tokens add",
            )),
        }
    }

    /// A caller with the rights of now, for one call.
    pub(super) fn as_now(&self, caller: &Caller) -> Caller {
        match caller {
            Caller::Certified { identity, address } => match self.current(identity) {
                Ok(Cow::Owned(now)) => Caller::Certified { identity: Arc::new(now), address: *address },
                // Whoever is not there any more is refused when it is checked.
                Ok(Cow::Borrowed(_)) | Err(_) => caller.clone(),
            },
            Caller::Anonymous { .. } | Caller::LocalAdmin => caller.clone(),
        }
    }

    /// The step that opens a login.
    pub(super) fn open_login(
        user: &UserName,
        login_id: Uuid,
        valid_before: OffsetDateTime,
    ) -> Result<Op, StoreError> {
        let valid_until = valid_before + SKEW_ALLOWANCE;
        let record = LoginRecord { login_id, valid_until };
        typed::create(&format!("{user}/{login_id}"), &record, Some(valid_until))
    }

    /// Ends every login of a user that is open. The caller holds `people.changing` to write, so that none is opened
    /// meanwhile.
    pub(super) async fn end_logins(
        &self,
        caller: &Caller,
        user: &UserName,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        let prefix = format!("{}/{user}/", LoginRecord::KIND);
        let mut ended = Ended::default();
        let mut after = None::<String>;
        loop {
            let listed = self.store.backend().list(&prefix, after.as_deref(), PAGE, now).await;
            let page = listed.map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { return Ok(ended) };
            after = Some(last.key.clone());
            for item in page {
                let login = typed::decode::<LoginRecord>(item).map_err(|error| storage(&error))?;
                ended.steps.extend(removed(&login.name, &login.value).map_err(|error| storage(&error))?);
                self.end_login(caller, &login.value, message, &mut ended)?;
            }
        }
    }

    fn end_login(
        &self,
        caller: &Caller,
        login: &LoginRecord,
        message: &str,
        ended: &mut Ended,
    ) -> Result<(), Status> {
        let target = LockTarget::LoginId(login.login_id);
        let until = login.valid_until + SKEW_ALLOWANCE;
        let lasts = |lock: &Lock| lock.target == target && lock.expires.is_none_or(|end| end >= until);
        if self.view().locks.iter().any(lasts) {
            return Ok(());
        }
        let name = format!("login-{}", login.login_id);
        let lock = Lock { name, target, message: message.to_owned(), expires: Some(until) };
        self.put_lock(caller, &lock, ended)
    }

    /// A lock that comes with another change.
    fn put_lock(&self, caller: &Caller, lock: &Lock, ended: &mut Ended) -> Result<(), Status> {
        let yaml = lock.to_yaml();
        let step = typed::put(&lock.name, &LockRecord { yaml: yaml.clone() }, lock.expires);
        ended.steps.push(step.map_err(|error| storage(&error))?);
        ended.events.push(
            self.event(Code::LockCreated, caller)
                .message(format!("lock/{}", lock.name))
                .field("name", lock.name.clone())
                .field("yaml", yaml),
        );
        Ok(())
    }

    /// Keeps a host out that is removed, until the last certificate that it may have is over. One that is made at this
    /// moment ends before, too.
    pub(super) fn end_host(&self, caller: &Caller, id: HostId, now: OffsetDateTime) -> Result<Ended, Status> {
        let mut ended = Ended::default();
        let lock = Lock {
            name: format!("removed-{id}"),
            target: LockTarget::Node(id.to_string()),
            message: "it was removed from the cluster".to_owned(),
            expires: Some(now + CertificateKind::Host.row().limit + 2 * SKEW_ALLOWANCE),
        };
        self.put_lock(caller, &lock, &mut ended)?;
        Ok(ended)
    }

    /// Keeps the table true when something else changes the state.
    pub(super) async fn follow_people(self: Arc<Self>) {
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
                    if let Err(problem) = self.people.take(change) {
                        error!(%problem, "a user or host cannot be read; what was known of it stays");
                    }
                    self.policy_changed();
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

    /// Learns of the logins that an earlier release let in: their certificates are on the list, and they may have to be
    /// ended, too. Those of users who are not there any more end at once.
    pub(super) async fn learn_logins(self: Arc<Self>) {
        loop {
            match self.logins_of_certificates().await {
                Ok(()) => return,
                Err(problem) => {
                    warn!(message = problem.message(), "open logins are not known yet; trying again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    async fn logins_of_certificates(&self) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let mut open: HashMap<Uuid, (UserName, OffsetDateTime)> = HashMap::new();
        self.each_certificate(|record| {
            let issued = record.issued;
            if issued.kind == CertificateKind::User
                && issued.valid_before + SKEW_ALLOWANCE > now
                && let (Some(login_id), Ok(user)) = (issued.login_id, UserName::new(issued.subject))
            {
                let end = &mut open.entry(login_id).or_insert((user, issued.valid_before)).1;
                *end = issued.valid_before.max(*end);
            }
        })
        .await?;
        let _changing = self.people.changing.write().await;
        let mut ended = Ended::default();
        for (login_id, (user, valid_before)) in open {
            let key = typed::key::<LoginRecord>(&format!("{user}/{login_id}"));
            let known = self.store.backend().get(&key, now).await.map_err(|error| storage(&error))?;
            if known.is_some() {
                continue;
            }
            if self.people.user(&user).is_some() {
                let step = Self::open_login(&user, login_id, valid_before);
                ended.steps.push(step.map_err(|error| storage(&error))?);
            } else {
                let login = LoginRecord { login_id, valid_until: valid_before + SKEW_ALLOWANCE };
                self.end_login(&Caller::LocalAdmin, &login, "the account was removed", &mut ended)?;
            }
        }
        if ended.steps.is_empty() {
            return Ok(());
        }
        self.store.backend().transact(ended.steps, now).await.map_err(|error| storage(&error))?;
        self.refresh_after("lock").await?;
        self.record(ended.events).await
    }
}

/// Steps that remove something whether it is there or not: what expires or was never there is no reason to fail.
pub(super) fn removed<T: Kind>(name: &str, value: &T) -> Result<[Op; 2], StoreError> {
    Ok([typed::put(name, value, None)?, typed::delete::<T>(name, None)])
}
