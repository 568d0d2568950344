//! A user's factors as the user changes them: each change is proven anew.

use std::net::IpAddr;

use sallyport_access::UserName;
use sallyport_audit::Code;
use sallyport_sal::totp;
use sallyport_store::{Op, StoreError, Stored};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::authority::accounts::login::LoginRefusal;
use crate::authority::accounts::means::{Means, Way};
use crate::authority::accounts::second::SpentCode;
use crate::authority::caller::{Caller, NOWHERE, host_name};
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::records::{AllowedBy, ChallengeRecord, Purpose, State};
use crate::authority::challenges::terminal;
use crate::authority::factors::kept::{Factors, Held, codes};
use crate::authority::factors::names::FactorName;
use crate::authority::factors::passkeys::passkeys_off;
use crate::authority::factors::records::{FactorKind, FactorRecord};
use crate::authority::factors::recovery::{CODES, RecoveryCode};
use crate::authority::storage::storage;
use crate::config::SecondFactor;

/// The user who calls, with the login that they call by.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) user: UserName,
    pub(crate) login: Uuid,
}

/// What a call has proven: the steps that spend it, and what is on record of it.
pub(super) struct Spent {
    steps: Vec<Op>,
    pub(super) means: Option<Means>,
    challenge: Option<(Stored<ChallengeRecord>, ChallengeRecord)>,
    code: Option<SpentCode>,
    pub(super) proven_at: OffsetDateTime,
    /// It is spent also when the disk is full.
    pub(super) urgent: bool,
}

impl Spent {
    /// Of what was proven otherwise, at this moment.
    pub(super) fn nothing(now: OffsetDateTime) -> Self {
        Self { steps: Vec::new(), means: None, challenge: None, code: None, proven_at: now, urgent: false }
    }

    /// Leaves out what it would write to a record that is written with it anyway.
    pub(super) fn leave_out(&mut self, written: &str) {
        self.steps.retain(|step| !matches!(step, Op::CompareAndSwap { key, .. } if key == written));
    }

    /// From where the challenge was begun that proves it.
    pub(super) fn begun_at(&self) -> Option<IpAddr> {
        self.challenge.as_ref().map(|(stored, _)| stored.value.address)
    }

    /// What it allows, until that is done.
    fn allows(&self) -> AllowedBy {
        let means = self.means.as_ref();
        AllowedBy {
            factor: means.and_then(|means| means.factor.as_ref()).map(|factor| factor.id),
            first: means.is_none_or(|means| matches!(means.way, Way::Password | Way::SingleSignOn)),
            at: self.proven_at,
        }
    }
}

fn to_proto(factor: &FactorRecord) -> v1::Factor {
    let credential = factor.credential();
    v1::Factor {
        id: factor.id.to_string(),
        name: factor.name.to_string(),
        kind: factor.kind().name().to_owned(),
        created: Some(convert::time_to_proto(factor.created)),
        last_used: factor.last_used.map(convert::time_to_proto),
        model: credential.map(|credential| credential.aaguid.to_string()).unwrap_or_default(),
        backed_up: credential.is_some_and(|credential| credential.backed_up),
        counter_went_back: factor.counter_went_back.map(convert::time_to_proto),
    }
}

pub(super) fn factor_id(text: &str) -> Result<Uuid, Status> {
    Uuid::parse_str(text).map_err(|_| {
        Status::invalid_argument("this is no id of a factor; sallyport mfa ls --format json lists them")
    })
}

pub(super) fn no_factor() -> Status {
    Status::not_found("you have no such factor; sallyport mfa ls lists them")
}

fn internal(error: sallyport_sal::SalError) -> Status {
    Status::internal(error.to_string())
}

impl Challenges {
    pub(super) fn wanted(&self, asked: Option<v1::FactorToAdd>) -> Result<(FactorKind, FactorName), Status> {
        let asked = asked.ok_or_else(|| Status::invalid_argument("the call names no factor to add"))?;
        let kind = FactorKind::named(&asked.kind).ok_or_else(|| {
            Status::invalid_argument("the kind of a factor is webauthn or totp; the call names neither")
        })?;
        if kind == FactorKind::Webauthn && self.factors.passkeys().is_none() {
            return Err(passkeys_off());
        }
        Ok((kind, FactorName::new(&asked.name)?))
    }

