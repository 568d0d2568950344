//! The accounts of users: what they prove themselves with, and what is wrong with that.

use std::sync::Arc;

use sallyport_access::UserName;
use sallyport_audit::Code;
use sallyport_store::{Store, StoreError};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::authority::accounts::passwords::{LOCKOUT, MOST_FAILURES, Pool};
use crate::authority::accounts::rules::Rules;
use crate::authority::accounts::turns::Turns;
use crate::authority::audit::journal::Journal;
use crate::authority::caller::Caller;
use crate::authority::config::AuthConfig;
use crate::authority::devices::kept::{Devices, NotFrom};
use crate::authority::factors::kept::Factors;
use crate::authority::gate::delegation::Delegation;
use crate::authority::gate::guesses::{FAILURE_WINDOW, Guesses};
use crate::authority::identities::known::Identities;
use crate::authority::identities::logins::Logins;
use crate::authority::issuance::in_force::Issuance;
use crate::authority::issuance::list::IssuedList;
use crate::authority::policy::Policy;
use crate::authority::records::{CredentialRecord, UnknownRecord};
use crate::authority::scim::provisioning::Provisioning;
use crate::authority::storage::storage;
use crate::config::SecondFactor;

/// Why an address that failed too often is refused, in the log.
pub(super) const BARRED: &str = "too many failures from one address";
pub(super) const WRONG: &str = "wrong user name, password or one-time code";

/// Whose login it is: of a user, or with a name that no user has, by its hash.
pub(crate) enum Account<'a> {
    Known(&'a UserName),
    Unknown(String),
}

/// Why a login fails: what the person reads, and what the log says.
pub(crate) struct LoginRefusal {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
    pub(crate) locked_out: bool,
}

impl From<Status> for LoginRefusal {
    fn from(status: Status) -> Self {
        Self { status, reason: "not decided", locked_out: false }
    }
}

impl From<NotFrom> for LoginRefusal {
    fn from(NotFrom { status, reason }: NotFrom) -> Self {
        Self { status, reason, locked_out: false }
    }
}

pub(super) fn refusal(status: Status, reason: &'static str) -> LoginRefusal {
    LoginRefusal { status, reason, locked_out: false }
}

/// The accounts of users: made, logged in to, changed and removed.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(super) config: Arc<AuthConfig>,
    pub(super) store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) delegation: Arc<Delegation>,
    pub(super) guesses: Arc<Guesses>,
    pub(super) policy: Arc<Policy>,
    pub(super) identities: Arc<Identities>,
    pub(super) logins: Arc<Logins>,
    pub(super) provisioning: Arc<Provisioning>,
    pub(super) issuance: Arc<Issuance>,
    pub(super) issued: Arc<IssuedList>,
    pub(super) factors: Arc<Factors>,
    pub(super) devices: Arc<Devices>,
    pub(super) passwords: Pool,
    pub(super) turns: Turns,
    pub(super) rules: Rules,
    pub(super) stop: CancellationToken,
}

