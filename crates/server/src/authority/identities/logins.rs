//! The logins that are open, and how they end: by locks of which proxies and nodes hear.

use std::net::IpAddr;
use std::sync::Arc;

use sallyport_access::{DeviceId, HostId, Lock, LockTarget, UserName};
use sallyport_audit::{Code, Event};
use sallyport_ca::{CertificateKind, Form, Issued, SKEW_ALLOWANCE};
use sallyport_store::{Kind, Op, Store, StoreError, typed};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use crate::authority::accounts::means::Means;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::identities::grants;
use crate::authority::identities::known::Identities;
use crate::authority::identities::uses::Uses;
use crate::authority::policy::Policy;
use crate::authority::records::LockRecord;
use crate::authority::storage::{PAGE, removed, storage};

/// A login whose certificates are valid, under the user's name and its own id. It is written before they are given out,
/// and ceases to exist with them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoginRecord {
    pub(crate) login_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) valid_until: OffsetDateTime,
    /// The trusted device that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<DeviceId>,
    /// How it was opened; none of a login that an earlier release let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opened: Option<Opened>,
    /// When it was last seen in use, as far as that was written down (`identities::uses`).
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) last_used: Option<OffsetDateTime>,
}

/// How a login was opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    /// Where the program was that has its certificates, as the proxy saw it; none of one on the authority's own machine.
    pub(crate) address: Option<IpAddr>,
    /// What that machine calls itself.
    pub(crate) host_name: String,
    pub(crate) by: OpenedBy,
    /// Fingerprints of its keys, as `ssh-keygen` prints that of SSH, and in hexadecimal that of TLS.
    pub(crate) ssh_key: String,
    pub(crate) tls_key: String,
}

/// Who opened a login.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OpenedBy {
    /// Its user, who has proven who they are.
    User(Means),
    /// An administrator, who had its certificates made.
    Signed(String),
}

impl Opened {
    pub(crate) fn new(
        caller: &Caller,
        by: OpenedBy,
        host_name: &str,
        issued: &[Issued],
        at: OffsetDateTime,
    ) -> Self {
        let key = |form| {
            let issued = issued.iter().find(|issued| issued.form == form);
            issued.map(|issued| issued.key.clone()).unwrap_or_default()
        };
        Self {
            at,
            address: caller.address(),
            host_name: host_name.to_owned(),
            by,
            ssh_key: key(Form::Ssh),
            tls_key: key(Form::X509),
        }
    }
}

impl Kind for LoginRecord {
    const KIND: &'static str = "login";
}

/// The step that opens a login.
pub(crate) fn open_login(
    user: &UserName,
    login_id: Uuid,
    valid_before: OffsetDateTime,
    opened: Option<Opened>,
) -> Result<Op, StoreError> {
    open_login_from(user, login_id, None, valid_before, opened)
}

/// The step that opens a login from a trusted device, or from none.
pub(crate) fn open_login_from(
    user: &UserName,
    login_id: Uuid,
    device: Option<DeviceId>,
    valid_before: OffsetDateTime,
    opened: Option<Opened>,
) -> Result<Op, StoreError> {
    let valid_until = valid_before + SKEW_ALLOWANCE;
    let record = LoginRecord { login_id, valid_until, device, opened, last_used: None };
    typed::create(&name_of(user, login_id), &record, Some(valid_until))
}

/// What a login is kept under.
pub(super) fn name_of(user: &UserName, login_id: Uuid) -> String {
    format!("{user}/{login_id}")
}

/// The lock with which a login ends.
fn own_lock(login_id: Uuid) -> String {
    format!("login-{login_id}")
}

/// What the end of a user's logins takes: steps for the transaction that makes it necessary, and what is on record of it.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) steps: Vec<Op>,
    pub(crate) events: Vec<Event>,
}

/// The open logins of users, and the locks that end them.
#[derive(Debug)]
pub(crate) struct Logins {
    pub(super) store: Store,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) journal: Arc<Journal>,
    pub(super) uses: Uses,
    pub(super) stop: CancellationToken,
}

