//! The API of the second factor for each session: for users, for proxies of users whose clients cannot ask, and for hosts that decide.

use std::sync::Arc;

use sallyport_access::{HostRole, Identity, Principal};
use sallyport_wire::v1;
use sallyport_wire::v1::session_factors_server::SessionFactors as Served;
use tonic::{Code, Request, Response, Status};
use zeroize::Zeroizing;

use crate::authority::audit::journal::Journal;
use crate::authority::caller::{Caller, NOWHERE, caller};
use crate::authority::gate::calls::Gate;
use crate::authority::session_factors::asked::{Asker, SessionFactors, Wanted};
use crate::authority::session_factors::check::address;

/// Factors for sessions.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) gate: Arc<Gate>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) factors: Arc<SessionFactors>,
}

impl Service {
    /// The user who calls, within their bounds.
    async fn user(&self, caller: &Caller, method: &'static str) -> Result<Identity, Status> {
        let identity = self.gate.certified(caller, method).await?;
        if !matches!(identity.principal, Principal::User { .. }) {
            let status = Status::permission_denied("hosts have no factors: this is for users");
            return Err(self.gate.refuse(caller, method, status).await);
        }
        self.gate.within_bounds(caller)?;
        Ok(identity.clone())
    }

    /// The user whom a proxy calls for, within the bounds of that user's login, of where they are, and of the proxy.
    async fn asker_for<'c>(
        &self,
        caller: &'c Caller,
        method: &'static str,
        (shown, from): (Option<&v1::ShownCertificate>, &str),
    ) -> Result<Asker<'c>, Status> {
        let proxy = self.gate.host(caller, method, &[HostRole::Proxy]).await?;
        let address = address(from);
        let user = self.factors.shown(proxy, shown, address.as_ref().ok().copied());
        match (user, address) {
            (Ok(user), Ok(address)) => {
                self.gate.call_for_within_bounds(proxy, &user, address)?;
                let proxy = Some(proxy.display_name());
                Ok(Asker { caller, user, address, host_name: String::new(), proxy })
            }
            // Nothing was looked at: it takes no part of what the proxy may do for others.
            (Err(status), _) if status.code() == Code::ResourceExhausted => Err(status),
            (Err(status), _) | (_, Err(status)) => {
                self.gate.pages_within_bounds(proxy)?;
                Err(self.gate.refuse(caller, method, status).await)
            }
        }
    }
}

fn here(caller: &Caller, user: Identity, host_name: String) -> Asker<'_> {
    let address = caller.address().unwrap_or(NOWHERE.ip());
    Asker { caller, user, address, host_name, proxy: None }
}

#[tonic::async_trait]
impl Served for Service {
    async fn begin(
        &self,
        request: Request<v1::BeginSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorAsked>, Status> {
        const METHOD: &str = "SessionFactors.Begin";
        let caller = caller(&request);
        let user = self.user(&caller, METHOD).await?;
        let v1::BeginSessionFactorRequest { targets, all, host_name, pre_auth_seconds } =
            request.into_inner();
        let wanted = Wanted { targets, all, seconds: pre_auth_seconds };
        match self.factors.begin(&here(&caller, user, host_name), wanted).await {
            Ok(asked) => Ok(Response::new(asked)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn r#await(
        &self,
        request: Request<v1::AwaitSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        const METHOD: &str = "SessionFactors.Await";
        let caller = caller(&request);
        let user = self.user(&caller, METHOD).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.factors.awaited(&caller, &user, &request.into_inner().challenge).await.map(Response::new)
    }

    async fn prove(
        &self,
        request: Request<v1::ProveSessionFactorRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        let caller = caller(&request);
        let user = self.user(&caller, "SessionFactors.Prove").await?;
        let v1::ProveSessionFactorRequest { challenge, otp, shown } = request.into_inner();
        let asker = here(&caller, user, String::new());
        self.factors.prove(&asker, &challenge, Zeroizing::new(otp), &shown).await.map(Response::new)
    }

    async fn certify(
        &self,
        request: Request<v1::CertifySessionRequest>,
    ) -> Result<Response<v1::CertifySessionResponse>, Status> {
        const METHOD: &str = "SessionFactors.Certify";
        let caller = caller(&request);
        let user = self.user(&caller, METHOD).await?;
        match self.factors.certify(&caller, &user, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn begin_for(
        &self,
        request: Request<v1::BeginSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorAsked>, Status> {
        const METHOD: &str = "SessionFactors.BeginFor";
        let caller = caller(&request);
        let asked = request.into_inner();
        let asker = self.asker_for(&caller, METHOD, (asked.certificate.as_ref(), &asked.address)).await?;
        let wanted = Wanted { targets: asked.target.into_iter().collect(), all: false, seconds: 0 };
        match self.factors.begin(&asker, wanted).await {
            Ok(asked) => Ok(Response::new(asked)),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }

    async fn await_for(
        &self,
        request: Request<v1::AwaitSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        const METHOD: &str = "SessionFactors.AwaitFor";
        let caller = caller(&request);
        let asked = request.into_inner();
        let asker = self.asker_for(&caller, METHOD, (asked.certificate.as_ref(), &asked.address)).await?;
        self.journal.called(&caller, METHOD, "").await?;
        self.factors.stands(&asker.guesser(), &asker.user, &asked.challenge).await.map(Response::new)
    }

    async fn prove_for(
        &self,
        request: Request<v1::ProveSessionFactorForRequest>,
    ) -> Result<Response<v1::SessionFactorState>, Status> {
        const METHOD: &str = "SessionFactors.ProveFor";
        let caller = caller(&request);
        let asked = request.into_inner();
        let otp = Zeroizing::new(asked.otp);
        let asker = self.asker_for(&caller, METHOD, (asked.certificate.as_ref(), &asked.address)).await?;
        self.factors.prove(&asker, &asked.challenge, otp, &asked.shown).await.map(Response::new)
    }

    async fn check(
        &self,
        request: Request<v1::CheckSessionFactorRequest>,
    ) -> Result<Response<v1::CheckSessionFactorResponse>, Status> {
        const METHOD: &str = "SessionFactors.Check";
        let caller = caller(&request);
        let host = self.gate.host(&caller, METHOD, &[HostRole::Proxy, HostRole::Node]).await?;
        match self.factors.check(host, request.get_ref()).await {
            Ok(answer) => Ok(Response::new(answer)),
            // Nothing was looked at, and the refusals before it are on record.
            Err(status) if status.code() == Code::ResourceExhausted => Err(status),
            Err(status) => Err(self.gate.refuse(&caller, METHOD, status).await),
        }
    }
}
