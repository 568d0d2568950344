//! A user's own factors at a page: shown once the code of the terminal is typed, and removed one by one, each with an approval of its own.

use sallyport_audit::Code;
use sallyport_store::Stored;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use crate::authority::challenges::changes::{Own, factor_id, no_factor};
use crate::authority::challenges::kept::{Asking, Challenges};
use crate::authority::challenges::pages::{Browser, client};
use crate::authority::challenges::records::{ChallengeRecord, Purpose};

impl Challenges {
    /// The page, and whose it is: that user's login stands.
    async fn factors_page(
        &self,
        browser: &Browser,
        id: &str,
        now: OffsetDateTime,
    ) -> Result<(Stored<ChallengeRecord>, Own), Status> {
        let stored = self.at(&browser.caller, id, now).await?;
        let (Purpose::ShowFactors, Some(login)) = (&stored.value.purpose, stored.value.login) else {
            return Err(Status::invalid_argument(
                "no factors are shown here; open the address that the program shows",
            ));
        };
        let user = self.still_asked(&stored.value, now).await?;
        Ok((stored, Own { user, login }))
    }

    /// The page, for the person who sees the terminal. The address alone shows no factor.
    async fn opened_factors_page(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
        now: OffsetDateTime,
    ) -> Result<(ChallengeRecord, Own), Status> {
        let (stored, own) = self.factors_page(browser, id, now).await?;
        Self::is_pending(&stored)?;
        self.code_is_typed(browser, &stored, code, now).await?;
        Ok((stored.value, own))
    }

    async fn own_factors(&self, own: &Own) -> Result<v1::WebFactors, Status> {
        let v1::ListFactorsResponse { factors, recovery_codes, .. } = self.list_factors(own).await?;
        Ok(v1::WebFactors { factors, recovery_codes })
    }

    /// Who has asked for the page.
    pub(crate) async fn describe_factors(
        &self,
        browser: &Browser,
        id: &str,
    ) -> Result<v1::WebFactorsPage, Status> {
        let (stored, own) = self.factors_page(browser, id, OffsetDateTime::now_utc()).await?;
        Ok(v1::WebFactorsPage {
            cluster: self.config.cluster.to_string(),
            user: own.user.to_string(),
            client: Some(client(&stored.value)),
            state: stored.value.state.word().to_owned(),
            expires: Some(convert::time_to_proto(stored.value.expires)),
        })
    }

    /// The factors.
    pub(crate) async fn factors_at_page(
        &self,
        browser: &Browser,
        id: &str,
        code: &str,
    ) -> Result<v1::WebFactors, Status> {
        let (_, own) = self.opened_factors_page(browser, id, code, OffsetDateTime::now_utc()).await?;
        self.own_factors(&own).await
    }

    /// Begins to remove one: an approval as `sallyport mfa rm` begins it, of the same user, login and terminal.
    pub(crate) async fn begin_factor_removal(
        &self,
        browser: &Browser,
        asked: v1::WebFactorRemovalRequest,
    ) -> Result<v1::WebFactorRemoval, Status> {
        let now = OffsetDateTime::now_utc();
        let (page, own) = self.opened_factors_page(browser, &asked.id, &asked.code, now).await?;
        let factor = factor_id(&asked.factor)?;
        let held = self.factors.held(&own.user, now).await?;
        held.of_id(factor).ok_or_else(no_factor)?;
        self.can_spare(&browser.caller, &own, &held, now).await?;
        let asking = Asking {
            user: Some(&own.user),
            login: Some(own.login),
            host_name: page.host_name,
            address: page.address,
            terminal_code: page.terminal_code,
        };
        let purpose = Purpose::RemoveFactor { id: factor };
        let event = browser.event(Code::ChallengeBegun).user(own.user.as_str());
        let event = event.field("purpose", purpose.word()).field("login_id", own.login.to_string());
        let opened = self.open(purpose, asking, now).await?;
        self.journal.note_caused(&browser.caller, event, "").await?;
        Ok(v1::WebFactorRemoval { approval: opened.id })
    }

    /// Removes it, once the approval is proven, and gives those that are left.
    pub(crate) async fn finish_factor_removal(
        &self,
        browser: &Browser,
        asked: v1::WebFinishFactorRemovalRequest,
    ) -> Result<v1::WebFactors, Status> {
        let now = OffsetDateTime::now_utc();
        let (_, own) = self.opened_factors_page(browser, &asked.id, &asked.code, now).await?;
        let proof = v1::FactorProof { proof: Some(Proof::Challenge(asked.approval)) };
        let request = v1::RemoveFactorRequest { id: asked.factor, proof: Some(proof) };
        self.remove_factor(&browser.caller, &own, request).await?;
        self.own_factors(&own).await
    }
}
