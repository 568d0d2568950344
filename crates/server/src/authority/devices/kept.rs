//! The devices that there are, and their word at a login.

use std::sync::Arc;

use sallyport_access::{Device, DeviceCustody, DeviceId, UserName};
use sallyport_ca::DeviceAct;
use sallyport_sal::PublicKey;
use sallyport_store::{Op, Store, StoreError, Stored, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::challenges::Challenger;
use super::index;
use super::records::{DeviceRecord, DeviceState, Seen};
use super::voiding::{removal, tokens_of};
use crate::ServerError;
use crate::authority::audit::journal::Journal;
use crate::authority::config::AuthConfig;
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::policy::Policy;
use crate::authority::storage::{every, storage};

/// What a device is told whose word does not count. Which of the reasons it is a stranger does not learn.
const NOT_TRUSTED: &str = "this device is not enrolled in the cluster, or its signature is not over this call: enroll it anew with \
     sallyport device enroll, or log in without it: sallyport login --no-device";
const OVER: &str =
    "what the device has signed is over, or not of this authority; do it again: sallyport login";
pub(super) const NO_FILE_KEYS: &str = "this cluster takes no device whose key is in a file (auth.authentication.devices.allow_file_keys): \
     enroll this one with its key in hardware, sallyport device enroll --module PATH";

pub(super) fn failed(error: StoreError) -> Status {
    storage(&error)
}

/// Trusted devices.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    pub(super) challenges: Challenger,
}

/// A device that has signed for a call, whichever user's it is.
#[derive(Debug, Clone)]
pub(crate) struct Word {
    pub(crate) device: DeviceId,
    /// The step that uses its signature; none where that was done before.
    pub(crate) spent: Option<Op>,
}

/// Why a login does not come from the device that it names.
pub(crate) struct NotFrom {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
}

