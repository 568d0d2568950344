//! The logins that are open, as people see and end them.

use std::sync::Arc;
use std::time::Duration;

use sallyport_access::{Principal, UserName};
use sallyport_audit::Code;
use sallyport_ca::SKEW_ALLOWANCE;
use sallyport_store::{Kind, Stored, typed};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use tracing::warn;
use uuid::Uuid;

use crate::authority::caller::Caller;
use crate::authority::devices::voiding::{self, Waiting};
use crate::authority::identities::logins::{Asked, Ended, LoginRecord, Logins, OpenedBy, name_of};
use crate::authority::identities::uses::{Due, KEPT_TO};
use crate::authority::storage::storage;

/// Logins in one answer.
const LISTED: usize = 1_000;
/// Logins that end in one transaction.
const ENDED_AT_ONCE: usize = 500;
/// How often it is looked for uses that are to be written down.
const LOOK: Duration = Duration::from_secs(30);
/// Uses that are written in one transaction.
const WRITTEN_AT_ONCE: usize = 100;

/// Which of a user's logins end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    One(Uuid),
    AllBut(Option<Uuid>),
}

impl Logins {
    /// Notes that a login is in use. Memory alone.
    pub(crate) fn used(&self, caller: &Caller) {
        if let Some(identity) = caller.identity()
            && let Principal::User { name, .. } = &identity.principal
        {
            self.uses.note(identity.login_id, name, OffsetDateTime::now_utc());
        }
    }

    /// Notes that a session of a login runs, as its host says.
    pub(crate) fn in_session(&self, login_id: &str, user: &str, now: OffsetDateTime) {
        if let (Ok(login_id), Ok(user)) = (login_id.parse(), UserName::new(user)) {
            self.uses.note(login_id, &user, now);
        }
    }

    /// Open logins of a user, or of every user: those behind `after`, and where to go on.
    pub(crate) async fn list(
        &self,
        user: Option<&UserName>,
        after: &str,
        limit: u32,
        current: Option<Uuid>,
        now: OffsetDateTime,
    ) -> Result<v1::ListLoginsResponse, Status> {
        let limit = match limit as usize {
            0 => LISTED,
            limit => limit.min(LISTED),
        };
        let prefix = user.map_or_else(
            || format!("{}/", LoginRecord::KIND),
            |user| format!("{}/{user}/", LoginRecord::KIND),
        );
        let page = self.page(&prefix, (!after.is_empty()).then(|| format!("{prefix}{after}")), limit, now);
        let page = page.await?;
        let next = match page.last() {
            Some(last) if page.len() == limit => match user {
                Some(_) => last.value.login_id.to_string(),
                None => last.name.clone(),
            },
            _ => String::new(),
        };
        let logins = page.iter().map(|stored| self.info(stored, current)).collect();
        Ok(v1::ListLoginsResponse { logins, next })
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<String>,
        limit: usize,
        now: OffsetDateTime,
    ) -> Result<Vec<Stored<LoginRecord>>, Status> {
        let page = self.store.backend().list(prefix, after.as_deref(), limit, now).await;
        let page = page.map_err(|error| storage(&error))?;
        page.into_iter().map(|item| typed::decode(item).map_err(|error| storage(&error))).collect()
    }

    /// What people are told of a login.
    pub(crate) fn info(&self, stored: &Stored<LoginRecord>, current: Option<Uuid>) -> v1::LoginInfo {
        self.told(owner(&stored.name), &stored.value, current)
    }