impl Logins {
    pub(crate) fn new(
        store: &Store,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        journal: &Arc<Journal>,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            journal: Arc::clone(journal),
            uses: Uses::default(),
            stop: stop.clone(),
        })
    }

    /// Ends every open login of a user. The caller holds what `Identities::change` gives, so that none is opened meanwhile.
    pub(crate) async fn end_logins(
        &self,
        caller: &Caller,
        user: &UserName,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        self.end(caller, user, |_| true, message, now).await
    }

    /// Ends every open login of a user but one, as [`Self::end_logins`] does.
    pub(crate) async fn end_others(
        &self,
        caller: &Caller,
        user: &UserName,
        kept: Uuid,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        self.end(caller, user, |login| login.login_id != kept, message, now).await
    }

    /// [`Self::end_logins`] of those that came from one trusted device.
    pub(crate) async fn end_from(
        &self,
        caller: &Caller,
        user: &UserName,
        device: DeviceId,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        self.end(caller, user, |login| login.device == Some(device), message, now).await
    }

    async fn end(
        &self,
        caller: &Caller,
        user: &UserName,
        which: impl Fn(&LoginRecord) -> bool + Send,
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
                if !which(&login.value) {
                    continue;
                }
                ended.steps.extend(removed(&login.name, &login.value).map_err(|error| storage(&error))?);
                self.end_login(caller, &login.value, message, &mut ended)?;
            }
        }
    }

    pub(crate) fn end_login(
        &self,
        caller: &Caller,
        login: &LoginRecord,
        message: &str,
        ended: &mut Ended,
    ) -> Result<(), Status> {
        ended.steps.extend(grants::ended(login.login_id).map_err(|error| storage(&error))?);
        let target = LockTarget::LoginId(login.login_id);
        let until = login.valid_until + SKEW_ALLOWANCE;
        if self.has_ended(login.login_id, until) {
            return Ok(());
        }
        let lock = Lock {
            name: own_lock(login.login_id),
            target,
            message: message.to_owned(),
            expires: Some(until),
        };
        self.put_lock(caller, &lock, ended)
    }

    /// Whether a login was ended, by its own lock, until this time at least. Another lock on it does not count: an administrator may
    /// remove that, and the login would be open again.
    pub(crate) fn has_ended(&self, login_id: Uuid, until: OffsetDateTime) -> bool {
        let (name, target) = (own_lock(login_id), LockTarget::LoginId(login_id));
        let ends = |lock: &Lock| {
            lock.name == name && lock.target == target && lock.expires.is_none_or(|end| end >= until)
        };
        self.policy.cache().locks.iter().any(ends)
    }

    /// A lock that comes with another change.
    pub(crate) fn put_lock(&self, caller: &Caller, lock: &Lock, ended: &mut Ended) -> Result<(), Status> {
        let yaml = lock.to_yaml();
        let step = typed::put(&lock.name, &LockRecord { yaml: yaml.clone() }, lock.expires);
        ended.steps.push(step.map_err(|error| storage(&error))?);
        ended.events.push(
            caller
                .event(Code::LockCreated)
                .message(format!("lock/{}", lock.name))
                .field("name", lock.name.clone())
                .field("yaml", yaml),
        );
        Ok(())
    }

    /// Keeps a host out that is removed, until the last certificate that it may have is over. One that is made at this
    /// moment ends before, too.
    pub(crate) fn end_host(&self, caller: &Caller, id: HostId, now: OffsetDateTime) -> Result<Ended, Status> {
        let mut ended = Ended::default();
        let lock = Lock {
            name: format!("removed-{id}"),
            target: LockTarget::host(id),
            message: "it was removed from the cluster".to_owned(),
            expires: Some(now + CertificateKind::Host.row().limit + 2 * SKEW_ALLOWANCE),
        };
        self.put_lock(caller, &lock, &mut ended)?;
        Ok(ended)
    }
}
