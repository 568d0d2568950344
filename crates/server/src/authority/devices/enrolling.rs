//! Devices are enrolled: by a token at once, else when an administrator admits them.

use sallyport_access::{DeviceCustody, DeviceId, UserName};
use sallyport_audit::Code;
use sallyport_ca::DeviceAct;
use sallyport_sal::{PublicKey, constant_time_eq};
use sallyport_store::{Kind, Op, StoreError, Stored, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::challenges::Good;
use super::index;
use super::kept::{Devices, NO_FILE_KEYS, failed};
use super::records::{DeviceRecord, DeviceState, DeviceTokenRecord, said, told};
use crate::authority::caller::Caller;
use crate::authority::secrets::{TOKEN_NAME, hash_of};

/// Devices of one user.
const MOST_DEVICES: usize = 20;
/// Devices of one user that wait to be admitted.
const MOST_PENDING: usize = 3;
/// Longest public key that is read, in bytes: one on P-256 has 91.
const KEY_BYTES: usize = 256;

const METHOD: &str = "Devices.Enroll";
const BAD_TOKEN: &str = "this token is not good: it was used, is over, or was never made; ask an administrator for another: sallyport \
     admin devices token add";

impl Devices {
    /// Enrolls a device for the user whose login asks.
    pub(crate) async fn enroll(
        &self,
        caller: &Caller,
        user: &UserName,
        request: v1::EnrollDeviceRequest,
    ) -> Result<v1::EnrollDeviceResponse, Status> {
        match self.try_enroll(caller, user, request, OffsetDateTime::now_utc()).await {
            Ok(record) => Ok(v1::EnrollDeviceResponse { device: Some(record.shown()) }),
            Err(status) => {
                let event = caller.event(Code::DeviceRefused).message(status.message());
                self.journal.note_caused(caller, event, METHOD).await?;
                Err(status)
            }
        }
    }

    async fn try_enroll(
        &self,
        caller: &Caller,
        user: &UserName,
        request: v1::EnrollDeviceRequest,
        now: OffsetDateTime,
    ) -> Result<DeviceRecord, Status> {
        let custody = DeviceCustody::ALL.into_iter().find(|known| known.as_str() == request.custody);
        let custody = custody.ok_or_else(|| {
            Status::invalid_argument("the key of a device is in a \"file\" or in \"hardware\"")
        })?;
        if custody == DeviceCustody::File && !self.takes_file_keys() {
            return Err(Status::failed_precondition(NO_FILE_KEYS));
        }
        if request.public_key.len() > KEY_BYTES {
            return Err(Status::invalid_argument("this is no public key of a device: it is too long"));
        }
        let key = PublicKey::from_spki_der(&request.public_key)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let challenge = self.challenges.check(&request.challenge, now).ok_or_else(|| {
            Status::failed_precondition(
                "what the device has signed is over, or not of this authority: do it again",
            )
        })?;
        DeviceAct::Enroll { user, custody, token: &request.token }
            .verify(&key, self.config.cluster.as_str(), &request.challenge, &request.signature)
            .map_err(|error| {
                Status::permission_denied(format!("the device does not prove its key: {error}"))
            })?;

        // The user is not removed, and no other of the name made, meanwhile; and of a user's calls at once each sees the devices that the
        // ones before have enrolled, so that no more are than may be.
        let _changing = self.identities.change().await;
        if self.identities.user(user).is_none() {
            return Err(Status::permission_denied(format!("there is no user {user} any more")));
        }
        // A reset or a lock that came while this call waited has voided what was there: this comes after it.
        if let Some(identity) = caller.identity() {
            let cache = self.policy.cache();
            if let Some(refusal) = cache.policies.locked_out(identity, &cache.locks, now) {
                return Err(Status::permission_denied(refusal.public_message()));
            }
        }
        let own = self.of_user(user, now).await?;
        let pending = own.iter().filter(|device| device.value.state == DeviceState::Pending).count();
        if own.len() >= MOST_DEVICES {
            return Err(Status::resource_exhausted(format!(
                "{user} has {MOST_DEVICES} devices: ask an administrator to remove those that are not used any more"
            )));
        }
        if request.token.is_empty() && pending >= MOST_PENDING {
            return Err(Status::resource_exhausted(format!(
                "{pending} devices of {user} wait for an administrator already: ask for them to be admitted or removed"
            )));
        }
        let token = match request.token.as_str() {
            "" => None,
            text => Some(self.token(text, user, custody, now).await?),
        };
        let mut users = match &token {
            Some(token) if !token.value.users.is_empty() => token.value.users.clone(),
            _ => vec![user.clone()],
        };
        // Who was removed since the token was made does not have the device, nor does another who gets the name later.
        users.retain(|name| self.identities.user(name).is_some());
        if users.is_empty() {
            return Err(Status::permission_denied(BAD_TOKEN));
        }
        let record = DeviceRecord {
            id: DeviceId::new(),
            public_key: data_encoding::BASE64.encode(&key.spki_der()),
            custody,
            users,
            state: if token.is_some() { DeviceState::Enrolled } else { DeviceState::Pending },
            name: said(&request.name),
            os: said(&request.os),
            serial: said(&request.serial),
            enrolled: now,
            enrolled_by: user.clone(),
            login: caller.identity().map(|identity| identity.login_id),
            last: None,
        };
        let mut steps = vec![
            challenge.spent().map_err(failed)?,
            typed::create(&record.id.to_string(), &record, None).map_err(failed)?,
        ];
        steps.extend(index::written(None, &record).map_err(failed)?);
        steps.extend(token.as_ref().map(used));
        self.store.backend().transact(steps, now).await.map_err(|error| match &error {
            error if Good::was_used(error) => {
                Status::permission_denied("what the device has signed was used already: do it again")
            }
            // Of two devices with one token, the other came first.
            StoreError::NotFound { key } | StoreError::Conflict { key, .. } if is_token(key) => {
                Status::permission_denied(BAD_TOKEN)
            }
            _ => failed(error),
        })?;
        let event = match &token {
            Some(token) => caller.event(Code::DeviceEnrolled).field("token", token.name.clone()),
            None => caller.event(Code::DeviceAsked),
        };
        self.journal.record(vec![told(event, &record)]).await?;
        Ok(record)
    }

    /// A token that is good for this user and this device. It is spent with [`used`].
    async fn token(
        &self,
        text: &str,
        user: &UserName,
        custody: DeviceCustody,
        now: OffsetDateTime,
    ) -> Result<Stored<DeviceTokenRecord>, Status> {
        let bad = || Status::permission_denied(BAD_TOKEN);
        let name =
            text.get(..TOKEN_NAME).filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let name = name.ok_or_else(bad)?;
        let stored = self.store.get::<DeviceTokenRecord>(name, now).await.map_err(failed)?.ok_or_else(bad)?;
        let token = &stored.value;
        if !constant_time_eq(token.hash.as_bytes(), hash_of(text).as_bytes()) || token.expires <= now {
            return Err(bad());
        }
        if !token.users.is_empty() && !token.users.contains(user) {
            return Err(Status::permission_denied(format!(
                "this token is for devices of other users than {user}; ask an administrator for one of yours"
            )));
        }
        if token.hardware && custody != DeviceCustody::Hardware {
            return Err(Status::failed_precondition(
                "this token is for a device with its key in hardware: sallyport device enroll --module PATH",
            ));
        }
        Ok(stored)
    }
}

fn used(token: &Stored<DeviceTokenRecord>) -> Op {
    typed::delete::<DeviceTokenRecord>(&token.name, Some(token.revision))
}

fn is_token(key: &str) -> bool {
    key.strip_prefix(DeviceTokenRecord::KIND).is_some_and(|rest| rest.starts_with('/'))
}
