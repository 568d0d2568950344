//! What administrators do with devices: list them, say whose they are, make tokens, and remove.

use std::time::Duration;

use sallyport_access::{DeviceId, Lock, LockTarget, UserName};
use sallyport_audit::Code;
use sallyport_ca::{MAX_USER_TTL, SKEW_ALLOWANCE};
use sallyport_store::typed;
use sallyport_wire::v1::remove_device_request::What;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::index;
use super::kept::{Devices, failed};
use super::records::{DeviceRecord, DeviceState, DeviceTokenRecord, told};
use super::voiding::removal;
use crate::authority::caller::{Caller, shown};
use crate::authority::counted;
use crate::authority::identities::logins::Ended;
use crate::authority::secrets::fresh_token;
use crate::authority::storage::every;

const TOKEN_TTL: Duration = Duration::from_secs(86_400);
const SHORTEST_TOKEN_TTL: Duration = Duration::from_secs(60);
const LONGEST_TOKEN_TTL: Duration = Duration::from_secs(30 * 86_400);
/// Tokens at a time that no device was enrolled with.
const MOST_TOKENS: usize = if cfg!(test) { 5 } else { 1_000 };
/// Users of one device.
const MOST_USERS: usize = 100;

impl Devices {
    /// The devices of one user.
    pub(crate) async fn list_own(&self, user: &UserName) -> Result<Vec<v1::Device>, Status> {
        let own = self.of_user(user, OffsetDateTime::now_utc()).await?;
        Ok(own.iter().map(|device| device.value.shown()).collect())
    }

