//! What a user who is logged in proves anew, at a page: by a passkey, or by a one-time or recovery code.

use sallyport_access::text::Foreign;
use sallyport_access::{SessionFactor, SessionTarget, UserName};
use sallyport_audit::{Code, Event};
use sallyport_store::Stored;
use sallyport_webauthn::{Purpose as Ceremony, WebAuthnError, Who};
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::login::LoginRefusal;
use crate::authority::accounts::means::{Means, UsedFactor, Way};
use crate::authority::caller::{Caller, shown};
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::{Browser, client, detail};
use crate::authority::challenges::passkeys::{Checked, verifies_its_user};
use crate::authority::challenges::records::{
    ChallengeRecord, NamedTarget, ProvenBy, Purpose, SessionsAsked, State,
};
use crate::authority::factors::kept::Factors;
use crate::authority::factors::passkeys::refusal;
use crate::authority::factors::records::FactorKind;
use crate::authority::records::UserRecord;
use crate::authority::session_factors::grants::{Grant, Scope};
use crate::authority::storage::storage;

/// Sessions that the record of a proof lists.
const ON_RECORD: usize = 50;

/// Which sessions a proof is for, as it stands on record.
fn sessions_on_record(asked: &SessionsAsked) -> Vec<String> {
    let all = asked.all.then(|| "all".to_owned());
    // Of a database, the account is in the words of who asked.
    let named = asked.targets.iter().take(ON_RECORD).map(|named| shown(&on_record(named)));
    all.into_iter().chain(named).collect()
}

/// A session by what its resource is called, and by its id where that is another word.
fn on_record(NamedTarget { target, name }: &NamedTarget) -> String {
    let resource = match target.resource == *name {
        true => name.clone(),
        false => format!("{name} ({})", target.resource),
    };
    SessionTarget { resource, ..target.clone() }.to_string()
}

/// Which sessions a factor is asked for, as a page shows them.
fn sessions_shown(asked: &SessionsAsked) -> Vec<v1::WebDetail> {
    let mut details: Vec<v1::WebDetail> = Vec::new();
    if asked.all {
        details.push(detail("Sessions", "all that you may have"));
        details.push(detail("For", format!("{} minutes", asked.seconds.div_ceil(60))));
    }
    // What is alike stands together, and each of it is named: none is granted that the person cannot read.
    let mut alike: Vec<(SessionTarget, Vec<&str>)> = Vec::new();
    for NamedTarget { target, name } in &asked.targets {
        let kind = SessionTarget { resource: String::new(), ..target.clone() };
        match alike.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(name),
            None => alike.push((kind, vec![name.as_str()])),
        }
    }
    for (target, names) in alike {
        let label = match names.len() {
            1 => "Session".to_owned(),
            several => format!("{several} sessions"),
        };
        let named = SessionTarget { resource: names.join(", "), ..target }.to_string();
        details.push(detail(&label, Foreign::new(named)));
    }
    if let Some(proxy) = &asked.proxy {
        details.push(detail("Asked by", format!("{proxy}, for a program that cannot ask by itself")));
    }
    details
}

/// What a user reads who has proven what can be copied.
fn only_hardware() -> Status {
    Status::failed_precondition(
        "these sessions want a passkey or security key that does not leave its device (require_session_mfa: hardware); use one \
         at the page, or add one: sallyport mfa add",
    )
}

/// What a user reads whose key was touched and has asked for nothing else.
fn unverified() -> Status {
    Status::permission_denied(
        "the passkey or security key did not verify you, and an approval takes none that was only touched, since a thief can do that: set a PIN \
         or a fingerprint on it (fido2-token -S, or the settings of your system or browser) and use it with that, or prove another passkey or \
         a one-time or recovery code",
    )
}

fn kind_word(kind: FactorKind) -> &'static str {
    match kind {
        FactorKind::Webauthn => "passkey or security key",
        FactorKind::Totp => "one-time codes",
    }
}