    /// The caller's factors.
    pub(crate) async fn list_factors(&self, own: &Own) -> Result<v1::ListFactorsResponse, Status> {
        let now = OffsetDateTime::now_utc();
        self.accounts.take_over_codes(&own.user, now).await?;
        let held = self.factors.held(&own.user, now).await?;
        let credential = self.accounts.credential_of(&own.user, now).await?;
        let passkeys = self.factors.passkeys().map(|_| FactorKind::Webauthn);
        let mut factors: Vec<v1::Factor> =
            held.factors.iter().map(|factor| to_proto(&factor.value)).collect();
        factors.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(v1::ListFactorsResponse {
            factors,
            recovery_codes: u32::try_from(held.recovery_left()).unwrap_or(u32::MAX),
            second_factor: self.accounts.second_factor_word().to_owned(),
            kinds: passkeys
                .into_iter()
                .chain([FactorKind::Totp])
                .map(|kind| kind.name().to_owned())
                .collect(),
            password: self.accounts.can_prove_password(&credential),
            single_sign_on: self.by_single_sign_on(&own.user),
        })
    }

    /// How a challenge of the caller's login stands, once it has changed.
    pub(crate) async fn await_challenge(
        &self,
        caller: &Caller,
        own: &Own,
        id: &str,
    ) -> Result<v1::AwaitChallengeResponse, Status> {
        let mut wait = Challenges::wait();
        loop {
            let stored = self.own(caller, own, id, OffsetDateTime::now_utc()).await?;
            if stored.value.state != State::Pending || !self.reads_again(&mut wait, &stored.name).await? {
                return Ok(v1::AwaitChallengeResponse { state: stored.value.state.word().to_owned() });
            }
        }
    }

    /// A challenge of the caller's own login. Of another's they learn no more than of one that is not there.
    pub(crate) async fn own(
        &self,
        caller: &Caller,
        own: &Own,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<Stored<ChallengeRecord>, Status> {
        let stored = self.at(caller, id, now).await?;
        if stored.value.user.as_ref() == Some(&own.user) && stored.value.login == Some(own.login) {
            return Ok(stored);
        }
        let event = caller.event(Code::ChallengeRefused).message("the challenge of another login");
        self.journal.note_caused(caller, Self::named(event, &stored), "").await?;
        Err(Status::not_found(
            "this approval is not known or has ended; begin again with the command that opened it",
        ))
    }

    /// Begins to add a factor, once the caller is proven anew.
    pub(crate) async fn begin_add(
        &self,
        caller: &Caller,
        own: &Own,
        request: v1::BeginAddFactorRequest,
    ) -> Result<v1::BeginAddFactorResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let (kind, name) = self.wanted(request.factor)?;
        self.accounts.take_over_codes(&own.user, now).await?;
        self.factors.held(&own.user, now).await?.has_room_for(&name)?;
        let wanted = Purpose::AddFactor { kind, name: name.clone() };
        let spent = self.prove(caller, own, request.proof, &wanted, now).await?;
        let (purpose, otp_uri, code) = match kind {
            // The address alone registers nothing: a passkey that another person makes there would be a way in for good.
            FactorKind::Webauthn => {
                (Purpose::EnrolPasskey { name, allowed: spent.allows() }, String::new(), terminal::fresh()?)
            }
            FactorKind::Totp => {
                let secret = totp::Secret::generate().map_err(internal)?;
                let issuer = format!("Sallyport {}", self.config.cluster);
                let uri = secret.uri(&issuer, own.user.as_str()).to_string();
                let sealed = self.factors.seal_totp(&own.user, &secret)?;
                (Purpose::EnrolCodes { name, sealed, allowed: spent.allows() }, uri, String::new())
            }
        };
        let event = caller.event(Code::ChallengeBegun).field("purpose", purpose.word());
        let terminal_code = (!code.is_empty()).then(|| terminal::hashed(&code));
        let asking = Asking { terminal_code, ..asking(caller, own, &request.host_name) };
        let opening = self.opening(purpose, asking, now)?;
        let _changing = self.identities.steady().await;
        let written = self.spend(caller, own, spent, vec![opening.step()], now).await;
        let opened = opening.once(written)?;
        self.journal.note_caused(caller, event, "").await?;
        let page = if kind == FactorKind::Webauthn { "/enrol" } else { "" };
        Ok(v1::BeginAddFactorResponse { page: Some(self.page(&opened, page)), otp_uri, code })
    }

