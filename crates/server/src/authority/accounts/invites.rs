//! Links that set a password: opened, and used once.

use sallyport_audit::Code;
use sallyport_sal::totp;
use sallyport_store::{Op, StoreError, typed};
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::login::{Account, Accounts, locked_out};
use crate::authority::caller::Caller;
use crate::authority::factors::kept::{CODES_NAME, Factors, codes};
use crate::authority::factors::names::FactorName;
use crate::authority::records::{CredentialRecord, InviteRecord, UserRecord};
use crate::authority::secrets::hash_of;
use crate::authority::storage::storage;
use crate::config::SecondFactor;

pub(crate) const USED: &str = "this link has been used or replaced; ask an administrator for a new one";
/// How often a link is looked at again that others open at the same moment.
const OPENED_AT_ONCE: usize = 16;

impl Accounts {
    pub(crate) async fn invite(
        &self,
        caller: &Caller,
        token: &str,
        now: OffsetDateTime,
    ) -> Result<(String, typed::Stored<InviteRecord>), Status> {
        self.guesses.not_barred(caller, now)?;
        let key = hash_of(token);
        let stored = self.store.get::<InviteRecord>(&key, now).await.map_err(|error| storage(&error))?;
        let user = match &stored {
            Some(stored) => self.store.get::<UserRecord>(stored.value.user.as_str(), now).await,
            None => Ok(None),
        };
        let user = user.map_err(|error| storage(&error))?;
        let is_for = |invite: &InviteRecord| {
            user.as_ref().is_some_and(|user| invite.user_revision.is_none_or(|made| made == user.revision))
        };
        let problem = match stored {
            Some(stored) if stored.value.used => USED,
            Some(stored) if stored.value.expires <= now => {
                "this link has expired; ask an administrator for a new one"
            }
            Some(stored) if !is_for(&stored.value) => {
                "the account was changed or removed since this link was made; ask an administrator for a new one"
            }
            Some(mut stored) => {
                // For one of an earlier release, the user as they are now.
                stored.value.user_revision = user.map(|user| user.revision);
                return Ok((key, stored));
            }
            None => {
                "this link is not known, or was replaced by a newer one; ask an administrator for a new one"
            }
        };
        Err(self.refuse_invite(caller, problem, now).await?)
    }

    /// Puts a refused link on record; gives the answer.
    pub(crate) async fn refuse_invite(
        &self,
        caller: &Caller,
        problem: &'static str,
        now: OffsetDateTime,
    ) -> Result<Status, Status> {
        self.guesses.note(caller, now);
        self.journal.note_caused(caller, caller.event(Code::InviteRefused).message(problem), "").await?;
        Ok(Status::permission_denied(problem))
    }

    pub(crate) async fn begin_invite(
        &self,
        caller: &Caller,
        token: &str,
    ) -> Result<v1::BeginInviteResponse, Status> {
        self.demand_passwords()?;
        let now = OffsetDateTime::now_utc();
        let internal = |error: sallyport_sal::SalError| Status::internal(error.to_string());
        let mut opened = None;
        // Of several who open it at once, the others find what the first has made.
        for _ in 0..OPENED_AT_ONCE {
            let (key, stored) = self.invite(caller, token, now).await?;
            let mut invite = stored.value;
            if let Some(sealed) = &invite.totp_sealed {
                // Opened before: the same secret, so that one already scanned stays good.
                let secret = self.factors.unseal_totp(&invite.user, sealed)?;
                opened = Some((invite, secret));
                break;
            }
            let secret = totp::Secret::generate().map_err(internal)?;
            invite.totp_sealed = Some(self.factors.seal_totp(&invite.user, &secret)?);
            match self.store.update(&key, stored.revision, &invite, stored.expires, now).await {
                Ok(_) => {
                    opened = Some((invite, secret));
                    break;
                }
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(storage(&error)),
            }
        }
        let (invite, secret) = opened.ok_or_else(|| {
            Status::resource_exhausted("this link is opened too often at this moment; try again")
        })?;
        self.journal.record(vec![caller.event(Code::InviteOpened).user(invite.user.as_str())]).await?;
        Ok(v1::BeginInviteResponse {
            user: invite.user.to_string(),
            otp_uri: secret
                .uri(&format!("Sallyport {}", self.config.cluster), invite.user.as_str())
                .to_string(),
            second_factor: self.second_factor_word().to_owned(),
        })
    }

