//! The factors of users, read and changed.

use std::sync::Arc;

use data_encoding::{BASE64, HEXLOWER};
use sallyport_access::{SessionFactor, UserName};
use sallyport_sal::custody::SealingKey;
use sallyport_sal::{hash, totp};
use sallyport_store::{Op, Store, StoreError, Stored, typed};
use sallyport_webauthn::{Credential, RelyingParty, UserHandle};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;

use crate::ServerError;
use crate::authority::config::AuthConfig;
use crate::authority::factors::names::FactorName;
use crate::authority::factors::passkeys::{passkeys_off, relying_party};
use crate::authority::factors::records::{
    FactorRecord, FactorSecret, FactorSetRecord, PasskeyRecord, RecoveryRecord,
};
use crate::authority::factors::recovery::CODES;
use crate::authority::storage::{removed, storage};

/// Most factors of a user.
pub(crate) const MOST: usize = 20;
/// More than there are of one user.
const ALL: usize = 2 * MOST;
/// What one-time codes are called whose user gave them no name.
pub(crate) const CODES_NAME: &str = "one-time codes";

/// What a user proves themselves with besides a password.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) factors: Vec<Stored<FactorRecord>>,
    pub(crate) recovery: Option<Stored<RecoveryRecord>>,
    /// Written by the next change; none before the first.
    pub(crate) set: Option<Stored<FactorSetRecord>>,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.factors.is_empty()
    }

    /// The passkeys.
    pub(crate) fn credentials(&self) -> Vec<Credential> {
        self.factors.iter().filter_map(|factor| factor.value.credential().cloned()).collect()
    }

    /// The passkeys that are worth this.
    pub(crate) fn credentials_worth(&self, wants: SessionFactor) -> Vec<Credential> {
        let worth = self.factors.iter().filter(|factor| factor.value.worth() >= wants);
        worth.filter_map(|factor| factor.value.credential().cloned()).collect()
    }

    /// Whether one-time or recovery codes prove the user.
    pub(crate) fn has_codes(&self) -> bool {
        let totp = self.factors.iter().any(|factor| factor.value.credential().is_none());
        totp || self.recovery_left() > 0
    }

    pub(crate) fn recovery_left(&self) -> usize {
        let codes = self.recovery.as_ref().map(|stored| stored.value.codes.iter().flatten().count());
        codes.unwrap_or_default()
    }

    pub(crate) fn of_id(&self, id: Uuid) -> Option<&Stored<FactorRecord>> {
        self.factors.iter().find(|factor| factor.value.id == id)
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.factors.iter().any(|factor| factor.value.name.as_str() == name)
    }

    /// Whether one more of this name can be added.
    pub(crate) fn has_room_for(&self, name: &FactorName) -> Result<(), Status> {
        if self.factors.len() >= MOST {
            return Err(Status::resource_exhausted(format!(
                "you have {MOST} factors, and more are not kept; remove one first: sallyport mfa ls"
            )));
        }
        if self.has_name(name.as_str()) {
            return Err(Status::already_exists(format!(
                "you have a factor {:?} already; give another name, or remove that one first: sallyport mfa rm",
                name.as_str()
            )));
        }
        Ok(())
    }
}

/// The factors of all users.
#[derive(Debug)]
pub(crate) struct Factors {
    store: Store,
    seal: Arc<SealingKey>,
    party: Option<RelyingParty>,
}

pub(crate) fn totp_label(user: &UserName) -> String {
    format!("totp/{user}")
}

fn failed(error: StoreError) -> Status {
    storage(&error)
}

fn passkey_key(credential_id: &[u8]) -> String {
    HEXLOWER.encode(&hash::sha256(credential_id))
}

impl Factors {
    /// # Errors
    /// What is configured of passkeys cannot be used.
    pub(crate) fn new(
        config: &AuthConfig,
        store: &Store,
        seal: &Arc<SealingKey>,
    ) -> Result<Arc<Self>, ServerError> {
        let webauthn = config.authentication.webauthn.as_ref();
        let party = webauthn.map(|section| relying_party(&config.cluster, section)).transpose()?;
        Ok(Arc::new(Self { store: store.clone(), seal: Arc::clone(seal), party }))
    }