    /// Every device, and the tokens that are good.
    pub(crate) async fn list(&self) -> Result<v1::ListDevicesResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let devices = self.all(now).await?.iter().map(|device| device.value.shown()).collect();
        let tokens = every::<DeviceTokenRecord>(&self.store, now).await.map_err(failed)?;
        let tokens = tokens.into_iter().map(|token| v1::DeviceToken {
            name: token.name,
            users: token.value.users.iter().map(ToString::to_string).collect(),
            hardware: token.value.hardware,
            created: Some(convert::time_to_proto(token.value.created)),
            expires: Some(convert::time_to_proto(token.value.expires)),
        });
        Ok(v1::ListDevicesResponse { devices, tokens: tokens.collect() })
    }

    /// Makes a token with which one device is enrolled.
    pub(crate) async fn add_token(
        &self,
        caller: &Caller,
        request: v1::AddDeviceTokenRequest,
    ) -> Result<v1::AddDeviceTokenResponse, Status> {
        let now = OffsetDateTime::now_utc();
        // None of those whom it is for is removed meanwhile: another of the name would have it.
        let _changing = self.identities.steady().await;
        let users = self.users_of(&request.users)?;
        let ttl = request.ttl.as_ref().and_then(convert::duration_from_proto).unwrap_or(TOKEN_TTL);
        if !(SHORTEST_TOKEN_TTL..=LONGEST_TOKEN_TTL).contains(&ttl) {
            return Err(Status::invalid_argument("a token for a device lives from 1 minute to 30 days"));
        }
        let (token, name, hash) = fresh_token()?;
        let expires = now + ttl;
        let record = DeviceTokenRecord {
            hash,
            users: users.clone(),
            hardware: request.hardware,
            created: now,
            expires,
        };
        let step = typed::create(&name, &record, Some(expires)).map_err(failed)?;
        let made = counted::make::<DeviceTokenRecord>(&self.store, MOST_TOKENS, step, now).await;
        made.map_err(|not_made| {
            not_made.told(|| {
                Status::resource_exhausted(format!(
                    "there are {MOST_TOKENS} tokens for devices: end those that are not needed (sallyport admin devices token rm NAME)"
                ))
            })
        })?;
        let users: Vec<&str> = users.iter().map(UserName::as_str).collect();
        let event = caller
            .event(Code::DeviceTokenCreated)
            .message(format!("device_token/{name}"))
            .field("name", name.clone())
            .field("users", users.join(", "))
            .field("hardware", request.hardware)
            .field("ttl_seconds", ttl.as_secs());
        self.journal.record(vec![event]).await?;
        Ok(v1::AddDeviceTokenResponse { token, name, expires: Some(convert::time_to_proto(expires)) })
    }

    /// Says whose a device is, and admits one that waits. Logins from it of users who are not among them any more end.
    pub(crate) async fn assign(
        &self,
        caller: &Caller,
        request: v1::AssignDeviceRequest,
    ) -> Result<v1::AssignDeviceResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let users = self.users_of(&request.users)?;
        // No login of those who are taken off begins meanwhile.
        let _changing = self.identities.change().await;
        let stored = self.named(&request.id, now).await?;
        let before = stored.value;
        let mut record = before.clone();
        if !users.is_empty() {
            record.users = users;
        }
        record.state = DeviceState::Enrolled;
        let mut steps = vec![typed::update(&stored.name, stored.revision, &record, None).map_err(failed)?];
        steps.extend(index::written(Some(&before), &record).map_err(failed)?);
        let mut ended = Ended::default();
        for user in before.users.iter().filter(|user| !record.belongs_to(user)) {
            let why = "the device was given to other users";
            ended.add(self.logins.end_from(caller, user, record.id, why, now).await?);
        }
        let event = told(caller.event(Code::DeviceAssigned), &record).field("ended_logins", ended.logins);
        let mut events = vec![event];
        steps.extend(ended.steps);
        events.extend(ended.events);
        self.store.backend().transact(steps, now).await.map_err(failed)?;
        self.policy.refresh_after("lock").await?;
        self.journal.record(events).await?;
        Ok(v1::AssignDeviceResponse { device: Some(record.shown()) })
    }

    /// Removes a device, and ends every login that came from it; or ends a token.
    pub(crate) async fn remove(
        &self,
        caller: &Caller,
        request: v1::RemoveDeviceRequest,
    ) -> Result<v1::RemoveDeviceResponse, Status> {
        let now = OffsetDateTime::now_utc();
        match request.what {
            Some(What::Device(id)) => self.remove_device(caller, &id, now).await,
            Some(What::Token(name)) => {
                let missing =
                    || Status::not_found(format!("there is no token {} for a device", shown(&name)));
                let stored = self.store.get::<DeviceTokenRecord>(&name, now).await.map_err(failed)?;
                let stored = stored.ok_or_else(missing)?;
                let step = typed::delete::<DeviceTokenRecord>(&stored.name, Some(stored.revision));
                self.store.backend().transact_urgent(vec![step], now).await.map_err(failed)?;
                let event = caller
                    .event(Code::DeviceTokenDeleted)
                    .message(format!("device_token/{}", stored.name))
                    .field("name", stored.name);
                self.journal.record_urgent(vec![event]).await?;
                Ok(v1::RemoveDeviceResponse::default())
            }
            None => Err(Status::invalid_argument("which device, or which token?")),
        }
    }

    async fn remove_device(
        &self,
        caller: &Caller,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<v1::RemoveDeviceResponse, Status> {
        // No login from it begins meanwhile.
        let _changing = self.identities.change().await;
        let stored = self.named(id, now).await?;
        let record = &stored.value;
        // Certificates of a login that is made at this moment end before the lock, too.
        let lock = Lock {
            name: format!("removed-device-{}", record.id),
            target: LockTarget::Device(record.id),
            message: "the device was removed".to_owned(),
            expires: Some(now + MAX_USER_TTL + 2 * SKEW_ALLOWANCE),
        };
        let mut ended = Ended::default();
        self.logins.put_lock(caller, &lock, &mut ended)?;
        // Their logins from it are not open any more, and do not count among those that they may have.
        for user in &record.users {
            ended.add(self.logins.end_from(caller, user, record.id, &lock.message, now).await?);
        }
        let mut steps = removal(&stored).map_err(failed)?;
        steps.extend(ended.steps);
        self.store.backend().transact_urgent(steps, now).await.map_err(failed)?;
        self.policy.refresh_after("lock").await?;
        let mut events = vec![told(caller.event(Code::DeviceRemoved), record)];
        events.extend(ended.events);
        self.journal.record_urgent(events).await?;
        Ok(v1::RemoveDeviceResponse { lock: lock.name })
    }

    async fn named(
        &self,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<sallyport_store::Stored<DeviceRecord>, Status> {
        let missing = || {
            Status::not_found(format!(
                "there is no device {}; devices are: sallyport admin devices ls",
                shown(id)
            ))
        };
        let id: DeviceId = id.parse().map_err(|_| missing())?;
        self.one(id, now).await?.ok_or_else(missing)
    }

    /// Users that there are, each once.
    pub(crate) fn users_of(&self, names: &[String]) -> Result<Vec<UserName>, Status> {
        if names.len() > MOST_USERS {
            return Err(Status::invalid_argument(format!("a device has at most {MOST_USERS} users")));
        }
        let mut users: Vec<UserName> = Vec::new();
        for name in names {
            let name =
                UserName::new(name.as_str()).map_err(|error| Status::invalid_argument(error.to_string()))?;
            if self.identities.user(&name).is_none() {
                return Err(Status::not_found(format!("there is no user {name}")));
            }
            if !users.contains(&name) {
                users.push(name);
            }
        }
        Ok(users)
    }
}
