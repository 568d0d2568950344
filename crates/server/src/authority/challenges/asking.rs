//! What a user's own program asks a page to be opened for.

use sallyport_audit::Code;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::challenges::changes::{Own, asking, factor_id, no_factor};
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::records::Purpose;
use crate::authority::challenges::terminal;

impl Challenges {
    /// A challenge that the caller proves at a page, for one later call; or the page that shows the caller's factors. That an administrator may
    /// admit devices was seen before.
    pub(crate) async fn begin_proof(
        &self,
        caller: &Caller,
        own: &Own,
        request: v1::BeginProofRequest,
    ) -> Result<v1::BeginProofResponse, Status> {
        use v1::begin_proof_request::Purpose as Asked;
        let now = OffsetDateTime::now_utc();
        self.accounts.take_over_codes(&own.user, now).await?;
        let held = self.factors.held(&own.user, now).await?;
        // The first one is proven at the provider, by the same page.
        let adds = matches!(request.purpose, Some(Asked::AddFactor(_)));
        if held.is_empty() && !(adds && self.by_single_sign_on(&own.user)) {
            return Err(Status::failed_precondition(
                "you have no factor yet that could be proven at a page; add one first: sallyport mfa add",
            ));
        }
        let purpose = match request.purpose {
            Some(Asked::AddFactor(asked)) => {
                let (kind, name) = self.wanted(Some(asked))?;
                held.has_room_for(&name)?;
                Purpose::AddFactor { kind, name }
            }
            Some(Asked::RemoveFactor(id)) => {
                let id = factor_id(&id)?;
                held.of_id(id).ok_or_else(no_factor)?;
                Purpose::RemoveFactor { id }
            }
            Some(Asked::RecoveryCodes(true)) => Purpose::RecoveryCodes,
            Some(Asked::ChangePassword(true)) => Purpose::ChangePassword,
            Some(Asked::Administer(true)) => {
                Purpose::Administer { asked: self.administering.asked_by(own.login, now) }
            }
            Some(Asked::AdmitDevice(id)) => Purpose::AdmitDevice { device: self.that_waits(&id, now).await? },
            Some(Asked::ShowFactors(true)) => Purpose::ShowFactors,
            Some(
                Asked::RecoveryCodes(false)
                | Asked::ChangePassword(false)
                | Asked::Administer(false)
                | Asked::ShowFactors(false),
            )
            | None => {
                return Err(Status::invalid_argument("the call does not say what is to be proven"));
            }
        };
        let path = if purpose == Purpose::ShowFactors { "/factors" } else { "/approve" };
        let event = caller.event(Code::ChallengeBegun).field("purpose", purpose.word());
        let code = terminal::fresh()?;
        let asking = Asking {
            terminal_code: Some(terminal::hashed(&code)),
            ..asking(caller, own, &request.host_name)
        };
        let opened = self.open(purpose, asking, now).await?;
        self.journal.note_caused(caller, event, "").await?;
        Ok(v1::BeginProofResponse { page: Some(self.page(&opened, path)), code })
    }
}
