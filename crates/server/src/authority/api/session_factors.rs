//! The API of the second factor for each session: for users, for proxies of users whose clients cannot ask, and for hosts that decide.

use std::sync::Arc;

use sallyport_access::{HostRole, Principal};
use sallyport_wire::v1;
use sallyport_wire::v1::session_factors_server::SessionFactors;
use tonic::{Request, Response, Status};

use crate::authority::caller::{Caller, caller};
use crate::authority::challenges::changes::Own;
use crate::authority::gate::calls::Gate;

/// Factors for sessions.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
}

fn not_here() -> Status {
    Status::unimplemented("this authority asks for no second factor for each session")
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
impl SessionFactors for Service {
    async fn begin(
        &self,
        request: Request<v1::BeginSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorAsked>, Status> {
        self.own(&caller(&request), "SessionFactors.Begin").await?;
        Err(not_here())
    }

    async fn r#await(
        &self,
        request: Request<v1::AwaitSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        self.own(&caller(&request), "SessionFactors.Await").await?;
        Err(not_here())
    }

    async fn prove(
        &self,
        request: Request<v1::ProveSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        self.own(&caller(&request), "SessionFactors.Prove").await?;
        Err(not_here())
    }

    async fn certify(
        &self,
        request: Request<v1::CertifySessionRequest>,
    ) -> Result<Response<v1::CertifySessionResponse>, Status> {
        self.own(&caller(&request), "SessionFactors.Certify").await?;
        Err(not_here())
    }

    async fn begin_for(
        &self,
        request: Request<v1::BeginSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorAsked>, Status> {
        self.gate.host(&caller(&request), "SessionFactors.BeginFor", &[HostRole::Proxy]).await?;
        Err(not_here())
    }

    async fn await_for(
        &self,
        request: Request<v1::AwaitSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        self.gate.host(&caller(&request), "SessionFactors.AwaitFor", &[HostRole::Proxy]).await?;
        Err(not_here())
    }

    async fn prove_for(
        &self,
        request: Request<v1::ProveSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        self.gate.host(&caller(&request), "SessionFactors.ProveFor", &[HostRole::Proxy]).await?;
        Err(not_here())
    }

    async fn check(
        &self,
        request: Request<v1::CheckSessionFactorRequest>,
    ) -> Result<Response<v1::CheckSessionFactorResponse>, Status> {
        let hosts = [HostRole::Proxy, HostRole::Node];
        self.gate.host(&caller(&request), "SessionFactors.Check", &hosts).await?;
        Err(not_here())
    }
}
