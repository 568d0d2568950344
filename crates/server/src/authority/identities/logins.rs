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

use crate::authority::accounts::means::{Means, Way};
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::devices::records::DeviceRecord;
use crate::authority::devices::voiding::{self, Waiting};
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

impl LoginRecord {
    /// Whether a local user's login stands by the person whom the user is linked with: it came by single sign-on, or the user had its
    /// certificates signed for themselves.
    pub(crate) fn is_by_link(&self, user: &UserName) -> bool {
        match self.opened.as_ref().map(|opened| &opened.by) {
            Some(OpenedBy::User(means)) => means.way == Way::SingleSignOn,
            Some(OpenedBy::Signed(administrator)) => administrator == user.as_str(),
            None => false,
        }
    }
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
    /// How many logins end.
    pub(crate) logins: usize,
    /// How many devices are removed that had waited.
    pub(crate) devices: usize,
}

impl Ended {
    pub(crate) fn add(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.events.extend(other.events);
        self.logins += other.logins;
        self.devices += other.devices;
    }

    /// Adds its steps to those of a transaction that also removes what is the user's: a device that both remove is removed once.
    pub(crate) fn join(&mut self, steps: &mut Vec<Op>) {
        let of_device = |op: &Op| match op {
            Op::Delete { key, revision: Some(_) } | Op::CompareAndSwap { key, .. } => key
                .strip_prefix(DeviceRecord::KIND)
                .is_some_and(|rest| rest.starts_with('/'))
                .then(|| key.clone()),
            _ => None,
        };
        let removed: Vec<String> = self.steps.iter().filter_map(of_device).collect();
        steps.retain(|step| of_device(step).is_none_or(|key| !removed.contains(&key)));
        steps.append(&mut self.steps);
    }
}

/// What becomes of the devices that wait to be admitted where the login ends that has asked for them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    /// They are void.
    Void,
    /// They go on to wait: the login ended as logins do, by its user's logout or for want of use, and may be no thief's.
    Waits,
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

    /// Ends every open login of a user, with the devices that wait in the user's name. The caller holds what `Identities::change` gives, so that
    /// none is opened meanwhile.
    pub(crate) async fn end_logins(
        &self,
        caller: &Caller,
        user: &UserName,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        self.end(caller, user, |_| true, Waiting::All, (message, now)).await
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
        self.end(caller, user, |login| login.login_id != kept, Waiting::AllBut(kept), (message, now)).await
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
        self.end(caller, user, |login| login.device == Some(device), Waiting::From(&[]), (message, now)).await
    }

    /// Ends the open logins of a local user that a link has opened, and the certificates that the user had signed for themselves: these may
    /// be of such a login. Logins by a password or passkey stay.
    pub(crate) async fn end_linked(
        &self,
        caller: &Caller,
        user: &UserName,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        self.end(caller, user, |login| login.is_by_link(user), Waiting::From(&[]), (message, now)).await
    }

    /// Ends some of a user's open logins. What waits of those is void in any case.
    async fn end(
        &self,
        caller: &Caller,
        user: &UserName,
        which: impl Fn(&LoginRecord) -> bool + Send,
        waiting: Waiting<'_>,
        (message, now): (&str, OffsetDateTime),
    ) -> Result<Ended, Status> {
        let prefix = format!("{}/{user}/", LoginRecord::KIND);
        let (mut ended, mut ids) = (Ended::default(), Vec::new());
        let mut after = None::<String>;
        loop {
            let listed = self.store.backend().list(&prefix, after.as_deref(), PAGE, now).await;
            let page = listed.map_err(|error| storage(&error))?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for item in page {
                let login = typed::decode::<LoginRecord>(item).map_err(|error| storage(&error))?;
                if which(&login.value) {
                    ids.push(login.value.login_id);
                    self.end_login(caller, user, &login.value, message, &mut ended)?;
                }
            }
        }
        let waiting = if matches!(waiting, Waiting::From(_)) { Waiting::From(&ids) } else { waiting };
        self.void(caller, (user, waiting), message, now, &mut ended).await?;
        Ok(ended)
    }

    /// Ends these logins of a user, and with them what they have asked for. The caller holds what `Identities::change` gives.
    pub(crate) async fn end_these(
        &self,
        caller: &Caller,
        (user, logins): (&UserName, &[LoginRecord]),
        asked: Asked,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Ended, Status> {
        let mut ended = Ended::default();
        for login in logins {
            self.end_login(caller, user, login, message, &mut ended)?;
        }
        match asked {
            Asked::Void => {
                let ids: Vec<Uuid> = logins.iter().map(|login| login.login_id).collect();
                self.void(caller, (user, Waiting::From(&ids)), message, now, &mut ended).await?;
            }
            Asked::Waits => {}
        }
        Ok(ended)
    }

    /// What is void with the end of logins.
    pub(super) async fn void(
        &self,
        caller: &Caller,
        which: (&UserName, Waiting<'_>),
        why: &str,
        now: OffsetDateTime,
        ended: &mut Ended,
    ) -> Result<(), Status> {
        let voided = voiding::waiting(&self.store, caller, which, why, now).await;
        let (steps, events) = voided.map_err(|error| storage(&error))?;
        ended.steps.extend(steps);
        ended.devices += events.len();
        ended.events.extend(events);
        Ok(())
    }

    fn end_login(
        &self,
        caller: &Caller,
        user: &UserName,
        login: &LoginRecord,
        message: &str,
        ended: &mut Ended,
    ) -> Result<(), Status> {
        let name = name_of(user, login.login_id);
        ended.steps.extend(removed(&name, login).map_err(|error| storage(&error))?);
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
        ended.logins += 1;
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
