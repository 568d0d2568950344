//! A passkey that a user adds, registered at a page.

use sallyport_access::UserName;
use sallyport_audit::Code;
use sallyport_store::Stored;
use sallyport_webauthn::RegistrationChoice;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::records::{ChallengeRecord, Purpose, State};
use crate::authority::factors::kept::{Factors, passkey};
use crate::authority::factors::names::FactorName;
use crate::authority::factors::passkeys::refusal;

impl Challenges {
    async fn enrolment(
        &self,
        browser: &Browser,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<(Stored<ChallengeRecord>, UserName, FactorName), Status> {
        let stored = self.at(&browser.caller, id, now).await?;
        let Purpose::EnrolPasskey { name, .. } = &stored.value.purpose else {
            return Err(Status::invalid_argument(
                "no passkey is to be added here; open the address that the program shows",
            ));
        };
        let name = name.clone();
        let user = self.still_asked(&stored.value, now).await?;
        Ok((stored, user, name))
    }

    /// What a page shows of a passkey that is to be added.
    pub(crate) async fn describe_enrolment(
        &self,
        browser: &Browser,
        id: &str,
    ) -> Result<v1::WebEnrolment, Status> {
        let (stored, user, name) = self.enrolment(browser, id, OffsetDateTime::now_utc()).await?;
        Ok(v1::WebEnrolment {
            cluster: self.config.cluster.to_string(),
            user: user.to_string(),
            name: name.to_string(),
            state: stored.value.state.word().to_owned(),
            expires: Some(convert::time_to_proto(stored.value.expires)),
        })
    }

    /// Begins to register it, for the person who sees the terminal.
    pub(crate) async fn begin_enrolment(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
    ) -> Result<v1::WebPublicKey, Status> {
        let now = OffsetDateTime::now_utc();
        let party = self.factors.party()?;
        let (stored, user, _) = self.enrolment(browser, id, now).await?;
        Self::is_pending(&stored)?;
        self.code_is_typed(browser, &stored, code, now).await?;
        let existing = self.factors.held(&user, now).await?.credentials();
        let account = self.account(&user, now).await?;
        let begun = party.begin_registration(&account, &existing, &RegistrationChoice::default(), now);
        let (options, pending) = begun.map_err(|error| refusal(&error))?;
        self.asks(&stored, &options, &pending, now).await
    }

    /// Registers it.
    pub(crate) async fn finish_enrolment(
        &self,
        browser: &Browser,
        id: &str,
        response: &str,
    ) -> Result<v1::WebEnrolled, Status> {
        let now = OffsetDateTime::now_utc();
        self.factors.party()?;
        let (mut stored, user, name) = self.enrolment(browser, id, now).await?;
        Self::is_pending(&stored)?;
        let pending = Self::take_ceremony(&mut stored)?;
        let credential = match self.check_new_passkey(pending, &user, &name, response, now).await? {
            Ok(credential) => credential,
            Err(error) => {
                let event = browser.event(Code::ChallengeRefused).user(user.as_str()).message(error.word());
                self.wrong_proof(&browser.caller, &stored, event, now).await?;
                return Err(refusal(&error));
            }
        };
        let factor = passkey(name.clone(), credential, now);
        let _changing = self.identities.steady().await;
        // A reset or removal of the user that came meanwhile is seen now, and none comes until this is written.
        self.still_asked(&stored.value, now).await?;
        let held = self.factors.held(&user, now).await?;
        self.still_allowed(&stored.value, &user, &held, now).await?;
        let steps = Factors::added(&user, &held, &factor)?;
        let mut next = stored.value.clone();
        next.state = State::Used;
        self.write(&stored, &next, steps, now).await?;
        let event = factor.on(browser.event(Code::FactorAdded).user(user.as_str()));
        self.journal.record(vec![Self::named(event, &stored)]).await?;
        Ok(v1::WebEnrolled { name: name.to_string() })
    }
}