impl Challenges {
    /// An approval, with whose it is.
    pub(super) async fn approval(
        &self,
        browser: &Browser,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<(Stored<ChallengeRecord>, UserName), Status> {
        let stored = self.at(&browser.caller, id, now).await?;
        if !stored.value.purpose.is_approval() {
            return Err(Status::invalid_argument(
                "there is nothing to approve here; open the address that the program shows",
            ));
        }
        let user = self.still_asked(&stored.value, now).await?;
        Ok((stored, user))
    }

    /// What a page shows of an approval, and the connector that it sends the person to; none where they prove a factor.
    pub(crate) async fn describe_approval(
        &self,
        browser: &Browser,
        id: &str,
    ) -> Result<(v1::WebApproval, Option<String>), Status> {
        let now = OffsetDateTime::now_utc();
        let (mut stored, user) = self.approval(browser, id, now).await?;
        self.is_shown(&mut stored, now).await?;
        let held = self.factors.held(&user, now).await?;
        let record = &stored.value;
        let details = match &record.purpose {
            Purpose::AddFactor { kind, name } => {
                vec![detail("Kind", kind_word(*kind)), detail("Name", name.as_str())]
            }
            Purpose::RemoveFactor { id } => match held.of_id(*id) {
                Some(factor) => vec![
                    detail("Kind", kind_word(factor.value.kind())),
                    detail("Name", factor.value.name.as_str()),
                ],
                None => vec![detail("Name", "a factor that is not there any more")],
            },
            Purpose::ChangePassword => vec![detail("Change", "your password")],
            Purpose::Administer { asked } => vec![
                detail(
                    "Allows",
                    "every change by an administrator of this login, from the address below, for five minutes",
                ),
                detail("First", asked.as_deref().unwrap_or("nothing that was asked for yet")),
            ],
            Purpose::AdmitDevice { device } => self.device_details(*device, now).await?,
            Purpose::Session(asked) => sessions_shown(asked),
            _ => Vec::new(),
        };
        let wants = record.purpose.wants();
        let provider = self.signs_in_as(record, &user, &held).map(|origin| origin.connector);
        let approval = v1::WebApproval {
            cluster: self.config.cluster.to_string(),
            user: user.to_string(),
            purpose: record.purpose.word().to_owned(),
            details,
            client: Some(client(record)),
            state: record.state.word().to_owned(),
            methods: Some(v1::WebMethods {
                passkey: self.factors.passkeys().is_some() && !held.credentials_worth(wants).is_empty(),
                password: false,
                otp: held.has_codes() && wants < SessionFactor::Hardware,
                sso: Vec::new(),
            }),
            expires: Some(convert::time_to_proto(record.expires)),
        };
        Ok((approval, provider))
    }

    /// Begins to prove one of the user's passkeys. Its user has to be verified, as at a login: what is proven changes factors, administers and
    /// opens sessions for the holder of a login, which may be stolen together with the key.
    pub(crate) async fn begin_approval_passkey(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
    ) -> Result<v1::WebPublicKey, Status> {
        let now = OffsetDateTime::now_utc();
        let party = self.factors.party()?;
        let (stored, user) = self.approval(browser, id, now).await?;
        Self::is_pending(&stored)?;
        self.code_is_typed(browser, &stored, code, now).await?;
        let credentials =
            self.factors.held(&user, now).await?.credentials_worth(stored.value.purpose.wants());
        let handle = self.factors.handle(&user, now).await?;
        let who = Who::User { handle: &handle, credentials: &credentials };
        let begun = party.begin_authentication(Ceremony::StepUp, who, &verifies_its_user(), now);
        let (options, pending) = begun.map_err(|error| match error {
            WebAuthnError::NoCredentials => Status::failed_precondition(
                "you have no passkey here; prove a one-time or recovery code instead",
            ),
            error => refusal(&error),
        })?;
        self.asks(&stored, &options, &pending, now).await
    }

    /// Proves it. A passkey of another user destroys the challenge: whose it is was fixed when it was asked for.
    pub(crate) async fn finish_approval_passkey(
        &self,
        browser: &Browser,
        id: &str,
        response: &str,
    ) -> Result<v1::WebProven, Status> {
        let now = OffsetDateTime::now_utc();
        self.factors.party()?;
        let (mut stored, user) = self.approval(browser, id, now).await?;
        Self::is_pending(&stored)?;
        let pending = Self::take_ceremony(&mut stored)?;
        let handle = self.factors.handle(&user, now).await?;
        let ceremony = Ceremony::StepUp;
        let Checked { whose, outcome } =
            self.check_passkey(pending, ceremony, Some(&handle), response, now).await?;
        let rival = whose.as_ref().map(|(whose, _)| whose).filter(|whose| **whose != user);
        if let Some(rival) = rival {
            let event = browser
                .event(Code::ChallengeRefused)
                .user(user.as_str())
                .message("the factor of another user")
                .field("factor_of", rival.to_string());
            self.end(&browser.caller, &stored, event, now).await?;
            return Err(Status::permission_denied(
                "this passkey is another user's: the approval has ended; begin again with the command that opened it",
            ));
        }
        let (authentication, (_, factor)) = match (outcome, whose) {
            (Ok(authentication), Some(whose)) => (authentication, whose),
            (outcome, whose) => {
                let error = outcome.err().unwrap_or(WebAuthnError::UnknownCredential);
                self.counter_on_record(whose.as_ref(), &error, now).await;
                let event = browser.event(Code::ChallengeRefused).user(user.as_str()).message(error.word());
                self.wrong_proof(&browser.caller, &stored, event, now).await?;
                return Err(match error {
                    WebAuthnError::UserNotVerified => unverified(),
                    error => refusal(&error),
                });
            }
        };
        let after = factor.value.after_use(authentication.credential, now);
        let means = Means {
            factor: Some(UsedFactor::used(&factor.value, &after)),
            user_verified: authentication.user_verified,
            ..Means::by(Way::Passkey, true)
        };
        let worth = factor.value.worth();
        if worth < stored.value.purpose.wants() {
            let event = browser
                .event(Code::ChallengeRefused)
                .user(user.as_str())
                .message("a passkey that can be copied");
            self.wrong_proof(&browser.caller, &stored, event, now).await?;
            return Err(only_hardware());
        }
        let _changing = self.identities.steady().await;
        let spends = vec![Factors::used(&user, &factor, &after)?];
        let event = browser.event(Code::ChallengeProven);
        self.approved(event, &stored, &user, (means, worth), spends, now).await?;
        Ok(v1::WebProven::default())
    }

    /// Proves a one-time or recovery code.
    pub(crate) async fn prove_approval_code(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
        otp: &str,
    ) -> Result<v1::WebProven, Status> {
        let now = OffsetDateTime::now_utc();
        let (stored, user) = self.approval(browser, id, now).await?;
        Self::is_pending(&stored)?;
        self.code_is_typed(browser, &stored, code, now).await?;
        let event = |code| browser.event(code);
        self.prove_code(&browser.caller, event, &stored, &user, (otp, None), now).await?;
        Ok(v1::WebProven::default())
    }

    /// Proves a challenge of a user by a one-time or recovery code, wherever it was typed: for all that it asks for, or for these sessions of
    /// it alone.
    pub(crate) async fn prove_code(
        &self,
        caller: &Caller,
        event: impl Fn(Code) -> Event,
        stored: &Stored<ChallengeRecord>,
        user: &UserName,
        (otp, only): (&str, Option<SessionsAsked>),
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        if stored.value.purpose.wants() == SessionFactor::Hardware {
            return Err(only_hardware());
        }
        let proven = match self.accounts.prove_code(user, otp, now).await {
            Ok(proven) => proven,
            Err(LoginRefusal { status, reason, locked_out }) => {
                let event = |code| event(code).user(user.as_str()).message(reason);
                if locked_out {
                    self.journal.record(vec![event(Code::UserLockedOut)]).await?;
                }
                self.wrong_proof(caller, stored, event(Code::ChallengeRefused), now).await?;
                return Err(status);
            }
        };
        let _changing = self.identities.steady().await;
        let spends = self.accounts.spend_code(user, &proven, now).await.map_err(|refusal| refusal.status)?;
        let means = (proven.code.means(), SessionFactor::Yes);
        let mut stored = stored.clone();
        if let Some(only) = only {
            stored.value.purpose = Purpose::Session(only);
        }
        let stored = &stored;
        self.approved(event(Code::ChallengeProven), stored, user, means, spends, now).await?;
        if let Some(used) = proven.code.recovery_used(caller, user) {
            self.journal.record(vec![used]).await?;
        }
        Ok(())
    }

    /// A page shows which sessions a factor is asked for: what is asked for from now on is another challenge.
    async fn is_shown(
        &self,
        stored: &mut Stored<ChallengeRecord>,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let mut next = stored.value.clone();
        let Purpose::Session(asked) = &mut next.purpose else { return Ok(()) };
        if asked.shown || next.state != State::Pending {
            return Ok(());
        }
        asked.shown = true;
        stored.revision = self.write(stored, &next, Vec::new(), now).await?;
        stored.value = next;
        Ok(())
    }

    /// The caller holds what `Identities::steady` gives.
    pub(super) async fn approved(
        &self,
        event: Event,
        stored: &Stored<ChallengeRecord>,
        user: &UserName,
        (means, worth): (Means, SessionFactor),
        mut steps: Vec<sallyport_store::Op>,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let record = self.store.get::<UserRecord>(user.as_str(), now).await;
        let record = record.map_err(|error| storage(&error))?;
        let revision = record.map(|record| record.revision).unwrap_or_default();
        let event = means.on(event.user(user.as_str()));
        let event = match stored.value.purpose.sessions() {
            Some(asked) => {
                let event = event.field("sessions", sessions_on_record(asked));
                event.field("session_count", asked.targets.len())
            }
            None => event,
        };
        let grant = granted(&stored.value, user, &means, worth, now);
        let used = means.factor.clone();
        let by = ProvenBy { means, user_revision: revision, at: now, code: None };
        steps.push(Self::user_as_read(user, revision));
        let next = Self::proven(&stored.value, user, by);
        self.replace(stored, &next, steps, now).await?;
        if let Some(used) = used {
            used.warn(user);
        }
        self.journal.record(vec![Self::named(event, stored)]).await?;
        // It serves once it is on record, and before the programs that wait hear of it.
        if let Some(grant) = grant {
            self.grants.add(grant, now);
        }
        self.is_changed(stored, &next);
        Ok(())
    }
}

/// What serves sessions once a challenge of this kind is proven; none of another.
fn granted(
    record: &ChallengeRecord,
    user: &UserName,
    means: &Means,
    worth: SessionFactor,
    now: OffsetDateTime,
) -> Option<Grant> {
    let (asked, login) = (record.purpose.sessions()?, record.login?);
    let scope = match asked.all {
        true => Scope::All,
        false => Scope::Targets(asked.targets.iter().map(|named| named.target.clone()).collect()),
    };
    Some(Grant {
        user: user.clone(),
        login,
        address: record.address,
        scope,
        worth,
        factor: means.factor.as_ref().map(|factor| factor.id),
        name: means.factor.as_ref().map_or_else(|| "recovery code".to_owned(), |factor| factor.name.clone()),
        proven_at: now,
        until: now + time::Duration::seconds(asked.seconds.into()),
    })
}
