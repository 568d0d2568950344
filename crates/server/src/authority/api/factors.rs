//! The API of a user's own factors.

use std::sync::Arc;

use sallyport_access::{Principal, Verb};
use sallyport_wire::v1;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factors_server::Factors;
use tonic::{Request, Response, Status};

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, caller};
use crate::authority::challenges::changes::Own;
use crate::authority::challenges::kept::Challenges;
use crate::authority::gate::calls::Gate;

/// What users do with their own factors.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) challenges: Arc<Challenges>,
}

impl Service {
    /// The user who calls, within their bounds.
    async fn own(&self, caller: &Caller, method: &'static str) -> Result<Own, Status> {
        let identity = self.gate.certified(caller, method).await?;
        let Principal::User { name, .. } = &identity.principal else {
            let status = Status::permission_denied("hosts have no factors: this is for users");
            return Err(self.gate.refuse(caller, method, status).await);
        };
        self.gate.within_bounds(caller)?;
        Ok(Own { user: name.clone(), login: identity.login_id })
    }
}

#[tonic::async_trait]
impl Factors for Service {
    async fn list(
        &self,
        request: Request<v1::ListFactorsRequest>,
    ) -> Result<Response<v1::ListFactorsResponse>, Status> {
        const METHOD: &str = "Factors.List";
        let caller = caller(&request);
        let own = self.own(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.challenges.list_factors(&own).await.map(Response::new)
    }

    async fn begin_proof(
        &self,
        request: Request<v1::BeginProofRequest>,
    ) -> Result<Response<v1::BeginProofResponse>, Status> {
        const METHOD: &str = "Factors.BeginProof";
        let caller = caller(&request);
        let own = self.own(&caller, METHOD).await?;
        let request = request.into_inner();
        // What a page shows of a device is for those who may admit it.
        if matches!(request.purpose, Some(Purpose::AdmitDevice(_)))
            && let Err(status) = self.gate.check(&caller, "device", Verb::Update)
        {
            return Err(self.gate.refuse(&caller, METHOD, status).await);
        }
        self.challenges.begin_proof(&caller, &own, request).await.map(Response::new)
    }

    async fn await_challenge(
        &self,
        request: Request<v1::AwaitChallengeRequest>,
    ) -> Result<Response<v1::AwaitChallengeResponse>, Status> {
        const METHOD: &str = "Factors.AwaitChallenge";
        let caller = caller(&request);
        let own = self.own(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        let id = request.into_inner().challenge;
        self.challenges.await_challenge(&caller, &own, &id).await.map(Response::new)
    }

    async fn begin_add(
        &self,
        request: Request<v1::BeginAddFactorRequest>,
    ) -> Result<Response<v1::BeginAddFactorResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.BeginAdd").await?;
        self.challenges.begin_add(&caller, &own, request.into_inner()).await.map(Response::new)
    }

    async fn finish_add(
        &self,
        request: Request<v1::FinishAddFactorRequest>,
    ) -> Result<Response<v1::FinishAddFactorResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.FinishAdd").await?;
        self.challenges.finish_add(&caller, &own, request.into_inner()).await.map(Response::new)
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveFactorRequest>,
    ) -> Result<Response<v1::RemoveFactorResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.Remove").await?;
        self.challenges.remove_factor(&caller, &own, request.into_inner()).await?;
        Ok(Response::new(v1::RemoveFactorResponse {}))
    }

    async fn make_recovery_codes(
        &self,
        request: Request<v1::MakeRecoveryCodesRequest>,
    ) -> Result<Response<v1::MakeRecoveryCodesResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.MakeRecoveryCodes").await?;
        let proof = request.into_inner().proof;
        let codes = self.challenges.make_recovery_codes(&caller, &own, proof).await?;
        Ok(Response::new(v1::MakeRecoveryCodesResponse { codes }))
    }

    async fn change_password(
        &self,
        request: Request<v1::ChangePasswordRequest>,
    ) -> Result<Response<v1::ChangePasswordResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.ChangePassword").await?;
        let ended = self.challenges.change_password(&caller, &own, request.into_inner()).await?;
        let ended_logins = u32::try_from(ended).unwrap_or(u32::MAX);
        Ok(Response::new(v1::ChangePasswordResponse { ended_logins }))
    }

    async fn prove_administrator(
        &self,
        request: Request<v1::ProveAdministratorRequest>,
    ) -> Result<Response<v1::ProveAdministratorResponse>, Status> {
        let caller = caller(&request);
        let own = self.own(&caller, "Factors.ProveAdministrator").await?;
        let proof = request.into_inner().proof;
        self.challenges.prove_administrator(&caller, &own, proof).await.map(Response::new)
    }
}
