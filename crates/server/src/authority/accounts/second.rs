//! The second factor of a password, and what proves a user who is logged in: a one-time code or a recovery code.

use std::time::Duration;

use sallyport_access::UserName;
use sallyport_audit::{Code, Event};
use sallyport_store::{Op, StoreError, Stored, typed};
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::login::{Account, Accounts, LoginRefusal, WRONG, locked_out, refusal};
use crate::authority::accounts::means::{Means, UsedFactor, Way};
use crate::authority::caller::Caller;
use crate::authority::factors::kept::{CODES_NAME, Factors, Held, codes};
use crate::authority::factors::names::FactorName;
use crate::authority::factors::records::{FactorRecord, FactorSecret, RecoveryRecord};
use crate::authority::factors::recovery::RecoveryCode;
use crate::authority::records::CredentialRecord;
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;

/// How often a user's record is read again that others change at the same moment.
const AGAIN: usize = 16;

/// What is wrong with the code of a login.
pub(super) enum WrongCode {
    Missing,
    Wrong,
    /// It was right, and is used; how long it takes until the next one comes.
    Used(Duration),
    /// The authority cannot read the account's second factor.
    Unreadable,
    /// The user has passkeys, and no code was given that could stand in for one.
    PasskeysAlone,
    /// There is no thread for the hash of a recovery code.
    Busy(Status),
}

impl WrongCode {
    /// For the log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "no one-time code",
            Self::Wrong => "wrong one-time code",
            Self::Used(_) => "used one-time code",
            Self::Unreadable => "the second factor cannot be read",
            Self::PasskeysAlone => "a password alone of a user with passkeys",
            Self::Busy(_) => "too many logins at once",
        }
    }

    /// What may be read by a person who has given the right password, besides that something was wrong.
    pub(super) fn told(&self) -> Option<Status> {
        match self {
            Self::Used(left) => Some(Status::unauthenticated(format!(
                "this one-time code was used already; log in with the next one, which comes in {} s",
                left.as_secs()
            ))),
            Self::PasskeysAlone => Some(Status::unauthenticated(
                "you log in with a passkey: sallyport login --browser. Without it, give one of your recovery codes as the one-time code",
            )),
            Self::Missing | Self::Wrong | Self::Unreadable | Self::Busy(_) => None,
        }
    }
}

/// A code that was right, and what it is of.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each proof, on its way to the store")]
pub(crate) enum SpentCode {
    Totp { factor: Stored<FactorRecord>, step: u64 },
    Recovery { stored: Stored<RecoveryRecord>, index: usize },
}

impl SpentCode {
    /// The step that spends it.
    pub(crate) fn step(&self, user: &UserName, now: OffsetDateTime) -> Result<Op, Status> {
        match self {
            Self::Totp { factor, step } => {
                let mut after = factor.value.clone();
                after.last_used = Some(now);
                if let FactorSecret::Totp { last_step, .. } = &mut after.secret {
                    *last_step = Some(*step);
                }
                Factors::used(user, factor, &after)
            }
            Self::Recovery { stored, index } => Factors::spent(user, stored, *index),
        }
    }

    /// The event of a recovery code that was used; none of a one-time code.
    pub(crate) fn recovery_used(&self, caller: &Caller, user: &UserName) -> Option<Event> {
        let Self::Recovery { stored, .. } = self else { return None };
        let left = stored.value.codes.iter().flatten().count().saturating_sub(1);
        Some(caller.event(Code::RecoveryCodeUsed).user(user.as_str()).field("left", left))
    }

    /// By what a user is proven with it.
    pub(crate) fn means(&self) -> Means {
        match self {
            Self::Totp { factor, .. } => {
                Means { factor: Some(UsedFactor::of(&factor.value)), ..Means::by(Way::Code, true) }
            }
            Self::Recovery { .. } => Means::by(Way::RecoveryCode, true),
        }
    }
}

/// A user who is logged in and has proven a code: what it spends.
#[derive(Debug)]
pub(crate) struct ProvenCode {
    pub(crate) code: SpentCode,
    /// As it was when the code was checked.
    credential: CredentialRecord,
}

fn changed_meanwhile() -> LoginRefusal {
    refusal(Status::unauthenticated(WRONG), "the password changed meanwhile")
}