    pub(crate) async fn finish_invite(
        &self,
        caller: &Caller,
        request: v1::FinishInviteRequest,
    ) -> Result<v1::FinishInviteResponse, Status> {
        self.demand_passwords()?;
        let now = OffsetDateTime::now_utc();
        let password = Zeroizing::new(request.password);
        let otp = Zeroizing::new(request.otp);
        let (key, stored) = self.invite(caller, &request.token, now).await?;
        let mut invite = stored.value;
        self.may_have(&invite.user, &password).await?;
        // What was proven with the former credentials counts no more.
        let mut credential = CredentialRecord { reset_at: Some(now), ..CredentialRecord::default() };
        let mut adds = Vec::new();
        if otp.trim().is_empty() {
            if self.config.second_factor == SecondFactor::Required {
                return Err(Status::failed_precondition(
                    "this cluster requires a second factor: enter a one-time code",
                ));
            }
        } else {
            let sealed = invite
                .totp_sealed
                .clone()
                .ok_or_else(|| Status::failed_precondition("open the link first"))?;
            let secret = self.factors.unseal_totp(&invite.user, &sealed)?;
            // Guesses count for the account, wherever they are made.
            let known = self.store.get::<CredentialRecord>(invite.user.as_str(), now).await;
            let known = known.map_err(|error| storage(&error))?;
            let (known, revision) =
                known.map_or((CredentialRecord::default(), 0), |known| (known.value, known.revision));
            if let Some(until) = known.locked_until.filter(|until| *until > now.unix_timestamp()) {
                return Err(locked_out(until, now));
            }
            let Some(step) = secret.verify(otp.trim(), now, None) else {
                let reason = "wrong one-time code for a link";
                let failed =
                    self.failed_login(&Account::Known(&invite.user), known, revision, reason, now).await;
                let event = |code| caller.event(code).user(invite.user.as_str()).message(reason);
                self.guesses.note(caller, now);
                self.journal.note_caused(caller, event(Code::InviteRefused), invite.user.as_str()).await?;
                if failed.locked_out {
                    self.journal.record(vec![event(Code::UserLockedOut)]).await?;
                }
                return Err(Status::invalid_argument(
                    "the one-time code is wrong; check that the clock of the device that shows it is right",
                ));
            };
            let held = self.factors.held(&invite.user, now).await?;
            let name = FactorName::free(CODES_NAME, |name| held.has_name(name));
            let factor = codes(name, sealed, Some(step), None, now);
            adds = Factors::added(&invite.user, &held, &factor)?;
        }
        let second_factor = !adds.is_empty();
        credential.password = Some(self.passwords.hash(password).await?);
        invite.used = true;
        invite.totp_sealed = None;
        invite.passkey = None;
        let user = invite.user.clone();
        let _changing = self.identities.steady().await;
        // Of two people with the same link, the second finds it changed; and a user who was removed or changed meanwhile
        // gets no password by it.
        let mut steps = vec![
            Op::Check {
                key: typed::key::<UserRecord>(user.as_str()),
                revision: invite.user_revision.unwrap_or(0),
            },
            typed::update(&key, stored.revision, &invite, stored.expires).map_err(|error| storage(&error))?,
            typed::put(user.as_str(), &credential, None).map_err(|error| storage(&error))?,
        ];
        steps.extend(adds);
        steps.extend(Factors::no_recovery(&user, now)?);
        match self.store.backend().transact(steps, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::Exists { .. }) => {
                return Err(self.refuse_invite(caller, USED, now).await?);
            }
            Err(error) => return Err(storage(&error)),
        }
        let event =
            caller.event(Code::InviteAccepted).user(user.as_str()).field("second_factor", second_factor);
        self.journal.record(vec![event]).await?;
        Ok(v1::FinishInviteResponse { user: user.to_string() })
    }
}