impl Devices {
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
    ) -> Result<Arc<Self>, ServerError> {
        Ok(Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            challenges: Challenger::new()?,
        }))
    }

    /// What a device signs.
    pub(crate) fn challenge(&self, now: OffsetDateTime) -> Result<v1::DeviceChallengeResponse, Status> {
        let challenge = self.challenges.make(now).map_err(|error| Status::internal(error.to_string()))?;
        Ok(v1::DeviceChallengeResponse { challenge: challenge.into() })
    }

    /// A device's word for a call, checked. Nothing is spent yet, and whose device it is was not asked.
    pub(crate) async fn heard<'a>(
        &self,
        proof: Option<&v1::DeviceProof>,
        act: impl FnOnce(DeviceId) -> DeviceAct<'a> + Send,
        now: OffsetDateTime,
    ) -> Result<Option<Word>, NotFrom> {
        let Some(proof) = proof else { return Ok(None) };
        let refused = |reason| NotFrom { status: Status::permission_denied(NOT_TRUSTED), reason };
        let challenge = self.challenges.check(&proof.challenge, now).ok_or_else(|| NotFrom {
            status: Status::failed_precondition(OVER),
            reason: "a device's challenge is over or a stranger's",
        })?;
        let device: DeviceId = proof.device.parse().map_err(|_| refused("an unknown device"))?;
        let stored = self.one(device, now).await?.ok_or_else(|| refused("an unknown device"))?;
        let key = data_encoding::BASE64.decode(stored.value.public_key.as_bytes()).unwrap_or_default();
        let key = PublicKey::from_spki_der(&key)
            .map_err(|error| NotFrom::from(Status::internal(error.to_string())))?;
        act(device)
            .verify(&key, self.config.cluster.as_str(), &proof.challenge, &proof.signature)
            .map_err(|_| refused("a device's signature is not over this call"))?;
        let spent = challenge.spent().map_err(|error| NotFrom::from(failed(error)))?;
        Ok(Some(Word { device, spent: Some(spent) }))
    }

    /// A device as a user's login comes from it, and the step that notes it: it fails where the device is changed or removed meanwhile.
    /// Custody is what is on record, whatever the program says.
    pub(crate) async fn admit(
        &self,
        device: DeviceId,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<(Device, Op), NotFrom> {
        let refused = |text: String, reason| NotFrom { status: Status::permission_denied(text), reason };
        let stored = self.one(device, now).await?;
        let Some(Stored { value: mut record, revision, .. }) = stored else {
            return Err(refused(NOT_TRUSTED.to_owned(), "the device was removed"));
        };
        if !record.belongs_to(user) {
            let text = format!(
                "this device is not one of {user}'s: ask an administrator to say that it is (sallyport admin devices assign {device}), or \
                 log in without it: sallyport login --no-device"
            );
            return Err(refused(text, "a device of another user"));
        }
        if record.state == DeviceState::Pending {
            let text = format!(
                "this device waits for an administrator to admit it (sallyport admin devices assign {device}); until then, log in \
                 without it: sallyport login --no-device"
            );
            return Err(refused(text, "the device is not admitted yet"));
        }
        if record.custody == DeviceCustody::File && !self.takes_file_keys() {
            return Err(refused(NO_FILE_KEYS.to_owned(), "the device's key is in a file"));
        }
        record.last = Some(Seen { at: now, user: user.clone() });
        let seen = typed::update(&device.to_string(), revision, &record, None);
        Ok((record.device(), seen.map_err(|error| NotFrom::from(failed(error)))?))
    }

    /// A device as a login of the user would come from it. Nothing is noted of it.
    ///
    /// # Errors
    /// There is no such device, or no login of the user from it would be taken.
    pub(crate) async fn would_be(
        &self,
        device: DeviceId,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<Device, Status> {
        if self.one(device, now).await?.is_none() {
            let text = format!("there is no device {device}; see: sallyport admin devices ls");
            return Err(Status::not_found(text));
        }
        match self.admit(device, user, now).await {
            Ok((device, _)) => Ok(device),
            Err(not) => Err(Status::failed_precondition(format!(
                "no login would come from it: {}",
                not.status.message()
            ))),
        }
    }

    pub(super) fn takes_file_keys(&self) -> bool {
        self.config.authentication.devices.allow_file_keys
    }

    pub(crate) async fn one(
        &self,
        id: DeviceId,
        now: OffsetDateTime,
    ) -> Result<Option<Stored<DeviceRecord>>, Status> {
        self.store.get::<DeviceRecord>(&id.to_string(), now).await.map_err(failed)
    }

    pub(super) async fn all(&self, now: OffsetDateTime) -> Result<Vec<Stored<DeviceRecord>>, Status> {
        every::<DeviceRecord>(&self.store, now).await.map_err(failed)
    }

    pub(super) async fn of_user(
        &self,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<Vec<Stored<DeviceRecord>>, Status> {
        let mut own = index::of(&self.store, user, now).await.map_err(failed)?;
        own.retain(|device| device.value.belongs_to(user));
        Ok(own)
    }

    /// Steps that take a user off their devices and off the tokens for them: what is of no other user is removed. The caller keeps users
    /// as they are.
    pub(crate) async fn nothing_of(&self, user: &UserName, now: OffsetDateTime) -> Result<Vec<Op>, Status> {
        let mut steps = tokens_of(&self.store, user, now).await.map_err(failed)?.0;
        for device in self.of_user(user, now).await? {
            let mut left = device.value.clone();
            left.users.retain(|other| other != user);
            if left.users.is_empty() {
                steps.extend(removal(&device).map_err(failed)?);
            } else {
                steps.push(typed::update(&device.name, device.revision, &left, None).map_err(failed)?);
                steps.extend(index::written(Some(&device.value), &left).map_err(failed)?);
            }
        }
        Ok(steps)
    }
}

impl From<Status> for NotFrom {
    fn from(status: Status) -> Self {
        Self { status, reason: "not decided" }
    }
}