/// The step that forgets the failures that a proof has found, in the credential as it is stored now; none where it found none: wrong
/// guesses of others come at any moment, and their record is no reason to refuse what is right.
fn forgiven(
    user: &UserName,
    found: &CredentialRecord,
    (stored, revision): (CredentialRecord, u64),
) -> Result<Vec<Op>, LoginRefusal> {
    if found.failures.is_empty() && found.locked_until.is_none() {
        return Ok(Vec::new());
    }
    let forgiven = CredentialRecord { failures: Vec::new(), locked_until: None, ..stored };
    let step = typed::update(user.as_str(), revision, &forgiven, None);
    Ok(vec![step.map_err(|error| storage(&error))?])
}

impl Accounts {
    /// The code, as far as the user has one to give; none where the user has no factor.
    pub(super) async fn check_code(
        &self,
        user: &UserName,
        held: &Held,
        otp: &str,
        now: OffsetDateTime,
    ) -> Result<Option<SpentCode>, WrongCode> {
        if let Some(code) = RecoveryCode::parse(otp) {
            // Without a hash to check it takes as long.
            let stored = held.recovery.clone().filter(|_| !held.is_empty());
            let hash =
                stored.as_ref().and_then(|stored| stored.value.codes.get(code.index).cloned().flatten());
            let right = self.passwords.verify(code.secret, hash).await.map_err(WrongCode::Busy)?;
            return match stored {
                Some(stored) if right => Ok(Some(SpentCode::Recovery { stored, index: code.index })),
                _ if held.is_empty() => Ok(None),
                _ => Err(WrongCode::Wrong),
            };
        }
        if held.is_empty() {
            return Ok(None);
        }
        let (mut used, mut secrets) = (None, 0);
        for factor in &held.factors {
            let FactorSecret::Totp { sealed, last_step } = &factor.value.secret else { continue };
            secrets += 1;
            let secret = self.factors.unseal_totp(user, sealed).map_err(|_| WrongCode::Unreadable)?;
            // Both are asked whatever the password is, so that the time that it takes says nothing of it.
            let step = secret.verify(otp, now, *last_step);
            used = used.or(secret.until_unused(otp, now, *last_step));
            if let Some(step) = step {
                return Ok(Some(SpentCode::Totp { factor: factor.clone(), step }));
            }
        }
        Err(match used {
            Some(left) => WrongCode::Used(left),
            None if secrets == 0 => WrongCode::PasskeysAlone,
            None if otp.trim().is_empty() => WrongCode::Missing,
            None => WrongCode::Wrong,
        })
    }