    /// [`Self::info`] of a login that is not read of the state.
    pub(crate) fn told(&self, user: &str, record: &LoginRecord, current: Option<Uuid>) -> v1::LoginInfo {
        let noted = UserName::new(user).ok().and_then(|user| self.uses.last(record.login_id, &user));
        let last_used = noted.max(record.last_used);
        let mut info = v1::LoginInfo {
            id: record.login_id.to_string(),
            user: user.to_owned(),
            last_used: last_used.map(convert::time_to_proto),
            valid_until: Some(convert::time_to_proto(record.valid_until - SKEW_ALLOWANCE)),
            current: current == Some(record.login_id),
            ..v1::LoginInfo::default()
        };
        let Some(opened) = &record.opened else { return info };
        info.at = Some(convert::time_to_proto(opened.at));
        info.address = opened.address.map(|address| address.to_string()).unwrap_or_default();
        info.host_name.clone_from(&opened.host_name);
        info.ssh_key.clone_from(&opened.ssh_key);
        info.tls_key.clone_from(&opened.tls_key);
        match &opened.by {
            OpenedBy::User(means) => {
                means.way.word().clone_into(&mut info.way);
                info.second_factor = means.second_factor;
                if let Some(factor) = &means.factor {
                    info.factor.clone_from(&factor.name);
                    factor.kind.name().clone_into(&mut info.factor_kind);
                }
            }
            OpenedBy::Signed(administrator) => {
                "signed".clone_into(&mut info.way);
                info.signed_by.clone_from(administrator);
            }
        }
        info
    }

    /// Ends logins of a user, in whose name they are: their certificates are locked, and what they have asked for is void. Of a login that
    /// has ended before, what it had asked for is void then. Gives what was done.
    ///
    /// # Errors
    /// The user has no such login and it had asked for nothing that waits, or the state fails; the message says how many have ended by then.
    pub(crate) async fn end_now(
        &self,
        caller: &Caller,
        user: &UserName,
        which: Which,
        message: &str,
        now: OffsetDateTime,
    ) -> Result<Done, Status> {
        // No device is asked for between the look for those that wait and the lock. Only what is the user's is read meanwhile.
        let _changing = self.identities.change().await;
        let mut done = Done::default();
        let ended = self.end_which(caller, user, which, (message, now), &mut done).await;
        let refreshed = match done.logins {
            0 => Ok(()),
            _ => self.policy.refresh_after("lock").await,
        };
        match ended.and(refreshed) {
            Ok(()) => Ok(done),
            Err(problem) => Err(after_ends(done.logins, problem)),
        }
    }