    /// The cluster as a relying party, where passkeys are on.
    pub(crate) fn passkeys(&self) -> Option<&RelyingParty> {
        self.party.as_ref()
    }

    /// The same, or what people read where they are off.
    pub(crate) fn party(&self) -> Result<&RelyingParty, Status> {
        self.party.as_ref().ok_or_else(passkeys_off)
    }

    /// The origins at which passkeys work.
    pub(crate) fn origins(&self) -> Vec<String> {
        let origins = self.party.as_ref().map(RelyingParty::origins).unwrap_or_default();
        origins.iter().map(|origin| origin.as_str().to_owned()).collect()
    }

    pub(crate) async fn held(&self, user: &UserName, now: OffsetDateTime) -> Result<Held, Status> {
        Ok(Held {
            factors: self.store.list_below(user.as_str(), None, ALL, now).await.map_err(failed)?,
            recovery: self.store.get(user.as_str(), now).await.map_err(failed)?,
            set: self.store.get(user.as_str(), now).await.map_err(failed)?,
        })
    }

    /// The passkey of a credential ID, of whichever user.
    pub(crate) async fn passkey(
        &self,
        credential_id: &[u8],
        now: OffsetDateTime,
    ) -> Result<Option<(UserName, Stored<FactorRecord>)>, Status> {
        let index =
            self.store.get::<PasskeyRecord>(&passkey_key(credential_id), now).await.map_err(failed)?;
        let Some(PasskeyRecord { user, factor }) = index.map(|stored| stored.value) else { return Ok(None) };
        let key = FactorRecord::key(&user, factor);
        let record = self.store.get::<FactorRecord>(&key, now).await.map_err(failed)?;
        Ok(record.map(|record| (user, record)))
    }