    /// The steps that spend a password that was proven by this credential, and the code with it, and forget failures. The caller holds what
    /// `Identities::steady` gives.
    pub(crate) async fn spend_password(
        &self,
        user: &UserName,
        credential: &CredentialRecord,
        (password, code): (&Zeroizing<String>, Option<&SpentCode>),
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, LoginRefusal> {
        let (stored, revision) = self.open_credential(user, now).await?;
        // Another login of the user may have stored a stronger hash of the same password.
        if stored.password != credential.password
            && !self.passwords.verify(password.clone(), stored.password.clone()).await?
        {
            return Err(changed_meanwhile());
        }
        let mut steps = forgiven(user, credential, (stored, revision))?;
        if let Some(code) = code {
            steps.push(code.step(user, now)?);
        }
        Ok(steps)
    }

    /// Checks a one-time or recovery code of a user who is known already. A wrong one counts for the account as a wrong password
    /// does.
    pub(crate) async fn prove_code(
        &self,
        user: &UserName,
        otp: &str,
        now: OffsetDateTime,
    ) -> Result<ProvenCode, LoginRefusal> {
        let account = Account::Known(user);
        self.take_over_codes(user, now).await?;
        let _turn = self.turns.take(&hash_of(user.as_str())).await?;
        let (credential, revision) = self.open_credential(user, now).await?;
        let held = self.factors.held(user, now).await?;
        let wrong = match self.check_code(user, &held, otp, now).await {
            Ok(Some(code)) => return Ok(ProvenCode { code, credential }),
            Err(WrongCode::Busy(status)) => return Err(status.into()),
            Ok(None) => WrongCode::Missing,
            Err(wrong) => wrong,
        };
        let told = match &wrong {
            WrongCode::PasskeysAlone => None,
            other => other.told(),
        };
        let mut refusal = self.failed_login(&account, credential, revision, wrong.reason(), now).await;
        if refusal.status.code() == tonic::Code::Unauthenticated {
            refusal.status = told.unwrap_or_else(|| {
                Status::unauthenticated("the one-time or recovery code is wrong; try the next one")
            });
        }
        Err(refusal)
    }

    /// The steps that spend a code that was proven, and forget failures. The caller holds what `Identities::steady` gives.
    pub(crate) async fn spend_code(
        &self,
        user: &UserName,
        proven: &ProvenCode,
        now: OffsetDateTime,
    ) -> Result<Vec<Op>, LoginRefusal> {
        let (stored, revision) = self.open_credential(user, now).await?;
        // A code goes with the password beside which it was proven.
        if stored.password != proven.credential.password {
            return Err(changed_meanwhile());
        }
        let mut steps = forgiven(user, &proven.credential, (stored, revision))?;
        steps.push(proven.code.step(user, now)?);
        Ok(steps)
    }

    /// Hashes a secret as passwords are.
    pub(crate) async fn hash(&self, secret: zeroize::Zeroizing<String>) -> Result<String, Status> {
        self.passwords.hash(secret).await
    }

    /// Checks the password of a user who is known already, and has no factor.
    pub(crate) async fn prove_password_alone(
        &self,
        user: &UserName,
        password: zeroize::Zeroizing<String>,
        now: OffsetDateTime,
    ) -> Result<CredentialRecord, LoginRefusal> {
        self.demand_passwords().map_err(|status| refusal(status, "passwords are off"))?;
        let _turn = self.turns.take(&hash_of(user.as_str())).await?;
        let (credential, revision) = self.open_credential(user, now).await?;
        if self.passwords.verify(password, credential.password.clone()).await? {
            return Ok(credential);
        }
        let account = Account::Known(user);
        let mut refusal = self.failed_login(&account, credential, revision, "wrong password", now).await;
        if refusal.status.code() == tonic::Code::Unauthenticated {
            refusal.status = Status::unauthenticated("the password is wrong");
        }
        Err(refusal)
    }

    /// Whether a user has a password, and when their credentials were last taken away.
    pub(crate) async fn credential_of(
        &self,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<CredentialRecord, Status> {
        let found = self.credential(&Account::Known(user), now).await;
        found.map(|(credential, _)| credential).map_err(|error| storage(&error))
    }

    /// The credential of an account that is not closed.
    async fn open_credential(
        &self,
        user: &UserName,
        now: OffsetDateTime,
    ) -> Result<(CredentialRecord, u64), LoginRefusal> {
        let found = self.credential(&Account::Known(user), now).await;
        let (credential, revision) = found.map_err(|error| storage(&error))?;
        match credential.locked_until.filter(|until| *until > now.unix_timestamp()) {
            Some(until) => Err(refusal(locked_out(until, now), "locked out")),
            None => Ok((credential, revision)),
        }
    }

    /// Makes a factor of the one-time codes that an earlier release kept with the password.
    pub(crate) async fn take_over_codes(&self, user: &UserName, now: OffsetDateTime) -> Result<(), Status> {
        for _ in 0..AGAIN {
            let _changing = self.identities.steady().await;
            let found = self.credential(&Account::Known(user), now).await;
            let (credential, revision) = found.map_err(|error| storage(&error))?;
            let Some(sealed) = credential.totp_sealed.clone() else { return Ok(()) };
            let held = self.factors.held(user, now).await?;
            let name = FactorName::free(CODES_NAME, |name| held.has_name(name));
            let factor = codes(name, sealed, credential.last_step, None, now);
            let mut steps = Factors::added(user, &held, &factor)?;
            let without = CredentialRecord { totp_sealed: None, last_step: None, ..credential };
            let step = typed::update(user.as_str(), revision, &without, None);
            steps.push(step.map_err(|error| storage(&error))?);
            match self.store.backend().transact(steps, now).await {
                Ok(_) => return Ok(()),
                Err(
                    StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::NotFound { .. },
                ) => {}
                Err(error) => return Err(storage(&error)),
            }
        }
        Err(Status::resource_exhausted("too many calls for this user at this moment; try again"))
    }
}
