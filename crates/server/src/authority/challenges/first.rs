//! The first factor of a user who comes by single sign-on: they have no password that could allow it, and sign in at their provider
//! again. From then on a factor of theirs proves each change, as of every user.

use sallyport_access::{SessionFactor, UserName};
use sallyport_audit::Code;
use sallyport_store::Stored;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::accounts::means::Means;
use crate::authority::caller::NOWHERE;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::records::{ChallengeRecord, Purpose};
use crate::authority::factors::kept::Held;
use crate::authority::records::Origin;

fn not_so() -> Status {
    Status::failed_precondition(
        "this is not proven by signing in at your provider: prove a factor that you have, here or in the terminal",
    )
}

impl Challenges {
    /// The person of a provider that a user is.
    pub(super) fn origin_of(&self, user: &UserName) -> Option<Origin> {
        self.identities.user(user).and_then(|user| user.origin.clone())
    }

    /// As whom a user signs in again to prove this: for a first factor alone.
    pub(super) fn signs_in_as(
        &self,
        record: &ChallengeRecord,
        user: &UserName,
        held: &Held,
    ) -> Option<Origin> {
        let is_first = held.is_empty() && matches!(record.purpose, Purpose::AddFactor { .. });
        if is_first { self.origin_of(user) } else { None }
    }

    /// Lets a person be sent to their provider, who has typed the code that the terminal shows. Gives as whom they have to come back.
    pub(crate) async fn may_sign_in_again(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        code: &str,
        now: OffsetDateTime,
    ) -> Result<Origin, Status> {
        let user = self.still_asked(&stored.value, now).await?;
        Self::is_pending(stored)?;
        let held = self.factors.held(&user, now).await?;
        let origin = self.signs_in_as(&stored.value, &user, &held).ok_or_else(not_so)?;
        self.code_is_typed(browser, stored, code, now).await?;
        Ok(origin)
    }

    /// A person has signed in again at the provider. Another one than whose challenge this is destroys it. One whom the login rules would not
    /// let in by it, from where the program asks, proves nothing.
    pub(crate) async fn signed_in_again(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        (issuer, subject): (&str, &str),
        by: Means,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let user = self.still_asked(&stored.value, now).await?;
        Self::is_pending(stored)?;
        // No administrator resets or removes the user meanwhile.
        let _changing = self.identities.steady().await;
        let held = self.factors.held(&user, now).await?;
        let origin = self.signs_in_as(&stored.value, &user, &held).ok_or_else(not_so)?;
        if origin.issuer != issuer || origin.subject != subject {
            let event = browser.event(Code::ChallengeRefused).user(user.as_str());
            self.end(&browser.caller, stored, event.message("another person of the provider"), now).await?;
            return Err(Status::permission_denied(
                "you signed in as another person than the one who asks: the approval has ended; begin again with the command that opened it",
            ));
        }
        self.admit_again(browser, stored, &user, &by, now).await?;
        // It is no second factor here, whatever the provider has asked for.
        let means = Means { second_factor: false, said: None, until: None, ..by };
        let event = browser.event(Code::ChallengeProven).field("connector", origin.connector);
        self.approved(event, stored, &user, (means, SessionFactor::Yes), Vec::new(), now).await?;
        Ok(v1::WebProven::default())
    }

    /// Asks the login rules as at a login: by what was proven, from where the program asks and from the device of its login.
    async fn admit_again(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        user: &UserName,
        by: &Means,
        now: OffsetDateTime,
    ) -> Result<(), Status> {
        let record = self.identities.user(user).ok_or_else(not_so)?;
        let device = match stored.value.login {
            Some(login) => self.device_of(user, login, now).await?,
            None => None,
        };
        // Custody is what is on record now.
        let device = match device {
            Some(device) => self.device(device.id, now).await?.map(|device| device.device()),
            None => None,
        };
        let address = Some(stored.value.address).filter(|address| *address != NOWHERE.ip());
        let purpose = stored.value.purpose.word();
        let event = Self::named(browser.event(Code::LoginDenied).field("purpose", purpose), stored);
        let asked = self.accounts.admit((&browser.caller, event), &record, by, (address, device), now).await;
        asked.map_err(|refusal| refusal.status)
    }
}