    /// Removes devices that wait to be admitted, once the lock is in force on what asked for them.
    pub(crate) async fn void_waiting(
        &self,
        caller: &Caller,
        which: (&UserName, Waiting<'_>),
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let _changing = self.identities.change().await;
        let mut voided = Ended::default();
        self.void(caller, which, why, now, &mut voided).await?;
        if voided.steps.is_empty() {
            return Ok(());
        }
        let done = self.store.backend().transact_urgent(voided.steps, now).await;
        done.map_err(|error| storage(&error))?;
        self.journal.record_urgent(voided.events).await
    }

    /// [`Self::void_waiting`] of a login whose user is not known. Every device is read for that, while logins go on.
    pub(crate) async fn void_asked_by(
        &self,
        caller: &Caller,
        login: Uuid,
        why: &str,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        // What the login asked for before it was locked is written by now, and it asks for nothing more.
        drop(self.identities.change().await);
        let users = voiding::asked_by(&self.store, login, now).await.map_err(|error| storage(&error))?;
        for user in users {
            self.void_waiting(caller, (&user, Waiting::From(&[login])), why, now).await?;
        }
        Ok(())
    }

    async fn end_which(
        &self,
        caller: &Caller,
        user: &UserName,
        which: Which,
        (message, now): (&str, OffsetDateTime),
        done: &mut Done,
    ) -> Result<(), Status> {
        let kept = match which {
            Which::One(id) => {
                // Its user may log out of a login by which a device was asked for. Another who ends it may end that of a thief.
                let own = caller.identity().is_some_and(|identity| identity.login_id == id);
                let stored = self.store.get::<LoginRecord>(&name_of(user, id), now).await;
                let Some(stored) = stored.map_err(|error| storage(&error))? else {
                    // A thief may have ended the login after it has asked for a device.
                    if !own {
                        let mut voided = Ended::default();
                        self.void(caller, (user, Waiting::From(&[id])), message, now, &mut voided).await?;
                        self.take(caller, voided, (Vec::new(), None), now, done).await?;
                    }
                    return match done.devices {
                        0 => Err(Status::not_found(format!(
                            "{user} has no open login {id}; it has ended, or there was none"
                        ))),
                        _ => Ok(()),
                    };
                };
                let asked = if own { Asked::Waits } else { Asked::Void };
                let logins = [stored.value];
                let ended = self.end_these(caller, (user, &logins), asked, message, now).await?;
                let ending = logins.iter().map(|login| Ending::new(user, login, message)).collect();
                return self.take(caller, ended, (ending, None), now, done).await;
            }
            Which::AllBut(kept) => kept,
        };
        let waiting = kept.map_or(Waiting::All, Waiting::AllBut);
        let mut voided = Ended::default();
        self.void(caller, (user, waiting), message, now, &mut voided).await?;
        let prefix = format!("{}/{user}/", LoginRecord::KIND);
        let mut after = None;
        loop {
            let page = self.page(&prefix, after.take(), ENDED_AT_ONCE, now).await?;
            after = page.last().map(|last| typed::key::<LoginRecord>(&last.name));
            let logins: Vec<LoginRecord> = page
                .into_iter()
                .map(|login| login.value)
                .filter(|login| Some(login.login_id) != kept)
                .collect();
            // With the first of them, what waits is void.
            let mut ended = std::mem::take(&mut voided);
            ended.add(self.end_these(caller, (user, &logins), Asked::Waits, message, now).await?);
            let ending = logins.iter().map(|login| Ending::new(user, login, message)).collect();
            self.take(caller, ended, (ending, None), now, done).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Takes the steps that end logins. The caller has the policy read anew afterwards, once for all that end. The events say the cause where no
    /// person ended them.
    async fn take(
        &self,
        caller: &Caller,
        ended: Ended,
        (ending, cause): (Vec<Ending>, Option<&str>),
        now: OffsetDateTime,
        done: &mut Done,
    ) -> Result<(), Status> {
        if ended.steps.is_empty() {
            return Ok(());
        }
        let written = self.store.backend().transact_urgent(ended.steps, now).await;
        written.map_err(|error| storage(&error))?;
        done.logins += u32::try_from(ending.len()).unwrap_or(u32::MAX);
        done.devices += u32::try_from(ended.devices).unwrap_or(u32::MAX);
        let mut events = Vec::new();
        for Ending { user, login_id, message } in ending {
            self.uses.forget(login_id, &user);
            let event = caller.event(Code::LoginEnded).message(message);
            events.push(event.field("login_id", login_id.to_string()).field("owner", user.to_string()));
        }
        events.extend(ended.events);
        if let Some(cause) = cause {
            events = events.into_iter().map(|event| event.field("cause", cause)).collect();
        }
        self.journal.record_urgent(events).await
    }

    /// Writes down when logins were in use, and ends those that are not, until the authority stops.
    pub(crate) async fn write_uses(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            let now = OffsetDateTime::now_utc();
            if let Err(problem) = self.write_due(now).await {
                warn!(
                    message = problem.message(),
                    "when logins were last in use was not written; trying again"
                );
            }
            if let Err(problem) = self.end_idle(now).await {
                warn!(message = problem.message(), "logins that are not in use were not ended; trying again");
            }
        }
    }

    /// Ends the logins that were not in use for as long as the roles of their users allow. What memory does not know may have been in
    /// use for [`KEPT_TO`] after what is written down, in an authority that was killed.
    pub(crate) async fn end_idle(&self, now: OffsetDateTime) -> Result<(), Status> {
        let cache = self.policy.cache();
        if !cache.roles.values().any(|role| role.options.login_idle_timeout.is_some()) {
            return Ok(());
        }
        let prefix = format!("{}/", LoginRecord::KIND);
        let (mut after, mut done) = (None, Done::default());
        loop {
            let page = self.page(&prefix, after.take(), ENDED_AT_ONCE, now).await?;
            let Some(last) = page.last() else {
                return if done.logins > 0 { self.policy.refresh_after("lock").await } else { Ok(()) };
            };
            after = Some(typed::key::<LoginRecord>(&last.name));
            let (mut ending, mut ended) = (Vec::new(), Ended::default());
            for login in page {
                let user = UserName::new(owner(&login.name)).ok();
                let Some(user) = user.and_then(|name| self.identities.user(&name)) else { continue };
                let Some((idle, role)) = cache.policies.login_limits(&user.roles).idle else { continue };
                let opened = login.value.opened.as_ref().map(|opened| opened.at);
                let written = login.value.last_used.max(opened).map(|at| at + KEPT_TO);
                let used = self.uses.last(login.value.login_id, &user.name).max(written);
                if used.is_some_and(|used| now - used >= idle) {
                    let message = format!(
                        "it was not in use for {} (role \"{role}\" options.login_idle_timeout); log in again: sallyport login",
                        shown(idle)
                    );
                    let login = login.value;
                    ending.push(Ending::new(&user.name, &login, &message));
                    let own = (&user.name, std::slice::from_ref(&login));
                    ended.add(self.end_these(&Caller::LocalAdmin, own, Asked::Waits, &message, now).await?);
                }
            }
            self.take(&Caller::LocalAdmin, ended, (ending, Some("idle")), now, &mut done).await?;
        }
    }

    pub(super) async fn write_due(&self, now: OffsetDateTime) -> Result<(), Status> {
        for due in self.uses.due(now).chunks(WRITTEN_AT_ONCE) {
            let mut steps = Vec::new();
            let mut written = Vec::new();
            for Due { user, login_id, last } in due {
                let stored = self.store.get::<LoginRecord>(&name_of(user, *login_id), now).await;
                let Some(stored) = stored.map_err(|error| storage(&error))? else {
                    self.uses.forget(*login_id, user);
                    continue;
                };
                // A login that was opened a moment ago was in use then.
                let known = stored.value.last_used.or(stored.value.opened.as_ref().map(|opened| opened.at));
                match known {
                    Some(known) if *last - known < KEPT_TO && now - *last < KEPT_TO => {
                        self.uses.written(*login_id, user, known);
                    }
                    _ => {
                        let record = LoginRecord { last_used: Some(*last), ..stored.value };
                        let step = typed::update(&stored.name, stored.revision, &record, stored.expires);
                        steps.push(step.map_err(|error| storage(&error))?);
                        written.push((*login_id, user, *last));
                    }
                }
            }
            if steps.is_empty() {
                continue;
            }
            match self.store.backend().transact(steps, now).await {
                Ok(_) => written.iter().for_each(|(id, user, last)| self.uses.written(*id, user, *last)),
                // One of them ended meanwhile: they are due again at the next look.
                Err(sallyport_store::StoreError::Conflict { .. }) => {}
                Err(error) => return Err(storage(&error)),
            }
        }
        Ok(())
    }
}

/// A login that ends.
struct Ending {
    user: UserName,
    login_id: Uuid,
    message: String,
}

/// What was done where logins were to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// How many logins have ended.
    pub(crate) logins: u32,
    /// How many devices were removed that had waited to be admitted.
    pub(crate) devices: u32,
}

impl From<Done> for v1::EndLoginsResponse {
    fn from(Done { logins, devices }: Done) -> Self {
        Self { ended: logins, devices }
    }
}

impl Ending {
    fn new(user: &UserName, login: &LoginRecord, message: &str) -> Self {
        Self { user: user.clone(), login_id: login.login_id, message: message.to_owned() }
    }
}

/// A failure after some logins have ended: the answer says that they have.
fn after_ends(count: u32, problem: Status) -> Status {
    let ended = match count {
        0 => return problem,
        1 => "1 login has ended".to_owned(),
        count => format!("{count} logins have ended"),
    };
    Status::new(problem.code(), format!("{ended}; what was to follow has failed: {}", problem.message()))
}

/// Whose login is kept under this name.
fn owner(name: &str) -> &str {
    name.split_once('/').map_or("", |(user, _)| user)
}

/// A bound, in the unit in which it is a whole number.
fn shown(span: Duration) -> String {
    match span.as_secs() {
        hours if hours % 3_600 == 0 => format!("{} h", hours / 3_600),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_access::{DeviceCustody, DeviceId, Identity};
    use sallyport_wire::v1::admin_server::Admin as _;
    use tonic::Request;

    use super::*;
    use crate::authority::devices::index;
    use crate::authority::devices::records::{DeviceRecord, DeviceState};
    use crate::authority::identities::logins::open_login;
    use crate::authority::sso::tests::Site;
    use crate::authority::streams::Line;
    use crate::dialling::PeerInfo;

    #[test]
    fn a_failure_after_logins_have_ended_says_that_they_have() {
        let full = || Status::unavailable("the disk is full");
        let told = |count| after_ends(count, full()).message().to_owned();
        assert_eq!(told(0), "the disk is full");
        assert_eq!(told(1), "1 login has ended; what was to follow has failed: the disk is full");
        assert_eq!(told(7), "7 logins have ended; what was to follow has failed: the disk is full");
        assert_eq!(after_ends(1, full()).code(), tonic::Code::Unavailable);
    }

    /// The thief logs out of the stolen login before its user hears of it.
    #[tokio::test]
    async fn attacks_a_login_that_ends_itself_leaves_no_device_to_the_user_who_ends_it_then() {
        let site = Site::new().await;
        let services = &site.authority.services;
        let (logins, store) = (&services.logins, &services.store);
        let now = OffsetDateTime::now_utc();
        let mut request =
            Request::new(v1::CreateUserRequest { name: "alice".to_owned(), ..Default::default() });
        request.extensions_mut().insert(Caller::LocalAdmin);
        request.extensions_mut().insert(Line::default());
        services.api.admin.clone().create_user(request).await.unwrap();
        let alice = UserName::new("alice").unwrap();
        let by = |login_id| {
            let known = services.identities.user(&alice).unwrap();
            let identity = Identity { login_id, ..services.identities.identity_of(&known, now) };
            Caller::Certified {
                identity: Arc::new(identity),
                from: PeerInfo::direct(([192, 0, 2, 1], 7).into()),
            }
        };
        let (stolen, own) = (Uuid::new_v4(), Uuid::new_v4());
        let mut steps = Vec::new();
        for login in [stolen, own] {
            steps.push(open_login(&alice, login, now + time::Duration::hours(12), None).unwrap());
        }
        let asked = [stolen, stolen, own].map(|login| DeviceRecord {
            id: DeviceId::new(),
            public_key: String::new(),
            custody: DeviceCustody::File,
            users: vec![alice.clone()],
            state: DeviceState::Pending,
            name: "laptop".to_owned(),
            os: String::new(),
            serial: String::new(),
            enrolled: now,
            enrolled_by: alice.clone(),
            login: Some(login),
            last: None,
        });
        for device in &asked {
            steps.push(typed::create(&device.id.to_string(), device, None).unwrap());
            steps.extend(index::written(None, device).unwrap());
        }
        store.backend().transact(steps, now).await.unwrap();
        let waiting = async || {
            let found = index::of(store, &alice, now).await.unwrap();
            found.into_iter().filter_map(|device| device.value.login).collect::<Vec<_>>()
        };

        let done = logins.end_now(&by(stolen), &alice, Which::One(stolen), "", now).await.unwrap();
        assert_eq!(done, Done { logins: 1, devices: 0 });
        assert_eq!(waiting().await.len(), 3, "its user may have logged out");
        let again = logins.end_now(&by(stolen), &alice, Which::One(stolen), "", now).await.unwrap_err();
        assert_eq!((again.code(), waiting().await.len()), (tonic::Code::NotFound, 3), "{again:?}");
        let ended = logins.end_now(&by(own), &alice, Which::One(stolen), "", now).await.unwrap();
        assert_eq!(ended, Done { logins: 0, devices: 2 }, "it had ended, and what it had asked for is void");
        assert_eq!(waiting().await, [own]);
        // An administrator ends it as well, and nothing is left of it then.
        let gone =
            logins.end_now(&Caller::LocalAdmin, &alice, Which::One(stolen), "", now).await.unwrap_err();
        assert!(gone.message().ends_with("it has ended, or there was none"), "{gone:?}");
        assert_eq!(waiting().await, [own]);
        // What asks by a login of another user's removes nothing of this one's.
        let bob = UserName::new("bob").unwrap();
        logins.end_now(&Caller::LocalAdmin, &bob, Which::One(own), "", now).await.unwrap_err();
        assert_eq!(waiting().await, [own]);
    }
}