impl Accounts {
    #[allow(clippy::too_many_arguments, reason = "each is one that it takes")]
    pub(crate) fn new(
        config: &Arc<AuthConfig>,
        store: &Store,
        journal: &Arc<Journal>,
        delegation: &Arc<Delegation>,
        guesses: &Arc<Guesses>,
        policy: &Arc<Policy>,
        identities: &Arc<Identities>,
        logins: &Arc<Logins>,
        provisioning: &Arc<Provisioning>,
        issuance: &Arc<Issuance>,
        issued: &Arc<IssuedList>,
        factors: &Arc<Factors>,
        devices: &Arc<Devices>,
        passwords: Pool,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            store: store.clone(),
            journal: Arc::clone(journal),
            delegation: Arc::clone(delegation),
            guesses: Arc::clone(guesses),
            policy: Arc::clone(policy),
            identities: Arc::clone(identities),
            logins: Arc::clone(logins),
            provisioning: Arc::clone(provisioning),
            issuance: Arc::clone(issuance),
            issued: Arc::clone(issued),
            factors: Arc::clone(factors),
            devices: Arc::clone(devices),
            passwords,
            turns: Turns::default(),
            rules: Rules::of(&config.authentication.passwords),
            stop: stop.clone(),
        })
    }

    /// The logins of users.
    pub(crate) fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Where passwords are hashed.
    #[cfg(test)]
    pub(crate) fn passwords(&self) -> &Pool {
        &self.passwords
    }

    /// The devices that logins come from.
    pub(crate) fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// What users prove themselves with.
    #[cfg(test)]
    pub(crate) fn factors(&self) -> &Factors {
        &self.factors
    }

    pub(crate) fn second_factor_word(&self) -> &'static str {
        match self.config.second_factor {
            SecondFactor::Required => "required",
            SecondFactor::Optional => "optional",
        }
    }

    /// Puts a failed login on record; gives the answer.
    pub(crate) async fn login_failed(
        &self,
        caller: &Caller,
        asked: &str,
        refusal: LoginRefusal,
    ) -> Result<Status, Status> {
        let LoginRefusal { status, reason, locked_out } = refusal;
        let event = |code| caller.event(code).user(asked).message(reason);
        // Of an address that is barred it does not matter whom it asks for.
        let what = if reason == BARRED { "" } else { asked };
        self.journal.note_caused(caller, event(Code::UserLoginFailed), what).await?;
        if locked_out {
            self.journal.record(vec![event(Code::UserLockedOut)]).await?;
        }
        Ok(status)
    }

    /// What an account proves itself with, and the revision of that; 0 where there is nothing.
    pub(super) async fn credential(
        &self,
        account: &Account<'_>,
        now: OffsetDateTime,
    ) -> Result<(CredentialRecord, u64), StoreError> {
        let found = match account {
            Account::Known(user) => {
                let stored = self.store.get::<CredentialRecord>(user.as_str(), now).await?;
                stored.map(|stored| (stored.value, stored.revision))
            }
            Account::Unknown(key) => {
                let stored = self.store.get::<UnknownRecord>(key, now).await?;
                stored.map(|stored| (stored.value.0, stored.revision))
            }
        };
        Ok(found.unwrap_or_default())
    }

    pub(crate) async fn failed_login(
        &self,
        account: &Account<'_>,
        mut credential: CredentialRecord,
        mut revision: u64,
        reason: &'static str,
        now: OffsetDateTime,
    ) -> LoginRefusal {
        // Several guesses at once must each count.
        for _ in 0..16 {
            let since = (now - FAILURE_WINDOW).unix_timestamp();
            credential.failures.retain(|time| *time > since);
            credential.failures.push(now.unix_timestamp());
            let locked_out = credential.failures.len() >= MOST_FAILURES;
            if locked_out {
                credential.failures.clear();
                credential.locked_until = Some((now + LOCKOUT).unix_timestamp());
            }
            match self.write_credential(account, &credential, revision, now).await {
                Ok(()) => {
                    return LoginRefusal { status: Status::unauthenticated(WRONG), reason, locked_out };
                }
                Err(StoreError::Conflict { .. } | StoreError::Exists { .. }) => {}
                Err(error) => return storage(&error).into(),
            }
            match self.credential(account, now).await {
                Ok(found) => (credential, revision) = found,
                Err(error) => return storage(&error).into(),
            }
        }
        refusal(Status::resource_exhausted("too many logins of this user at this moment"), "contention")
    }

    pub(super) async fn write_credential(
        &self,
        account: &Account<'_>,
        credential: &CredentialRecord,
        revision: u64,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        match (account, revision) {
            (Account::Known(user), revision) => {
                // A user who was removed meanwhile leaves nothing behind for another of the name.
                let _changing = self.identities.steady().await;
                match revision {
                    _ if self.identities.user(user).is_none() => Ok(()),
                    0 => self.store.create(user.as_str(), credential, None, now).await.map(drop),
                    revision => {
                        self.store.update(user.as_str(), revision, credential, None, now).await.map(drop)
                    }
                }
            }
            (Account::Unknown(key), revision) => {
                let record = UnknownRecord(credential.clone());
                let expires = Some(now + FAILURE_WINDOW + LOCKOUT);
                match revision {
                    0 => self.store.create(key, &record, expires, now).await.map(drop),
                    revision => self.store.update(key, revision, &record, expires, now).await.map(drop),
                }
            }
        }
    }
}

pub(crate) fn locked_out(until: i64, now: OffsetDateTime) -> Status {
    let minutes = ((until - now.unix_timestamp()).max(1) + 59) / 60;
    Status::resource_exhausted(format!(
        "too many failed logins: this account is closed for {minutes} more minutes; an administrator can open it with \
         sallyport admin users reset"
    ))
}
