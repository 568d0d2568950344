//! An administrator proves a factor, and may do what is dangerous for some minutes.

use sallyport_audit::Code;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::caller::Caller;
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::Challenges;
use crate::authority::challenges::records::Purpose;
use crate::places::Place;

impl Challenges {
    /// Takes a proof of a factor for what is dangerous: for this login, from where it calls. A password is none, so that a user without a
    /// factor proves nothing here.
    pub(crate) async fn prove_administrator(
        &self,
        caller: &Caller,
        own: &Own,
        proof: Option<v1::FactorProof>,
    ) -> Result<v1::ProveAdministratorResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let wanted = Purpose::Administer { asked: None };
        let refused =
            |message| caller.event(Code::ChallengeRefused).message(message).field("purpose", wanted.word());
        self.accounts.take_over_codes(&own.user, now).await?;
        if self.factors.held(&own.user, now).await?.is_empty() {
            self.journal.note_caused(caller, refused("no factor"), "").await?;
            return Err(Status::failed_precondition(
                "you have no factor that you could prove; add one with your password: sallyport mfa add NAME",
            ));
        }
        let mut spent = self.prove(caller, own, proof, &wanted, now).await?;
        // On a full disk an administrator removes what fills it.
        spent.urgent = true;
        let begun_at = spent.begun_at().map(Place::of);
        if begun_at.is_some_and(|begun| Some(begun) != caller.address().map(Place::of)) {
            self.journal.note_caused(caller, refused("begun from another address"), "").await?;
            return Err(Status::permission_denied(
                "this was begun from another address than it comes from now, and what is proven serves one address; begin again: \
                 sallyport admin prove",
            ));
        }
        let (means, at) = (spent.means.clone(), spent.proven_at);
        let _changing = self.identities.steady().await;
        self.spend(caller, own, spent, Vec::new(), now).await?;
        let factor = means.as_ref().and_then(|means| means.factor.as_ref()).map(|factor| factor.id);
        let until = self.administering.proven(caller, factor, at, now).await?;
        let event = caller.event(Code::AdminFactorProven).field("login_id", own.login.to_string());
        let event = means.map(|means| means.on(event.clone())).unwrap_or(event);
        self.journal.record_urgent(vec![event]).await?;
        Ok(v1::ProveAdministratorResponse { until: Some(convert::time_to_proto(until)) })
    }
}