    /// The user's name to authenticators, made when it is first asked for.
    pub(crate) async fn handle(&self, user: &UserName, now: OffsetDateTime) -> Result<UserHandle, Status> {
        loop {
            if let Some(set) = self.store.get::<FactorSetRecord>(user.as_str(), now).await.map_err(failed)? {
                return Ok(set.value.handle);
            }
            let handle = fresh_handle()?;
            let set = FactorSetRecord { handle: handle.clone(), changes: 0 };
            match self.store.create(user.as_str(), &set, None, now).await {
                Ok(_) => return Ok(handle),
                // Another call has made one meanwhile.
                Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// The step that each change of a user's factors takes: of two at a time, the second finds it done.
    fn changed(user: &UserName, held: &Held) -> Result<Op, Status> {
        let name = user.as_str();
        let step = match &held.set {
            Some(Stored { value, revision, .. }) => {
                let next =
                    FactorSetRecord { handle: value.handle.clone(), changes: value.changes.wrapping_add(1) };
                typed::update(name, *revision, &next, None)
            }
            None => typed::create(name, &FactorSetRecord { handle: fresh_handle()?, changes: 1 }, None),
        };
        step.map_err(failed)
    }

    /// The steps that add a factor.
    pub(crate) fn added(user: &UserName, held: &Held, factor: &FactorRecord) -> Result<Vec<Op>, Status> {
        held.has_room_for(&factor.name)?;
        let mut steps = vec![
            Self::changed(user, held)?,
            typed::create(&FactorRecord::key(user, factor.id), factor, None).map_err(failed)?,
        ];
        if let Some(credential) = factor.credential() {
            let index = PasskeyRecord { user: user.clone(), factor: factor.id };
            steps.push(typed::create(&passkey_key(credential.id.as_slice()), &index, None).map_err(failed)?);
        }
        Ok(steps)
    }

    /// The steps that remove a factor; with the last one, the recovery codes go, which stand in for others.
    pub(crate) fn removed(
        user: &UserName,
        held: &Held,
        factor: &Stored<FactorRecord>,
    ) -> Result<Vec<Op>, Status> {
        let mut steps = vec![
            Self::changed(user, held)?,
            typed::delete::<FactorRecord>(&FactorRecord::key(user, factor.value.id), None),
        ];
        if let Some(credential) = factor.value.credential() {
            steps.push(typed::delete::<PasskeyRecord>(&passkey_key(credential.id.as_slice()), None));
        }
        if held.factors.len() == 1 && held.recovery.is_some() {
            steps.push(typed::delete::<RecoveryRecord>(user.as_str(), None));
        }
        Ok(steps)
    }

    /// The steps that put new recovery codes in the place of those that there are.
    pub(crate) fn recovered(
        user: &UserName,
        held: &Held,
        hashes: Vec<String>,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, Status> {
        debug_assert_eq!(hashes.len(), CODES);
        let record = RecoveryRecord { codes: hashes.into_iter().map(Some).collect(), made: now };
        Ok(vec![Self::changed(user, held)?, typed::put(user.as_str(), &record, None).map_err(failed)?])
    }

    /// The steps that void recovery codes, whether there are any or not.
    pub(crate) fn no_recovery(user: &UserName, now: OffsetDateTime) -> Result<[Op; 2], Status> {
        removed(user.as_str(), &RecoveryRecord { codes: Vec::new(), made: now }).map_err(failed)
    }

    /// The step that puts a factor in the place of what it was.
    pub(crate) fn used(
        user: &UserName,
        before: &Stored<FactorRecord>,
        after: &FactorRecord,
    ) -> Result<Op, Status> {
        let key = FactorRecord::key(user, before.value.id);
        typed::update(&key, before.revision, after, None).map_err(failed)
    }

    /// The step that spends a recovery code.
    pub(crate) fn spent(
        user: &UserName,
        stored: &Stored<RecoveryRecord>,
        index: usize,
    ) -> Result<Op, Status> {
        let mut record = stored.value.clone();
        if let Some(code) = record.codes.get_mut(index) {
            *code = None;
        }
        typed::update(user.as_str(), stored.revision, &record, None).map_err(failed)
    }

    /// The steps that remove everything of a user, and how many factors that are.
    pub(crate) async fn nothing_of(
        &self,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<(Vec<Op>, usize), Status> {
        let held = self.held(user, now).await?;
        let mut steps = Vec::new();
        for factor in &held.factors {
            steps.extend(removed(&FactorRecord::key(user, factor.value.id), &factor.value).map_err(failed)?);
            if let Some(credential) = factor.value.credential() {
                let index = PasskeyRecord { user: user.clone(), factor: factor.value.id };
                steps.extend(removed(&passkey_key(credential.id.as_slice()), &index).map_err(failed)?);
            }
        }
        steps.extend(Self::no_recovery(user, now)?);
        if let Some(set) = &held.set {
            steps.extend(removed(user.as_str(), &set.value).map_err(failed)?);
        }
        Ok((steps, held.factors.len()))
    }

    pub(crate) fn seal_totp(&self, user: &UserName, secret: &totp::Secret) -> Result<String, Status> {
        let sealed = self.seal.seal(&totp_label(user), secret.as_bytes());
        sealed.map(|sealed| BASE64.encode(&sealed)).map_err(|error| Status::internal(error.to_string()))
    }

    pub(crate) fn unseal_totp(&self, user: &UserName, sealed: &str) -> Result<totp::Secret, Status> {
        let broken =
            |_| Status::internal("the second factor cannot be read; ask an administrator for a reset link");
        let sealed = BASE64.decode(sealed.as_bytes()).map_err(|_| broken(()))?;
        let bytes = self.seal.unseal(&totp_label(user), &sealed).map_err(|_| broken(()))?;
        totp::Secret::from_bytes(&bytes).map_err(|_| broken(()))
    }
}

fn fresh_handle() -> Result<UserHandle, Status> {
    UserHandle::random().map_err(|error| Status::internal(error.to_string()))
}

/// One-time codes, as a factor.
pub(crate) fn codes(
    name: FactorName,
    sealed: String,
    last_step: Option<u64>,
    last_used: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> FactorRecord {
    FactorRecord {
        id: Uuid::new_v4(),
        name,
        created: now,
        last_used,
        counter_went_back: None,
        secret: FactorSecret::Totp { sealed, last_step },
    }
}

/// A passkey, as a factor.
pub(crate) fn passkey(name: FactorName, credential: Credential, now: OffsetDateTime) -> FactorRecord {
    FactorRecord {
        id: Uuid::new_v4(),
        name,
        created: now,
        last_used: None,
        counter_went_back: None,
        secret: FactorSecret::Webauthn { credential },
    }
}
