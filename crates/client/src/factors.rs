//! The factors of the user who is logged in: listed, added and removed, each change proven anew.

use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_wire::convert;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::factors_client::FactorsClient;
use sallyport_wire::v1::{
    AwaitChallengeRequest, BeginAddFactorRequest, BeginAddFactorResponse, BeginProofRequest, ChallengePage,
    ChangePasswordRequest, Factor, FactorProof, FactorToAdd, FinishAddFactorRequest, ListFactorsRequest,
    ListFactorsResponse, MakeRecoveryCodesRequest, ProveAdministratorRequest, RemoveFactorRequest,
};
use time::OffsetDateTime;
use tokio::time::Instant;
use tonic::Code;

use crate::authority::Authority;
use crate::channel::Channel;
use crate::error::{Error, Result, was_reached};

/// How long the authority lets something be proven at a page.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long to wait before the authority is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The caller's factors, at the authority.
#[derive(Debug, Clone)]
pub struct Factors {
    client: FactorsClient<Channel>,
    host_name: String,
}

/// How a challenge at a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is proven, or what it was for is done.
    Done,
    /// It was refused, or ended after wrong answers.
    Refused,
}

impl Factors {
    /// `host_name` is what pages show of this machine.
    #[must_use]
    pub fn new(authority: &Authority, host_name: String) -> Self {
        Self { client: authority.factors(), host_name }
    }

    /// What there is.
    ///
    /// # Errors
    /// The authority does not answer.
    pub fn list(&mut self) -> BoxFuture<'_, Result<ListFactorsResponse>> {
        Box::pin(async move {
            let answer = self.client.list(ListFactorsRequest {}).await;
            Ok(answer.map_err(|status| Error::answered("list your factors", status))?.into_inner())
        })
    }

    /// Begins something that is proven at a page, for one later call; gives the page, and the code that the person types there.
    ///
    /// # Errors
    /// The authority refuses.
    pub fn begin_proof(&mut self, purpose: Purpose) -> BoxFuture<'_, Result<(ChallengePage, String)>> {
        Box::pin(async move {
            let request = BeginProofRequest { purpose: Some(purpose), host_name: self.host_name.clone() };
            let answer = self.client.begin_proof(request).await;
            let answer = answer.map_err(|status| Error::answered("prove a factor at a page", status))?;
            let begun = answer.into_inner();
            Ok((begun.page.ok_or(Error::Lacking("page"))?, begun.code))
        })
    }

    /// Waits until a page has done its part. An authority that goes while the connection stays is asked again.
    ///
    /// # Errors
    /// The challenge has ended, or the authority does not answer.
    pub fn wait<'a>(&'a mut self, page: &'a ChallengePage) -> BoxFuture<'a, Result<Ended>> {
        Box::pin(async move {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let request = AwaitChallengeRequest { challenge: page.challenge.clone() };
                let answer = match self.client.await_challenge(request).await {
                    Err(status)
                        if status.code() == Code::Unavailable
                            && was_reached(&status)
                            && Instant::now() + PAUSE < deadline =>
                    {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    answered => answered.map_err(|status| Error::answered("wait for the page", status))?,
                };
                match answer.into_inner().state.as_str() {
                    "pending" => {}
                    "proven" | "used" => return Ok(Ended::Done),
                    _ => return Ok(Ended::Refused),
                }
            }
        })
    }

    /// Begins to add a factor.
    ///
    /// # Errors
    /// The authority refuses.
    pub fn begin_add(
        &mut self,
        factor: FactorToAdd,
        proof: Option<Proof>,
    ) -> BoxFuture<'_, Result<BeginAddFactorResponse>> {
        Box::pin(async move {
            let request = BeginAddFactorRequest {
                factor: Some(factor),
                proof: Some(FactorProof { proof }),
                host_name: self.host_name.clone(),
            };
            let answer = self.client.begin_add(request).await;
            Ok(answer.map_err(|status| Error::answered("add a factor", status))?.into_inner())
        })
    }

    /// Adds one-time codes with the first that they show.
    ///
    /// # Errors
    /// The code is wrong, or the authority refuses.
    pub fn finish_add(&mut self, challenge: String, otp: String) -> BoxFuture<'_, Result<Factor>> {
        Box::pin(async move {
            let answer = self.client.finish_add(FinishAddFactorRequest { challenge, otp }).await;
            let answer = answer.map_err(|status| Error::answered("add the one-time codes", status))?;
            answer.into_inner().factor.ok_or(Error::Lacking("factor"))
        })
    }

    /// Removes a factor.
    ///
    /// # Errors
    /// It is the last one where one is required, or the authority refuses.
    pub fn remove(&mut self, id: String, proof: Option<Proof>) -> BoxFuture<'_, Result> {
        Box::pin(async move {
            let request = RemoveFactorRequest { id, proof: Some(FactorProof { proof }) };
            let answer = self.client.remove(request).await;
            answer.map(drop).map_err(|status| Error::answered("remove the factor", status))
        })
    }

    /// Proves a factor for what is dangerous to administer; until when that serves.
    ///
    /// # Errors
    /// The proof is wrong, or the caller has no factor.
    pub fn prove_administrator(&mut self, proof: Option<Proof>) -> BoxFuture<'_, Result<OffsetDateTime>> {
        Box::pin(async move {
            let request = ProveAdministratorRequest { proof: Some(FactorProof { proof }) };
            let answer = self.client.prove_administrator(request).await;
            let answer = answer.map_err(|status| Error::answered("prove a factor", status))?.into_inner();
            answer.until.as_ref().and_then(convert::time_from_proto).ok_or(Error::Lacking("time"))
        })
    }

    /// Makes recovery codes in the place of those that there are.
    ///
    /// # Errors
    /// There is no factor that they could stand in for, or the authority refuses.
    pub fn make_recovery_codes(&mut self, proof: Option<Proof>) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let request = MakeRecoveryCodesRequest { proof: Some(FactorProof { proof }) };
            let answer = self.client.make_recovery_codes(request).await;
            Ok(answer.map_err(|status| Error::answered("make recovery codes", status))?.into_inner().codes)
        })
    }

    /// Changes the password; gives how many other logins ended by it.
    ///
    /// # Errors
    /// The former password is wrong, the new one is too easy to guess, or the authority refuses.
    pub fn change_password(
        &mut self,
        old_password: String,
        new_password: String,
        proof: Option<Proof>,
    ) -> BoxFuture<'_, Result<u32>> {
        Box::pin(async move {
            let proof = Some(FactorProof { proof });
            let request = ChangePasswordRequest { old_password, new_password, proof };
            let answer = self.client.change_password(request).await;
            Ok(answer
                .map_err(|status| Error::answered("change the password", status))?
                .into_inner()
                .ended_logins)
        })
    }
}