    /// Adds one-time codes with the first that they show.
    pub(crate) async fn finish_add(
        &self,
        caller: &Caller,
        own: &Own,
        request: v1::FinishAddFactorRequest,
    ) -> Result<v1::FinishAddFactorResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let otp = Zeroizing::new(request.otp);
        let stored = self.own(caller, own, &request.challenge, now).await?;
        let Purpose::EnrolCodes { name, sealed, .. } = stored.value.purpose.clone() else {
            return Err(Status::invalid_argument("no one-time codes are to be added with this challenge"));
        };
        Self::is_pending(&stored)?;
        let Some(step) = self.factors.unseal_totp(&own.user, &sealed)?.verify(&otp, now, None) else {
            let event = caller.event(Code::ChallengeRefused).message("wrong one-time code");
            self.wrong_proof(caller, &stored, event, now).await?;
            return Err(Status::invalid_argument(
                "the one-time code is wrong; check that the clock of the device that shows it is right",
            ));
        };
        let factor = codes(name, sealed, Some(step), None, now);
        let _changing = self.identities.steady().await;
        self.still_asked(&stored.value, now).await?;
        let held = self.factors.held(&own.user, now).await?;
        self.still_allowed(&stored.value, &own.user, &held, now).await?;
        let steps = Factors::added(&own.user, &held, &factor)?;
        let mut next = stored.value.clone();
        next.state = State::Used;
        self.write(&stored, &next, steps, now).await?;
        self.journal.record(vec![factor.on(caller.event(Code::FactorAdded))]).await?;
        Ok(v1::FinishAddFactorResponse { factor: Some(to_proto(&factor)) })
    }

    /// Removes a factor.
    pub(crate) async fn remove_factor(
        &self,
        caller: &Caller,
        own: &Own,
        request: v1::RemoveFactorRequest,
    ) -> Result<(), Status> {
        let now = OffsetDateTime::now_utc();
        let id = factor_id(&request.id)?;
        self.accounts.take_over_codes(&own.user, now).await?;
        let held = self.factors.held(&own.user, now).await?;
        let factor = held.of_id(id).ok_or_else(no_factor)?.value.clone();
        self.can_spare(caller, own, &held, now).await?;
        let spent = self.prove(caller, own, request.proof, &Purpose::RemoveFactor { id }, now).await?;
        let _changing = self.identities.steady().await;
        let held = self.factors.held(&own.user, now).await?;
        if self.needs_last(own, &held, now).await?.is_some() {
            return Err(Status::aborted(
                "another factor was removed at the same moment; this one is your last",
            ));
        }
        let Some(stored) = held.of_id(id) else { return Err(no_factor()) };
        let steps = Factors::removed(&own.user, &held, stored)?;
        // What the proof itself changes of the factor is changed first.
        self.spend(caller, own, spent, steps, now).await?;
        let event = caller.event(Code::FactorRemoved).user(own.user.as_str());
        let event = event.field("login_id", own.login.to_string());
        self.journal.record(vec![factor.on(event)]).await
    }

    /// Refuses to remove a user's only factor where it has to stay.
    pub(super) async fn can_spare(
        &self,
        caller: &Caller,
        own: &Own,
        held: &Held,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let Some(why) = self.needs_last(own, held, now).await? else { return Ok(()) };
        let last = held.factors.first().map_or("this", |factor| factor.value.name.as_str());
        let event = caller.event(Code::ChallengeRefused).user(own.user.as_str());
        let event = event.field("purpose", "remove-factor").message("the last factor");
        self.journal.note_caused(caller, event, "").await?;
        Err(Status::failed_precondition(format!(
            "{last:?} is your last factor, and {why}; add another first: sallyport mfa add"
        )))
    }

    /// Why a user's only factor stays; none where they have another, or log in without.
    async fn needs_last(
        &self,
        own: &Own,
        held: &Held,
        now: OffsetDateTime,
    ) -> Result<Option<&'static str>, Status> {
        if held.factors.len() != 1 {
            return Ok(None);
        }
        // The second factor of their logins is the provider's, and so is the way to a first one here.
        if self.by_single_sign_on(&own.user) {
            return Ok(None);
        }
        if self.config.second_factor == SecondFactor::Required {
            return Ok(Some("this cluster requires one"));
        }
        let password = self.accounts.can_prove_password(&self.accounts.credential_of(&own.user, now).await?);
        Ok((!password).then_some("you have no password to log in with"))
    }

    pub(super) fn by_single_sign_on(&self, user: &UserName) -> bool {
        self.origin_of(user).is_some()
    }

    /// Makes recovery codes in the place of those that there are.
    pub(crate) async fn make_recovery_codes(
        &self,
        caller: &Caller,
        own: &Own,
        proof: Option<v1::FactorProof>,
    ) -> Result<Vec<String>, Status> {
        let now = OffsetDateTime::now_utc();
        self.accounts.take_over_codes(&own.user, now).await?;
        if self.factors.held(&own.user, now).await?.is_empty() {
            return Err(Status::failed_precondition(
                "recovery codes stand in for a factor, and you have none; add one first: sallyport mfa add",
            ));
        }
        let _only = self.making.begin(&own.user)?;
        let spent = self.prove(caller, own, proof, &Purpose::RecoveryCodes, now).await?;
        let allowed = spent.allows();
        {
            let _changing = self.identities.steady().await;
            self.spend(caller, own, spent, Vec::new(), now).await?;
        }
        // Slow: a proof that is spent has this done once, and a reset does not wait for it.
        let (mut shown, mut hashes) = (Vec::new(), Vec::new());
        for index in 0..CODES {
            let (code, text) = RecoveryCode::fresh(index).map_err(internal)?;
            hashes.push(self.accounts.hash(code.secret).await?);
            shown.push(text);
        }
        let _changing = self.identities.steady().await;
        let held = self.factors.held(&own.user, now).await?;
        // A reset that came meanwhile is seen now, and none comes until the codes are written.
        self.allowed_still(allowed, &own.user, &held, now).await?;
        let steps = Factors::recovered(&own.user, &held, hashes, now)?;
        self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        let event = caller.event(Code::RecoveryCodesMade).field("codes", CODES);
        self.journal.record(vec![event]).await?;
        Ok(shown)
    }

    /// Checks what a call proves the caller with. Nothing is spent yet.
    pub(super) async fn prove(
        &self,
        caller: &Caller,
        own: &Own,
        proof: Option<v1::FactorProof>,
        wanted: &Purpose,
        now: OffsetDateTime,
    ) -> Result<Spent, Status> {
        use v1::factor_proof::Proof;
        let held = self.factors.held(&own.user, now).await?;
        let password = self.accounts.can_prove_password(&self.accounts.credential_of(&own.user, now).await?);
        let nothing = Spent::nothing(now);
        let checked = match proof.and_then(|proof| proof.proof) {
            proof if held.is_empty() && !password && !matches!(proof, Some(Proof::Challenge(_))) => {
                Err(match self.by_single_sign_on(&own.user) {
                    true => unproven(
                        "a user of single sign-on",
                        "you come by single sign-on: sign in at your provider again, at the page that sallyport mfa add opens",
                    ),
                    false => unproven(
                        "neither a password nor a factor",
                        "you have neither a password nor a factor that could prove you; ask an administrator for a reset link",
                    ),
                })
            }
            Some(Proof::Otp(code) | Proof::RecoveryCode(code)) => {
                let code = Zeroizing::new(code);
                self.accounts.prove_code(&own.user, &code, now).await.map(|proven| (None, Some(proven)))
            }
            Some(Proof::Password(given)) if held.is_empty() => {
                let given = Zeroizing::new(given);
                self.accounts.prove_password_alone(&own.user, given, now).await.map(|_| (None, None))
            }
            Some(Proof::Password(_)) => {
                Err(unproven("a password alone", "you have a factor: prove that, and not the password"))
            }
            Some(Proof::Challenge(id)) => {
                let stored = self.own(caller, own, &id, now).await?;
                match &stored.value.state {
                    State::Proven(by) if by.means.way == Way::SingleSignOn && !held.is_empty() => Err(
                        unproven("single sign-on alone", "you have a factor by now: prove that; begin again"),
                    ),
                    State::Proven(_) if stored.value.purpose.serves(wanted) => Ok((Some(stored), None)),
                    State::Proven(_) => Err(unproven(
                        "a challenge for something else",
                        "what you proved is for something else; begin again",
                    )),
                    _ => {
                        Self::is_pending(&stored)?;
                        Err(unproven(
                            "a challenge that is not proven",
                            "the approval is not proven yet; open its page",
                        ))
                    }
                }
            }
            None => Err(unproven(
                "no proof",
                "prove a factor of yours: a one-time code, a recovery code, or a passkey at the page",
            )),
        };
        match checked {
            Ok((Some(stored), _)) => {
                let mut next = stored.value.clone();
                next.state = State::Used;
                let State::Proven(by) = &stored.value.state else { return Ok(nothing) };
                let (means, proven_at) = (by.means.clone(), by.at);
                let steps = vec![self.changed(&stored, &next, now)?];
                Ok(Spent { steps, means: Some(means), challenge: Some((stored, next)), proven_at, ..nothing })
            }
            Ok((None, Some(proven))) => {
                let steps = {
                    let _changing = self.identities.steady().await;
                    self.accounts
                        .spend_code(&own.user, &proven, now)
                        .await
                        .map_err(|refusal| refusal.status)?
                };
                Ok(Spent { steps, means: Some(proven.code.means()), code: Some(proven.code), ..nothing })
            }
            Ok((None, None)) => Ok(Spent { means: Some(Means::by(Way::Password, false)), ..nothing }),
            Err(refusal) => Err(self.not_proven(caller, refusal, wanted, now).await?),
        }
    }

    /// Puts a failed proof on record, which counts against the address; gives the answer.
    pub(super) async fn not_proven(
        &self,
        caller: &Caller,
        refusal: LoginRefusal,
        wanted: &Purpose,
        now: OffsetDateTime,
    ) -> Result<Status, Status> {
        let LoginRefusal { status, reason, locked_out } = refusal;
        self.guesses.note(caller, now);
        let event = |code| caller.event(code).message(reason).field("purpose", wanted.word());
        self.journal.note_caused(caller, event(Code::ChallengeRefused), "").await?;
        if locked_out {
            self.journal.record(vec![event(Code::UserLockedOut)]).await?;
        }
        Ok(status)
    }

    /// Refuses to register a factor that a proof allowed which does not stand any more. The caller holds what `Identities::steady`
    /// gives.
    pub(super) async fn still_allowed(
        &self,
        record: &ChallengeRecord,
        user: &UserName,
        held: &Held,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        match &record.purpose {
            Purpose::EnrolPasskey { allowed, .. } | Purpose::EnrolCodes { allowed, .. } => {
                self.allowed_still(*allowed, user, held, now).await
            }
            _ => Ok(()),
        }
    }

    async fn allowed_still(
        &self,
        allowed: AllowedBy,
        user: &UserName,
        held: &Held,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let stands = self.accounts.proof_stands(user, allowed.factor, allowed.at, now).await;
        stands.map_err(|refusal| refusal.status)?;
        // A password or the provider alone proves a user without factors, and a recovery code one with.
        if allowed.first != held.is_empty() {
            return Err(Status::permission_denied(
                "your factors were changed since you proved who you are; begin again",
            ));
        }
        Ok(())
    }

    /// Spends a proof, together with other steps. The caller holds what `Identities::steady` gives.
    pub(super) async fn spend(
        &self,
        caller: &Caller,
        own: &Own,
        spent: Spent,
        others: Vec<Op>,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let Spent { mut steps, means, challenge, code, proven_at, urgent } = spent;
        let factor = means.as_ref().and_then(|means| means.factor.as_ref()).map(|factor| factor.id);
        let stands = self.accounts.proof_stands(&own.user, factor, proven_at, now).await;
        stands.map_err(|refusal| refusal.status)?;
        steps.extend(others);
        if !steps.is_empty() {
            let backend = self.store.backend();
            let written = match urgent {
                true => backend.transact_urgent(steps, now).await,
                false => backend.transact(steps, now).await,
            };
            written.map_err(|error| match error {
                StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::Exists { .. } => {
                    Status::aborted("this proof was used at the same moment; prove it anew")
                }
                error => storage(&error),
            })?;
        }
        if let Some((stored, next)) = &challenge {
            self.is_changed(stored, next);
        }
        if let Some(used) = code.and_then(|code| code.recovery_used(caller, &own.user)) {
            match urgent {
                true => self.journal.record_urgent(vec![used]).await?,
                false => self.journal.record(vec![used]).await?,
            }
        }
        Ok(())
    }
}

fn unproven(reason: &'static str, text: &'static str) -> LoginRefusal {
    LoginRefusal { status: Status::failed_precondition(text), reason, locked_out: false }
}

pub(super) fn asking<'a>(caller: &Caller, own: &'a Own, said: &str) -> Asking<'a> {
    Asking {
        user: Some(&own.user),
        login: Some(own.login),
        host_name: host_name(said),
        address: caller.address().unwrap_or(NOWHERE.ip()),
        terminal_code: None,
    }
}
